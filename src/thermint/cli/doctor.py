"""Check the installation: versions, precision, devices, cache, and a short run whose answer is known."""

from __future__ import annotations

import os
import platform
import time
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

import jax
import jax.numpy as jnp

CORE = ("thermint", "jax", "numpy", "scipy", "numpyro", "pandas", "xarray", "arviz-stats")
EXTRAS = ("matplotlib", "pymc", "bambi", "diffrax", "distributed", "mpi4py", "arviz", "ipywidgets")


class Finding(NamedTuple):
    """A check and its result."""

    what: str
    found: str
    good: bool = True
    advice: str = ""


def examine() -> list[Finding]:
    """Run all checks."""
    python = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    versions = [Finding("python", python), Finding("packages", _versions(CORE)), Finding("extras", _versions(EXTRAS))]
    return [*versions, _precision(), _devices(), _cache(), _self_test()]


def _versions(names: tuple[str, ...]) -> str:
    def installed(name: str) -> str:
        try:
            return version(name)
        except PackageNotFoundError:
            return "-"

    return ", ".join(f"{name} {installed(name)}" for name in names)


def _precision() -> Finding:
    kind = jnp.zeros(()).dtype.name
    advice = "" if kind == "float64" else "Something switched JAX's 64-bit mode off: unset JAX_ENABLE_X64."
    return Finding("precision", kind, kind == "float64", advice)


def _devices() -> Finding:
    from thermint.runtime.setup import cores

    devices = jax.devices()
    number, kind = len(devices), jax.default_backend()
    few = kind == "cpu" and number < cores()
    advice = "JAX was told to use fewer: see JAX_NUM_CPU_DEVICES and XLA_FLAGS." if few else ""
    return Finding("devices", f"{number} of kind {kind}, {cores()} core(s)", True, advice)


def _cache() -> Finding:
    from thermint.runtime.setup import cache_folder

    path = cache_folder()
    if path is None:
        return Finding("cache", "off", True, "Every process compiles again: unset THERMINT_CACHE to keep programs.")
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else []
    size = sum(file.stat().st_size for file in files) / 2**20
    nearest = next(parent for parent in (path, *path.parents) if parent.exists())
    writable = os.access(nearest, os.W_OK)
    advice = "" if writable else f"{nearest} cannot be written to: set THERMINT_CACHE to another folder."
    return Finding("cache", f"{path}, {len(files)} files, {size:.0f} MiB", writable, advice)


def _self_test() -> Finding:
    """Compute an evidence whose value is known."""
    from thermint import evidence
    from thermint.paper import linear

    begin = time.perf_counter()
    result = evidence(linear.model(), draws=100, progress=False)
    apart = abs(result.log_evidence - linear.log_evidence())
    good = apart <= 5 * result.standard_error + 1e-8
    found = f"log evidence of linear regression off by {apart:.1g}, {time.perf_counter() - begin:.1f} s"
    advice = "" if good else "The answer is wrong: please report it, with all of this."
    return Finding("self-test", found, good, advice)
