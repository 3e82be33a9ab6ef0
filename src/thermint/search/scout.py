"""A short run from the prior that finds the posterior, with chains from everywhere that find its modes."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jax import Array

from thermint.estimators.errors import batch_error
from thermint.estimators.stepping_stone import bridge
from thermint.model.closure_constants import cheap_to_run
from thermint.model.draws import Draws, concatenate, scored_draws
from thermint.model.model import Model
from thermint.path import ladders
from thermint.path.path import Path
from thermint.runtime import keys
from thermint.runtime.session import Session
from thermint.runtime.store import storable
from thermint.sampling.noise import generator
from thermint.sampling.options import SamplerOptions
from thermint.sampling.sampler import make_sampler
from thermint.sampling.starts import reference_draws
from thermint.sampling.warmup import SHORT, STEPS_ONLY
from thermint.search.ascent import ascend, levenberg_marquardt, log_joint, spread
from thermint.search.modes import Chains

SCOUT_RUNGS = 16  # and as many steps uphill from draws of the prior
CHUNK = SHORT[0][0]  # draws: rounds of the warm-up are multiples of it
DRAWS = sum(length for length, _ in STEPS_ONLY)  # of a scout or pilot run: as many as a pilot's warm-up discards
CHAINS = 2  # from each rung of each population; and half of a group of chains from prior draws that climb to one place
DESCENT = (1.0, 0.3)  # gains of the chunks that each chain makes at t = 1: the steps of its rung may be far too long


@storable
class Scout(NamedTuple):
    """What the short run on the prior path found."""

    draws: Draws
    chains: Chains
    log_evidence: float
    standard_error: float
    degrees_of_freedom: float
    evaluations: int


def scout(model: Model, options: SamplerOptions, key: Array, session: Session) -> Scout:
    """Run the prior path briefly, on a ladder that adapts, and then chains at t = 1 from everywhere."""
    options = replace(options, length=CHUNK, schedule=SHORT, adapt_ladder=True, cheap_to_run=cheap_to_run(model))
    sampler = make_sampler(Path(model), ladders.power(SCOUT_RUNGS), options, key, session=session)
    draws = concatenate([sampler.chunk() for _ in range(DRAWS // CHUNK)])
    g, position = np.asarray(draws.log_likelihood), np.asarray(draws.position)
    ratios = bridge(g, sampler.ladder, 5)
    error = batch_error(ratios.series)
    # Prior draws without likelihood are part of the evidence; the path starts where there is some.
    supported = 1 - np.asarray(draws.outside)[:, :, 0].mean()
    value = ratios.value + float(np.log(max(supported, 1 / g[..., 0].size)))

    from_prior, evaluations = position[:, : reference_draws(sampler.ladder), 0], 0
    if model.differentiable:
        from_prior = ascend(model, from_prior, SCOUT_RUNGS)
        evaluations = (1 + SCOUT_RUNGS) * from_prior[..., 0].size
    starts = np.concatenate([scatter(position, CHAINS), scatter_groups(from_prior, SCOUT_RUNGS)])
    gains: tuple[float, ...] = DESCENT
    if model.metric is not None:
        starts, steps = levenberg_marquardt(model, starts, generator(keys.fold_in(key, len(position))))
        gains, evaluations = DESCENT[:1], evaluations + (1 + steps) * starts[..., 0].size
    chains = gather_chains([sampler.descend(start, gains) for start in starts])
    evaluations += sampler.evaluations
    return Scout(draws, chains, value, error.error, error.degrees_of_freedom, evaluations)


def scatter(position: np.ndarray, times: int) -> np.ndarray:
    """Choose draws of every rung that are far from each other, ``times`` for each population.

    Args:
        position: [population, draw, rung, d].
        times: number of draws.

    Returns:
        [times, population, rung, d].
    """
    populations, _, rungs, d = position.shape
    chosen = np.empty((rungs, times * populations, d))
    for rung in range(rungs):
        x = position[:, :, rung].reshape(-1, d)
        chosen[rung] = x[far_apart(x, times * populations)]
    return np.moveaxis(chosen.reshape(rungs, times, populations, d), 0, 2)


def scatter_groups(position: np.ndarray, rungs: int) -> np.ndarray:
    """Choose one of [population, many, d] for each rung of each population, [1, population, rung, d].

    They are groups of neighbours that are far from each other, so that no mode has a single chain.
    """
    populations, _, d = position.shape
    x = position.reshape(-1, d)
    z = x / spread(x)
    centres = far_apart(x, populations * rungs // (2 * CHAINS))
    nearest = np.argsort(np.sum((z[centres, None] - z) ** 2, axis=-1), axis=1)[:, : 2 * CHAINS]
    return x[nearest].reshape(1, populations, rungs, d)


def far_apart(x: np.ndarray, count: int) -> np.ndarray:
    """Choose ``count`` of x[n, d] that are far from each other: indices, the farthest from the mean first."""
    z = (x - x.mean(axis=0)) / np.maximum(x.std(axis=0), 1e-300)
    nearest = np.sum(z**2, axis=1)  # to the mean at first, then to those chosen
    chosen = []
    for _ in range(count):
        chosen.append(int(nearest.argmax()))
        nearest = np.minimum(nearest, np.sum((z - z[chosen[-1]]) ** 2, axis=1))
    return np.array(chosen)


def gather_chains(pieces: list[Draws]) -> Chains:
    """Gather the chains at t = 1, but for those that are still far below where others are."""
    log_density = np.stack([np.asarray(log_joint(piece)).mean(axis=1) for piece in pieces])
    _, position, score = (np.stack(parts).swapaxes(2, 3) for parts in zip(*map(scored_draws, pieces), strict=True))
    arrived = log_density > log_density.max() - (10 + 2 * position.shape[-1])  # [piece, population, rung]
    return Chains(position[arrived], score[arrived], log_density[arrived])
