"""Plots of an answer and of how it came about (matplotlib: ``pip install "thermint[plot]"``).

Every function takes the axes to draw on, or makes some that fit the column of a paper, and returns them. They are
methods too: ``result.plot()`` is `overview`, ``result.plot.integrand(ax)`` is `integrand`.

>>> import thermint
>>> result = thermint.evidence(thermint.paper.linear.model(), draws=50)
>>> ax = result.plot.integrand()
>>> ax.get_xlabel()
'inverse temperature t'
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import MethodType
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from thermint.estimators.table import label_of
from thermint.model.result import Evidence, plus_minus
from thermint.report.style import (
    BLUE,
    CYCLE,
    DOTS,
    GREY,
    ORANGE,
    PAGE,
    curve,
    g_words,
    label,
    new_axes,
    over_ladder,
    pyplot,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_NAMED = 15  # features, or changes of degree, that are named one by one: more names would overlap
MOST_ROWS = 4  # rungs whose traces are drawn by default: both ends and two between, on half a page


def overview(result: Evidence) -> np.ndarray:
    """Draw integrand, variance ratio, swap rates and estimators on one page; returns the axes of what there is."""
    needs = {integrand: "error", ratio: "ratio", swaps: "swap_rate", estimators: "t"}
    drawn = [draw for draw, column in needs.items() if column in result.rungs]
    rows = -(-len(drawn) // 2)
    figure = pyplot().figure(figsize=(PAGE, 2.5 * rows), layout="constrained")
    # Each row has columns of its own: names of estimators are long.
    parts = figure.subfigures(rows, 1, squeeze=False)[:, 0]
    axes = np.concatenate([part.subplots(1, min(2, len(drawn)), squeeze=False)[0] for part in parts])[: len(drawn)]
    for ax, draw in zip(axes, drawn, strict=True):
        draw(result, ax)
    figure.suptitle(f"log evidence {plus_minus(result.log_evidence, result.standard_error)}", fontsize="medium")
    return axes


def integrand(result: Evidence, ax: Axes | None = None) -> Axes:
    """Draw E_t[g], whose integral over t is the log evidence: with control variates, their error band, and without.

    Dots are the nodes of the quadrature rule; the curve between them is the one that the rule integrates.
    """
    ax = new_axes(ax)
    table = _finite(_rungs_with(result, "error"), "mean", "error")
    t, mean, error = (table[name].to_numpy() for name in ("t", "mean", "error"))
    fine, through = curve(result, t, mean)
    named = "average"
    if "plain_mean" in table:
        named = "with control variates, ± 2 errors"
        plain = {"color": ORANGE, "linestyle": "none", "capsize": 2, **DOTS, "marker": "s", "linewidth": 0.8}
        ax.errorbar(t, table["plain_mean"], 2 * table["plain_error"], label="plain average, ± 2 errors", **plain)
    band = 2 * np.interp(fine, t, error)
    ax.fill_between(fine, through - band, through + band, color=BLUE, alpha=0.3, linewidth=0)
    ax.plot(fine, through, color=BLUE, linewidth=1)
    ax.errorbar(t, mean, 2 * error, color=BLUE, linestyle="none", label=named, **DOTS)
    ax.legend(fontsize="x-small", frameon=False)
    return over_ladder(ax, result, g_words(result))


def ratio(result: Evidence, ax: Axes | None = None) -> Axes:
    """Draw R(t), the share of the variance of g that control variates leave; 1 is no gain."""
    ax = new_axes(ax)
    table = _finite(_rungs_with(result, "ratio"), "ratio")
    left = np.maximum(table["ratio"], 1e-16)
    ax.plot(table["t"], left, color=BLUE, **DOTS)
    changes = table["degree"].ne(table["degree"].shift())
    if changes.sum() <= MOST_NAMED:
        for t, value, degree in zip(table["t"][changes], left[changes], table["degree"][changes], strict=True):
            _note(ax, f"degree {degree}", (t, value), (2, 6), fontsize="x-small")
    ax.axhline(1.0, color=GREY, linestyle="--", linewidth=0.8)
    ax.set_yscale("log")
    ax.set_ylim(min(left.min() / 3, 0.1), 4 * max(1.0, left.max()))
    return over_ladder(ax, result, "variance left by control, R(t)")


def coefficients(result: Evidence, ax: Axes | None = None) -> Axes:
    """Draw the coefficients of the control variates: rungs across, features down, lowest degree first."""
    ax = new_axes(ax, height=3.4)
    table = result.coefficients
    if table is None or table.shape[1] == 0 or not np.any(table.to_numpy()):
        raise ValueError("there are no coefficients to draw: this result has no control variates.")
    values = table.to_numpy().T
    most = np.nanmax(np.abs(values))
    image = ax.imshow(values, aspect="auto", cmap="PuOr", vmin=-most, vmax=most, interpolation="nearest")
    bar = ax.figure.colorbar(image, ax=ax, pad=0.02)
    label(bar.ax, y="coefficient, in standard deviations of g")
    names = [str(name) for name in table.columns]
    if len(names) <= MOST_NAMED:
        ax.set_yticks(range(len(names)), names)
    else:  # where each degree begins
        degrees = [_degree(name) for name in names]
        starts = [degrees.index(k) for k in sorted(set(degrees))]
        ax.set_yticks(starts, [f"degree {degrees[start]}" for start in starts])
        for start in starts[1:]:
            ax.axhline(start - 0.5, color=GREY, linewidth=0.6)
    t = result.rungs["t"].to_numpy()
    shown = _evenly(len(t), 6)
    ax.set_xticks(shown, [f"{t[i]:.2g}" for i in shown])
    label(ax, "rung, at inverse temperature t", "trial function in whitened coordinates")
    ax.spines[:].set_visible(True)
    return ax


def swaps(result: Evidence, ax: Axes | None = None) -> Axes:
    """Draw how often neighbouring rungs swap, and the communication barrier that they overcome up to each t."""
    ax = new_axes(ax)
    table = _rungs_with(result, "swap_rate")
    t, rate = table["t"].to_numpy(), table["swap_rate"].to_numpy()
    between = np.isfinite(rate)
    ends = np.append(t, t[-1])
    middle, width = (ends[:-1] + ends[1:]) / 2, np.diff(ends)
    ax.bar(middle[between], rate[between], 0.96 * width[between], color=BLUE, alpha=0.6, label="swap rate")
    ax.set_ylim(0, 1.02)
    other = ax.twinx()
    other.plot(t, table["barrier"], color=ORANGE, **DOTS)
    other.set_ylim(bottom=0)
    label(other, y="barrier up to t")
    other.spines["right"].set_visible(True)
    over_ladder(ax, result, "swap rate between neighbours")
    for one, colour in ((ax, BLUE), (other, ORANGE)):
        one.tick_params(axis="y", colors=colour)
        one.yaxis.label.set_color(colour)
    return ax


def traces(result: Evidence, axes: Any = None, rungs: list[int] | None = None) -> np.ndarray:
    """Draw traces of g and their rank plots, one row for each rung; returns the axes, [rung, 2].

    Populations that mix have traces that look alike, and level rank plots: the ranks of a population's draws among all
    are spread evenly. By default the rungs are up to four, from the first to the last.
    """
    if result.trace is None:
        raise ValueError("there are no traces to draw: this result has none.")
    populations, draws, number = result.trace.shape
    rungs = _evenly(number, MOST_ROWS) if rungs is None else rungs
    for rung in rungs:
        if not -number <= rung < number:
            raise ValueError(f"rungs: there is no rung {rung}, only 0 to {number - 1}.")
    if axes is None:
        size = (PAGE, 1.2 * len(rungs) + 0.4)
        axes = pyplot().figure(figsize=size, layout="constrained").subplots(len(rungs), 2, width_ratios=(3, 2))
    axes = np.asarray(axes).reshape(len(rungs), 2)
    bins = round(2 * np.cbrt(draws))  # Rice's rule
    for (left, right), rung in zip(axes, rungs, strict=True):
        g = result.trace[:, :, rung]
        ranks = np.argsort(np.argsort(g, axis=None)).reshape(g.shape) / g.size
        for one, rank, colour in zip(g, ranks, _colours(populations), strict=True):
            left.plot(one, color=colour, linewidth=0.4, alpha=0.8)
            counts, edges = np.histogram(rank, bins=bins, range=(0, 1))
            right.stairs(counts, edges, baseline=None, color=colour, linewidth=0.9)
        right.axhline(draws / bins, color=GREY, linestyle="--", linewidth=0.8)
        right.set_ylim(bottom=0)
        label(left, y=f"g at t = {result.rungs['t'].iloc[rung]:.3g}")
        label(right)
    label(axes[-1, 0], "draw (thinned)")
    label(axes[-1, 1], "rank of g among all populations")
    label(axes[0, 0], title=f"{populations} populations")
    label(axes[0, 1], title="rank plot: level is good")
    return axes


def estimators(result: Evidence, ax: Axes | None = None) -> Axes:
    """Draw the answers of all methods from the same draws, with intervals of two errors, against the answer."""
    ax = new_axes(ax)
    table = _finite(result.estimates, "log_evidence", "standard_error").iloc[::-1]
    apart, error = table["log_evidence"] - result.log_evidence, table["standard_error"]
    is_answer = np.isclose(apart, 0.0, atol=1e-15) & np.isclose(error, result.standard_error)
    unit = max(result.standard_error, 1e-15)
    ax.axvspan(-2 * unit, 2 * unit, color=BLUE, alpha=0.2, linewidth=0)
    for row, (centre, half, chosen) in enumerate(zip(apart, 2 * error, is_answer, strict=True)):
        ax.errorbar(centre, row, xerr=half, color=BLUE if chosen else GREY, capsize=2, **DOTS | {"markersize": 4})
    ax.set_yticks(range(len(table)), [label_of(str(name)) for name in table.index])
    widest = float(np.max(np.abs(apart) + 2 * error))
    if widest > 20 * unit:
        ax.set_xscale("symlog", linthresh=4 * unit)
        tops = 10.0 ** np.arange(np.ceil(np.log10(4 * unit)), np.ceil(np.log10(widest)) + 1)
        tops = tops[[0, -1]] if len(tops) > 2 else tops[-1:]
        ax.set_xticks([*-tops[::-1], 0.0, *tops])
        ax.minorticks_off()
    ax.axvline(0, color=BLUE, linewidth=0.8)
    return label(ax, "minus the answer, ± 2 errors")


def comparison(table: pd.DataFrame, axes: Any = None) -> np.ndarray:
    """Draw the table of `thermint.compare`: log evidences with 95 % intervals, and probabilities, on two axes."""
    if axes is None:
        figure = pyplot().figure(figsize=(PAGE, 0.9 + 0.35 * len(table)), layout="constrained")
        axes = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    left, right = axes = np.asarray(axes).ravel()
    value, error, probability = table["log_evidence"], table["standard_error"], table["probability"]
    rows = np.arange(len(table))[::-1]
    left.errorbar(value, rows, xerr=1.96 * error, color=BLUE, linestyle="none", capsize=3, **DOTS | {"markersize": 4})
    left.set_yticks(rows, [str(name) for name in table.index])
    left.margins(x=0.1)
    left.ticklabel_format(axis="x", useOffset=False)
    right.barh(rows, probability, xerr=1.96 * table["probability_error"], color=BLUE, alpha=0.6, height=0.5)
    right.set_xlim(0, 1.15)
    right.set_xticks([0, 0.5, 1])
    span = np.ptp(value.to_numpy()) or 1.0
    for row, v, e, p in zip(rows, value, error, probability, strict=True):
        if e < 0.01 * span:  # the bar is too short to be seen
            _note(left, f"± {e:.1g}", (v, row), (0, 6), ha="center", fontsize="xx-small")
        _note(right, f"{p:.3g}", (min(p, 1.0), row), (4, 0), va="center", fontsize="small")
    for ax, x in ((left, "log evidence, 95 % interval"), (right, "posterior probability")):
        ax.set_ylim(-0.6, len(table) - 0.4)
        label(ax, x)
    return axes


KINDS: dict[str, Callable[..., Any]] = {
    draw.__name__: draw for draw in (overview, integrand, ratio, coefficients, swaps, traces, estimators)
}


class Plots:
    """The plots of one result: call it for an overview; the functions of `KINDS` are its methods."""

    def __init__(self, result: Evidence) -> None:
        self._result = result

    def __call__(self) -> np.ndarray:
        """See `overview`."""
        return overview(self._result)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in KINDS:
            raise AttributeError(f"there is no plot {name!r}: it is one of {', '.join(KINDS)}.")
        return MethodType(KINDS[name], self._result)

    def __dir__(self) -> Iterable[str]:
        return KINDS


def _rungs_with(result: Evidence, column: str) -> pd.DataFrame:
    """Return the table of rungs, or say that it lacks what is to be drawn."""
    if column not in result.rungs:
        raise ValueError(f"there is no {column} to draw: result.rungs does not have it, as with thermint.anneal.")
    return result.rungs


def _finite(table: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """Leave out rows that cannot be drawn."""
    return table[np.isfinite(table[list(columns)].to_numpy(dtype=float)).all(axis=1)]


def _evenly(number: int, most: int) -> list[int]:
    """Choose indices spread evenly from first to last."""
    return np.unique(np.linspace(0, number - 1, min(number, most)).round().astype(int)).tolist()


def _note(ax: Axes, text: str, at: tuple[float, float], offset: tuple[float, float], **style: Any) -> None:
    """Write text beside a point; the offset is in points."""
    ax.annotate(text, at, offset, textcoords="offset points", **style)


def _colours(number: int) -> list[Any]:
    return list(CYCLE[:number] if number <= len(CYCLE) else pyplot().get_cmap("viridis")(np.linspace(0, 0.95, number)))


def _degree(name: str) -> int:
    """Return the total degree of a trial function from its name; see `basis.names`."""
    power = {"²": 2, "³": 3, "⁴": 4}
    return max(1, sum(power.get(factor[-1], 1) for factor in name.rpartition(": ")[2].split() if factor[0] == "z"))
