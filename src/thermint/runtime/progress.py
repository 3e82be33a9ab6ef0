"""What people see of a run: a bar where there is someone to watch, else a line for every round."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any

from thermint.runtime.devices import is_first

if TYPE_CHECKING:
    from thermint.inference.collect import RunAccumulator
    from thermint.model.result import Evidence


class Progress:
    """Shows how a run is getting on, on standard error.

    Args:
        show: True shows a bar, False nothing; None shows a bar in a terminal or a notebook, and elsewhere a line for
            every round.
        target: standard error to reach, if any.
    """

    def __init__(self, show: bool | None, target: float | None = None) -> None:
        self.spent = 0  # evaluations before the sampler that is at work
        self._target = target
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

    def drawn(self, kept: RunAccumulator) -> None:
        """Say how far the draws of a round are, what they look like and what answer they give."""
        if self._bar:
            from thermint.diagnostics import health
            from thermint.inference.summary import interim_estimate

            run = kept.summary()
            answer = interim_estimate(run)
            said = [
                f"{answer}{self._aim()}" if answer else "",
                health(run.g, run.ladder, [batch.acceptance for batch in run.moves]),
                f"{self.spent + kept.place.evaluations:,} evaluations",
            ]
            shown = ", ".join(part for part in said if part)
            self._update(description=self._phase, completed=kept.drawn, total=kept.plan.draws, said=shown)

    def round(self, number: int, result: Evidence) -> None:
        """Report a round that is done."""
        if self._lines:
            from thermint.model.result import plus_minus

            answer = plus_minus(result.log_evidence, result.standard_error)
            self.say(
                f"round {number}: log evidence {answer}{self._aim()}, {result.evaluations:,} evaluations, "
                f"{result.seconds:.0f} s"
            )

    def say(self, message: str) -> None:
        """Print a line, above the bar if there is one."""
        if self._bar:
            self._bar.console.print(f"thermint: {message}", highlight=False, markup=False)
        elif self._lines:
            print(f"thermint: {message}", file=sys.stderr, flush=True)

    def _aim(self) -> str:
        return f" (target ± {self._target:g})" if self._target else ""

    def _update(self, **changes: Any) -> None:
        if self._bar:
            self._bar.update(self._task, **changes)
