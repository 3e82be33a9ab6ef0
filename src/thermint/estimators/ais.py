"""Annealed importance sampling in equilibrium (paper, Supplement).

With draws theta_i of every rung i, independent of each other as those of a population are, and D_i = t_{i+1} - t_i,

    p(y) = E[w],    w = exp(sum_i D_i g(theta_i)).

Stepping stones forward estimate the same by a product of means; this is the mean of products. It is unbiased, though
its log is not.
"""

from __future__ import annotations

import numpy as np

from thermint.estimators.base import Ratios
from thermint.estimators.stepping_stone import batch_means, log_mean_exp
from thermint.path.ladders import Ladder


def ais(g: np.ndarray, ladder: Ladder, batches: int) -> Ratios:
    """Average the products of all steps: log E[e^(sum_i D_i g_i)] (paper, Eqn. "AIS").

    Args:
        g: log likelihood, [population, draw, rung].
        ladder: inverse temperatures.
        batches: number of blocks of consecutive draws, for the error.
    """
    log_mean, share = log_mean_exp(log_weights(g[..., :-1], ladder))
    log_z = np.append(0.0, log_mean)
    return Ratios(float(log_z[-1]), batch_means(share[..., -1], batches), log_z)


def log_weights(g: np.ndarray, ladder: Ladder) -> np.ndarray:
    """Log weights on arrival at every rung but the first, from g at every rung but the last: both [..., rung - 1]."""
    return np.cumsum(np.diff(ladder) * g, axis=-1)
