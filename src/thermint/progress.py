"""A progress bar on standard error, for people who watch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType


class Progress:
    """Shows the phase of a run, or nothing at all.

    Args:
        show: True or False; None shows it if standard error is a terminal.
        draws: how many draws a rung the run will make.
    """

    def __init__(self, show: bool | None, draws: int) -> None:
        self._bar = None
        if sys.stderr.isatty() if show is None else show:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.completed:.0f} of {task.total:.0f} draws a rung"),
                TimeRemainingColumn(),
                TextColumn("{task.fields[answer]}"),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task("compiling", total=draws, answer="")

    def __enter__(self) -> Progress:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def warmed_up(self, iteration: int) -> None:
        """Say how far the warm-up is."""
        if self._bar:
            self._bar.update(self._task, description=f"warm-up, {iteration} iterations")

    def drawn(self, draws: int, answer: Callable[[], str]) -> None:
        """Say how many draws there are, and what the answer is so far; ``answer`` is called only if anyone watches."""
        if self._bar:
            self._bar.update(self._task, description="sampling", completed=draws, answer=answer())
