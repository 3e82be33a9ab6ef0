"""Do the error bars hold? The same run many times, with other random numbers."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from thermint.inference.compare import makes_one, read_options, require_model, saved_as, seed_of
from thermint.inference.evidence import evidence
from thermint.inference.tables import RunTable
from thermint.interop import as_model
from thermint.model.options import require_whole
from thermint.model.result import Evidence, plus_minus
from thermint.runtime.tasks import Task, failure, run_tasks, travels

COLUMNS = ("seed", "log_evidence", "standard_error", "degrees_of_freedom", "evaluations", "seconds", "warnings")
CHANCE = 0.01  # how often errors that are right are said to be wrong


class Spread(NamedTuple):
    """What replicates say together."""

    mean: float
    error: float  # of the mean, from the spread
    ratio: float  # standard deviation of the replicates over the root mean square of their reported errors
    expected: tuple[float, float]  # where the ratio lies in 99 % of cases, if the reported errors are right


class Replicates(RunTable):
    """The table of `replicate`: it prints errors beside values, and says below whether they agree with the spread."""

    needed = COLUMNS

    def spread(self) -> Spread:
        """Return the mean of the replicates, its error, and how their spread compares with the reported errors.

        Raises:
            ValueError: there is one replicate only.
        """
        if len(self) < 2:
            raise ValueError("one replicate has no spread: run two at least.")
        value, error = self["log_evidence"].to_numpy(float), self["standard_error"].to_numpy(float)
        return spread_of(value, error, float(self["degrees_of_freedom"].sum()))

    def printed(self) -> pd.DataFrame:
        """Return the table as it is printed."""
        values = zip(self["log_evidence"], self["standard_error"], strict=True)
        return pd.DataFrame(
            {
                "seed": self["seed"],
                "log evidence": [plus_minus(value, error) for value, error in values],
                "evaluations": self["evaluations"],
                "seconds": self["seconds"].round(1),
                "warnings": [len(several) for several in self["warnings"]],
            },
            index=self.index,
        )

    def summary(self) -> str:
        """Say in one line what the replicates come to."""
        if len(self) < 2:
            return "one replicate: no spread to compare its error with"
        mean, error, ratio, (low, high) = self.spread()
        words = "agree with" if low <= ratio <= high else "are smaller than" if ratio > high else "are larger than"
        return (
            f"mean {plus_minus(mean, error)}; the reported errors {words} the spread, which is {ratio:.2f} times as "
            f"large ({low:.2f} to {high:.2f} by chance)"
        )

    def _notes(self) -> list[str]:
        return [self.summary()]


def replicate(model: Any, n: int, *, executor: Executor | None = None, **options: Any) -> pd.DataFrame:
    """Compute the evidence of a model n times, independently, to see whether the error bars hold.

    Args:
        model: a `Model`, a PyMC or Bambi model, or a function without arguments that returns one.
        n: number of replicates.
        executor: runs them side by side, as in `thermint.compare`.
        **options: of `thermint.evidence`. Each replicate has a seed of its own, made of ``seed`` and its index: it has
            the same answer wherever it is run, and however many others there are. ``checkpoint`` is a folder with a
            file for each replicate.

    Returns:
        A table with one row for each replicate. It has ``seed``, with which `thermint.evidence` gives the same answer;
        ``log_evidence``, ``standard_error``, ``degrees_of_freedom``, ``evaluations``, ``seconds`` and ``warnings``.
        Printed, it says below what the mean is and whether the spread agrees with the reported errors; ``.spread()``
        has these numbers.

    Raises:
        ValueError: n is no whole number above zero, or the executor's processes are forked.
        TypeError: a model that cannot be used, or not be sent to another process; an option that there is not.
        RunsFailedError: some replicates failed. It names them, and its ``results`` are the evidences of the others.

    Example:
        >>> import thermint
        >>> from thermint.paper import radiata
        >>> table = thermint.replicate(radiata.model(1), 4, draws=100)
        >>> mean, error, ratio, expected = table.spread()
        >>> abs(mean - radiata.log_evidence(1)) < 0.001
        True
    """
    require_whole("n", n, at_least=1)
    seed, options = read_options(options, executor)
    require_model(model)
    if not travels(executor):
        model = _made(model)
    seeds = [_seed(seed, index) for index in range(n)]
    tasks = {
        index: Task(model, {**options, "seed": own, **saved_as(options, index)}) for index, own in enumerate(seeds)
    }
    results, errors = run_tasks(run_replicate, tasks, executor, "replicate")
    if errors:
        raise failure(results, errors, "replicate") from next(iter(errors.values()))
    rows = [[own, *(getattr(results[index], name) for name in COLUMNS[1:])] for index, own in enumerate(seeds)]
    return Replicates(pd.DataFrame(rows, columns=list(COLUMNS), index=pd.RangeIndex(n, name="replicate")))


def spread_of(value: np.ndarray, error: np.ndarray, dof: float) -> Spread:
    """Compare the spread of values, [replicate], with their errors, which have so many degrees of freedom in all.

    The squared ratio of a normal sample's variance to an estimate of it is F distributed.
    """
    n, deviation = len(value), float(value.std(ddof=1))
    low, high = np.sqrt(stats.f.ppf([CHANCE / 2, 1 - CHANCE / 2], n - 1, dof)).tolist()
    return Spread(float(value.mean()), deviation / n**0.5, deviation / float(np.sqrt(np.mean(error**2))), (low, high))


def run_replicate(model: Any, options: dict[str, Any]) -> Evidence:
    """Compute the evidence once; the draws, of which nobody needs n sets, are left behind."""
    return replace(evidence(_made_here(model) if makes_one(model) else model, **options), posterior=None)


@lru_cache(maxsize=1)
def _made_here(function: Any) -> Any:
    """Make the model that a function makes; a worker does so once, and compiles its programs once."""
    return _made(function)


def _made(model: Any) -> Any:
    return as_model(model() if makes_one(model) else model)


def _seed(seed: int, index: int) -> int:
    """Make the seed of a replicate: those of one call are all different."""
    return (seed_of(seed, "replicates") + index) % 2**32
