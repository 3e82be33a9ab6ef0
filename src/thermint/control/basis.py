"""Stein features of polynomial trial functions (paper, Eqn. "ZV h" and Appendix "Second degree polynomials").

For a trial function P and a density with score s, w = Laplacian(P) + grad(P) . s has expectation zero. That is -2 times
the paper's h, a constant that the coefficients absorb. As trial functions we take products of Hermite polynomials in
whitened coordinates: they span the same space as monomials, and where the density is normal they are eigenfunctions of
the Stein operator, w = -|a| P, so that features are uncorrelated and their Gram matrix is well conditioned.

Where a posterior has several modes, each has its own polynomials: a trial function is then P r, with r the
responsibility of a component of a mixture of normals, and P a polynomial (a constant too) in the component's whitened
coordinates. (Features weighted by responsibilities afterwards would not have mean zero.)
"""

from __future__ import annotations

from functools import cache
from itertools import combinations_with_replacement, pairwise
from math import comb, factorial, prod

import numpy as np
from scipy.special import softmax


def size(dimension: int, degree: int, cross: bool = True, components: int = 1) -> int:
    """Return the number of features: all trial functions of total degree 1 to ``degree``, for every component.

    >>> size(20, 2), size(20, 3), size(20, 3, cross=False), size(20, 2, components=2)
    (230, 1770, 60, 462)
    """
    polynomials = comb(dimension + degree, degree) - 1 if cross else dimension * degree
    return polynomials if components == 1 or degree == 0 else components * (1 + polynomials)


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


def names(dimension: int, degree: int, cross: bool = True, components: int = 1) -> list[str]:
    """Name the features in their order, after the whitened coordinates z1, z2, ... in their trial functions.

    >>> names(2, 2), names(1, 1, components=2)
    (['z1', 'z2', 'z1²', 'z1 z2', 'z2²'], ['mode 1', 'mode 1: z1', 'mode 2', 'mode 2: z1'])
    """

    def power(p: int) -> str:
        return str(p).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")) if p > 1 else ""

    terms = exponents(dimension, degree, cross)
    words = [" ".join(f"z{i + 1}{power(p)}" for i, p in term) for term in terms]
    if components == 1:
        return words
    named = []
    for k in range(1, degree + 1):
        of_degree = [word for word, term in zip(words, terms, strict=True) if sum(p for _, p in term) == k]
        for mode in range(1, components + 1):
            named += [f"mode {mode}"] if k == 1 else []
            named += [f"mode {mode}: {word}" for word in of_degree]
    return named


def hermite(x: np.ndarray, degree: int) -> list[np.ndarray]:
    """Probabilists' Hermite polynomials He_0 to He_degree of each entry of x."""
    values = [np.ones_like(x), x]
    for k in range(1, degree):
        values.append(x * values[k] - k * values[k - 1])
    return values[: degree + 1]


def stein_features(
    x: np.ndarray, score: np.ndarray, degree: int, cross: bool = True, *, potential: np.ndarray | None = None
) -> np.ndarray:
    """Evaluate the Stein operator, plus ``potential``, on all trial functions.

    Args:
        x: whitened coordinates, [d, n].
        score: gradient of the log density with respect to them, [d, n].
        degree: highest total degree of the trial functions.
        cross: whether to include products of different coordinates.
        potential: [n]; the trial functions times this are added, if it is given.

    Returns:
        [size(d, degree, cross), n], lowest degree first, scaled to variance 1 under a standard normal density.
    """
    d = x.shape[0]
    if degree == 0:
        return np.zeros((0, x.shape[1]))
    he = hermite(x, degree)
    # Row k * d + i holds He_k(x_i), and the Stein operator applied to it; He_k' = k He_{k-1}.
    values = np.concatenate(he)
    steined = np.concatenate(
        [np.zeros_like(x), score] + [k * (k - 1) * he[k - 2] + k * he[k - 1] * score for k in range(2, degree + 1)]
    )
    (first, *others), place, deviation = _factors(d, degree, cross)
    # The operator is a sum over coordinates: on a product it acts on one factor at a time.
    total, product = steined[first], values[first]
    for rows in others:  # of terms that have another factor, which come first
        value, image = values[rows], steined[rows]
        total[: len(rows)] *= value
        total[: len(rows)] += np.multiply(image, product[: len(rows)], out=image)
        product[: len(rows)] *= value
    if potential is not None:
        total += np.multiply(product, potential, out=product)
    total = total[place]
    total /= deviation
    return total


@cache
def _factors(d: int, degree: int, cross: bool) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Order the terms by their number of factors, most first.

    Returns:
        For the first, second, ... factor He_k(x_i) of the terms that have one, the row k * d + i: [factor][term]. The
        place of each term in that order. The standard deviation |a| sqrt(a!) of each feature under a standard normal.
    """
    terms = exponents(d, degree, cross)
    order = sorted(range(len(terms)), key=lambda i: -len(terms[i]))
    rows = [[power * d + i for i, power in terms[which]] for which in order]
    factors = [np.array([row[j] for row in rows if len(row) > j]) for j in range(len(rows[0]))]
    powers = [[power for _, power in term] for term in terms]
    deviation = np.array([sum(a) * prod(map(factorial, a)) ** 0.5 for a in powers])
    return factors, np.argsort(order), deviation[:, None]


def mixture_features(
    position: np.ndarray,
    score: np.ndarray,
    log_weight: np.ndarray,
    mean: np.ndarray,
    factor: np.ndarray,
    degree: int,
    cross: bool = True,
) -> np.ndarray:
    """Evaluate the Stein features of polynomials, each times the responsibility of a component.

    In the whitened coordinates of component k, with b = grad log r_k,

        Laplacian(P r) + grad(P r) . s  =  r [Laplacian(P) + grad(P) . (s + 2 b) + P (|b|^2 + div b + b . s)].

    Args:
        position: [n, d].
        score: gradient of the log density, [n, d].
        log_weight: of the components, [component].
        mean: [component, d].
        factor: lower Cholesky factors of the covariances, [component, d, d].
        degree: highest total degree of the polynomials.
        cross: whether these include products of different coordinates.

    Returns:
        [components * (1 + size(d, degree, cross)), n], or [size(d, degree, cross), n] for a single component, whose
        responsibility is 1; lowest degree first, constants among those of degree 1.
    """
    number, d = mean.shape
    whitening = np.linalg.inv(factor)
    x = whitening @ (position - mean[:, None]).mT  # [component, d, n]
    if number == 1 or degree == 0:
        return stein_features(x[0], (score @ factor[0]).T, degree, cross)
    log_density = log_weight - np.sum(np.log(np.diagonal(factor, axis1=1, axis2=2)), axis=1)
    responsibility = softmax(log_density[:, None] - 0.5 * np.sum(x**2, axis=1), axis=0)  # [component, n]
    # Gradients of the components' log densities, [component, n, d].
    pull = -(whitening.mT @ x).mT
    blocks = []
    for k in range(number):
        a = pull @ factor[k]  # the same in the coordinates of component k
        average = np.einsum("jn,jnd->nd", responsibility, a)
        divergence = -np.sum((whitening @ factor[k]) ** 2, axis=(1, 2))  # of each a, [component]
        b = a[k] - average
        spreading = np.einsum("jn,jnd->n", responsibility, (a - average) * a)
        div_b = divergence[k] - divergence @ responsibility - spreading
        s = score @ factor[k]
        potential = np.sum(b * (b + s), axis=1) + div_b
        polynomials = stein_features(x[k], (s + 2 * b).T, degree, cross, potential=potential)
        blocks.append(responsibility[k] * np.concatenate([potential[None], polynomials]))
    edges = [0] + [1 + size(d, k, cross) for k in range(1, degree + 1)]
    return np.concatenate([block[low:high] for low, high in pairwise(edges) for block in blocks])
