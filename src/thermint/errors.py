"""The Monte Carlo error of a mean, from batch means."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from scipy import stats


class BatchError(NamedTuple):
    """Standard error of a mean, with the degrees of freedom behind it."""

    error: float
    degrees_of_freedom: float
    disagreement: bool  # populations differ by more than their own errors explain


@cache
def _largest_ratio(between: int, within: int) -> float:
    """Ratio of variances that chance exceeds once in a thousand times."""
    return float(stats.f.isf(1e-3, between, within))


def batch_error(series: np.ndarray) -> BatchError:
    """Estimate the standard error of ``series.mean()`` from batch means.

    Batches of all populations are pooled, and what correlation is left between neighbouring batches is allowed for.
    Where populations differ by more than that explains (an F test at one in a thousand), the error comes from the
    spread between populations alone.

    Args:
        series: [batch, population], means of consecutive blocks of draws in independent populations.
    """
    batches, populations = series.shape
    means = series.mean(axis=0)
    within = series - means
    scatter = np.mean(within**2) * batches / (batches - 1)
    lag_one = np.sum(within[1:] * within[:-1]) / max(np.sum(within**2), np.finfo(float).tiny)
    # A sample autocorrelation of independent values is about -1/batches.
    inflation = 1 + 2 * max(lag_one + 1 / batches, 0.0)
    error = np.sqrt(scatter * inflation / series.size)
    if populations > 1:
        between = means.std(ddof=1) / np.sqrt(populations)
        ratio = _largest_ratio(populations - 1, populations * (batches - 1))
        rounding = 1e-12 * np.max(np.abs(series), initial=1.0)
        if between**2 > ratio * error**2 + rounding**2:
            return BatchError(float(between), float(populations - 1), True)
    return BatchError(float(error), float(populations * (batches - 1) / inflation), False)


def largest_share(series: np.ndarray) -> float:
    """Share of the largest batch in the sum of squared deviations; a third or so at most where tails are light."""
    square = (series - series.mean()) ** 2
    return float(square.max() / max(square.sum(), np.finfo(float).tiny))
