"""What runs in a peer's environment: replicates of one method on one task, one after the other, on one core.

python -m benchmarks.peers.worker METHOD TASK [--effort 1] [--first 0] [--replicates 10] [--seconds 600] [--limit 1200]
    [--core 0]

Prints a line of JSON for every replicate; their seeds are ``--first`` and those after it. The first one's CPU seconds
include all compilation: caches are off. No replicate begins after ``--seconds`` of CPU, and the process ends after
``--limit`` of them. If the method fails, the line says so.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import math
import os
import resource
import tempfile
import time
import traceback
from collections.abc import Callable
from importlib import metadata
from typing import TYPE_CHECKING, Any

from benchmarks.peers.measure import Compilation, cpu_seconds, peak_memory
from benchmarks.peers.methods import METHODS

if TYPE_CHECKING:
    from benchmarks.peers.tasks import Answer

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "JAX_NUM_CPU_DEVICES": "1",
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "JAX_ENABLE_X64": "1",
    "THERMINT_CACHE": "off",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("method", choices=list(METHODS))
    parser.add_argument("task")
    parser.add_argument("--effort", type=float, default=1.0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--replicates", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--limit", type=float, default=math.inf)
    parser.add_argument("--core", type=int)
    options = parser.parse_args()
    # Packages print what they like: it goes to stderr, and the real stdout has JSON only.
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with tempfile.TemporaryDirectory() as folder:
        _one_core(options.core, folder)
        if math.isfinite(options.limit):  # the system ends the process then, on however busy a machine
            resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(options.limit), resource.RLIM_INFINITY))
        about = {"method": options.method, "task": options.task, "effort": options.effort}

        def write(row: dict[str, Any]) -> None:
            print(json.dumps(about | row), file=lines, flush=True)

        try:
            _replicates(options, write)
        except Exception as error:
            write({"failed": _said(error)})


def _said(error: Exception) -> str:
    """Say in one line what went wrong."""
    traceback.print_exc()
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


def _one_core(core: int | None, folder: str) -> None:
    """Keep this process to one core and one thread, with empty caches; before anything else is imported."""
    os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)
    os.environ |= ONE_THREAD | {"PYTENSOR_FLAGS": f"base_compiledir={folder}", "MPLCONFIGDIR": folder}
    os.chdir(folder)  # some packages leave files where they are run
    if core is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})


def _replicates(options: argparse.Namespace, write: Callable[[dict[str, Any]], None]) -> None:
    before = cpu_seconds()
    method = METHODS[options.method]
    from benchmarks.peers.tasks import TASKS

    module = importlib.import_module(f"benchmarks.peers.{method.module}")
    importing = cpu_seconds() - before
    compilation = Compilation()
    task = TASKS[options.task]()
    run: Callable[[int, float], Answer] | None = None
    for seed in range(options.first, options.first + options.replicates):
        if seed > options.first and cpu_seconds() - before > options.seconds:
            break
        cpu, wall, compiling = cpu_seconds(), time.perf_counter(), compilation.total
        run = run or module.prepare(task)
        try:
            answer = run(seed, options.effort)
        except Exception as error:  # of this seed: another may fare better
            write({"seed": seed, "failed": _said(error)})
            continue
        if not math.isfinite(answer.log_evidence):
            write({"seed": seed, "failed": f"the answer was {answer.log_evidence}"})
            continue
        write(
            {
                "seed": seed,
                "compiled": seed == options.first,
                "log_evidence": float(answer.log_evidence),
                "error": _number(answer.error),
                "truth": task.log_evidence,
                "truth_error": task.truth_error,
                "dimension": task.dimension,
                "evaluations": answer.evaluations,
                "cpu_seconds": cpu_seconds() - cpu,
                "wall_seconds": time.perf_counter() - wall,
                "compile_seconds": compilation.total - compiling,
                "import_seconds": importing,
                "memory": peak_memory(),
                "settings": answer.settings,
                "version": _version(method.package),
            }
        )


def _number(value: float) -> float | None:
    """Make a number that JSON has: None for NaN and infinities."""
    return float(value) if math.isfinite(value) else None


def _version(package: str) -> str:
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(package) if package else ""
    return ""


if __name__ == "__main__":
    main()
