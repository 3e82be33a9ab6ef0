"""From a path to chunks of draws: start it, warm it up, and go on for as long as anyone asks."""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
from jax import Array

from thermint import kernels
from thermint.kernels import Kernel, Params, hmc, mala, random_walk
from thermint.kernels.base import traits_of
from thermint.model.draws import Draws
from thermint.path.coordinates import RungMoments
from thermint.path.ladders import Ladder
from thermint.path.path import Path
from thermint.runtime import keys
from thermint.runtime.linalg import MAX_UNROLLED
from thermint.runtime.session import Session
from thermint.sampling import population as pop
from thermint.sampling.options import SamplerOptions
from thermint.sampling.scheduler import ChunkScheduler, SamplerState
from thermint.sampling.starts import begin, draw_carry, reference_draws, start_at, start_at_reference
from thermint.sampling.warmup import LONG, STEPS_ONLY, precision_factor_of, warmup

FIRST_STEP = 0.5  # in standard deviations: one that is accepted at once, for the warm-up to begin with


class Sampler:
    """A sampler after its warm-up, of which nothing changes any more but where its chains are."""

    def __init__(self, steps: ChunkScheduler, place: SamplerState, last: Draws | None) -> None:
        self.place = place
        self.length = steps.engine.length  # of a chunk
        self.devices = steps.engine.layout.size
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
        begun = self.place.population._replace(state=start_at(self._steps.engine.path, position))
        spent = position.shape[0] * reference_draws(self.ladder)
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
    lapack = traits.own_metric and model.dimension > MAX_UNROLLED
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
    own = keys.split(keys.key_data(key), populations)
    steps = ChunkScheduler(engine, own, cost, session)
    if place is not None:
        return Sampler(steps, place, last=None)
    states, deviation = start_at_reference(path, own, ladder, check=covariance is None)
    carry = draw_carry(kernel, own, len(ladder), model.dimension)
    start = begin(states, np.full((populations, len(ladder)), np.log(FIRST_STEP)), carry)
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

    looks = 3 if covariance is None and model.differentiable else 1  # at every start; see `start_at_reference`
    spent = tuned.iteration * cost + populations * reference_draws(ladder) * looks
    place = SamplerState(tuned.ladder, tuned.precision_factor, tuned.frame, tuned.population, tuned.iteration, spent)
    return Sampler(steps, place, last=tuned.draws)


def default_kernel(path: Path) -> Kernel:
    """Choose the kernel that suits the reference; else mala for few parameters, hmc for many.

    A random walk where there are no gradients.
    """
    if path.reference.kernel:
        return getattr(kernels, path.reference.kernel)
    if not path.model.differentiable:
        return random_walk
    # Random steps of mala go as far as a straight trajectory of n only after n^2.
    return mala if path.model.dimension < traits_of(hmc).evaluations ** 2 else hmc
