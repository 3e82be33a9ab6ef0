"""Where prior or likelihood is zero, or the model cannot be used."""

from __future__ import annotations

from thermint.diagnostics.weights import MIN_WEIGHTS


def invalid_warnings(share: float) -> list[str]:
    """Warn where the model could not be used at a share of the proposals."""
    if not share:
        return []
    return [
        f"the model, or its gradient, was NaN or +inf at {share:.2%} of the proposals, which were rejected as if "
        "the likelihood were zero there. Return -inf where it is, and guard divisions, logarithms and overflow "
        "elsewhere."
    ]


def supported_warnings(successes: float) -> list[str]:
    """Warn of a prior that hardly ever gives a likelihood.

    Args:
        successes: number of draws from the prior with a likelihood above zero.

    Raises:
        ValueError: there is none.
    """
    if successes < 1:
        raise ValueError(
            "no draw from the prior has a likelihood above zero, so the prior mass that has one cannot be estimated. "
            "Increase draws, or use a narrower prior."
        )
    if successes >= MIN_WEIGHTS:
        return []
    return [
        f"only {successes:.0f} draws from the prior have a likelihood above zero: the share of prior mass that has "
        "one, which is part of the evidence, is poorly known. Increase draws, or use a narrower prior."
    ]
