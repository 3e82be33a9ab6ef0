"""UltraNest's reactive nested sampler, with batches of points; effort multiplies the live points.

Above ten dimensions, as its documentation advises, a step sampler replaces draws from regions around the live points:
slices along a mixture of directions, 2 d steps for each new point. Its variant for a population of points at once took
four times as many evaluations on a regression in d = 20 and moved less.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from ultranest import ReactiveNestedSampler
from ultranest.stepsampler import SliceSampler, generate_mixture_random_direction

from benchmarks.peers.tasks import Answer, Task, batch_log_likelihood_of, batch_quantile_of

LIVE = 400  # the default
FROM_REGIONS = 10  # dimensions, up to which new points are drawn from regions


def prepare(task: Task) -> Callable[[int, float], Answer]:
    """Return run(seed, effort)."""
    log_likelihood, quantile = batch_log_likelihood_of(task), batch_quantile_of(task)
    d = task.dimension

    def run(seed: int, effort: float) -> Answer:
        np.random.seed(seed)  # noqa: NPY002, the only source that UltraNest has
        live = round(effort * LIVE)
        names = [f"x{i}" for i in range(d)]
        sampler = ReactiveNestedSampler(names, log_likelihood, quantile, vectorized=True)
        settings = f"ReactiveNestedSampler, min_num_live_points={live}"
        if d > FROM_REGIONS:
            sampler.stepsampler = SliceSampler(2 * d, generate_mixture_random_direction)
            settings += f", SliceSampler(nsteps={2 * d})"
        found = sampler.run(min_num_live_points=live, show_status=False, viz_callback=False)
        return Answer(float(found["logz"]), float(found["logzerr"]), int(found["ncall"]), settings)

    return run
