"""Numbers, errors and names as text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from thermint.model.result import digits, plus_minus

MISSING = "–"


def number(value: Any, form: str) -> str:
    """Format a number; a dash stands for None, NaN and infinities."""
    return format(value, form) if value is not None and np.isfinite(value) else MISSING


def error_text(error: float) -> str:
    """Format an error to two digits; very small ones in powers of ten.

    >>> error_text(0.000412), error_text(3e-13), error_text(0.0), error_text(float("inf"))
    ('0.00041', '3.0e-13', '0', 'not finite')
    """
    if not np.isfinite(error):
        return "not finite"
    if error == 0:
        return "0"
    return f"{error:.{digits(error)}f}" if error >= 1e-9 else f"{error:.1e}"


def with_error(value: float, error: float) -> str:
    """Format a value with its error, if it has one; a dash stands for a missing value.

    >>> with_error(-141.48, 3e-13), with_error(-2.0, float("nan")), with_error(float("nan"), 1.0)
    ('-141.4800000000 ± 3.0e-13', '-2', '–')
    """
    if not np.isfinite(value):
        return MISSING
    if not np.isfinite(error):
        return f"{value:.6g}"
    return plus_minus(value, error) if error >= 1e-9 else f"{value:.{digits(error)}f} ± {error_text(error)}"


def rounded(value: float, figures: int) -> str:
    """Format a number above one to so many significant figures, without powers of ten.

    >>> rounded(13.8012, 3), rounded(2980.9, 3), rounded(1.0004, 3)
    ('13.8', '2,980', '1.00')
    """
    decimals = figures - 1 - int(np.floor(np.log10(value)))
    return f"{round(value, decimals):,.{max(decimals, 0)}f}"


def several(names: Iterable[str]) -> str:
    """Join names.

    >>> several(["a", "b", "c"])
    'a, b and c'
    """
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def quoted(name: Any) -> str:
    """Put a model's name into quotation marks."""
    return f"“{name}”"
