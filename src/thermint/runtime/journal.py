"""What a run has done so far, in a file from which the same call resumes as if it had never stopped."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from thermint.runtime import store
from thermint.runtime.hosts import broadcast_scalar, share_bytes
from thermint.runtime.store import DamagedError

T = TypeVar("T")

FORMAT = 2  # of the file: raise it when a class in it, or a field of one, gets another name or meaning
KEYS = ("format", "origin", "identity", "budget", "seconds", "stages", "steps")  # of the file
SAVE_INTERVAL = 30.0  # seconds of work that a killed run loses at most; a file of 15 MB takes 0.1 s to write
FINGERPRINT_RTOL = 1e-9  # of a model's values: machines differ by 1e-15 an operation, other data by more than this


class ChangedError(ValueError):
    """A checkpoint of another model, of other settings or of another version."""


class Journal:
    """The results of a run's finished stages, and of the steps of its unfinished one.

    A run is a sequence of stages, each made of steps. All else is quick and follows from their results. So a run that
    is repeated with these results arrives where it was, to the bit.

    Args:
        path: of the file; None keeps nothing.
        identity: what two calls must have in common to be the same run; see `difference`.
        origin: where the model came from, for those who resume.
        budget: when to stop, likewise.
    """

    def __init__(
        self,
        path: Path | None,
        identity: dict[str, Any],
        *,
        origin: str = "",
        budget: Mapping[str, float | None] | None = None,
    ) -> None:
        self.path = path
        self._notes = origin, dict(budget or {})
        self.problem = ""  # why the file could not be written, if so
        self._identity = identity
        self._stages: dict[str, Any] = {}  # results, or functions that make them
        self._steps: list[Any] = []  # of the unfinished stage
        self._again: deque[Any] = deque()  # recorded steps that are still to be repeated
        self._before = 0.0  # seconds of earlier processes
        self._begin = self._written = time.monotonic()
        if path is not None:
            self._load(path)

    @property
    def seconds(self) -> float:
        """Wall time of the run, earlier processes included."""
        return self._before + time.monotonic() - self._begin

    def get(self, stage: str) -> Any:
        """Return the result of a stage, or None if it is not finished."""
        value = self._stages.get(stage)
        return value() if callable(value) else value

    def put(self, stage: str, value: Any) -> None:
        """Record the result of a stage, or a function that makes it when it is needed, and drop the stage's steps."""
        if self.path is not None:
            self._stages[stage] = value
            self._steps.clear()
            self._write_if_due()

    def forget(self, stage: str) -> None:
        """Drop the result of a stage that no later one needs."""
        self._stages.pop(stage, None)

    def stage(self, name: str, make: Callable[[], T]) -> T:
        """Return the recorded result of a stage, or make it now."""
        if name not in self._stages:
            value = make()
            self.put(name, value)
            return value
        return self.get(name)

    def step(self, make: Callable[[], T]) -> T:
        """Return the recorded result of this step, or make it now."""
        if self.path is None:
            return make()
        self._steps.append(self._again.popleft() if self._again else make())
        if not self._again:
            self._write_if_due()
        return self._steps[-1]

    def write(self) -> None:
        """Write the file now. If that fails, the file stays as it was and the run goes on; its result will say so."""
        if self.path is None:
            return
        stages = {name: self.get(name) for name in self._stages}
        steps = [*self._steps, *self._again]
        origin, budget = self._notes
        values = (FORMAT, origin, self._identity, budget, self.seconds, stages, steps)
        content = dict(zip(KEYS, values, strict=True))
        self.problem = share_bytes(lambda: self._saved(content).encode()).decode()
        self._written = time.monotonic()

    def _saved(self, content: dict[str, Any]) -> str:
        """Write the file; return a message if that failed."""
        assert self.path is not None
        try:
            store.write(self.path, content)
        except OSError as error:
            return (
                f"the checkpoint {self.path} could not be written ({error.strerror}): it holds the run as it was "
                "before, if at all. Make room, and run again to go on from there."
            )
        return ""

    def _write_if_due(self) -> None:
        if broadcast_scalar(float(time.monotonic() - self._written > SAVE_INTERVAL)):
            self.write()

    def _load(self, path: Path) -> None:
        """Read the file, if there is one, or refuse it."""
        content = contents(path)
        if content is None:
            return
        said = difference(content["identity"], self._identity)
        if said:
            raise ChangedError(
                f"{path} is the checkpoint of another run: {said}. Use the same model and settings to go on (budgets "
                "and target_error may change), or give another file."
            )
        self._stages = content["stages"]
        self._again = deque(content["steps"])
        self._before = content["seconds"]


def contents(path: Path) -> dict[str, Any] | None:
    """Read a checkpoint in the first process, for all of them; None if there is none.

    Raises:
        DamagedError: the file is damaged, or no checkpoint.
    """

    def local() -> bytes:
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return b""

    whole = share_bytes(local)
    if not whole:
        return None
    content = store.parse(whole, path, partial(_check_format, path))
    if not isinstance(content, dict) or not set(KEYS) <= set(content):
        raise DamagedError(f"{path} is a file of thermint's, but not a checkpoint that this version can read.")
    return content


def _check_format(path: Path, entries: dict[str, Any]) -> None:
    """Refuse the checkpoint of another version before its classes, which may not exist here, are looked up."""
    found = entries.get("format", FORMAT)
    if isinstance(found, int) and found != FORMAT:
        age = "an earlier" if found < FORMAT else "a later"
        raise ChangedError(
            f"{path} was written by {age} version of thermint (format {found}, and this version reads {FORMAT}). End "
            "the run with that version, or give another file to begin anew."
        )


def difference(old: Any, new: Any, name: str = "") -> str:
    """Name the first entry in which two identities differ by more than rounding; "" if there is none."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            said = difference(old.get(key), new.get(key), f"{name}, {key}" if name else str(key))
            if said:
                return said
        return ""
    if isinstance(old, float) and isinstance(new, float):
        same = np.isclose(old, new, rtol=FINGERPRINT_RTOL, atol=FINGERPRINT_RTOL, equal_nan=True)
    else:
        same = old == new
    return "" if same else f"{name} was {old!r} and is {new!r}"
