"""Rounds of one path, until the answer is precise enough or a budget ends the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import numpy as np

from thermint import diagnostics
from thermint.control.plan import Plan
from thermint.estimators.path_summary import PathSummary
from thermint.inference.collect import RunAccumulator, collect, kept_bytes
from thermint.inference.messages import draws_so_far, round_done
from thermint.inference.options import Call
from thermint.inference.summary import QUADRATURE_FLOOR, summarise
from thermint.model.draws import ScoredDraws
from thermint.model.model import Model
from thermint.model.result import Evidence, Posterior
from thermint.model.settings import Settings
from thermint.path.coordinates import RungMoments
from thermint.runtime.hosts import broadcast_scalar
from thermint.runtime.memory import free, printed
from thermint.runtime.programs import jit
from thermint.runtime.store import storable
from thermint.sampling.sampler import Sampler
from thermint.sampling.scheduler import SamplerState

# Of doubling length: the last has 30 000 times the draws of the first, and a 170th of its error. A target that is still
# out of reach then is one that no number of draws reaches.
MAX_ROUNDS = 16


@storable
class RoundResult(NamedTuple):
    """What a round leaves behind: an answer, and what the next one starts from."""

    number: int
    result: Evidence  # its posterior and draws are the path's own
    g: np.ndarray  # log likelihood, [population, draw, rung]
    thinned: ScoredDraws
    draws: int  # of each rung and population
    spent: int  # evaluations, in this round
    seconds: float  # likewise
    state: SamplerState  # at its end


class RoundSetup(NamedTuple):
    """A round that can start."""

    sampler: Sampler
    frame: RungMoments
    plan: Plan
    spent: int  # evaluations before this sampler's own
    settings: Settings


# ``(previous round, draws of an interrupted round) -> round that can start``
Setup = Callable[[RoundResult | None, RunAccumulator | None], RoundSetup]


def run_rounds(call: Call, path: str, set_up: Setup) -> Evidence:
    """Run rounds until the error is the one asked for or a budget ends the run; the last round is the answer.

    Args:
        call: the model and its options.
        path: its name in the journal.
        set_up: makes a round that can start.
    """
    journal, bar = call.session.journal, call.session.bar
    previous: RoundResult | None = journal.get(f"{path} round")
    while previous is None or (ending := _ending(call, previous)) is None:
        kept: RunAccumulator | None = journal.get(f"{path} draws")
        setup = set_up(previous, kept)
        plan = kept.plan if kept else setup.plan
        _check_memory(call, setup)
        bar.phase("sampling")
        collected = collect(
            setup.sampler,
            setup.frame,
            plan,
            call.session,
            stage=f"{path} draws",
            keep_draws=call.options.keep_draws,
            describe=partial(draws_so_far, spent=setup.spent, target=call.budget.target_error),
        )
        if collected is None or collected.plan.draws < plan.draws:
            return _interrupted(call, previous, collected, setup, plan)
        previous = _finish(call, previous, collected, setup)
        journal.forget(f"{path} draws")
        journal.put(f"{path} round", previous)
        journal.write()
        bar.round(round_done(previous.number, previous.result, call.budget.target_error))
    return _with_own_names(call.model, warned(previous.result, *ending))


def _ending(call: Call, last: RoundResult) -> list[str] | None:
    """Return the warnings with which the run ends, none if it is precise enough; None if there is another round."""
    target, error = call.budget.target_error, last.result.standard_error
    if target is None or error <= target:
        return []
    reason = next(_reasons_to_stop(call, last, target), None)
    if reason is None:
        return None
    return [
        f"target_error = {target:g} was not reached: the error is {error:.2g}, and what ended the run was {reason}."
    ]


def _reasons_to_stop(call: Call, last: RoundResult, target: float) -> Iterator[str]:
    """Name what does not allow another round, which would have twice the draws."""
    budget, options = call.budget, call.options
    elapsed = broadcast_scalar(call.session.journal.seconds)
    if call.session.stopping:
        yield "Ctrl-C"
    if budget.max_evaluations is not None and last.result.evaluations + 2 * last.spent > budget.max_evaluations:
        yield f"max_evaluations = {budget.max_evaluations}"
    if budget.max_seconds is not None and elapsed + 2 * broadcast_scalar(last.seconds) > budget.max_seconds:
        yield f"max_seconds = {budget.max_seconds:g}"
    if last.number >= MAX_ROUNDS:
        yield f"{MAX_ROUNDS} rounds"
    if target < last.result.quadrature_error <= 2 * QUADRATURE_FLOOR:
        yield f"that no quadrature error is known to be below {QUADRATURE_FLOOR:g}"
    if options.ladder is not None and last.result.quadrature_error > target:
        yield "the ladder given, whose quadrature error is larger"
    if options.keep_draws:
        need = kept_bytes(2 * last.draws, options.populations, len(last.state.ladder), call.model.dimension)
        if need > broadcast_scalar(free(), min):
            yield f"keep_draws, for which the next round would need {printed(need)}"


def _finish(call: Call, previous: RoundResult | None, collected: PathSummary, setup: RoundSetup) -> RoundResult:
    """Turn the draws of a round into an answer."""
    number = previous.number + 1 if previous else 1
    result = summarise(
        collected,
        method="auto" if call.options.rule is None else "cti",
        evaluations=setup.spent + setup.sampler.evaluations,
        begin=call.session.begin,
        settings=replace(setup.settings, devices=setup.sampler.devices, rounds=number),
    )
    if previous:
        result = warned(result, *diagnostics.round_warnings(previous.result, result))
    if setup.settings.reference == "fitted" and call.model.differentiable:
        near = collected.thinned.score[:, :, collected.ladder >= 0.5]
        narrowness = diagnostics.narrowness(near, collected.gram.frame)
        result = warned(result, *diagnostics.narrow_warnings(narrowness, call.model.parameter_names))
    result = replace(result, posterior=collected.posterior, draws=collected.draws)
    return RoundResult(
        number,
        result,
        collected.g,
        collected.thinned,
        draws=collected.plan.draws,
        spent=result.evaluations - (previous.result.evaluations if previous else 0),
        seconds=result.seconds - (previous.result.seconds if previous else 0.0),
        state=setup.sampler.place,
    )


def _interrupted(
    call: Call, previous: RoundResult | None, collected: PathSummary | None, setup: RoundSetup, plan: Plan
) -> Evidence:
    """Return the best answer that there is when the user wants one."""
    answers = [previous] if previous else []
    if collected is not None:
        answers.append(_finish(call, previous, collected, setup))
    if not answers:
        call.session.stop_if_asked()
    best = min(answers, key=lambda one: one.result.standard_error)
    warning = f"stopped by Ctrl-C in round {previous.number + 1 if previous else 1}, "
    if best is previous:
        warning += "so that this is the round before."
    else:
        warning += f"after {best.draws} of {plan.draws} draws."
    if call.session.journal.path is not None:
        warning += f" The same call goes on from {call.session.journal.path}."
    return _with_own_names(call.model, warned(best.result, warning))


def _check_memory(call: Call, setup: RoundSetup) -> None:
    """Say how much all draws will take, and refuse to keep more than there is room for."""
    if not call.options.keep_draws:
        return
    populations, rungs = call.options.populations, len(setup.sampler.ladder)
    need, room = kept_bytes(setup.plan.draws, populations, rungs, call.model.dimension), broadcast_scalar(free(), min)
    if need > room:
        raise ValueError(
            f"keep_draws = True would take {printed(need)} for {setup.plan.draws} draws of {populations} "
            f"populations at {rungs} rungs, and {printed(room)} are left. Use fewer draws, or keep_draws=False."
        )
    call.session.bar.say(f"keep_draws takes {printed(need)} for this round")


def _with_own_names(model: Model, result: Evidence) -> Evidence:
    """Give posterior draws the model's own names and values, and the model's prior instead of the path's."""
    path = result.posterior
    assert path is not None
    values, log_prior = jax.tree.map(np.asarray, _named_values(path.values["theta"], model=model))
    log_likelihood = path.log_likelihood + path.log_prior - log_prior
    return replace(result, posterior=Posterior(values, log_likelihood, log_prior, path.acceptance))


@jit(level=0)
def _named_values(position: jax.Array, *, model: Model) -> tuple[dict[str, jax.Array], jax.Array]:
    """Name the values at positions [population, draw, d], and compute the model's log prior there."""

    def at(theta: jax.Array) -> tuple[dict[str, jax.Array], jax.Array]:
        named = dict(zip(model.names, theta, strict=True)) if model.names else {"theta": theta}
        return model.constrain(theta) if model.constrain else named, model.log_prior(theta)

    return jax.vmap(jax.vmap(at))(position)


def warned(result: Evidence, *warnings: str) -> Evidence:
    """Put warnings before the others."""
    return replace(result, warnings=(*warnings, *result.warnings))
