"""How thermint sets up JAX: 64-bit floats, all cores, a compilation cache on disk, and programs that compile soon."""

from __future__ import annotations

import os
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np

# Measured on Pima: with the first of these, the sampler's program compiles in a third of the time that XLA's defaults
# take (3.6 s), with both in half of that (1.8 s), and it runs as fast.
QUICK = {
    "xla_backend_optimization_level": 1,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,  # in more parts it takes a quarter more CPU time, and no less time
    # Every core is a device: threads inside one only get in the way of the others. Where there are fewer devices, sums
    # that are cut otherwise would round otherwise, and chains end up elsewhere.
    "xla_cpu_multi_thread_eigen": False,
}
# Without optimisation programs compile in a third of that time, and run three to five times as long.
QUICKEST = {"xla_backend_optimization_level": 0}


def _enable_float64() -> None:
    jax.config.update("jax_enable_x64", True)


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _enable_cores() -> None:
    """Make every core a device, unless the user has said how many devices there are."""
    if _chosen() or jax.config.jax_num_cpu_devices != -1:  # type: ignore[attr-defined]
        return
    try:
        jax.config.update("jax_num_cpu_devices", cores())
    except RuntimeError:  # JAX has started, and with it the number of devices is settled
        if jax.default_backend() == "cpu" and jax.local_device_count() < cores():
            warnings.warn(
                f"JAX was started before thermint was imported, with {jax.local_device_count()} CPU device(s), and "
                f"thermint will use no more of the {cores()} cores. The answers are the same. To have all cores, "
                "import thermint before JAX is used.",
                stacklevel=3,
            )


def one_device() -> None:
    """Leave the other cores to other processes, unless JAX has started or the user has said how many to use."""
    if not _chosen():
        with suppress(RuntimeError):
            jax.config.update("jax_num_cpu_devices", 1)


def _chosen() -> bool:
    """Say whether the user has chosen the number of CPU devices by the environment."""
    forced = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    return forced or "JAX_NUM_CPU_DEVICES" in os.environ


@cache
def cache_folder() -> Path | None:
    """Return where compiled programs are kept between processes; None if the user wants none."""
    folder = os.environ.get("THERMINT_CACHE", "")
    if folder == "off":
        return None
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return (Path(folder) if folder else home / "thermint") / f"programs-jax-{jax.__version__}"


def _enable_compilation_cache() -> None:
    """Let JAX keep there what `thermint.runtime.programs` does not, unless the user has a cache of JAX's already."""
    folder = cache_folder()
    if folder is not None and jax.config.jax_compilation_cache_dir is None:  # type: ignore[attr-defined]
        jax.config.update("jax_compilation_cache_dir", str(folder / "jax"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


@cache
def compiler_options(level: int) -> dict[str, Any]:
    """Return options by which XLA optimises hardly (0) or a little (1), if this version knows them."""
    options = QUICK | (QUICKEST if level == 0 else {})
    return options if _known(options) else {name: value for name, value in options.items() if _known({name: value})}


def _known(options: dict[str, Any]) -> bool:
    try:
        jax.jit(lambda: 0, compiler_options=options).lower().compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True


def _keep_memory() -> None:
    """Have the C library keep memory that was used for arrays, instead of asking the system for it again and again.

    glibc gives blocks of more than 128 KiB back when they are freed, until it sees a larger one freed; so free one of
    32 MiB, none of which is ever touched. Sums of features took five times as long with new pages every time.
    """
    np.empty(2**22 - 2**13)


def require_float64() -> None:
    """Refuse to compute evidences in single precision."""
    if not jax.config.jax_enable_x64:  # type: ignore[attr-defined]
        raise RuntimeError(
            "JAX's 64-bit mode was switched off after thermint was imported. An evidence needs it: remove "
            "jax.config.update('jax_enable_x64', False), or import thermint after the code that does this."
        )


_keep_memory()
_enable_float64()
_enable_cores()
_enable_compilation_cache()
