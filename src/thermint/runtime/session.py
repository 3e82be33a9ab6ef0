"""A run's contact with its user: progress, checkpoint and Ctrl-C."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, TypeVar

import numpy as np

from thermint.runtime.hosts import broadcast_scalar
from thermint.runtime.journal import Journal
from thermint.runtime.progress import Progress

T = TypeVar("T")

MAX_STEP_SECONDS = 10.0  # of one call of a compiled program: Ctrl-C waits for its end


class Session:
    """One call of `evidence`: its progress, its journal, and Ctrl-C.

    The first Ctrl-C sets a flag that is read after every step; the second is Python's own.
    """

    def __init__(self, bar: Progress | None = None, journal: Journal | None = None) -> None:
        self.bar = bar or Progress(False)
        self.journal = journal or Journal(None, {})
        self.begin = time.perf_counter() - self.journal.seconds
        self._asked_to_stop = False
        self._previous: Any = None
        self._steps = 0
        self._pace = np.inf  # seconds of one evaluation, in the fastest step

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
        """Whether the user wants to stop, in any process; the same in all."""
        return bool(broadcast_scalar(float(self._asked_to_stop), max))

    def stop_if_asked(self) -> None:
        """Save and raise KeyboardInterrupt if the user wants to stop, where there is no answer yet."""
        if not self.stopping:
            return
        self.journal.write()
        said = "stopped before there was an answer."
        if self.journal.path is not None:
            said += f" All that was done is in {self.journal.path}: the same call goes on from there."
        raise KeyboardInterrupt(said)

    def step(self, make: Callable[[int], T], wanted: int, cost: int) -> T:
        """Make a step of up to ``wanted`` iterations of ``cost`` evaluations each; fewer where the model is slow.

        Their number does not change the answer.
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
        """Return how many iterations, of up to ``wanted``, take no more than `MAX_STEP_SECONDS`."""
        return max(1, int(min(wanted, MAX_STEP_SECONDS / max(self._pace * cost, 1e-12))))
