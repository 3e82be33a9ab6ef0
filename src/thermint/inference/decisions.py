"""Which path is the answer, where the two that there are disagree."""

from __future__ import annotations

from dataclasses import replace

from thermint.diagnostics import DISAGREEMENT, agree
from thermint.inference import paths
from thermint.inference.options import Call, OutOfBudgetError
from thermint.inference.rounds import warned
from thermint.model.result import Evidence, plus_minus
from thermint.search.scout import Scout

# Chance, as DISAGREEMENT, where the answer has warnings of its own: a closer look then costs a run and wins an error.
DOUBT = 0.05
SHIFTED = " Or log_prior is not normalised, which shifts the former only: check its constant."


def decide(call: Call) -> Evidence:
    """Take the path that was asked for, or the fitted one and, where there is doubt, the other too.

    What a path misses is missing from its evidence, so that of two which disagree the larger is the better one.
    """
    reference = call.options.reference
    if reference == "prior":
        return paths.prior_path(call)
    scouted = paths.run_scout(call)
    fitted = paths.fitted_path(call, scouted)
    if call.session.stopping or _confirmed(call, fitted, scouted):
        return fitted
    if scouted.log_evidence < fitted.log_evidence:
        advice = "The latter, a short run, has not converged: it cannot confirm that the former has missed nothing."
        return warned(fitted, _disagreement(fitted, scouted, advice + _unless_shifted(call)))
    if reference == "fitted":
        advice = 'This is the former; reference="auto" would look closer.'
        return warned(fitted, _disagreement(fitted, scouted, advice))
    try:
        # Ladder and rule were meant for the other path.
        closer = replace(call, options=replace(call.options, ladder=None, rule=None))
        prior = paths.prior_path(closer, scouted, spent=fitted.evaluations)
    except OutOfBudgetError:
        if agree(fitted, scouted):  # it was merely doubted
            return fitted
        advice = "This is the former; max_evaluations leaves no room to look closer."
        return warned(fitted, _disagreement(fitted, scouted, advice))
    return _better(call, fitted, prior)


def _confirmed(call: Call, fitted: Evidence, scouted: Scout) -> bool:
    """Whether the scout agrees with the fitted path.

    A path that warns of itself is doubted sooner, where the scout has found more and there is a closer look to take.
    """
    closer_look = call.options.reference == "auto" and scouted.log_evidence > fitted.log_evidence
    return agree(fitted, scouted, DOUBT if closer_look and fitted.warnings else DISAGREEMENT)


def _better(call: Call, fitted: Evidence, prior: Evidence) -> Evidence:
    """Choose between the two paths, both run in full."""
    fitted = replace(fitted, evaluations=prior.evaluations, seconds=prior.seconds)
    if agree(fitted, prior):
        return fitted
    if fitted.log_evidence > prior.log_evidence:
        return _covering(fitted, fitted, prior)
    if prior.warnings:
        best = _covering(prior, fitted, prior)
    else:
        advice = "This is the latter, which has found more and shows no sign of trouble."
        best = warned(prior, _disagreement(fitted, prior, advice + _unless_shifted(call)))
    return replace(best, warnings=(*best.warnings, *(f"from the fitted path: {each}" for each in fitted.warnings)))


def _covering(best: Evidence, fitted: Evidence, prior: Evidence) -> Evidence:
    """Widen the error of one of two answers, the larger, until it covers both."""
    apart = abs(fitted.log_evidence - prior.log_evidence)
    advice = "This is the larger, and its error covers both. Increase draws until they agree."
    wide = replace(best, standard_error=max(best.standard_error, apart))
    return warned(wide, _disagreement(fitted, prior, advice))


def _unless_shifted(call: Call) -> str:
    return "" if call.model.normalised else SHIFTED


def _disagreement(fitted: Evidence, other: Evidence | Scout, advice: str) -> str:
    """Describe the disagreement of two paths."""
    return (
        f"the two paths disagree: {plus_minus(fitted.log_evidence, fitted.standard_error)} from a reference fitted to "
        f"the posterior, {plus_minus(other.log_evidence, other.standard_error)} from the prior. What a path misses is "
        f"missing from its evidence. {advice}"
    )
