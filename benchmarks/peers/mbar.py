"""pymbar on thermint's tempered draws: population MCMC on the ladder from the prior, then MBAR on the log likelihoods.

As pymbar advises, every series is thinned to independent draws first. Its default solver (hybr) takes minutes on log
likelihoods that go down to -1e4 and fails; its "robust" protocol takes a second. Effort multiplies the draws.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pymbar  # type: ignore[import-untyped]
from numpy.typing import NDArray

import thermint
from benchmarks.peers.tasks import Answer, Task
from thermint.path.path import Path
from thermint.sampling.sampler import default_kernel
from thermint.sampling.warmup import LONG

RUNGS, DRAWS, POPULATIONS = 21, 500, 4


def prepare(task: Task) -> Callable[[int, float], Answer]:
    """Return run(seed, effort)."""
    a_move = getattr(default_kernel(Path(task.model)), "evaluations", 1)
    warmup = sum(length for length, _ in LONG)

    def run(seed: int, effort: float) -> Answer:
        number = round(effort * DRAWS)
        draws = thermint.sample(task.model, RUNGS, draws=number, populations=POPULATIONS, seed=seed)
        value, error = mbar(np.asarray(draws.log_likelihood), np.asarray(draws.ladder))
        if draws.outside is not None:  # the path starts from the prior where the likelihood is not zero
            value += np.log1p(-np.mean(draws.outside[:, :, 0]))
        evaluations = POPULATIONS * RUNGS * (warmup + number) * a_move
        return Answer(value, error, evaluations, f"{POPULATIONS} populations, {RUNGS} rungs, {number} draws")

    return run


def mbar(g: NDArray, ladder: NDArray) -> tuple[float, float]:
    """Log evidence and its error from log likelihoods g[population, draw, rung] and inverse temperatures [rung]."""
    rungs = [np.concatenate([_independent(series) for series in g[:, :, k]]) for k in range(len(ladder))]
    reduced_potential = -np.outer(ladder, np.concatenate(rungs))
    fitted = pymbar.MBAR(reduced_potential, np.array([len(rung) for rung in rungs]), solver_protocol="robust")
    differences = fitted.compute_free_energy_differences()
    return -float(differences["Delta_f"][0, -1]), float(differences["dDelta_f"][0, -1])


def _independent(series: NDArray) -> NDArray:
    """Leave out draws that are correlated with those before them."""
    return series[pymbar.timeseries.subsample_correlated_data(series, conservative=False)] if series.std() else series
