"""Tails so heavy that moments do not exist."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from thermint.diagnostics.weights import MIN_WEIGHTS


class Tail(NamedTuple):
    """The Pareto k of a tail: moments of order 1/k and above are infinite."""

    k: float
    error: float

    def lacks_moment(self, order: int) -> bool:
        """Whether a moment is infinite, and chance is unlikely to explain that it looks so."""
        return self.k - 2 * self.error > 1 / order


def tail(x: np.ndarray, ess: float) -> Tail:
    """Estimate the heavier tail of x[population, draw], by arviz-stats; ``ess`` is the effective sample size."""
    from arviz_stats.base import array_stats

    # The tail is a fifth of the draws; with fewer, it says nothing.
    if np.ptp(x) <= 1e-12 * np.abs(x).max() or x.size < 5 * MIN_WEIGHTS:
        return Tail(0.0, 0.0)
    ess = min(ess, x.size)
    with np.errstate(divide="ignore", invalid="ignore"):  # chains that hardly move have many equal values
        k = float(np.nan_to_num(array_stats.pareto_khat(x, chain_axis=0, draw_axis=1, r_eff=ess / x.size)))
    return Tail(k, (1 + max(k, 0.0)) / np.sqrt(min(ess / 5, 3 * np.sqrt(ess))))


def heavy_warning(rungs: pd.DataFrame) -> str:
    """Warn that the mean log likelihood may be infinite."""
    worst = int(np.argmax(rungs["pareto_k"]))
    return (
        f"the log likelihood has such a heavy tail (Pareto k {rungs['pareto_k'].iloc[worst]:.1f} at rung {worst}) that "
        "its mean, which the integral needs, may be infinite. Use a prior with lighter tails, "
        'reference="fitted", or leave rule to the library, which then may answer by the bridge form, which needs no '
        "mean."
    )
