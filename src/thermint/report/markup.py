"""Pieces of HTML: lists, tables, figures, and data that a script reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any

from thermint.report import drawing
from thermint.report.style import PAGE


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def items(texts: Sequence[str]) -> str:
    """Write a list."""
    return f"<ul>{''.join(f'<li>{escape(text)}</li>' for text in texts)}</ul>" if texts else ""


def soft(text: str) -> str:
    """Write a paragraph of less importance."""
    return f'<p class="soft">{escape(text)}</p>'


def key(part: int) -> Markup:
    """Return a small square in a colour, for a legend."""
    square = f'<rect class="part-{part}" width="1" height="1"/>'
    return Markup(f'<svg class="key" viewBox="0 0 1 1" aria-hidden="true">{square}</svg>')


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    id: str = "",
    css: str = "",
    wordy: Sequence[int] = (),
    chosen: int | None = None,
    tall: bool = False,
) -> str:
    """Write a table, which scrolls where it is too wide or, if ``tall``, too tall.

    The first cell of a row is its header; ``wordy`` columns hold words, and the ``chosen`` row is bold.
    """

    def cell(tag: str, column: int, content: str) -> str:
        text = content if isinstance(content, Markup) else escape(content)
        return f"<{tag}{' class=words' if column in wordy else ''}>{text}</{tag.split()[0]}>"

    names = [Markup(escape(name).replace("-", "&#8209;")) for name in header]  # hyphens at which no line ends
    head = "".join(cell('th scope="col"', column, name) for column, name in enumerate(names))
    body = "".join(
        f"<tr{' class=chosen' if number == chosen else ''}>"
        + "".join(cell("td" if column else 'th scope="row"', column, content) for column, content in enumerate(row))
        + "</tr>"
        for number, row in enumerate(rows)
    )
    named = (f' id="{id}"' if id else "") + (f' class="{css}"' if css else "")
    return (
        f'<div class="scroll{" tall" if tall else ""}" tabindex="0" role="group" aria-label="table">'
        f"<table{named}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def figure(
    draw: Callable[..., object], shown: Any, size: tuple[float, float], caption: str, prefix: str, **grid: Any
) -> str:
    """Draw a plot of a result or table with its caption, or nothing where it cannot be drawn; see `from_matplotlib`."""
    try:
        svg = drawing.from_matplotlib(lambda figure: draw(shown, figure.subplots(**grid)), size, caption, prefix)
    except (ImportError, ValueError):
        return ""
    inner = f'<div class="wide">{svg}</div>' if size[0] == PAGE else svg
    return f"<figure>{inner}<figcaption>{escape(caption)}</figcaption></figure>"


def data(value: Any) -> str:
    """Put data into the page; no text in it can end the element that holds it."""
    text = json.dumps(value, default=str)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return f'<script type="application/json">{text}</script>'
