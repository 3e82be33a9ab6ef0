"""Plots of an answer and of how it came about (matplotlib: ``pip install "thermint[plot]"``).

Every function takes the axes to draw on, or makes some that fit the column of a paper, and returns them. They are
methods too: ``result.plot()`` is `overview`, ``result.plot.integrand(ax)`` is `integrand`. Colours can be told apart by
the colour-blind (Okabe and Ito's), and lines in grey.

>>> import thermint
>>> result = thermint.evidence(thermint.paper.linear.model(), draws=50)
>>> ax = result.plot.integrand()
>>> ax.get_xlabel()
'inverse temperature t'
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.interpolate import BarycentricInterpolator, CubicHermiteSpline

from thermint.model.result import Evidence, plus_minus

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#6E6E6E"
CYCLE = (BLUE, ORANGE, GREEN, "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")
COLUMN = 3.4  # inches, of a journal's column
PAGE = 7.0
TEXT = 8  # points
CLUSTERED = 5  # a ladder whose first step is so many times shorter than an even one is drawn on the scale of t^(1/5)
MOST_NAMED = 15  # features whose names are written out
MOST_ROWS = 4  # rungs whose traces are drawn, where none are asked for
BINS = 20  # of a rank plot
NAMES = {
    "cti": "thermodynamic integral",
    "bridge": "bridge form",
    "forward": "stepping stones, forward",
    "backward": "stepping stones, backward",
    "mbar": "MBAR",
    "ais": "annealed importance sampling",
    "cais": "the same, controlled",
    "anneal": "annealed importance sampling",
}


def overview(result: Evidence) -> np.ndarray:
    """Draw integrand, variance ratio, swap rates and estimators on one page; returns the axes of what there is."""
    needs = {integrand: "error", ratio: "ratio", swaps: "swap_rate", estimators: "t"}
    drawn = [draw for draw, column in needs.items() if column in result.rungs]
    rows = -(-len(drawn) // 2)
    figure = _pyplot().figure(figsize=(PAGE, 2.5 * rows), layout="constrained")
    # Each row has columns of its own: names of estimators are long.
    parts = figure.subfigures(rows, 1, squeeze=False)[:, 0]
    axes = np.concatenate([part.subplots(1, min(2, len(drawn)), squeeze=False)[0] for part in parts])[: len(drawn)]
    for ax, draw in zip(axes, drawn, strict=True):
        draw(result, ax)
    figure.suptitle(f"log evidence {plus_minus(result.log_evidence, result.standard_error)}", fontsize=TEXT + 2)
    return axes


def integrand(result: Evidence, ax: Axes | None = None) -> Axes:
    """Draw E_t[g], whose integral over t is the log evidence: with control variates, their error band, and without.

    Dots are the nodes of the quadrature rule; the curve between them is the one that the rule integrates.
    """
    ax = _axes(ax)
    table = _finite(_need(result, "error"), "mean", "error")
    t, mean, error = (table[name].to_numpy() for name in ("t", "mean", "error"))
    fine, drawn = curve(result, t, mean)
    if "plain_mean" in table:
        style: dict[str, Any] = {
            "color": ORANGE,
            "marker": "s",
            "markersize": 3,
            "linestyle": "none",
            "capsize": 2,
            "linewidth": 0.8,
        }
        ax.errorbar(t, table["plain_mean"], 2 * table["plain_error"], label="plain average, ± 2 errors", **style)
    band = np.interp(fine, t, error)
    ax.fill_between(fine, drawn - 2 * band, drawn + 2 * band, color=BLUE, alpha=0.3, linewidth=0)
    label = "with control variates, ± 2 errors" if "plain_mean" in table else "average"
    ax.plot(fine, drawn, color=BLUE, linewidth=1)
    ax.errorbar(t, mean, 2 * error, color=BLUE, marker="o", markersize=3, linestyle="none", linewidth=1, label=label)
    return _finish(ax, result, x=True, y=g_words(result), legend=True)


def ratio(result: Evidence, ax: Axes | None = None) -> Axes:
    """Draw R(t), the share of the variance of g that control variates leave; 1 is no gain."""
    ax = _axes(ax)
    table = _finite(_need(result, "ratio"), "ratio")
    floor = np.maximum(table["ratio"], 1e-16)
    ax.plot(table["t"], floor, color=BLUE, marker="o", markersize=3, linewidth=1)
    changes = table["degree"].ne(table["degree"].shift())
    for t, value, degree in zip(table["t"][changes], floor[changes], table["degree"][changes], strict=True):
        if changes.sum() <= MOST_NAMED:
            ax.annotate(f"degree {degree}", (t, value), (2, 6), textcoords="offset points", fontsize=TEXT - 1)
    ax.axhline(1.0, color=GREY, linestyle="--", linewidth=0.8)
    ax.set_yscale("log")
    low, high = floor.min(), max(2.0, 2 * floor.max())
    ax.set_ylim(min(low / 3, 0.1), high * 2)
    return _finish(ax, result, x=True, y="variance left by control, R(t)")


def coefficients(result: Evidence, ax: Axes | None = None) -> Axes:
    """Draw the coefficients of the control variates: rungs across, features down, lowest degree first."""
    ax = _axes(ax, height=3.4)
    table = result.coefficients
    if table is None or table.shape[1] == 0 or not np.any(table.to_numpy()):
        raise ValueError("there are no coefficients to draw: this result has no control variates.")
    values = table.to_numpy().T
    most = np.nanmax(np.abs(values))
    image = ax.imshow(values, aspect="auto", cmap="PuOr", vmin=-most, vmax=most, interpolation="nearest")
    bar = ax.figure.colorbar(image, ax=ax, pad=0.02)
    bar.set_label("coefficient, in standard deviations of g", fontsize=TEXT)
    bar.ax.tick_params(labelsize=TEXT - 1)
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
    shown = np.unique(np.linspace(0, len(t) - 1, min(len(t), 6)).round().astype(int))
    ax.set_xticks(shown, [f"{t[i]:.2g}" for i in shown])
    ax.set_xlabel("rung, at inverse temperature t", fontsize=TEXT)
    ax.set_ylabel("trial function in whitened coordinates", fontsize=TEXT)
    ax.tick_params(labelsize=TEXT - 1)
    return ax


def swaps(result: Evidence, ax: Axes | None = None) -> Axes:
    """Draw how often neighbouring rungs swap, and the communication barrier that they overcome up to each t."""
    ax = _axes(ax)
    table = _need(result, "swap_rate")
    t, rate = table["t"].to_numpy(), table["swap_rate"].to_numpy()
    between = np.isfinite(rate)
    ends = np.append(t, t[-1])
    middle, width = (ends[:-1] + ends[1:]) / 2, np.diff(ends)
    ax.bar(middle[between], rate[between], 0.96 * width[between], color=BLUE, alpha=0.6, label="swap rate")
    ax.set_ylim(0, 1.02)
    other = ax.twinx()
    other.plot(t, table["barrier"], color=ORANGE, marker="o", markersize=3, linewidth=1)
    other.set_ylabel("barrier up to t", fontsize=TEXT, color=ORANGE)
    other.tick_params(labelsize=TEXT - 1, colors=ORANGE)
    other.set_ylim(bottom=0)
    other.spines["top"].set_visible(False)
    ax.tick_params(axis="y", colors=BLUE)
    _finish(ax, result, x=True, y="swap rate between neighbours")
    ax.yaxis.label.set_color(BLUE)
    return ax


def traces(result: Evidence, axes: Any = None, rungs: list[int] | None = None) -> np.ndarray:
    """Draw traces of g and their rank plots, one row for each rung; returns the axes, [rung, 2].

    Populations that mix have traces that look alike, and level rank plots: the ranks of a population's draws among all
    are spread evenly.

    Args:
        result: the answer.
        axes: two for each rung; new ones by default.
        rungs: which; by default up to four, from the first to the last.
    """
    if result.trace is None:
        raise ValueError("there are no traces to draw: this result has none.")
    number = result.trace.shape[2]
    if rungs is None:
        rungs = np.unique(np.linspace(0, number - 1, min(number, MOST_ROWS)).round().astype(int)).tolist()
    for rung in rungs:
        if not -number <= rung < number:
            raise ValueError(f"rungs: there is no rung {rung}, only 0 to {number - 1}.")
    if axes is None:
        size = (PAGE, 1.2 * len(rungs) + 0.4)
        _, axes = _pyplot().subplots(
            len(rungs), 2, figsize=size, layout="constrained", squeeze=False, width_ratios=(3, 2)
        )
    axes = np.asarray(axes).reshape(len(rungs), 2)
    for (left, right), rung in zip(axes, rungs, strict=True):
        g = result.trace[:, :, rung]
        ranks = np.argsort(np.argsort(g, axis=None)).reshape(g.shape) / g.size
        for population, colour in zip(range(len(g)), _colours(len(g)), strict=True):
            left.plot(g[population], color=colour, linewidth=0.4, alpha=0.8)
            counts, edges = np.histogram(ranks[population], bins=BINS, range=(0, 1))
            right.stairs(counts, edges, baseline=None, color=colour, linewidth=0.9)
        right.axhline(g.shape[1] / BINS, color=GREY, linestyle="--", linewidth=0.8)
        right.set_ylim(bottom=0)
        t = result.rungs["t"].iloc[rung]
        left.set_ylabel(f"g at t = {t:.3g}", fontsize=TEXT)
        for ax in (left, right):
            _plain(ax)
    axes[-1, 0].set_xlabel("draw (thinned)", fontsize=TEXT)
    axes[-1, 1].set_xlabel("rank of g among all populations", fontsize=TEXT)
    axes[0, 0].set_title(f"{len(result.trace)} populations", fontsize=TEXT)
    axes[0, 1].set_title("rank plot: level is good", fontsize=TEXT)
    return axes


def estimators(result: Evidence, ax: Axes | None = None) -> Axes:
    """Draw the answers of all methods from the same draws, with intervals of two errors, against the answer."""
    ax = _axes(ax)
    table = _finite(result.estimates, "log_evidence", "standard_error")
    table = table.iloc[::-1]
    difference = table["log_evidence"] - result.log_evidence
    chosen = np.isclose(difference, 0.0, atol=1e-15) & np.isclose(table["standard_error"], result.standard_error)
    rows = np.arange(len(table))
    unit = max(result.standard_error, 1e-15)
    ax.axvspan(-2 * unit, 2 * unit, color=BLUE, alpha=0.2, linewidth=0)
    for row, apart, error, answer in zip(rows, difference, table["standard_error"], chosen, strict=True):
        colour = BLUE if answer else GREY
        ax.errorbar(apart, row, xerr=2 * error, color=colour, marker="o", markersize=4, linewidth=1, capsize=2)
    ax.set_yticks(rows, [NAMES.get(str(name), str(name)) for name in table.index])
    widest = float(np.max(np.abs(difference) + 2 * table["standard_error"]))
    if widest > 20 * unit:
        ax.set_xscale("symlog", linthresh=4 * unit)
        ax.set_xticks(_decades(unit, widest))
        ax.minorticks_off()
    ax.axvline(0, color=BLUE, linewidth=0.8)
    _plain(ax)
    ax.set_xlabel("minus the answer, ± 2 errors", fontsize=TEXT)
    return ax


def comparison(table: pd.DataFrame, axes: Any = None) -> np.ndarray:
    """Draw what `thermint.compare` returns: log evidences with 95 % intervals, and probabilities of the models.

    Args:
        table: of `thermint.compare`.
        axes: two of them; new ones by default.

    Returns:
        The axes, [2].
    """
    if axes is None:
        size = (PAGE, 0.9 + 0.35 * len(table))
        _, axes = _pyplot().subplots(1, 2, figsize=size, layout="constrained", sharey=True, width_ratios=(3, 2))
    left, right = axes = np.asarray(axes).ravel()
    rows = np.arange(len(table))[::-1]
    left.errorbar(table["log_evidence"], rows, xerr=1.96 * table["standard_error"], **_dots())
    left.set_yticks(rows, [str(name) for name in table.index])
    left.set_xlabel("log evidence, 95 % interval", fontsize=TEXT)
    span = np.ptp(table["log_evidence"].to_numpy()) or 1.0
    left.margins(x=0.1)
    left.ticklabel_format(axis="x", useOffset=False)
    for row, value, error in zip(rows, table["log_evidence"], table["standard_error"], strict=True):
        if error < 0.01 * span:  # the bar is too short to be seen
            left.annotate(
                f"± {error:.1g}", (value, row), (0, 6), textcoords="offset points", ha="center", fontsize=TEXT - 2
            )
    right.barh(rows, table["probability"], xerr=1.96 * table["probability_error"], color=BLUE, alpha=0.6, height=0.5)
    for row, value in zip(rows, table["probability"], strict=True):
        right.annotate(
            f"{value:.3g}", (min(value, 1.0), row), (4, 0), textcoords="offset points", va="center", fontsize=TEXT
        )
    right.set_xlim(0, 1.15)
    right.set_xticks([0, 0.5, 1])
    right.set_xlabel("posterior probability", fontsize=TEXT)
    for ax in axes:
        ax.set_ylim(-0.6, len(table) - 0.4)
        _plain(ax)
    return axes


class Plots:
    """The plots of one result: call it for an overview, or take one of its methods."""

    def __init__(self, result: Evidence) -> None:
        self._result = result

    def __call__(self) -> np.ndarray:
        """See `overview`."""
        return overview(self._result)

    def integrand(self, ax: Axes | None = None) -> Axes:
        """See `thermint.plots.integrand`."""
        return integrand(self._result, ax)

    def ratio(self, ax: Axes | None = None) -> Axes:
        """See `thermint.plots.ratio`."""
        return ratio(self._result, ax)

    def coefficients(self, ax: Axes | None = None) -> Axes:
        """See `thermint.plots.coefficients`."""
        return coefficients(self._result, ax)

    def swaps(self, ax: Axes | None = None) -> Axes:
        """See `thermint.plots.swaps`."""
        return swaps(self._result, ax)

    def traces(self, axes: Any = None, rungs: list[int] | None = None) -> np.ndarray:
        """See `thermint.plots.traces`."""
        return traces(self._result, axes, rungs)

    def estimators(self, ax: Axes | None = None) -> Axes:
        """See `thermint.plots.estimators`."""
        return estimators(self._result, ax)


def _pyplot() -> Any:
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError('plots need matplotlib: pip install "thermint[plot]"') from error
    return pyplot


def _axes(ax: Axes | None, height: float = 2.4) -> Axes:
    return _pyplot().subplots(figsize=(COLUMN, height), layout="constrained")[1] if ax is None else ax


def g_words(result: Evidence) -> str:
    """Say what is integrated."""
    return "expected log likelihood" + (" ratio g" if result.settings.get("reference") == "fitted" else " g")


def _need(result: Evidence, column: str) -> pd.DataFrame:
    """Return the table of rungs, or say that it lacks what is to be drawn."""
    if column not in result.rungs:
        raise ValueError(f"there is no {column} to draw: result.rungs does not have it, as with thermint.anneal.")
    return result.rungs


def _finite(table: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """Leave out rows that cannot be drawn."""
    return table[np.isfinite(table[list(columns)].to_numpy(dtype=float)).all(axis=1)]


def curve(result: Evidence, t: np.ndarray, mean: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the curve between the nodes that the rule stands for: a polynomial, cubic pieces, or straight ones."""
    rule, whole = result.settings.get("rule"), len(t) == len(result.rungs)
    fine = np.unique(np.concatenate([t, np.interp(np.linspace(0, len(t) - 1, 400), np.arange(len(t)), t)]))
    if rule == "lobatto" and whole:
        return fine, BarycentricInterpolator(t, mean)(fine)
    if rule == "second-order" and whole and len(t) > 1:
        return fine, CubicHermiteSpline(t, mean, result.rungs["variance"].to_numpy())(fine)
    return fine, np.interp(fine, t, mean)


def clustered(t: np.ndarray) -> bool:
    """Say whether rungs crowd together at t = 0, so that they are drawn on the scale of t^(1/5)."""
    return len(t) > 2 and (t[1] - t[0]) * CLUSTERED * (len(t) - 1) < t[-1] - t[0]


def _finish(ax: Axes, result: Evidence, *, x: bool = False, y: str = "", legend: bool = False) -> Axes:
    """Label the axes in words."""
    t = result.rungs["t"].to_numpy()
    if x:
        ax.set_xlabel("inverse temperature t", fontsize=TEXT)
        if clustered(t) and t[0] == 0:
            ax.set_xscale("function", functions=(lambda a: np.maximum(a, 0) ** 0.2, lambda a: np.maximum(a, 0) ** 5))
            ax.set_xticks([0, 1e-4, 1e-2, 0.1, 0.5, 1], ["0", "0.0001", "0.01", "0.1", "0.5", "1"])
        ax.set_xlim(-0.0 if clustered(t) else -0.03, 1.03)
    ax.set_ylabel(y, fontsize=TEXT)
    if ax.get_yscale() == "linear":
        ax.ticklabel_format(axis="y", useOffset=False)
    if legend:
        ax.legend(fontsize=TEXT - 1, frameon=False)
    _plain(ax)
    return ax


def _plain(ax: Axes) -> None:
    ax.tick_params(labelsize=TEXT - 1)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def _dots() -> dict[str, Any]:
    return {"color": BLUE, "marker": "o", "markersize": 4, "linestyle": "none", "linewidth": 1.2, "capsize": 3}


def _colours(number: int) -> list[Any]:
    if number <= len(CYCLE):
        return list(CYCLE[:number])
    return list(_pyplot().get_cmap("viridis")(np.linspace(0, 0.95, number)))


def _degree(name: str) -> int:
    """Return the total degree of a trial function from its name; see `basis.names`."""
    power = {"²": 2, "³": 3, "⁴": 4}
    return max(1, sum(power.get(factor[-1], 1) for factor in name.rpartition(": ")[2].split() if factor[0] == "z"))


def _decades(unit: float, widest: float) -> list[float]:
    """Choose few ticks for a symmetric logarithmic axis."""
    tops = [10.0**k for k in range(int(np.ceil(np.log10(4 * unit))), int(np.ceil(np.log10(widest))) + 1)]
    tops = tops[-1:] if len(tops) < 3 else [tops[0], tops[-1]]
    return [*(-top for top in reversed(tops)), 0.0, *tops]
