"""Figures as SVG inside a page, in the colours of the page, light or dark.

There are two kinds: the integrand, whose rungs answer to the pointer, and the plots of `thermint.plots`.
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
from thermint.report import style

WIDTH, HEIGHT = 480, 300
LEFT, RIGHT, TOP, BOTTOM = 74, 12, 12, 44  # margins
TICKS = 5  # about so many on the vertical axis: every 50 units, four times the height of their text
INK = "#010203"  # stands for the colour of the text
# Colours of the plots, by the names that the style sheet gives them.
COLOURS = {
    INK: "currentColor",
    "#000000": "currentColor",
    style.BLUE.lower(): "var(--blue)",
    style.ORANGE.lower(): "var(--orange)",
    style.GREEN.lower(): "var(--green)",
    style.GREY.lower(): "var(--grey)",
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
    """Draw E_t[g] as `plots.integrand` does, with an element for every rung that answers to the pointer.

    The table of rungs may lack errors and plain averages; without means, the SVG is "". ``described`` is of each rung.
    """
    rungs = result.rungs
    if not {"t", "mean"} <= set(rungs) or not np.isfinite(rungs["mean"]).any():
        return ""
    numbers = np.flatnonzero(np.isfinite(rungs["mean"])).tolist()
    table = rungs.iloc[numbers]
    t, mean = table["t"].to_numpy(), table["mean"].to_numpy()
    error = _column(table, "error")
    plain, plain_error = _column(table, "plain_mean", np.nan), _column(table, "plain_error")
    fine, curve = style.curve(result, t, mean)
    band = 2 * np.interp(fine, t, error)

    centres, halves = np.concatenate([curve, mean, plain]), np.concatenate([band, 2 * error, 2 * plain_error])
    low, high = np.nanmin(centres - halves), np.nanmax(centres + halves)
    room = 0.04 * max(high - low, 1e-9 * max(abs(low), abs(high)), 1e-12)
    low, high = low - room, high + room
    power, across = (0.2, style.CLUSTERED_TICKS) if style.clustered(result) else (1.0, [0, 0.25, 0.5, 0.75, 1])

    def x(at: np.ndarray) -> np.ndarray:
        return LEFT + 8 + np.asarray(at, dtype=float) ** power * (WIDTH - LEFT - RIGHT - 16)

    def y(at: np.ndarray) -> np.ndarray:
        return HEIGHT - BOTTOM - (np.asarray(at, dtype=float) - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    def bars(value: np.ndarray, error: np.ndarray) -> tuple[np.ndarray, ...]:
        return x(t), y(value), y(value - 2 * error), y(value + 2 * error)

    edge = np.concatenate([curve + band, (curve - band)[::-1]])
    drawn = [
        _axes(x, y, across, nice_ticks(low, high), style.g_words(result)),
        f'<path class="band" d="{_path(x(np.concatenate([fine, fine[::-1]])), y(edge))}Z"/>',
        *(_plain(*at) for at in zip(*bars(plain, plain_error), strict=True) if np.isfinite(at[1])),
        f'<path class="curve" d="{_path(x(fine), y(curve))}"/>',
        *(_rung(n, described[n], *at) for n, *at in zip(numbers, *bars(mean, error), strict=True)),
    ]
    label = f"{style.g_words(result)} against inverse temperature, at {len(t)} rungs"
    return (
        f'<svg class="integrand" role="group" aria-label="{escape(label)}" viewBox="0 0 {WIDTH} {HEIGHT}">'
        f"{''.join(drawn)}</svg>"
    )


def nice_ticks(low: float, high: float) -> np.ndarray:
    """Choose round numbers between low and high.

    >>> nice_ticks(-259.884, -259.836).round(6).tolist()
    [-259.88, -259.87, -259.86, -259.85, -259.84]
    """
    raw = (high - low) / TICKS
    unit = 10.0 ** np.floor(np.log10(raw))
    step = unit * min((1, 2, 5, 10), key=lambda times: abs(np.log(times * unit / raw)))
    return np.arange(np.ceil(low / step), np.floor(high / step) + 1) * step


def from_matplotlib(draw: Callable[..., object], size: tuple[float, float], label: str, prefix: str) -> str:
    """Draw on a matplotlib figure of a size in inches, and return SVG in the colours and the font of the page.

    The label describes it to screen readers. The prefix sets its ids apart from those of other figures.

    Raises:
        ImportError: there is no matplotlib.
        ValueError: there is nothing to draw.
    """
    import matplotlib
    from matplotlib.figure import Figure

    options = {"svg.fonttype": "none", "svg.hashsalt": prefix} | dict.fromkeys(INKED, INK)
    written = io.StringIO()
    with matplotlib.rc_context(options), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of letters that matplotlib's own fonts lack: the page has others
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None})
    return _adopt(written.getvalue(), label, prefix)


def _adopt(svg: str, label: str, prefix: str) -> str:
    """Turn matplotlib's file into a part of a page, without its header, sizes, metadata and style."""
    body = svg[svg.index("<svg") :]
    box = re.search(r'viewBox="([^"]*)"', body)
    assert box is not None
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", body, flags=re.DOTALL)
    body = re.sub(r"^<svg[^>]*>", "", body)
    body = re.sub(r'(?<= d=")[^"]*', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]), body)
    body = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", body)
    body = re.sub(r'(?<= style=")[^"]*', _recoloured, body)
    return f'<svg class="plot" role="img" aria-label="{escape(label)}" viewBox="{box[1]}">{body.strip()}'


def _recoloured(match: re.Match[str]) -> str:
    return re.sub(r"#[0-9a-f]{6}\b", lambda colour: COLOURS.get(colour[0], colour[0]), match[0])


def _column(table: pd.DataFrame, name: str, default: float = 0.0) -> np.ndarray:
    """Return a column; a default replaces missing values."""
    if name not in table:
        return np.full(len(table), default)
    values = table[name].to_numpy(dtype=float)
    return np.where(np.isfinite(values), values, default)


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
    """Draw a rung: dot, error bar, a larger invisible dot for fingers, and a guide line for the current rung."""
    return (
        f'<g class="rung" data-rung="{number}" tabindex="{0 if number == 0 else -1}" role="img" '
        f'aria-label="{escape(words)}"><title>{escape(words)}</title>'
        f'<line class="guide" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
        f'<line class="error" x1="{x:.1f}" x2="{x:.1f}" y1="{low:.1f}" y2="{high:.1f}"/>'
        f'<circle class="hit" cx="{x:.1f}" cy="{y:.1f}" r="12"/>'
        f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="4"/></g>'
    )
