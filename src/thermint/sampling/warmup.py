"""Warm-up: rounds that tune step sizes, and covariances and ladder unless these are known, all frozen afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from thermint.model.draws import Draws, concatenate
from thermint.path.coordinates import RungMoments, rung_moments
from thermint.path.ladders import Ladder, equal_rejection
from thermint.sampling.population import Population
from thermint.sampling.swaps import swap_rates

# ``(population, precision_factor, ladder, iteration, gain, stop) -> (population, chunk of draws)``
Advance = Callable[[Population, np.ndarray, Ladder, int, float, int], tuple[Population, Draws]]
WarmupSchedule = tuple[tuple[int, float], ...]
# Iterations of each round, and how fast step sizes follow the acceptance rate (Robbins and Monro): fast while they are
# off by factors, then slowly, so that they settle; the last rounds are long, as covariances come from their draws.
LONG: WarmupSchedule = ((25, 0.5), (25, 0.3), (50, 0.2), (50, 0.1), (100, 0.1), (100, 0.05))
# For a search, whose draws need not be as many; and where the covariance is known, for step sizes alone.
SHORT: WarmupSchedule = ((25, 0.5), (25, 0.3), (25, 0.2), (50, 0.1))
STEPS_ONLY: WarmupSchedule = ((50, 0.3), (50, 0.1))  # two rounds, as step sizes begin near their best


class Tuned(NamedTuple):
    """What the warm-up hands over."""

    population: Population
    precision_factor: np.ndarray  # [rung, d, d]
    ladder: Ladder
    draws: Draws  # of the last round
    iteration: int

    @property
    def frame(self) -> RungMoments:
        """Moments of the last round."""
        return rung_moments(self.draws)


def warmup(
    population: Population,
    precision_factor: np.ndarray,
    ladder: Ladder,
    advance: Advance,
    chunk: int,
    *,
    rounds: WarmupSchedule,
    rescale: bool,
    adapt_covariance: bool,
    adapt_ladder: bool,
) -> Iterator[Tuned]:
    """Run the rounds, yielding what is known after each; the last one is final.

    Args:
        population: where to start.
        precision_factor: a first guess, or the last word, [rung, d, d].
        ladder: likewise.
        advance: makes a chunk.
        chunk: number of iterations that ``advance`` makes at most.
        rounds: lengths and gains.
        rescale: whether step sizes are in units of the adapted covariance, so that they change when it does.
        adapt_covariance: take the precision from the draws of each round.
        adapt_ladder: move the rungs after each round but the last two, until swaps are rejected equally often.
    """
    iteration = 0
    for number, (length, gain) in enumerate(rounds, start=1):
        pieces = []
        edges = [*range(iteration, iteration + length, chunk), iteration + length]
        for first, stop in pairwise(edges):
            population, piece = advance(population, precision_factor, ladder, first, gain, stop)
            pieces.append(piece)
        draws = concatenate(pieces)
        iteration += length
        # Step sizes wandered apart from population to population; go on from their geometric mean.
        log_step = np.mean(population.log_step, axis=0)
        if adapt_covariance:
            previous, precision_factor = precision_factor, precision_factor_of(rung_moments(draws).cholesky[:, 0])
            if rescale:  # the same steps in the new units
                log_step += np.log(np.einsum("rii->ri", precision_factor) / np.einsum("rii->ri", previous)).mean(axis=1)
        if adapt_ladder and number <= len(rounds) - 2:
            rates = swap_rates(np.asarray(draws.log_likelihood), ladder)
            moved = equal_rejection({"t": ladder, "swap_rate": rates})
            nearest = np.interp(moved, ladder, np.arange(len(ladder))).round().astype(int)
            ladder, precision_factor, log_step = moved, precision_factor[nearest], log_step[nearest]
        population = population._replace(log_step=np.broadcast_to(log_step, population.log_step.shape))
        yield Tuned(population, precision_factor, ladder, draws, iteration)


def precision_factor_of(factor: np.ndarray) -> np.ndarray:
    """Lower Cholesky factors of inverse covariances, from those of the covariances: [rung, d, d]."""
    return np.linalg.cholesky(np.linalg.inv(factor @ factor.mT))
