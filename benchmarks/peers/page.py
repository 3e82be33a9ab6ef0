"""Results of all peers -> a part of docs/benchmarks.md, and its plot."""

from __future__ import annotations

import math
import os
import platform
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from benchmarks.peers.methods import METHODS
from benchmarks.peers.plot import draw
from benchmarks.peers.scores import FEW, NOISE, Reach, Row, Score, failures, reach, score

BEGIN = "<!-- from here on written by python -m benchmarks.peers -->"
END = "<!-- up to here -->"
# What the headline compares: accuracy in nats, and whether compilation counts.
GOALS = ((0.01, True), (0.001, False))
FAR_AHEAD = 100  # times as fast
NEVER = "–"
TITLES = {
    "pima-1": "Pima 1, d = 5",
    "pima-2": "Pima 2, d = 6",
    "radiata-1": "radiata pine 1, d = 3",
    "radiata-2": "radiata pine 2, d = 3",
    "linear-20": "linear regression, d = 20",
    "linear-50": "linear regression, d = 50",
    "logistic-50": "logistic regression, d = 50, n = 2000",
    "two-modes": "two modes of unequal width, d = 8",
    "goodwin-3": "Goodwin's oscillator, g = 3, d = 5",
    "schools": "eight schools, non-centred, d = 10",
    "eggbox": "eggbox, 18 equal modes, d = 2",
    "needle": "a needle on a broad hill, d = 5",
}
SEVERAL_MODES = ("two-modes", "goodwin-3", "eggbox", "needle")


def write(rows: list[Row], page: Path, command: str, seconds: float) -> None:
    """Write tables and words into the page, between two comments, and the plot beside it.

    Args:
        rows: lines of workers.
        page: the Markdown file; what else it has stays.
        command: that made the rows.
        seconds: CPU seconds that each method was given for each problem and effort.
    """
    scores = score(rows)
    plot = page.with_name("peers.png")
    draw([(TITLES[task], [one for one in scores if one.task == task]) for task in TITLES], plot)
    part = "\n\n".join([BEGIN, *_sections(rows, scores, plot.name, command, seconds), END])
    text = page.read_text() if page.exists() else "# Benchmarks\n"
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2].strip("\n")
    page.write_text(before.rstrip("\n") + "\n\n" + part + "\n" + (f"\n{after}\n" if after else ""))


def _sections(rows: list[Row], scores: list[Score], plot: str, command: str, seconds: float) -> Iterable[str]:
    tasks = [name for name in TITLES if any(row["task"] == name for row in rows)]
    yield "## thermint and its peers"
    yield (
        "Each method on one core, with the settings its package recommends, the same compiled JAX likelihood in "
        "float64, and cold caches. Errors are against known truths, in nats; seconds are CPU seconds. Seconds to an "
        "accuracy are those of a run that was made, or, with ~, of a longer one whose error falls as one over the root "
        f"of its length. An error of more than {1 / NOISE:g} times the one reported is no noise that a longer run "
        f"would average out: a part of the posterior is missed, and no time is given ({NEVER}). Errors of fewer than "
        f"{FEW} runs may be small by luck, and are taken to be no less than what these report."
    )
    yield "\n".join(_in_short(tasks, scores))
    yield "### Where thermint loses"
    yield "\n".join(_losses(tasks, scores)) or "Nowhere among what was run."
    for accuracy, compiling in GOALS:
        yield f"### The same accuracy: {accuracy:g} nats, {_with(compiling)} compilation"
        yield _same_accuracy(tasks, scores, accuracy, compiling)
    yield "### The same time"
    yield _same_time(tasks, scores)
    yield f"![Error against CPU seconds, a panel for each problem and a colour for each method]({plot})"
    for task in tasks:
        yield f"### {TITLES[task][0].upper()}{TITLES[task][1:]}"
        yield from _problem(rows, [one for one in scores if one.task == task], task)
    yield "### How this was measured"
    yield _settings(rows, scores, command, seconds)


def _rivals(scores: list[Score], task: str) -> tuple[list[Score], list[Score], list[Score]]:
    """Split the scores of a task: thermint's, those of peers, and those of Laplace importance sampling."""
    here = [one for one in scores if one.task == task]
    return (
        [one for one in here if one.method == "thermint"],
        [one for one in here if METHODS[one.method].peer],
        [one for one in here if one.method == "laplace"],
    )


def _losses(tasks: list[str], scores: list[Score]) -> Iterable[str]:
    """Say in words where others are faster, and where thermint's error bar is too small."""
    for task in tasks:
        ours, peers, laplace = _rivals(scores, task)
        if not ours:
            yield f"- {TITLES[task]}: thermint gave no answer."
            continue
        for accuracy, compiling in GOALS:
            mine = reach(ours, accuracy, compiling)
            others = [reach(rivals, accuracy, compiling) for rivals in (peers, laplace)]
            faster = [one for one in others if one and (mine is None or one.seconds < mine.seconds)]
            if faster:
                took = ", ".join(f"{METHODS[one.method].title} takes {_seconds(one)} s" for one in faster)
                ending = f"thermint {_seconds(mine)} s" if mine else "thermint does not get there"
                yield f"- {TITLES[task]}: to {accuracy:g} nats {_with(compiling)} compilation, {took}, {ending}."
        default = min(ours, key=lambda one: abs(one.effort - 1))
        if default.calibration < 0.5 and default.rmse > 1e-9:  # smaller ones are rounding
            yield (
                f"- {TITLES[task]}: thermint's error bar is too small: it reports {_nats(default.error)} where its "
                f"error is {_nats(default.rmse)}."
            )


def _in_short(tasks: list[str], scores: list[Score]) -> Iterable[str]:
    """Count the problems on which thermint is ahead."""
    for accuracy, compiling in GOALS:
        ratios = {}  # of the best peer and of Laplace importance sampling; infinite where these do not get there
        for task in tasks:
            mine, *others = (reach(some, accuracy, compiling) for some in _rivals(scores, task))
            if mine:
                ratios[task] = tuple(other.seconds / mine.seconds if other else math.inf for other in others)
        peers, laplace = (sum(pair[i] > 1 for pair in ratios.values()) for i in range(2))
        line = (
            f"- To {accuracy:g} nats {_with(compiling)} compilation, thermint is ahead of every package on {peers} of "
            f"{len(tasks)} problems, and of Laplace importance sampling on {laplace}."
        )
        one_mode = [ratios[task][0] for task in ratios if task not in SEVERAL_MODES]
        if not compiling and one_mode:
            least, most = _two_digits(min(one_mode)), _two_digits(max(one_mode))
            far = sum(ratio >= FAR_AHEAD for ratio in one_mode)
            line += (
                f" On the {len(one_mode)} with one mode it is {least} to {most} times as fast as the best package, and "
                f"{FAR_AHEAD} times or more on {far}."
            )
        yield line


def _with(compiling: bool) -> str:
    return "with" if compiling else "without"


def _same_accuracy(tasks: list[str], scores: list[Score], accuracy: float, compiling: bool) -> str:
    """Compare thermint with the best peer and with Laplace importance sampling, one line a problem."""
    lines = []
    for task in tasks:
        mine, best, laplace = (reach(some, accuracy, compiling) for some in _rivals(scores, task))
        title = METHODS[best.method].title if best else "none gets there"
        lines.append([TITLES[task], _seconds(mine), title, *_versus(best, mine), *_versus(laplace, mine)])
    ratio = "times thermint's"
    return _table(["problem", "thermint: s", "best package", "s", ratio, "Laplace: s", ratio], lines)


def _same_time(tasks: list[str], scores: list[Score]) -> str:
    """Compare errors in the time of thermint's default call, one line a problem."""
    lines = []
    for task in tasks:
        ours, peers, laplace = _rivals(scores, task)
        default = next((one for one in ours if one.effort == 1), None)
        if default is None:
            continue
        cells = [TITLES[task], _two_digits(default.run), _nats(default.rmse)]
        for rivals, named in ((peers, True), (laplace, False)):
            best = min(rivals, key=lambda one: one.rmse_within(default.run), default=None)
            if best is None:
                cells.append("")
                continue
            rmse = best.rmse_within(default.run)
            ratio = f" ({_two_digits(rmse / default.rmse)})" if default.rmse > 0 else ""
            cells.append((f"{METHODS[best.method].title}: " if named else "") + _nats(rmse) + ratio)
        lines.append(cells)
    head = ["problem", "CPU s of the default call, compiled", "its RMSE", "best package: RMSE (times thermint's)"]
    return _table([*head, "Laplace importance sampling"], lines)


def _versus(other: Reach | None, mine: Reach | None) -> tuple[str, str]:
    return _seconds(other), _two_digits(other.seconds / mine.seconds) if other and mine else ""


def _problem(rows: list[Row], scores: list[Score], task: str) -> Iterable[str]:
    """Make the table of one problem, and list what could not be run."""
    default = next((one for one in scores if one.method == "thermint" and one.effort == 1), None)
    lines = []
    for one in sorted(scores, key=lambda one: (list(METHODS).index(one.method), one.effort)):
        lines.append(
            [
                METHODS[one.method].title,
                f"{one.effort:g}",
                f"{one.replicates}" + (f" ({one.failures} failed)" if one.failures else ""),
                _nats(one.rmse),
                _nats(one.calibration),
                "" if one.evaluations < 0 else f"{one.evaluations:.3g}",
                _two_digits(one.run),
                _two_digits(one.compile),
                f"{one.memory:.0f}",
                *(_seconds(reach([one], accuracy, compiling)) for accuracy, compiling in GOALS),
                _nats(one.rmse_within(default.run)) if default else "",
            ]
        )
    head = ["method", "effort", "replicates", "RMSE", "error / RMSE", "evaluations", "CPU s", "compile s", "MiB"]
    head += [f"s to {accuracy:g}, {_with(compiling)} compilation" for accuracy, compiling in GOALS]
    if lines:
        yield _table([*head, "RMSE in thermint's time"], lines)
    failed = [f"- {METHODS[row['method']].title}, effort {row['effort']:g}: {row['failed']}" for row in failures(rows)
              if row["task"] == task]  # fmt: skip
    if failed:
        yield "Without an answer:\n\n" + "\n".join(failed)


def _settings(rows: list[Row], scores: list[Score], command: str, seconds: float) -> str:
    """Say on what, when and how it was run."""
    about = [
        f"- command: `{command}`, {seconds:g} seconds for each method, problem and effort",
        f"- {time.strftime('%d %B %Y')}; {_processor()}, {os.cpu_count()} cores, one for each method; "
        f"{platform.system()}, Python {platform.python_version()}",
        f"- {len([row for row in rows if 'failed' not in row])} runs; the first of a process compiles, and "
        "medians are given, of these and of the others",
        "- effort multiplies the number of draws, particles or live points of the recommended settings, which are:",
    ]
    for name, method in METHODS.items():
        mine = [one for one in scores if one.method == name]
        if mine:
            one = min(mine, key=lambda one: (abs(one.effort - 1), list(TITLES).index(one.task)))
            version = f" {one.version}" if one.version else ""
            about.append(f"    - {method.title} ({method.package or 'our own'}{version}): {one.settings}")
    return "\n".join(about)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _table(head: list[str], lines: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *lines))


def _seconds(one: Reach | None) -> str:
    return NEVER if one is None else ("" if one.measured else "~") + _two_digits(one.seconds)


def _nats(value: float) -> str:
    return "" if math.isnan(value) else _two_digits(value)


def _two_digits(value: float) -> str:
    """Write a number with two digits that count, and as few others as it takes."""
    return f"{float(f'{value:.2g}'):g}".replace("e+0", "e").replace("e+", "e")


def command_line() -> str:
    """Write down how this was called, without folders."""
    return " ".join(["python -m benchmarks.peers", *(Path(word).name for word in sys.argv[1:])])
