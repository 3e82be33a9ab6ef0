"""How thermint sets up JAX: 64-bit floats, all cores, a compilation cache on disk, options that compile fast."""

from __future__ import annotations

import os
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np

# On Pima the sampler's program takes 3.6 s to compile with the first of these, a third of what XLA's defaults take, and
# 1.8 s with the second too; it runs as fast.
COMPILER_OPTIONS = {
    "xla_backend_optimization_level": 1,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,  # several take a quarter more CPU time, and no less time
    # Every core is a device, whose threads would get in the way of the others; and with fewer devices, threads cut sums
    # in other places, which rounds them differently.
    "xla_cpu_multi_thread_eigen": False,
}
# Unoptimised programs compile in a third of that time, and run three to five times as long.
UNOPTIMISED = {"xla_backend_optimization_level": 0}


def _enable_float64() -> None:
    jax.config.update("jax_enable_x64", True)


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _enable_cores() -> None:
    """Make every core a device, unless the user has chosen the number of devices."""
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
    """Use one core, unless JAX has started or the user has chosen the number of devices."""
    if not _chosen():
        with suppress(RuntimeError):
            jax.config.update("jax_num_cpu_devices", 1)


def _chosen() -> bool:
    """Say whether the user has chosen the number of CPU devices by the environment."""
    forced = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    return forced or "JAX_NUM_CPU_DEVICES" in os.environ


@cache
def cache_folder() -> Path | None:
    """Return the folder of JAX's compilation cache; None if the user wants none."""
    folder = os.environ.get("THERMINT_CACHE", "")
    if folder == "off":
        return None
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return (Path(folder) if folder else home / "thermint") / f"jax-{jax.__version__}"


def _enable_compilation_cache() -> None:
    """Have JAX keep compiled programs on disk, unless the user has set up its cache already."""
    folder = cache_folder()
    if folder is not None and jax.config.jax_compilation_cache_dir is None:  # type: ignore[attr-defined]
        jax.config.update("jax_compilation_cache_dir", str(folder))
        # Keeping faster ones too saves nothing: Pima takes 4.3 to 4.6 CPU s warm with 0.1, 4.5 to 4.7 with 0.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


@cache
def compiler_options(level: int) -> dict[str, Any]:
    """Return the compiler options of a level of optimisation, 0 or 1, that this version of XLA knows."""
    options = COMPILER_OPTIONS | (UNOPTIMISED if level == 0 else {})
    return options if _known(options) else {name: value for name, value in options.items() if _known({name: value})}


def _known(options: dict[str, Any]) -> bool:
    try:
        jax.jit(lambda: 0, compiler_options=options).lower().compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True


def _keep_memory() -> None:
    """Have the C library keep the memory of freed arrays.

    glibc returns blocks of more than 128 KiB to the system when they are freed, until a larger one is freed: so this
    frees one of 32 MiB, which is never touched. With new pages every time, sums of features take five times as long.
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
