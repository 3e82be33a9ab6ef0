"""dynesty's static nested sampler, which its documentation recommends for evidence; effort multiplies the live points.

How new points are found is left to the package: uniformly within ellipsoids below ten dimensions, random walks up to
twenty, slices above. It calls the likelihood one point at a time.
"""

from __future__ import annotations

from collections.abc import Callable

import dynesty
import numpy as np

from benchmarks.peers.tasks import Answer, Task, log_likelihood_of, quantile_of

LIVE = 500  # the default
REMAINDER = 0.01  # of the log evidence; the default would be 0.5


def prepare(task: Task) -> Callable[[int, float], Answer]:
    """Return run(seed, effort)."""
    log_likelihood, quantile = log_likelihood_of(task), quantile_of(task)

    def run(seed: int, effort: float) -> Answer:
        live = round(effort * LIVE)
        rng = np.random.default_rng(seed)
        sampler = dynesty.NestedSampler(log_likelihood, quantile, task.dimension, nlive=live, rstate=rng)
        sampler.run_nested(dlogz=REMAINDER, print_progress=False)
        found = sampler.results
        settings = f"NestedSampler(nlive={live}), dlogz={REMAINDER}"
        return Answer(float(found.logz[-1]), float(found.logzerr[-1]), int(np.sum(found.ncall)), settings)

    return run
