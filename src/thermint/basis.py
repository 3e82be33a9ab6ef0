"""Stein features of polynomial trial functions (paper, Eqn. "ZV h" and Appendix "Second degree polynomials").

For a trial function P and a density with score s, w = Laplacian(P) + grad(P) . s has expectation zero. That is -2 times
the paper's h, a constant that the coefficients absorb. As trial functions we take products of Hermite polynomials in
whitened coordinates: they span the same space as monomials, and where the density is normal they are eigenfunctions of
the Stein operator, w = -|a| P, so that features are uncorrelated and their Gram matrix is well conditioned.
"""

from __future__ import annotations

from functools import cache
from itertools import combinations_with_replacement
from math import comb, factorial, prod

import jax.numpy as jnp
import numpy as np
from jax import Array


def size(dimension: int, degree: int, cross: bool = True) -> int:
    """Return the number of features: all trial functions of total degree 1 to ``degree``.

    >>> size(20, 2), size(20, 3), size(20, 3, cross=False)
    (230, 1770, 60)
    """
    return comb(dimension + degree, degree) - 1 if cross else dimension * degree


@cache
def exponents(dimension: int, degree: int, cross: bool = True) -> tuple[tuple[tuple[int, int], ...], ...]:
    """List the trial functions, lowest degree first, each as its factors ((coordinate, power), ...).

    >>> exponents(2, 2)
    (((0, 1),), ((1, 1),), ((0, 2),), ((0, 1), (1, 1)), ((1, 2),))
    """
    terms = []
    for total in range(1, degree + 1):
        if cross:
            for chosen in combinations_with_replacement(range(dimension), total):
                terms.append(tuple((i, chosen.count(i)) for i in sorted(set(chosen))))
        else:
            terms.extend(((i, total),) for i in range(dimension))
    return tuple(terms)


def hermite(x: Array, degree: int) -> list[Array]:
    """Probabilists' Hermite polynomials He_0 to He_degree of each entry of x."""
    values = [jnp.ones_like(x), x]
    for k in range(1, degree):
        values.append(x * values[k] - k * values[k - 1])
    return values[: degree + 1]


def stein_features(x: Array, score: Array, degree: int, cross: bool = True) -> Array:
    """Evaluate all Stein features.

    Args:
        x: whitened coordinates, [d, n].
        score: gradient of the log density with respect to them, [d, n].
        degree: highest total degree of the trial functions.
        cross: whether to include products of different coordinates.

    Returns:
        [size(d, degree, cross), n], lowest degree first, scaled to variance 1 under a standard normal density.
    """
    d = x.shape[0]
    if degree == 0:
        return jnp.zeros((0, x.shape[1]))
    he = hermite(x, degree)
    # Row k * d + i holds He_k(x_i), and the Stein operator applied to it; He_k' = k He_{k-1}.
    values = jnp.concatenate(he)
    steined = jnp.concatenate(
        [jnp.zeros_like(x), score] + [k * (k - 1) * he[k - 2] + k * he[k - 1] * score for k in range(2, degree + 1)]
    )
    terms = exponents(d, degree, cross)
    # Each term has up to ``degree`` factors; missing ones are He_0, whose value is 1 and whose Stein image is 0.
    rows = np.zeros((len(terms), degree if cross else 1), dtype=int)
    for row, term in zip(rows, terms, strict=True):
        row[: len(term)] = [power * d + i for i, power in term]
    # The operator is a sum over coordinates: on a product it acts on one factor at a time.
    total, product = steined[rows[:, 0]], values[rows[:, 0]]
    for column in rows.T[1:]:
        total = total * values[column] + product * steined[column]
        product = product * values[column]
    return total / _normal_deviation(terms)[:, None]


def _normal_deviation(terms: tuple[tuple[tuple[int, int], ...], ...]) -> np.ndarray:
    """Return the standard deviation of each feature under a standard normal: |a| sqrt(a!)."""
    return np.array(
        [sum(power for _, power in term) * prod(factorial(power) for _, power in term) ** 0.5 for term in terms]
    )
