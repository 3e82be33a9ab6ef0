"""Whether importance weights are even enough for their mean to be trusted."""

from __future__ import annotations

import numpy as np

MIN_WEIGHTS = 20  # equal ones: the error of the log of their mean is then below a quarter of a nat
# Measured on log-normal weights that are worth MIN_WEIGHTS equal ones: see `tail_index`.
MAX_TAIL_INDEX = 0.9


def tail_index(log_weight: np.ndarray) -> float:
    """Say how slowly the largest weights fall off (Hill's estimator); Pareto weights of index 1 have no mean.

    That of n log-normal weights which should be worth 20 equal ones is 0.8 for n = 100, and 1.0 for n = 100 000. It is
    far more certain than what they seem to be worth, which depends on whether the largest have been met.
    """
    log_weight = np.sort(log_weight[log_weight > -np.inf])
    largest = int(min(3 * np.sqrt(log_weight.size), log_weight.size / 3))
    return float(np.mean(log_weight[-largest:]) - log_weight[-largest - 1]) if largest else 0.0


def weight_warnings(log_weight: np.ndarray) -> list[str]:
    """Warn where so few weights make up the sum of all that neither the log evidence nor its error can be trusted."""
    share = np.exp(log_weight - log_weight.max())
    share /= share.sum()
    effective, index = 1 / np.sum(share**2), tail_index(log_weight)
    if effective >= MIN_WEIGHTS and index <= MAX_TAIL_INDEX:
        return []
    return [
        f"the {share.size} importance weights are worth {effective:.1f} equal ones, the largest makes up "
        f"{share.max():.1%} of their sum, and their tail has index {index:.2f} (at most {MAX_TAIL_INDEX} is light "
        "enough). A mean of such weights is unbiased, but mostly too small and now and then far too large: the log "
        "evidence is probably too low, by more than its error says. Use four times as many rungs, which make the "
        "weights more even, or many more weights."
    ]
