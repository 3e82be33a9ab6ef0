"""Whether answers that should be the same are: estimators, rounds and paths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from thermint.estimators.base import Estimate
from thermint.estimators.errors import batch_error, critical_value
from thermint.estimators.table import ESTIMATORS

DISAGREEMENT = 1e-4  # chance that two estimates which agree are said not to
# Nats between stepping stones up and down the ladder. Their tails are heavier than those of other answers, which a
# small gap says nothing of, even if chance does not explain it; a wide one says that rungs hardly overlap.
WIDE_GAP = 0.3


class Answer(Protocol):
    """A log evidence with its error."""

    @property
    def log_evidence(self) -> float:
        """In nats."""

    @property
    def standard_error(self) -> float:
        """In nats."""

    @property
    def degrees_of_freedom(self) -> float:
        """Of the Monte Carlo error."""


def agree(one: Answer, other: Answer, level: float = DISAGREEMENT) -> bool:
    """Whether chance explains the difference of two independent answers.

    Args:
        one: an answer.
        other: another.
        level: chance with which answers that do agree are said not to.
    """
    dof = min(one.degrees_of_freedom, other.degrees_of_freedom)
    allowed = critical_value(level, dof) * np.hypot(one.standard_error, other.standard_error)
    return bool(abs(one.log_evidence - other.log_evidence) <= allowed)


def round_warnings(previous: Answer, last: Answer) -> list[str]:
    """Warn where two rounds differ by more than their errors explain."""
    apart = abs(previous.log_evidence - last.log_evidence)
    error = np.hypot(previous.standard_error, last.standard_error)
    if apart <= 5 * error:
        return []
    return [
        f"the last two rounds differ by {apart:.2g}, {apart / error:.0f} standard errors: the error is too small. "
        "Parts of the posterior are visited rarely; increase draws or populations."
    ]


def estimator_warnings(estimates: Mapping[str, Estimate], answer: str, quadrature: float) -> list[str]:
    """Warn where estimates from the same draws differ by more than chance and quadrature explain.

    Args:
        estimates: by name of the estimator.
        answer: the one that is the answer.
        quadrature: error of the rule along the ladder, which the thermodynamic integral has.
    """
    found = []
    one = estimates[answer]
    for name in ESTIMATORS[answer].compared_with:
        if name not in estimates:
            continue
        other = estimates[name]
        difference = one.value - other.value
        apart = batch_error(one.series - other.series)
        rule = quadrature if "cti" in (answer, name) else 0.0
        allowed = critical_value(DISAGREEMENT, apart.degrees_of_freedom) * np.hypot(apart.error, rule)
        if abs(difference) > allowed + 1e-9 * max(abs(one.value), 1.0):
            found.append(
                f"two estimates from the same draws, {ESTIMATORS[answer].label} and {ESTIMATORS[name].label}, differ "
                f"by {abs(difference):.2g}, more than chance and quadrature explain ({allowed:.2g}). Some rungs have "
                "not converged, or their control variates do not suit them. Increase draws, or add rungs."
            )
    return found + _gap_warnings(estimates["forward"], estimates["backward"], 0.0 if answer == "forward" else WIDE_GAP)


def _gap_warnings(forward: Estimate, backward: Estimate, allowed: float) -> list[str]:
    """Warn where stepping stones up and down the ladder do not meet."""
    gap = abs(forward.value - backward.value)
    error = batch_error(forward.series - backward.series).error
    if not gap > max(4 * error, allowed):
        return []
    return [
        f"stepping stones forward and backward differ by {gap:.2g}, {gap / error:.2g} standard errors: "
        "neighbouring rungs have too little in common. Add rungs, or leave the ladder to the library."
    ]
