"""Where does thermint's time go? For each problem, CPU seconds of the default call from import to answer.

python -m benchmarks.peers.profile [task ...] [--draws 1000]

A process for each problem, on one core, with caches off. What tracing, lowering and compiling took is what JAX tells of
the first call; the rest is measured in a second call with the same seed, which compiles nothing. Columns: import of
thermint and JAX; tracing, lowering and compiling programs; looking for the posterior from the prior; fitting the
reference; warm-up on its path; draws; their sums (Gram); the estimate from these; and what is left. The floor is what
as many bare evaluations of the model, value and gradient, take in batches of 64: nothing that draws can be faster.
"""

from __future__ import annotations

import argparse
import functools
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from benchmarks.peers.measure import Compilation, cpu_seconds
from benchmarks.peers.page import TITLES
from benchmarks.peers.worker import ONE_THREAD

if TYPE_CHECKING:
    from thermint import Model

BATCH, LENGTH = 64, 20  # of bare evaluations

PHASES = ("scout", "reference", "warm-up", "draws", "Gram", "estimate")
COLUMNS = ("import", "trace", "lower", "compile", *PHASES, "other", "floor")


class Phases:
    """CPU seconds of each phase of a call. Whatever a phase calls belongs to it, but for sums made between draws."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self._now: str | None = None

    def wrap(self, owner: Any, name: str, phase: str) -> None:
        """Put a timer around a function of a module or class."""
        function: Callable[..., Any] = getattr(owner, name)

        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            outer = self._now
            if outer not in (None, "draws"):
                return function(*args, **kwargs)
            self._now, before = phase, cpu_seconds()
            try:
                return function(*args, **kwargs)
            finally:
                spent = cpu_seconds() - before
                self.seconds[phase] += spent
                if outer is not None:
                    self.seconds[outer] -= spent
                self._now = outer

        setattr(owner, name, timed)


def profile(task: str, draws: int) -> dict[str, float]:
    """Run one problem twice, in this process, which must not have imported JAX."""
    before = cpu_seconds()
    import thermint

    importing = cpu_seconds() - before
    from benchmarks.peers.tasks import TASKS
    from benchmarks.peers.thermint_ import OPTIONS
    from thermint.control import plan
    from thermint.inference import paths, rounds

    compilation, phases = Compilation(), Phases()
    options: dict[str, Any] = {"draws": draws, **OPTIONS.get(task, {})}
    model = TASKS[task]().model
    thermint.evidence(model, seed=0, progress=False, **options)
    compiling = dict(compilation.seconds)
    for owner, name, phase in (
        (paths, "run_scout", "scout"),
        (paths, "refine_reference", "reference"),
        (paths, "refit", "reference"),
        (paths, "make_sampler", "warm-up"),
        (rounds, "collect", "draws"),
        (plan.Plan, "accumulate", "Gram"),
        (rounds, "summarise", "estimate"),
    ):
        phases.wrap(owner, name, phase)
    before = cpu_seconds()
    result = thermint.evidence(model, seed=0, progress=False, **options)
    other = cpu_seconds() - before - sum(phases.seconds.values())
    floor = result.evaluations * bare_evaluation(model)
    return {"import": importing, **compiling, **phases.seconds, "other": other, "floor": floor}


def bare_evaluation(model: Model) -> float:
    """Return the CPU seconds of an evaluation, in batches of draws of the prior; the best of several."""
    import jax

    from benchmarks.overhead import bare

    model = replace(model, metric=None)
    start = jax.vmap(model.sample_prior)(jax.random.split(jax.random.key(0), BATCH))[None]

    def seconds() -> float:
        before = cpu_seconds()
        jax.block_until_ready(bare(start, model=model, length=LENGTH))
        return cpu_seconds() - before

    seconds()  # compiles
    return min(seconds() for _ in range(3)) / (BATCH * LENGTH)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", metavar="task", help=f"of {', '.join(TITLES)}; default: all")
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--core", type=int, default=min(os.sched_getaffinity(0)))
    parser.add_argument("--here", action="store_true", help="print the seconds of one task, without a new process")
    options = parser.parse_args()
    if options.here:
        os.sched_setaffinity(0, {options.core})
        seconds = profile(options.tasks[0], options.draws)
        print(f"{options.tasks[0]:12}" + "".join(f"{seconds[column]:10.2f}" for column in COLUMNS))
        return
    print(f"CPU seconds\n{'task':12}" + "".join(f"{column:>10}" for column in COLUMNS), flush=True)
    for task in options.tasks or TITLES:
        command = [sys.executable, "-m", "benchmarks.peers.profile", task, "--here"]
        command += [f"--draws={options.draws}", f"--core={options.core}"]
        subprocess.run(command, env={**os.environ, **ONE_THREAD}, check=True)


if __name__ == "__main__":
    main()
