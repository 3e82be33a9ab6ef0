"""One process of a run over several: ``python on_hosts.py task index number port folder``; it prints JSON."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

OPTIONS: dict[str, Any] = {"draws": 100, "populations": 4, "seed": 3, "reference": "prior", "ladder": 5}
FITTED: dict[str, Any] = {"draws": 50, "populations": 4, "seed": 3, "reference": "fitted"}
LONG: dict[str, Any] = OPTIONS | {"target_error": 1e-300, "max_evaluations": 35_000}


def main(task: str, index: int, number: int, port: str, folder: Path) -> None:
    jax.distributed.initialize(
        f"127.0.0.1:{port}",
        number,
        index,
        coordinator_bind_address=f"127.0.0.1:{port}",
        initialization_timeout=5 if task == "lonely" else 60,
        heartbeat_timeout_seconds=10,
        shutdown_timeout_seconds=10,
    )
    globals()[task](index, folder)


def run(**options: Any) -> None:
    from targets import SKEWED_2

    import thermint

    try:
        result = thermint.evidence(SKEWED_2.model, **options)
        numbers = result.log_evidence, result.standard_error, result.evaluations
        said: Any = {"numbers": numbers, "devices": result.settings["devices"], "warnings": result.warnings}
    except (ValueError, OSError, KeyboardInterrupt) as error:
        said = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(said), flush=True)


def at_step(number: int, act: Callable[[], None]) -> None:
    """Do something before a step of the run."""
    from thermint.runtime.session import Session

    step, count = Session.step, 0

    def counted(self: Session, *args: Any) -> Any:
        nonlocal count
        count += 1
        if count == number:
            act()
        return step(self, *args)

    setattr(Session, "step", counted)  # noqa: B010


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def together(index: int, folder: Path) -> None:
    """Several runs that end well, or are refused in both processes."""
    run(**OPTIONS, checkpoint=folder / f"run-{index}")  # only that of the first is ever read or written
    run(**FITTED)
    run(**OPTIONS | {"populations": 3})
    run(**OPTIONS | {"seed": index})
    run(**OPTIONS, checkpoint=folder)  # cannot be read, which only the first process knows
    if index == 1:
        at_step(110, lambda: signal.raise_signal(signal.SIGINT))
    run(**LONG)


def killed(index: int, folder: Path) -> None:
    """The second process is killed."""
    from thermint.runtime import journal

    journal.SAVE_INTERVAL = 0.0  # write after every step
    if index == 1:
        at_step(100, die)
    run(**LONG, checkpoint=folder / "run", progress=False)


def resumed(index: int, folder: Path) -> None:
    """The run of `killed` goes on; in the next one the first process, to which all others talk, is killed."""
    run(**LONG, checkpoint=folder / "run", progress=False)
    if index == 0:
        at_step(10, die)
    run(**LONG, progress=False)


def failing(index: int, folder: Path) -> None:
    """Something goes wrong in one process alone, and the other waits for it."""

    def fail() -> None:
        raise MemoryError("in one process alone")

    if index == 1:
        at_step(30, fail)
    run(**LONG, progress=False)


def lonely(index: int, folder: Path) -> None:
    """There is nobody else."""


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], Path(sys.argv[5]))
