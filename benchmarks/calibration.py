"""Can one bet on the error bar? Many replicates of the default call, against problems whose evidence is known.

python -m benchmarks.calibration [problem ...] [--replicates 200] [--output calibration.csv] [--plot file.png] [--quick]

One line a problem: root mean square error, mean reported error, mean and standard deviation of the z-scores (0 and 1 if
the error is right), coverage of the 68 and 95 % intervals, share of runs with a warning, the largest z-score of a run
without one, and seconds a run. z-scores and coverages are those of the runs without a warning, where there are some.
What is in the output file already is not run again. The plot needs matplotlib.
"""

from __future__ import annotations

import argparse
import csv
import os
from collections.abc import Iterator
from concurrent.futures import as_completed
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import stats

import thermint
from benchmarks.problems import PROBLEMS, Problem
from thermint.paper.study import pinned

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = (
    "linear-3",
    "linear-20",
    "radiata-1",
    "pima-1",
    "skewed",
    "correlated",
    "schools",
    "bounded",
    "student",
    "random-effects",
    "two-modes",
    "banana",
)
QUICK = ("linear-3", "skewed")
LEVELS = (0.68, 0.95)
BLOCK = 20  # replicates that one process runs in a row
FIELDS = ("problem", "seed", "off", "error", "within_68", "within_95", "warnings", "evaluations", "seconds")


def replicates(name: str, seeds: list[int]) -> list[dict[str, Any]]:
    """Run some replicates of one problem."""
    problem = PROBLEMS[name]()
    rows = []
    for seed in seeds:
        result = thermint.evidence(problem.model, seed=seed, progress=False)
        off = result.log_evidence - problem.log_evidence
        # The truth may have an error of its own.
        wider = np.hypot(result.standard_error, problem.truth_error) / max(result.standard_error, 1e-300)
        half = [wider * (result.interval(level)[1] - result.log_evidence) for level in LEVELS]
        values = (off, wider * result.standard_error, *(bool(abs(off) <= h + _rounding(problem)) for h in half))
        said = " | ".join(result.warnings)
        rows.append(dict(zip(FIELDS, (name, seed, *values, said, result.evaluations, result.seconds), strict=True)))
    return rows


def _rounding(problem: Problem) -> float:
    """How far off an exact answer may be."""
    return 1e-12 * abs(problem.log_evidence)


def study(names: list[str], number: int, file: Path | None, workers: int) -> pd.DataFrame:
    """Run what the file does not have yet, and return all of it, one row a replicate."""
    rows: list[Any] = pd.read_csv(file, keep_default_na=False).to_dict("records") if file and file.exists() else []
    done = {(row["problem"], row["seed"]) for row in rows}
    with pinned(workers) as executor:
        futures = [executor.submit(replicates, name, seeds) for name, seeds in _blocks(names, number, done)]
        for future in as_completed(futures):
            made = future.result()
            rows += made
            if file:
                with file.open("a", newline="") as opened:
                    writer = csv.DictWriter(opened, FIELDS)
                    if not opened.tell():
                        writer.writeheader()
                    writer.writerows(made)
    table = pd.DataFrame(rows, columns=FIELDS)
    return table[table["problem"].isin(names) & (table["seed"] < number)]


def _blocks(names: list[str], number: int, done: set[tuple[str, int]]) -> Iterator[tuple[str, list[int]]]:
    for name in names:
        missing = [seed for seed in range(number) if (name, seed) not in done]
        for first in range(0, len(missing), BLOCK):
            yield name, missing[first : first + BLOCK]


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """One line a problem."""
    lines = {}
    for name, own in rows.groupby("problem", sort=False):
        silent = own[own["warnings"] == ""]
        judged = silent if len(silent) else own
        z = _z(judged)
        lines[str(name)] = {
            "RMSE": np.sqrt(np.mean(own["off"] ** 2)),
            "error": own["error"].mean(),
            "mean z": z.mean(),
            "s.d. z": z.std(),
            "68 %": judged["within_68"].mean(),
            "95 %": judged["within_95"].mean(),
            "warned": 1 - len(silent) / len(own),
            "worst z": abs(_z(silent)).max(),
            "seconds": own["seconds"].median(),
            "replicates": len(own),
        }
    return pd.DataFrame.from_dict(lines, orient="index")


def _z(rows: pd.DataFrame) -> pd.Series:
    """z-scores; an answer that is exact but for rounding has none."""
    floor = {name: _rounding(PROBLEMS[name]()) for name in rows["problem"].unique()}
    return rows["off"] / np.maximum(rows["error"], rows["problem"].map(floor))


def plot(rows: pd.DataFrame) -> Figure:
    """Draw z-scores of all replicates, and how often intervals of every level cover the truth."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.5, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[3, 2])
    names = list(dict.fromkeys(rows["problem"]))
    exact = [name for name in names if rows.loc[rows["problem"] == name, "error"].max() < 1e-9]
    random = np.random.default_rng(0)
    for i, name in enumerate(names):
        own = rows[rows["problem"] == name]
        z, said = _z(own).clip(-8, 8), own["warnings"] != ""
        height = len(names) - 1 - i + random.uniform(-0.3, 0.3, len(own))
        left.plot(z[~said], height[~said], ".", color="black", markersize=3, alpha=0.5)
        left.plot(z[said], height[said], "x", color="tab:red", markersize=4, alpha=0.7)
        if name in exact:
            continue
        levels = np.linspace(0.02, 0.98, 49)
        within = stats.norm.cdf(np.abs(_z(own[~said] if (~said).any() else own))) * 2 - 1
        right.plot(levels, [np.mean(within < level) for level in levels], linewidth=1, label=name)
    for edge in (-1.96, 1.96):
        left.axvline(edge, color="grey", linewidth=0.8, linestyle="--")
    for edge in (-5, 5):
        left.axvline(edge, color="tab:red", linewidth=0.8, linestyle="--")
    left.set_yticks(range(len(names)), [f"{name} (exact)" if name in exact else name for name in reversed(names)])
    left.set_xlim(-8.2, 8.2)
    left.set_xlabel("(answer - truth) / reported error;  red crosses: runs with a warning")
    number = len(rows) // len(names)
    band = 2 * np.sqrt(levels * (1 - levels) / number)
    right.fill_between(levels, levels - band, levels + band, color="lightgrey", label=f"2 s.e. of {number}")
    right.plot([0, 1], [0, 1], color="black", linewidth=0.8)
    right.set_xlabel("nominal level of the (normal) interval")
    right.set_ylabel("share of runs whose interval has the truth")
    right.legend(fontsize=7, frameon=False)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", metavar="problem", help=f"of {', '.join(PROBLEMS)}")
    parser.add_argument("--replicates", type=int, default=200)
    parser.add_argument("--output", type=Path, help="a CSV file, to go on from")
    parser.add_argument("--plot", type=Path, help="a PNG or PDF file to draw the z-scores and coverages to")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--quick", action="store_true", help="three replicates of two problems")
    options = parser.parse_args()
    names = options.problems or list(QUICK if options.quick else NAMES)
    number = 3 if options.quick else options.replicates
    print(f"thermint.evidence(model, seed=0 ... {number - 1}), otherwise default options; {os.cpu_count()} cores")
    rows = study(names, number, options.output, options.workers)
    print(summary(rows).to_string(float_format=lambda value: f"{value:.3g}"))
    if options.plot:
        plot(rows).savefig(options.plot, dpi=150)


if __name__ == "__main__":
    main()
