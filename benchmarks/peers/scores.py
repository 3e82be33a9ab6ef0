"""From the lines of workers to figures: errors, seconds, and both made comparable."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

Row = dict[str, Any]  # a line of a worker
FEW = 3  # replicates, below which their errors may be small by luck
NOISE = 0.2  # reported error over actual error, below which that is no noise that a longer run would average out


class Score(NamedTuple):
    """How one method did on one task with one effort, over all replicates that gave an answer."""

    method: str
    task: str
    effort: float
    replicates: int
    failures: int
    rmse: float  # against the truth, in nats; of a few replicates, no less than the error that they report
    error: float  # mean of those reported; NaN if there are none
    evaluations: float  # mean; -1 if not known
    run: float  # CPU seconds of a replicate, compiled
    compile: float  # CPU seconds that the first replicate took in addition
    importing: float  # CPU seconds, before that
    memory: float  # MiB
    settings: str
    version: str

    @property
    def calibration(self) -> float:
        """Reported error over actual error: 1 is right, less is overconfident."""
        return self.error / self.rmse if self.rmse > 0 else math.nan

    @property
    def biased(self) -> bool:
        """Whether it is surely wrong where it thinks that it is right: a part of the posterior was missed."""
        return self.calibration < NOISE

    def seconds(self, accuracy: float, compiling: bool) -> float:
        """CPU seconds to an error of ``accuracy`` nats, with or without compilation.

        A run as long as needed has an error that falls as one over the root of its length; it is never so accurate if
        it is biased. No run is taken to be shorter than it was.
        """
        if self.biased and self.rmse > accuracy:
            return math.inf
        return (self.compile if compiling else 0.0) + self.run * max(1.0, (self.rmse / accuracy) ** 2)

    def rmse_within(self, seconds: float) -> float:
        """Error of a run of so many CPU seconds, compiled; by the same rule."""
        gain = math.sqrt(seconds / self.run)
        return self.rmse / (min(gain, 1.0) if self.biased else gain)


def read(path: Path) -> list[Row]:
    """Read the lines that there are."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def score(rows: Iterable[Row]) -> list[Score]:
    """Take the replicates of each method, task and effort together, in the order of the lines."""
    groups: dict[tuple[str, str, float], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["method"], row["task"], row["effort"]), []).append(row)
    return [_score(*key, group) for key, group in groups.items() if any(map(_answered, group))]


def failures(rows: Iterable[Row]) -> list[Row]:
    """List the lines that say why there is no answer, once for each method, task, effort and reason.

    That it took too long is not said where a later run had more time.
    """
    rows = list(rows)
    answered = {(row["method"], row["task"], row["effort"]) for row in rows if _answered(row)}
    found = {}
    for row in rows:
        job = row["method"], row["task"], row["effort"]
        if "failed" in row and not ("limit" in row and job in answered):
            found[(*job, row["failed"])] = row
    return list(found.values())


def _answered(row: Row) -> bool:
    return row.get("log_evidence") is not None


def _score(method: str, task: str, effort: float, rows: list[Row]) -> Score:
    answers = [row for row in rows if _answered(row)]
    off = np.array([row["log_evidence"] - row["truth"] for row in answers])
    errors = [row["error"] for row in answers if row["error"] is not None]
    error = float(np.mean(errors)) if errors else math.nan
    rmse = float(np.sqrt(np.mean(off**2)))
    cold, warm = ([row["cpu_seconds"] for row in answers if row["compiled"] is kind] for kind in (True, False))
    if warm:
        run = float(np.median(warm))
        compiling = max(0.0, float(np.median(cold)) - run) if cold else 0.0
    else:  # of which JAX has told the part that it compiled for, by the clock; on a busy machine that says nothing
        told = float(np.median([row["compile_seconds"] for row in answers]))
        compiling = told if told < np.median(cold) else 0.0
        run = float(np.median(cold)) - compiling
    return Score(
        method,
        task,
        effort,
        replicates=len(answers),
        failures=len(rows) - len(answers),
        rmse=max(rmse, error) if len(answers) < FEW and errors else rmse,
        error=error,
        evaluations=float(np.mean([row["evaluations"] for row in answers])),
        run=run,
        compile=compiling,
        importing=answers[0]["import_seconds"],
        memory=max(row["memory"] for row in answers),
        settings=answers[0]["settings"],
        version=answers[0]["version"],
    )


class Reach(NamedTuple):
    """The fewest seconds in which a method gets to an accuracy, over its efforts."""

    method: str
    seconds: float
    measured: bool  # the run that was made is that accurate; else it was extrapolated


def reach(scores: Iterable[Score], accuracy: float, compiling: bool) -> Reach | None:
    """Find the best of some scores, of one method or of several; None if none gets there."""
    best = min(scores, key=lambda one: one.seconds(accuracy, compiling), default=None)
    if best is None or math.isinf(best.seconds(accuracy, compiling)):
        return None
    return Reach(best.method, best.seconds(accuracy, compiling), best.rmse <= accuracy)
