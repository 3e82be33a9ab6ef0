"""nautilus: importance nested sampling with neural networks; effort multiplies the effective number of draws.

Points of the exploration are discarded, as its documentation recommends where results must be unbiased. The error is
its documentation's, one over the root of the effective number of draws: the package returns none.
"""

from __future__ import annotations

from collections.abc import Callable

from nautilus import Sampler

from benchmarks.peers.tasks import Answer, Task, batch_log_likelihood_of, batch_quantile_of

LIVE, EFFECTIVE = 2000, 10_000  # the defaults


def prepare(task: Task) -> Callable[[int, float], Answer]:
    """Return run(seed, effort)."""
    log_likelihood, quantile = batch_log_likelihood_of(task), batch_quantile_of(task)

    def run(seed: int, effort: float) -> Answer:
        effective = round(effort * EFFECTIVE)
        sampler = Sampler(quantile, log_likelihood, task.dimension, n_live=LIVE, vectorized=True, seed=seed)
        sampler.run(n_eff=effective, discard_exploration=True)
        settings = f"Sampler(n_live={LIVE}), n_eff={effective}, discard_exploration=True"
        return Answer(float(sampler.log_z), float(sampler.n_eff) ** -0.5, int(sampler.n_like), settings)

    return run
