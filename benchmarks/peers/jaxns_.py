"""JAXNS, nested sampling all in JAX, on the unit cube; effort multiplies the live points.

Evidence and error are those of draws of the shrinkage given all states of its slice-sampling chains (phantom points),
which its README shows to be better than the classic estimate at no further evaluations.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from tensorflow_probability.substrates.jax import distributions

from benchmarks.peers.tasks import Answer, Task

with contextlib.chdir(tempfile.gettempdir()):  # where it is imported, it leaves a file application.log
    from jaxns.core import NestedSampler
    from jaxns.model import Model
    from jaxns.priors import Prior

LIVE = 30  # a dimension: the default
DRAWS = 512  # of the evidence, the default of its plots: their mean has a twentieth of their spread as its error


def prepare(task: Task) -> Callable[[int, float], Answer]:
    """Return run(seed, effort)."""
    d = task.dimension

    def log_likelihood() -> Array:
        cube = Prior(distributions.Uniform(jnp.zeros(d), jnp.ones(d)), name="cube").realise()
        return task.model.log_likelihood(task.quantile(cube))

    model = Model(prior_model=log_likelihood)  # it counts NaN as zero likelihood

    def run(seed: int, effort: float) -> Answer:
        live = round(effort * LIVE * d)
        run_key, evidence_key = jax.random.split(jax.random.PRNGKey(seed))
        sampler = NestedSampler(model=model, root_allocation_degree=live, collect_phantom_samples=True)
        found = sampler.run(key=run_key).to_result()  # not trimmed: each length would be compiled for
        evidence = found.sample_evidence(DRAWS, phantom_conditioning=True, key=evidence_key)
        evaluations = int(found.total_num_likelihood_evaluations)
        settings = f"NestedSampler(root_allocation_degree={live}), phantom conditioning"
        return Answer(float(evidence.log_Z_mean), float(evidence.log_Z_uncert), evaluations, settings)

    return run
