"""PyMC's sample_smc: tempered sequential Monte Carlo with its default kernel, independent Metropolis-Hastings.

The prior is standard normal in as many coordinates, which the quantile function maps to the model's: for normal priors,
that is the model with standardised parameters. The likelihood is a potential that calls the compiled JAX function: the
kernel needs no gradients. Four chains of 2000 particles; their evidences are averaged, and the spread between them
gives the error. Effort multiplies the particles.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.op import Op

from benchmarks.peers.laplace import log_mean
from benchmarks.peers.tasks import FLOOR, Answer, Task

CHAINS, PARTICLES = 4, 2000


def prepare(task: Task) -> Callable[[int, float], Answer]:
    """Return run(seed, effort)."""
    logging.getLogger("pymc").setLevel(logging.ERROR)
    calls = 0

    @jax.jit
    def compiled(x: jax.Array) -> jax.Array:
        value = task.model.log_likelihood(task.quantile(jax.scipy.special.ndtr(x)))
        return jnp.where(value > FLOOR, value, FLOOR)

    class LogLikelihood(Op):
        """The compiled function, for PyTensor."""

        itypes = (pt.dvector,)
        otypes = (pt.dscalar,)

        def perform(self, node: Any, inputs: Any, outputs: Any) -> None:
            nonlocal calls
            calls += 1
            outputs[0][0] = np.asarray(compiled(inputs[0]))

    with pm.Model() as model:
        pm.Potential("likelihood", LogLikelihood()(pm.Normal("x", shape=task.dimension)))

    def run(seed: int, effort: float) -> Answer:
        nonlocal calls
        calls = 0
        particles = round(effort * PARTICLES)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trace = pm.sample_smc(
                particles,
                model=model,
                chains=CHAINS,
                cores=1,
                random_seed=seed,
                progressbar=False,
                compute_convergence_checks=False,
                return_inferencedata=False,
            )
        # Each chain's evidence, not its logarithm, is unbiased: those are averaged. Only the last stage has it.
        values = np.array([chain[-1] for chain in trace.report.log_marginal_likelihood], dtype=float)
        return Answer(*log_mean(values), calls, f"{CHAINS} chains of {particles} particles, IMH kernel")

    return run
