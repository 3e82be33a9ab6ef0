"""reddemcee: adaptive parallel tempering of emcee's walkers, with stepping stones between; effort multiplies sweeps.

Settings are those of its tutorial on evidence: half of the sweeps adapt the ladder and are discarded, then it is
frozen. Of its three estimates, this is the one with the smallest error there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from reddemcee import PTSampler

from benchmarks.peers.tasks import Answer, Task, batch_log_likelihood_of, batch_quantile_of, in_batches

TEMPERATURES, WALKERS, SWEEPS = 16, 128, 1024
WARMEST = 1e-4  # inverse temperature, before the prior's, which is 0
HALF_LIFE, RATE = 100, 0.64  # of the adaptation


class Together:
    """A pool for reddemcee, whose map evaluates all walkers in one call: its own option for that does not work."""

    def __init__(self, task: Task) -> None:
        self._log_likelihood = batch_log_likelihood_of(task)
        self._log_prior = in_batches(task.model.log_prior)
        self.evaluations = 0

    def map(self, function: Any, walkers: Iterable[tuple[Any, float]]) -> list[tuple[float, float]]:
        """Return (log prior + beta * log likelihood, log likelihood) for each (theta, beta), as the function would."""
        theta, beta = (np.array(part) for part in zip(*walkers, strict=True))
        log_likelihood = self._log_likelihood(theta)
        self.evaluations += len(theta)
        tempered = self._log_prior(theta) + beta * log_likelihood
        return list(zip(tempered.tolist(), log_likelihood.tolist(), strict=True))


def prepare(task: Task) -> Callable[[int, float], Answer]:
    """Return run(seed, effort)."""
    d = task.dimension
    pool, quantile = Together(task), batch_quantile_of(task)
    walkers = max(WALKERS, 4 * d)

    def run(seed: int, effort: float) -> Answer:
        np.random.seed(seed)  # noqa: NPY002, the only source that reddemcee has
        pool.evaluations = 0
        half = round(effort * SWEEPS / 2)
        cube = np.random.default_rng(seed).random((TEMPERATURES * walkers, d))
        start = quantile(cube).reshape(TEMPERATURES, walkers, d)
        betas = [*np.geomspace(1, WARMEST, TEMPERATURES)[:-1], 0.0]
        sampler = PTSampler(
            walkers, d, None, None, betas=betas, pool=pool, adapt_tau=HALF_LIFE, adapt_nu=RATE, adapt_mode="SAR"
        )
        adapted = sampler.run_mcmc(start, nsweeps=half)
        sampler.select_adjustment("NONE")
        sampler.run_mcmc(adapted, nsweeps=half)
        value, error = sampler.get_evidence_ss(discard=half)
        settings = f"PTSampler, {TEMPERATURES} temperatures, {walkers} walkers, {2 * half} sweeps; get_evidence_ss"
        return Answer(float(value), float(error), pool.evaluations, settings)

    return run
