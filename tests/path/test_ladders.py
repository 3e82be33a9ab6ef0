"""Ladders: those that are chosen from a short run against closed-form paths, noise, and bad input."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.polynomial.legendre import Legendre
from scipy import integrate
from targets import NORMAL, SKEWED

from thermint import diagnostics
from thermint.ladders import Ladder
from thermint.paper import linear
from thermint.path import ladders
from thermint.path.quadrature import second_order

# A path in closed form: theta ~ N(0, I_2) and g = -|theta|^2 / (2 b). Then -g is exponential with rate b + t, so that
# E_t[g] = -1 / (b + t), V_t[g] = 1 / (b + t)^2, and a swap from s to t is rejected with probability
# (t - s) / (2 b + s + t).
B = 1e-3


def exponential(t: Ladder, b: float = B) -> dict[str, np.ndarray]:
    rejection = np.diff(t) / (2 * b + t[1:] + t[:-1])
    return {
        "t": t,
        "mean": -1 / (b + t),
        "variance": 1 / (b + t) ** 2,
        "ratio": 0.1 + 0.5 * t,
        "swap_rate": np.append(1 - rejection, np.nan),
    }


def regression(t: Ladder) -> dict[str, np.ndarray]:
    mean, variance = linear.integrand(t)
    return {"t": t, "mean": mean, "variance": variance, "ratio": 1e-2 / (0.01 + t) ** 0.5}


PATHS = {"exponential": exponential, "regression": regression}


# --- Fixed ladders ---


def test_geometric() -> None:
    ladder = ladders.as_ladder(ladders.geometric(9, 1e-7))
    np.testing.assert_allclose(ladder[2:] / ladder[1:-1], 10.0)


def test_lobatto_in_closed_form() -> None:
    np.testing.assert_allclose(ladders.lobatto(2), [0, 1])
    np.testing.assert_allclose(ladders.lobatto(4), 0.5 + np.array([-1, -(5**-0.5), 5**-0.5, 1]) / 2, atol=1e-16)
    np.testing.assert_allclose(
        ladders.lobatto(5), 0.5 + np.array([-1, -((3 / 7) ** 0.5), 0, (3 / 7) ** 0.5, 1]) / 2, atol=1e-16
    )


@pytest.mark.parametrize("rungs", range(2, 31))
def test_lobatto_is_a_ladder_to_machine_precision(rungs: int) -> None:
    ladder = ladders.as_ladder(ladders.lobatto(rungs))
    slope = Legendre.basis(rungs - 1).deriv()
    x = 2 * ladder[1:-1] - 1
    np.testing.assert_array_less(np.abs(slope(x) / slope.deriv()(x)), 1e-15)
    np.testing.assert_allclose(ladder + ladder[::-1], 1.0, rtol=1e-15)


# --- The optimal density ---


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("controlled", [True, False])
@pytest.mark.parametrize("name", PATHS)
def test_optimal_against_integrated_density(name: str, controlled: bool, centred: bool) -> None:
    path = PATHS[name]

    def density(x: float) -> float:  # in x = log(b + t), where it is smooth
        t = np.exp(x) - B
        row = {key: float(value[0]) for key, value in path(np.array([t, 1.0])).items() if key != "swap_rate"}
        variance = row["variance"] * (row["ratio"] if controlled else 1.0)
        return (t + B) * np.sqrt(variance + (0.0 if centred else row["mean"] ** 2))

    ladder = ladders.optimal(path(ladders.power(21)), 12, centred=centred, controlled=controlled)
    assert ladder[0] == 0
    assert ladder[-1] == 1
    edges = np.log(B + ladder)
    mass = np.array([integrate.quad(density, a, b, epsrel=1e-8)[0] for a, b in pairwise(edges)])
    np.testing.assert_allclose(mass / mass.mean(), 1.0, atol=0.02)


@pytest.mark.parametrize("target", [NORMAL, SKEWED])
def test_optimal_on_the_targets(target: Any) -> None:
    t, step = ladders.power(16), 1e-5
    mean = np.array([target.expected_log_likelihood(s) for s in t])
    variance = np.array([(target.expected_log_likelihood(s + step) - e) / step for s, e in zip(t, mean, strict=True)])
    ladder = ladders.optimal({"t": t, "mean": mean, "variance": variance}, 6)
    root = np.interp(np.linspace(0, 1, 20001), t, np.sqrt(variance))
    total = np.append(0, np.cumsum(root[1:] + root[:-1]))
    np.testing.assert_allclose(
        ladder, np.interp(np.linspace(0, total[-1], 6), total, np.linspace(0, 1, 20001)), atol=0.01
    )


def test_optimal_is_geometric_in_b_plus_t_on_a_normal_path() -> None:
    expected = B * ((1 + B) / B) ** np.linspace(0, 1, 31) - B
    np.testing.assert_allclose(ladders.optimal(exponential(ladders.power(16)), 31), expected, rtol=0.02, atol=1e-15)


def test_centred_form_does_not_depend_on_a_constant_and_the_papers_does() -> None:
    table = exponential(ladders.power(16))
    shifted = table | {"mean": table["mean"] - 1e5}
    for controlled in (False, True):
        centred, paper = (
            [ladders.optimal(x, centred=c, controlled=controlled) for x in (table, shifted)] for c in (True, False)
        )
        np.testing.assert_array_equal(centred[0], centred[1])
        assert np.max(np.abs(paper[1] - paper[0])) > 0.1
        np.testing.assert_allclose(paper[1], np.linspace(0, 1, 16), atol=0.01)  # a large constant is all it sees


@pytest.mark.parametrize("centred", [True, False])
def test_optimal_does_not_depend_on_the_unit_of_g(centred: bool) -> None:
    table = exponential(ladders.power(16))
    scaled = table | {"mean": 7 * table["mean"], "variance": 49 * table["variance"]}
    np.testing.assert_allclose(
        ladders.optimal(scaled, 9, centred=centred), ladders.optimal(table, 9, centred=centred), rtol=1e-9
    )


def test_optimal_passes_over_variances_that_noise_made_negative() -> None:
    table = exponential(ladders.power(31))
    noisy = table["variance"].copy()
    noisy[[0, 7, 8, 30]] = [-1.0, -2.0, 0.0, -1e-3]
    np.testing.assert_allclose(ladders.optimal(table | {"variance": noisy}, 12), ladders.optimal(table, 12), rtol=0.1)


def test_a_constant_likelihood_gets_some_ladder() -> None:
    table = {"t": ladders.power(5), "mean": np.ones(5), "variance": np.zeros(5), "swap_rate": np.ones(5)}
    np.testing.assert_allclose(ladders.optimal(table, 5), np.linspace(0, 1, 5), atol=1e-6)
    assert len(ladders.equal_rejection(table, 7)) == 7
    assert len(ladders.adapted(table)) == 5


def test_rungs_are_exact_to_five_digits_where_the_variance_is_known() -> None:
    flat = {"t": ladders.power(16), "mean": np.zeros(16), "variance": np.ones(16)}
    np.testing.assert_allclose(ladders.optimal(flat, 9), np.linspace(0, 1, 9), rtol=4e-6)


def test_tables_and_dictionaries_are_the_same() -> None:
    table = exponential(ladders.power(16))
    frame = pd.DataFrame(table).rename_axis("rung")
    np.testing.assert_array_equal(ladders.optimal(table), ladders.optimal(frame))
    np.testing.assert_array_equal(ladders.equal_rejection(table), ladders.equal_rejection(frame))
    np.testing.assert_array_equal(ladders.adapted(table), ladders.adapted(frame))


# --- Equal rejection ---


@pytest.mark.parametrize("rungs", [8, 16, 31])
def test_equal_rejection_makes_rejections_equal(rungs: int) -> None:
    table = exponential(ladders.power(16))
    assert np.nanstd(table["swap_rate"]) > 0.05
    once = exponential(ladders.equal_rejection(table, rungs))
    twice = exponential(ladders.equal_rejection(once))
    for new, tolerance in [(once, 0.1), (twice, 0.02)]:
        rejection = 1 - new["swap_rate"][:-1]
        np.testing.assert_allclose(rejection / rejection.mean(), 1.0, atol=tolerance)


def test_barrier_converges() -> None:
    exact = np.log((1 + B) / B) / 2
    barriers = [ladders.barrier(exponential(ladders.power(rungs))) for rungs in (16, 61)]
    assert barriers == pytest.approx([exact, exact], rel=0.05)
    assert abs(barriers[1] - exact) < 0.003 * exact


def test_rates_from_traces() -> None:
    t = ladders.power(16)
    g = -np.random.default_rng(0).exponential(1 / (B + t), (4, 20_000, 16))
    rates = diagnostics.swap_rates(g, t)
    np.testing.assert_allclose(rates[:-1], exponential(t)["swap_rate"][:-1], atol=0.006)
    exact = ladders.equal_rejection(exponential(t))
    for form in (rates, rates[:-1]):  # with or without an entry for the last rung
        np.testing.assert_allclose(ladders.equal_rejection({"t": t, "swap_rate": form}), exact, rtol=0.05)


# --- Adapted ---


def error_of(path: Any, ladder: Ladder, truth: float) -> float:
    table = path(ladder)
    mean_weights, variance_weights = second_order(ladder)
    return abs(float(mean_weights @ table["mean"] + variance_weights @ table["variance"]) - truth)


TRUTH = {"exponential": -np.log((1 + B) / B), "regression": linear.log_evidence()}


@pytest.mark.parametrize("tolerance", [0.1, 0.01, 1e-3, 1e-4])
@pytest.mark.parametrize("name", PATHS)
def test_adapted_meets_the_tolerance_with_few_rungs(name: str, tolerance: float) -> None:
    path, truth = PATHS[name], TRUTH[name]
    ladder = ladders.adapted(path(ladders.power(16)), tolerance)
    rejection = np.diff(ladder) / (2 * B + ladder[1:] + ladder[:-1])
    assert error_of(path, ladder, truth) < 1.1 * tolerance
    if name == "exponential":
        assert rejection.max() < 0.52
    fewer = ladders.optimal(path(ladders.power(61)), int(0.75 * len(ladder)))
    if tolerance < 0.01:  # else swaps may ask for more
        assert error_of(path, fewer, truth) > tolerance


@pytest.mark.parametrize("noise", [0.05, 0.2])
def test_adapted_with_noise(noise: float) -> None:
    table = exponential(ladders.power(16))
    exact = len(ladders.adapted(table, 1e-3))
    for seed in range(20):
        factor = np.exp(noise * np.random.default_rng(seed).standard_normal(16))
        ladder = ladders.adapted(table | {"variance": factor * table["variance"]}, 1e-3)
        assert error_of(exponential, ladder, TRUTH["exponential"]) < 2e-3
        assert 0.8 < len(ladder) / exact < (1.4 if noise < 0.1 else 2.5)


def test_adapted_sees_a_jump_of_the_mean_inside_the_path() -> None:
    """The mean rises by 40 within 0.05 around t = 0.3, as where one mode takes over from another."""

    def path(t: Ladder) -> dict[str, np.ndarray]:
        u = (t - 0.3) / 0.05
        return {
            "t": t,
            "mean": -4 / (0.01 + t) + 20 * np.tanh(u),
            "variance": 4 / (0.01 + t) ** 2 + 400 / np.cosh(u) ** 2,
        }

    truth = -4 * np.log(101) + 20 * 0.05 * (np.log(np.cosh(14)) - np.log(np.cosh(6)))
    assert error_of(path, ladders.adapted(path(ladders.power(21)), 1e-2), truth) < 1e-2


def test_adapted_on_a_steep_path() -> None:
    """E_t[g] from -1e5 to -300."""
    b = 1e-5
    ladder = ladders.adapted(exponential(ladders.power(16), b), 0.01)
    assert error_of(lambda t: exponential(t, b), ladder, -np.log((1 + b) / b)) < 0.011
    assert len(ladder) < 40


def test_adapted_stops_at_the_most_rungs() -> None:
    assert len(ladders.adapted(exponential(ladders.power(16)), 1e-12, most=40)) == 40
    assert len(ladders.adapted(exponential(ladders.power(16), 1e-8), most=10)) == 10


# --- Words ---

T = ladders.power(5)
GOOD = exponential(T)
FROM_TABLE: dict[str, tuple[Any, Any, dict[str, Any], str | None]] = {
    "no column": (ladders.optimal, {"t": T, "mean": T}, {}, "no column 'variance'.*evidence.*rungs"),
    "no ratio": (ladders.optimal, {"t": T, "mean": T, "variance": T}, {"controlled": True}, "no column 'ratio'"),
    "no swap rates": (ladders.barrier, {"t": T}, {}, "no column 'swap_rate'.*diagnostics.swap_rates"),
    "not a table": (ladders.adapted, 3, {}, "no column 't'"),
    "shape": (ladders.optimal, GOOD | {"mean": T[1:]}, {}, r"mean has shape \(4,\), but there are 5 rungs"),
    "shape of rates": (ladders.equal_rejection, GOOD | {"swap_rate": T[:3]}, {}, r"swap_rate has shape \(3,\)"),
    "nan": (ladders.adapted, GOOD | {"variance": T * np.nan}, {}, "variance is not finite at rung 0"),
    "rate": (ladders.equal_rejection, GOOD | {"swap_rate": 2 * T}, {}, None),
    "too large": (ladders.barrier, GOOD | {"swap_rate": 2 + T}, {}, "swap_rate is 2 at rung 0; .* between 0 and 1"),
    "ladder": (ladders.adapted, GOOD | {"t": T + 0.1}, {}, "start at exactly 0"),
    "rungs": (ladders.optimal, GOOD, {"rungs": 1}, "rungs = 1: it must be a whole number, at least 2"),
    "rungs, too": (ladders.equal_rejection, GOOD, {"rungs": 2.5}, "rungs = 2.5"),
    "tolerance": (ladders.adapted, GOOD, {"tolerance": 0.0}, "tolerance = 0.0: it must be above zero"),
    "most": (ladders.adapted, GOOD, {"most": 2}, "most = 2"),
}


@pytest.mark.parametrize("case", FROM_TABLE)
def test_bad_tables_are_refused_in_words(case: str) -> None:
    function, table, options, words = FROM_TABLE[case]
    if words is None:  # rates of up to 2 * t_3 < 1, and a last entry that nobody reads
        assert len(function(table, **options)) == 5
        return
    with pytest.raises(ValueError, match=words):
        function(table, **options)


def test_bad_numbers_are_refused_in_words() -> None:
    with pytest.raises(ValueError, match="rungs = 1"):
        ladders.lobatto(1)
    with pytest.raises(ValueError, match="rungs = 1"):
        ladders.power(1)
    with pytest.raises(ValueError, match="rungs = 2"):
        ladders.geometric(2, 0.1)
    with pytest.raises(ValueError, match="smallest = 0"):
        ladders.geometric(5, 0)
