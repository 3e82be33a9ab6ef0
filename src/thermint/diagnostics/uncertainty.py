"""Whether the error itself can be trusted."""

from __future__ import annotations

from thermint.estimators.errors import MIN_BATCHES, BatchError


def error_warnings(mc: BatchError, value: float, quadrature: float, batch: float) -> list[str]:
    """Warn of an error that is itself in doubt.

    Args:
        mc: Monte Carlo error of the answer.
        value: the answer.
        quadrature: its quadrature error.
        batch: number of draws in a batch.
    """
    found = []
    if mc.disagreement:
        found.append(
            "populations disagree by more than their own errors explain, so some have not found all of the posterior; "
            "the error is taken from their spread. Increase draws, or add rungs where swap rates are low."
        )
    if quadrature > max(3 * mc.error, 0.1):
        found.append(
            f"the ladder is too coarse: the quadrature error, {quadrature:.2g}, is most of the error. "
            "Use more rungs, such as ladder=101, or more of them near t = 0, such as "
            "ladder=thermint.ladders.power(51, 8)."
        )
    if mc.error < 1e-9 * abs(value):
        return found
    if mc.slow:
        found.append(
            f"slow: chains remember where they were for longer than {batch:.0f} draws, the length of a batch. The "
            "error comes from several batches joined together, and may still be too small. Increase draws."
        )
    if mc.degrees_of_freedom < MIN_BATCHES - 1 and not mc.disagreement:
        found.append(
            f"a few batches of {batch:.0f} draws make up most of the Monte Carlo variance, so that the error itself is "
            "uncertain. The log likelihood has a heavy tail, typically near t = 0 under a prior that allows almost "
            "impossible parameters, such as scales close to zero. Use a prior that keeps away from them, or many more "
            "draws."
        )
    return found
