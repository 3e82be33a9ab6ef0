"""Temperature ladders: increasing inverse temperatures from 0 (the prior) to 1 (the posterior)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ladder = npt.NDArray[np.float64]


def power(rungs: int = 51, exponent: float = 5.0) -> Ladder:
    """t_i = (i / (rungs - 1)) ** exponent; the paper's ladder is ``power(51, 5)``.

    >>> power(3)
    array([0.     , 0.03125, 1.     ])
    """
    return np.linspace(0.0, 1.0, rungs) ** exponent


def as_ladder(ladder: int | npt.ArrayLike | None) -> Ladder:
    """Read what a user may give as a ladder: nothing, a number of rungs, or the inverse temperatures.

    Raises:
        ValueError: fewer than two rungs, or values that do not increase from exactly 0 to exactly 1.
    """
    if ladder is None:
        return power()
    values = np.asarray(ladder, dtype=np.float64)
    if values.ndim == 0:
        if not np.isfinite(values) or values != int(values) or values < 2:
            raise ValueError(f"ladder = {ladder}: a number of rungs must be a whole number, at least 2.")
        return power(int(values))
    if values.ndim != 1 or len(values) < 2:
        raise ValueError(f"ladder must be a vector of at least 2 inverse temperatures; got shape {values.shape}.")
    if not np.all(np.isfinite(values)):
        raise ValueError(f"ladder has a value that is not finite, at rung {np.argmin(np.isfinite(values))}.")
    if values[0] != 0 or values[-1] != 1:
        raise ValueError(
            f"ladder must start at exactly 0 (the prior) and end at exactly 1 (the posterior); it runs from "
            f"{values[0]:g} to {values[-1]:g}."
        )
    steps = np.diff(values)
    if np.any(steps <= 0):
        i = int(np.argmax(steps <= 0))
        raise ValueError(
            f"ladder must increase: rung {i} has t = {values[i]:g} and rung {i + 1} has t = {values[i + 1]:g}. "
            "Sort it and remove repeated values."
        )
    return values
