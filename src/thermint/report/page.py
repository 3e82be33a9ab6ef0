"""One HTML page for an answer: what it is, how far to trust it, how it came about, and how to repeat it.

The page loads nothing: style, script, figures and data are all in the file, which can be sent by mail and kept. It
follows the reader's choice of light or dark, prints, and needs no script to be read.

>>> import tempfile, thermint
>>> from pathlib import Path
>>> result = thermint.evidence(thermint.paper.linear.model(), draws=50)
>>> with tempfile.TemporaryDirectory() as folder:
...     path = result.report(Path(folder) / "linear.html")
...     print(path.read_text(encoding="utf-8")[:15])
<!DOCTYPE html>
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from thermint.estimators.table import label_of
from thermint.inference.compare import COLUMNS, Comparison, compare
from thermint.model.result import Evidence
from thermint.report import drawing, plots, style
from thermint.report import sentences as wording
from thermint.report.sentences import number, with_error

Row = Mapping[Any, Any]

# Of the table of rungs: what it is called, the columns that it needs, and how it is printed.
RUNG_COLUMNS: tuple[tuple[str, tuple[str, ...], Callable[[Row], str]], ...] = (
    ("t", ("t",), lambda row: number(row["t"], ".4g")),
    ("E[g]", ("mean", "error"), lambda row: with_error(row["mean"], row["error"])),
    ("plain average", ("plain_mean", "plain_error"), lambda row: with_error(row["plain_mean"], row["plain_error"])),
    ("R(t)", ("ratio",), lambda row: number(row["ratio"], ".1e")),
    ("degree", ("degree",), lambda row: number(row["degree"], ".0f")),
    ("accepted", ("acceptance",), lambda row: number(row["acceptance"], ".2f")),
    ("swap rate", ("swap_rate",), lambda row: number(row["swap_rate"], ".2f")),
    ("ESS", ("ess",), lambda row: number(row["ess"], ",.0f")),
    ("R-hat", ("r_hat",), lambda row: number(row["r_hat"], ".3f")),
    ("Pareto k", ("pareto_k",), lambda row: number(row["pareto_k"], ".2f")),
)
RUNG_WORDS = {
    "t": "inverse temperature, 0 where the path starts and 1 at the posterior",
    "E[g]": "expectation of the log likelihood, or of its ratio to the reference",
    "plain average": "the same without control variates",
    "R(t)": "share of the variance of g that control variates leave",
    "degree": "of their trial functions",
    "accepted": "share of the moves within the rung",
    "swap rate": "share of the exchanges with the next rung that are accepted",
    "ESS": "effective number of independent draws, or of weights",
}
TOO_ROUGH = 0.5  # error of a log Bayes factor of rivals, from which on their probabilities are not known
NO_PLOTS = 'More figures need matplotlib: pip install "thermint[plot]".'


def write(results: Mapping[str, Evidence], path: str | Path, table: pd.DataFrame | None = None) -> Path:
    """Write a page about one model, or several that are compared.

    Args:
        results: ``{"name": result}``; the name of a single model may be "".
        path: of the file, in a folder that there is. What was there before is replaced in one step.
        table: of `thermint.compare` with these models, if it had a prior or warnings of its own; by default it is made
            of the results.

    Returns:
        The path.

    Raises:
        ValueError: no results, or a table of other ones.
        OSError: the file cannot be written.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} to: make it first.")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: give the name of a file, such as {path / 'report.html'}.")
    content = page(results, table).encode("utf-8", "replace")
    part = path.with_name(path.name + ".part")
    try:
        part.write_bytes(content)
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
    return path


def page(results: Mapping[str, Evidence], table: pd.DataFrame | None = None) -> str:
    """Return the page as text; see `write`."""
    if not results:
        raise ValueError("there are no results to report: give at least one, as {'name': result}.")
    results = {str(name): result for name, result in results.items()}
    table = _checked(table, results)
    results = {name: results[name] for name in table.index}  # the best first
    title = "Evidence of " + (f"{len(results)} models" if len(results) > 1 else next(iter(results)) or "a model")
    methods = {name: wording.methods(result) for name, result in results.items()}
    body = [
        f"<header><h1>{escape(title)}</h1></header>",
        _answer(results, table),
        _warnings(table),
        _comparison(results, table) if len(results) > 1 else "",
        *(
            _model(i, name, result, methods[name], compared=len(results) > 1)
            for i, (name, result) in enumerate(results.items())
        ),
        _references(methods.values(), compared=len(results) > 1),
    ]
    script, style = _asset("report.js"), _asset("report.css")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # Nothing is loaded and no other script runs, whatever may be in the page.
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>{escape(title)}</title>\n<link rel="icon" href="data:,">\n<style>\n{style}</style>\n</head>\n<body>\n'
        f"<main>\n{chr(10).join(part for part in body if part)}\n</main>\n"
        f"<script>{script}</script>\n</body>\n</html>\n"
    )


def _asset(name: str) -> str:
    return (resources.files(__package__) / "assets" / name).read_text(encoding="utf-8")


def _checked(table: pd.DataFrame | None, results: Mapping[str, Evidence]) -> pd.DataFrame:
    """Make the table of the comparison, or refuse one that is of something else."""
    if table is None:
        with np.errstate(invalid="ignore"):  # of evidences that are not finite
            return compare(results)
    table = table.set_axis(table.index.map(str))
    if not set(COLUMNS) <= set(table.columns) or set(table.index) != set(results):
        raise ValueError(
            f"table is not of these models, {', '.join(map(repr, results))}: give that of thermint.compare."
        )
    for name, result in results.items():
        if not np.array_equal(table["log_evidence"][name], result.log_evidence, equal_nan=True):
            raise ValueError(
                f"table has another log evidence for {name!r} than its result: they are of different runs."
            )
    return table


# --- Parts of the page -----------------------------------------------------------------------------------------------


def _answer(results: Mapping[str, Evidence], table: pd.DataFrame) -> str:
    ((name, result), *others) = results.items()
    sentence = wording.verdict(table) if others else wording.answer(result, name)
    caution = wording.caution([one for one in results if table["warnings"][one]], len(results))
    return (
        f'<section class="answer{" warned" if caution else ""}" aria-label="The answer">'
        f'<p class="sentence">{escape(sentence)}</p>'
        + (f'<p class="caution">{escape(caution)}</p>' if caution else "")
        + f'<p class="soft">{escape(wording.meaning(len(results)))}</p></section>'
    )


def _warnings(table: pd.DataFrame) -> str:
    said = [
        f"{wording.quoted(name)}: {text}" if len(table) > 1 else text[:1].upper() + text[1:]
        for name, texts in table["warnings"].items()
        for text in texts
    ]
    if said:
        return (
            f'<section class="notice warned" id="warnings"><h2>{len(said)} warning{"s" * (len(said) > 1)}</h2>'
            f"{_list(said)}</section>"
        )
    return (
        '<section class="notice" id="warnings"><h2>No warnings</h2><p>Nothing was seen that speaks against '
        f"{'these numbers' if len(table) > 1 else 'this number'}: chains agree with each other, rungs with their "
        "neighbours and methods with other methods, as far as there are any. That is no proof: what no chain has found "
        "leaves no trace.</p></section>"
    )


def _comparison(results: Mapping[str, Evidence], table: pd.DataFrame) -> str:
    printed = Comparison(table).printed()
    odds = [
        wording.odds(-log_bf, error) if error > 0 and np.isfinite(log_bf) else ""
        for log_bf, error in zip(table["log_bf"], table["log_bf_error"], strict=True)
    ]
    printed.insert(2, "odds against", odds)
    rivals = wording.undecided(table)
    rough = any(table["log_bf_error"][name] > TOO_ROUGH for name in rivals)
    if rough:
        printed.loc[rivals, "probability"] = "not known"
    rows = [[name, *row] for name, row in zip(table.index, printed.to_numpy().tolist(), strict=True)]
    drawn = table.set_axis([name.replace("$", r"\$") for name in table.index])  # no formulas
    figure = _figure(
        lambda figure: plots.comparison(drawn, figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))),
        (style.PAGE, 0.9 + 0.35 * len(table)),
        "Log evidences with 95 % intervals, and probabilities of the models.",
        "comparison",
        wide=True,
    )
    links = "".join(f'<li><a href="#model-{i}">{escape(name)}</a></li>' for i, name in enumerate(table.index))
    return (
        '<section id="comparison"><h2>Comparison</h2>'
        + _table(["model", *printed.columns], rows, wordy=(0, len(printed.columns)))
        + '<p class="soft">The log Bayes factor is relative to the best model. Odds against a model are those of the '
        "best one over it, if both were equally probable before. The words for the evidence against it are those of "
        f"Kass and Raftery (1995).</p>{'' if rough else figure}{_not_included(results.values())}"
        f'<nav aria-label="Models"><p class="soft">One by one:</p><ul>{links}</ul></nav></section>'
    )


def _model(i: int, name: str, result: Evidence, methods: str, *, compared: bool) -> str:
    """Write all about one model; under its name, if there are several."""
    level = "h3" if compared else "h2"
    shown = _shown(result)
    parts = [
        f"<h2>{escape(name or 'The model')}</h2><p>{escape(wording.answer(result))}</p>" if compared else "",
        _budget(result, level) + ("" if compared else _not_included([result])),
        _integrand(i, result, shown, level),
        _rungs(i, shown, level),
        _diagnostics(i, result, level),
        _estimates(i, result, level),
        f"<{level}>How it was computed</{level}><p>{escape(methods)}</p>",
        _repeat(result, level),
    ]
    return f'<section class="{"model" if compared else "only"}" id="model-{i}">{"".join(parts)}</section>'


def _not_included(results: Collection[Evidence]) -> str:
    said = (text for result in results for text in wording.not_included(result, compared=len(results) > 1))
    return f"<p>What the error does not include:</p>{_list(list(dict.fromkeys(said)))}"


def _budget(result: Evidence, level: str) -> str:
    parts = wording.budget(result)
    total = sum(part.error**2 for part in parts)
    shares = [part.error**2 / total for part in parts] if 0 < total < np.inf else []
    named = ", ".join(f"{part.name} {_share(share)}" for part, share in zip(parts, shares, strict=False))
    rows = [
        [_key(j) + escape(part.name), escape(wording.error_text(part.error)), escape(_share(share)), escape(part.note)]
        for j, (part, share) in enumerate(zip(parts, shares or [np.nan] * len(parts), strict=True))
    ]
    rows.append(["total", escape(wording.error_text(result.standard_error)), "", "standard error of the answer"])
    return (
        f"<{level}>Where the error comes from</{level}>"
        + (drawing.bar(shares, f"Shares of the squared error: {named}") if shares else "")
        + _html_table(["part", "error", "share of the square", ""], rows, wordy=(0, 3), chosen=len(rows) - 1)
    )


def _share(share: float) -> str:
    return "below 0.1 %" if 0 < share < 1e-3 else number(100 * share, ".1f") + " %"


def _shown(result: Evidence) -> list[list[tuple[str, str]]]:
    """Print the table of rungs: for each, pairs of label and text."""
    rows = result.rungs.to_dict("records")
    columns = [column for column in RUNG_COLUMNS if set(column[1]) <= set(result.rungs)]
    if "mean" in result.rungs and "error" not in result.rungs:
        columns.insert(1, ("E[g]", ("mean",), lambda row: number(row["mean"], ".6g")))
    return [
        [("rung", str(i)), *((label, text(row)) for label, _, text in columns)] for i, row in enumerate(rows) if columns
    ]


def _integrand(i: int, result: Evidence, shown: list[list[tuple[str, str]]], level: str) -> str:
    described = [", ".join(f"{label} {text}" for label, text in pairs) for pairs in shown]
    svg = drawing.integrand(result, described)
    if not svg:
        return ""
    plain = "plain_mean" in result.rungs
    legend = '<span class="legend">' + _key(0) + ("with control variates" if plain else "averages") + "</span>"
    if plain:
        legend += ' and <span class="legend">' + _key(1) + "plain averages</span>, both ± 2 errors"
    integrated = wording.chosen(result) == "cti"
    heading = "What is integrated" if integrated else "Along the path"
    area = "The area under the curve is the log evidence. " if integrated else ""
    return (
        f'<{level}>{heading}</{level}><figure class="explore" data-table="rungs-{i}">{svg}'
        '<div class="readout" hidden><p class="soft">Point at a rung, here or in the table below, to see its numbers; '
        "or move with Tab and the arrow keys.</p></div>"
        f"<figcaption>{area}Dots are the rungs: {legend}.</figcaption>"
        f"{_data({'rungs': shown, 'result': result.as_dict()})}</figure>"
    )


def _rungs(i: int, shown: list[list[tuple[str, str]]], level: str) -> str:
    if not shown:
        return ""
    header, rows = [label for label, _ in shown[0]], [[text for _, text in pairs] for pairs in shown]
    table = _table(header, rows, id=f"rungs-{i}", tall=True)
    words = "; ".join(f"{label}: {RUNG_WORDS[label]}" for label in header if label in RUNG_WORDS)
    return f'<{level}>Rungs</{level}>{table}<p class="soft">{escape(words)}.</p>'


def _diagnostics(i: int, result: Evidence, level: str) -> str:
    rows = min(plots.MOST_ROWS, result.trace.shape[2]) if result.trace is not None else 1
    column, page = (style.COLUMN, 2.4), (style.PAGE, 1.2 * rows + 0.4)
    figures = [
        _figure(
            lambda figure: plots.ratio(result, figure.subplots()),
            column,
            "Share of the variance of g that control variates leave; 1 is no gain.",
            f"ratio-{i}",
        ),
        _figure(
            lambda figure: plots.swaps(result, figure.subplots()),
            column,
            "How often neighbouring rungs exchange states (bars), and the communication barrier up to each (dots).",
            f"swaps-{i}",
        ),
    ]
    traces = _figure(
        lambda figure: plots.traces(result, figure.subplots(rows, 2, squeeze=False, width_ratios=(3, 2))),
        page,
        "Traces of g and their rank plots, a colour for each population. Populations that mix look alike.",
        f"traces-{i}",
        wide=True,
    )
    coefficients = _figure(
        lambda figure: plots.coefficients(result, figure.subplots()),
        (style.PAGE, 3.4),
        "Coefficients of the control variates: rungs across, trial functions down, lowest degree first.",
        f"coefficients-{i}",
        wide=True,
    )
    checks, drawn = wording.checks(result), [*figures, traces, coefficients]
    if not checks and not any(drawn):
        return ""
    missing = "" if any(drawn) or _can_plot() else f'<p class="soft">{escape(NO_PLOTS)}</p>'
    return (
        f'<{level}>How well it went</{level}>{_list(checks)}{missing}<div class="figures">{"".join(figures)}</div>'
        f"{traces}{coefficients}"
    )


def _can_plot() -> bool:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


def _estimates(i: int, result: Evidence, level: str) -> str:
    table = result.estimates
    if not {"log_evidence", "standard_error"} <= set(table) or len(table) < 2:
        return ""
    names = [str(name) for name in table.index]
    rows = [
        [label_of(name), with_error(value, error), number(value - result.log_evidence, "+.2g")]
        for name, value, error in zip(names, table["log_evidence"], table["standard_error"], strict=True)
    ]
    answer = names.index(wording.chosen(result)) if wording.chosen(result) in names else None
    if answer is not None:
        rows[answer][2] = "the answer"
    figure = _figure(
        lambda figure: plots.estimators(result, figure.subplots()),
        (4.6, 0.8 + 0.27 * len(table)),
        "Answers of all methods from the same draws, relative to the answer, ± 2 errors.",
        f"estimators-{i}",
    )
    return (
        f'<{level}>Other methods, same draws</{level}><div class="beside">'
        + _table(["method", "log evidence", "minus the answer"], rows, wordy=(0,), chosen=answer)
        + f"{figure}</div>"
    )


def _repeat(result: Evidence, level: str) -> str:
    settings = {name: value for name, value in result.settings.items() if name not in ("ladder", "versions")}
    settings["ladder"] = f"{len(result.settings.get('ladder', result.rungs))} rungs, listed above"
    settings |= {f"version of {package}": value for package, value in result.settings.get("versions", {}).items()}
    settings["likelihood evaluations"] = f"{result.evaluations:,}"
    settings["seconds"] = f"{result.seconds:.1f}"
    rows = [[name.replace("_", " "), _setting(value)] for name, value in settings.items() if value is not None]
    return (
        f"<{level}>To repeat it</{level}><p>With the same model, data and versions, this call repeats the run:</p>"
        f"<pre><code>{escape(wording.snippet(result))}</code></pre>"
        '<p class="soft">A budget (max_evaluations, max_seconds) or an interruption may have shortened the run, and a '
        "ladder that was given where the library could have chosen the same one does not show here.</p>"
        + _table(["setting", "value"], rows, css="settings")
    )


def _setting(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _references(methods: Iterable[str], *, compared: bool) -> str:
    text = " ".join([*methods, "Kass and Raftery 1995" if compared else ""])
    items = "".join(
        f'<li>{escape(said)} <a href="https://doi.org/{escape(doi)}">doi:{escape(doi)}</a></li>'
        for said, doi in wording.cited(text)
    )
    return f'<section id="references"><h2>References</h2><ul>{items}</ul></section>'


# --- Pieces of HTML --------------------------------------------------------------------------------------------------


def _list(items: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(item)}</li>' for item in items)}</ul>" if items else ""


def _key(part: int) -> str:
    """Return a small square in a colour, for a legend."""
    return (
        f'<svg class="key" viewBox="0 0 1 1" aria-hidden="true"><rect class="part-{part}" width="1" height="1"/></svg>'
    )


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], **how: Any) -> str:
    """Write a table of plain text; see `_html_table`."""
    return _html_table(header, [[escape(cell) for cell in row] for row in rows], **how)


def _html_table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    id: str = "",
    css: str = "",
    wordy: Sequence[int] = (),
    chosen: int | None = None,
    tall: bool = False,
) -> str:
    """Write a table, whose cells are HTML; it scrolls where it is too wide, or too tall.

    Args:
        header: names of the columns.
        rows: the first cell of each is its header.
        id: of the table.
        css: class of the table.
        wordy: columns of words, not of numbers.
        chosen: the row that is set in bold.
        tall: scroll after some rows.
    """

    def cell(tag: str, column: int, content: str) -> str:
        return f"<{tag}{' class=words' if column in wordy else ''}>{content}</{tag.split()[0]}>"

    names = [escape(name).replace("-", "&#8209;") for name in header]  # hyphens at which no line ends
    head = "".join(cell('th scope="col"', column, name) for column, name in enumerate(names))
    body = "".join(
        f"<tr{' class=chosen' if row_number == chosen else ''}>"
        + "".join(cell("td" if column else 'th scope="row"', column, content) for column, content in enumerate(row))
        + "</tr>"
        for row_number, row in enumerate(rows)
    )
    named = (f' id="{id}"' if id else "") + (f' class="{css}"' if css else "")
    return (
        f'<div class="scroll{" tall" if tall else ""}" tabindex="0" role="group" aria-label="table">'
        f"<table{named}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _figure(
    draw: Callable[..., object], size: tuple[float, float], caption: str, prefix: str, *, wide: bool = False
) -> str:
    """Draw a plot with its caption, or nothing if the result does not have what it shows."""
    try:
        svg = drawing.from_matplotlib(draw, size, caption, prefix)
    except (ImportError, ValueError):
        return ""
    inner = f'<div class="wide">{svg}</div>' if wide else svg
    return f"<figure>{inner}<figcaption>{escape(caption)}</figcaption></figure>"


def _data(value: Any) -> str:
    """Put data into the page; no text in it can end the element that holds it."""
    text = json.dumps(value, default=str)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return f'<script type="application/json">{text}</script>'
