"""Population MCMC: local moves at every rung, then swaps between rungs, for all populations in one program."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from thermint.draws import Draws
from thermint.kernels import Kernel, Noise, Params
from thermint.kernels.base import draw_noise
from thermint.ladders import Ladder
from thermint.model import Evaluation, Model, check_values, choose, evaluate

Swap = Callable[[Array, Array, Array, Array], Array]


class Population(NamedTuple):
    """The state of the sampler. Axes: [population, rung]; populations never see each other."""

    state: Evaluation
    log_step: Array


@partial(jax.jit, static_argnames=("model", "kernel", "swap", "length"))
def advance(
    keys: Array,
    population: Population,
    precision_factor: Array,
    ladder: Array,
    iteration: Array,
    gain: Array,
    *,
    model: Model,
    kernel: Kernel,
    swap: Swap,
    length: int,
) -> tuple[Population, Draws]:
    """Run ``length`` iterations and record them as a chunk of draws.

    Args:
        keys: one key per population. Iteration n uses ``fold_in(key, n)``, so that chunks may have any length.
        population: where to start.
        precision_factor: the kernel's adapted metric, [rung, d, d].
        ladder: inverse temperatures.
        iteration: number of the first iteration.
        gain: how fast step sizes follow the acceptance rate (Robbins-Monro); 0 leaves them frozen.
        model: the model (static, like all that follows).
        kernel: the move within a rung.
        swap: the move between rungs.
        length: number of iterations.
    """
    target = getattr(kernel, "target_acceptance", 0.6)

    def move(noise: Noise, state: Evaluation, t: Array, params: Params, fresh: Array) -> tuple[Evaluation, Array]:
        """Move one rung by the kernel; at t = 0 a fresh draw from the prior is the proposal instead."""
        moved, info = kernel(noise, state, t, params, lambda x: evaluate(model, jnp.where(t > 0, x, fresh)))
        supported = info.proposal.log_likelihood > -jnp.inf  # t = 0 is the prior where the likelihood is not zero
        moved = choose(t > 0, moved, choose(supported, info.proposal, state))
        acceptance = jnp.where(t > 0, info.acceptance, supported.astype(float))
        return moved, jnp.where(jnp.isnan(info.proposal.log_likelihood), jnp.nan, acceptance)

    def iterate(carry: Population, now: tuple[Array, Array, Array, Noise]) -> tuple[Population, tuple]:
        state, log_step = carry
        n, key_swap, fresh, noise = now
        params = Params(jnp.exp(log_step), precision_factor)
        moves = jax.vmap(move, in_axes=(0, 0, 0, 0, None))
        state, acceptance = moves(noise, state, ladder, params, fresh)
        log_step = log_step + gain * (jnp.nan_to_num(acceptance) - target)
        order = swap(key_swap, state.log_likelihood, ladder, n)
        swapped = jax.tree.map(lambda a: a[order], state)
        # Recorded before the swap, so that rung 0 gives independent draws.
        return Population(swapped, log_step), (*state[:5], acceptance)

    def randomness(key: Array, n: Array) -> tuple[Array, Array, Array, Noise]:
        """All that is random in iteration n of one population."""
        key_swap, key_prior, key_noise = jax.random.split(jax.random.fold_in(key, n), 3)
        d = population.state.position.shape[-1]
        return n, key_swap, model.sample_prior(key_prior).astype(float), draw_noise(key_noise, ladder.shape, d)

    def run(key: Array, start: Population) -> tuple[Population, tuple]:
        # Drawn for the whole chunk at once, which takes a fraction of the time of drawing inside the loop.
        return jax.lax.scan(iterate, start, jax.vmap(partial(randomness, key))(iteration + jnp.arange(length)))

    population, record = jax.vmap(run)(keys, population)
    return population, Draws(ladder, *record)


def start(model: Model, keys: Array, ladder: Ladder) -> tuple[Evaluation, np.ndarray]:
    """Begin every rung at one of many prior draws, chosen with weight likelihood^t.

    Returns:
        The states, [population, rung], and the standard deviations of the prior, [d], as the draws show them.

    Raises:
        ValueError: the model's values at these draws are unusable; the message says which and where.
    """
    draws = jax.tree.map(np.asarray, _prior_draws(keys, model=model, many=max(64, len(ladder))))
    check_values(model, draws)
    g = draws.log_likelihood
    supported = g > -np.inf
    spare = np.argwhere(supported)[0]  # for a population none of whose own draws has a likelihood
    rng = np.random.default_rng(np.asarray(jax.random.key_data(keys)).ravel())
    chosen = np.empty((len(keys), len(ladder), 2), dtype=int)
    for population, rung in np.ndindex(chosen.shape[:2]):
        own = np.flatnonzero(supported[population])
        if len(own):
            # The largest of log weight + Gumbel noise is a draw with these weights.
            index = own[np.argmax(ladder[rung] * g[population, own] + rng.gumbel(size=len(own)))]
            chosen[population, rung] = population, index
        else:
            chosen[population, rung] = spare
    states = jax.tree.map(lambda a: jnp.asarray(a[chosen[..., 0], chosen[..., 1]]), draws)
    # From the middle half of the draws, because a prior need not have a variance.
    low, high = np.quantile(draws.position, [0.25, 0.75], axis=(0, 1))
    return states, (high - low) / 1.349


@partial(jax.jit, static_argnames=("model", "many"))
def _prior_draws(keys: Array, *, model: Model, many: int) -> Evaluation:
    """Evaluate ``many`` prior draws for each population."""

    def one(key: Array, index: Array) -> Evaluation:
        return evaluate(model, model.sample_prior(jax.random.fold_in(key, index)).astype(float))

    return jax.vmap(jax.vmap(one, (None, 0)), (0, None))(keys, jnp.arange(many))
