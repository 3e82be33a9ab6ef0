"""The one-call front: from a model, or from draws, to a log evidence with an error bar."""

from __future__ import annotations

import pathlib
import time
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from thermint.control.plan import FOLDS, chunk_length, make_plan
from thermint.diagnostics import DISAGREEMENT, agree
from thermint.estimators import table
from thermint.estimators.path_summary import summarise_draws
from thermint.inference.checkpoint import Checkpoint, open_journal
from thermint.inference.paths import OutOfBudgetError, Paths, rule_of, warned
from thermint.inference.summary import summarise
from thermint.interop.callback import reraise_user_error
from thermint.kernels import Kernel
from thermint.model.draws import Draws, concatenate
from thermint.model.options import require_kernel, require_positive, require_whole
from thermint.model.result import Evidence, plus_minus
from thermint.model.settings import Settings
from thermint.path import ladders
from thermint.path.ladders import Ladder, as_ladder
from thermint.path.path import Path
from thermint.runtime import keys
from thermint.runtime.devices import device_layout, peers
from thermint.runtime.progress import Progress
from thermint.runtime.session import Session
from thermint.runtime.setup import require_float64
from thermint.sampling.options import SamplerOptions
from thermint.sampling.population import Swap
from thermint.sampling.sampler import checked_model, make_sampler
from thermint.sampling.swaps import even_odd
from thermint.search.scout import Scout

DOUBT = 0.05  # as DISAGREEMENT, where the answer has warnings of its own
SHIFTED = " Or log_prior is not normalised, which shifts the former only: check its constant."


@reraise_user_error()
def sample(
    model: Any,
    ladder: int | npt.ArrayLike | None = None,
    *,
    draws: int = 1000,
    populations: int = 4,
    kernel: Kernel | None = None,
    swap: Swap = even_odd,
    seed: int = 0,
) -> Draws:
    """Sample every power posterior of a ladder by population MCMC, and keep all draws.

    Args:
        model: a `Model`, or a PyMC or Bambi model as it is.
        ladder: inverse temperatures from 0 to 1, or a number of rungs; by default the paper's 51.
        draws: per rung and population, after a warm-up that is discarded.
        populations: independent replicas of the whole ladder.
        kernel: move within a rung, from `thermint.kernels`; by default mala, or hmc for many parameters.
        swap: move between rungs, from `thermint.swaps`.
        seed: the same seed gives the same draws.

    Example:
        >>> import thermint
        >>> draws = thermint.sample(thermint.paper.linear.model(), ladder=5, draws=50, populations=2)
        >>> draws.position.shape
        (2, 50, 5, 3)
    """
    model = checked_model(model)
    require_kernel(kernel)
    require_whole("seed", seed, at_least=0)
    ladder = as_ladder(ladder)
    require_whole("draws", draws, at_least=1)
    require_whole("populations", populations, at_least=1)
    length = chunk_length(draws, populations=populations, rungs=len(ladder), dimension=model.dimension)
    sampler = make_sampler(Path(model), ladder, SamplerOptions(populations, kernel, swap, length), keys.new(seed))
    made = concatenate([sampler.chunk() for _ in range(-(-draws // length))]).block(0, draws)
    return made if model.differentiable else made._replace(grad_log_likelihood=np.full(made.position.shape, np.nan))


def estimate(
    draws: Draws,
    *,
    method: str = "cti",
    degree: int | str = "auto",
    rule: str | None = None,
    crossfit: bool = True,
) -> Evidence:
    """Estimate the log evidence from draws, made by `sample` or by any other sampler.

    Args:
        draws: from every power posterior of a ladder.
        method: "cti", the controlled thermodynamic integral; "bridge", stepping stones in bridge form with the same
            control variates, which has no quadrature error; "stepping-stone", "mbar" or "ais" (annealed importance
            sampling in equilibrium), without control variates; "cais", the last with control variates for all rungs
            jointly, which gain little if anything.
        degree: of the polynomial trial functions, 0 for none, or "auto", which is 1 for "cais".
        rule: quadrature along the ladder: "trapezoid", "second-order", or "lobatto". By default that of the ladder: the
            last for `ladders.lobatto`, else the second.
        crossfit: fit the coefficients to other draws than they are applied to. False is the paper's plug-in, which
            biases the answer slightly towards what the draws show.

    Example:
        >>> import thermint
        >>> draws = thermint.sample(thermint.paper.linear.model(), draws=100, populations=2)
        >>> result = thermint.estimate(draws, degree=2, rule="trapezoid")
        >>> result.mc_error < 1e-9  # degree 2 is exact for a normal posterior
        True
    """
    begin = time.perf_counter()
    require_float64()
    if method not in table.methods():
        raise ValueError(f"method = {method!r}: it must be one of {', '.join(map(repr, table.methods()))}.")
    if isinstance(draws, Draws) and np.all(np.isnan(draws.grad_log_likelihood)):
        degree = _without_gradients(degree)
        draws = draws._replace(grad_log_likelihood=np.zeros(draws.grad_log_likelihood.shape))
    draws = check_draws(draws)
    ladder = np.asarray(draws.ladder)
    populations, number, rungs, dimension = draws.position.shape
    plan = make_plan(
        draws=number,
        populations=populations,
        rungs=rungs,
        dimension=dimension,
        degree=degree,
        rule=rule_of(rule, ladder),
        crossfit=crossfit,
    )
    made = summarise_draws(draws, plan)
    result = summarise(made, method=method, evaluations=0, begin=begin, settings=Settings(), draws=draws)
    return replace(result, posterior=made.posterior)


def check_draws(draws: Draws) -> Draws:
    """Return the draws as float64 arrays, or say which field is wrong.

    Raises:
        ValueError: shapes that do not fit each other, a bad ladder, or values that are not finite.
    """
    if not isinstance(draws, Draws):
        raise TypeError(f"draws must be a thermint.Draws, not {type(draws).__name__}.")
    ladder = as_ladder(draws.ladder)
    draws = jax.tree.map(lambda a: np.asarray(a, dtype=np.float64), draws)
    if draws.position.ndim != 4:
        raise ValueError(f"position must have axes [population, draw, rung, d]; it has shape {draws.position.shape}.")
    for name, array in draws._series().items():
        expected = draws.position.shape[: 4 if "grad" in name or name == "position" else 3]
        if array.shape != expected:
            raise ValueError(
                f"{name} has shape {array.shape}; with position {draws.position.shape} it must be {expected}."
            )
        if name != "acceptance" and not np.all(np.isfinite(array)):
            population, draw, rung = np.argwhere(~np.isfinite(array))[0][:3]
            raise ValueError(
                f"{name} is not finite at population {population}, draw {draw}, rung {rung}. Draws must lie where the "
                "posterior density is positive; leave out others and say so in `outside`."
            )
    if draws.position.shape[2] != len(ladder):
        raise ValueError(f"ladder has {len(ladder)} rungs but the draws have {draws.position.shape[2]}.")
    return draws._replace(ladder=ladder)


@reraise_user_error()
def evidence(
    model: Any,
    *,
    reference: str = "auto",
    ladder: int | npt.ArrayLike | None = None,
    kernel: Kernel | None = None,
    swap: Swap = even_odd,
    degree: int | str = "auto",
    rule: str | None = None,
    crossfit: bool = True,
    draws: int = 1000,
    populations: int = 4,
    target_error: float | None = None,
    max_evaluations: int | None = None,
    max_seconds: float | None = None,
    seed: int = 0,
    progress: bool | None = None,
    checkpoint: str | pathlib.Path | Checkpoint | None = None,
    keep_draws: bool = False,
) -> Evidence:
    """Compute the log evidence of a model, with an error bar.

    Ctrl-C ends it early: with the answer so far and a warning, if there is one.

    Args:
        model: a `Model`, or a PyMC or Bambi model as it is.
        reference: where the path starts. "fitted": at a mixture fitted to draws of the posterior, which a short run
            from the prior finds. "prior": at the prior, as in the paper. "auto": as "fitted", checked against the prior
            path; if that seems to have found more, it is run in full too, and if it has, a warning says which of the
            two this is.
        ladder: inverse temperatures from 0 to 1, or a number of rungs; by default as many as the path needs.
        kernel: move within a rung, from `thermint.kernels`; by default one that suits the path.
        swap: move between rungs, from `thermint.swaps`.
        degree: of the polynomial trial functions, 0 for none. "auto" takes, at every rung, the degree up to 4 that
            predicts held-out draws best.
        rule: quadrature along the ladder: "trapezoid", "second-order", or "lobatto". By default that of the ladder; and
            where the bridge form of stepping stones, which has none, has a clearly smaller error, its answer is taken.
        crossfit: fit the coefficients to other draws than they are applied to. False is the paper's plug-in.
        draws: per rung and population, after warm-up; rounded up to fill the last batch.
        populations: independent replicas of the whole ladder; the paper has one.
        target_error: standard error to reach, by rounds of doubling length.
        max_evaluations: of the likelihood. No round begins that would take more; the first is shortened to fit.
        max_seconds: no further round begins that would take longer, as judged by the last one.
        seed: the same seed gives the same answer.
        progress: show a progress bar; by default in terminals and notebooks, and elsewhere a line for every round.
        checkpoint: a file to save the run in, after every round and twice a minute. If it is there, the run goes on
            from it, and ends with the same bits as if it had never stopped. Model and options must be the same, but
            ``target_error``, ``max_evaluations`` and ``max_seconds``, which may be changed to go on for longer.
        keep_draws: keep all draws of the last round, from all rungs of the path, in ``result.draws``.

    Raises:
        ValueError: an option that cannot work, or a checkpoint that is damaged or of another run; the message names
            the difference.

    Example:
        >>> import thermint
        >>> result = thermint.evidence(thermint.paper.radiata.model(1), draws=200)
        >>> low, high = result.interval(0.999)
        >>> low < thermint.paper.radiata.log_evidence(1) < high
        True
    """
    if reference not in ("auto", "prior", "fitted"):
        raise ValueError(f'reference = {reference!r}: it must be "auto", "prior" or "fitted".')
    model = checked_model(model)
    require_kernel(kernel)
    require_whole("seed", seed, at_least=0)
    require_whole("draws", draws, at_least=2 * FOLDS)
    require_whole("populations", populations, at_least=1)
    require_positive("target_error", target_error)
    require_positive("max_evaluations", max_evaluations)
    require_positive("max_seconds", max_seconds)
    device_layout(populations)  # refuses those that several processes cannot share
    given: Ladder | None = None
    if ladder is not None:
        given = as_ladder(ladder)
        if np.ndim(ladder) == 0 and reference != "prior":
            given = ladders.lobatto(len(given))
    elif reference == "prior" and rule == "lobatto":
        raise ValueError('rule = "lobatto" with reference = "prior" needs ladder = thermint.ladders.lobatto(...).')
    if not model.differentiable:
        degree = _without_gradients(degree)
    options: dict[str, Any] = {
        "ladder": given,
        "kernel": kernel,
        "swap": swap,
        "degree": degree,
        "rule": rule,
        "crossfit": crossfit,
        "draws": draws,
        "populations": populations,
        "keep_draws": keep_draws,
        "seed": seed,
    }
    budget: dict[str, Any] = {
        "target_error": target_error,
        "max_evaluations": max_evaluations,
        "max_seconds": max_seconds,
    }
    journal = open_journal(checkpoint, model, {"reference": reference, **options}, budget)
    session = Session(Progress(progress), journal)
    paths = Paths(model=model, session=session, **options, **budget)
    paths.plan(given, draws)  # options that cannot work are refused now, not after the search for the posterior
    with session, peers(journal.path):
        result = _answer(paths, reference)
    return warned(result, journal.problem) if journal.problem else result


def _answer(paths: Paths, reference: str) -> Evidence:
    """Take the path that was asked for, or the fitted one and, where there is doubt, the other too."""
    if reference == "prior":
        return paths.prior_path(None)
    scouted = paths.scout()
    result = paths.fitted_path(scouted)
    # A path that warns of itself is doubted sooner, where the other has found more and there is a closer look to take.
    doubted = reference == "auto" and result.warnings and scouted.log_evidence > result.log_evidence
    if paths.session.stopping or agree(result, scouted, DOUBT if doubted else DISAGREEMENT):
        return result
    unless_shifted = "" if paths.model.normalised else SHIFTED
    if scouted.log_evidence < result.log_evidence:
        # What a path misses is missing from its evidence: here, the short run has.
        advice = "The latter, a short run, has not converged: it cannot confirm that the former has missed nothing."
        return warned(result, _disagreement(result, scouted, advice + unless_shifted))
    if reference == "fitted":
        said = _disagreement(result, scouted, 'This is the former; reference="auto" would look closer.')
        return warned(result, said)
    try:
        # Ladder and rule were meant for the other path.
        prior = replace(paths, ladder=None, rule=None).prior_path(scouted, spent=result.evaluations)
    except OutOfBudgetError:
        if agree(result, scouted):  # it was merely doubted
            return result
        said = _disagreement(result, scouted, "This is the former; max_evaluations leaves no room to look closer.")
        return warned(result, said)
    spent: dict[str, Any] = {"evaluations": prior.evaluations, "seconds": prior.seconds}
    if agree(result, prior):
        return replace(result, **spent)
    if result.log_evidence > prior.log_evidence:
        return _covering(replace(result, **spent), result, prior)
    if prior.warnings:
        best = _covering(prior, result, prior)
    else:
        advice = "This is the latter, which has found more and shows no sign of trouble."
        best = warned(prior, _disagreement(result, prior, advice + unless_shifted))
    return replace(best, warnings=(*best.warnings, *(f"from the fitted path: {said}" for said in result.warnings)))


def _covering(best: Evidence, result: Evidence, prior: Evidence) -> Evidence:
    """Widen the error of one of two answers, the larger, until it covers both."""
    apart = abs(result.log_evidence - prior.log_evidence)
    advice = "This is the larger, and its error covers both. Increase draws until they agree."
    wide = replace(best, standard_error=max(best.standard_error, apart))
    return warned(wide, _disagreement(result, prior, advice))


def _without_gradients(degree: int | str) -> int:
    """Return the only degree that there is for a model without gradients, or refuse others."""
    if degree not in ("auto", 0):
        raise ValueError(
            f"degree = {degree!r}: control variates need the gradient of the log likelihood, which this model does not "
            "have. Use degree=0, or give thermint.from_numpy a gradient or finite_differences=True."
        )
    return 0


def _disagreement(result: Evidence, other: Evidence | Scout, advice: str) -> str:
    """Say that the two paths disagree."""
    return (
        f"the two paths disagree: {plus_minus(result.log_evidence, result.standard_error)} from a reference fitted to "
        f"the posterior, {plus_minus(other.log_evidence, other.standard_error)} from the prior. What a path misses is "
        f"missing from its evidence. {advice}"
    )
