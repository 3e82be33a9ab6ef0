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

    For the trapezoid rule it is the second-order correction. For the second-order rule it is extrapolated from the same
    rule on every other rung and on every fourth: where differences fall by 16 each time, as theory has it for a fine
    ladder, the error is a fifteenth of the last difference; where they fall by less, it is a larger part of it.
    """
    if rule is trapezoid:
        return abs(float(second_order(ladder)[1] @ variance))

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
    ratio = np.clip(change_before / change if change > 0 else 16.0, 2.0, 16.0)
    return float(change / (ratio - 1))


RULES: dict[str, Rule] = {"trapezoid": trapezoid, "second-order": second_order}
