"""How much memory is left."""

from __future__ import annotations

import os
from pathlib import Path


def free() -> float:
    """Return how many bytes this process could still get, as far as that can be known; infinite if not at all."""
    return min(_of_the_machine(), _of_the_group())


def _of_the_machine() -> float:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError, IndexError):
        try:
            return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        except (ValueError, OSError, AttributeError):
            return float("inf")


def _of_the_group() -> float:
    """Return what a container or a batch system leaves, by Linux's control groups."""
    folder = Path("/sys/fs/cgroup")
    try:
        return float((folder / "memory.max").read_text()) - float((folder / "memory.current").read_text())
    except (OSError, ValueError):  # "max", or no such file
        return float("inf")


def printed(number: float) -> str:
    """Print a number of bytes.

    >>> printed(3 * 2**30), printed(5e5)
    ('3.0 GiB', '0.5 MiB')
    """
    return f"{number / 2**30:.1f} GiB" if number >= 2**29 else f"{number / 2**20:.1f} MiB"
