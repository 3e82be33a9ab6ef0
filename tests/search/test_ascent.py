"""Climbing: to draws of a normal posterior, to narrow modes, from draws of the prior."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from far_modes import (
    MODEL,
    POSTERIOR_MEAN,
    POSTERIOR_WIDTH,
    PRIOR,
    D,
)
from scipy import stats

from thermint import Model
from thermint.paper import linear
from thermint.search.ascent import ascend, levenberg_marquardt
from thermint.search.scout import SCOUT_RUNGS


def test_climbing_ends_at_draws_of_a_normal_posterior() -> None:
    model = linear.model()
    starts = np.random.default_rng(0).normal(0, 10, (4, 4, SCOUT_RUNGS, 3))
    found, steps = levenberg_marquardt(model, starts, np.random.default_rng(0))
    assert steps < 6  # the density is normal
    found = found.reshape(-1, 3)
    X, y = linear._data(0)
    covariance = np.linalg.inv(X.T @ X + np.eye(3))
    z = np.linalg.solve(np.linalg.cholesky(covariance), (found - covariance @ X.T @ y).T)
    assert np.all(np.abs(z.mean(axis=1)) < 4 / np.sqrt(len(found)))
    assert stats.chi2.ppf(1e-4, z.size) < np.sum(z**2) < stats.chi2.isf(1e-4, z.size)


def test_climbing_finds_narrow_modes_of_a_skewed_posterior() -> None:
    """Growth a (1 - e^-bt) or decay, observed at a few times: two curves that fit, far apart in the parameters."""
    times = np.linspace(0.5, 4.0, 8)
    data = 1 - np.exp(-2 * times)

    def curve(theta: jax.Array) -> jax.Array:
        return theta[0] ** 2 * (1 - jnp.exp(-jnp.exp(theta[1]) * times))

    def metric(theta: jax.Array) -> tuple[jax.Array, jax.Array]:
        J = jax.jacfwd(curve)(theta) / 0.01
        return J.T @ J, jnp.eye(2) / 9

    model = Model(
        lambda theta: -jnp.sum((curve(theta) - data) ** 2) / (2 * 0.01**2),
        lambda theta: -jnp.sum(theta**2) / 18 - jnp.log(18 * jnp.pi),
        lambda key: 3 * jax.random.normal(key, (2,)),
        metric=metric,
    )
    starts = np.random.default_rng(1).normal(0, 3, (1, 4, SCOUT_RUNGS, 2))
    found = levenberg_marquardt(model, starts, np.random.default_rng(1))[0].reshape(-1, 2)
    modes = np.array([[1.0, np.log(2.0)], [-1.0, np.log(2.0)]])
    near = np.linalg.norm(found[:, None] - modes, axis=-1) < 0.1
    assert np.all(near.sum(axis=0) > 10)
    assert np.all(np.isfinite(found))


def test_draws_of_the_prior_go_uphill_to_both_modes() -> None:
    starts = PRIOR * np.random.default_rng(8).standard_normal((4, 64, D))
    ends = ascend(MODEL, starts, SCOUT_RUNGS).reshape(-1, D)
    near = np.linalg.norm(ends[:, None] - POSTERIOR_MEAN, axis=-1) < 2 * POSTERIOR_WIDTH
    assert near.any(axis=1).mean() > 0.9
    assert np.all(near.sum(axis=0) >= 3)


def test_a_climb_goes_on_until_it_is_close_to_the_mode_and_no_longer() -> None:
    """The log of a gamma variable, from fifty standard deviations away; nobody steps off at the end."""

    class Still(np.random.Generator):
        def standard_normal(self, size: Any = None, *_: Any, **__: Any) -> Any:
            return np.zeros(size)

    model = Model(
        lambda theta: jnp.sum(20.0 * theta - 20.0 * jnp.exp(theta)),
        lambda theta: -0.5e-6 * jnp.sum(theta**2),
        lambda key: jax.random.normal(key, (2,)),
        metric=lambda theta: (20.0 * jnp.eye(2), 1e-6 * jnp.eye(2)),
    )
    starts = np.random.default_rng(2).uniform(-12.0, 2.0, (1, 1, 32, 2))
    ends, steps = levenberg_marquardt(model, starts, Still(np.random.PCG64(0)))
    short_of_the_top = 20.0 * np.sum(np.exp(ends) - 1 - ends, axis=-1)
    assert np.all(short_of_the_top < 0.05)
    assert 10 < steps < 20


def test_a_climb_ends_even_if_it_does_not_arrive() -> None:
    slope = Model(
        lambda theta: jnp.sum(theta),
        lambda theta: -0.5e-12 * jnp.sum(theta**2),
        lambda key: jax.random.normal(key, (1,)),
        metric=lambda theta: (jnp.eye(1), 0 * jnp.eye(1)),
    )
    starts = np.random.default_rng(3).standard_normal((1, 1, 8, 1))
    assert levenberg_marquardt(slope, starts, np.random.default_rng(0))[1] < 30
