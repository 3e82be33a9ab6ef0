"""Bayesian linear regression with known precision (paper, "Known precision" and its appendix).

y ~ N(X beta, sigma^2 I) with prior beta ~ N(0, zeta^2 I) and sigma = zeta = 1. Everything is known in closed form.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, NDArray

from thermint.model.model import Model

SIGMA = 1.0
ZETA = 1.0
BETA = (0.0, 1.0, 2.0)
OBSERVATIONS = 100


@functools.cache
def _data(seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Simulate the design matrix X[n, d], then the response y[n]."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((OBSERVATIONS, len(BETA)))
    noise = rng.standard_normal(OBSERVATIONS)
    return X, X @ np.array(BETA) + SIGMA * noise


def model(seed: int = 0) -> Model:
    """Build the regression of theta = beta[3] on data simulated by ``numpy.random.default_rng(seed)``.

    The same seed gives the same object, so that compiled programs are reused.
    """
    return _model(seed)


@functools.cache
def _model(seed: int) -> Model:
    X, y = _data(seed)
    n, d = X.shape
    X_transposed, XX = X.T.copy(), X.T @ X

    def log_likelihood(beta: Array) -> Array:  # Eqn. "like1"
        residual = y - beta @ X_transposed
        return -n / 2 * np.log(2 * np.pi * SIGMA**2) - jnp.sum(residual**2) / (2 * SIGMA**2)

    def log_prior(beta: Array) -> Array:
        return -d / 2 * np.log(2 * np.pi * ZETA**2) - jnp.sum(beta**2) / (2 * ZETA**2)

    def sample_prior(key: Array) -> Array:
        return ZETA * jax.random.normal(key, (d,))

    def metric(beta: Array) -> tuple[Array, Array]:  # Supplement; its prior term should read + I / zeta^2
        return jnp.asarray(XX / SIGMA**2), jnp.eye(d) / ZETA**2

    return Model(log_likelihood, log_prior, sample_prior, metric=metric, names=tuple(f"beta[{i}]" for i in range(d)))


def log_evidence(seed: int = 0) -> float:
    """Log density of y under N(0, Omega), Omega = sigma^2 I + zeta^2 X X' (paper, appendix "Known precision")."""
    X, y = _data(seed)
    L = np.linalg.cholesky(SIGMA**2 * np.eye(len(y)) + ZETA**2 * X @ X.T)
    whitened = np.linalg.solve(L, y)
    return float(-len(y) / 2 * np.log(2 * np.pi) - np.sum(np.log(np.diag(L))) - whitened @ whitened / 2)


def integrand(t: ArrayLike, seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and variance of the log likelihood under the power posterior N(mu(t), Sigma(t)), in closed form.

    Args:
        t: inverse temperatures, an array of any shape or a number.
        seed: as in `model`.

    Returns:
        E_t[g] (paper, appendix "Known precision") and V_t[g], each of the shape of ``t``. The integral of the first
        over 0 <= t <= 1 is `log_evidence`, and the second is the derivative of the first.
    """
    X, y = _data(seed)
    n, d = X.shape
    t = np.asarray(t, dtype=float)[..., None, None]
    fisher = X.T @ X / SIGMA**2
    covariance = np.linalg.inv(t * fisher + np.eye(d) / ZETA**2)
    mean = t[..., 0] * (covariance @ (X.T @ y)) / SIGMA**2
    residual = y - mean @ X.T
    # With delta = beta - mu(t) ~ N(0, Sigma(t)):  g = constant + score' delta - delta' fisher delta / 2.
    score = residual @ X / SIGMA**2
    spread = fisher @ covariance
    expectation = (
        -n / 2 * np.log(2 * np.pi * SIGMA**2)
        - np.sum(residual**2, axis=-1) / (2 * SIGMA**2)
        - np.trace(spread, axis1=-2, axis2=-1) / 2
    )
    variance = (
        np.einsum("...i,...ij,...j", score, covariance, score) + np.trace(spread @ spread, axis1=-2, axis2=-1) / 2
    )
    return expectation, variance
