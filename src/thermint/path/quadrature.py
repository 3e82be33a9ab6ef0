"""Quadrature along the ladder: each rule is a pair of weights, for the mean and for the variance of g at every rung.

    log Z = sum_i mean_weight_i E_i[g] + variance_weight_i V_i[g]

The variance of g is the derivative of its mean with respect to t, which is what the second-order rule uses.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.polynomial.legendre import Legendre, leggauss

from thermint.path import ladders
from thermint.path.ladders import Ladder

Weights = tuple[np.ndarray, np.ndarray]
Rule = Callable[[Ladder], Weights]


def trapezoid(ladder: Ladder) -> Weights:
    """Return weights of the trapezoid rule (paper, Eqn. "quadr1")."""
    step = np.diff(ladder)
    mean = (np.append(step, 0.0) + np.append(0.0, step)) / 2
    return mean, np.zeros_like(mean)


def second_order(ladder: Ladder) -> Weights:
    """Return weights of the trapezoid rule with the second-order correction (paper, Eqn. "2nd quad")."""
    square = np.diff(ladder) ** 2 / 12
    return trapezoid(ladder)[0], np.append(square, 0.0) - np.append(0.0, square)


def lobatto(ladder: Ladder) -> Weights:
    """Return weights of the Gauss-Lobatto rule, exact for means that are polynomials of degree 2 rungs - 3.

    >>> lobatto(ladders.lobatto(3))[0] * 6
    array([1., 4., 1.])

    Raises:
        ValueError: the ladder has other nodes than `thermint.ladders.lobatto`.
    """
    n = len(ladder)
    if not ladders.is_lobatto(ladder):
        raise ValueError(
            f'rule = "lobatto" integrates on Gauss-Lobatto nodes only: use ladder=thermint.ladders.lobatto({n}), or '
            'rule="second-order" with this ladder.'
        )
    mean = 1 / (n * (n - 1) * Legendre.basis(n - 1)(2 * ladders.lobatto(n) - 1) ** 2)
    return mean, np.zeros_like(mean)


def hermite(ladder: Ladder) -> Weights:
    """Return weights that integrate the polynomial of degree 2 rungs - 1 with the given means and variances as slopes.

    For nodes that cluster at the ends, such as Lobatto's, the weights are small; for others, such as quintic ladders,
    they are huge, and so is the effect of noise.
    """
    x, weights = leggauss(len(ladder))  # exact to the same degree
    of_mean, of_variance = _hermite_basis(ladder, (1 + x) / 2)
    return of_mean @ weights / 2, of_variance @ weights / 2


def quadrature_error(rule: Rule, ladder: Ladder, mean: np.ndarray, variance: np.ndarray) -> float:
    """Estimate the error that the rule leaves even for exact means and variances.

    For the trapezoid rule it is the second-order correction. For the second-order rule it is extrapolated (Richardson)
    from the rule on every other rung and on every fourth. For the Lobatto rule see `_lobatto_error`.
    """
    if rule is trapezoid:
        return abs(float(second_order(ladder)[1] @ variance))
    if rule is lobatto:
        return _lobatto_error(ladder, mean, variance)

    def value(rungs: np.ndarray) -> float:
        mean_weights, variance_weights = rule(ladder[rungs])
        return float(mean_weights @ mean[rungs] + variance_weights @ variance[rungs])

    def coarser(rungs: np.ndarray) -> tuple[np.ndarray, float]:
        """Leave out every other rung but the ends, in the way that changes the value most."""
        choices = [np.union1d(rungs[::2], rungs[-1:]), np.union1d(rungs[:1], rungs[::-2])]
        changes = [abs(value(choice) - value(rungs)) for choice in choices]
        return choices[int(np.argmax(changes))], max(changes)

    if len(ladder) == 2:  # nothing is coarser: the correction itself is the only scale there is
        return abs(float(rule(ladder)[1] @ variance))
    half, change = coarser(np.arange(len(ladder)))
    _, change_before = coarser(half) if len(half) > 2 else (half, 0.0)
    ratio = np.clip(change_before / change if change > 0 else 16.0, 2.0, 16.0)  # 16 for a fine ladder
    return float(change / (ratio - 1))


def _lobatto_error(ladder: Ladder, mean: np.ndarray, variance: np.ndarray) -> float:
    """Compare with the Hermite rule, which has two more degrees, as the slopes of the mean, its variances, are known.

    The two differ by what the Lobatto rule makes of P_{2n-2}, the one Legendre polynomial of the Hermite interpolant
    that it gets wrong. Where terms cancel in the coefficient of that, the one of P_{2n-1} stands in.
    """
    n = len(ladder)
    x, weights = leggauss(2 * n)
    of_mean, of_variance = _hermite_basis(ladder, (1 + x) / 2)
    interpolant = (mean - mean[-1]) @ of_mean + variance @ of_variance
    even, odd = ((2 * k + 1) / 2 * (weights * interpolant) @ Legendre.basis(k)(x) for k in (2 * n - 2, 2 * n - 1))
    wrong = lobatto(ladder)[0] @ Legendre.basis(2 * n - 2)(2 * ladder - 1)  # the integral is zero
    return float(wrong * np.hypot(even, odd))


def _hermite_basis(nodes: np.ndarray, t: np.ndarray) -> Weights:
    """Evaluate the polynomials that interpolate a value of one, and a slope of one, at one node each: [node, point]."""
    gap = nodes[:, None] - nodes
    np.fill_diagonal(gap, 1.0)
    factors = (t - nodes[:, None]) / gap[..., None]  # [node, other node, point]
    factors[np.diag_indices(len(nodes))] = 1.0
    square = np.prod(factors, axis=1) ** 2  # of Lagrange's polynomials, whose slopes at their own nodes are
    slope = np.sum(1 / gap - np.eye(len(nodes)), axis=1)
    away = t - nodes[:, None]
    return (1 - 2 * slope[:, None] * away) * square, away * square


RULES: dict[str, Rule] = {"trapezoid": trapezoid, "second-order": second_order, "lobatto": lobatto}


def rule_of(rule: str | None, ladder: Ladder | None) -> str:
    """Name the rule for a ladder (None if it will be chosen to suit the rule), or refuse one that does not suit it."""
    if rule is None:
        return "lobatto" if ladder is not None and len(ladder) > 2 and ladders.is_lobatto(ladder) else "second-order"
    if rule not in RULES:
        raise ValueError(f"rule = {rule!r}: it must be one of {', '.join(map(repr, RULES))}.")
    if ladder is not None:
        RULES[rule](ladder)
    return rule
