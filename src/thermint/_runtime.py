"""The two settings of JAX that thermint makes: 64-bit floats and a compilation cache on disk."""

from __future__ import annotations

import os
from pathlib import Path

import jax


def _enable_float64() -> None:
    jax.config.update("jax_enable_x64", True)


def _enable_compilation_cache() -> None:
    """Keep compiled programs between processes, unless the user has a cache already or sets THERMINT_CACHE=off."""
    folder = os.environ.get("THERMINT_CACHE", "")
    if jax.config.jax_compilation_cache_dir is not None or folder == "off":  # type: ignore[attr-defined]
        return
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    jax.config.update("jax_compilation_cache_dir", folder or str(home / "thermint" / f"jax-{jax.__version__}"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def require_float64() -> None:
    """Refuse to compute evidences in single precision."""
    if not jax.config.jax_enable_x64:  # type: ignore[attr-defined]
        raise RuntimeError(
            "JAX's 64-bit mode was switched off after thermint was imported. An evidence needs it: remove "
            "jax.config.update('jax_enable_x64', False), or import thermint after the code that does this."
        )


_enable_float64()
_enable_compilation_cache()
