"""NumPyro's NUTS, then bridge sampling: Meng and Wong's iteration (1996) with a normal proposal.

Four chains of 1000 draws after a warm-up of 1000, from draws of the prior, on the density of the unconstrained
parameters. The first half of each chain gives mean and covariance of the proposal; the second half and as many draws
of the proposal go into the bridge, as in R's bridgesampling, whose answer `check_bridge` compares. The error is that of
Fruehwirth-Schnatter (2004), with the effective number of correlated draws. Effort multiplies the draws.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import Array
from numpy.typing import NDArray
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import NUTS
from scipy import stats

from benchmarks.peers.tasks import Answer, Task, in_batches

CHAINS, WARMUP, DRAWS = 4, 1000, 1000
TOLERANCE = 1e-10  # relative change of the evidence that ends the iteration


def prepare(task: Task) -> Callable[[int, float], Answer]:
    """Return run(seed, effort)."""
    model = task.model

    def log_posterior(theta: Array) -> Array:
        return model.log_likelihood(theta) + model.log_prior(theta)

    density = in_batches(log_posterior)
    starting = jax.jit(jax.vmap(model.sample_prior))
    chain = nuts(log_posterior)

    def run(seed: int, effort: float) -> Answer:
        number = round(effort * DRAWS)
        start_key, key = jax.random.split(jax.random.key(seed))
        starts = starting(jax.random.split(start_key, CHAINS))
        made = [chain(*one, number) for one in zip(jax.random.split(key, CHAINS), starts, strict=True)]
        draws, steps = (np.stack([np.asarray(part) for part in parts]) for parts in zip(*made, strict=True))
        value, error = bridge(draws[:, WARMUP:], density, np.random.default_rng(seed))
        settings = f"NUTS, {CHAINS} chains of {WARMUP} + {number} draws; normal proposal"
        return Answer(value, error, int(steps.sum()) + CHAINS * number, settings)

    return run


def nuts(log_density: Callable[[Array], Array]) -> Callable[[Array, Array, int], tuple[Array, Array]]:
    """Compile (key, start[d], n) -> draws [WARMUP + n, d] and the leapfrog steps that each took.

    One program around NumPyro's kernel makes the draws that its MCMC class makes. That class compiles anew in every
    call, which would take twenty times as long as the draws.
    """

    @functools.partial(jax.jit, static_argnums=2)
    def chain(key: Array, start: Array, number: int) -> tuple[Array, Array]:
        kernel = NUTS(potential_fn=lambda theta: -log_density(theta))

        def step(state: Any, _: None) -> tuple[Any, tuple[Array, Array]]:
            state = kernel.sample(state, (), {})
            return state, (state.z, state.num_steps)

        begun = kernel.init(key, WARMUP, start, (), {})
        return jax.lax.scan(step, begun, None, WARMUP + number)[1]

    return chain


def bridge(draws: NDArray, density: Callable[[NDArray], NDArray], rng: np.random.Generator) -> tuple[float, float]:
    """Estimate the log of the integral of exp(density) by bridge sampling.

    Args:
        draws: from the normalised density, [chain, n, d].
        density: theta[m, d] -> log density[m], up to the constant that is looked for.
        rng: for draws from the proposal.

    Returns:
        The log evidence and its standard error, which is relative to the evidence.
    """
    half = draws.shape[1] // 2
    d = draws.shape[2]
    first, second = draws[:, :half].reshape(-1, d), draws[:, half:]
    proposal = stats.multivariate_normal(first.mean(axis=0), np.atleast_2d(np.cov(first.T)))
    own = second.reshape(-1, d)
    new = proposal.rvs(len(own), random_state=rng).reshape(-1, d)
    log_ratio_own = density(own) - proposal.logpdf(own)
    log_ratio_new = density(new) - proposal.logpdf(new)
    effective = float(np.median(effective_sample_size(second)))
    return bridge_of_ratios(log_ratio_own.reshape(second.shape[:2]), log_ratio_new, effective)


def bridge_of_ratios(own: NDArray, new: NDArray, effective: float) -> tuple[float, float]:
    """Iterate to the optimal bridge.

    Args:
        own: log of density over proposal at draws of the density, [chain, n].
        new: the same at independent draws of the proposal, [m].
        effective: number of independent draws that ``own`` is worth, by which it is weighted.

    Raises:
        RuntimeError: the iteration does not converge.
    """
    share = effective / (effective + len(new))
    centre = np.median(own)  # of all logarithms, against overflow
    ratio_own, ratio_new = np.exp(np.clip(own - centre, -700, 700)), np.exp(np.clip(new - centre, -700, 700))
    r = 1.0
    for _ in range(1000):
        at_new = ratio_new / (share * ratio_new + (1 - share) * r)
        at_own = 1 / (share * ratio_own + (1 - share) * r)
        previous, r = r, float(at_new.mean() / at_own.mean())
        if abs(r - previous) <= TOLERANCE * r:
            break
    else:
        raise RuntimeError("the bridge iteration did not converge: posterior and proposal hardly overlap")
    correlated = float(effective_sample_size(at_own))
    squares = _relative_variance(at_new) / at_new.size, _relative_variance(at_own) / correlated
    return float(np.log(r) + centre), float(np.sqrt(sum(squares)))


def _relative_variance(x: NDArray) -> float:
    return float(x.var(ddof=1) / x.mean() ** 2)
