"""Importance sampling from the Laplace approximation: the least that anyone would try.

The mode is the highest that BFGS finds from a few draws of the prior, in coordinates standardised by the prior;
Newton's method finishes. The proposal is the normal distribution there whose precision is minus the Hessian of the log
posterior, no wider; the error is that of a mean of independent weights, by the delta method. Effort multiplies the
draws.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray
from scipy import optimize, special

from benchmarks.peers.tasks import LARGEST_BATCH, Answer, Task

DRAWS = 10_000
STARTS = 4
FOR_SCALE = 200  # draws of the prior by which coordinates are standardised


class Normal(NamedTuple):
    """mean + factor z, for z standard normal."""

    mean: NDArray[np.float64]  # [d]
    factor: NDArray[np.float64]  # [d, d], lower triangular


def prepare(task: Task) -> Callable[[int, float], Answer]:
    """Return run(seed, effort)."""
    model = task.model

    def log_posterior(theta: Array) -> Array:
        return model.log_likelihood(theta) + model.log_prior(theta)

    loss_and_gradient = jax.jit(jax.value_and_grad(lambda theta: -log_posterior(theta)))
    hessian = jax.jit(jax.hessian(lambda theta: -log_posterior(theta)))
    draw_prior = jax.jit(jax.vmap(model.sample_prior))

    @jax.jit
    def log_weights(key: Array, mean: Array, factor: Array) -> Array:
        z = jax.random.normal(key, (LARGEST_BATCH, mean.size))
        log_density = -jnp.sum(z**2, axis=1) / 2 - mean.size / 2 * jnp.log(2 * jnp.pi)
        log_density -= jnp.sum(jnp.log(jnp.diag(factor)))
        return jax.vmap(log_posterior)(mean + z @ factor.T) - log_density

    def run(seed: int, effort: float) -> Answer:
        prior_key, key = jax.random.split(jax.random.key(seed))
        draws = np.asarray(draw_prior(jax.random.split(prior_key, FOR_SCALE)))
        proposal, spent = laplace(loss_and_gradient, hessian, draws[:STARTS], draws.std(axis=0))
        number = round(effort * DRAWS)
        keys = jax.random.split(key, -(-number // LARGEST_BATCH))
        weights = np.concatenate([np.asarray(log_weights(k, *proposal)) for k in keys])[:number]
        value, error = log_mean(weights)
        return Answer(value, error, spent + number, f"{STARTS} starts, {number} draws")

    return run


def laplace(
    loss_and_gradient: Callable[[NDArray], tuple[Any, Any]],
    hessian: Callable[[NDArray], Any],
    starts: NDArray,
    scale: NDArray,
) -> tuple[Normal, int]:
    """Find the highest mode and the normal approximation there.

    Args:
        loss_and_gradient: theta[d] -> minus log posterior, its gradient[d].
        hessian: theta[d] -> its Hessian[d, d].
        starts: [n, d].
        scale: [d], of the coordinates in which BFGS works.

    Returns:
        The approximation, and how often the likelihood was evaluated, with its gradient or Hessian.

    Raises:
        RuntimeError: the Hessian is not positive definite: there is no maximum, or it was not found.
    """
    spent = 0

    def scaled(x: NDArray) -> tuple[float, NDArray]:
        nonlocal spent
        spent += 1
        loss, gradient = loss_and_gradient(x * scale)
        fine = np.isfinite(loss) and np.all(np.isfinite(gradient))
        return (float(loss), np.asarray(gradient) * scale) if fine else (1e100, np.zeros_like(x))

    found = [optimize.minimize(scaled, start / scale, jac=True, method="BFGS") for start in starts]
    best = min(found, key=lambda one: float(one.fun))
    mode = np.asarray(best.x * scale)
    for _ in range(5):
        spent += 3  # two values and a Hessian
        loss, gradient = loss_and_gradient(mode)
        step = np.linalg.solve(np.asarray(hessian(mode)), np.asarray(gradient))
        if not loss_and_gradient(mode - step)[0] <= loss:
            break
        mode = mode - step
    try:
        precision_factor = np.linalg.cholesky(np.asarray(hessian(mode)))
    except np.linalg.LinAlgError as error:
        raise RuntimeError("the Hessian at the mode is not positive definite") from error
    covariance = np.linalg.inv(precision_factor @ precision_factor.T)
    return Normal(mode, np.linalg.cholesky(covariance)), spent


def log_mean(log_weights: NDArray) -> tuple[float, float]:
    """Log of the mean of independent weights, and its standard error by the delta method."""
    weights = np.exp(log_weights - log_weights.max())
    value = special.logsumexp(log_weights) - np.log(len(log_weights))
    return float(value), float(weights.std(ddof=1) / weights.mean() / np.sqrt(len(weights)))
