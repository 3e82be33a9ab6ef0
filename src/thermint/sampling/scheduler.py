"""When chunks of draws are made: in pieces that are short enough to interrupt, and ahead of their time."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import numpy as np

from thermint.model.draws import Draws, concatenate
from thermint.path.coordinates import RungMoments
from thermint.path.ladders import Ladder
from thermint.runtime.session import Session
from thermint.runtime.store import storable
from thermint.sampling import population as pop
from thermint.sampling.population import Chunk, Engine, Population, Rungs


@storable
class SamplerState(NamedTuple):
    """Resumable state of a sampler after its warm-up."""

    ladder: Ladder
    precision_factor: np.ndarray  # [rung, d, d]
    frame: RungMoments
    population: Population
    iteration: int
    evaluations: int  # of the likelihood, so far


class LaunchArgs(NamedTuple):
    """Which iterations are made, and from where; see `population.launch`."""

    before: Population | Chunk
    precision_factor: np.ndarray
    ladder: Ladder
    iteration: int
    gain: float
    stop: int

    def same(self, other: LaunchArgs) -> bool:
        """Say whether these are the same iterations, from the very same arrays."""
        return all(a is b for a, b in zip(self[:3], other[:3], strict=True)) and self[3:] == other[3:]


class ChunkScheduler:
    """Makes chunks in as many steps as the model is slow, and begins with the next before they are needed."""

    def __init__(self, engine: Engine, keys: np.ndarray, cost: int, session: Session) -> None:
        self.engine = engine
        self.cost = cost  # evaluations for one draw from all rungs and populations
        self._keys, self._session = keys, session
        self._rungs: Rungs | None = None
        self._shared: tuple[Any, Any] = None, None  # the metric and ladder of those
        self._ahead: deque[tuple[LaunchArgs, Chunk]] = deque()  # what devices do already

    def __call__(
        self, now: Population, precision_factor: np.ndarray, ladder: Ladder, iteration: int, gain: float, stop: int
    ) -> tuple[Population, Draws]:
        """Run the iterations before ``stop``, and return where they led and what was drawn."""
        pieces: list[Draws] = []

        def piece(iterations: int) -> tuple[Population, Draws]:
            args = LaunchArgs(now, precision_factor, ladder, iteration, gain, iteration + iterations)
            if not self._ahead or not self._ahead[0][0].same(args):
                self._ahead.clear()
                return pop.collect(self._launch(args))
            end, draws = pop.collect(self._ahead.popleft()[1])
            if self._ahead:  # which goes on from there
                self._ahead[0] = self._ahead[0][0]._replace(before=end), self._ahead[0][1]
            return end, draws

        while iteration < stop:
            now, draws = self._session.step(piece, stop - iteration, self.cost)
            iteration += draws.log_prior.shape[1]
            pieces.append(draws)
        return now, concatenate(pieces)

    def look_ahead(self, place: SamplerState, chunks: int) -> None:
        """Have devices begin with up to so many of the next chunks, if they are made in one step each."""
        length = self.engine.length
        if self._session.affordable(length, self.cost) < length:
            return
        for ahead in range(len(self._ahead), min(chunks, 2)):  # one to work on, one to go on with
            before = self._ahead[-1][1] if ahead else place.population
            first = place.iteration + ahead * length
            args = LaunchArgs(before, place.precision_factor, place.ladder, first, 0.0, first + length)
            self._ahead.append((args, self._launch(args)))

    def _launch(self, args: LaunchArgs) -> Chunk:
        if self._rungs is None or self._shared[0] is not args.precision_factor or self._shared[1] is not args.ladder:
            self._rungs = pop.rungs_of(args.ladder, args.precision_factor)
            self._shared = args.precision_factor, args.ladder
        return pop.launch(self.engine, self._keys, args.before, self._rungs, *args[3:])
