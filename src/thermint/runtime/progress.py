"""What people see of a run: a bar where there is someone to watch, else a line for every round."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any

from thermint.runtime.hosts import is_first


class Progress:
    """Shows how a run is getting on, on standard error.

    Args:
        show: True shows a bar, False nothing; None shows a bar in a terminal or a notebook, and elsewhere a line for
            every round.
    """

    def __init__(self, show: bool | None) -> None:
        self._bar: Any = None
        self._lines = False
        self._phase = ""
        if show is False or not is_first():
            return
        from rich.console import Console

        console = Console(stderr=True)
        if show or console.is_terminal or console.is_jupyter:
            self._bar = self._make_bar(console)
            self._task = self._bar.add_task("compiling", total=None, said="")
        else:
            self._lines = True

    @staticmethod
    def _make_bar(console: Any) -> Any:
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        return Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TaskProgressColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[said]}"),
            console=console,
            transient=True,
            refresh_per_second=2,  # more would take the sampler's time
        )

    def __enter__(self) -> Progress:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def phase(self, description: str) -> None:
        """Announce what is done next."""
        self._phase = description
        self._update(description=description, total=None, completed=0)
        if self._bar:
            self._bar.refresh()

    def iterated(self, iteration: int) -> None:
        """Say how far a phase is whose end is not known."""
        self._update(description=f"{self._phase}, {iteration} iterations")

    def drawn(self, done: int, planned: int, describe: Callable[[], str]) -> None:
        """Say how far the draws of a round are, and how they look; ``describe`` is called only if there is a bar."""
        if self._bar:
            self._update(description=self._phase, completed=done, total=planned, said=describe())

    def round(self, message: str) -> None:
        """Report a round that is done, where there is no bar."""
        if self._lines:
            self.say(message)

    def say(self, message: str) -> None:
        """Print a line, above the bar if there is one."""
        if self._bar:
            self._bar.console.print(f"thermint: {message}", highlight=False, markup=False)
        elif self._lines:
            print(f"thermint: {message}", file=sys.stderr, flush=True)

    def _update(self, **changes: Any) -> None:
        if self._bar:
            self._bar.update(self._task, **changes)
