"""Sums of features: all that the estimators need of the draws, in memory that does not grow with their number."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from thermint.basis import mixture_features, size
from thermint.draws import Draws
from thermint.frame import Frame
from thermint.model import Evaluation, score

# Exponents of this size mean that neighbouring rungs have nothing in common; their squares are still finite.
LARGEST_EXPONENT = 300.0
SPARING = 4  # one in so many draws shows how heavy the features' tails are
TARGETS = 4  # y = (g - centre) / spread, y^2, and the bridges to the rungs above and below


class Gram(NamedTuple):
    """First moments per batch and second moments per fold of the vector [1, y, y^2, up, down, features].

    up = exp(step (g - centre) / 2) with the step of t to the next rung, and down = exp(-step (g - centre) / 2) with the
    step from the one below, are what the bridge form of stepping stones averages.

    A batch is a block of consecutive draws of one population; a fold is a run of batches, the same in every population.
    """

    frame: Frame
    number: Array  # [batch], draws of one population in it
    first: Array  # [batch, population, rung, feature], sums
    second: Array  # [fold, rung, feature, feature], sums

    @property
    def fold(self) -> np.ndarray:
        """The fold to which each batch belongs, [batch]."""
        batches, folds = len(self.number), len(self.second)
        return np.arange(batches) * folds // batches


def empty(frame: Frame, *, populations: int, batches: int, folds: int, degree: int, cross: bool) -> Gram:
    """Make a Gram of no draws."""
    rungs, components, d = frame.mean.shape
    width = 1 + TARGETS + size(d, degree, cross, components)
    return Gram(
        frame=frame,
        number=jnp.zeros(batches),
        first=jnp.zeros((batches, populations, rungs, width)),
        second=jnp.zeros((folds, rungs, width, width)),
    )


@partial(jax.jit, static_argnames=("degree", "cross"), donate_argnames=("gram",))
def accumulate(
    gram: Gram, draws: Draws, weight: Array, batch: Array, fold: Array, *, degree: int, cross: bool
) -> tuple[Gram, Array]:
    """Add a chunk of draws to one batch.

    Args:
        gram: what was accumulated so far; its memory is reused.
        draws: a chunk.
        weight: [draw], 1 for draws that count and 0 for padding.
        batch: index of the batch they belong to.
        fold: index of the batch's fold.
        degree: of the trial functions.
        cross: whether these include products of different coordinates.

    Returns:
        The sums, and how large the features up to degree 1, 2, ... were at one in `SPARING` of the draws: the root of
        the sum of their squares, [degree, rung, draw].
    """
    components, d = gram.frame.mean.shape[1:]
    sizes = [size(d, k, cross, components) for k in range(degree + 1)]

    def of_rung(frame: Frame, t: Array, above: Array, below: Array, state: Evaluation) -> tuple[Array, Array, Array]:
        populations, length = state.log_prior.shape
        state = jax.tree.map(lambda a: a.reshape(populations * length, *a.shape[2:]), state)
        scores = jax.vmap(score, (0, None))(state, t)
        features = mixture_features(state.position, scores, *frame[:3], degree, cross)
        deviation = state.log_likelihood - frame.centre
        y = deviation / frame.spread
        exponents = jnp.stack([above * deviation / 2, -below * deviation / 2])
        up, down = jnp.exp(jnp.clip(exponents, -LARGEST_EXPONENT, LARGEST_EXPONENT))
        rows = jnp.concatenate([jnp.stack([jnp.ones_like(y), y, y**2, up, down]), features])
        weighted = rows * jnp.tile(weight, populations)
        first = weighted.reshape(len(rows), populations, length).sum(axis=-1).T
        some = weighted[1 + TARGETS :, ::SPARING]  # of the features themselves, XLA would compute all again
        sums = [jnp.sum(some[low:high] ** 2, axis=0) for low, high in pairwise(sizes)]
        return first, weighted @ rows.T, jnp.array(sums).reshape(degree, some.shape[1])

    state = Evaluation(*map(jnp.asarray, draws[1:6]))
    ladder = jnp.asarray(draws.ladder)
    above, below = jnp.diff(ladder, append=ladder[-1:]), jnp.diff(ladder, prepend=ladder[:1])
    by_rung = jax.vmap(of_rung, in_axes=(0, 0, 0, 0, 2), out_axes=(1, 0, 1))
    first, second, sums = by_rung(gram.frame, ladder, above, below, state)
    total = gram._replace(
        number=gram.number.at[batch].add(weight.sum()),
        first=gram.first.at[batch].add(first),
        second=gram.second.at[fold].add(second),
    )
    return total, jnp.sqrt(jnp.cumsum(sums, axis=0))
