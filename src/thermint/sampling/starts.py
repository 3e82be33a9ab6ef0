"""Where populations start: at draws from the reference, or at given positions."""

from __future__ import annotations

import jax
import numpy as np
from jax import Array

from thermint.kernels import Kernel
from thermint.kernels.base import traits_of
from thermint.model.checks import check_gradients, check_values, shifts
from thermint.model.draws import Array as AnyArray
from thermint.model.evaluation import Evaluation, usable
from thermint.path.ladders import Ladder
from thermint.path.path import Path
from thermint.runtime.keys import fold_in, key_data
from thermint.sampling.noise import Block, noise
from thermint.sampling.population import Population

STARTS = 64  # draws of the reference that chains of a population may start from


def start_at_reference(
    path: Path, keys: Array | np.ndarray, ladder: Ladder, check: bool = True
) -> tuple[Evaluation, np.ndarray]:
    """Begin every rung at one of many draws from the reference, chosen with weight likelihood^t.

    Args:
        path: from the reference to the posterior.
        keys: one for each population.
        ladder: inverse temperatures.
        check: refuse a model that is NaN at any of the draws, or has wrong gradients; else those are not chosen.

    Returns:
        The states, [population, rung], and the standard deviations of the reference, [d], as the draws show them.

    Raises:
        ValueError: the model's values at these draws are unusable; the message says which and where.
    """
    # Iterations count from 0, so that this key is no iteration's.
    keys = fold_in(keys, 2**32 - 1)
    (chance,) = noise(keys, 0, reference_draws(ladder), Block(1, path.model.dimension, 2))
    draws = path.evaluate_many(path.draw(keys, 0, chance[:, :, 0]))
    # From the middle half of the draws, because a reference need not have a variance.
    low, high = np.quantile(draws.position, [0.25, 0.75], axis=(0, 1))
    deviation = (high - low) / 1.349
    if check:
        check_values(path.model, draws)
        if path.model.differentiable:
            shift = shifts(draws.position.shape, deviation)
            beside = (path.evaluate_many(draws.position + s) for s in (shift, -shift))
            check_gradients(path.model, draws, shift, *beside)
    g = draws.log_likelihood
    supported = usable(draws)
    spare = np.argwhere(supported)[0]  # for a population none of whose own draws has a likelihood
    chosen = np.tile(spare, (len(keys), len(ladder), 1))
    for population, seed in enumerate(key_data(keys)):
        own = np.flatnonzero(supported[population])
        if len(own):
            # The largest of log weight + Gumbel noise is a draw with these weights.
            gumbel = np.random.default_rng(seed).gumbel(size=(len(ladder), len(own)))
            chosen[population, :, 0] = population
            chosen[population, :, 1] = own[np.argmax(ladder[:, None] * g[population, own] + gumbel, axis=1)]
    return jax.tree.map(lambda a: a[chosen[..., 0], chosen[..., 1]], draws), deviation


def start_at(path: Path, position: np.ndarray) -> Evaluation:
    """Begin at given positions, [population, rung, d]."""
    # As many as `start_at_reference` evaluates, so that the program is compiled already.
    rungs = position.shape[1]
    many = np.resize(np.arange(rungs), reference_draws(position[0, :, 0]))
    return jax.tree.map(lambda a: a[:, :rungs], path.evaluate_many(position[:, many]))


def reference_draws(ladder: Ladder) -> int:
    """Return how many draws of the reference `start_at_reference` makes for each population."""
    return max(STARTS, len(ladder))


def begin(state: Evaluation, log_step: AnyArray, carry: AnyArray | None = None) -> Population:
    """Make a population that has not been anywhere yet."""
    return Population(state, log_step, np.zeros(log_step.shape), carry)


def draw_carry(kernel: Kernel, keys: np.ndarray, rungs: int, d: int) -> np.ndarray | None:
    """Draw the kernel's own state for the first iteration, if it has one: [population, rung, carry]."""
    carry = traits_of(kernel).carry(d)
    own = fold_in(keys, 2**32 - 2)  # no iteration's, and not that of `start`
    return noise(own, 0, 1, Block(rungs, carry, 0))[0][:, 0] if carry else None
