"""Shared coefficients: exact where they should be, honest, and never taken where they predict worse."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.shared_coefficients import RIDGES, _deviation, _held_out, _moments, _smooth, share
from thermint.control.coefficients import Controlled, control
from thermint.control.gram import TARGETS, Gram
from thermint.estimators.thermodynamic import integrate
from thermint.path.coordinates import RungMoments
from thermint.path.quadrature import trapezoid

FOLDS, POPULATIONS = 5, 2


def gram_of(y: np.ndarray, w: np.ndarray) -> Gram:
    """Sum y[population, draw, rung] and w[population, draw, rung, feature] by hand."""
    rows = np.concatenate([np.stack([np.ones_like(y), y, y**2, np.exp(y / 9), 0 * y], axis=-1), w], axis=-1)
    parts = np.split(rows, FOLDS, axis=1)
    rungs = y.shape[2]
    return Gram(
        frame=RungMoments(
            np.zeros((rungs, 1)), np.zeros((rungs, 1, 1)), np.ones((rungs, 1, 1, 1)), np.zeros(rungs), np.ones(rungs)
        ),
        number=np.full(FOLDS, parts[0].shape[1], dtype=float),
        first=np.stack([part.sum(axis=1) for part in parts]),
        second=np.stack([np.einsum("pnri,pnrj->rij", part, part) for part in parts]),
    )


def simulated(seed: int, *, draws: int, features: int, rungs: int = 9, noise: float = 0.1, rough: bool = False) -> Gram:
    """A target of mean zero whose coefficients are linear in the rung's number, or have nothing in common."""
    rng = np.random.default_rng(seed)
    ends = np.random.default_rng(0).standard_normal((2, features))
    phi = np.linspace(1, 0, rungs)[:, None] * ends[0] + np.linspace(0, 1, rungs)[:, None] * ends[1]
    if rough:
        phi = 3 * np.random.default_rng(1).standard_normal(phi.shape)
    w = rng.standard_normal((POPULATIONS, draws // POPULATIONS, rungs, features))
    return gram_of(np.sum(w * phi, axis=-1) + noise * rng.standard_normal(w.shape[:-1]), w)


def both(gram: Gram, features: int) -> tuple[Controlled, Controlled]:
    own = control(gram, (0, features), fixed=False, crossfit=True)
    return own, share(gram, (0, features), own)


def test_smooth_coefficients_are_recovered() -> None:
    # 8 training draws a rung for 12 features; 24 unknowns at order 2, and 72 draws in all.
    gram = simulated(0, draws=10, features=12, noise=0.0)
    second = np.asarray(gram.second)
    S, b, variance = _moments(second.sum(axis=0) - second, 12)
    ends = np.random.default_rng(0).standard_normal((2, 12))
    share_of_end = np.linspace(0, 1, 9)[:, None]
    truth = (1 - share_of_end) * ends[0] + share_of_end * ends[1]
    order_two = list(_smooth(S, b, np.ones_like(variance)))[len(RIDGES)]  # in known units, with the smallest ridge
    np.testing.assert_allclose(order_two[..., 0], np.broadcast_to(truth, order_two.shape[:-1]), rtol=0, atol=0.05)


def test_fewer_draws_than_features() -> None:
    # What is left is due to the units: deviations of the target from 8 draws a rung, and a curve through them.
    own, shared = both(simulated(0, draws=10, features=12), 12)
    assert np.median(own.residual[:, 0] / own.variance[:, 0]) > 0.3
    assert np.median(shared.residual[:, 0] / shared.variance[:, 0]) < 0.1
    assert np.all(shared.degree[:, 0] == 1)


def test_the_curve_plus_all_of_its_own_is_the_rungs_least_squares() -> None:
    gram = simulated(0, draws=100, features=3, rough=True)
    second = np.asarray(gram.second)
    S, b, variance = _moments(second.sum(axis=0) - second, 3)
    alone = np.linalg.solve(S, b)
    for curve in _smooth(S, b, variance):
        np.testing.assert_allclose(curve + _deviation(S, b - S @ curve, 1e-14), alone, rtol=0, atol=1e-9)
    own = control(gram, (0, 3), fixed=True, crossfit=True)
    sums, residual = _held_out(np.asarray(gram.first), second, alone)
    np.testing.assert_allclose(residual, own.residual, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(sums / 10, own.mean, rtol=1e-8, atol=1e-9)


def test_held_out_draws_have_no_say_in_their_own_coefficients() -> None:
    # Change one fold at every rung: the coefficients for it stay the same, those for the others do not.
    gram = simulated(0, draws=50, features=3)
    second = np.asarray(gram.second).copy()
    other = second.copy()
    other[2] *= np.linspace(1, 2, 1 + TARGETS + 3)[:, None] * np.linspace(1, 2, 1 + TARGETS + 3)
    fits = []
    for one in (second, other):
        S, b, variance = _moments(one.sum(axis=0) - one, 3)
        # Units are common to all folds: they only say what the ridge means.
        fits.append(next(_smooth(S, b, variance)))
    np.testing.assert_allclose(fits[0][2], fits[1][2], rtol=2e-3)
    assert not np.allclose(fits[0][1], fits[1][1], rtol=2e-3)


@pytest.mark.parametrize("rough", [False, True])
@pytest.mark.parametrize("draws", [10, 50, 200])
def test_never_predicts_worse_than_its_own(draws: int, rough: bool) -> None:
    for seed in range(10):
        own, shared = both(simulated(seed, draws=draws, features=4, noise=1.0, rough=rough), 4)
        assert np.all(shared.residual <= own.residual)
        np.testing.assert_array_equal(shared.variance, own.variance)
        kept = np.broadcast_to(shared.residual == own.residual, own.mean.shape)
        np.testing.assert_array_equal(shared.mean[kept], own.mean[kept])


@pytest.mark.slow
def test_unbiased_and_more_precise() -> None:
    # E[y] = 0 at every rung: the integral is 0.
    ladder, values = np.linspace(0, 1, 9), []
    for seed in range(200):
        gram = simulated(seed, draws=20, features=12, noise=0.3)
        number = np.asarray(gram.number)
        values.append([integrate(one, number, gram.frame, ladder, trapezoid).value for one in both(gram, 12)])
    mean, sd = np.mean(values, axis=0), np.std(values, axis=0, ddof=1)
    assert abs(mean[1]) < 4 * sd[1] / np.sqrt(200)
    assert sd[1] < 0.8 * sd[0]  # it was 0.66


def test_nothing_to_share() -> None:
    gram = simulated(0, draws=20, features=2, rungs=2)
    own, shared = both(gram, 2)
    assert shared is own
    constant = simulated(0, draws=20, features=2)
    none = control(constant, (0,), fixed=False, crossfit=True)
    assert share(constant, (0,), none) is none
