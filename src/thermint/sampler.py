"""From a model to chunks of draws: check it, start it, warm it up, and go on for as long as anyone asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from thermint import population as pop
from thermint._runtime import require_float64
from thermint.draws import Draws
from thermint.frame import Frame
from thermint.kernels import Kernel, mala, mmala
from thermint.ladders import Ladder
from thermint.model import Model, check_shapes
from thermint.population import Population, Swap
from thermint.priors import check_normalised
from thermint.warmup import warmup

FIRST_STEP = 0.5


class Sampler(NamedTuple):
    """A sampler after its warm-up: nothing of it changes any more."""

    frame: Frame
    chunks: Iterator[Draws]  # endless
    evaluations: int  # of the likelihood, so far


def check_model(model: Model) -> None:
    """Refuse a model that cannot have an evidence, naming what is wrong, before anything is sampled."""
    if not isinstance(model, Model):
        raise TypeError(f"model must be a thermint.Model, not {type(model).__name__}.")
    require_float64()
    check_shapes(model)
    check_normalised(model)


def make_sampler(
    model: Model,
    ladder: Ladder,
    *,
    length: int,
    populations: int,
    kernel: Kernel | None,
    swap: Swap,
    seed: int,
    on_round: Callable[[int], None] = lambda iteration: None,
) -> Sampler:
    """Warm up, and return chunks of ``length`` draws.

    Args:
        model: the model.
        ladder: inverse temperatures.
        length: draws of one chunk.
        populations: independent replicas of the ladder.
        kernel: the move within a rung; by default mmala for a model with a metric, else mala.
        swap: the move between rungs.
        seed: all randomness derives from it and from the population's index.
        on_round: called with the number of iterations after each warm-up round.
    """
    key = jax.random.key(seed)
    kernel = kernel or default_kernel(model)
    temperatures = jnp.asarray(ladder)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(populations))
    states, deviation = pop.start(model, keys, ladder)
    advance = partial(pop.advance, keys, model=model, kernel=kernel, swap=swap, length=length)

    def step(now: Population, precision_factor: np.ndarray, iteration: int, gain: float) -> tuple[Population, Draws]:
        result = advance(now, precision_factor, temperatures, np.int64(iteration), np.float64(gain))
        return jax.block_until_ready(result)  # see Plan.accumulate

    start = Population(states, jnp.full((populations, len(ladder)), np.log(FIRST_STEP)))
    first_factor = np.tile(np.diag(1 / deviation), (len(ladder), 1, 1))
    for tuned in warmup(start, first_factor, step, length, rescale=not getattr(kernel, "own_metric", False)):
        on_round(tuned.iteration)

    def chunks() -> Iterator[Draws]:
        now, iteration = tuned.population, tuned.iteration
        while True:
            now, draws = step(now, tuned.precision_factor, iteration, 0.0)
            iteration += length
            yield draws

    return Sampler(
        tuned.frame, chunks(), evaluations=tuned.iteration * states.log_prior.size + populations * pop.starts(ladder)
    )


def default_kernel(model: Model) -> Kernel:
    """Choose mmala for a model that gives a metric, else mala."""
    return mmala if model.metric else mala
