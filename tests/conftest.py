"""Settings of the test run: a compilation cache of its own, shared by runs and workers, and few programs in memory."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ.setdefault("JAX_NUM_CPU_DEVICES", "1")  # workers share the cores; JAX reads it when it is imported
os.environ.setdefault("THERMINT_CACHE", str(Path(__file__).parent.parent / ".pytest_cache" / "jax"))
# What tests compile themselves, as thermint compiles its own: that takes a third less time than by XLA's defaults. XLA
# ends a process with a flag that it does not know, so try each in a process of its own; workers inherit the answer.
if "XLA_FLAGS" not in os.environ:
    FLAGS = ("--xla_backend_optimization_level=1", "--xla_cpu_use_fusion_emitters=false")
    START = [sys.executable, "-c", "import jax; jax.devices()"]
    tried = [subprocess.Popen(START, env=os.environ | {"XLA_FLAGS": f}, stderr=subprocess.DEVNULL) for f in FLAGS]
    os.environ["XLA_FLAGS"] = " ".join(flag for flag, trial in zip(FLAGS, tried, strict=True) if trial.wait() == 0)

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
