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
from collections.abc import Callable, Collection, Mapping
from html import escape
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from thermint.estimators.table import label_of
from thermint.inference.compare import COLUMNS, SCALE, WITHIN, Comparison, compare
from thermint.model.result import Evidence
from thermint.report import drawing, markup, plots, sentences
from thermint.report.formatting import error_text, number, quoted, with_error
from thermint.report.methods import chosen, cited, methods
from thermint.report.snippet import snippet
from thermint.report.style import COLUMN, PAGE
from thermint.report.trust import budget, checks, not_included

# Label, column of `Evidence.rungs`, format (± is a value with its error), and meaning.
RUNG_COLUMNS = (
    ("t", "t", ".4g", "inverse temperature, 0 where the path starts and 1 at the posterior"),
    ("E[g]", "mean", "±", "expectation of the log likelihood, or of its ratio to the reference"),
    ("plain average", "plain_mean", "±", "the same without control variates"),
    ("R(t)", "ratio", ".1e", "share of the variance of g that control variates leave"),
    ("degree", "degree", ".0f", "of their trial functions"),
    ("accepted", "acceptance", ".2f", "share of the moves within the rung"),
    ("swap rate", "swap_rate", ".2f", "share of the swaps with the next rung that are accepted"),
    ("ESS", "ess", ",.0f", "effective number of independent draws, or of weights"),
    ("R-hat", "r_hat", ".3f", ""),
    ("Pareto k", "pareto_k", ".2f", ""),
)


def write(results: Mapping[str, Evidence], path: str | Path, table: pd.DataFrame | None = None) -> Path:
    """Write a page about one model, or several that are compared, and return its path.

    Args:
        results: ``{"name": result}``; the name of a single model may be "".
        path: of the file, in an existing folder. A file that exists is replaced in one step.
        table: of `thermint.compare`, with its prior and warnings; by default it is made of the results.

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
    body = [
        f"<header><h1>{escape(title)}</h1></header>",
        _answer(results, table),
        _warnings(table),
        _comparison(results, table) if len(results) > 1 else "",
        *(_model(i, name, result, compared=len(results) > 1) for i, (name, result) in enumerate(results.items())),
        _references(results.values()),
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
        f"<main>\n{chr(10).join(filter(None, body))}\n</main>\n<script>{script}</script>\n</body>\n</html>\n"
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
        names = ", ".join(map(repr, results))
        raise ValueError(f"table is not of these models, {names}: give that of thermint.compare.")
    for name, result in results.items():
        if not np.array_equal(table["log_evidence"][name], result.log_evidence, equal_nan=True):
            raise ValueError(f"table and result of {name!r} differ in their log evidence: they are of different runs.")
    return table


def _answer(results: Mapping[str, Evidence], table: pd.DataFrame) -> str:
    ((name, result), *others) = results.items()
    sentence = sentences.verdict(table) if others else sentences.answer(result, name)
    caution = sentences.caution([one for one in results if table["warnings"][one]], len(results))
    return (
        f'<section class="answer{" warned" if caution else ""}" aria-label="The answer">'
        f'<p class="sentence">{escape(sentence)}</p>'
        + (f'<p class="caution">{escape(caution)}</p>' if caution else "")
        + f"{markup.soft(sentences.meaning(len(results)))}</section>"
    )


def _warnings(table: pd.DataFrame) -> str:
    warnings = [
        f"{quoted(name)}: {text}" if len(table) > 1 else text[:1].upper() + text[1:]
        for name, texts in table["warnings"].items()
        for text in texts
    ]
    if warnings:
        heading = f"{len(warnings)} warning{'s' if len(warnings) > 1 else ''}"
        return f'<section class="notice warned" id="warnings"><h2>{heading}</h2>{markup.items(warnings)}</section>'
    return (
        '<section class="notice" id="warnings"><h2>No warnings</h2><p>No check speaks against '
        f"{'these numbers' if len(table) > 1 else 'this number'}: chains agree with each other, rungs with their "
        "neighbours and methods with other methods, as far as there are any. That is no proof: modes that no chain has "
        "found leave no trace.</p></section>"
    )


def _comparison(results: Mapping[str, Evidence], table: pd.DataFrame) -> str:
    printed = Comparison(table).printed()
    odds = [
        sentences.odds(-log_bf, error) if error > 0 and np.isfinite(log_bf) else ""
        for log_bf, error in zip(table["log_bf"], table["log_bf_error"], strict=True)
    ]
    printed.insert(2, "odds against", odds)
    rivals = sentences.undecided(table)
    # Probabilities are not known where the error of a log Bayes factor is more than what is worth a mention (2 ln BF).
    rough = any(2 * WITHIN * table["log_bf_error"][name] > SCALE[0][0] for name in rivals)
    if rough:
        printed.loc[rivals, "probability"] = "not known"
    rows = [[name, *row] for name, row in zip(table.index, printed.to_numpy().tolist(), strict=True)]
    figure = markup.figure(
        plots.comparison,
        table.set_axis([name.replace("$", r"\$") for name in table.index]),  # no formulas
        (PAGE, 0.9 + 0.35 * len(table)),
        "Log evidences with 95 % intervals, and probabilities of the models.",
        "comparison",
        ncols=2,
        sharey=True,
        width_ratios=(3, 2),
    )
    links = "".join(f'<li><a href="#model-{i}">{escape(name)}</a></li>' for i, name in enumerate(table.index))
    about = (
        "The log Bayes factor is relative to the best model. Odds against a model are those of the best one over it, "
        "if both were equally probable before. The evidence against it is described in the words of Kass and Raftery "
        "(1995)."
    )
    return (
        '<section id="comparison"><h2>Comparison</h2>'
        + markup.table(["model", *printed.columns], rows, wordy=(0, len(printed.columns)))
        + f"{markup.soft(about)}{'' if rough else figure}{_left_out(results.values())}"
        f'<nav aria-label="Models">{markup.soft("One by one:")}<ul>{links}</ul></nav></section>'
    )


def _model(i: int, name: str, result: Evidence, *, compared: bool) -> str:
    """Write all about one model; under its name, if there are several."""
    rungs = _rung_texts(result)
    integrated = chosen(result) == "cti"
    parts = {
        "Where the error comes from": _budget(result) + ("" if compared else _left_out([result])),
        "What is integrated" if integrated else "Along the path": _integrand(i, result, rungs, integrated=integrated),
        "Rungs": _rungs(i, rungs),
        "Diagnostics": _diagnostics(i, result),
        "Other methods, same draws": _estimates(i, result),
        "How it was computed": f"<p>{escape(methods(result))}</p>",
        "How to repeat it": _repeat(result),
    }
    level, css = ("h3", "model") if compared else ("h2", "only")
    head = f"<h2>{escape(name or 'The model')}</h2><p>{escape(sentences.answer(result))}</p>" if compared else ""
    body = "".join(f"<{level}>{heading}</{level}>{content}" for heading, content in parts.items() if content)
    return f'<section class="{css}" id="model-{i}">{head}{body}</section>'


def _left_out(results: Collection[Evidence]) -> str:
    texts = (text for result in results for text in not_included(result, compared=len(results) > 1))
    return f"<p>What the error does not include:</p>{markup.items(list(dict.fromkeys(texts)))}"


def _budget(result: Evidence) -> str:
    parts = budget(result)
    total = sum(part.error**2 for part in parts)
    shares = [part.error**2 / total for part in parts] if 0 < total < np.inf else [np.nan] * len(parts)
    rows = [
        [markup.Markup(markup.key(j) + escape(part.name)), error_text(part.error), _share(share), part.note]
        for j, (part, share) in enumerate(zip(parts, shares, strict=True))
    ]
    rows.append(["total", error_text(result.standard_error), "", "standard error of the answer"])
    named = ", ".join(f"{part.name} {_share(share)}" for part, share in zip(parts, shares, strict=True))
    bar = drawing.bar(shares, f"Shares of the squared error: {named}") if np.isfinite(shares).all() else ""
    return bar + markup.table(["part", "error", "share of the square", ""], rows, wordy=(0, 3), chosen=len(rows) - 1)


def _share(share: float) -> str:
    return "below 0.1 %" if 0 < share < 1e-3 else number(100 * share, ".1f") + " %"


def _rung_texts(result: Evidence) -> list[list[tuple[str, str]]]:
    """Print the table of rungs: for each, pairs of label and text."""

    def text(row: dict[Any, Any], column: str, form: str) -> str:
        error = row.get(column.replace("mean", "error"), np.nan)
        return with_error(row[column], error) if form == "±" else number(row[column], form)

    columns = [one for one in RUNG_COLUMNS if one[1] in result.rungs]
    rows = result.rungs.to_dict("records") if columns else []
    return [
        [("rung", str(i)), *((label, text(row, column, form)) for label, column, form, _ in columns)]
        for i, row in enumerate(rows)
    ]


def _integrand(i: int, result: Evidence, rungs: list[list[tuple[str, str]]], *, integrated: bool) -> str:
    svg = drawing.integrand(result, [", ".join(f"{label} {text}" for label, text in pairs) for pairs in rungs])
    if not svg:
        return ""
    plain = "plain_mean" in result.rungs
    legend = f'<span class="legend">{markup.key(0)}{"with control variates" if plain else "averages"}</span>'
    if plain:
        legend += f' and <span class="legend">{markup.key(1)}plain averages</span>, both ± 2 errors'
    area = "The area under the curve is the log evidence. " if integrated else ""
    hint = "Point at a rung, here or in the table below, to see its numbers; or move with Tab and the arrow keys."
    return (
        f'<figure class="explore" data-table="rungs-{i}">{svg}<div class="readout" hidden>{markup.soft(hint)}</div>'
        f"<figcaption>{area}Dots are the rungs: {legend}.</figcaption>"
        f"{markup.data({'rungs': rungs, 'result': result.as_dict()})}</figure>"
    )


def _rungs(i: int, rungs: list[list[tuple[str, str]]]) -> str:
    if not rungs:
        return ""
    header = [label for label, _ in rungs[0]]
    meanings = "; ".join(f"{label}: {meaning}" for label, *_, meaning in RUNG_COLUMNS if meaning and label in header)
    rows = [[text for _, text in pairs] for pairs in rungs]
    return markup.table(header, rows, id=f"rungs-{i}", tall=True) + markup.soft(f"{meanings}.")


def _diagnostics(i: int, result: Evidence) -> str:
    rows = min(plots.MOST_ROWS, result.trace.shape[2]) if result.trace is not None else 1

    def figure(draw: Callable[..., object], width: float, height: float, caption: str, **grid: Any) -> str:
        return markup.figure(draw, result, (width, height), caption, f"{draw.__name__}-{i}", **grid)

    small = [
        figure(plots.ratio, COLUMN, 2.4, "Share of the variance of g that control variates leave; 1 is no gain."),
        figure(
            plots.swaps, COLUMN, 2.4, "How often neighbouring rungs swap (bars), and the communication barrier (dots)."
        ),
    ]
    large = [
        figure(
            plots.traces,
            PAGE,
            1.2 * rows + 0.4,
            "Traces of g and their rank plots, a colour for each population. Populations that mix look alike.",
            nrows=rows,
            ncols=2,
            squeeze=False,
            width_ratios=(3, 2),
        ),
        figure(
            plots.coefficients,
            PAGE,
            3.4,
            "Coefficients of the control variates: rungs across, trial functions down, lowest degree first.",
        ),
    ]
    found = checks(result)
    if not found and not any(small + large):
        return ""
    hint = "" if find_spec("matplotlib") else markup.soft('More figures need matplotlib: pip install "thermint[plot]".')
    return f'{markup.items(found)}{hint}<div class="figures">{"".join(small)}</div>{"".join(large)}'


def _estimates(i: int, result: Evidence) -> str:
    table = result.estimates
    if not {"log_evidence", "standard_error"} <= set(table) or len(table) < 2:
        return ""
    names = list(table.index)
    answer = names.index(chosen(result)) if chosen(result) in names else None
    rows = [
        [
            label_of(str(name)),
            with_error(value, error),
            "the answer" if name == chosen(result) else number(value - result.log_evidence, "+.2g"),
        ]
        for name, value, error in zip(names, table["log_evidence"], table["standard_error"], strict=True)
    ]
    figure = markup.figure(
        plots.estimators,
        result,
        (4.6, 0.8 + 0.27 * len(table)),
        "Answers of all methods from the same draws, relative to the answer, ± 2 errors.",
        f"estimators-{i}",
    )
    header = ["method", "log evidence", "minus the answer"]
    return f'<div class="beside">{markup.table(header, rows, wordy=(0,), chosen=answer)}{figure}</div>'


def _repeat(result: Evidence) -> str:
    settings = {name: value for name, value in dict(result.settings).items() if name not in ("ladder", "versions")}
    settings["ladder"] = f"{len(result.rungs)} rungs, listed above"
    settings |= {f"version of {package}": value for package, value in result.settings.versions.items()}
    settings |= {"likelihood evaluations": f"{result.evaluations:,}", "seconds": f"{result.seconds:.1f}"}
    rows = [[name.replace("_", " "), _setting(value)] for name, value in settings.items() if value is not None]
    limits = (
        "A budget (max_evaluations, max_seconds) or an interruption may have shortened the run. A given ladder that is "
        "the one the library would have chosen is not shown."
    )
    return (
        "<p>With the same model, data and versions, this call repeats the run:</p>"
        f"<pre><code>{escape(snippet(result))}</code></pre>"
        f"{markup.soft(limits)}{markup.table(['setting', 'value'], rows, css='settings')}"
    )


def _setting(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _references(results: Collection[Evidence]) -> str:
    text = " ".join([*map(methods, results), "Kass and Raftery 1995" if len(results) > 1 else ""])
    listed = "".join(
        f'<li>{escape(one.text)} <a href="https://doi.org/{escape(one.doi)}">doi:{escape(one.doi)}</a></li>'
        for one in cited(text)
    )
    return f'<section id="references"><h2>References</h2><ul>{listed}</ul></section>'
