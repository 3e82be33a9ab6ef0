"""A progress bar on standard error, for people who watch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from thermint.run import Run


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

    def phase(self, description: str) -> Callable[[int], None]:
        """Announce what is being done; call the result with the number of iterations."""

        def iterated(iteration: int) -> None:
            if self._bar:
                self._bar.update(self._task, description=f"{description}, {iteration} iterations")

        return iterated

    def sampling(self, total: int, answer: Callable[[Run], str]) -> Callable[[int, Callable[[], Run]], None]:
        """Announce draws; call the result with their number and how to get what there is, for ``answer`` to print."""

        def drawn(draws: int, run: Callable[[], Run]) -> None:
            if self._bar:
                self._bar.update(self._task, description="sampling", completed=draws, total=total, answer=answer(run()))

        return drawn
