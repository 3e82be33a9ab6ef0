"""One run of a path: draws go into a Gram as they come, and only what the estimators need is kept."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import jax
import numpy as np

from thermint.draws import Array, Draws, Located, join, locate
from thermint.frame import Frame, frame_of
from thermint.gram import SPARING, Gram
from thermint.ladders import Ladder
from thermint.plan import Plan
from thermint.result import Posterior
from thermint.sampler import Sampler

MOST_LOCATED = 4000  # draws whose positions are kept, of all rungs and populations
MOST_POSTERIOR = 4000  # draws of the last rung whose positions are kept, of all populations
MOST_LARGE = 4000  # draws of each rung of which it is kept how large their features are


class Moves(NamedTuple):
    """What became of the moves of a batch of draws, averaged."""

    acceptance: np.ndarray  # [population, rung]
    outside: np.ndarray  # [population, rung], share of proposals of zero density
    invalid: float  # share of moves at which the model was NaN or +inf
    upward: np.ndarray  # [population, rung], share of states that come from the first rung; see `Draws`


class Run(NamedTuple):
    """All that is kept of the draws of a path."""

    ladder: Ladder
    plan: Plan
    gram: Gram
    g: np.ndarray  # log likelihood, [population, draw, rung]
    large: np.ndarray  # how large the features were, [degree, rung, some of the draws]
    moves: list[Moves]  # one entry a batch
    some: Located  # of the draws
    posterior: Posterior  # draws of the last rung, as the path has them


def run(sampler: Sampler, frame: Frame, plan: Plan, on_batch: Callable[[int, Callable[[], Run]], None]) -> Run:
    """Draw what the plan says.

    Args:
        sampler: after its warm-up.
        frame: the coordinates of the features.
        plan: how many draws, and which features.
        on_batch: called after each batch with the number of draws, and a function that puts together what there is.
    """
    populations = sampler.last.log_prior.shape[0]
    gram = plan.empty(frame, populations)
    traces: list[np.ndarray] = []
    sizes: list[np.ndarray] = []
    some: list[Located] = []
    last: list[Posterior] = []
    moves: list[Moves] = []
    drawn = 0
    thinning = -(-plan.draws * populations * len(sampler.ladder) // MOST_LOCATED)
    sparing = -(-plan.draws * populations // MOST_POSTERIOR)
    sizing = -(-plan.draws * populations // (SPARING * MOST_LARGE))

    def so_far() -> Run:
        g = np.concatenate(traces, axis=1)
        large = np.concatenate(sizes, axis=2)
        return Run(sampler.ladder, plan, gram, g, large, moves, join(some), join_posterior(last))

    for batch in range(plan.batches):
        pieces = []
        for _ in range(plan.chunks):
            piece = sampler.chunk()
            gram, large = plan.accumulate(gram, piece, batch)
            sizes.append(large[:, :, ::sizing])
            pieces.append(moves_of(piece))
            traces.append(np.array(piece.log_likelihood[:, -drawn % plan.thinning :: plan.thinning]))
            some.append(Located(*(np.array(a[:, -drawn % thinning :: thinning]) for a in locate(piece))))
            last.append(posterior_of(piece, -drawn % sparing, sparing))
            drawn += plan.length
        moves.append(average(pieces))
        on_batch(drawn, so_far)
    return so_far()


def run_of(draws: Draws, plan: Plan) -> Run:
    """Take draws that there are already, in as many batches as the plan says."""
    populations, number = draws.log_prior.shape[:2]
    gram = plan.empty(frame_of(draws), populations)
    edges = np.linspace(0, number, plan.batches + 1).round().astype(int)
    sizing = -(-number * populations // (SPARING * MOST_LARGE))
    longest = np.diff(edges).max()
    moves, sizes = [], []
    for batch, (start, stop) in enumerate(pairwise(edges)):
        # Batches may differ by one draw; a neighbour of weight 0 fills the shorter ones: one program serves all.
        first = min(start, number - longest)
        weight = np.arange(first, first + longest)
        weight = ((weight >= start) & (weight < stop)).astype(float)
        gram, large = plan.accumulate(gram, draws.block(first, first + longest), batch, weight)
        sizes.append(large[:, :, ::sizing])
        moves.append(moves_of(draws.block(start, stop)))
    some = locate(draws)
    last = posterior_of(draws, 0, -(-number * populations // MOST_POSTERIOR))
    return Run(np.asarray(draws.ladder), plan, gram, some.g, np.concatenate(sizes, axis=2), moves, some, last)


def posterior_of(draws: Draws, start: int, step: int) -> Posterior:
    """Take every so many draws of the last rung; position, prior and likelihood are those of the path."""

    def taken(a: Array) -> np.ndarray:
        return np.array(a[:, start::step, -1])

    acceptance = None if draws.acceptance is None else taken(draws.acceptance)
    return Posterior({"theta": taken(draws.position)}, taken(draws.log_likelihood), taken(draws.log_prior), acceptance)


def join_posterior(pieces: list[Posterior]) -> Posterior:
    """Join along the draw axis."""
    return jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *pieces)


def moves_of(draws: Draws) -> Moves:
    """Average over the draws; where the sampler did not say, all moves were accepted and none fell outside."""
    shape = np.shape(draws.log_prior)
    acceptance = np.ones(shape) if draws.acceptance is None else np.asarray(draws.acceptance)
    outside = np.zeros(shape) if draws.outside is None else np.asarray(draws.outside)
    upward = np.full(shape, np.nan) if draws.upward is None else np.asarray(draws.upward)
    invalid = float(np.isnan(acceptance).mean())
    return Moves(np.nan_to_num(acceptance).mean(axis=1), outside.mean(axis=1), invalid, upward.mean(axis=1))


def average(pieces: list[Moves]) -> Moves:
    """Average over chunks of equal length."""
    acceptance, outside, invalid, upward = (np.mean(part, axis=0) for part in zip(*pieces, strict=True))
    return Moves(acceptance, outside, float(invalid), upward)
