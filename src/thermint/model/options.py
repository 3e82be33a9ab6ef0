"""Options that users give: refuse what cannot work, by name."""

from __future__ import annotations

from typing import Any

import numpy as np


def require_whole(name: str, value: Any, at_least: int) -> None:
    """Refuse an option that is not a whole number, or too small."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < at_least:
        raise ValueError(f"{name} = {value!r}: it must be a whole number, at least {at_least}.")


def require_positive(name: str, value: Any) -> None:
    """Refuse an option that is neither None nor a number above zero."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not value > 0:
        raise ValueError(f"{name} = {value!r}: it must be a number above zero, or None.")


def require_kernel(kernel: Any) -> None:
    """Refuse a kernel that is not a function."""
    if kernel is not None and not callable(kernel):
        raise TypeError(f"kernel = {kernel!r}: it must be a function such as thermint.kernels.mala.")


def name_of(function: Any) -> str:
    """Return the name under which a kernel or swap is recorded."""
    return getattr(function, "__name__", repr(function))
