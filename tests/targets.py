"""Models whose every power posterior is known in closed form, and the statistic that compares draws with draws."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike
from scipy import special, stats

from thermint import Draws, Evidence, Model
from thermint.ladders import Ladder, power
from thermint.model import Evaluation, evaluate


@dataclass(frozen=True)
class Target:
    """A model and the truth about the density proportional to prior * likelihood^t, for 0 <= t <= 1."""

    model: Model
    draw: Callable[[np.random.Generator, float, int], np.ndarray]  # (rng, t, n) -> independent draws [n, d]
    mean: Callable[[float], np.ndarray]  # [d]
    covariance: Callable[[float], np.ndarray]  # [d, d]
    cdf: Callable[[float, np.ndarray], np.ndarray]  # (t, x[..., d]) -> marginal distribution functions [..., d]
    log_normaliser: Callable[[float], float]  # log of the integral of prior * likelihood^t
    expected_log_likelihood: Callable[[float], float]  # its derivative

    @property
    def log_evidence(self) -> float:
        return self.log_normaliser(1.0)


def normal(design: ArrayLike, data: ArrayLike, noise: float, prior_covariance: ArrayLike) -> Target:
    """Linear regression with known noise and a normal prior: every power posterior is normal."""
    X, y, S = np.asarray(design), np.asarray(data), np.asarray(prior_covariance)
    d = len(S)
    fisher, prior_precision, root = X.T @ X / noise**2, np.linalg.inv(S), np.linalg.cholesky(S)
    constant = 0.5 * np.linalg.slogdet(2 * np.pi * S)[1]

    def log_likelihood(theta: Array) -> Array:
        return -0.5 * jnp.sum((y - X @ theta) ** 2) / noise**2 - len(y) * math.log(noise * math.sqrt(2 * math.pi))

    def covariance(t: float) -> np.ndarray:
        return np.linalg.inv(prior_precision + t * fisher)

    def mean(t: float) -> np.ndarray:
        return covariance(t) @ (t * X.T @ y) / noise**2

    def log_normaliser(t: float) -> float:
        exponent = 0.5 * mean(t) @ np.linalg.solve(covariance(t), mean(t)) - 0.5 * t * y @ y / noise**2
        determinants = np.linalg.slogdet(covariance(t))[1] - np.linalg.slogdet(S)[1]
        return float(exponent + 0.5 * determinants - t * len(y) * np.log(noise * np.sqrt(2 * np.pi)))

    def expected_log_likelihood(t: float) -> float:
        at_mean = -0.5 * np.sum((y - X @ mean(t)) ** 2) / noise**2 - len(y) * np.log(noise * np.sqrt(2 * np.pi))
        return float(at_mean - 0.5 * np.trace(fisher @ covariance(t)))

    return Target(
        model=Model(
            log_likelihood=log_likelihood,
            log_prior=lambda theta: -0.5 * theta @ prior_precision @ theta - constant,
            sample_prior=lambda key: jnp.asarray(root) @ jax.random.normal(key, (d,)),
            metric=lambda theta: (jnp.asarray(fisher), jnp.asarray(prior_precision)),
        ),
        draw=lambda rng, t, n: rng.multivariate_normal(mean(t), covariance(t), n, method="cholesky"),
        mean=mean,
        covariance=covariance,
        cdf=lambda t, x: np.asarray(stats.norm.cdf(x, mean(t), np.sqrt(np.diag(covariance(t))))),
        log_normaliser=log_normaliser,
        expected_log_likelihood=expected_log_likelihood,
    )


def log_gamma(shape: ArrayLike, rate: ArrayLike, counts: ArrayLike) -> Target:
    """Log rates of independent Poisson counts [d, n] with Gamma(shape[d], rate[d]) priors on the rates; whole shapes.

    Each coordinate of every power posterior is the logarithm of a gamma variable: skewed to the left, the more so the
    smaller its shape.
    """
    a, b, y = np.asarray(shape, dtype=float), np.asarray(rate, dtype=float), np.asarray(counts)
    d, n = y.shape
    total, factorials = y.sum(axis=1), special.gammaln(y + 1).sum()
    constant = float(np.sum(a * np.log(b) - special.gammaln(a)))

    def sample_prior(key: Array) -> Array:
        waiting = jax.random.exponential(key, (d, int(a.max())))  # a sum of a exponentials; quick to compile
        return jnp.log(jnp.sum(waiting, axis=1, where=np.arange(a.max()) < a[:, None])) - np.log(b)

    def parameters(t: float) -> tuple[np.ndarray, np.ndarray]:
        return a + t * total, b + t * n

    def cdf(t: float, x: np.ndarray) -> np.ndarray:
        A, B = parameters(t)
        return np.asarray(stats.gamma.cdf(np.exp(x), A, scale=1 / B))

    def mean(t: float) -> np.ndarray:
        A, B = parameters(t)
        return special.digamma(A) - np.log(B)

    def log_normaliser(t: float) -> float:
        A, B = parameters(t)
        return float(constant + np.sum(special.gammaln(A) - A * np.log(B)) - t * factorials)

    def expected_log_likelihood(t: float) -> float:
        A, B = parameters(t)
        return float(np.sum(total * mean(t) - n * A / B) - factorials)

    def draw(rng: np.random.Generator, t: float, size: int) -> np.ndarray:
        A, B = parameters(t)
        return np.log(rng.gamma(A, 1 / B, (size, d)))

    return Target(
        model=Model(
            log_likelihood=lambda theta: jnp.sum(total * theta - n * jnp.exp(theta)) - factorials,
            log_prior=lambda theta: jnp.sum(a * theta - b * jnp.exp(theta)) + constant,
            sample_prior=sample_prior,
            metric=lambda theta: (n * jnp.diag(jnp.exp(theta)), jnp.diag(b * jnp.exp(theta))),
        ),
        draw=draw,
        mean=mean,
        covariance=lambda t: np.diag(special.polygamma(1, parameters(t)[0])),
        cdf=cdf,
        log_normaliser=log_normaliser,
        expected_log_likelihood=expected_log_likelihood,
    )


def with_indefinite_metric(target: Target, cut: float) -> Target:
    """Change the metric (d = 2) to one with cross terms that is not positive definite where theta[0] < cut.

    The truth stays the same: a kernel may use any function of the state as its metric.
    """

    def metric(theta: Array) -> tuple[Array, Array]:
        side = jnp.tanh(4 * (theta[0] - cut))
        lean = 0.5 * jnp.sin(theta[1])
        scale = jnp.exp(0.5 * theta[1])
        # The determinant of t * fisher + curvature has the sign of side, and is continuous where it changes.
        fisher = scale * jnp.array([[2.0, 2.0 * lean], [2.0 * lean, 2.0 * lean**2]])
        curvature = scale * jnp.array([[1.0, lean], [lean, lean**2 + 3.0 * side]])
        return fisher, curvature

    return replace(target, model=replace(target.model, metric=metric))


NORMAL = normal([[1.0, 0.5], [0.2, -1.0], [0.7, 0.7]], [1.0, -2.0, 0.5], 0.8, [[2.0, 0.6], [0.6, 1.0]])
SKEWED = log_gamma([1], [0.5], [[1, 0, 2, 1]])
SKEWED_2 = log_gamma([1, 3], [0.5, 2.0], [[1, 0, 2], [0, 1, 0]])
INDEFINITE = with_indefinite_metric(SKEWED_2, cut=0.0)
TARGETS = {"normal": NORMAL, "skewed": SKEWED, "skewed-2": SKEWED_2, "indefinite": INDEFINITE}

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)


def features(target: Target, t: float, x: np.ndarray) -> np.ndarray:
    """Functions of the draws x[n, d] whose means tell distributions apart, [n, many].

    Indicators of the exact quantiles of every coordinate, its first two powers and an exponential, and the products of
    standardised coordinates.
    """
    x = np.clip(x, -100.0, 100.0)  # a broken kernel may fly off
    scaled = (x - target.mean(t)) / np.sqrt(np.diag(target.covariance(t)))
    u = target.cdf(t, x)
    columns = [u < q for q in QUANTILES] + [scaled, scaled**2, np.exp(np.minimum(scaled, 10.0))]
    i, j = np.triu_indices(x.shape[1], 1)
    return np.concatenate([*columns, scaled[:, i] * scaled[:, j]], axis=1)


def paired_z(before: np.ndarray, after: np.ndarray) -> float:
    """Largest number of standard errors by which the mean of a column [n, many] changed; inf if any is not finite.

    The columns' differences are taken row by row, so that what did not move adds no noise.
    """
    difference = after.astype(float) - before
    if not np.all(np.isfinite(difference)):
        return np.inf
    error = difference.std(axis=0, ddof=1) / np.sqrt(len(difference))
    return float(np.max(np.abs(difference.mean(axis=0)) / np.maximum(error, 1e-12)))


# --- Draws, and what their estimates must be like ---

LADDER = power(7, 3)
POPULATIONS, DRAWS = 2, 400


@cache
def evaluation(target: Target) -> Callable[[np.ndarray], Evaluation]:
    """Evaluate at many points, compiled once."""
    return jax.jit(jax.vmap(partial(evaluate, target.model)))


def exact_draws(target: Target, seed: int, ladder: Ladder = LADDER, draws: int = DRAWS) -> Draws:
    """Independent draws from every power posterior."""
    rng = np.random.default_rng(seed)
    theta = np.stack([target.draw(rng, t, POPULATIONS * draws) for t in ladder], axis=1)  # [population * draw, rung, d]
    at = evaluation(target)(theta.reshape(-1, theta.shape[-1]))
    shape = POPULATIONS, draws, len(ladder)
    return Draws(ladder, *(np.asarray(part).reshape(*shape, *part.shape[1:]) for part in at[:5]))


def z_of(result: Evidence, target: Target) -> float:
    return (result.log_evidence - target.log_evidence) / result.standard_error


def far(z: np.ndarray) -> bool:
    """Whether z-scores of independent replicates are too small or too large on average: once in 10 000 times by chance.

    Errors from some forty batches make them nearly normal, with a variance of 1.06.
    """
    square = np.sum((z - z.mean()) ** 2) / 1.06
    return not stats.chi2.ppf(5e-5, len(z)) < square < stats.chi2.isf(5e-5, len(z))
