"""harmonic: the learned harmonic mean of draws from the posterior; effort multiplies the draws.

The draws are those of its examples: emcee, 200 walkers from the prior; above ten dimensions, where those hardly move,
NumPyro's NUTS, which its README names beside emcee. A flow of rational quadratic splines is fitted to half of them,
concentrated by a temperature of 0.8, and averaged over the other half.
"""

from __future__ import annotations

from collections.abc import Callable

import emcee
import harmonic
import jax
import numpy as np
from jax import Array
from numpy.typing import NDArray

from benchmarks.peers.bridge import CHAINS, WARMUP, nuts
from benchmarks.peers.tasks import Answer, Task, batch_quantile_of, in_batches

WALKERS, BURN_IN, STEPS = 200, 1000, 1000
EMCEE = 10  # dimensions, up to which it draws
DRAWS, BLOCKS = 5000, 50  # of a chain of NUTS; its blocks count as chains of their own
UPDATES, BATCH = 1000, 256  # of the flow: 3 epochs of emcee's draws, which is the default, and 26 of those of NUTS
SLICE = 5000  # draws at which the flow is evaluated at once

Draw = Callable[[int, float], tuple[NDArray, int, str]]


def prepare(task: Task) -> Callable[[int, float], Answer]:
    """Return run(seed, effort)."""

    def log_posterior(theta: Array) -> Array:
        return task.model.log_likelihood(theta) + task.model.log_prior(theta)

    density = in_batches(log_posterior)
    draw = _emcee(task, density) if task.dimension <= EMCEE else _nuts(task, log_posterior)

    def run(seed: int, effort: float) -> Answer:
        draws, spent, how = draw(seed, effort)
        chains = harmonic.Chains(task.dimension)
        chains.add_chains_3d(draws, density(draws.reshape(-1, task.dimension)).reshape(draws.shape[:2]))
        train, rest = harmonic.utils.split_data(chains)
        flow = harmonic.model.RQSplineModel(task.dimension, standardize=True)
        epochs = max(1, round(effort * UPDATES * BATCH / len(train.samples)))
        flow.fit(train.samples, batch_size=BATCH, epochs=epochs, key=jax.random.PRNGKey(seed))
        evidence = harmonic.Evidence(rest.nchains, flow)
        evidence.add_chains(rest, num_slices=-(-len(rest.samples) // SLICE))
        error = np.exp(evidence.ln_evidence_inv_var / 2 - evidence.ln_evidence_inv)  # relative
        return Answer(-float(evidence.ln_evidence_inv), float(error), spent, f"{how}; RQSplineModel, {epochs} epochs")

    return run


def _emcee(task: Task, density: Callable[[NDArray], NDArray]) -> Draw:
    """Return draw(seed, effort) -> (draws [walker, n, d], evaluations, what was asked of emcee)."""
    quantile = batch_quantile_of(task)

    def log_probability(theta: NDArray) -> NDArray:
        return np.nan_to_num(density(theta), nan=-np.inf)

    def draw(seed: int, effort: float) -> tuple[NDArray, int, str]:
        steps = round(effort * STEPS)
        start = quantile(np.random.default_rng(seed).random((WALKERS, task.dimension)))
        sampler = emcee.EnsembleSampler(WALKERS, task.dimension, log_probability, vectorize=True)
        sampler.random_state = np.random.RandomState(seed).get_state()  # what emcee takes
        sampler.run_mcmc(start, BURN_IN + steps)
        draws = np.ascontiguousarray(sampler.get_chain(discard=BURN_IN).swapaxes(0, 1))
        return draws, WALKERS * (BURN_IN + steps), f"emcee, {WALKERS} walkers, {BURN_IN} + {steps} steps"

    return draw


def _nuts(task: Task, log_posterior: Callable[[Array], Array]) -> Draw:
    """Return draw(seed, effort) -> (draws [block, n, d], evaluations, what was asked of NUTS)."""
    starting, chain = jax.jit(jax.vmap(task.model.sample_prior)), nuts(log_posterior)

    def draw(seed: int, effort: float) -> tuple[NDArray, int, str]:
        number = round(effort * DRAWS / BLOCKS) * BLOCKS
        start_key, key = jax.random.split(jax.random.key(seed))
        starts = starting(jax.random.split(start_key, CHAINS))
        made = [chain(*one, number) for one in zip(jax.random.split(key, CHAINS), starts, strict=True)]
        draws = np.stack([np.asarray(positions)[WARMUP:] for positions, _ in made])
        spent = int(sum(steps.sum() for _, steps in made))
        asked = f"NUTS, {CHAINS} chains of {WARMUP} + {number} draws"
        return draws.reshape(CHAINS * BLOCKS, -1, task.dimension), spent, asked

    return draw
