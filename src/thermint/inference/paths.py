"""The two paths to an answer, from the prior and from a fitted reference: how each round of them is set up."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import version

import numpy as np

from thermint.control.plan import FOLDS
from thermint.inference.collect import RunAccumulator
from thermint.inference.options import Call
from thermint.inference.rounds import RoundResult, RoundSetup, run_rounds
from thermint.kernels import Kernel, mala
from thermint.model.draws import Draws
from thermint.model.options import name_of
from thermint.model.result import Evidence
from thermint.model.settings import Settings
from thermint.path import ladders
from thermint.path.ladders import Ladder
from thermint.path.path import Path
from thermint.runtime import keys
from thermint.sampling.sampler import default_kernel, make_sampler
from thermint.search.refinement import MOST_PILOTS, RUNGS, FittedPath, refine_reference, refit
from thermint.search.scout import Scout, scout

TOLERANCE = 1e-4  # quadrature error to aim at on the fitted path, in nats, where no target error is given


def run_scout(call: Call) -> Scout:
    """Run the prior path briefly."""
    options, session = call.options, call.session
    session.bar.phase("looking for the posterior")
    return session.journal.stage("scout", lambda: scout(call.model, options.sampling, options.key(0), session))


def prior_path(call: Call, scouted: Scout | None = None, spent: int = 0) -> Evidence:
    """Run the path from the prior, on the ladder given or one that the scout's draws ask for.

    Args:
        call: the model and its options.
        scouted: what the scout has found, if it has been run.
        spent: evaluations so far.
    """
    options, session = call.options, call.session
    ladder = options.ladder
    if ladder is None:
        if scouted is None:
            scouted = run_scout(call)
            spent = scouted.evaluations
        ladder = session.journal.stage("prior ladder", lambda: _adapted(scouted.draws, call.budget.target_error))
    path = Path(call.model)
    kernel = options.kernel or default_kernel(path)
    first = call.affordable(spent, len(ladder), kernel)
    length = session.journal.stage("prior length", lambda: call.chunk_length(first, len(ladder)))

    def set_up(previous: RoundResult | None, kept: RunAccumulator | None) -> RoundSetup:
        if not previous:
            session.bar.phase("warm-up")
        cheap = call.cheap_to_run(2 * previous.draws if previous else options.draws, len(ladder), kernel)
        sampler = make_sampler(
            path,
            ladder,
            replace(options.sampling, length=length, cheap_to_run=cheap),
            options.key(1),
            session=session,
            place=kept.place if kept else previous.state if previous else None,
        )
        plan = call.plan(ladder, 2 * previous.draws if previous else first, length=length)
        return RoundSetup(
            sampler, path.reference.coordinates(sampler.frame), plan, spent, _settings(call, path, kernel)
        )

    return run_rounds(call, "prior", set_up)


def fitted_path(call: Call, scouted: Scout) -> Evidence:
    """Run the path from a reference fitted to the posterior, which is fitted again between rounds."""
    options, session, journal = call.options, call.session, call.session.journal
    length = journal.stage("fitted length", lambda: _fitted_length(call, scouted.evaluations))

    def set_up(previous: RoundResult | None, kept: RunAccumulator | None) -> RoundSetup:
        number = previous.number + 1 if previous else 1
        journal.forget(f"fitted reference {number - 1}")
        reference, ladder, evaluations = journal.stage(
            f"fitted reference {number}", lambda: _fit(call, scouted, previous, length)
        )
        path = Path(call.model, reference)
        kernel = options.kernel or default_kernel(path)
        cheap = call.cheap_to_run(2 * previous.draws if previous else options.draws, len(ladder), kernel)
        sampler = make_sampler(
            path,
            ladder,
            replace(options.sampling, length=length, cheap_to_run=cheap),
            # The first round's key follows those of the pilots; later rounds have keys of their own.
            options.key(number) if previous else keys.fold_in(options.key(1), MOST_PILOTS),
            session=session,
            place=kept.place if kept else None,
        )
        spent = (previous.result if previous else scouted).evaluations + evaluations
        used = spent + sampler.evaluations
        room = call.budget.room(used, call.cost(len(ladder), kernel))
        if previous:  # the new ladder may have more rungs than the one by which the cost of this round was judged
            draws = int(min(2 * previous.draws, max(room, 2 * FOLDS)))
        else:
            draws = call.affordable(used, len(ladder), kernel)
        plan = call.plan(ladder, draws, reference.components, length)
        if plan.draws > room and plan.chunks > 1:
            plan = replace(plan, chunks=plan.chunks - 1)  # rounded up: down, where the budget has no room for that
        return RoundSetup(sampler, reference.coordinates(sampler.frame), plan, spent, _settings(call, path, kernel))

    return run_rounds(call, "fitted", set_up)


def _fit(call: Call, scouted: Scout, previous: RoundResult | None, length: int) -> FittedPath:
    """Fit the reference, to the draws of the previous round if there is one."""
    options, session = call.options, call.session
    target = call.budget.target_error
    tolerance = TOLERANCE if target is None else target / 10
    if previous:
        session.bar.phase("fitting the reference again")
        ladder = previous.state.ladder
        return refit(call.model, previous.g, ladder, previous.thinned, ladder=options.ladder, tolerance=tolerance)
    session.bar.phase("fitting a reference")
    cheap = call.cheap_to_run(
        options.draws, RUNGS[0], options.kernel or mala
    )  # as for the round: else it compiles again
    return refine_reference(
        call.model,
        scouted.chains,
        replace(options.sampling, length=length, cheap_to_run=cheap),
        options.key(1),
        ladder=options.ladder,
        tolerance=tolerance,
        session=session,
    )


def _adapted(draws: Draws, target: float | None) -> Ladder:
    """Choose the ladder of the prior path by draws of the scout."""
    # On the prior path a digit takes nearly twice as many rungs: ten times what the fitted path aims at.
    tolerance = 10 * TOLERANCE if target is None else target / 4
    variance = np.asarray(draws.log_likelihood).var(axis=(0, 1))
    return ladders.adapted({"t": draws.ladder, "variance": variance}, tolerance)


def _fitted_length(call: Call, spent: int) -> int:
    """Choose the length of a chunk on the fitted path."""
    length = call.chunk_length(call.affordable(spent, RUNGS[0], call.options.kernel), RUNGS[-1])
    return length if call.budget.max_evaluations is None else -(-length // 4)  # smaller pieces fit a budget better


def _settings(call: Call, path: Path, kernel: Kernel) -> Settings:
    return Settings.of(
        path.reference.describe(),
        kernel=name_of(kernel),
        swap=name_of(call.options.swap),
        gradients=call.model.differentiable,
        seed=call.options.seed,
        target_error=call.budget.target_error,
        parameters=list(call.model.parameter_names),
        versions={package: version(package) for package in ("thermint", "jax")},
    )
