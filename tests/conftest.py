"""Settings of the test run: a compilation cache of its own, shared by runs and workers, and few programs in memory."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ.setdefault("JAX_NUM_CPU_DEVICES", "1")  # workers share the cores; JAX reads it when it is imported
os.environ.setdefault("THERMINT_CACHE", str(Path(__file__).parent.parent / ".pytest_cache" / "jax"))
# What tests compile themselves, as thermint compiles its own: that takes a third less time than by XLA's defaults.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=1 --xla_cpu_use_fusion_emitters=false")

import jax

from thermint.runtime import programs

MAPS = Path("/proc/self/maps")
MOST_MAPS = 20_000  # Linux allows a process 65530, and XLA crashes beyond; one `evidence` of a new model takes 1500


@pytest.fixture(autouse=True)
def _few_programs() -> Iterator[None]:
    """Forget compiled programs before there are too many of them for one process."""
    yield
    if MAPS.exists() and len(MAPS.read_bytes().splitlines()) > MOST_MAPS:
        programs.forget()
        jax.clear_caches()
