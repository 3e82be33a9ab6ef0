"""Quadrature along the ladder: each rule is a pair of weights, for the mean and for the variance of g at every rung.

    log Z = sum_i mean_weight_i E_i[g] + variance_weight_i V_i[g]

The variance of g is the derivative of its mean with respect to t, which is what the second-order rule uses.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from thermint.ladders import Ladder

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


def quadrature_error(rule: Rule, ladder: Ladder, mean: np.ndarray, variance: np.ndarray) -> float:
    """Estimate the error that the rule leaves even for exact means and variances.

    For the trapezoid rule it is the second-order correction. For the second-order rule, whose error falls with the
    fourth power of the spacing, it is a fifteenth of the difference to the same rule on every other rung.
    """
    if rule is trapezoid:
        return abs(float(second_order(ladder)[1] @ variance))
    rungs = len(ladder)
    coarse = np.unique(np.append(np.arange(0, rungs, 2), rungs - 1))
    if len(coarse) == rungs:  # two rungs have nothing coarser: the correction itself is the only scale there is
        return abs(float(rule(ladder)[1] @ variance))
    fine_weights, coarse_weights = rule(ladder), rule(ladder[coarse])
    fine = fine_weights[0] @ mean + fine_weights[1] @ variance
    return abs(float(fine - coarse_weights[0] @ mean[coarse] - coarse_weights[1] @ variance[coarse])) / 15


RULES: dict[str, Rule] = {"trapezoid": trapezoid, "second-order": second_order}
