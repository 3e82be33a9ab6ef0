"""MBAR against the truth, against pymbar, and where it must refuse."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from scipy import optimize, special
from targets import NORMAL, SKEWED, Target
from test_stepping_stone import assert_error_is_the_spread, error_where_constants_are_true, normal_traces, traces

from thermint.estimators import mbar as module
from thermint.estimators.base import Ratios
from thermint.estimators.errors import batch_error
from thermint.estimators.mbar import mbar, reweighted
from thermint.estimators.stepping_stone import backward, bridge, forward
from thermint.ladders import Ladder, power

logging.getLogger("pymbar").setLevel(logging.ERROR)  # it warns of its settings of JAX when imported
import pymbar  # type: ignore[import-untyped]  # noqa: E402


def reference(g: np.ndarray, ladder: Ladder) -> tuple[np.ndarray, float]:
    """Log normalising constants by pymbar, and the error of the last, as for independent draws."""
    rungs = len(ladder)
    solver = [{"method": "adaptive", "options": {"maxiter": 1000}, "tol": 1e-13}]
    solved = pymbar.MBAR(
        -ladder[:, None] * g.reshape(-1, rungs).T.ravel(), np.full(rungs, g.size // rungs), solver_protocol=solver
    )
    result = solved.compute_free_energy_differences()
    return -result["Delta_f"][0], result["dDelta_f"][0, -1]


def wide(rng: np.random.Generator, ladder: Ladder, *shape: int) -> tuple[np.ndarray, float]:
    """Two parameters with a prior 300 times as wide as the posterior: g goes down to -1e6; and the log evidence."""
    precision = 1 / 300**2 + ladder
    return -0.5 * rng.chisquare(2, (*shape, len(ladder))) / precision, -np.log1p(300.0**2)


@pytest.mark.parametrize("target", [NORMAL, SKEWED], ids=["normal", "skewed"])
def test_every_constant_is_the_truth(target: Target) -> None:
    ladder = power(7, 3)
    g = traces(target, np.random.default_rng(0), ladder, 4, 5000)
    error = error_where_constants_are_true(mbar(g, ladder, 20), target, ladder)
    assert 1e-4 < error < min(batch_error(stones(g, ladder, 20).series).error for stones in (forward, backward, bridge))


@pytest.mark.parametrize(("rho", "draws"), [(0.0, 203), (0.8, 1003)])
def test_error_is_the_spread(rho: float, draws: int) -> None:
    assert_error_is_the_spread(mbar, power(5, 3), draws, rho)


def test_errors_of_correlated_draws_are_larger() -> None:
    ladder, rng = power(5, 3), np.random.default_rng(2)
    plain, correlated = (
        batch_error(mbar(normal_traces(rng, ladder, 4, 4000, rho=rho), ladder, 20).series).error for rho in (0.0, 0.9)
    )
    assert 2 < correlated / plain < 6  # as for stepping stones


@pytest.mark.parametrize(
    ("populations", "draws", "rungs"), [(1, 10, 2), (2, 30, 3), (2, 2500, 6)], ids=["few", "some", "many"]
)
def test_constants_are_those_of_pymbar(populations: int, draws: int, rungs: int) -> None:
    # Few draws stand for themselves; many crowd into few intervals and are exchanged for nodes.
    ladder = power(rungs, 3)
    g = traces(SKEWED, np.random.default_rng(3), ladder, populations, draws)
    ratios = mbar(g, ladder, 10)
    log_z, error = reference(g, ladder)
    assert ratios.log_z == pytest.approx(log_z, abs=1e-8)
    if draws > 1000:  # with each draw a batch: scatter of 2 %
        assert batch_error(mbar(g, ladder, draws).series).error == pytest.approx(error, rel=0.06)


def test_two_rungs_are_bennetts_acceptance_ratio() -> None:
    ladder = np.array([0.0, 1.0])
    g = traces(NORMAL, np.random.default_rng(4), ladder, 1, 50)

    def balance(log_z: float) -> float:
        return np.sum(special.expit(g[..., 0] - log_z)) - np.sum(special.expit(log_z - g[..., 1]))

    root = optimize.brentq(balance, -100.0, 100.0, xtol=1e-13)
    assert mbar(g, ladder, 10).value == pytest.approx(root, abs=1e-10)


def test_points_stand_for_draws() -> None:
    rng = np.random.default_rng(5)
    y = np.concatenate([rng.normal(0, 3, 20_000), rng.normal(-1e5, 0.2, 3000), -np.exp(rng.uniform(0, 12, 500)), [4.0]])
    draws = module._condense(y)
    assert len(draws.point) < 1500
    ladder, log_z = power(9, 3), np.linspace(0, -4, 9)

    def w(x: np.ndarray) -> np.ndarray:
        return special.softmax(ladder[:, None] * x - log_z[:, None], axis=0)

    exact, points = w(y), w(draws.point)
    assert points @ draws.weight == pytest.approx(exact.sum(axis=1), rel=1e-12)
    assert (points * draws.weight) @ points.T == pytest.approx((exact @ exact.T), rel=1e-11)
    for k in range(9):
        assert np.max(np.abs(module._at_draws(draws, points[k]) - exact[k])) < 1e-11  # 1e5 has no more digits


@pytest.mark.parametrize("shift", [-1e5, 1e4])
def test_shift(shift: float) -> None:
    ladder = power(7, 3)
    g = traces(SKEWED, np.random.default_rng(6), ladder, 2, 200)
    here, there = mbar(g, ladder, 20), mbar(g + shift, ladder, 20)
    assert there.log_z - here.log_z == pytest.approx(shift * ladder, abs=1e-9)
    assert there.series == pytest.approx(here.series, abs=1e-8)


def test_a_prior_of_almost_impossible_parameters() -> None:
    ladder = power(31, 5)
    g, truth = wide(np.random.default_rng(7), ladder, 4, 500)
    assert g.min() < -3e5
    ratios = mbar(g, ladder, 20)
    assert abs(ratios.value - truth) < 4 * batch_error(ratios.series).error < 0.4


def test_newton_finds_its_way_from_afar(monkeypatch: pytest.MonkeyPatch) -> None:
    ladder = power(7, 3)
    g = traces(SKEWED, np.random.default_rng(8), ladder, 2, 200)
    near = mbar(g, ladder, 20)
    centre = np.median(g[..., -1])
    off = np.array([0.0, 12.0, -9.0, 3.0, 15.0, -6.0, -12.0])
    start = Ratios(0.0, np.zeros((2, 1)), near.log_z - centre * ladder + off)
    monkeypatch.setattr(module, "bridge", lambda *_: start)
    assert mbar(g, ladder, 20).log_z == pytest.approx(near.log_z, abs=1e-9)


def test_unconverged_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    ladder = power(7, 3)
    g = traces(SKEWED, np.random.default_rng(9), ladder, 2, 200)
    monkeypatch.setattr(module, "MAX_STEPS", 2)
    with pytest.raises(ValueError, match="MBAR has not converged"):
        mbar(g, ladder, 20)


@pytest.mark.parametrize("gap", [40.0, 200.0, 1e5])
def test_rungs_without_overlap_are_named(gap: float) -> None:
    g = np.random.default_rng(10).normal(size=(2, 100, 4))
    g[..., 2:] += gap
    with pytest.raises(ValueError, match=r"rungs 1 and 2 \(t = 0.2 and 0.9\) hardly overlap"):
        mbar(g, np.array([0.0, 0.2, 0.9, 1.0]), 20)


def test_constant_likelihood() -> None:
    ladder = power(5, 3)
    ratios = mbar(np.full((2, 20, 5), -7.0), ladder, 10)
    assert ratios.log_z == pytest.approx(-7 * ladder, abs=1e-12)
    assert batch_error(ratios.series).error < 1e-12


@pytest.mark.parametrize("target", [NORMAL, SKEWED], ids=["normal", "skewed"])
def test_moments_between_rungs(target: Target) -> None:
    ladder, draws = power(6, 3), 20_000
    g = traces(target, np.random.default_rng(11), ladder, 4, draws // 4)
    t = np.array([0.0, 0.001, 0.03, 0.1, 0.35, 0.8, 1.0])
    mean, variance = reweighted(g, mbar(g, ladder, 20).log_z, ladder, t)
    truth = np.array([target.expected_log_likelihood(one) for one in t])
    slope = [(target.expected_log_likelihood(s + 1e-5) - target.expected_log_likelihood(s - 1e-5)) / 2e-5 for s in t]
    # No worse than draws from t itself would do; the tails of g are at most those of an exponential, with kurtosis 9.
    assert np.all(np.abs(mean - truth) < 4 * np.sqrt(np.array(slope) / draws))
    assert variance == pytest.approx(slope, rel=4 * np.sqrt(8 / draws))


def test_moments_are_derivatives_of_the_log_constants() -> None:
    ladder = power(4, 2)
    g = traces(SKEWED, np.random.default_rng(12), ladder, 1, 100)
    log_z = mbar(g, ladder, 10).log_z
    node, weight = np.polynomial.legendre.leggauss(30)
    for low, high, rise in zip(ladder[:-1], ladder[1:], np.diff(log_z), strict=True):
        mean, variance = reweighted(g, log_z, ladder, low + (high - low) * (1 + node) / 2)
        assert (high - low) / 2 * weight @ mean == pytest.approx(rise, abs=1e-8)
        ends = reweighted(g, log_z, ladder, np.array([low, high]))[0]
        assert (high - low) / 2 * weight @ variance == pytest.approx(np.diff(ends)[0], rel=1e-8)


def test_moments_of_extreme_traces() -> None:
    ladder = power(31, 5)
    g, _ = wide(np.random.default_rng(13), ladder, 4, 500)
    t = np.array([0.0, 1e-4, 0.5, 1.0])
    mean, variance = reweighted(g - 1e5, mbar(g - 1e5, ladder, 20).log_z, ladder, t)
    exact = 1 / (1 / 300**2 + t)
    assert mean + 1e5 == pytest.approx(-exact, rel=0.1)
    assert variance == pytest.approx(exact**2, rel=0.25)
