"""Population MCMC: local moves at every rung, then swaps between rungs, for groups of populations in one program."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle, pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from thermint.kernels import Kernel, Noise, Params
from thermint.kernels.base import apply, traits_of
from thermint.model.closure_constants import map_points
from thermint.model.draws import Array as AnyArray
from thermint.model.draws import Draws
from thermint.model.evaluation import Evaluation, choose, impossible, usable
from thermint.path.ladders import Ladder
from thermint.path.path import Path
from thermint.runtime.devices import DeviceLayout, device_layout
from thermint.runtime.hosts import allgather
from thermint.runtime.programs import jit
from thermint.runtime.store import storable
from thermint.sampling.noise import Block, noise

Swap = Callable[[Array, Array, Array, Array], Array]

MAX_JUMP_SD = 10.0  # standard deviations of the rung; proposals beyond it say nothing of a border


@storable
class Population(NamedTuple):
    """The state of the sampler. Axes: [population, rung]; populations never see each other."""

    state: Evaluation
    log_step: AnyArray
    # 1 if the state was at t = 0 more recently than at t = 1, else 0; it travels with the state.
    last_visited_reference: AnyArray
    carry: AnyArray | None = None  # the kernel's own state, if it has one; it travels with the state, too


class Rungs(NamedTuple):
    """What the chains of a rung share in all populations."""

    ladder: AnyArray  # [rung]
    precision_factor: AnyArray  # [rung, d, d], of the kernel's adapted metric
    inverse_factor: AnyArray  # likewise


def rungs_of(ladder: AnyArray, precision_factor: AnyArray) -> Rungs:
    """Make it for kernels that solve by multiplying.

    On populations devices of a CPU at once, JAX 0.10 waits forever for the solver that it would call instead.
    """
    return Rungs(ladder, precision_factor, np.asarray(np.linalg.inv(precision_factor), dtype=float))


class Engine(NamedTuple):
    """What moves populations: all that stays the same from one chunk to the next."""

    path: Path
    kernel: Kernel  # the move within a rung
    swap: Swap  # the move between rungs
    length: int  # iterations that the program has room for: it makes chunks of any length up to that
    layout: DeviceLayout  # the devices that share the populations
    copies: list[Path]  # of the path, one on each of those
    level: int = 1  # of optimisation; see `thermint.runtime.programs.jit`


def engine_of(
    path: Path, populations: int, *, kernel: Kernel, swap: Swap, length: int, level: int = 1, alone: bool = False
) -> Engine:
    """Copy the path to the devices that will share the populations: all, or ``alone`` one."""
    layout = device_layout(populations, alone)
    return Engine(path, kernel, swap, length, layout, layout.put(path), level)


class Chunk(NamedTuple):
    """Iterations that devices are busy with."""

    ends: list[Array]  # where the populations of each group will be, packed
    record: list[Array]  # of their draws
    iterations: int
    ladder: Ladder
    carry: int  # numbers in the kernel's own state


def launch(
    engine: Engine,
    keys: Array | np.ndarray,
    before: Population | Chunk,
    rungs: Rungs,
    iteration: int,
    gain: float,
    stop: int,
) -> Chunk:
    """Set devices to some iterations, and do not wait for them.

    Args:
        engine: what moves the populations.
        keys: one key per population, or its words. Iteration n of a population depends on its key and on n, so that
            chunks may have any length.
        before: where to start: populations, or where those of a chunk will be.
        rungs: inverse temperatures and the kernel's adapted metric.
        iteration: number of the first iteration.
        gain: how fast step sizes follow the acceptance rate (Robbins-Monro); 0 leaves them frozen.
        stop: number of the iteration before which to stop, ``engine.length`` away at most.
    """
    layout, length = engine.layout, engine.length
    keys = keys[layout.populations]
    d = rungs.precision_factor.shape[-1]
    traits = traits_of(engine.kernel)
    normals, uniforms = traits.numbers(d)
    # At each rung those of the kernel and one of the swap; and those of the fresh draw.
    random, for_fresh = noise(keys, iteration, length, Block(len(rungs.ladder), normals, uniforms + 1), Block(1, d, 2))
    fresh = engine.path.draw(keys, iteration, for_fresh[:, :, 0])
    # As one array, which is moved to a device in one step.
    chance = np.concatenate([part.reshape(len(keys), -1) for part in (random, fresh)], axis=1)
    packed = before.ends if isinstance(before, Chunk) else layout.cut(_pack(before)[layout.populations])
    shared = rungs, (np.int64(iteration), np.float64(gain), np.int64(stop - iteration))
    options: Any = {"length": length, "kernel": engine.kernel, "swap": engine.swap, "level": engine.level}
    turns = cycle(zip(layout.devices, engine.copies, strict=True))
    made = [
        _advance(*own, shared, path=copy, device=device, **options)
        for (device, copy), *own in zip(turns, packed, layout.cut(chance), strict=False)
    ]
    ends, record = map(list, zip(*made, strict=True))
    return Chunk(ends, record, stop - iteration, np.asarray(rungs.ladder), traits.carry(d))


def collect(chunk: Chunk) -> tuple[Population, Draws]:
    """Wait for the devices; return where the populations are, and their draws."""
    packed, record = (allgather(np.concatenate([*map(np.asarray, part)])) for part in (chunk.ends, chunk.record))
    d = (record.shape[-1] - 5) // 3
    known, rest = _split_columns(record[:, : chunk.iterations], d)
    return _unpack_state(packed, d, chunk.carry), Draws(chunk.ladder, *known, *np.moveaxis(rest, -1, 0))


@jit("length", "kernel", "swap", "level")
def _advance(
    packed: Array,
    chance: Array,
    shared: tuple[Rungs, tuple[Array, Array, Array]],
    *,
    path: Path,
    length: int,
    kernel: Kernel,
    swap: Swap,
    level: int,
) -> tuple[Array, Array]:
    """Run the populations of one group side by side; return where they are, packed, and the record of their draws.

    What the loop carries, records and reads is one array each, and all chains are one axis: XLA compiles and starts
    operations one by one, and JAX traces them once for every axis that is mapped over.
    """
    del level
    (ladder, *metric), (iteration, gain, iterations) = jax.tree.map(jnp.asarray, shared)
    rungs, d = metric[0].shape[:2]
    populations, chains = len(chance), len(chance) * rungs
    traits = traits_of(kernel)
    columns = sum(traits.numbers(d)) + 1  # the last decides on swaps
    random, fresh = jnp.split(chance, [length * rungs * columns], axis=1)
    random, fresh = random.reshape(populations, length, rungs, columns), fresh.reshape(populations, length, d)

    def for_each_chain(a: Array) -> Array:
        """Repeat what populations share, [rung, ...], for each chain."""
        return jnp.tile(a, (populations, *(1,) * (a.ndim - 1)))

    t, *metric = map(for_each_chain, (ladder, *metric))

    def move(
        noise: Noise, state: Evaluation, t: Array, params: Params, fresh: Array, carry: Array | None
    ) -> tuple[Evaluation, Array, Array | None]:
        """Move one chain by the kernel; at t = 0 a fresh draw from the reference is the proposal instead."""

        def see(x: Array) -> Evaluation:
            return path.evaluate(jnp.where(t > 0, x, fresh))

        moved, info = apply(kernel, noise, state, t, params, see, carry)
        if carry is not None:
            carry = choose(t > 0, info.carry, carry)
        # The rung at t = 0 is the reference where the likelihood is not zero.
        allowed = usable(info.proposal)  # NaN is as good as zero
        moved = choose(t > 0, moved, choose(allowed, info.proposal, state))
        # Far away, a density that only falls towards zero rounds to it: that is no border.
        jump = params.precision_factor.T @ (info.proposal.position - state.position)
        wild = (t > 0) & (jnp.sqrt(jnp.mean(jump**2)) > MAX_JUMP_SD)
        acceptance = jnp.where(t > 0, info.acceptance, allowed.astype(float))
        invalid = ~allowed & ~impossible(info.proposal)
        outcome = jnp.stack([jnp.where(invalid, jnp.nan, acceptance), (~allowed & ~wild).astype(float)])
        return moved, outcome, carry

    moves = map_points(move, path.model.batch, chains)

    def body(loop: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        i, packed, record = loop
        state, log_step, last_visited_reference, carry = _unpack_state(packed, d, traits.carry(d))
        now = random[:, i].reshape(chains, columns)
        params = Params(jnp.exp(log_step), *metric)
        mine = jnp.repeat(fresh[:, i], rungs, axis=0)
        state, outcome, carry = moves(traits.noise(now, d), state, t, params, mine, carry)
        log_step = log_step + gain * (jnp.nan_to_num(outcome[:, 0]) - traits.target_acceptance)
        last_visited_reference = jnp.where(t > 0, last_visited_reference, 1.0)
        # Recorded before the swap, so that rung 0 gives independent draws.
        row = jnp.concatenate([*map(_column, state[:5]), outcome, _column(last_visited_reference)], axis=1)
        record = jax.lax.dynamic_update_slice_in_dim(record, row.reshape(populations, 1, rungs, -1), i, axis=1)
        by_ladder = (populations, rungs)
        uniform, g = now[:, -1].reshape(by_ladder), state.log_likelihood.reshape(by_ladder)
        order = jax.vmap(swap, (0, 0, None, None))(uniform, g, ladder, iteration + i)
        order = (order + rungs * jnp.arange(populations)[:, None]).reshape(chains)
        last_visited_reference = jnp.where(jnp.arange(chains) % rungs == rungs - 1, 0.0, last_visited_reference)
        travelling = jnp.concatenate([*map(_column, _known(*state, carry, last_visited_reference))], axis=1)
        return i + 1, jnp.concatenate([travelling[order], _column(log_step)], axis=1), record

    blank = jnp.zeros((populations, length, rungs, 3 * d + 5))
    first = 0 * iterations, packed.reshape(chains, -1), blank
    _, end, record = jax.lax.while_loop(lambda loop: loop[0] < iterations, body, first)
    return end.reshape(populations, rungs, -1), record


def _known(*parts: Any) -> list[Any]:
    return [part for part in parts if part is not None]


def _pack(population: Population) -> np.ndarray:
    """Put all that is known of each chain side by side, step sizes last: [population, rung, columns]."""
    state, log_step, visited, carry = jax.tree.map(np.asarray, population)
    populations = log_step.shape
    return np.concatenate(
        [part.reshape(*populations, -1) for part in _known(*state, carry, visited, log_step)], axis=-1
    )


def _unpack_state(packed: Any, d: int, carry: int) -> Population:
    """Inverse of `_pack`, with any axes before the columns."""
    known, rest = _split_columns(packed, d)
    end = -2 - carry
    metric = rest[..., :end].reshape(*rest.shape[:-1], -1, d, d)  # both of its parts, or none
    known += [metric[..., i, :, :] for i in range(metric.shape[-3])]
    own = rest[..., end:-2] if carry else None
    return Population(Evaluation(*known), log_step=rest[..., -1], last_visited_reference=rest[..., -2], carry=own)


def _split_columns(columns: Any, d: int) -> tuple[list, Any]:
    """Take [..., columns] apart into position, log likelihood, log prior and both gradients; and what follows them."""
    edges = pairwise([0, d, d + 1, d + 2, 2 * d + 2, 3 * d + 2, None])
    position, g, log_prior, slope, prior_slope, rest = (columns[..., low:high] for low, high in edges)
    return [position, g[..., 0], log_prior[..., 0], slope, prior_slope], rest


def _column(a: Array) -> Array:
    """Write an array [chain, ...] as [chain, columns]."""
    return a.reshape(len(a), -1)
