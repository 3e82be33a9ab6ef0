"""How a run talks with the world: what it shows, what it keeps in its file, and when it is told to stop."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, TypeVar

import numpy as np

from thermint.runtime.devices import broadcast_scalar
from thermint.runtime.journal import Journal
from thermint.runtime.progress import Progress

T = TypeVar("T")

PIECE = 10.0  # seconds that one call of a compiled program should take at most: nothing interrupts it


class Session:
    """One call of `evidence`: its progress, its journal, and Ctrl-C.

    The first Ctrl-C is noted, and asked for after every step; the second is Python's own.
    """

    def __init__(self, bar: Progress | None = None, journal: Journal | None = None) -> None:
        self.bar = bar or Progress(False)
        self.journal = journal or Journal(None, {})
        self.begin = time.perf_counter() - self.journal.seconds
        self._asked_to_stop = False
        self._previous: Any = None
        self._steps = 0
        self._pace = np.inf  # seconds of one evaluation, as the fastest step has it

    def __enter__(self) -> Session:
        self.bar.__enter__()
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)
        self.bar.__exit__(kind, error, trace)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._asked_to_stop:
            raise KeyboardInterrupt
        self._asked_to_stop = True
        self.bar.say("stopping at the next opportunity; Ctrl-C again stops at once, and loses what is not saved")

    @property
    def stopping(self) -> bool:
        """Say whether the user wants to stop, in whatever process; the same in all."""
        return bool(broadcast_scalar(float(self._asked_to_stop), max))

    def stop_if_asked(self) -> None:
        """Save and leave, if the user wants to, where there is no answer yet."""
        if not self.stopping:
            return
        self.journal.write()
        said = "stopped before there was an answer."
        if self.journal.path is not None:
            said += f" All that was done is in {self.journal.path}: the same call goes on from there."
        raise KeyboardInterrupt(said)

    def step(self, make: Callable[[int], T], wanted: int, cost: int) -> T:
        """Make a step of up to so many iterations, each of so many evaluations; few where the model is slow.

        How it is cut changes nothing: the same program makes pieces of any length.
        """
        number = int(broadcast_scalar(self.affordable(wanted, cost)))

        def timed() -> T:
            begin = time.perf_counter()
            made = make(number)
            self._steps += 1
            if self._steps > 1:  # the first has compiled the program
                self._pace = min(self._pace, (time.perf_counter() - begin) / (number * cost))
            return made

        return self.journal.step(timed)

    def affordable(self, wanted: int, cost: int) -> int:
        """Say how many iterations of up to so many one step should make."""
        return max(1, int(min(wanted, PIECE / max(self._pace * cost, 1e-12))))
