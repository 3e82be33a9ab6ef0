"""From a model to chunks of draws: check it, start it, warm it up, and go on for as long as anyone asks."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from thermint import kernels
from thermint.interop import as_model
from thermint.kernels import Kernel, Params, hmc, mala, random_walk
from thermint.kernels.base import traits_of
from thermint.model.checks import check_shapes
from thermint.model.closure_constants import lift_constants
from thermint.model.draws import Draws, concatenate
from thermint.model.model import Model
from thermint.model.priors import check_normalised
from thermint.path.coordinates import RungMoments
from thermint.path.ladders import Ladder
from thermint.path.path import Path
from thermint.runtime import keys
from thermint.runtime.linalg import LARGEST_WRITTEN_OUT
from thermint.runtime.session import Session
from thermint.runtime.setup import require_float64
from thermint.runtime.store import storable
from thermint.sampling import population as pop
from thermint.sampling.options import SamplerOptions
from thermint.sampling.population import Chunk, Engine, Population, Rungs
from thermint.sampling.warmup import LONG, STEPS_ONLY, precision_factor_of, warmup

FIRST_STEP = 0.5
AHEAD = 2  # chunks that devices are given before they are needed: one to work on, one to go on with
MALA_UP_TO = 15  # parameters


@storable
class SamplerState(NamedTuple):
    """Where a sampler is, and what its warm-up has settled."""

    ladder: Ladder
    precision_factor: np.ndarray  # [rung, d, d]
    frame: RungMoments
    population: Population
    iteration: int
    evaluations: int  # of the likelihood, so far


LaunchArgs = tuple[Population | Chunk, np.ndarray, Ladder, int, float, int]  # arguments of `ChunkScheduler`


class ChunkScheduler:
    """Moves populations on, in as many steps as the model is slow, and where asked before it is needed."""

    def __init__(self, engine: Engine, keys: np.ndarray, cost: int, session: Session) -> None:
        self.engine = engine
        self.cost = cost  # evaluations for one draw from all rungs and populations
        self._keys, self._session = keys, session
        self._rungs: Rungs | None = None
        self._settled: tuple[Any, Any] = None, None  # the metric and ladder of those
        self._ahead: deque[tuple[LaunchArgs, Chunk]] = deque()  # what devices do already

    def __call__(
        self, now: Population, precision_factor: np.ndarray, ladder: Ladder, iteration: int, gain: float, stop: int
    ) -> tuple[Population, Draws]:
        """Run the iterations before ``stop``, and return where they led and what was drawn; see `population.launch`."""
        pieces: list[Draws] = []

        def piece(number: int) -> tuple[Population, Draws]:
            asked = now, precision_factor, ladder, iteration, gain, iteration + number
            if not self._ahead or not _same(self._ahead[0][0], asked):
                self._ahead.clear()
                return pop.collect(self._launch(*asked))
            made = pop.collect(self._ahead.popleft()[1])
            if self._ahead:  # which goes on from there
                self._ahead[0] = (made[0], *self._ahead[0][0][1:]), self._ahead[0][1]
            return made

        while iteration < stop:
            now, draws = self._session.step(piece, stop - iteration, self.cost)
            iteration += draws.log_prior.shape[1]
            pieces.append(draws)
        return now, concatenate(pieces)

    def look_ahead(self, place: SamplerState, chunks: int) -> None:
        """Have devices begin with up to so many of the next chunks, if they are made in one step each."""
        length = self.engine.length
        if self._session.affordable(length, self.cost) < length:
            return
        for number in range(len(self._ahead), min(chunks, AHEAD)):
            before = self._ahead[-1][1] if number else place.population
            first = place.iteration + number * length
            asked = before, place.precision_factor, place.ladder, first, 0.0, first + length
            self._ahead.append((asked, self._launch(*asked)))

    def _launch(
        self,
        now: Population | Chunk,
        precision_factor: np.ndarray,
        ladder: Ladder,
        iteration: int,
        gain: float,
        stop: int,
    ) -> Chunk:
        if self._rungs is None or self._settled[0] is not precision_factor or self._settled[1] is not ladder:
            self._rungs, self._settled = pop.rungs_of(ladder, precision_factor), (precision_factor, ladder)
        return pop.launch(self.engine, self._keys, now, self._rungs, iteration, gain, stop)


def _same(one: LaunchArgs, other: LaunchArgs) -> bool:
    return all(a is b for a, b in zip(one[:3], other[:3], strict=True)) and one[3:] == other[3:]


class Sampler:
    """A sampler after its warm-up. It knows where its chains are; nothing else of it changes any more."""

    def __init__(self, steps: ChunkScheduler, place: SamplerState, last: Draws | None) -> None:
        self.place = place
        self.length = steps.engine.length  # of a chunk
        self.devices = steps.engine.team.size
        self.last = last  # draws of the warm-up, if there was one
        self._steps = steps

    @property
    def ladder(self) -> Ladder:
        """Inverse temperatures."""
        return self.place.ladder

    @property
    def frame(self) -> RungMoments:
        """Moments of the warm-up's last round."""
        return self.place.frame

    @property
    def evaluations(self) -> int:
        """Of the likelihood, so far."""
        return self.place.evaluations

    @property
    def populations(self) -> int:
        """Independent replicas of the ladder."""
        return len(self.place.population.log_step)

    @property
    def cost(self) -> int:
        """Evaluations for one draw from all rungs and populations."""
        return self._steps.cost

    def chunk(self, ahead: int = 0) -> Draws:
        """Go on, and return what was drawn; devices go on meanwhile, for up to ``ahead`` chunks."""
        draws = self._advance(self.ladder, 0.0)
        self._steps.look_ahead(self.place, ahead)
        return draws

    @property
    def params(self) -> Params:
        """What the kernel was tuned to by the warm-up, [rung]."""
        log_step = jnp.asarray(self.place.population.log_step)[0]  # the same in all populations
        _, *metric = pop.rungs_of(self.ladder, self.place.precision_factor)
        return Params(jnp.exp(log_step), *map(jnp.asarray, metric))

    def descend(self, position: np.ndarray, gains: tuple[float, ...]) -> Draws:
        """Start chains at given positions, [population, rung, d], move all to the posterior, and return the last chunk.

        Chains that come from everywhere and end in different modes show these, whatever weight each has on the way.
        Every chain tunes its own step, in each chunk by another gain.
        """
        begun = self.place.population._replace(state=pop.begin_at(self._steps.engine.path, position))
        spent = position.shape[0] * pop.starts(self.ladder)
        self.place = self.place._replace(population=begun, evaluations=self.evaluations + spent)
        for gain in gains:
            draws = self._advance(np.ones_like(self.ladder), gain)
        return draws

    def _advance(self, ladder: Ladder, gain: float) -> Draws:
        here = self.place
        stop = here.iteration + self.length
        population, draws = self._steps(here.population, here.precision_factor, ladder, here.iteration, gain, stop)
        spent = here.evaluations + self.length * self._steps.cost
        self.place = here._replace(population=population, iteration=stop, evaluations=spent)
        return draws


def checked_model(model: Any) -> Model:
    """Take a model of any kind we know, refusing one that cannot have an evidence before anything is sampled."""
    model = as_model(model)
    require_float64()
    check_shapes(model)
    check_normalised(model)
    return lift_constants(model)


def make_sampler(
    path: Path,
    ladder: Ladder,
    options: SamplerOptions,
    key: Array,
    *,
    session: Session | None = None,
    place: SamplerState | None = None,
) -> Sampler:
    """Make a sampler, and warm it up.

    Args:
        path: from the reference to the posterior.
        ladder: inverse temperatures.
        options: see there; by default the kernel is that of `default_kernel`.
        key: all randomness derives from it and from the population's index.
        session: is told of every step.
        place: where a sampler with these arguments was before; it goes on from there, without a warm-up.
    """
    session = session or Session()
    populations, length = options.populations, options.length
    kernel = options.kernel or default_kernel(path)
    traits = traits_of(kernel)
    path = replace(path, with_metric=traits.own_metric)
    model, covariance = path.model, path.reference.covariance
    lapack = traits.own_metric and model.dimension > LARGEST_WRITTEN_OUT
    engine = pop.engine_of(
        path,
        populations,
        kernel=kernel,
        swap=options.swap,
        length=length,
        level=0 if options.cheap_to_run else 1,
        alone=model.one_device or lapack,
    )
    cost = traits.evaluations * populations * len(ladder)
    own = keys.children(keys.words(key), populations)
    steps = ChunkScheduler(engine, own, cost, session)
    if place is not None:
        return Sampler(steps, place, last=None)
    states, deviation = pop.start(path, own, ladder, check=covariance is None)
    carry = pop.draw_carry(kernel, own, len(ladder), model.dimension)
    start = pop.begin(states, np.full((populations, len(ladder)), np.log(FIRST_STEP)), carry)
    first = np.diag(1 / deviation) if covariance is None else precision_factor_of(np.linalg.cholesky(covariance))
    for tuned in warmup(
        start,
        np.tile(first, (len(ladder), 1, 1)),
        ladder,
        steps,
        length,
        rounds=options.schedule or (LONG if covariance is None else STEPS_ONLY),
        rescale=not traits.own_metric,
        adapt_covariance=covariance is None,
        adapt_ladder=options.adapt_ladder,
    ):
        session.bar.iterated(tuned.iteration)
        session.stop_if_asked()

    looks = 3 if covariance is None and model.differentiable else 1  # at every start; see `population.start`
    spent = tuned.iteration * cost + populations * pop.starts(ladder) * looks
    place = SamplerState(tuned.ladder, tuned.precision_factor, tuned.frame, tuned.population, tuned.iteration, spent)
    return Sampler(steps, place, last=tuned.draws)


def default_kernel(path: Path) -> Kernel:
    """Choose the kernel that suits the reference; else mala for few parameters, hmc for many, random_walk if blind.

    All adapt to the covariance of the rung. On Pima's path from the prior, mmala with the model's own metric has less
    than half of mala's effective draws: away from the posterior the Fisher information all but vanishes, so that steps
    of the length that suits the posterior are far too long.
    """
    if path.reference.kernel:
        return getattr(kernels, path.reference.kernel)
    if not path.model.differentiable:
        return random_walk
    return mala if path.model.dimension <= MALA_UP_TO else hmc
