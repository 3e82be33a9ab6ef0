"""Speed-up of Pima's evidence on all cores over one, and whether the answers have the same bits.

``python -m benchmarks.devices`` starts every measurement in a new process, on one core and on all of them by turns.
Seconds are those of the second call in a process, whose programs are compiled.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from importlib.metadata import version
from itertools import pairwise

import numpy as np

CODE = """
import json, os, sys, time
if {one}:
    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
import thermint
model = thermint.paper.pima.model(2)
times = []
for draws in {draws}:
    thermint.evidence(model, draws=draws, populations={populations}, progress=False)
    begin = time.perf_counter()
    result = thermint.evidence(model, draws=draws, populations={populations}, progress=False)
    seconds = time.perf_counter() - begin
    times.append([seconds, result.settings["devices"], repr((result.log_evidence, result.standard_error))])
print(json.dumps(times))
"""


def measured(draws: list[int], populations: int, one: bool) -> list[tuple[float, int, str]]:
    """Return seconds, devices and answer for each number of draws, on one core or on all."""
    code = CODE.format(one=one, draws=draws, populations=populations)
    environment = {k: v for k, v in os.environ.items() if k not in ("JAX_NUM_CPU_DEVICES", "XLA_FLAGS")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return [tuple(row) for row in json.loads(done.stdout)]


def compare(draws: list[int], populations: int, repeats: int) -> None:
    """Measure by turns, and print a line for each number of draws, and one for the draws between two of them."""
    times = np.empty((repeats, 2, len(draws)))
    answers: list[set[str]] = [set() for _ in draws]
    devices = [0, 0]
    for repeat in range(repeats):
        for place, one in enumerate((True, False)):
            for i, (seconds, number, answer) in enumerate(measured(draws, populations, one)):
                times[repeat, place, i] = seconds
                devices[place] = number
                answers[i].add(answer)
    middle, best = np.median(times, axis=0), times.min(axis=0)
    for i, number in enumerate(draws):
        same = "same bits" if len(answers[i]) == 1 else f"DIFFERENT: {sorted(answers[i])}"
        row(populations, f"{number} draws, whole call", devices[1], middle[:, i], best[:, i], same)
    for i, j in pairwise(range(len(draws))):
        usual, least = ((kind[:, j] - kind[:, i]) / (draws[j] - draws[i]) * 1000 for kind in (middle, best))
        row(populations, f"1000 draws, from {draws[i]} to {draws[j]}", devices[1], usual, least, "")


def row(populations: int, name: str, devices: int, middle: np.ndarray, best: np.ndarray, same: str) -> None:
    """Print the median of seconds on one core and on all, and the speed-up by the median and by the best."""
    ratios = f"{middle[0] / middle[1]:8.2f}x {best[0] / best[1]:6.2f}x"
    seconds = f"{middle[0]:9.3f} {middle[1]:10.3f}"
    print(f"{populations:11d}   {name:32} {devices:7d} {seconds} {ratios}   {same}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="speed-up of Pima, model 2, on all cores")
    parser.add_argument("--draws", type=int, nargs="+", default=[1000, 5000, 20_000])
    parser.add_argument("--populations", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one short run of each kind")
    options = parser.parse_args()
    if options.quick:
        options.draws, options.populations, options.repeats = [50, 100], [4], 1
    cores = len(os.sched_getaffinity(0))
    print(f"thermint {version('thermint')}, jax {version('jax')}, {platform.machine()}, {cores} core(s)")
    print(f"Pima model 2, default call but for draws and populations, median of {options.repeats}, compiled programs")
    print("populations   what                             devices  one core  all cores  speed-up  (best)  answers")
    for populations in options.populations:
        compare(sorted(options.draws), populations, options.repeats)


if __name__ == "__main__":
    main()
