"""thermint and the systems people use today, on the same problems, one core each.

python -m benchmarks.peers [--methods ...] [--tasks ...] [--replicates 10] [--seconds 600] [--efforts 1] [--quick]

Runs every method on every problem with every effort, in processes of their own, one on each core, and writes tables
and a plot into docs/benchmarks.md. Environments that peers need are made in .venv-peers. Lines of results go into a
file, and what it has is not run again: a run that was stopped goes on, and with more --seconds or a larger --limit it
adds what there was no time for (to repeat a part, delete its lines). All of it takes up to a day on two cores; --quick,
a minute, and it writes to a temporary folder.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import queue
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from benchmarks.peers import page
from benchmarks.peers.environments import ROOT, EnvironmentFailedError, make
from benchmarks.peers.methods import MAIN, METHODS
from benchmarks.peers.scores import Row, read, score

# Task: one that every method solves sooner, having fewer parameters or a cheaper likelihood.
EASIER = {"linear-50": "linear-20", "logistic-50": "linear-20", "goodwin-3": "pima-1"}
IN_A_PROCESS = 4  # replicates, the first of which compiles: ten of them show three times how long that takes
QUICK = {"methods": ["thermint", "laplace"], "tasks": ["radiata-1"]}


class Job(NamedTuple):
    """What one worker does, from a seed on."""

    method: str
    task: str
    effort: float
    first: int = 0

    def line(self, **row: object) -> str:
        """Make a line of results."""
        return json.dumps({"method": self.method, "task": self.task, "effort": self.effort, **row})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS), metavar="METHOD")
    parser.add_argument("--tasks", nargs="+", choices=list(page.TITLES), default=list(page.TITLES), metavar="TASK")
    parser.add_argument("--replicates", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=600.0, help="of CPU, after which no replicate of a job begins")
    parser.add_argument("--limit", type=float, help="CPU seconds after which a job is killed; default: twice --seconds")
    parser.add_argument("--efforts", type=int, help="how many of each method's efforts; default: all")
    parser.add_argument("--cores", type=int, nargs="+", help="to run on, a job on each; default: all that there are")
    parser.add_argument("--output", type=Path, help="lines of results; default: benchmarks/results/peers.jsonl")
    parser.add_argument("--page", type=Path, help="default: docs/benchmarks.md")
    parser.add_argument("--quick", action="store_true", help="two methods on one problem, first effort, two replicates")
    options = parser.parse_args()
    results, docs = ROOT / "benchmarks" / "results", ROOT / "docs"
    if options.quick:
        options.methods, options.tasks, options.replicates = QUICK["methods"], QUICK["tasks"], 2
        results = docs = Path(tempfile.mkdtemp())
    options.limit = options.limit or 2 * options.seconds
    options.output, options.page = options.output or results / "peers.jsonl", options.page or docs / "benchmarks.md"
    options.output.parent.mkdir(parents=True, exist_ok=True)
    python = {name: _interpreter(name) for name in sorted({METHODS[name].environment for name in options.methods})}
    most = 1 if options.quick else max(len(METHODS[name].efforts) for name in options.methods)
    for rank in range(min(most, options.efforts or most)):
        while jobs := list(_jobs(options, rank)):  # each of them adds a line at least
            _run_all(jobs, python, options)
    rows = [row for row in read(options.output) if row["method"] in METHODS and row["task"] in page.TITLES]
    page.write(rows, options.page, page.command_line(), options.seconds)
    for one in score(rows):
        print(
            f"{one.task:12} {METHODS[one.method].title:28} effort {one.effort:<5g} {one.replicates:3} runs  "
            f"RMSE {one.rmse:8.2g}  reported error {one.error:8.2g}  CPU {one.run:7.2g} s + {one.compile:.2g} s"
        )
    print(f"written: {options.page}")


def _interpreter(environment: str) -> str | EnvironmentFailedError:
    """Make the environment; return its interpreter, or why there is none."""
    if environment != MAIN:
        print(f"environment {environment} ...", flush=True)
    try:
        return str(make(environment))
    except EnvironmentFailedError as error:
        return error


def _jobs(options: argparse.Namespace, rank: int) -> Iterator[Job]:
    """List what is left to do for the first, second, ... effort of every method."""
    rows = read(options.output)
    for task in options.tasks:
        for name in options.methods:
            efforts = METHODS[name].efforts
            if rank >= len(efforts):
                continue
            own = _of(rows, name, task, efforts[rank])
            own = [row for row in own if row.get("limit", math.inf) >= options.limit]  # else there is more time now
            if not own or _unfinished(own, options):
                yield Job(name, task, efforts[rank], first=len(own))


def _of(rows: list[Row], method: str, task: str, effort: float) -> list[Row]:
    return [row for row in rows if (row["method"], row["task"], row["effort"]) == (method, task, effort)]


def _took(rows: list[Row]) -> list[float]:
    """CPU seconds of the runs that gave an answer."""
    return [row["cpu_seconds"] for row in rows if "failed" not in row]


def _unfinished(own: list[Row], options: argparse.Namespace) -> bool:
    """Say whether there is time for replicates that a job did not come to."""
    if len(own) >= options.replicates or any("failed" in row and "seed" not in row for row in own):
        return False
    return sum(_took(own)) < options.seconds


def _reason_not_to(job: Job, rows: list[Row], limit: float) -> str | None:
    """Say why a job is not even tried: the method cannot, or what it did with less to do leaves no hope."""
    method = METHODS[job.method]
    if job.task in method.cannot:
        return method.cannot[job.task]
    easier = EASIER.get(job.task, "")
    with_less = _of(rows, job.method, easier, job.effort)
    took = _took(with_less)
    if took and min(took) > limit:
        return f"not tried: with {page.TITLES[easier]}, one run took {min(took):.0f} CPU seconds"
    if with_less and not took and with_less[-1].get("limit", 0) >= limit:
        return f"not tried: with {page.TITLES[easier]}, {with_less[-1]['failed']}"
    first = method.efforts[0]
    if job.effort == first:
        return None
    before = _of(rows, job.method, job.task, first)
    seconds = _took(before)
    if before and not seconds:
        return f"not tried: it failed with effort {first:g}"
    expected = min(seconds, default=0.0) * job.effort / first
    return f"not tried: one run would take about {expected:.0f} seconds" if expected > limit else None


def _run_all(jobs: list[Job], python: dict[str, str | EnvironmentFailedError], options: argparse.Namespace) -> None:
    """Run jobs side by side, one on each core, and append what they print."""
    cores = options.cores or sorted(os.sched_getaffinity(0))
    free: queue.Queue[int] = queue.Queue()
    for core in cores:
        free.put(core)
    files = threading.Lock()

    def one(job: Job) -> None:
        core = free.get()
        try:
            interpreter = python[METHODS[job.method].environment]
            with files:
                reason = None if job.first else _reason_not_to(job, read(options.output), options.limit)
            if reason is not None:
                lines = [job.line(failed=reason, limit=options.limit)]
            elif isinstance(interpreter, EnvironmentFailedError):
                lines = [job.line(failed=f"cannot be installed: {interpreter}")]
            else:
                lines = _work(job, interpreter, core, options)
        finally:
            free.put(core)
        with files:
            _append(options.output, lines)
            print(f"{job.task:12} {METHODS[job.method].title:28} effort {job.effort:<5g} {_outcome(lines)}", flush=True)

    with ThreadPoolExecutor(len(cores)) as pool:
        for future in [pool.submit(one, job) for job in jobs]:
            future.result()


def _work(job: Job, interpreter: str, core: int, options: argparse.Namespace) -> list[str]:
    """Run one worker; return its lines, the last of which says how it ended if that was too soon."""
    command = [interpreter, "-m", "benchmarks.peers.worker", job.method, job.task, "--core", str(core)]
    command += [f"--effort={job.effort}", f"--seconds={options.seconds}", f"--limit={options.limit}"]
    command += [f"--first={job.first}", f"--replicates={min(IN_A_PROCESS, options.replicates - job.first)}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.endswith("}")]
    if done.returncode == -signal.SIGXCPU:
        left = options.limit - sum(json.loads(line).get("cpu_seconds", 0) for line in lines)
        return [*lines, job.line(failed=f"one run took more than {left:.0f} CPU seconds", limit=options.limit)]
    return lines or [job.line(failed=f"the process ended with {done.returncode}: {_last(done.stderr)}")]


def _last(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1]


def _outcome(lines: list[str]) -> str:
    reasons = [row["failed"] for row in map(json.loads, lines) if "failed" in row]
    return f"{len(lines) - len(reasons)} runs" + (f"; failed: {reasons[0]}" if reasons else "")


def _append(path: Path, lines: list[str]) -> None:
    with path.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


if __name__ == "__main__":
    main()
