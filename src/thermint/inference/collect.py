"""One run of a path: draws go into a Gram as they come, and only what the estimators need is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import jax
import numpy as np

from thermint.control.gram import SPARING, Gram
from thermint.control.plan import Plan
from thermint.model.draws import Array, Draws, ScoredDraws, concatenate, join, scored_draws
from thermint.model.result import Posterior
from thermint.path.coordinates import RungMoments, rung_moments
from thermint.path.ladders import Ladder
from thermint.runtime.session import Session
from thermint.runtime.store import storable
from thermint.sampling.sampler import Sampler, SamplerState

MOST_LOCATED = 4000  # draws whose positions are kept, of all rungs and populations
MOST_POSTERIOR = 4000  # draws of the last rung whose positions are kept, of all populations
MOST_LARGE = 4000  # draws of each rung of which it is kept how large their features are


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
    large: np.ndarray  # how large the features were, [degree, rung, some of the draws]
    moves: list[Moves]  # one entry a batch
    some: ScoredDraws  # of the draws
    posterior: Posterior  # draws of the last rung, as the path has them
    draws: Draws | None = None  # all of them, if asked for


@storable
class RunAccumulator(NamedTuple):
    """What is kept while a run goes on; lists are of chunks."""

    plan: Plan
    gram: Gram
    g: list[np.ndarray]
    large: list[np.ndarray]
    moves: list[Moves]  # one entry a batch
    batch: list[Moves]  # of the batch that is not full yet
    some: list[ScoredDraws]
    last: list[Posterior]
    all: list[Draws] | None
    drawn: int
    place: SamplerState  # where the sampler is

    def joined(self) -> RunAccumulator:
        """Join the lists of chunks, whose number grows with that of draws."""
        return self._replace(
            g=[np.concatenate(self.g, axis=1)],
            large=[np.concatenate(self.large, axis=2)],
            some=[join(self.some)],
            last=[join_posterior(self.last)],
            all=[concatenate(self.all)] if self.all else self.all,
        )

    def summary(self) -> PathSummary:
        """Put together what there is."""
        one = self.joined()
        every = one.all[0] if one.all else None
        found = one.g[0], one.large[0], self.moves, one.some[0], one.last[0], every
        return PathSummary(self.place.ladder, self.plan, self.gram, *found)


def collect(
    sampler: Sampler,
    frame: RungMoments,
    plan: Plan,
    session: Session,
    *,
    stage: str = "draws",
    keep_draws: bool = False,
    describe: Callable[[RunAccumulator], str] = lambda _: "",
) -> PathSummary | None:
    """Draw what the plan says.

    Args:
        sampler: after its warm-up.
        frame: the coordinates of the features.
        plan: how many draws, and which features.
        session: is told of every chunk, remembers those of a run that was interrupted, and may ask to stop.
        stage: its name in the journal.
        keep_draws: keep all draws, of every rung.
        describe: what to show of the draws so far, where someone watches.

    Returns:
        What is kept of the draws; if it was asked to stop, of those in full folds, or None if there are none.
    """
    empty = plan.empty(frame, sampler.populations)
    every: list[Draws] | None = [] if keep_draws else None
    kept: RunAccumulator = session.journal.get(stage) or RunAccumulator(
        plan, empty, [], [], [], [], [], [], every, 0, sampler.place
    )
    while kept.drawn < plan.draws:
        kept = _add(kept, sampler)
        session.journal.put(stage, kept.joined)
        if not kept.batch:
            kept = kept.joined()
            session.bar.drawn(kept.drawn, plan.draws, partial(describe, kept))
        if session.stopping and kept.drawn < plan.draws:
            session.journal.write()
            return _full_folds(kept)
    return kept.summary()


def _add(kept: RunAccumulator, sampler: Sampler) -> RunAccumulator:
    """Draw a chunk, and keep what is needed of it."""
    plan, drawn = kept.plan, kept.drawn
    populations, rungs = sampler.populations, len(sampler.ladder)
    thinning = -(-plan.draws * populations * rungs // MOST_LOCATED)
    sparing = -(-plan.draws * populations // MOST_POSTERIOR)
    sizing = -(-plan.draws * populations // (SPARING * MOST_LARGE))
    piece = sampler.chunk(ahead=(plan.draws - drawn - 1) // plan.length)
    gram, large = plan.accumulate(kept.gram, piece, drawn // (plan.length * plan.chunks))
    batch = [*kept.batch, moves_of(piece)]
    full = len(batch) == plan.chunks
    return RunAccumulator(
        plan,
        gram,
        g=[*kept.g, np.array(piece.log_likelihood[:, -drawn % plan.thinning :: plan.thinning])],
        large=[*kept.large, large[:, :, ::sizing]],
        moves=[*kept.moves, average(batch)] if full else kept.moves,
        batch=[] if full else batch,
        some=[*kept.some, ScoredDraws(*(np.array(a[:, -drawn % thinning :: thinning]) for a in scored_draws(piece)))],
        last=[*kept.last, posterior_of(piece, -drawn % sparing, sparing)],
        all=None if kept.all is None else [*kept.all, piece],
        drawn=drawn + plan.length,
        place=sampler.place,
    )


def _full_folds(kept: RunAccumulator) -> PathSummary | None:
    """Take the draws of full folds, of which there must be two to fit coefficients to one and apply them to another."""
    plan = kept.plan
    per_fold = plan.batches // len(kept.gram.second)
    folds = len(kept.moves) // per_fold
    if folds < 2:
        return None
    batches = folds * per_fold
    number = -(-batches * plan.chunks * plan.length // plan.thinning)
    gram = kept.gram._replace(
        number=kept.gram.number[:batches], first=kept.gram.first[:batches], second=kept.gram.second[:folds]
    )
    made = kept.summary()
    return made._replace(
        plan=replace(plan, batches=batches), gram=gram, g=made.g[:, :number], moves=made.moves[:batches]
    )


def run_of(draws: Draws, plan: Plan) -> PathSummary:
    """Take draws that there are already, in as many batches as the plan says."""
    populations, number = draws.log_prior.shape[:2]
    gram = plan.empty(rung_moments(draws), populations)
    edges = np.linspace(0, number, plan.batches + 1).round().astype(int)
    sizing = -(-number * populations // (SPARING * MOST_LARGE))
    moves, sizes = [], []
    for batch, (start, stop) in enumerate(pairwise(edges)):
        piece = draws.block(start, stop)
        gram, large = plan.accumulate(gram, piece, batch)
        sizes.append(large[:, :, ::sizing])
        moves.append(moves_of(piece))
    some = scored_draws(draws)
    last = posterior_of(draws, 0, -(-number * populations // MOST_POSTERIOR))
    return PathSummary(np.asarray(draws.ladder), plan, gram, some.g, np.concatenate(sizes, axis=2), moves, some, last)


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
    last_visited_reference = (
        np.full(shape, np.nan) if draws.last_visited_reference is None else np.asarray(draws.last_visited_reference)
    )
    invalid = float(np.isnan(acceptance).mean())
    return Moves(
        np.nan_to_num(acceptance).mean(axis=1), outside.mean(axis=1), invalid, last_visited_reference.mean(axis=1)
    )


def average(pieces: list[Moves]) -> Moves:
    """Average over chunks of equal length."""
    acceptance, outside, invalid, last_visited_reference = (np.mean(part, axis=0) for part in zip(*pieces, strict=True))
    return Moves(acceptance, outside, float(invalid), last_visited_reference)


def kept_bytes(draws: int, populations: int, rungs: int, dimension: int) -> int:
    """Return what all draws of a run take: position, two gradients and six numbers each."""
    return draws * populations * rungs * (3 * dimension + 6) * 8
