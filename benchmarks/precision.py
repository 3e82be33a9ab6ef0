"""How precise is the default call, against problems whose evidence is known?

python -m benchmarks.precision [problem ...] [--seeds 20] [--quick]

One line a problem: root mean square error over the seeds against the truth, mean reported error, coverage of the 95 %
interval, share of runs with a warning, likelihood evaluations in all (warm-up included), CPU seconds without
compilation, and the seconds that compilation took.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any, NamedTuple

import numpy as np

import thermint
from benchmarks.problems import PROBLEMS


class Goal(NamedTuple):
    """What a problem is asked for, and the options other than the default that it is run with."""

    rmse: float
    evaluations: int
    options: dict[str, Any] = {}  # noqa: RUF012


# Seconds count where an evaluation takes a millisecond: short rounds, no more of them than the goal needs.
EXPENSIVE = {"draws": 250, "target_error": 0.003, "max_evaluations": 100_000}
GOALS = {
    "pima-1": Goal(1e-4, 60_000),
    "pima-2": Goal(1e-4, 60_000),
    "radiata-1": Goal(1e-4, 60_000),
    "radiata-2": Goal(1e-4, 60_000),
    "linear-20": Goal(1e-3, 200_000),
    "linear-50": Goal(1e-3, 200_000),
    "logistic-50": Goal(1e-2, 400_000),
    "goodwin-3": Goal(3e-3, 100_000, EXPENSIVE),
    "goodwin-4": Goal(3e-3, 100_000, EXPENSIVE),
    "two-modes": Goal(5e-3, 500_000),
    "four-modes": Goal(5e-3, 500_000),
    "student": Goal(1e-2, 200_000),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", metavar="problem", help=f"of {', '.join(PROBLEMS)}; default: all")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="three seeds of the two smallest problems")
    options = parser.parse_args()
    names = options.problems or (["radiata-1", "four-modes"] if options.quick else list(GOALS))
    seeds = 3 if options.quick else options.seeds
    print(f"thermint.evidence(model, seed=0 ... {seeds - 1}), otherwise default options; {os.cpu_count()} cores")
    for name in names:
        if GOALS[name].options:
            print(f"{name}: with {', '.join(f'{key}={value}' for key, value in GOALS[name].options.items())}")
    print(
        f"{'problem':12} {'d':>3} {'RMSE':>9} {'goal':>7} {'error':>9} {'coverage':>8} {'warned':>6} "
        f"{'evaluations':>11} {'at most':>8} {'CPU s':>6} {'compile s':>9}  truth"
    )
    for name in names:
        line(name, seeds)


def line(name: str, seeds: int) -> None:
    """Run one problem and print its line."""
    problem, goal = PROBLEMS[name](), GOALS[name]
    results, wall, cpu = [], [], []
    for seed in range(seeds):
        start, start_cpu = time.perf_counter(), time.process_time()
        results.append(thermint.evidence(problem.model, seed=seed, progress=False, **goal.options))
        wall.append(time.perf_counter() - start)
        cpu.append(time.process_time() - start_cpu)
        off = results[-1].log_evidence - problem.log_evidence
        print(f"{name}, seed {seed}: off by {off:+.2g}, error {results[-1].standard_error:.2g}", file=sys.stderr)
    deviation = np.array([result.log_evidence for result in results]) - problem.log_evidence
    intervals = np.array([result.interval() for result in results])
    inside = (intervals[:, 0] <= problem.log_evidence) & (problem.log_evidence <= intervals[:, 1])
    # Other seeds may need another number of rungs, and compile for it: the median does not notice.
    seconds, compiling = np.median(cpu[1:]), wall[0] - np.median(wall[1:])
    print(
        f"{name:12} {problem.model.dimension:3} {np.sqrt(np.mean(deviation**2)):9.2g} {goal.rmse:7.0e} "
        f"{np.mean([result.standard_error for result in results]):9.2g} {inside.mean():8.0%} "
        f"{np.mean([len(result.warnings) > 0 for result in results]):6.0%} "
        f"{np.mean([result.evaluations for result in results]):11.0f} {goal.evaluations:8} {seconds:6.2f} "
        f"{compiling:9.1f}  {problem.log_evidence:.6f} ± {problem.truth_error:.0e} ({problem.how})",
        flush=True,
    )


if __name__ == "__main__":
    main()
