"""Figures as SVG that lives inside a page and takes on its colours, light or dark.

Two kinds: the integrand, drawn here so that each rung can be pointed at, and the plots of `thermint.plots`.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Sequence
from html import escape

import numpy as np
import pandas as pd

from thermint.model.result import Evidence
from thermint.report import plots

WIDTH, HEIGHT = 480, 300
LEFT, RIGHT, TOP, BOTTOM = 74, 12, 12, 44  # margins
WANTED_TICKS = 5
CLUSTERED_TICKS = (0, 1e-4, 0.01, 0.1, 0.5, 1)
INK = "#010203"  # stands for the colour of the text
# Colours of the plots, by the names that the style sheet gives them.
COLOURS = {
    INK: "currentColor",
    "#000000": "currentColor",
    plots.BLUE.lower(): "var(--blue)",
    plots.ORANGE.lower(): "var(--orange)",
    plots.GREEN.lower(): "var(--green)",
    plots.GREY.lower(): "var(--grey)",
}
INKED = ("text.color", "axes.edgecolor", "axes.labelcolor", "axes.titlecolor", "xtick.color", "ytick.color")


def bar(shares: Sequence[float], label: str) -> str:
    """Draw shares of a whole as a bar; its parts have the classes part-0, part-1, ..."""
    ends = np.cumsum([0.0, *shares])
    parts = "".join(
        f'<rect class="part-{i}" x="{100 * start:.3f}" width="{100 * share:.3f}" height="10"/>'
        for i, (start, share) in enumerate(zip(ends, shares, strict=False))
    )
    return (
        f'<svg class="bar" role="img" aria-label="{escape(label)}" viewBox="0 0 100 10" preserveAspectRatio="none">'
        f"{parts}</svg>"
    )


def integrand(result: Evidence, described: Sequence[str]) -> str:
    """Draw E_t[g] as `plots.integrand` does, with an element for every rung that can be pointed at.

    Args:
        result: the answer; its table of rungs may lack errors and plain averages.
        described: what is said of each rung.

    Returns:
        The SVG; "" if there is nothing to draw.
    """
    rungs = result.rungs
    if not {"t", "mean"} <= set(rungs) or not np.isfinite(rungs["mean"]).any():
        return ""
    table = rungs.assign(number=np.arange(len(rungs)))[np.isfinite(rungs["mean"])]
    t, mean = table["t"].to_numpy(), table["mean"].to_numpy()
    error = _column(table, "error")
    plain, plain_error = _column(table, "plain_mean", np.nan), _column(table, "plain_error")
    fine, curve = plots.curve(result, t, mean)
    band = 2 * np.interp(fine, t, error)

    both = (*_around(curve, band), *_around(mean, 2 * error), *_around(plain, 2 * plain_error))
    values = np.concatenate(both)
    room = 0.04 * max(np.nanmax(values) - np.nanmin(values), 1e-9 * np.nanmax(np.abs(values)), 1e-12)
    low, high = np.nanmin(values) - room, np.nanmax(values) + room
    ticks = nice_ticks(low, high)
    power = 0.2 if plots.clustered(t) and t[0] == 0 else 1.0

    def x(at: np.ndarray) -> np.ndarray:
        return LEFT + 8 + np.asarray(at, dtype=float) ** power * (WIDTH - LEFT - RIGHT - 16)

    def y(at: np.ndarray) -> np.ndarray:
        return HEIGHT - BOTTOM - (np.asarray(at, dtype=float) - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    upper, lower = y(curve + band), y(curve - band)
    edge = np.concatenate([fine, fine[::-1]]), np.concatenate([upper, lower[::-1]])
    drawn = [
        _axes(x, y, CLUSTERED_TICKS if power < 1 else (0, 0.25, 0.5, 0.75, 1), ticks, plots.g_words(result)),
        f'<path class="band" d="{_path(x(edge[0]), edge[1])}Z"/>',
        *(_plain(*at) for at in zip(x(t), y(plain), *_ends(y, plain, plain_error), strict=True) if np.isfinite(at[1])),
        f'<path class="curve" d="{_path(x(fine), y(curve))}"/>',
        *(
            _rung(int(n), described[int(n)], *at)
            for n, *at in zip(table["number"], x(t), y(mean), *_ends(y, mean, error), strict=True)
        ),
    ]
    label = f"{plots.g_words(result)} against inverse temperature, at {len(t)} rungs"
    return (
        f'<svg class="integrand" role="group" aria-label="{escape(label)}" viewBox="0 0 {WIDTH} {HEIGHT}">'
        f"{''.join(drawn)}</svg>"
    )


def nice_ticks(low: float, high: float) -> np.ndarray:
    """Choose round numbers between low and high.

    >>> nice_ticks(-259.884, -259.836).round(6).tolist()
    [-259.88, -259.87, -259.86, -259.85, -259.84]
    """
    raw = (high - low) / WANTED_TICKS
    unit = 10.0 ** np.floor(np.log10(raw))
    step = unit * min((1, 2, 5, 10), key=lambda times: abs(np.log(times * unit / raw)))
    return np.arange(np.ceil(low / step), np.floor(high / step) + 1) * step


def from_matplotlib(draw: Callable[..., object], size: tuple[float, float], label: str, prefix: str) -> str:
    """Draw with matplotlib, and return SVG that takes on the colours and the font of the page.

    Args:
        draw: is given the figure.
        size: inches.
        label: says what is to be seen.
        prefix: of all ids in the SVG, to keep them apart from those of other figures.

    Raises:
        ImportError: there is no matplotlib.
        ValueError: there is nothing to draw.
    """
    import matplotlib
    from matplotlib.figure import Figure

    style = {"svg.fonttype": "none", "svg.hashsalt": prefix} | dict.fromkeys(INKED, INK)
    written = io.StringIO()
    with matplotlib.rc_context(style), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of letters that matplotlib's own fonts lack: the page has others
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None})
    return _adopt(written.getvalue(), label, prefix)


def _adopt(svg: str, label: str, prefix: str) -> str:
    """Turn matplotlib's file into a part of a page: no header, sizes, metadata or style of its own."""
    body = svg[svg.index("<svg") :]
    box = re.search(r'viewBox="([^"]*)"', body)
    assert box is not None
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", body, flags=re.DOTALL)
    body = re.sub(r"^<svg[^>]*>", "", body)
    body = re.sub(r'(?<= d=")[^"]*', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]), body)
    body = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", body)
    body = re.sub(r'(?<= style=")[^"]*', _recoloured, body)
    return f'<svg class="plot" role="img" aria-label="{escape(label)}" viewBox="{box[1]}">{body.strip()}'


def _recoloured(style: re.Match[str]) -> str:
    return re.sub(r"#[0-9a-f]{6}\b", lambda colour: COLOURS.get(colour[0], colour[0]), style[0])


def _column(table: pd.DataFrame, name: str, default: float = 0.0) -> np.ndarray:
    """Return a column, with something else for what is missing."""
    if name not in table:
        return np.full(len(table), default)
    values = table[name].to_numpy(dtype=float)
    return np.where(np.isfinite(values), values, default)


def _around(value: np.ndarray, half: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return value - half, value + half


def _ends(y: Callable[[np.ndarray], np.ndarray], value: np.ndarray, error: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where error bars of two errors end."""
    low, high = _around(value, 2 * error)
    return y(low), y(high)


def _path(x: np.ndarray, y: np.ndarray) -> str:
    return "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x, y, strict=True))


def _axes(x: Callable, y: Callable, across: Sequence[float], up: np.ndarray, words: str) -> str:
    floor, end = HEIGHT - BOTTOM, WIDTH - RIGHT
    decimals = max(0, -int(np.floor(np.log10(up[1] - up[0]) + 1e-9)))
    horizontal = "".join(
        f'<line class="grid" x1="{LEFT}" x2="{end}" y1="{at:.1f}" y2="{at:.1f}"/>'
        f'<text class="up" x="{LEFT - 6}" y="{at + 4:.1f}">{value:.{decimals}f}</text>'
        for value, at in zip(up, y(up), strict=True)
    )
    vertical = "".join(
        f'<line class="tick" x1="{at:.1f}" x2="{at:.1f}" y1="{floor}" y2="{floor + 4}"/>'
        f'<text class="across" x="{at:.1f}" y="{floor + 17}">{value:g}</text>'
        for value, at in zip(across, x(np.array(across)), strict=True)
    )
    middle = (TOP + floor) / 2
    return (
        f'<g aria-hidden="true">{horizontal}{vertical}'
        f'<line class="axis" x1="{LEFT}" x2="{end}" y1="{floor}" y2="{floor}"/>'
        f'<text class="across" x="{(LEFT + end) / 2}" y="{HEIGHT - 6}">inverse temperature t</text>'
        f'<text class="across" transform="translate(13 {middle}) rotate(-90)">{escape(words)}</text></g>'
    )


def _plain(x: float, y: float, low: float, high: float) -> str:
    return (
        f'<g class="plain"><line x1="{x:.1f}" x2="{x:.1f}" y1="{low:.1f}" y2="{high:.1f}"/>'
        f'<rect x="{x - 2.5:.1f}" y="{y - 2.5:.1f}" width="5" height="5"/></g>'
    )


def _rung(number: int, words: str, x: float, y: float, low: float, high: float) -> str:
    """Draw a rung: its dot and error bar, a larger one to be hit by a finger, and a guide that shows when it is."""
    return (
        f'<g class="rung" data-rung="{number}" tabindex="{0 if number == 0 else -1}" role="img" '
        f'aria-label="{escape(words)}"><title>{escape(words)}</title>'
        f'<line class="guide" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
        f'<line class="error" x1="{x:.1f}" x2="{x:.1f}" y1="{low:.1f}" y2="{high:.1f}"/>'
        f'<circle class="hit" cx="{x:.1f}" cy="{y:.1f}" r="12"/>'
        f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="4"/></g>'
    )
