"""The Monte Carlo error of a mean, from batch means."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from scipy import stats

from thermint.control.plan import FOLDS

CORRELATED = 2.5  # standard errors by which the correlation of neighbouring batches must exceed what chance gives
MIN_BATCHES = FOLDS  # of a population, so that each has coefficients of its own; batches do not grow beyond that


class BatchError(NamedTuple):
    """Standard error of a mean, with the degrees of freedom behind it."""

    error: float
    degrees_of_freedom: float
    disagreement: bool = False  # populations differ by more than their own errors explain
    slow: bool = False  # batches are as long as can be, because shorter ones were clearly correlated


def critical_value(chance: float, degrees_of_freedom: float) -> float:
    """Return by how many errors a difference must exceed zero for chance to explain it so rarely.

    Heavy tails leave few degrees of freedom, whose quantiles would excuse any difference: ten at least.
    """
    return float(stats.t.isf(chance / 2, max(degrees_of_freedom, 10.0)))


@cache
def _largest_ratio(between: int, within: int) -> float:
    """Ratio of variances that chance exceeds once in a thousand times."""
    return float(stats.f.isf(1e-3, between, within))


def batch_error(series: np.ndarray) -> BatchError:
    """Estimate the standard error of ``series.mean()`` from batch means.

    Batches of all populations are pooled. Where neighbouring ones are clearly correlated, they are joined, two and two,
    until they are not, or few are left; what correlation there is then is allowed for. Where populations differ by more
    than that explains (an F test at one in a thousand), the error comes from the spread between populations alone.

    Degrees of freedom are those of as many normal batches, or fewer where their tail is heavy: the variance of n normal
    batches is as uncertain as that of any others with the same sum of squares squared over sum of fourth powers, n / 3.

    Args:
        series: [batch, population], means of consecutive blocks of draws in independent populations.
    """
    given, series = len(series), _grown(series)
    batches, populations = series.shape
    means = series.mean(axis=0)
    within = series - means
    square = np.maximum(within**2, np.finfo(float).tiny)
    scatter = square.mean() * batches / (batches - 1)
    inflation = 1 + 2 * max(_correlation(series), 0.0)
    error = np.sqrt(scatter * inflation / series.size)
    if populations > 1:
        between = means.std(ddof=1) / np.sqrt(populations)
        ratio = _largest_ratio(populations - 1, populations * (batches - 1))
        rounding = 1e-12 * np.max(np.abs(series), initial=1.0)
        if between**2 > ratio * error**2 + rounding**2:
            return BatchError(float(between), float(populations - 1), True)
    like_normal = 3 * np.sum(square / square.max()) ** 2 / np.sum((square / square.max()) ** 2)
    dof = min(populations * (batches - 1) / inflation, like_normal)
    return BatchError(float(error), float(dof), slow=batches < min(given, 2 * MIN_BATCHES))


def _correlation(series: np.ndarray) -> float:
    """Correlation of neighbouring batches; that of independent ones, as a sample has it, is about -1/batches."""
    within = series - series.mean(axis=0)
    lag_one = np.sum(within[1:] * within[:-1]) / max(np.sum(within**2), np.finfo(float).tiny)
    return float(lag_one + 1 / len(series))


def _grown(series: np.ndarray) -> np.ndarray:
    """Join neighbouring batches as long as they are clearly correlated and enough are left."""
    while len(series) >= 2 * MIN_BATCHES and _correlation(series) > CORRELATED / np.sqrt(series.size):
        odd = len(series) % 2  # the first one goes: it is the least converged
        series = (series[odd::2] + series[odd + 1 :: 2]) / 2
    return series
