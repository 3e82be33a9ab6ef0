"""What estimators keep of the draws of a path, whoever made them."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import jax
import numpy as np

from thermint.control.gram import Gram
from thermint.control.plan import Plan
from thermint.model.draws import Array, Draws, ScoredDraws, scored_draws
from thermint.model.result import Posterior
from thermint.path.coordinates import rung_moments
from thermint.path.fitting import MAX_DRAWS
from thermint.path.ladders import Ladder
from thermint.runtime.store import storable

MAX_KEPT = MAX_DRAWS  # draws that are kept for refits, as posterior draws, and for the tails of features, of each rung


@storable
class Moves(NamedTuple):
    """What became of the moves of a batch of draws, averaged."""

    acceptance: np.ndarray  # [population, rung]
    outside: np.ndarray  # [population, rung], share of proposals of zero density
    invalid: float  # share of moves at which the model was NaN or +inf
    last_visited_reference: np.ndarray  # [population, rung], share of states that come from the first rung; see `Draws`


class PathSummary(NamedTuple):
    """All that is kept of the draws of a path."""

    ladder: Ladder
    plan: Plan
    gram: Gram
    g: np.ndarray  # log likelihood, [population, draw, rung]
    feature_norms: np.ndarray  # [degree, rung, some of the draws]
    moves: list[Moves]  # one entry a batch
    thinned: ScoredDraws
    posterior: Posterior  # draws of the last rung, as the path has them
    draws: Draws | None = None  # all of them, if asked for


def summarise_draws(draws: Draws, plan: Plan) -> PathSummary:
    """Take draws that there are already, in as many batches as the plan says."""
    populations, number = draws.log_prior.shape[:2]
    gram = plan.empty(rung_moments(draws), populations)
    edges = np.linspace(0, number, plan.batches + 1).round().astype(int)
    step = -(-number * populations // MAX_KEPT)
    moves, norms = [], []
    for batch, (start, stop) in enumerate(pairwise(edges)):
        piece = draws.block(start, stop)
        gram, norm = plan.accumulate(gram, piece, batch, every=step)
        norms.append(norm)
        moves.append(moves_of(piece))
    scored = scored_draws(draws)
    last = posterior_of(draws, 0, step)
    ladder, feature_norms = np.asarray(draws.ladder), np.concatenate(norms, axis=2)
    return PathSummary(ladder, plan, gram, scored.g, feature_norms, moves, scored, last)


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

    def known(a: Array | None, otherwise: float) -> np.ndarray:
        return np.full(shape, otherwise) if a is None else np.asarray(a)

    acceptance = known(draws.acceptance, 1.0)
    return Moves(
        acceptance=np.nan_to_num(acceptance).mean(axis=1),
        outside=known(draws.outside, 0.0).mean(axis=1),
        invalid=float(np.isnan(acceptance).mean()),
        last_visited_reference=known(draws.last_visited_reference, np.nan).mean(axis=1),
    )


def average_moves(pieces: list[Moves]) -> Moves:
    """Average over chunks of equal length."""
    acceptance, outside, invalid, last_visited_reference = (np.mean(part, axis=0) for part in zip(*pieces, strict=True))
    return Moves(acceptance, outside, float(invalid), last_visited_reference)
