"""From a model to chunks of draws: check it, start it, warm it up, and go on for as long as anyone asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from thermint import population as pop
from thermint._runtime import require_float64
from thermint.draws import Draws
from thermint.frame import Frame
from thermint.interop import as_model
from thermint.kernels import Kernel, Params, hmc, mala, random_walk
from thermint.ladders import Ladder
from thermint.model import Model, check_shapes
from thermint.population import Population, Swap
from thermint.priors import check_normalised
from thermint.warmup import LONG, Advance, Rounds, Tuned, precision_factor_of, warmup

FIRST_STEP = 0.5
MALA_UP_TO = 15  # parameters


class Sampler:
    """A sampler after its warm-up. It knows where its chains are; nothing else of it changes any more."""

    def __init__(self, model: Model, tuned: Tuned, step: Advance, evaluations: int, length: int, cost: int) -> None:
        self.ladder: Ladder = tuned.ladder
        self.frame: Frame = tuned.frame
        self.last: Draws = tuned.draws  # of the warm-up
        self.evaluations = evaluations  # of the likelihood, so far
        self.length = length  # of a chunk
        self.cost = cost  # evaluations for one draw from all rungs and populations
        self._model, self._tuned, self._step = model, tuned, step
        self._population, self._iteration = tuned.population, tuned.iteration

    def chunk(self) -> Draws:
        """Go on, and return what was drawn."""
        return self._advance(self.ladder, 0.0)

    @property
    def params(self) -> Params:
        """What the kernel was tuned to by the warm-up, [rung]."""
        log_step = self._tuned.population.log_step[0]  # the same in all populations
        return Params(jnp.exp(log_step), jnp.asarray(self._tuned.precision_factor))

    def descend(self, position: np.ndarray, gains: tuple[float, ...]) -> Draws:
        """Start chains at given positions, [population, rung, d], move all to the posterior, and return the last chunk.

        Chains that come from everywhere and end in different modes show these, whatever weight each has on the way.
        Every chain tunes its own step, in each chunk by another gain.
        """
        self._population = self._population._replace(state=pop.begin_at(self._model, position))
        self.evaluations += position.shape[0] * pop.starts(self.ladder)
        for gain in gains:
            draws = self._advance(np.ones_like(self.ladder), gain)
        return draws

    def _advance(self, ladder: Ladder, gain: float) -> Draws:
        now, factor = self._population, self._tuned.precision_factor
        stop = self._iteration + self.length
        self._population, draws = self._step(now, factor, ladder, self._iteration, gain, stop)
        self._iteration = stop
        self.evaluations += self.length * self.cost
        return draws


def checked_model(model: Any) -> Model:
    """Take a model of any kind we know, refusing one that cannot have an evidence before anything is sampled."""
    model = as_model(model)
    require_float64()
    check_shapes(model)
    check_normalised(model)
    return model


def make_sampler(
    model: Model,
    ladder: Ladder,
    *,
    length: int,
    populations: int,
    kernel: Kernel | None,
    swap: Swap,
    key: Array,
    rounds: Rounds = LONG,
    factor: np.ndarray | None = None,
    adapt_ladder: bool = False,
    on_round: Callable[[int], None] = lambda iteration: None,
) -> Sampler:
    """Warm up a sampler of chunks of ``length`` draws.

    Args:
        model: the model.
        ladder: inverse temperatures.
        length: draws of one chunk.
        populations: independent replicas of the ladder.
        kernel: the move within a rung; see `default_kernel`.
        swap: the move between rungs.
        key: all randomness derives from it and from the population's index.
        rounds: of the warm-up.
        factor: Cholesky factor of the covariance, [d, d], where it is known; else the warm-up finds that of each rung.
        adapt_ladder: let the warm-up move the rungs.
        on_round: called with the number of iterations after each warm-up round.
    """
    kernel = kernel or default_kernel(model)
    own_metric = getattr(kernel, "own_metric", False)
    if not own_metric:
        model = replace(model, metric=None)  # nobody needs it
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(populations))
    states, deviation = pop.start(model, keys, ladder, check=factor is None)
    advance = partial(pop.advance, keys, model=model, kernel=kernel, swap=swap, length=length)

    def step(
        now: Population, precision_factor: np.ndarray, ladder: Ladder, iteration: int, gain: float, stop: int
    ) -> tuple[Population, Draws]:
        numbers = np.int64(iteration), np.float64(gain), np.int64(stop)
        result = advance(now, precision_factor, jnp.asarray(ladder), *numbers)
        return jax.block_until_ready(result)  # see Plan.accumulate

    start = pop.begin(states, jnp.full((populations, len(ladder)), np.log(FIRST_STEP)))
    first = np.diag(1 / deviation) if factor is None else precision_factor_of(factor)
    for tuned in warmup(
        start,
        np.tile(first, (len(ladder), 1, 1)),
        ladder,
        step,
        length,
        rounds=rounds,
        rescale=not own_metric,
        adapt_covariance=factor is None,
        adapt_ladder=adapt_ladder,
    ):
        on_round(tuned.iteration)

    cost = getattr(kernel, "evaluations", 1) * populations * len(ladder)
    looks = 3 if factor is None and model.differentiable else 1  # at every start; see `population.start`
    spent = tuned.chunks * length * cost + populations * pop.starts(ladder) * looks
    return Sampler(model, tuned, step, spent, length, cost)


def default_kernel(model: Model) -> Kernel:
    """Choose mala for few parameters, hmc for many, random_walk without gradients.

    All adapt to the covariance of the rung. On Pima's path from the prior, mmala with the model's own metric has less
    than half of mala's effective draws: away from the posterior the Fisher information all but vanishes, so that steps
    of the length that suits the posterior are far too long.
    """
    if not model.differentiable:
        return random_walk
    return mala if model.dimension <= MALA_UP_TO else hmc
