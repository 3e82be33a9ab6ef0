"""Exchange of states between rungs: ``swap(key, g[rung], ladder, iteration) -> permutation[rung]``.

A swap sees only the log likelihood g of each rung. Exchanging rungs i and j is accepted with probability
min(1, exp((t_i - t_j)(g_j - g_i))), which leaves the product of the power posteriors invariant.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array


def even_odd(key: Array, g: Array, ladder: Array, iteration: Array) -> Array:
    """Exchange neighbours: pairs (0,1), (2,3), ... at even iterations, (1,2), (3,4), ... at odd ones.

    >>> import jax, jax.numpy as jnp
    >>> even_odd(jax.random.key(0), jnp.array([-3.0, -90.0]), jnp.array([0.0, 1.0]), jnp.array(0)).tolist()
    [1, 0]
    """
    rungs = jnp.arange(len(ladder))
    is_lower = rungs % 2 == iteration % 2
    partner = jnp.where(is_lower, rungs + 1, rungs - 1)
    partner = jnp.where((partner < 0) | (partner >= len(ladder)), rungs, partner)
    log_u = jnp.log(jax.random.uniform(key, rungs.shape))[jnp.minimum(rungs, partner)]
    return jnp.where(log_u < log_ratio(g, ladder, rungs, partner), partner, rungs)


def random_pair(key: Array, g: Array, ladder: Array, iteration: Array) -> Array:
    """Exchange two rungs chosen at random among all, as in the paper.

    >>> import jax, jax.numpy as jnp
    >>> random_pair(jax.random.key(0), jnp.array([-3.0, -90.0]), jnp.array([0.0, 1.0]), jnp.array(0)).tolist()
    [1, 0]
    """
    del iteration
    key_pair, key_accept = jax.random.split(key)
    rungs = jnp.arange(len(ladder))
    i, j = jax.random.choice(key_pair, len(ladder), (2,), replace=False)
    accept = jnp.log(jax.random.uniform(key_accept)) < log_ratio(g, ladder, i, j)
    return jnp.where(accept, rungs.at[i].set(j).at[j].set(i), rungs)


def random_pairs(key: Array, g: Array, ladder: Array, iteration: Array) -> Array:
    """Exchange two rungs chosen at random among all, as many times in turn as there are rungs.

    >>> import jax, jax.numpy as jnp
    >>> random_pairs(jax.random.key(0), jnp.array([-3.0, -90.0]), jnp.array([0.0, 1.0]), jnp.array(0)).tolist()
    [1, 0]
    """

    def once(order: Array, key: Array) -> tuple[Array, None]:
        return order[random_pair(key, g[order], ladder, iteration)], None

    return jax.lax.scan(once, jnp.arange(len(ladder)), jax.random.split(key, len(ladder)))[0]


def log_ratio(g: Array, ladder: Array, i: Array, j: Array) -> Array:
    """Log of the Metropolis ratio for exchanging the states of rungs i and j."""
    return (ladder[i] - ladder[j]) * (g[j] - g[i])
