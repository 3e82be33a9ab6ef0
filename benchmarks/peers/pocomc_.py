"""pocoMC: sequential Monte Carlo preconditioned by normalizing flows; effort multiplies particles and draws.

The evidence is its default: importance sampling from the flow that is fitted to the posterior.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from pocomc import Sampler

from benchmarks.peers.tasks import Answer, Task, batch_log_likelihood_of, batch_quantile_of, in_batches

EFFECTIVE, ACTIVE, TOTAL, EVIDENCE = 512, 256, 4096, 4096  # the defaults


class ModelPrior:
    """A task's prior in the form that pocoMC asks for, in the coordinates of the model."""

    def __init__(self, task: Task) -> None:
        self.dim = task.dimension
        self.bounds = np.tile([-np.inf, np.inf], (self.dim, 1))
        self.logpdf = in_batches(task.model.log_prior)
        self._quantile = batch_quantile_of(task)

    def rvs(self, size: int = 1) -> NDArray[np.float64]:
        """Draw [size, d], from NumPy's global generator, which pocoMC seeds."""
        return self._quantile(np.random.random_sample((size, self.dim)))  # noqa: NPY002


def prepare(task: Task) -> Callable[[int, float], Answer]:
    """Return run(seed, effort)."""
    log_likelihood, prior = batch_log_likelihood_of(task), ModelPrior(task)

    def run(seed: int, effort: float) -> Answer:
        effective, active, total, number = (round(effort * n) for n in (EFFECTIVE, ACTIVE, TOTAL, EVIDENCE))
        sampler = Sampler(
            prior, log_likelihood, n_effective=effective, n_active=active, vectorize=True, random_state=seed
        )
        sampler.run(n_total=total, n_evidence=number, progress=False)
        value, error = sampler.evidence()
        settings = f"Sampler(n_effective={effective}, n_active={active}), n_total={total}, n_evidence={number}"
        return Answer(float(value), float(error), int(sampler.calls), settings)

    return run
