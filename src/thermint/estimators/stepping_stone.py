"""Stepping stones: the log evidence as a sum of log ratios of neighbouring normalising constants.

With rung i distributed as prior * exp(t_i g) / Z_i and D_i = t_{i+1} - t_i,

    Z_{i+1} / Z_i = E_i[e^(D g)] = 1 / E_{i+1}[e^(-D g)] = E_i[e^(D g / 2)] / E_{i+1}[e^(-D g / 2)].

None has a quadrature error. By Jensen's inequality the log of a sample mean lies below that of the expectation on
average, so that the first form tends to be too low and the second too high; the third has no preference.
"""

from __future__ import annotations

import numpy as np

from thermint.estimators.base import Ratios
from thermint.model.options import require_whole
from thermint.path.ladders import Ladder


def forward(g: np.ndarray, ladder: Ladder, batches: int) -> Ratios:
    """Step up from each lower rung: sum_i log E_i[e^(D g)].

    Args:
        g: log likelihood, [population, draw, rung].
        ladder: inverse temperatures.
        batches: number of blocks of consecutive draws, for the error.
    """
    log_mean, share = log_mean_exp(np.diff(ladder) * g[..., :-1])
    return _ratios(log_mean, share, batches)


def backward(g: np.ndarray, ladder: Ladder, batches: int) -> Ratios:
    """Step down from each upper rung: -sum_i log E_{i+1}[e^(-D g)]. Arguments as for `forward`."""
    log_mean, share = log_mean_exp(-np.diff(ladder) * g[..., 1:])
    return _ratios(-log_mean, -share, batches)


def bridge(g: np.ndarray, ladder: Ladder, batches: int) -> Ratios:
    """Meet half-way: sum_i log E_i[e^(D g / 2)] - log E_{i+1}[e^(-D g / 2)]. Arguments as for `forward`."""
    half = np.diff(ladder) / 2
    log_lower, lower = log_mean_exp(half * g[..., :-1])
    log_upper, upper = log_mean_exp(-half * g[..., 1:])
    return _ratios(log_lower - log_upper, lower - upper, batches)


def batch_means(trace: np.ndarray, batches: int) -> np.ndarray:
    """Average a trace[population, draw] over nearly equal blocks of consecutive draws, [batch, population].

    Raises:
        ValueError: fewer than two batches, or more than there are draws.
    """
    draws = trace.shape[1]
    require_whole("batches", batches, at_least=2)
    if batches > draws:
        raise ValueError(f"batches = {batches}: there are only {draws} draws a population to cut into batches.")
    start = np.arange(batches) * draws // batches
    return (np.add.reduceat(trace, start, axis=1) / np.diff(start, append=draws)).T


def log_mean_exp(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return log E[e^x] at every step, and e^x / E[e^x], which is how the log varies with the draws (delta method).

    Args:
        x: [population, draw, step].
    """
    top = x.max(axis=(0, 1))
    exp = np.exp(x - top)
    mean = exp.mean(axis=(0, 1))
    return top + np.log(mean), exp / mean


def _ratios(log_ratio: np.ndarray, share: np.ndarray, batches: int) -> Ratios:
    """Add up steps: log_ratio[step], and how it varies with the draws, share[population, draw, step]."""
    log_z = np.append(0.0, np.cumsum(log_ratio))
    return Ratios(float(log_z[-1]), batch_means(share.sum(axis=-1), batches), log_z)
