"""Equilibrated annealed importance sampling, plain and controlled: truth, exact cases, and how control fails."""

from __future__ import annotations

import numpy as np
import pytest
from targets import NORMAL, SKEWED, SKEWED_2, Target
from test_bridge import exact_draws, z_of
from test_stepping_stone import assert_error_is_the_spread, error_where_constants_are_true, far, normal_traces, traces

import thermint
from thermint import Draws
from thermint.estimators.ais import ais, controlled_ais, tail_index, weight_warnings
from thermint.estimators.errors import batch_error
from thermint.estimators.stepping_stone import Ratios, forward
from thermint.ladders import power
from thermint.path.coordinates import rung_moments

# --- Without control ---


@pytest.mark.parametrize("target", [NORMAL, SKEWED], ids=["normal", "skewed"])
def test_every_constant_is_the_truth(target: Target) -> None:
    ladder = power(7, 3)
    ratios = ais(traces(target, np.random.default_rng(0), ladder, 4, 5000), ladder, 20)
    assert 1e-4 < error_where_constants_are_true(ratios, target, ladder) < 0.03


@pytest.mark.parametrize(("rho", "draws"), [(0.0, 403), (0.8, 1003)])  # not divisible by the number of batches
def test_error_is_the_spread(rho: float, draws: int) -> None:
    assert_error_is_the_spread(ais, power(9, 2), draws, rho)


def test_the_evidence_is_unbiased_and_its_log_too_low() -> None:
    ladder = np.array([0.0, 0.1, 0.4, 1.0])
    g = normal_traces(np.random.default_rng(2), ladder, 4000, 1, 10)

    def bias(estimates: np.ndarray) -> float:
        return float(estimates.mean() / (estimates.std() / np.sqrt(len(estimates))))

    log = np.array([ais(one, ladder, 2).value for one in g]) - NORMAL.log_evidence
    assert abs(bias(np.exp(log) - 1)) < 4
    assert bias(log) < -8
    # The test itself: weights that take each step at its upper end would be noticed.
    upper = np.array([ais(np.roll(one, -1, axis=-1), ladder, 2).value for one in g]) - NORMAL.log_evidence
    assert abs(bias(np.exp(upper) - 1)) > 8


def test_it_is_a_mean_of_products() -> None:
    ladder = np.array([0.0, 0.25, 1.0])
    g = np.random.default_rng(3).standard_normal((2, 5, 3))
    weights = [np.exp(0.25 * one[0] + 0.75 * one[1]) for population in g for one in population]
    ratios = ais(g, ladder, 5)
    assert ratios.value == pytest.approx(np.log(np.mean(weights)), rel=1e-14)
    assert ratios.series == pytest.approx(np.reshape(weights, (2, 5)).T / np.mean(weights), rel=1e-14)
    assert ratios.log_z[1] == pytest.approx(forward(g, ladder, 5).log_z[1], rel=1e-14)  # with a single step, the same
    assert abs(ratios.value - forward(g, ladder, 5).value) > 1e-3  # a product of means


@pytest.mark.parametrize("shift", [-1e5, 1e4])
def test_shift(shift: float) -> None:
    ladder = power(7, 3)
    g = traces(SKEWED, np.random.default_rng(4), ladder, 2, 200)
    here, there = ais(g, ladder, 20), ais(g + shift, ladder, 20)
    assert there.value - here.value == pytest.approx(shift, abs=1e-9)
    assert there.series == pytest.approx(here.series, abs=1e-8)


def test_extremes_of_g() -> None:
    g = np.zeros((1, 10, 3))
    g[0, 0], g[0, 1], g[0, 2] = -1e5, 1e4, -np.inf
    ratios = ais(g, np.array([0.0, 0.5, 1.0]), 5)
    assert ratios.value == pytest.approx(1e4 - np.log(10), rel=1e-14)  # one draw in ten outweighs all others
    assert np.all(np.isfinite(ratios.series))


# --- When weights cannot be trusted ---


@pytest.mark.parametrize("n", [100, 1000, 100_000])
def test_the_tail_index_of_log_normal_weights_shows_what_they_are_worth(n: int) -> None:
    rng = np.random.default_rng(5)
    # n weights whose logs have variance v are worth n e^-v equal ones, in the long run.
    for worth, low, high in ((20, 0.75, 1.05), (n / 2, 0.0, 0.75), (1, 1.05, 9.0)):
        index = np.mean([tail_index(np.sqrt(np.log(n / worth)) * rng.standard_normal(n)) for _ in range(20)])
        assert low < index < high


def test_a_heavy_tail_is_a_warning_although_the_weights_look_even() -> None:
    """Pareto weights without the largest ones, which a run may not have met."""
    quantile = (np.arange(10, 4000) + 0.5) / 4000
    (said,) = weight_warnings(-1.3 * np.log(quantile))
    assert "are worth 123.9 equal ones, the largest makes up 3.4%" in said
    assert not weight_warnings(-0.7 * np.log(quantile))


def test_weights_that_are_even_enough_are_no_warning() -> None:
    rng = np.random.default_rng(6)
    assert not weight_warnings(0.5 * rng.standard_normal(1000))
    assert not weight_warnings(np.zeros(25))
    left = np.where(rng.uniform(size=1000) < 0.5, -np.inf, 0.0)  # weights of zero do not matter
    assert not weight_warnings(left)
    (tail,) = weight_warnings(3.0 * rng.standard_normal(1000))
    assert "their tail has index" in tail
    (one,) = weight_warnings(np.append(np.zeros(99), 4.0))
    assert "the 100 importance weights are worth 7.7 equal ones, the largest makes up 35.5% of their sum" in one


# --- With control ---


def made_up(w: np.ndarray, theta: np.ndarray) -> Draws:
    """Draws theta[population, draw, rung, 1] from standard normal rungs, with weights w[population, draw].

    The weights are put into g at the first rung, whatever they depend on.
    """
    rungs = theta.shape[2]
    g = np.zeros(theta.shape[:3])
    g[..., 0] = np.log(w) * (rungs - 1)  # equal steps
    return Draws(np.linspace(0.0, 1.0, rungs), theta, g, np.zeros_like(g), np.zeros_like(theta), -theta)


def controlled(
    draws: Draws, degree: int, *, crossfit: bool = True, batches: int = 20
) -> tuple[Ratios, Ratios, list[str]]:
    """The controlled estimate, the plain one, and warnings."""
    ratios, warnings = controlled_ais(draws, rung_moments(draws), degree, batches, crossfit=crossfit)
    return ratios, ais(np.asarray(draws.log_likelihood), np.asarray(draws.ladder), batches), warnings


@pytest.mark.parametrize("crossfit", [True, False])
def test_weights_that_are_sums_of_polynomials_of_the_rungs_are_exact(crossfit: bool) -> None:
    theta = np.random.default_rng(7).standard_normal((2, 300, 5, 1))
    slope, curve = np.array([0.3, -0.2, 0.5, 0.1]), np.array([0.2, 0.4, 0.1, 0.3])
    below = theta[:, :, :-1, 0]  # the last rung has no step
    w = 5.0 + np.sum(slope * below + curve * below**2, axis=-1)
    exact, plain, warnings = controlled(made_up(w, theta), 2, crossfit=crossfit)
    assert exact.value == pytest.approx(np.log(6.0), abs=1e-10)
    assert np.std(exact.series) < 1e-10
    assert exact.log_z[[0, -1]].tolist() == [0.0, exact.value]
    assert not warnings
    linear, _, _ = controlled(made_up(w, theta), 1, crossfit=crossfit)
    assert 1e-6 < batch_error(linear.series).error < batch_error(plain.series).error
    # What is left is the quadratic part, of variance 2 curve^2.
    assert np.std(linear.series) == pytest.approx(np.sqrt(2 * curve @ curve / 15) / 6, rel=0.4)


def test_no_polynomial_has_coordinates_of_two_rungs() -> None:
    theta = np.random.default_rng(8).standard_normal((2, 500, 3, 1))
    w = np.exp(0.3 * theta[:, :, 0, 0] * theta[:, :, 1, 0])
    ratios, plain, _ = controlled(made_up(w, theta), 2)
    assert batch_error(ratios.series).error > 0.8 * batch_error(plain.series).error


def test_the_last_rung_does_not_matter() -> None:
    theta = np.random.default_rng(9).standard_normal((1, 200, 4, 1))
    w = np.exp(0.2 * theta.sum(axis=(2, 3)))
    other = theta.copy()
    other[:, :, -1] = 17.0
    first, second = (controlled(made_up(w, place), 2)[0] for place in (theta, other))
    assert first.value == second.value


def test_degree_0_is_the_plain_estimate() -> None:
    ratios, plain, warnings = controlled(exact_draws(SKEWED_2, 10), 0)
    assert ratios.value == plain.value
    assert np.array_equal(ratios.series, plain.series)
    assert not warnings


@pytest.mark.parametrize("crossfit", [True, False])
@pytest.mark.parametrize(("target", "degree"), [(NORMAL, 1), (SKEWED_2, 2)], ids=["normal-1", "skewed-2"])
def test_controlled_error_is_the_spread(target: Target, degree: int, crossfit: bool) -> None:
    ratios = [controlled(exact_draws(target, 200 + i), degree, crossfit=crossfit)[:2] for i in range(80)]
    error, plain = (np.array([batch_error(one[k].series).error for one in ratios]) for k in (0, 1))
    z = (np.array([one.value for one, _ in ratios]) - target.log_evidence) / error
    assert not far(z)
    assert abs(z.mean()) < 4 / np.sqrt(len(z))
    # The test itself: errors that are wrong by a factor of two would be noticed.
    assert far(2 * z)
    assert far(z / 2)
    assert np.mean(error) < 0.95 * np.mean(plain)  # 800 draws are enough for 12 or 30 coefficients


def test_in_sample_the_error_is_still_that_of_other_draws() -> None:
    draws = exact_draws(SKEWED_2, 11, draws=40)
    (fitted, _, _), (plug_in, _, _) = (controlled(draws, 2, crossfit=crossfit) for crossfit in (True, False))
    assert plug_in.value != fitted.value
    ratio = np.exp(fitted.value - plug_in.value)
    assert plug_in.series == pytest.approx(ratio * fitted.series, rel=1e-10)


# --- How control fails ---


@pytest.mark.parametrize("crossfit", [True, False])
@pytest.mark.parametrize(("degree", "coefficients", "alarm"), [(1, 12, "determined"), (2, 30, "minimum norm")])
def test_too_few_draws_for_the_coefficients(degree: int, coefficients: int, alarm: str, crossfit: bool) -> None:
    # Six steps and d = 2: m d coefficients for degree 1, m d (d + 3) / 2 for degree 2.
    draws = exact_draws(NORMAL, 12, draws=15)
    ratios, plain, warnings = controlled(draws, degree, crossfit=crossfit, batches=15)
    assert f"{coefficients} coefficients from 30 draws" in warnings[0]
    assert alarm in warnings[0]
    assert np.isfinite(ratios.value)
    assert 0 < batch_error(ratios.series).error < 10
    # Least squares are still worth something: another answer, but not an absurd one.
    assert 0 < abs(ratios.value - plain.value) < 2


def test_more_coefficients_than_draws_fit_noise_exactly() -> None:
    rng = np.random.default_rng(13)
    theta = rng.standard_normal((1, 20, 31, 1))
    draws = made_up(rng.uniform(0.5, 1.5, (1, 20)), theta)
    (fitted, _, _), (plug_in, _, _) = (controlled(draws, 1, crossfit=crossfit) for crossfit in (True, False))
    # In sample nothing is left of the weights, yet the error is not zero.
    assert batch_error(plug_in.series).error > 0.01
    assert np.isfinite(fitted.value)


def test_noise_is_fitted_and_does_harm() -> None:
    rng = np.random.default_rng(14)
    theta = rng.standard_normal((2, 60, 41, 1))
    w = rng.uniform(0.1, 1.0, (2, 60))  # nothing that the features could explain
    ratios, plain, warnings = controlled(made_up(w, theta), 1)
    error, without = batch_error(ratios.series).error, batch_error(plain.series).error
    assert error > without
    assert any(f"did harm: the error is {error:.2g} with them and {without:.2g} without" in w for w in warnings)


@pytest.mark.parametrize("crossfit", [True, False])
def test_a_controlled_mean_that_is_not_positive_gives_the_plain_answer(crossfit: bool) -> None:
    # Draws that are not from the rung's density, so that the features' averages are far from zero.
    theta = 8.0 + np.random.default_rng(15).uniform(size=(2, 100, 2, 1))
    ratios, plain, warnings = controlled(made_up(theta[:, :, 0, 0] - 7.5, theta), 1, crossfit=crossfit)
    assert ratios.value == plain.value
    assert np.array_equal(ratios.series, plain.series)
    (warning,) = warnings
    # E[theta - 7.5] = 1, and 0 - 7.5 after control.
    assert "average of -7." in warning
    assert "the answer without control variates" in warning


def test_negative_integrands_are_counted() -> None:
    theta = np.random.default_rng(16).standard_normal((2, 1000, 2, 1))
    w = np.exp(2 * theta[:, :, 0, 0])
    ratios, _, warnings = controlled(made_up(w, theta), 1, crossfit=False)
    # The best line through e^(2 theta) is e^2 (1 + 2 theta): what is left, plus e^2, is e^(2 theta) - 2 e^2 theta.
    share = np.mean(w < 2 * np.e**2 * theta[:, :, 0, 0])
    assert share > 0.3
    (counted,) = [float(w.split("%")[0]) / 100 for w in warnings if "of the controlled weights are negative" in w]
    assert counted == pytest.approx(share, abs=0.15)
    assert np.isfinite(ratios.value)


def test_features_that_take_too_much_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thermint.estimators.ais.LARGEST_GRAM", 1000)
    with pytest.raises(ValueError, match='method = "cais" with degree = 2 has 30 coefficients to fit to 800 draws'):
        controlled(exact_draws(NORMAL, 17), 2)


# --- The front ---


@pytest.mark.parametrize("method", ["ais", "cais"])
def test_estimate_gives_the_truth(method: str) -> None:
    result = thermint.estimate(exact_draws(SKEWED_2, 18), method=method, degree=1)
    assert abs(z_of(result, SKEWED_2)) < 4
    assert 0.001 < result.standard_error == result.mc_error < 0.1
    assert result.quadrature_error == 0
    assert result.settings["method"] == method
    assert list(result.estimates.loc[method]) == [result.log_evidence, result.standard_error]
    assert ("cais" in result.estimates.index) == (method == "cais")


def test_options_reach_the_controlled_estimate() -> None:
    draws = exact_draws(SKEWED_2, 19)
    values = {
        (degree, crossfit): thermint.estimate(draws, method="cais", degree=degree, crossfit=crossfit).log_evidence
        for degree in ("auto", 0, 1, 2)
        for crossfit in (True, False)
    }
    plain = thermint.estimate(draws, method="ais").log_evidence
    assert values["auto", True] == values[1, True]
    assert values[0, True] == values[0, False] == plain
    assert len(set(values.values())) == 5
    plug_in, _, _ = controlled(draws, 2, crossfit=False)
    assert values[2, False] == plug_in.value


def test_no_control_where_that_of_the_rungs_is_switched_off() -> None:
    draws = exact_draws(SKEWED_2, 20)
    outside = np.zeros(draws.log_likelihood.shape)
    outside[0, 3, 4] = 1.0  # one proposal fell where the density is zero: it may jump there
    result = thermint.estimate(draws._replace(outside=outside), method="cais")
    assert any("control variates not used" in warning for warning in result.warnings)
    assert result.log_evidence == result.estimates.log_evidence["ais"]


def test_prior_mass_without_a_likelihood_is_part_of_the_evidence() -> None:
    draws = exact_draws(SKEWED_2, 21)
    outside = np.zeros(draws.log_likelihood.shape)
    outside[:, ::4, 0] = 1.0
    whole, part = (thermint.estimate(one, method="ais") for one in (draws, draws._replace(outside=outside)))
    assert part.log_evidence - whole.log_evidence == pytest.approx(np.log(0.75), abs=1e-10)


def test_uneven_weights_are_a_warning() -> None:
    result = thermint.estimate(exact_draws(NORMAL, 22, np.array([0.0, 1.0]), draws=20), method="ais")
    assert any("the 40 importance weights are worth" in warning for warning in result.warnings)
