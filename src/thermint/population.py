"""Population MCMC: local moves at every rung, then swaps between rungs, for all populations in one program."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, PartitionSpec

from thermint._runtime import jit
from thermint.devices import AXIS, group_of
from thermint.draws import Draws
from thermint.kernels import Kernel, Noise, Params
from thermint.kernels.base import draw_noise
from thermint.ladders import Ladder
from thermint.linalg import LARGEST_WRITTEN_OUT, inverse_lower
from thermint.model import (
    Evaluation,
    Model,
    check_gradients,
    check_values,
    choose,
    evaluate,
    impossible,
    shifts,
    usable,
)
from thermint.sizes import map_points

Swap = Callable[[Array, Array, Array, Array], Array]

WILD = 10.0  # standard deviations of the rung; proposals beyond it say nothing of a border


class Population(NamedTuple):
    """The state of the sampler. Axes: [population, rung]; populations never see each other."""

    state: Evaluation
    log_step: Array
    upward: Array  # 1 if the state was at t = 0 more recently than at t = 1, else 0; it travels with the state


def begin(state: Evaluation, log_step: Array) -> Population:
    """Make a population that has not been anywhere yet."""
    return Population(state, log_step, jnp.zeros(log_step.shape))


@jit("kernel", "swap", "length", "mesh")
def advance(
    keys: Array,
    population: Population,
    precision_factor: Array,
    ladder: Array,
    iteration: Array,
    gain: Array,
    stop: Array,
    *,
    model: Model,
    kernel: Kernel,
    swap: Swap,
    length: int,
    mesh: Mesh | None = None,
) -> tuple[Population, Draws]:
    """Run up to ``length`` iterations and record them as a chunk of draws.

    Args:
        keys: one key per population. Iteration n uses ``fold_in(key, n)``, so that chunks may have any length.
        population: where to start.
        precision_factor: the kernel's adapted metric, [rung, d, d].
        ladder: inverse temperatures.
        iteration: number of the first iteration.
        gain: how fast step sizes follow the acceptance rate (Robbins-Monro); 0 leaves them frozen.
        stop: number of the iteration before which to stop. If that is fewer than ``length`` iterations away, the rest
            of the record is zero: one program makes chunks of any length.
        model: the model.
        kernel: the move within a rung (static, like all that follows).
        swap: the move between rungs.
        length: number of iterations that there is room for.
        mesh: the devices that share the populations; see `thermint.devices`.
    """
    local = partial(_advance, kernel=kernel, swap=swap, length=length, group=group_of(len(keys)))
    if mesh is not None:
        own, same = PartitionSpec(AXIS), PartitionSpec()
        specs: dict[str, Any] = {"in_specs": (own, own, same), "out_specs": own}
        local = jax.shard_map(local, mesh=mesh, check_vma=False, **specs)  # nothing is exchanged
    population, record = local(keys, population, (precision_factor, ladder, iteration, gain, stop, model))
    return population, Draws(ladder, *record)


def _advance(
    keys: Array, population: Population, shared: tuple, *, kernel: Kernel, swap: Swap, length: int, group: int
) -> tuple[Population, tuple[Array, ...]]:
    """Do what `advance` says, one group of populations after the other; ``shared`` is what all devices have."""
    precision_factor, ladder, iteration, gain, stop, model = shared
    rungs_at_once = None if model.batch is None else max(1, model.batch // group)
    target = getattr(kernel, "target_acceptance", 0.6)
    many = precision_factor.shape[-1] > LARGEST_WRITTEN_OUT and not getattr(kernel, "own_metric", False)
    inverse_factor = jax.vmap(inverse_lower)(precision_factor) if many else None

    def move(
        noise: Noise, state: Evaluation, t: Array, params: Params, fresh: Array
    ) -> tuple[Evaluation, Array, Array]:
        """Move one rung by the kernel; at t = 0 a fresh draw from the prior is the proposal instead."""
        moved, info = kernel(noise, state, t, params, lambda x: evaluate(model, jnp.where(t > 0, x, fresh)))
        # The rung at t = 0 is the prior where the likelihood is not zero.
        allowed = usable(info.proposal)  # NaN is as good as zero
        moved = choose(t > 0, moved, choose(allowed, info.proposal, state))
        # Far away, a density that only falls towards zero rounds to it: that is no border.
        jump = params.precision_factor.T @ (info.proposal.position - state.position)
        wild = (t > 0) & (jnp.sqrt(jnp.mean(jump**2)) > WILD)
        acceptance = jnp.where(t > 0, info.acceptance, allowed.astype(float))
        invalid = ~allowed & ~impossible(info.proposal)
        return moved, jnp.where(invalid, jnp.nan, acceptance), (~allowed & ~wild).astype(float)

    def iterate(carry: Population, now: tuple[Array, Array, Array, Noise]) -> tuple[Population, tuple]:
        state, log_step, upward = carry
        n, key_swap, fresh, noise = now
        params = Params(jnp.exp(log_step), precision_factor, inverse_factor)
        moves = map_points(partial(move, fresh=fresh), rungs_at_once, len(ladder))
        state, acceptance, outside = moves(noise, state, ladder, params)
        log_step = log_step + gain * (jnp.nan_to_num(acceptance) - target)
        upward = jnp.where(ladder > 0, upward, 1.0)
        # Recorded before the swap, so that rung 0 gives independent draws.
        record = (*state[:5], acceptance, outside, upward)
        order = swap(key_swap, state.log_likelihood, ladder, n)
        swapped = jax.tree.map(lambda a: a[order], state)
        new = Population(swapped, log_step, upward.at[-1].set(0.0)[order])
        return new, record

    def randomness(key: Array, n: Array) -> tuple[Array, Array, Array, Noise]:
        """All that is random in iteration n of one population."""
        key_swap, key_prior, key_noise = jax.random.split(jax.random.fold_in(key, n), 3)
        d = population.state.position.shape[-1]
        return n, key_swap, model.sample_prior(key_prior).astype(float), draw_noise(key_noise, ladder.shape, d)

    def run(one: tuple[Array, Population]) -> tuple[Population, tuple]:
        key, start = one
        # Drawn for the whole chunk at once, which takes a fraction of the time of drawing inside the loop.
        random = jax.vmap(partial(randomness, key))(iteration + jnp.arange(length))
        recorded = (*start.state[:5], *(start.log_step,) * 3)
        blank = jax.tree.map(lambda a: jnp.zeros((length, *a.shape), a.dtype), recorded)

        def body(carry: tuple[Array, Population, tuple]) -> tuple[Array, Population, tuple]:
            i, now, record = carry
            now, new = iterate(now, jax.tree.map(lambda a: a[i], random))
            return i + 1, now, jax.tree.map(lambda a, b: a.at[i].set(b), record, new)

        number = jnp.minimum(stop - iteration, length)
        _, end, record = jax.lax.while_loop(lambda carry: carry[0] < number, body, (0 * number, start, blank))
        return end, record

    if len(keys) == group:
        return jax.vmap(lambda *one: run(one))(keys, population)
    return jax.lax.map(run, (keys, population), batch_size=group)


def start(model: Model, keys: Array, ladder: Ladder, check: bool = True) -> tuple[Evaluation, np.ndarray]:
    """Begin every rung at one of many prior draws, chosen with weight likelihood^t.

    Args:
        model: the model.
        keys: one for each population.
        ladder: inverse temperatures.
        check: refuse a model that is NaN at any of the draws, or has wrong gradients; else those are not chosen.

    Returns:
        The states, [population, rung], and the standard deviations of the prior, [d], as the draws show them.

    Raises:
        ValueError: the model's values at these draws are unusable; the message says which and where.
    """
    # Iterations count from 0, so that this key is no iteration's.
    keys = jax.vmap(jax.random.fold_in, (0, None))(keys, np.uint32(2**32 - 1))
    draws = evaluate_all(model, _prior_draws(keys, model=model, many=starts(ladder)))
    # From the middle half of the draws, because a prior need not have a variance.
    low, high = np.quantile(draws.position, [0.25, 0.75], axis=(0, 1))
    deviation = (high - low) / 1.349
    if check:
        check_values(model, draws)
        if model.differentiable:
            shift = shifts(draws.position.shape, deviation)
            check_gradients(model, draws, shift, *(evaluate_all(model, draws.position + s) for s in (shift, -shift)))
    g = draws.log_likelihood
    supported = np.asarray(jax.vmap(jax.vmap(usable))(draws))
    spare = np.argwhere(supported)[0]  # for a population none of whose own draws has a likelihood
    chosen = np.tile(spare, (len(keys), len(ladder), 1))
    for population, seed in enumerate(np.asarray(jax.random.key_data(keys))):
        own = np.flatnonzero(supported[population])
        if len(own):
            # The largest of log weight + Gumbel noise is a draw with these weights.
            noise = np.random.default_rng(seed).gumbel(size=(len(ladder), len(own)))
            chosen[population, :, 0] = population
            chosen[population, :, 1] = own[np.argmax(ladder[:, None] * g[population, own] + noise, axis=1)]
    return jax.tree.map(lambda a: jnp.asarray(a[chosen[..., 0], chosen[..., 1]]), draws), deviation


def begin_at(model: Model, position: np.ndarray) -> Evaluation:
    """Begin at given positions, [population, rung, d]."""
    # As many as `start` evaluates, so that the program is compiled already.
    rungs = position.shape[1]
    many = np.resize(np.arange(rungs), starts(position[0, :, 0]))
    return jax.tree.map(lambda a: jnp.asarray(a[:, :rungs]), evaluate_all(model, position[:, many]))


def starts(ladder: Ladder) -> int:
    """Return how many prior draws of each population `start` chooses from."""
    return max(64, len(ladder))


def evaluate_all(model: Model, position: np.ndarray | Array) -> Evaluation:
    """Evaluate the model at positions [population, many, d], as NumPy arrays."""
    return jax.tree.map(np.asarray, _evaluate_all(position, model=model))


@jit()
def _evaluate_all(position: Array, *, model: Model) -> Evaluation:
    flat = position.reshape(-1, position.shape[-1])
    found = map_points(partial(evaluate, model), model.batch, len(flat))(flat)
    return jax.tree.map(lambda a: a.reshape(*position.shape[:-1], *a.shape[1:]), found)


@jit("many")
def _prior_draws(keys: Array, *, model: Model, many: int) -> Array:
    """Draw ``many`` times from the prior for each population, [population, many, d]."""

    def one(key: Array, index: Array) -> Array:
        return model.sample_prior(jax.random.fold_in(key, index)).astype(float)

    return jax.vmap(jax.vmap(one, (None, 0)), (0, None))(keys, jnp.arange(many))
