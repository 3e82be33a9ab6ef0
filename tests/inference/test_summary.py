"""The summary of a path: which estimate answers, how errors add up, and tables, where the truth is known."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from targets import NORMAL, exact_draws

from thermint import Draws, Evidence
from thermint.control.plan import make_plan
from thermint.diagnostics import Tail
from thermint.estimators.base import Integral, Ratios
from thermint.estimators.path_summary import Moves, PathSummary, summarise_draws
from thermint.inference import summary
from thermint.inference.summary import interim_estimate, summarise
from thermint.model.settings import Settings
from thermint.path.ladders import power
from thermint.path.quadrature import trapezoid

BATCHES, POPULATIONS = 25, 4
LADDER = power(5, 3)


def path_of(draws: Draws, degree: int | str = 2, rule: str = "trapezoid") -> PathSummary:
    populations, number, rungs, dimension = draws.position.shape
    plan = make_plan(
        draws=number,
        populations=populations,
        rungs=rungs,
        dimension=dimension,
        degree=degree,
        rule=rule,
        crossfit=True,
    )
    return summarise_draws(draws, plan)


def summed_up(path: PathSummary, method: str = "cti") -> Evidence:
    return summarise(path, method=method, evaluations=17, begin=0.0, settings=Settings())


@pytest.fixture(scope="module")
def draws() -> Draws:
    """Exact draws of a path along which every density is normal: degree 2 leaves no variance."""
    return exact_draws(NORMAL, 5, LADDER, draws=1000)


@pytest.fixture(scope="module")
def path(draws: Draws) -> PathSummary:
    return path_of(draws)


# --- Which estimate is the answer ---

HEAVY, UNSURE, LIGHT = Tail(0.9, 0.1), Tail(0.9, 0.3), Tail(0.3, 0.05)  # no variance; perhaps none; a variance


@pytest.mark.parametrize(
    ("bridge", "swaps", "tail", "expected"),
    [
        (0.4, 0.5, LIGHT, "bridge"),  # the error is less than half of the integral's
        (0.6, 0.5, LIGHT, "cti"),
        (0.4, 0.05, LIGHT, "cti"),  # neighbours have too little in common for any ratio
        (3.0, 0.5, HEAVY, "bridge"),  # the integral's error means nothing, however small
        (3.0, 0.5, UNSURE, "cti"),
        (3.0, 0.05, HEAVY, "cti"),
    ],
)
def test_the_bridge_answers_where_it_is_clearly_better(bridge: float, swaps: float, tail: Tail, expected: str) -> None:
    found = summary._Estimated({}, {}, {"cti": 1.0, "bridge": bridge}, 0.0)
    rungs = pd.DataFrame({"swap_rate": [0.9, swaps, np.nan]})
    assert summary._better(found, rungs, [LIGHT, tail]) == expected


@pytest.mark.parametrize(("method", "row"), [("cti", "cti"), ("bridge", "bridge"), ("stepping-stone", "forward")])
def test_the_method_asked_for_answers(path: PathSummary, method: str, row: str) -> None:
    result = summed_up(path, method)
    assert tuple(result.estimates.loc[row]) == (result.log_evidence, result.standard_error)
    assert result.settings.method == method
    assert (result.quadrature_error > 0) == (method == "cti")


# --- Errors ---


def known_series(error: float, seed: int) -> np.ndarray:
    """Independent batches [batch, population] whose mean has about this error."""
    return error * np.sqrt(BATCHES * POPULATIONS) * np.random.default_rng(seed).standard_normal((BATCHES, POPULATIONS))


def errors_of(
    *, value: float = -3.0, mc: float = 0.3, quadrature: float = 0.4, supported: Any = 1.0
) -> summary._Estimated:
    """The errors of an integral and of a bridge, with no MBAR to say more of the quadrature."""
    zero, series = np.zeros(2), known_series(mc, 0)
    estimates = {
        "cti": Integral(value, series, quadrature, zero, zero),
        "bridge": Ratios(value, series, zero),
    }
    given: Any = SimpleNamespace(
        path=SimpleNamespace(plan=SimpleNamespace(crossfit=True)), controlled=SimpleNamespace(degree=zero)
    )
    return summary._with_errors(given, estimates, np.ones((BATCHES, POPULATIONS)) * supported)


def test_only_the_integral_has_a_quadrature_error() -> None:
    found = errors_of()
    assert found.mc["cti"].error == found.mc["bridge"].error == pytest.approx(0.3, rel=0.25)
    assert found.total["cti"] == pytest.approx(np.hypot(found.mc["cti"].error, 0.4), rel=1e-12)
    assert found.total["bridge"] == pytest.approx(found.mc["bridge"].error, rel=1e-12)


def test_no_error_is_less_than_rounding() -> None:
    found = errors_of(value=-1e6, mc=0.0, quadrature=0.0)
    assert found.total["bridge"] == found.total["cti"] == 1e6 * 2.0**-48
    assert errors_of(value=1e-9, mc=0.0, quadrature=0.0).total["bridge"] == 2.0**-48


def test_an_error_that_cannot_be_computed_is_infinite() -> None:
    assert errors_of(quadrature=np.nan).total == {"cti": np.inf, "bridge": pytest.approx(0.3, rel=0.25)}


def test_what_is_not_finite_is_said() -> None:
    assert summary._overflow_warnings(-1.0, 0.1) == []
    for value, error in ((np.nan, 0.1), (np.inf, 0.1), (-1.0, np.inf)):
        assert "is not finite" in summary._overflow_warnings(value, error)[0]


def test_the_quadrature_error_is_the_rules_own(path: PathSummary) -> None:
    """A ladder so coarse, and control variates so good, that the rule's error is all there is."""
    mean = [NORMAL.expected_log_likelihood(t) for t in LADDER]
    error = abs(trapezoid(LADDER)[0] @ mean - NORMAL.log_evidence)
    result = summed_up(path)
    assert abs(result.log_evidence - NORMAL.log_evidence) == pytest.approx(error, rel=1e-6)
    assert 0.8 < result.quadrature_error / error < 1.25
    assert result.mc_error < 1e-6 * error
    assert result.standard_error == pytest.approx(result.quadrature_error, rel=1e-6)


def test_the_share_of_the_prior_with_a_likelihood_is_part_of_answer_and_error(draws: Draws) -> None:
    """Without any other noise, the error is that of the logarithm of a binomial share."""
    outside = np.zeros(draws.log_likelihood.shape)
    outside[..., 0] = np.random.default_rng(1).uniform(size=outside.shape[:2]) < 0.25
    whole, part = (summed_up(path_of(one)) for one in (draws, draws._replace(outside=outside)))
    share, number = 1 - outside[..., 0].mean(), outside[..., 0].size
    assert part.log_evidence - whole.log_evidence == pytest.approx(np.log(share), abs=1e-10)
    assert part.mc_error == pytest.approx(np.sqrt((1 - share) / share / number), rel=0.3)
    assert part.estimates.log_evidence["cti"] == part.log_evidence
    assert part.diagnostics["supported"] == pytest.approx(share, rel=1e-12)
    assert whole.mc_error < 1e-9


# --- Borders ---


@pytest.mark.parametrize(
    ("outside", "invalid", "expected"),
    [
        (0.0, 0.0, 0.0),
        (0.01, 0.0, 0.01),  # proposals of zero density: a border
        (5e-4, 5e-4, 0.0),  # all of them were NaN, here and there
        (5e-4, 1e-4, 5e-4),  # most were not
        (0.01, 0.01, 0.01),  # NaN at so many proposals is a border too
    ],
)
def test_rare_failures_of_the_model_are_no_border(outside: float, invalid: float, expected: float) -> None:
    batches, populations, rungs = 2, 3, 5
    share = np.full((batches, populations, rungs), outside)
    share[:, :, 0] = 0.5  # of the prior, which is no move
    moves = Moves(share, share, np.full(batches, invalid), share)  # type: ignore[arg-type]
    assert summary._beyond_border(moves) == pytest.approx(expected)


def test_a_border_switches_control_off_unless_a_degree_is_given(draws: Draws) -> None:
    outside = np.zeros(draws.log_likelihood.shape)
    outside[:, ::100, 2] = 1.0
    beyond = draws._replace(outside=outside)
    chosen, given = (summed_up(path_of(beyond, degree)) for degree in ("auto", 2))
    assert (chosen.rungs["degree"] == 0).all()
    assert any("control variates not used" in warning for warning in chosen.warnings)
    assert (given.rungs["degree"] == 2).all()
    assert chosen.mc_error > 1e3 * given.mc_error


# --- Tables ---


def test_rungs_have_the_moments_of_their_densities(draws: Draws, path: PathSummary) -> None:
    result = summed_up(path)
    rungs, step = result.rungs, 1e-5
    mean = np.array([NORMAL.expected_log_likelihood(t) for t in LADDER])
    slope = (np.array([NORMAL.expected_log_likelihood(t + step) for t in LADDER]) - mean) / step  # the variance
    np.testing.assert_allclose(rungs["mean"], mean, rtol=1e-9)
    assert np.all(np.abs(rungs["plain_mean"] - mean) < 4 * rungs["plain_error"])
    assert np.all(np.abs(rungs["plain_mean"] - mean) > 1e-6)
    # Of 2000 independent draws.
    np.testing.assert_allclose(rungs["plain_error"], np.sqrt(slope / 2000), rtol=0.5)
    np.testing.assert_allclose(rungs["variance"], slope, rtol=0.25)
    assert np.all(rungs["error"] < 1e-9)
    assert np.all(rungs["ratio"] < 1e-12)
    np.testing.assert_allclose(summed_up(path_of(draws, 0)).rungs["ratio"], 1.0, rtol=1e-12)
    np.testing.assert_array_equal(rungs["t"], LADDER)
    np.testing.assert_array_equal(rungs["weight"], trapezoid(LADDER)[0])
    assert rungs["swap_rate"].isna().tolist() == [False] * 4 + [True]
    assert (result.evaluations, result.settings.draws, result.settings.populations) == (17, 1000, 2)


def test_no_more_than_four_thousand_draws_of_the_trace_are_kept(path: PathSummary) -> None:
    longer = path._replace(g=np.concatenate([path.g, path.g, path.g[:, :500]], axis=1))
    for one, kept in ((path, 1000), (longer, 1250)):
        trace = summed_up(one).trace
        assert trace is not None
        assert trace.shape == (2, kept, len(LADDER))


def test_coefficients_have_the_names_of_their_features(path: PathSummary) -> None:
    coefficients = summed_up(path).coefficients
    assert coefficients is not None
    assert coefficients.shape == (len(LADDER), 5)  # two of degree 1, three of degree 2
    assert coefficients.columns.is_unique


def test_in_sample_coefficients_have_the_error_of_others(draws: Draws) -> None:
    few = draws.block(0, 20)
    fitted = path_of(few, degree=1)
    apart, same = (
        summed_up(fitted._replace(plan=replace(fitted.plan, crossfit=crossfit))) for crossfit in (True, False)
    )
    assert apart.log_evidence != same.log_evidence
    assert same.mc_error == pytest.approx(apart.mc_error, rel=1e-6)


# --- On the way ---


def test_the_answer_so_far_is_that_of_the_first_batches(path: PathSummary) -> None:
    assert interim_estimate(path._replace(moves=path.moves[:1])) == ""
    mean = [NORMAL.expected_log_likelihood(t) for t in LADDER]
    value, error = map(float, interim_estimate(path._replace(moves=path.moves[:3])).split()[2::2])
    assert value == pytest.approx(trapezoid(LADDER)[0] @ mean, abs=error / 2)
    half = [batch._replace(outside=np.full_like(batch.outside, 0.5)) for batch in path.moves[:3]]
    halved = float(interim_estimate(path._replace(moves=half)).split()[2])
    assert halved - value == pytest.approx(np.log(0.5), abs=error / 2)
