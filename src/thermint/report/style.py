"""What all figures share: colours, sizes, labels, the scale of the inverse temperature and the curve through the rungs.

The colours can be told apart by the colour-blind (Okabe and Ito's), and the lines in grey.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.interpolate import BarycentricInterpolator, CubicHermiteSpline

from thermint.model.result import Evidence
from thermint.path import ladders

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#6E6E6E"
CYCLE = (BLUE, ORANGE, GREEN, "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")
DOTS: dict[str, Any] = {"marker": "o", "markersize": 3, "linewidth": 1}
PAGE = 7.0  # inches: what the margins of A4 and letter paper leave; two columns of a journal
COLUMN = PAGE / 2
# Evenly spaced on the scale of t^(1/5).
CLUSTERED_TICKS = [float(f"{t:.1g}") for t in ladders.power(6)]


def pyplot() -> Any:
    """Import matplotlib's pyplot, or say how to install it."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError('plots need matplotlib: pip install "thermint[plot]"') from error
    return pyplot


def new_axes(ax: Axes | None, height: float = 2.4) -> Axes:
    """Return the axes given, or new ones as wide as a column."""
    return pyplot().subplots(figsize=(COLUMN, height), layout="constrained")[1] if ax is None else ax


def label(ax: Axes, x: str = "", y: str = "", title: str = "") -> Axes:
    """Label axes in small print, and remove the upper and the right side of their frame."""
    for write, text in ((ax.set_xlabel, x), (ax.set_ylabel, y), (ax.set_title, title)):
        if text:
            write(text, fontsize="small")
    ax.tick_params(labelsize="x-small")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def over_ladder(ax: Axes, result: Evidence, y: str) -> Axes:
    """Label axes whose horizontal axis is the inverse temperature, and scale that."""
    if clustered(result):
        ax.set_xscale("function", functions=(lambda a: np.maximum(a, 0) ** 0.2, lambda a: np.maximum(a, 0) ** 5))
        ax.set_xticks(CLUSTERED_TICKS, [f"{t:g}" for t in CLUSTERED_TICKS])
        ax.set_xlim(0, 1.03)
    else:
        ax.set_xlim(-0.03, 1.03)
    if ax.get_yscale() == "linear":
        ax.ticklabel_format(axis="y", useOffset=False)
    return label(ax, "inverse temperature t", y)


def clustered(result: Evidence) -> bool:
    """Say whether rungs crowd together at t = 0: whether the widest gap is narrower on the scale of t^(1/5)."""
    t = result.rungs["t"].to_numpy()
    return bool(t[0] == 0 and np.diff(t**0.2).max() < np.diff(t).max())


def g_words(result: Evidence) -> str:
    """Name what is integrated."""
    return "expected log likelihood" + (" ratio g" if result.settings.reference == "fitted" else " g")


def curve(result: Evidence, t: np.ndarray, mean: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the curve through E_t[g] that the rule integrates: a polynomial, cubic pieces, or straight lines."""
    rule, whole = result.settings.rule, len(t) == len(result.rungs)
    fine = np.unique(np.concatenate([t, np.interp(np.linspace(0, len(t) - 1, 400), np.arange(len(t)), t)]))
    if rule == "lobatto" and whole:
        return fine, BarycentricInterpolator(t, mean)(fine)
    if rule == "second-order" and whole and len(t) > 1:
        return fine, CubicHermiteSpline(t, mean, result.rungs["variance"].to_numpy())(fine)
    return fine, np.interp(fine, t, mean)
