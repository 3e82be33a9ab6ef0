"""The sentences that progress shows: the answer so far, how the rungs are doing, and what each round gave."""

from __future__ import annotations

from thermint.diagnostics import health
from thermint.inference.collect import RunAccumulator
from thermint.inference.summary import interim_estimate
from thermint.model.result import Evidence, plus_minus


def draws_so_far(kept: RunAccumulator, spent: int, target: float | None) -> str:
    """Describe the draws of a round: interim answer, health of the rungs, evaluations.

    Args:
        kept: of this round.
        spent: evaluations before this round's sampler.
        target: standard error to reach, if any.
    """
    run = kept.summary()
    answer = interim_estimate(run)
    parts = [
        f"{answer}{_aim(target)}" if answer else "",
        health(run.g, run.ladder, [batch.acceptance for batch in run.moves]),
        f"{spent + kept.place.evaluations:,} evaluations",
    ]
    return ", ".join(part for part in parts if part)


def round_done(number: int, result: Evidence, target: float | None) -> str:
    """Describe a round that is done."""
    answer = plus_minus(result.log_evidence, result.standard_error)
    return (
        f"round {number}: log evidence {answer}{_aim(target)}, {result.evaluations:,} evaluations, "
        f"{result.seconds:.0f} s"
    )


def _aim(target: float | None) -> str:
    return f" (target ± {target:g})" if target else ""
