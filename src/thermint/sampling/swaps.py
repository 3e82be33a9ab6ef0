"""Exchange of states between rungs: ``swap(uniform[rung], g[rung], ladder, iteration) -> permutation[rung]``.

A swap is given a random number between 0 and 1 for each rung, and sees only the log likelihood g of each. Exchanging
rungs i and j is accepted with probability min(1, exp((t_i - t_j)(g_j - g_i))), which leaves the product of the power
posteriors invariant.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from thermint.path.ladders import Ladder


def even_odd(uniform: Array, g: Array, ladder: Array, iteration: Array) -> Array:
    """Exchange neighbours: pairs (0,1), (2,3), ... at even iterations, (1,2), (3,4), ... at odd ones.

    >>> import jax.numpy as jnp
    >>> even_odd(jnp.array([0.3, 0.6]), jnp.array([-3.0, -90.0]), jnp.array([0.0, 1.0]), jnp.array(0)).tolist()
    [1, 0]
    """
    rungs = jnp.arange(len(ladder))
    is_lower = rungs % 2 == iteration % 2
    partner = jnp.where(is_lower, rungs + 1, rungs - 1)
    partner = jnp.where((partner < 0) | (partner >= len(ladder)), rungs, partner)
    log_u = jnp.log(uniform)[jnp.minimum(rungs, partner)]
    return jnp.where(log_u < log_ratio(g, ladder, rungs, partner), partner, rungs)


def random_pair(uniform: Array, g: Array, ladder: Array, iteration: Array) -> Array:
    """Exchange two rungs chosen at random among all, as in the paper.

    >>> import jax.numpy as jnp
    >>> random_pair(jnp.array([0.3, 0.6]), jnp.array([-3.0, -90.0]), jnp.array([0.0, 1.0]), jnp.array(0)).tolist()
    [1, 0]
    """
    del iteration
    return _exchanged(uniform[0], g, ladder)


def random_pairs(uniform: Array, g: Array, ladder: Array, iteration: Array) -> Array:
    """Exchange two rungs chosen at random among all, as many times in turn as there are rungs.

    >>> import jax.numpy as jnp
    >>> random_pairs(jnp.array([0.3, 0.6]), jnp.array([-3.0, -90.0]), jnp.array([0.0, 1.0]), jnp.array(0)).tolist()
    [1, 0]
    """
    del iteration

    def once(order: Array, uniform: Array) -> tuple[Array, None]:
        return order[_exchanged(uniform, g[order], ladder)], None

    return jax.lax.scan(once, jnp.arange(len(ladder)), uniform)[0]


def _exchanged(uniform: Array, g: Array, ladder: Array) -> Array:
    """Choose a pair, and whether to exchange it, by one random number: what chooses the pair leaves the rest of it."""
    rungs = jnp.arange(len(ladder))
    pairs = len(ladder) * (len(ladder) - 1)
    pair = jnp.floor(pairs * uniform)
    i, j = jnp.divmod(pair.astype(int), len(ladder) - 1)
    j = jnp.where(j < i, j, j + 1)
    accept = jnp.log(pairs * uniform - pair) < log_ratio(g, ladder, i, j)
    return jnp.where(accept, rungs.at[i].set(j).at[j].set(i), rungs)


def log_ratio(g: Array, ladder: Array, i: Array, j: Array) -> Array:
    """Log of the Metropolis ratio for exchanging the states of rungs i and j."""
    return (ladder[i] - ladder[j]) * (g[j] - g[i])


def swap_rates(g: np.ndarray, ladder: Ladder) -> np.ndarray:
    """Mean acceptance probability of a swap with the next rung, [rung]; NaN for the last."""
    log_ratio = np.diff(ladder) * (g[..., :-1] - g[..., 1:])
    return np.append(np.exp(np.minimum(log_ratio, 0.0)).mean(axis=(0, 1)), np.nan)
