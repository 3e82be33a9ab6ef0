"""The two paths to an answer, from the prior and from a fitted reference, in rounds until it is precise enough."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from typing import NamedTuple

import jax
import numpy as np

from thermint import diagnostics
from thermint.control.plan import FOLDS, Plan, batched, chunk_length, make_plan
from thermint.estimators.path_summary import PathSummary
from thermint.inference.collect import RunAccumulator, collect, kept_bytes
from thermint.inference.messages import draws_so_far, round_done
from thermint.inference.summary import summarise
from thermint.kernels import Kernel, mala
from thermint.kernels.base import traits_of
from thermint.model.closure_constants import cheap_to_run
from thermint.model.draws import Draws, ScoredDraws
from thermint.model.model import Model
from thermint.model.options import name_of
from thermint.model.result import Evidence, Posterior
from thermint.model.settings import Settings
from thermint.path import ladders
from thermint.path.coordinates import RungMoments
from thermint.path.ladders import Ladder
from thermint.path.path import Path
from thermint.path.quadrature import RULES
from thermint.runtime import keys
from thermint.runtime.devices import broadcast_scalar
from thermint.runtime.memory import free, printed
from thermint.runtime.programs import jit
from thermint.runtime.session import Session
from thermint.runtime.store import storable
from thermint.sampling.options import SamplerOptions
from thermint.sampling.population import Swap
from thermint.sampling.sampler import Sampler, default_kernel, make_sampler
from thermint.sampling.scheduler import SamplerState
from thermint.search.refinement import MOST_PILOTS, RUNGS, FittedPath, refine_reference, refit
from thermint.search.scout import Scout, scout

TOLERANCE = 1e-4  # quadrature error to aim at on the fitted path, in nats, where no target error is given
PRIOR_TOLERANCE = 1e-3  # on the prior path
MOST_ROUNDS = 16


class OutOfBudgetError(ValueError):
    """More evaluations are needed than allowed."""


@storable
class RoundResult(NamedTuple):
    """What a round leaves behind: an answer, and what the next one starts from."""

    number: int
    result: Evidence  # its posterior and draws are the path's own
    g: np.ndarray  # log likelihood, [population, draw, rung]
    some: ScoredDraws  # of its draws
    planned: int  # draws of each rung and population
    spent: int  # evaluations, in this round
    seconds: float  # likewise
    place: SamplerState  # of the sampler, at its end


class RoundSetup(NamedTuple):
    """A round that can start."""

    sampler: Sampler
    frame: RungMoments
    plan: Plan
    spent: int  # evaluations before this sampler's own
    settings: Settings


@dataclass(frozen=True)
class Paths:
    """The options of one call of `evidence`, and the two ways to an answer."""

    model: Model
    ladder: Ladder | None
    kernel: Kernel | None
    swap: Swap
    degree: int | str
    rule: str | None
    crossfit: bool
    draws: int
    populations: int
    target_error: float | None
    max_evaluations: int | None
    max_seconds: float | None
    keep_draws: bool
    seed: int
    session: Session

    @property
    def _sampling(self) -> SamplerOptions:
        return SamplerOptions(self.populations, self.kernel, self.swap)

    def scout(self) -> Scout:
        """Run the prior path briefly."""
        self.session.bar.phase("looking for the posterior")
        return self.session.journal.stage(
            "scout",
            lambda: scout(self.model, self._sampling, self._key(0), self.session),
        )

    def prior_path(self, scouted: Scout | None, spent: int = 0) -> Evidence:
        """Run the path from the prior, on the ladder given or one that the scout's draws ask for."""
        ladder = self.ladder
        if ladder is None:
            if scouted is None:
                scouted = self.scout()
                spent = scouted.evaluations
            ladder = self.session.journal.stage("prior ladder", lambda: self._adapted(scouted.draws))
        path = Path(self.model)
        kernel = self.kernel or default_kernel(path)
        settings = self._settings(path, kernel)
        first = self._affordable(spent, len(ladder), kernel)
        length = self.session.journal.stage("prior length", lambda: self._length(first, len(ladder)))

        def begin(done: RoundResult | None, kept: RunAccumulator | None) -> RoundSetup:
            if not done:
                self.session.bar.phase("warm-up")
            sampler = make_sampler(
                path,
                ladder,
                replace(self._sampling, length=length, cheap_to_run=self._cheap_to_run(done, len(ladder), kernel)),
                self._key(1),
                session=self.session,
                place=kept.place if kept else done.place if done else None,
            )
            plan = self.plan(ladder, 2 * done.planned if done else first, length=length)
            return RoundSetup(sampler, path.reference.coordinates(sampler.frame), plan, spent, settings)

        return self._until_precise("prior", begin)

    def _adapted(self, draws: Draws) -> Ladder:
        """Choose the ladder of the prior path by draws of the scout."""
        tolerance = PRIOR_TOLERANCE if self.target_error is None else self.target_error / 4
        variance = np.asarray(draws.log_likelihood).var(axis=(0, 1))
        return ladders.adapted({"t": draws.ladder, "variance": variance}, tolerance)

    def fitted_path(self, scouted: Scout) -> Evidence:
        """Run the path from a reference fitted to the posterior, which is fitted again between rounds."""
        journal = self.session.journal
        length = journal.stage("fitted length", lambda: self._fitted_length(scouted.evaluations))
        tolerance = TOLERANCE if self.target_error is None else self.target_error / 10

        def settled(done: RoundResult | None) -> FittedPath:
            if done:
                self.session.bar.phase("fitting the reference again")
                return refit(self.model, done.g, done.place.ladder, done.some, ladder=self.ladder, tolerance=tolerance)
            self.session.bar.phase("fitting a reference")
            cheap = self._cheap_to_run(done, RUNGS[0], self.kernel or mala)  # as for the round: else it compiles again
            return refine_reference(
                self.model,
                scouted.chains,
                replace(self._sampling, length=length, cheap_to_run=cheap),
                self._key(1),
                ladder=self.ladder,
                tolerance=tolerance,
                session=self.session,
            )

        def begin(done: RoundResult | None, kept: RunAccumulator | None) -> RoundSetup:
            number = done.number + 1 if done else 1
            journal.forget(f"fitted reference {number - 1}")
            reference, ladder, evaluations = journal.stage(f"fitted reference {number}", lambda: settled(done))
            path = Path(self.model, reference)
            kernel = self.kernel or default_kernel(path)
            sampler = make_sampler(
                path,
                ladder,
                replace(self._sampling, length=length, cheap_to_run=self._cheap_to_run(done, len(ladder), kernel)),
                # As many as there are rounds, and before them pilots.
                self._key(number) if done else keys.child(self._key(1), MOST_PILOTS),
                session=self.session,
                place=kept.place if kept else None,
            )
            spent = (done.result if done else scouted).evaluations + evaluations
            cost = spent + sampler.evaluations, len(ladder), kernel
            room = self._room(*cost)
            # The new ladder may have more rungs than the one by which the cost of this round was judged.
            draws = int(min(2 * done.planned, max(room, 2 * FOLDS))) if done else self._affordable(*cost)
            plan = self.plan(ladder, draws, reference.components, length)
            if plan.draws > room and plan.chunks > 1:
                plan = replace(plan, chunks=plan.chunks - 1)  # rounded up: down, where the budget has no room for that
            settings = self._settings(path, kernel)
            return RoundSetup(sampler, reference.coordinates(sampler.frame), plan, spent, settings)

        return self._until_precise("fitted", begin)

    def _until_precise(
        self, path: str, begin: Callable[[RoundResult | None, RunAccumulator | None], RoundSetup]
    ) -> Evidence:
        """Go on until the error is the one asked for or the budget is used up; the last round is the answer."""
        journal = self.session.journal
        done: RoundResult | None = journal.get(f"{path} round")
        while True:
            if done:
                reason = self._reason_to_stop(done)
                if reason is not None:
                    return self._named(warned(done.result, reason) if reason else done.result)
            kept: RunAccumulator | None = journal.get(f"{path} draws")
            begun = begin(done, kept)
            plan = kept.plan if kept else begun.plan
            self._check_memory(begun)
            self.session.bar.phase("sampling")
            made = collect(
                begun.sampler,
                begun.frame,
                plan,
                self.session,
                stage=f"{path} draws",
                keep_draws=self.keep_draws,
                describe=partial(draws_so_far, spent=begun.spent, target=self.target_error),
            )
            if made is None or made.plan.draws < plan.draws:
                return self._interrupted(done, made, begun, plan)
            done = self._done(done, made, begun)
            journal.forget(f"{path} draws")
            journal.put(f"{path} round", done)
            journal.write()
            self.session.bar.round(round_done(done.number, done.result, self.target_error))

    def _done(self, previous: RoundResult | None, made: PathSummary, begun: RoundSetup) -> RoundResult:
        """Turn the draws of a round into an answer."""
        number = previous.number + 1 if previous else 1
        evaluations = begun.spent + begun.sampler.evaluations
        result = summarise(
            made,
            method="auto" if self.rule is None else "cti",
            evaluations=evaluations,
            begin=self.session.begin,
            settings=replace(begun.settings, devices=begun.sampler.devices, rounds=number),
        )
        if previous:
            result = warned(result, *diagnostics.round_warnings(previous.result, result))
        if begun.settings.reference == "fitted" and self.model.differentiable:
            narrowness = diagnostics.narrowness(made.thinned.score[:, :, made.ladder >= 0.5], made.gram.frame)
            narrow = diagnostics.narrow_warnings(narrowness, self.model.parameter_names)
            result = warned(result, *narrow)
        result = replace(result, posterior=made.posterior, draws=made.draws)
        before = previous.result if previous else None
        return RoundResult(
            number,
            result,
            made.g,
            made.thinned,
            planned=made.plan.draws,
            spent=evaluations - (before.evaluations if before else 0),
            seconds=result.seconds - (before.seconds if before else 0.0),
            place=begun.sampler.place,
        )

    def _reason_to_stop(self, done: RoundResult) -> str | None:
        """Say why there is no further round: in words, "" if the answer is as good as it was to be, None to go on."""
        error, number = done.result.standard_error, done.number
        if self.target_error is None or error <= self.target_error:
            return ""
        elapsed = broadcast_scalar(self.session.journal.seconds)
        bytes_needed = kept_bytes(2 * done.planned, self.populations, len(done.place.ladder), self.model.dimension)
        reasons = {
            "Ctrl-C": self.session.stopping,
            f"max_evaluations = {self.max_evaluations}": self.max_evaluations is not None
            and done.result.evaluations + 2 * done.spent > self.max_evaluations,
            f"max_seconds = {self.max_seconds:g}" if self.max_seconds else "": self.max_seconds is not None
            and elapsed + 2 * broadcast_scalar(done.seconds) > self.max_seconds,
            f"{MOST_ROUNDS} rounds": number >= MOST_ROUNDS,
            "the ladder given, whose quadrature error is larger": self.ladder is not None
            and done.result.quadrature_error > self.target_error,
            f"keep_draws, for which the next round would need {printed(bytes_needed)}": self.keep_draws
            and bytes_needed > broadcast_scalar(free(), min),
        }
        held = [reason for reason, holds in reasons.items() if holds]
        if not held:
            return None
        return (
            f"target_error = {self.target_error:g} was not reached: the error is {error:.2g}, and what ended the run "
            f"was {held[0]}."
        )

    def _interrupted(
        self, done: RoundResult | None, made: PathSummary | None, begun: RoundSetup, plan: Plan
    ) -> Evidence:
        """Return the best answer that there is when the user wants one."""
        answers = [done] if done else []
        if made is not None:
            answers.append(self._done(done, made, begun))
        if not answers:
            self.session.stop_if_asked()
        best = min(answers, key=lambda one: one.result.standard_error)
        drawn = made.plan.draws if made else 0
        said = f"stopped by Ctrl-C in round {done.number + 1 if done else 1}, "
        said += f"after {drawn} of {plan.draws} draws." if best is not done else "so that this is the round before."
        if self.session.journal.path is not None:
            said += f" The same call goes on from {self.session.journal.path}."
        return self._named(warned(best.result, said))

    def _check_memory(self, begun: RoundSetup) -> None:
        """Say how much all draws will take, and refuse to keep more than there is room for."""
        if not self.keep_draws:
            return
        rungs, dimension = len(begun.sampler.ladder), self.model.dimension
        need, room = kept_bytes(begun.plan.draws, self.populations, rungs, dimension), broadcast_scalar(free(), min)
        if need > room:
            raise ValueError(
                f"keep_draws = True would take {printed(need)} for {begun.plan.draws} draws of {self.populations} "
                f"populations at {rungs} rungs, and {printed(room)} are left. Use fewer draws, or keep_draws=False."
            )
        self.session.bar.say(f"keep_draws takes {printed(need)} for this round")

    def _named(self, result: Evidence) -> Evidence:
        """Give posterior draws the model's own names and values, and the model's prior instead of the path's."""
        path = result.posterior
        assert path is not None
        values, log_prior = jax.tree.map(np.asarray, _own(path.values["theta"], model=self.model))
        log_likelihood = path.log_likelihood + path.log_prior - log_prior
        return replace(result, posterior=Posterior(values, log_likelihood, log_prior, path.acceptance))

    def plan(self, ladder: Ladder | None, draws: int, components: int = 1, length: int | None = None) -> Plan:
        """Plan a round; without a ladder, for two rungs, which refuses what no number of them could do."""
        return make_plan(
            draws=draws,
            populations=self.populations,
            rungs=2 if ladder is None else len(ladder),
            dimension=self.model.dimension,
            degree=self.degree,
            rule=rule_of(self.rule, ladder),
            crossfit=self.crossfit,
            components=components,
            length=length,
        )

    def _fitted_length(self, spent: int) -> int:
        """Choose the length of a chunk on the fitted path."""
        length = self._length(self._affordable(spent, RUNGS[0], self.kernel), RUNGS[-1])
        return length if self.max_evaluations is None else -(-length // 4)  # smaller pieces fit a budget better

    def _length(self, draws: int, rungs: int) -> int:
        several = self.populations
        per_batch = batched(draws, several)[1]
        return chunk_length(per_batch, populations=several, rungs=rungs, dimension=self.model.dimension)

    def _cheap_to_run(self, done: RoundResult | None, rungs: int, kernel: Kernel) -> bool:
        """Say whether the round after ``done`` computes so little that its program need not be fast.

        Programs round differently, and a run that goes on must choose as it did: so no budget plays a part in this.
        """
        draws = 2 * done.planned if done else self.draws
        return cheap_to_run(self.model, draws * self.populations * rungs * traits_of(kernel).evaluations)

    def _affordable(self, spent: int, rungs: int, kernel: Kernel | None) -> int:
        """Return how many draws the first round may have; at least what an error bar takes."""
        draws = self._room(spent, rungs, kernel)
        if draws < 2 * FOLDS:
            raise OutOfBudgetError(
                f"max_evaluations = {self.max_evaluations} is too few: finding the posterior took {spent}, and {rungs} "
                f"rungs of {self.populations} populations leave {max(draws, 0):.0f} draws each. Give more, or fewer "
                "populations."
            )
        return int(min(self.draws, draws))

    def _room(self, spent: int, rungs: int, kernel: Kernel | None) -> float:
        """Return how many draws of every rung and population the evaluations that are left allow."""
        if self.max_evaluations is None:
            return np.inf
        return (self.max_evaluations - spent) // (self.populations * rungs * traits_of(kernel).evaluations)

    def _key(self, stage: int) -> jax.Array:
        return keys.child(keys.new(self.seed), stage)

    def _settings(self, path: Path, kernel: Kernel) -> Settings:
        return Settings.of(
            path.reference.describe(),
            kernel=name_of(kernel),
            swap=name_of(self.swap),
            gradients=self.model.differentiable,
            seed=self.seed,
            target_error=self.target_error,
            parameters=list(self.model.parameter_names),
            versions={package: version(package) for package in ("thermint", "jax")},
        )


@jit(level=0)
def _own(position: jax.Array, *, model: Model) -> tuple[dict[str, jax.Array], jax.Array]:
    """Name the values at positions [population, draw, d], and compute the model's log prior there."""

    def at(theta: jax.Array) -> tuple[dict[str, jax.Array], jax.Array]:
        named = dict(zip(model.names, theta, strict=True)) if model.names else {"theta": theta}
        return model.constrain(theta) if model.constrain else named, model.log_prior(theta)

    return jax.vmap(jax.vmap(at))(position)


def warned(result: Evidence, *warnings: str) -> Evidence:
    """Put warnings before the others."""
    return replace(result, warnings=(*warnings, *result.warnings))


def rule_of(rule: str | None, ladder: Ladder | None) -> str:
    """Name the rule for a ladder (None if it will be chosen to suit the rule), or refuse one that does not suit it."""
    if rule is None:
        return "lobatto" if ladder is not None and len(ladder) > 2 and ladders.is_lobatto(ladder) else "second-order"
    if rule not in RULES:
        raise ValueError(f"rule = {rule!r}: it must be one of {', '.join(map(repr, RULES))}.")
    if ladder is not None:
        RULES[rule](ladder)
    return rule
