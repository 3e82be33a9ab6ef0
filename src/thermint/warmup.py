"""Warm-up: rounds that tune step sizes and covariances of every rung, which are frozen afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from thermint.draws import Draws, concatenate
from thermint.frame import Frame, frame_of
from thermint.population import Population

ROUNDS = (25, 25, 50, 50, 100, 100)  # iterations at least; each is rounded up to whole chunks
GAINS = (0.5, 0.3, 0.2, 0.1, 0.1, 0.05)


class Tuned(NamedTuple):
    """What the warm-up hands over."""

    population: Population
    precision_factor: np.ndarray  # [rung, d, d]
    frame: Frame
    iteration: int


def warmup(
    population: Population,
    precision_factor: np.ndarray,
    advance: Callable[[Population, np.ndarray, int, float], tuple[Population, Draws]],
    chunk: int,
    rescale: bool,
) -> Iterator[Tuned]:
    """Run the rounds, yielding what is known after each; the last one is final.

    Args:
        population: where to start.
        precision_factor: a first guess, [rung, d, d].
        advance: ``(population, precision_factor, iteration, gain) -> (population, chunk of draws)``.
        chunk: number of iterations that ``advance`` makes.
        rescale: whether step sizes are in units of the adapted covariance, so that they change when it does.
    """
    iteration = 0
    for length, gain in zip(ROUNDS, GAINS, strict=True):
        draws = []
        for _ in range(-(-length // chunk)):
            population, piece = advance(population, precision_factor, iteration, gain)
            iteration += chunk
            draws.append(piece)
        frame = frame_of(concatenate(draws))
        previous, precision_factor = precision_factor, precision_factor_of(frame.factor)
        # Step sizes wandered apart from population to population; go on from their geometric mean.
        log_step = np.asarray(population.log_step).mean(axis=0)
        if rescale:
            # The same steps in the new units.
            log_step += np.log(np.einsum("rii->ri", precision_factor) / np.einsum("rii->ri", previous)).mean(axis=1)
        log_step = jnp.broadcast_to(log_step, population.log_step.shape)
        population = population._replace(log_step=log_step)
        yield Tuned(population, precision_factor, frame, iteration)


def precision_factor_of(factor: np.ndarray) -> np.ndarray:
    """Lower Cholesky factors of inverse covariances, from those of the covariances: [rung, d, d]."""
    return np.linalg.cholesky(np.linalg.inv(factor @ factor.mT))
