"""What a run has done so far, in a file from which the same call goes on as if it had never stopped."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from thermint.runtime import store
from thermint.runtime.devices import broadcast_scalar, share_bytes
from thermint.runtime.store import DamagedError

T = TypeVar("T")

FORMAT = 2
KEYS = ("format", "origin", "identity", "budget", "seconds", "stages", "steps")  # of the file
EVERY = 30.0  # seconds between writes, at most
CLOSE = 1e-9  # relative difference of a model's values that rounding explains


class ChangedError(ValueError):
    """A checkpoint of another model, of other settings or of another version."""


class Journal:
    """The stages of a run that are done, and the steps of the one that is not.

    A run is a sequence of stages, each made of steps; all that happens between steps is quick, and follows from what
    they gave. So a run that is begun again with what the stages and steps gave before arrives where it was, to the bit.

    Args:
        path: of the file; None keeps nothing.
        identity: what makes two runs the same; see `difference`.
        origin: where the model came from, for whoever wants to go on.
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
        self._stages: dict[str, Any] = {}  # values, or functions that make them when they are to be written
        self._steps: list[Any] = []  # of the stage that is not done
        self._again: deque[Any] = deque()  # steps of a previous run that are still to come
        self._before = 0.0  # seconds that previous runs took
        self._begin = self._written = time.monotonic()
        if path is not None:
            self._load(path)

    @property
    def seconds(self) -> float:
        """How long the run has taken, with all that came before."""
        return self._before + time.monotonic() - self._begin

    def get(self, stage: str) -> Any:
        """Return what a stage gave, if it is done, else None."""
        value = self._stages.get(stage)
        return value() if callable(value) else value

    def put(self, stage: str, value: Any) -> None:
        """Record what a stage gave, or a function that says so when asked; the steps that led there are forgotten."""
        if self.path is not None:
            self._stages[stage] = value
            self._steps.clear()
            self._write_if_due()

    def forget(self, stage: str) -> None:
        """Forget what a stage gave: what will be written next does not need it."""
        self._stages.pop(stage, None)

    def stage(self, name: str, make: Callable[[], T]) -> T:
        """Return what a stage gave before, or make it now."""
        if name not in self._stages:
            value = make()
            self.put(name, value)
            return value
        return self.get(name)

    def step(self, make: Callable[[], T]) -> T:
        """Return what this step gave before, or make it now."""
        if self.path is None:
            return make()
        self._steps.append(self._again.popleft() if self._again else make())
        if not self._again:
            self._write_if_due()
        return self._steps[-1]

    def write(self) -> None:
        """Write the file now. If that fails the run goes on: the file is as it was, and the result will say so."""
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
        """Write the file, and return what is wrong if it could not be."""
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
        if broadcast_scalar(float(time.monotonic() - self._written > EVERY)):
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
    content = store.parse(whole, path)
    if not isinstance(content, dict) or content.get("format") != FORMAT or not set(KEYS) <= set(content):
        raise DamagedError(f"{path} is a file of thermint's, but not a checkpoint that this version can read.")
    return content


def difference(old: Any, new: Any, name: str = "") -> str:
    """Say in which entry two identities differ, or nothing at all; numbers may differ by rounding."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            said = difference(old.get(key), new.get(key), f"{name}, {key}" if name else str(key))
            if said:
                return said
        return ""
    if isinstance(old, float) and isinstance(new, float):
        same = np.isclose(old, new, rtol=CLOSE, atol=CLOSE, equal_nan=True)
    else:
        same = old == new
    return "" if same else f"{name} was {old!r} and is {new!r}"
