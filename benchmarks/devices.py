"""Speed-up of Pima's evidence on all cores over one, beside what the machine allows, and whether bits are the same.

``python -m benchmarks.devices`` keeps a process on each core and one on all of them, and gives them the same call by
turns: one core alone, all cores, and every core on its own at the same time. The last is what the machine allows:
processes that have nothing to do with each other. Programs are compiled before the clock starts.

    speed-up    seconds of one core / seconds of all
    machine     speed-up of the separate processes: their number * seconds of one core / seconds of the slowest

Where cores are shared with others, both change from one minute to the next: the best turn of each kind says what the
program can do, the median what one got.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from importlib.metadata import version

import numpy as np

CODE = """
import json, os, sys, time
os.sched_setaffinity(0, {cores})
import thermint
model = thermint.paper.pima.model(2)
for line in sys.stdin:
    options = json.loads(line)
    begin = time.perf_counter()
    result = thermint.evidence(model, **options, progress=False)
    seconds = time.perf_counter() - begin
    answer = repr((result.log_evidence, result.standard_error))
    print(json.dumps([seconds, result.settings["devices"], answer]), flush=True)
"""


class Worker:
    """A process on some cores, which computes evidences when it is told to."""

    def __init__(self, cores: set[int]) -> None:
        environment = {k: v for k, v in os.environ.items() if k not in ("JAX_NUM_CPU_DEVICES", "XLA_FLAGS")}
        code = [sys.executable, "-c", CODE.format(cores=cores)]
        self.process = subprocess.Popen(code, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def begin(self, options: dict[str, int]) -> None:
        """Start a call."""
        assert self.process.stdin
        print(json.dumps(options), file=self.process.stdin, flush=True)

    def end(self) -> tuple[float, int, str]:
        """Wait for seconds, devices and answer."""
        assert self.process.stdout
        seconds, devices, answer = json.loads(self.process.stdout.readline())
        return seconds, devices, answer


def together(workers: list[Worker], options: dict[str, int]) -> list[tuple[float, int, str]]:
    """Let workers run at the same time."""
    for worker in workers:
        worker.begin(options)
    return [worker.end() for worker in workers]


def compare(alone: list[Worker], everywhere: Worker, options: dict[str, int], turns: int) -> None:
    """Measure by turns, and print a line."""
    for worker in (*alone, everywhere):  # compile
        together([worker], options)
    one, every, machine = np.empty(turns), np.empty(turns), np.empty(turns)
    answers = set()
    for turn in range(turns):
        [(one[turn], _, first)] = together(alone[:1], options)
        [(every[turn], devices, second)] = together([everywhere], options)
        machine[turn] = max(seconds for seconds, _, _ in together(alone, options)) / len(alone)
        answers |= {first, second}
    bits = "same bits" if len(answers) == 1 else f"DIFFERENT: {sorted(answers)}"
    middle, best = (f"{f(one) / f(every):6.2f}x {f(one) / f(machine):5.2f}x" for f in (np.median, np.min))
    seconds = f"{np.median(one):9.3f} {np.median(every):10.3f}"
    print(
        f"{options['populations']:11d} {options['draws']:7d} {devices:8d} {seconds}   {middle}   {best}   {bits}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="speed-up of Pima, model 2, on all cores")
    parser.add_argument("--draws", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--populations", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="one turn of one short run")
    options = parser.parse_args()
    if options.quick:
        options.draws, options.populations, options.turns = [100], [4], 1
    cores = os.sched_getaffinity(0)
    print(f"thermint {version('thermint')}, jax {version('jax')}, {platform.machine()}, {len(cores)} core(s)")
    print(f"Pima model 2, default call but for draws and populations, {options.turns} turns, compiled programs")
    print("                                 median seconds          median             best")
    print("populations   draws  devices  one core  all cores  speed-up machine  speed-up machine   answers")
    alone, everywhere = [Worker({core}) for core in sorted(cores)], Worker(cores)
    try:
        for populations in options.populations:
            for draws in options.draws:
                compare(alone, everywhere, {"draws": draws, "populations": populations}, options.turns)
    finally:
        for worker in (*alone, everywhere):
            worker.process.kill()
            worker.process.wait()


if __name__ == "__main__":
    main()
