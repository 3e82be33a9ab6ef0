"""The one-call front: from a model, or from draws, to a log evidence with an error bar."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from thermint import diagnostics, ladders
from thermint._runtime import jit, require_float64
from thermint.draws import Draws, check_draws, concatenate
from thermint.errors import most_errors
from thermint.interop.callback import own_errors
from thermint.kernels import Kernel
from thermint.ladders import Ladder, as_ladder
from thermint.model import Model
from thermint.options import name_of, require_kernel, require_positive, require_whole
from thermint.plan import FOLDS, Plan, batched, chunk_length, make_plan
from thermint.population import Swap
from thermint.progress import Progress
from thermint.quadrature import RULES
from thermint.result import Evidence, Posterior, plus_minus
from thermint.run import Run, run, run_of
from thermint.sampler import checked_model, default_kernel, make_sampler
from thermint.scouting import RUNGS, Scout, Settled, refit, scout, settle
from thermint.summary import DISAGREEMENT, METHODS, so_far, summarise
from thermint.swaps import even_odd

TOLERANCE = 1e-4  # quadrature error to aim at on the fitted path, in nats, where no target error is given
PRIOR_TOLERANCE = 1e-3  # on the prior path
MOST_ROUNDS = 16


class OutOfBudgetError(ValueError):
    """More evaluations are needed than allowed."""


@own_errors()
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
    length = chunk_length(draws)
    sampler = make_sampler(
        model, ladder, length=length, populations=populations, kernel=kernel, swap=swap, key=jax.random.key(seed)
    )
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
    if method not in METHODS:
        raise ValueError(f"method = {method!r}: it must be one of {', '.join(map(repr, METHODS))}.")
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
    made = run_of(draws, plan)
    result = summarise(made, method=method, evaluations=0, begin=begin, settings={}, draws=draws)
    return replace(result, posterior=made.posterior)


@own_errors()
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
) -> Evidence:
    """Compute the log evidence of a model, with an error bar.

    Args:
        model: a `Model`, or a PyMC or Bambi model as it is.
        reference: where the path starts. "fitted": at a mixture fitted to draws of the posterior, which a short run
            from the prior finds. "prior": at the prior, as in the paper. "auto": as "fitted", checked against the prior
            path; if they disagree, that is run in full too, and if it still does, there is a warning.
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
        progress: show a progress bar; by default if standard error is a terminal.

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
    given: Ladder | None = None
    if ladder is not None:
        given = as_ladder(ladder)
        if np.ndim(ladder) == 0 and reference != "prior":
            given = ladders.lobatto(len(given))
    elif reference == "prior" and rule == "lobatto":
        raise ValueError('rule = "lobatto" with reference = "prior" needs ladder = thermint.ladders.lobatto(...).')
    if not model.differentiable:
        degree = _without_gradients(degree)
    front = _Front(
        model=model,
        ladder=given,
        kernel=kernel,
        swap=swap,
        degree=degree,
        rule=rule,
        crossfit=crossfit,
        draws=draws,
        populations=populations,
        target_error=target_error,
        max_evaluations=max_evaluations,
        max_seconds=max_seconds,
        seed=seed,
        begin=time.perf_counter(),
    )
    front.plan(given, draws)  # options that cannot work are refused now, not after the search for the posterior
    with Progress(progress, draws=draws) as bar:
        if reference == "prior":
            return front.prior_path(None, bar)
        scouted = front.scout(bar)
        result = front.fitted_path(scouted, bar)
        if _agree(result, scouted):
            return result
        if scouted.log_evidence < result.log_evidence:
            # What a path misses is missing from its evidence: here, the short run has.
            advice = "The latter, a short run, has not converged: it cannot confirm that the former has missed nothing."
            if not model.normalised:
                advice += " Or log_prior is not normalised, which shifts the former only: check its constant."
            return _warned(result, _disagreement(result, scouted, advice))
        if reference == "fitted":
            said = _disagreement(result, scouted, 'This is the former; reference="auto" would look closer.')
            return _warned(result, said)
        try:
            # Ladder and rule were meant for the other path.
            prior = replace(front, ladder=None, rule=None).prior_path(scouted, bar, spent=result.evaluations)
        except OutOfBudgetError:
            said = _disagreement(result, scouted, "This is the former; max_evaluations leaves no room to look closer.")
            return _warned(result, said)
        spent: dict[str, Any] = {"evaluations": prior.evaluations, "seconds": prior.seconds}
        if _agree(result, prior):
            return replace(result, **spent)
        best = result if result.log_evidence > prior.log_evidence else prior
        apart = abs(result.log_evidence - prior.log_evidence)
        advice = "This is the larger, and its error covers both. Increase draws until they agree."
        best = replace(best, standard_error=max(best.standard_error, apart), **spent)
        return _warned(best, _disagreement(result, prior, advice))


def _without_gradients(degree: int | str) -> int:
    """Return the only degree that there is for a model without gradients, or refuse others."""
    if degree not in ("auto", 0):
        raise ValueError(
            f"degree = {degree!r}: control variates need the gradient of the log likelihood, which this model does not "
            "have. Use degree=0, or give thermint.from_numpy a gradient or finite_differences=True."
        )
    return 0


def _warned(result: Evidence, warning: str) -> Evidence:
    """Put a warning before the others."""
    return replace(result, warnings=(warning, *result.warnings))


def _agree(result: Evidence, other: Evidence | Scout) -> bool:
    """Say whether chance explains the difference of two paths."""
    freedom = min(result.degrees_of_freedom, other.degrees_of_freedom)
    allowed = most_errors(DISAGREEMENT, freedom) * np.hypot(result.standard_error, other.standard_error)
    return bool(abs(result.log_evidence - other.log_evidence) <= allowed)


def _disagreement(result: Evidence, other: Evidence | Scout, advice: str) -> str:
    """Say that the two paths disagree."""
    return (
        f"the two paths disagree: {plus_minus(result.log_evidence, result.standard_error)} from a reference fitted to "
        f"the posterior, {plus_minus(other.log_evidence, other.standard_error)} from the prior. What a path misses is "
        f"missing from its evidence. {advice}"
    )


def rule_of(rule: str | None, ladder: Ladder | None) -> str:
    """Name the rule for a ladder (None if it will be chosen to suit the rule), or refuse one that does not suit it."""
    if rule is None:
        return "lobatto" if ladder is not None and len(ladder) > 2 and ladders.is_lobatto(ladder) else "second-order"
    if rule not in RULES:
        raise ValueError(f"rule = {rule!r}: it must be one of {', '.join(map(repr, RULES))}.")
    if ladder is not None:
        RULES[rule](ladder)
    return rule


@dataclass(frozen=True)
class _Front:
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
    seed: int
    begin: float

    def scout(self, bar: Progress) -> Scout:
        """Run the prior path briefly."""
        return scout(
            self.model,
            populations=self.populations,
            kernel=self.kernel,
            swap=self.swap,
            key=self._key(0),
            on_round=bar.phase("looking for the posterior"),
        )

    def prior_path(self, scouted: Scout | None, bar: Progress, spent: int = 0) -> Evidence:
        """Run the path from the prior, on the ladder given or one that the scout's draws ask for."""
        ladder = self.ladder
        if ladder is None:
            if scouted is None:
                scouted = self.scout(bar)
                spent = scouted.evaluations
            tolerance = PRIOR_TOLERANCE if self.target_error is None else self.target_error / 4
            variance = np.asarray(scouted.draws.log_likelihood).var(axis=(0, 1))
            ladder = ladders.adapted({"t": scouted.draws.ladder, "variance": variance}, tolerance)
        kernel = self.kernel or default_kernel(self.model)
        draws = self._affordable(spent, len(ladder), kernel)
        sampler = make_sampler(
            self.model,
            ladder,
            length=self._length(draws),
            populations=self.populations,
            kernel=kernel,
            swap=self.swap,
            key=self._key(1),
            on_round=bar.phase("warm-up"),
        )
        settings = self._settings("prior", kernel)
        plan = self.plan(ladder, draws)

        def rounds() -> Iterator[tuple[Run, int]]:
            now = plan
            while True:
                made = run(sampler, sampler.frame, now, bar.sampling(now.draws, so_far))
                yield made, spent + sampler.evaluations
                now = now.doubled()

        return self._until_precise(rounds(), settings)

    def fitted_path(self, scouted: Scout, bar: Progress) -> Evidence:
        """Run the path from a reference fitted to the posterior, which is fitted again between rounds."""
        common: dict[str, Any] = {
            "ladder": self.ladder,
            "tolerance": TOLERANCE if self.target_error is None else self.target_error / 10,
            "populations": self.populations,
            "kernel": self.kernel,
            "swap": self.swap,
        }
        length = self._length(self._affordable(scouted.evaluations, RUNGS[0], self.kernel))
        if self.max_evaluations is not None:
            length = -(-length // 4)  # smaller pieces fit a budget better
        settled = settle(
            self.model,
            scouted.chains,
            length=length,
            key=self._key(1),
            on_round=bar.phase("fitting a reference"),
            **common,
        )
        settings = self._settings("fitted", settled.kernel) | {
            "components": settled.mixture.components,
            "freedom": settled.mixture.freedom,
        }

        def planned(now: Settled, draws: int, room: float) -> Plan:
            plan = self.plan(now.sampler.ladder, draws, now.mixture.components, length)
            # Plans are rounded up: down, where the budget has no room for that.
            over = plan.draws > room and plan.chunks > 1
            return replace(plan, chunks=plan.chunks - 1) if over else plan

        def rounds() -> Iterator[tuple[Run, int]]:
            now: Settled = settled
            used = scouted.evaluations + now.evaluations
            cost = used + now.sampler.evaluations, len(now.sampler.ladder), now.kernel
            plan = planned(now, self._affordable(*cost), self._room(*cost))
            for number in range(2, 2 + MOST_ROUNDS):
                made = run(now.sampler, now.frame, plan, bar.sampling(plan.draws, so_far))
                used += now.sampler.evaluations
                yield made, used
                now = refit(
                    self.model,
                    made,
                    length=length,
                    key=self._key(number),
                    on_round=bar.phase("fitting the reference again"),
                    **common,
                )
                # The new ladder may have more rungs than the one by which the cost of this round was judged.
                room = self._room(used + now.sampler.evaluations, len(now.sampler.ladder), now.kernel)
                plan = planned(now, int(min(2 * plan.draws, max(room, 2 * FOLDS))), room)

        return self._until_precise(rounds(), settings)

    def _until_precise(self, rounds: Iterator[tuple[Run, int]], settings: dict[str, Any]) -> Evidence:
        """Go on until the error is the one asked for or the budget is used up; the last round is the answer."""
        previous: Evidence | None = None
        spent = 0
        for number, (made, used) in enumerate(rounds, start=1):
            started = self.begin if previous is None else self.begin + previous.seconds
            result = summarise(
                made,
                method="auto" if self.rule is None else "cti",
                evaluations=used,
                begin=self.begin,
                settings=settings | {"rounds": number},
            )
            if previous is not None:
                result = _compared(previous, result)
            if settings["reference"] == "fitted" and self.model.differentiable:
                narrowness = diagnostics.narrowness(made.some.score[:, :, made.ladder >= 0.5], made.gram.frame)
                narrow = diagnostics.narrow_warnings(narrowness, self.model.parameter_names)
                result = replace(result, warnings=(*narrow, *result.warnings))
            result = replace(result, posterior=made.posterior)
            if self.target_error is None or result.standard_error <= self.target_error:
                return self._named(result)
            elapsed = time.perf_counter() - self.begin
            reasons = {
                f"max_evaluations = {self.max_evaluations}": self.max_evaluations is not None
                and used + 2 * (used - spent) > self.max_evaluations,
                f"max_seconds = {self.max_seconds:g}" if self.max_seconds else "": self.max_seconds is not None
                and elapsed + 2 * (time.perf_counter() - started) > self.max_seconds,
                f"{MOST_ROUNDS} rounds": number == MOST_ROUNDS,
                "the ladder given, whose quadrature error is larger": self.ladder is not None
                and result.quadrature_error > self.target_error,
            }
            stopped = [reason for reason, holds in reasons.items() if holds]
            if stopped:
                said = (
                    f"target_error = {self.target_error:g} was not reached: the error is {result.standard_error:.2g}, "
                    f"and what ended the run was {stopped[0]}."
                )
                return self._named(_warned(result, said))
            previous, spent = result, used
        raise AssertionError("rounds do not end by themselves")

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

    def _length(self, draws: int) -> int:
        return chunk_length(batched(draws, self.populations)[1])

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
        return (self.max_evaluations - spent) // (self.populations * rungs * getattr(kernel, "evaluations", 1))

    def _key(self, stage: int) -> jax.Array:
        return jax.random.fold_in(jax.random.key(self.seed), stage)

    def _settings(self, reference: str, kernel: Kernel) -> dict[str, Any]:
        return {
            "reference": reference,
            "kernel": name_of(kernel),
            "swap": name_of(self.swap),
            "gradients": self.model.differentiable,
            "seed": self.seed,
            "target_error": self.target_error,
            "parameters": list(self.model.parameter_names),
            "versions": {package: version(package) for package in ("thermint", "jax")},
        }


@jit()
def _own(position: jax.Array, *, model: Model) -> tuple[dict[str, jax.Array], jax.Array]:
    """Name the values at positions [population, draw, d], and compute the model's log prior there."""

    def at(theta: jax.Array) -> tuple[dict[str, jax.Array], jax.Array]:
        named = dict(zip(model.names, theta, strict=True)) if model.names else {"theta": theta}
        return model.constrain(theta) if model.constrain else named, model.log_prior(theta)

    return jax.vmap(jax.vmap(at))(position)


def _compared(previous: Evidence, result: Evidence) -> Evidence:
    """Warn where two rounds differ by more than their errors explain."""
    apart = abs(previous.log_evidence - result.log_evidence)
    error = np.hypot(previous.standard_error, result.standard_error)
    if apart <= 5 * error:
        return result
    said = (
        f"the last two rounds differ by {apart:.2g}, {apart / error:.0f} standard errors: the error is too small. "
        "Parts of the posterior are visited rarely; increase draws or populations."
    )
    return _warned(result, said)
