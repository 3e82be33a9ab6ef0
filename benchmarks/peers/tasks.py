"""The problems that all peers solve, and what they are given: densities of theta, or of points in the unit cube.

A task is a problem of `benchmarks.problems` and its prior's quantile function: nested samplers draw from the unit cube.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

import thermint
from benchmarks.problems import PROBLEMS
from thermint.paper import pima, radiata

FLOOR = -1e300  # a log likelihood, where it is -inf or NaN: many samplers take finite numbers only
LARGEST_BATCH = 1024  # points at once; all batches are padded to a power of two, so that there are few programs
REACH = 8.0  # standard deviations of a normal, between which a quantile function is interpolated


class Answer(NamedTuple):
    """What a method gives: the log evidence, its own error (NaN if none), and what that took."""

    log_evidence: float
    error: float
    evaluations: int  # of the likelihood, with or without its gradient; -1 where nobody counts
    settings: str  # what was asked of the package, in one line


class Task(NamedTuple):
    """A problem with its true log evidence, and the map from the unit cube to theta that makes the prior uniform."""

    name: str
    model: thermint.Model
    log_evidence: float
    truth_error: float
    quantile: Callable[[Array], Array]  # cube[d] -> theta[d], in the coordinates of model.log_prior

    @property
    def dimension(self) -> int:
        """The number of parameters."""
        return self.model.dimension


def log_likelihood_of(task: Task, floor: float = FLOOR) -> Callable[[ArrayLike], float]:
    """Compile theta[d] -> log likelihood; ``floor`` where it is -inf or NaN."""
    compiled = jax.jit(partial(_floored, task.model.log_likelihood, floor))
    return lambda theta: float(compiled(np.asarray(theta, dtype=float)))


def batch_log_likelihood_of(task: Task, floor: float = FLOOR) -> Callable[[ArrayLike], NDArray[np.float64]]:
    """Compile theta[n, d] -> log likelihood[n]; ``floor`` where it is -inf or NaN."""
    return in_batches(partial(_floored, task.model.log_likelihood, floor))


def quantile_of(task: Task) -> Callable[[ArrayLike], NDArray[np.float64]]:
    """Compile cube[d] -> theta[d]."""
    compiled = jax.jit(task.quantile)
    return lambda cube: np.array(compiled(np.asarray(cube, dtype=float)))


def batch_quantile_of(task: Task) -> Callable[[ArrayLike], NDArray[np.float64]]:
    """Compile cube[n, d] -> theta[n, d]."""
    return in_batches(task.quantile)


def in_batches(function: Callable[[Array], Array]) -> Callable[[ArrayLike], NDArray[np.float64]]:
    """Compile a function of one point for any number of points: NumPy arrays in and out, point by row."""
    compiled = jax.jit(jax.vmap(function))

    def one_batch(points: NDArray) -> NDArray[np.float64]:
        size = 1 << (len(points) - 1).bit_length()
        padded = np.concatenate([points, np.repeat(points[:1], size - len(points), axis=0)])
        return np.asarray(compiled(padded))[: len(points)]

    def batched(points: ArrayLike) -> NDArray[np.float64]:
        array = np.asarray(points, dtype=float)
        cuts = range(LARGEST_BATCH, len(array), LARGEST_BATCH)
        return np.concatenate([one_batch(part) for part in np.split(array, cuts)])

    return batched


def _floored(log_likelihood: Callable[[Array], Array], floor: float, theta: Array) -> Array:
    value = log_likelihood(theta)
    return jnp.where(value > floor, value, floor)  # which NaN is not


def _standard_normal(cube: Array) -> Array:
    tiny = 1e-16
    return jax.scipy.special.ndtri(jnp.clip(cube, tiny, 1 - tiny))


def _normal(scale: float) -> Callable[[Array], Array]:
    """Independent N(0, scale^2)."""
    return lambda cube: scale * _standard_normal(cube)


@cache
def _log_gamma_coefficients(shape: float) -> NDArray[np.float64]:
    """Chebyshev series of log x(z), where x has the quantile in Gamma(shape, 1) that z has in N(0, 1).

    JAX cannot invert the incomplete gamma function. This function of z is so smooth that 60 terms give 12 digits.
    """

    def log_quantile(x: NDArray) -> Any:
        z = REACH * x
        low, high = stats.norm.cdf(np.minimum(z, 0)), stats.norm.sf(np.maximum(z, 0))
        return np.log(np.where(z < 0, special.gammaincinv(shape, low), special.gammainccinv(shape, high)))

    return np.polynomial.chebyshev.chebinterpolate(log_quantile, 60)


def _log_gamma(shape: float, cube: Array) -> Array:
    """Logarithms of independent Gamma(shape, 1)."""
    x = jnp.clip(_standard_normal(cube) / REACH, -1, 1)
    first, second = jnp.zeros_like(x), jnp.zeros_like(x)
    for coefficient in _log_gamma_coefficients(shape)[:0:-1]:  # Clenshaw
        first, second = coefficient + 2 * x * first - second, first
    return _log_gamma_coefficients(shape)[0] + x * first - second


def _radiata(cube: Array) -> Array:
    """(alpha, beta, log tau), the coefficients given tau."""
    log_tau = _log_gamma(radiata.A0, cube[2]) - np.log(radiata.RATE0)
    scale = jnp.exp(-log_tau / 2) / np.sqrt([radiata.R0, radiata.S0])
    return jnp.append(radiata.B0 + scale * _standard_normal(cube[:2]), log_tau)


def _schools(cube: Array) -> Array:
    """(mean, log scale, eight standardised effects): N(0, 5^2), half-Cauchy(5), N(0, 1)."""
    log_scale = jnp.log(5 * jnp.tan(np.pi / 2 * jnp.clip(cube[1], 1e-16, 1 - 1e-16)))
    normal = _standard_normal(cube)
    return normal.at[0].multiply(5.0).at[1].set(log_scale)


def _logistic(cube: Array) -> Array:
    """Coordinates of a uniform prior on an interval, which NumPyro maps to the real line by the logit."""
    tiny = 1e-16
    cube = jnp.clip(cube, tiny, 1 - tiny)
    return jnp.log(cube) - jnp.log1p(-cube)


QUANTILES: dict[str, Callable[[Array], Array]] = {
    "pima-1": _normal(pima.TAU**-0.5),
    "pima-2": _normal(pima.TAU**-0.5),
    "radiata-1": _radiata,
    "radiata-2": _radiata,
    "linear-20": _normal(1.0),
    "linear-50": _normal(1.0),
    "logistic-50": _normal(1.0),
    "two-modes": _normal(5.0),
    "goodwin-3": partial(_log_gamma, 2.0),
    "schools": _schools,
    "eggbox": _logistic,
    "needle": _normal(5.0),
}


def _task(name: str) -> Task:
    problem = PROBLEMS[name]()
    return Task(name, problem.model, problem.log_evidence, problem.truth_error, QUANTILES[name])


TASKS: dict[str, Callable[[], Task]] = {name: partial(_task, name) for name in QUANTILES}
