"""Stepping stones where every normalising constant is known: values, errors, brackets, extremes."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from targets import NORMAL, SKEWED, Target, far
from test_errors import autoregressive

from thermint.estimators.base import Ratios
from thermint.estimators.errors import batch_error
from thermint.estimators.stepping_stone import backward, batch_means, bridge, forward
from thermint.ladders import Ladder, power

Stones = Callable[[np.ndarray, Ladder, int], Ratios]
STONES: list[Stones] = [forward, backward, bridge]


def traces(target: Target, rng: np.random.Generator, ladder: Ladder, *shape: int) -> np.ndarray:
    """g of independent draws, [*shape, rung]."""
    g = [jax.vmap(target.model.log_likelihood)(jnp.asarray(target.draw(rng, t, int(np.prod(shape))))) for t in ladder]
    return np.stack([np.asarray(one).reshape(shape) for one in g], axis=-1)


def normal_traces(rng: np.random.Generator, ladder: Ladder, *shape: int, rho: float = 0.0) -> np.ndarray:
    """g of draws from NORMAL's power posteriors whose coordinates are AR(1), [*shape, rung]."""
    likelihood = jax.vmap(NORMAL.model.log_likelihood)
    g = []
    for t in ladder:
        z = np.stack([autoregressive(rng, shape, rho) for _ in range(2)], axis=-1)
        theta = NORMAL.mean(t) + z @ np.linalg.cholesky(NORMAL.covariance(t)).T
        g.append(np.asarray(likelihood(theta.reshape(-1, 2))).reshape(shape))
    return np.stack(g, axis=-1)


def error_where_constants_are_true(ratios: Ratios, target: Target, ladder: Ladder) -> float:
    """The error of an estimate, all of whose constants must be within four of it."""
    error = batch_error(ratios.series).error
    assert abs(ratios.value - target.log_evidence) < 4 * error
    assert ratios.value == ratios.log_z[-1]
    assert ratios.log_z == pytest.approx([target.log_normaliser(t) for t in ladder], abs=4 * error)
    return error


def assert_error_is_the_spread(estimator: Stones, ladder: Ladder, draws: int, rho: float) -> None:
    """Over replicates of AR(1) draws; the ladder must be fine enough for the bias to be far smaller than the error."""
    g = normal_traces(np.random.default_rng(1), ladder, 150, 2, draws, rho=rho)
    ratios = [estimator(one, ladder, 20) for one in g]
    z = np.array([(one.value - NORMAL.log_evidence) / batch_error(one.series).error for one in ratios])
    assert not far(z)
    assert abs(z.mean()) < 4 / np.sqrt(len(z))
    # The test itself: an error that is wrong by a half would be noticed.
    assert far(z * 1.5)
    assert far(z / 1.5)


@pytest.mark.parametrize("stones", STONES)
@pytest.mark.parametrize("target", [NORMAL, SKEWED], ids=["normal", "skewed"])
def test_every_constant_is_the_truth(target: Target, stones: Stones) -> None:
    ladder = power(7, 3)
    ratios = stones(traces(target, np.random.default_rng(0), ladder, 4, 5000), ladder, 20)
    assert 1e-4 < error_where_constants_are_true(ratios, target, ladder) < 0.02


@pytest.mark.parametrize("stones", STONES)
@pytest.mark.parametrize(("rho", "draws"), [(0.0, 203), (0.8, 1003)])  # not divisible by the number of batches
def test_error_is_the_spread(stones: Stones, rho: float, draws: int) -> None:
    assert_error_is_the_spread(stones, power(9, 2), draws, rho)


@pytest.mark.parametrize("stones", STONES)
def test_correlated_draws_have_larger_errors(stones: Stones) -> None:
    ladder, rng = power(5, 3), np.random.default_rng(2)
    plain, correlated = (
        batch_error(stones(normal_traces(rng, ladder, 4, 4000, rho=rho), ladder, 20).series).error for rho in (0.0, 0.9)
    )
    # Autocorrelation times of linear and quadratic functions are 19 and 9.5: errors grow by 3 to 4.4.
    assert 2 < correlated / plain < 6


def test_forward_is_low_and_backward_high() -> None:
    # Few draws on a coarse ladder, so that Jensen's inequality shows.
    ladder = np.array([0.0, 0.2, 1.0])
    g = normal_traces(np.random.default_rng(3), ladder, 1000, 1, 10)
    low, middle, high = (
        np.array([stones(one, ladder, 2).value for one in g]) - NORMAL.log_evidence
        for stones in (forward, bridge, backward)
    )
    error = 1 / np.sqrt(len(g))
    assert low.mean() < -5 * low.std() * error
    assert high.mean() > 5 * high.std() * error
    assert abs(middle.mean()) < min(-low.mean(), high.mean()) / 2


@pytest.mark.parametrize("stones", STONES)
@pytest.mark.parametrize("shift", [-1e5, 1e4])
def test_shift(stones: Stones, shift: float) -> None:
    ladder = power(7, 3)
    g = traces(SKEWED, np.random.default_rng(4), ladder, 2, 200)
    here, there = stones(g, ladder, 20), stones(g + shift, ladder, 20)
    assert there.value - here.value == pytest.approx(shift, abs=1e-9)
    assert there.log_z - here.log_z == pytest.approx(shift * ladder, abs=1e-9)
    assert there.series == pytest.approx(here.series, abs=1e-8)


@pytest.mark.parametrize("stones", STONES)
def test_extremes_of_g_in_one_trace(stones: Stones) -> None:
    g = np.zeros((1, 10, 2))
    g[0, 0], g[0, 1] = -1e5, 1e4
    ratios = stones(g, np.array([0.0, 1.0]), 5)
    # One draw in ten outweighs all others: e^(1e4) in forward, e^(1e5) in backward, the square root of both in bridge.
    exact: dict[Stones, float] = {forward: 1e4 - np.log(10), backward: np.log(10) - 1e5, bridge: (1e4 - 1e5) / 2}
    assert ratios.value == pytest.approx(exact[stones], rel=1e-14)
    assert np.all(np.isfinite(ratios.series))


def test_batches_cover_all_draws() -> None:
    trace = np.arange(14.0).reshape(2, 7)
    assert batch_means(trace, 3).tolist() == [[0.5, 7.5], [2.5, 9.5], [5.0, 12.0]]
    assert batch_means(trace, 7).tolist() == trace.T.tolist()
    with pytest.raises(ValueError, match="batches = 8: there are only 7 draws"):
        batch_means(trace, 8)
    with pytest.raises(ValueError, match="batches = 1"):
        batch_means(trace, 1)
