"""One run of a path: draws go into a Gram as they come, and only what the estimators need is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from thermint.control.gram import Gram
from thermint.control.plan import Plan
from thermint.estimators.path_summary import (
    MAX_KEPT,
    Moves,
    PathSummary,
    average_moves,
    join_posterior,
    moves_of,
    posterior_of,
)
from thermint.model.draws import Draws, ScoredDraws, concatenate, join, scored_draws
from thermint.model.result import Posterior
from thermint.path.coordinates import RungMoments
from thermint.runtime.session import Session
from thermint.runtime.store import storable
from thermint.sampling.sampler import Sampler
from thermint.sampling.scheduler import SamplerState


@storable
class RunAccumulator(NamedTuple):
    """What is kept while a run goes on; lists are of chunks."""

    plan: Plan
    gram: Gram
    g: list[np.ndarray]
    feature_norms: list[np.ndarray]
    moves: list[Moves]  # one entry a batch
    batch: list[Moves]  # of the batch that is not full yet
    thinned: list[ScoredDraws]
    last: list[Posterior]
    all: list[Draws] | None
    drawn: int
    place: SamplerState  # where the sampler is

    def joined(self) -> RunAccumulator:
        """Join the lists of chunks, whose number grows with that of draws."""
        return self._replace(
            g=[np.concatenate(self.g, axis=1)],
            feature_norms=[np.concatenate(self.feature_norms, axis=2)],
            thinned=[join(self.thinned)],
            last=[join_posterior(self.last)],
            all=[concatenate(self.all)] if self.all else self.all,
        )

    def summary(self) -> PathSummary:
        """Put together what there is."""
        one = self.joined()
        every = one.all[0] if one.all else None
        found = one.g[0], one.feature_norms[0], self.moves, one.thinned[0], one.last[0], every
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
    thinning = -(-plan.draws * populations * rungs // MAX_KEPT)
    sparing = -(-plan.draws * populations // MAX_KEPT)
    piece = sampler.chunk(ahead=(plan.draws - drawn - 1) // plan.length)
    scored = (np.array(a[:, -drawn % thinning :: thinning]) for a in scored_draws(piece))
    gram, norms = plan.accumulate(kept.gram, piece, drawn // (plan.length * plan.chunks), every=sparing)
    batch = [*kept.batch, moves_of(piece)]
    full = len(batch) == plan.chunks
    return RunAccumulator(
        plan,
        gram,
        g=[*kept.g, np.array(piece.log_likelihood[:, -drawn % plan.thinning :: plan.thinning])],
        feature_norms=[*kept.feature_norms, norms],
        moves=[*kept.moves, average_moves(batch)] if full else kept.moves,
        batch=[] if full else batch,
        thinned=[*kept.thinned, ScoredDraws(*scored)],
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


def kept_bytes(draws: int, populations: int, rungs: int, dimension: int) -> int:
    """Return what all draws of a run take: position, two gradients and six numbers each."""
    return draws * populations * rungs * (3 * dimension + 6) * 8
