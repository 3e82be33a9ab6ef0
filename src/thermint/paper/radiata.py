"""Radiata pine: linear regression with unknown precision (paper, "Unknown precision" and its appendix).

The strength y of 42 specimens is explained by their density (model 1) or their density adjusted for resin content
(model 2), x, both centred:

    y_i ~ N(alpha + beta x_i, 1 / tau),   (alpha, beta) ~ N(B0, (tau Q0)^-1),   tau ~ Gamma(shape a0, rate b0).

The parameters are theta = (alpha, beta, eta) with eta = log tau. Data: E. J. Williams, Regression Analysis (1959).
"""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from thermint.model.model import Model
from thermint.paper.tabulated import look_up, read

B0 = np.array([3000.0, 185.0])
R0, S0 = 0.06, 6.0  # Q0 = diag(R0, S0)
A0, RATE0 = 6.0, 4 * 300.0**2  # b0 is RATE0, not to be mistaken for B0
COVARIATES = {1: "density", 2: "adjusted_density"}
BENCHMARK_ROW = 8
BENCHMARK_VALUES = (3670.0, 32.3, 29.0)


@functools.cache
def _data(number: int, benchmark: bool) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Load the centred covariate x[n] of one of the models and the strength y[n]."""
    column = look_up(COVARIATES, number, "number")
    table = read("radiata_pine").astype(float)
    if benchmark:
        table.loc[BENCHMARK_ROW] = BENCHMARK_VALUES
    x = table[column].to_numpy()
    return x - x.mean(), table["strength"].to_numpy()


def model(number: int, benchmark: bool = False) -> Model:
    """Build one of the two regressions.

    Args:
        number: 1 explains strength by density, 2 by adjusted density.
        benchmark: replace the ninth specimen (3160, 27.1, 26.3) by (3670, 32.3, 29.0). Two versions of the data are
            in circulation: the default is Williams' own, the other is the copy that benchmark papers used, and only
            that one gives the published log Bayes factor, 8.7086.

    Returns:
        A Model of theta = (alpha, beta, log tau); the same object for the same arguments, so that compiled programs
        are reused. Its metric need not be positive definite: at t = 0 it fails with prior probability 2^-6.
    """
    return _model(number, benchmark)


@functools.cache
def _model(number: int, benchmark: bool) -> Model:
    x, y = _data(number, benchmark)
    n = len(y)

    def log_likelihood(theta: Array) -> Array:
        alpha, beta, eta = theta
        residual = y - alpha - beta * x
        return n / 2 * (eta - np.log(2 * np.pi)) - jnp.exp(eta) / 2 * jnp.sum(residual**2)

    def precision_rate(theta: Array) -> Array:  # of tau given alpha and beta: b0 + (B - B0)' Q0 (B - B0) / 2
        alpha, beta, _ = theta
        return RATE0 + R0 / 2 * (alpha - B0[0]) ** 2 + S0 / 2 * (beta - B0[1]) ** 2

    def log_prior(theta: Array) -> Array:
        eta = theta[2]
        # N((alpha, beta) | B0, (tau Q0)^-1) Gamma(tau | a0, b0) |d tau / d eta|; |tau Q0|^(1/2) = tau |Q0|^(1/2).
        constant = math.log(R0 * S0) / 2 - math.log(2 * math.pi) + A0 * math.log(RATE0) - math.lgamma(A0)
        return constant + (1 + A0) * eta - jnp.exp(eta) * precision_rate(theta)

    def sample_prior(key: Array) -> Array:
        key_eta, key_coefficients = jax.random.split(key)
        eta = jax.random.loggamma(key_eta, A0) - math.log(RATE0)
        standard = jax.random.normal(key_coefficients, (2,))
        return jnp.append(B0 + standard / jnp.sqrt(jnp.exp(eta) * np.array([R0, S0])), eta)

    def metric(theta: Array) -> tuple[Array, Array]:  # Supplement
        alpha, beta, eta = theta
        tau = jnp.exp(eta)
        a, b = R0 * (alpha - B0[0]), S0 * (beta - B0[1])
        fisher = jnp.array([[tau * n, 0.0, 0.0], [0.0, tau * np.sum(x**2), 0.0], [0.0, 0.0, n / 2]])
        prior_curvature = tau * jnp.array([[R0, 0.0, a], [0.0, S0, b], [a, b, precision_rate(theta)]])
        return fisher, prior_curvature

    def constrain(theta: Array) -> dict[str, Array]:
        return {"alpha": theta[0], "beta": theta[1], "tau": jnp.exp(theta[2])}

    names = ("alpha", "beta", "log_tau")
    return Model(log_likelihood, log_prior, sample_prior, metric=metric, constrain=constrain, names=names)


def log_evidence(number: int, benchmark: bool = False) -> float:
    """Log evidence of a `model` in closed form (paper, appendix "Unknown precision")."""
    x, y = _data(number, benchmark)
    n = len(y)
    X = np.column_stack([np.ones(n), x])
    Q0 = np.diag([R0, S0])
    Qn = Q0 + X.T @ X
    Bn = np.linalg.solve(Qn, X.T @ y + Q0 @ B0)
    an = A0 + n / 2
    bn = RATE0 + (y @ y - Bn @ Qn @ Bn + B0 @ Q0 @ B0) / 2
    return float(
        A0 * math.log(RATE0)
        - n / 2 * math.log(2 * math.pi)
        + (np.linalg.slogdet(Q0).logabsdet - np.linalg.slogdet(Qn).logabsdet) / 2
        + math.lgamma(an)
        - math.lgamma(A0)
        - an * math.log(bn)
    )
