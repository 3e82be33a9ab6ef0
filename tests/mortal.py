"""Functions that die, or fail, in the middle of their work; they import little, so that processes start soon."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any


class OddError(Exception):
    """Pickle cannot make it again: it is called with one argument."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} is not {second}")


def square(number: int, attempt: int) -> tuple[int, int]:
    return number**2, attempt


def slow_square(number: int, attempt: int) -> tuple[int, int]:
    time.sleep(0.2)
    return square(number, attempt)


_MEMORY: list[str] = []


def remember(value: str) -> None:
    """Initialise a worker."""
    _MEMORY.append(value)


def remembered(attempt: int) -> tuple[str, int]:
    return _MEMORY[0], attempt


def die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def odd(*_: Any) -> None:
    raise OddError(1, 2)


def wait_to_be_killed(folder: str) -> None:
    """Leave the number of this process in the folder and wait; do nothing the next time."""
    mark = Path(folder) / "pid"
    if not mark.exists():
        (Path(folder) / "part").write_text(str(os.getpid()))
        (Path(folder) / "part").rename(mark)
        time.sleep(300)


def killed_once(folder: str, large: bytes, attempt: int) -> tuple[int, int]:
    wait_to_be_killed(folder)
    return len(large), attempt


def kill_what_waits(folder: Path) -> threading.Thread:
    """Kill, by a thread, the process that `wait_to_be_killed` waits in."""

    def kill() -> None:
        mark = folder / "pid"
        while not mark.exists():
            time.sleep(0.01)
        os.kill(int(mark.read_text()), signal.SIGKILL)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    return thread
