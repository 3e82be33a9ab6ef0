"""Sums of features: all that the estimators need of the draws, in memory that does not grow with their number."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from thermint.control.basis import mixture_features, size
from thermint.model.draws import Draws, at_rung
from thermint.path.coordinates import RungMoments
from thermint.runtime.linalg import one_thread
from thermint.runtime.store import storable

TARGET_NAMES = ("y", "y^2", "up", "down")  # y = (g - centre) / spread, and the bridges to the rungs above and below
TARGETS = len(TARGET_NAMES)
# Exponentials up to this size have squares whose sums are finite. Rungs so far apart have nothing in common.
LARGEST_EXPONENT = float(np.log(np.sqrt(np.finfo(float).max) * np.finfo(float).eps))


@storable
class Gram(NamedTuple):
    """First moments per batch and second moments per fold of the vector [1, y, y^2, up, down, features].

    up = exp(step (g - centre) / 2) with the step of t to the next rung, and down = exp(-step (g - centre) / 2) with the
    step from the one below, are what the bridge form of stepping stones averages.

    A batch is a block of consecutive draws of one population; a fold is a run of batches, the same in every population.
    """

    frame: RungMoments
    number: np.ndarray  # [batch], draws of one population in it
    first: np.ndarray  # [batch, population, rung, feature], sums
    second: np.ndarray  # [fold, rung, feature, feature], sums

    @property
    def fold(self) -> np.ndarray:
        """The fold to which each batch belongs, [batch]."""
        batches, folds = len(self.number), len(self.second)
        return np.arange(batches) * folds // batches


def empty(frame: RungMoments, *, populations: int, batches: int, folds: int, degree: int, cross: bool) -> Gram:
    """Make a Gram of no draws."""
    rungs, components, d = frame.mean.shape
    width = 1 + TARGETS + size(d, degree, cross, components)
    return Gram(
        frame=frame,
        number=np.zeros(batches),
        first=np.zeros((batches, populations, rungs, width)),
        second=np.zeros((folds, rungs, width, width)),
    )


def accumulate(
    gram: Gram, draws: Draws, batch: int, *, degree: int, cross: bool, every: int = 1
) -> tuple[Gram, np.ndarray]:
    """Add a chunk of draws to one batch; by NumPy, whose BLAS takes a third of XLA's time for the products.

    Args:
        gram: what was accumulated so far, to which this is added.
        draws: a chunk.
        batch: index of the batch they belong to.
        degree: highest total degree of the trial functions.
        cross: whether these include products of different coordinates.
        every: norms are returned of one in so many draws.

    Returns:
        The sums, and the norms of the vectors of features up to degree 1, 2, ...: [degree, rung, draw].
    """
    populations, length, rungs = draws.log_prior.shape
    components, d = gram.frame.mean.shape[1:]
    sizes = [1 + TARGETS + size(d, k, cross, components) for k in range(degree + 1)]
    squares = np.empty((degree, rungs, len(range(0, populations * length, every))))
    steps = np.diff(np.asarray(draws.ladder), prepend=draws.ladder[0], append=draws.ladder[-1])
    fold = gram.fold[batch]
    gram.number[batch] += length
    with one_thread():
        for rung in range(rungs):
            frame = RungMoments(*(part[rung] for part in gram.frame))
            rows = _rows(*at_rung(draws, rung), frame, steps[rung], steps[rung + 1], degree, cross)
            gram.first[batch, :, rung] += rows.reshape(-1, populations, length).sum(axis=-1).T
            gram.second[fold, rung] += rows @ rows.T
            for k, (low, high) in enumerate(pairwise(sizes)):
                squares[k, rung] = np.sum(rows[low:high, ::every] ** 2, axis=0)
    return gram, np.sqrt(np.cumsum(squares, axis=0))


def _rows(
    position: np.ndarray,
    g: np.ndarray,
    score: np.ndarray,
    frame: RungMoments,
    below: float,
    above: float,
    degree: int,
    cross: bool,
) -> np.ndarray:
    """Make the vectors of one rung whose moments a Gram has, [feature, draw]; ``below`` and ``above`` are the steps."""
    features = mixture_features(position, score, *frame[:3], degree, cross)
    deviation = g - frame.centre
    y = deviation / frame.spread
    exponents = np.stack([above * deviation / 2, -below * deviation / 2])
    up, down = np.exp(np.clip(exponents, -LARGEST_EXPONENT, LARGEST_EXPONENT))
    return np.concatenate([np.stack([np.ones_like(y), y, y**2, up, down]), features])
