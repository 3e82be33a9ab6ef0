"""How far to trust an answer: the parts of its error, what the error leaves out, and what the diagnostics show."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from thermint.diagnostics import MIN_ACCEPTANCE
from thermint.inference.summary import ROUNDING
from thermint.model.result import Evidence
from thermint.report.formatting import number
from thermint.report.methods import chosen, kind


class Part(NamedTuple):
    """One part of a standard error."""

    name: str
    error: float
    note: str


def budget(result: Evidence) -> list[Part]:
    """Split the standard error into parts, whose squares add up to its own."""
    annealed = kind(result) == "anneal"
    chance = "spread of the particles' weights" if annealed else "with correlation between draws and between rungs"
    rule = "of the rule along the ladder" if chosen(result) == "cti" else "none: no rule is used"
    rounding = 0.0 if annealed else ROUNDING * max(abs(result.log_evidence), 1.0)
    parts = [
        Part("Monte Carlo", result.mc_error, chance),
        Part("quadrature", result.quadrature_error, rule),
        Part("rounding", rounding, "not counted" if annealed else "the most that floating-point arithmetic may add"),
    ]
    rest = result.standard_error**2 - sum(part.error**2 for part in parts)
    if np.isfinite(rest) and rest > 1e-6 * result.standard_error**2:
        parts.append(Part("disagreement", float(np.sqrt(rest)), "between the two paths; see the warnings"))
    return parts


def not_included(result: Evidence, *, compared: bool) -> list[str]:
    """List what the standard error does not cover."""
    left_out = [
        "Modes of the posterior that no chain has found: the evidence lacks them, and its error does not show it.",
        "Approximations inside the likelihood, such as differential equations that are solved to a tolerance.",
        "The choice of the prior, on which the evidence depends: a prior ten times as wide may lower it by log 10 for "
        "every parameter.",
    ]
    if kind(result) == "anneal":
        left_out.append(
            "The bias of a logarithm: the estimate of the evidence is unbiased, so that its log is too low on average, "
            f"by about {number(result.standard_error**2 / 2, '.1g')} here."
        )
    if compared:
        left_out.append("Differences between the data that the models were given: Bayes factors assume the same data.")
    return left_out


# Column of `Evidence.rungs`, which of its values, and the sentence about it.
EXTREMES = (
    (
        "r_hat",
        "max",
        "R-hat of the log likelihood, which should be close to 1, is at most {value:.3f} (rung {rung}); above 1.05 "
        "there would be a warning.",
    ),
    ("ess", "min", "The effective number of independent {sample} is at least {value:,.0f} (rung {rung})."),
    (
        "acceptance",
        "min",
        "Moves within rungs were accepted in at least {value:.0%} of the cases (rung {rung}); below {few:.0%} there "
        "would be a warning.",
    ),
    (
        "swap_rate",
        "min",
        "Neighbouring rungs swapped states in at least {value:.0%} of the attempts (rung {rung} with the next); below "
        "{few:.0%} there would be a warning.",
    ),
    (
        "pareto_k",
        "max",
        "The heaviest tail of the log likelihood has a Pareto k of {value:.2f} (rung {rung}); above 0.5 its variance "
        "is infinite.",
    ),
)


def checks(result: Evidence) -> list[str]:
    """Describe what the diagnostics show."""
    rungs, seen = result.rungs, result.diagnostics
    found = []
    for column, extreme, sentence in EXTREMES:
        values = rungs[column].to_numpy(dtype=float, copy=True) if column in rungs else np.empty(0)
        if column == "acceptance":
            values[:1] = np.nan  # the first rung draws independently
        if np.isfinite(values).any():
            rung = np.nanargmax(values) if extreme == "max" else np.nanargmin(values)
            sample = "weights" if kind(result) == "anneal" else "draws"
            found.append(sentence.format(value=values[rung], rung=rung, sample=sample, few=MIN_ACCEPTANCE))
    if np.isfinite(seen.get("round_trips", np.nan)):
        found.append(
            f"States travelled from one end of the ladder to the other and back {seen['round_trips']:,.0f} times. The "
            f"communication barrier is {seen['barrier']:.2g}; a good ladder has about twice as many rungs."
        )
    if "ratio" in rungs and rungs["degree"].any():
        low, high = rungs["ratio"].min(), rungs["ratio"].max()
        found.append(f"Control variates leave between {low:.1g} and {high:.1g} of the variance of g, R(t).")
    others = _others(result)
    if len(others):
        found.append(
            f"{len(others)} other methods that use the same draws differ from the answer by at most "
            f"{others.abs().max():.1f} of the combined standard errors."
        )
    if seen.get("supported", 1.0) < 1:
        found.append(
            f"The likelihood is zero at {1 - seen['supported']:.2%} of the draws from where the path starts; the "
            "evidence takes this into account."
        )
    for name, where in (("outside", "fell where prior or likelihood is zero"), ("invalid", "gave NaN or +inf")):
        if seen.get(name, 0.0) > 0:
            found.append(f"{seen[name]:.2%} of the proposals {where}, and were rejected.")
    return found


def _others(result: Evidence) -> pd.Series:
    """Return how many standard errors the other methods are away from the answer."""
    if not {"log_evidence", "standard_error"} <= set(result.estimates):
        return pd.Series(dtype=float)
    others = result.estimates.drop(index=chosen(result), errors="ignore")
    error = np.hypot(others["standard_error"], result.standard_error)
    apart: pd.Series = (others["log_evidence"] - result.log_evidence) / error
    return apart[np.isfinite(apart)]
