"""Where populations run: side by side on the devices of JAX, of one process or of several.

By default every core that this process may use is a device (see `_runtime`); accelerators go before cores. Populations
never see each other, so that nothing is exchanged between devices but the draws, which every process gets.

Populations run in groups, and a device takes one group after the other. A group is small and always the same, so that
every device runs the same program on the same shapes: how many devices there are changes no bit of the draws.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import TypeVar

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

T = TypeVar("T")

AXIS = "population"


def group_of(populations: int) -> int:
    """Return how many populations run as one: two share the cost of starting every operation."""
    return 2 if populations % 2 == 0 else 1


def mesh_of(populations: int, alone: bool = False) -> Mesh | None:
    """Choose devices so that all have as many groups of populations to run; None where that is one device.

    ``alone`` takes one CPU device of every process.

    Raises:
        ValueError: there are several processes, and the populations cannot be shared between them.
    """
    groups, processes = populations // group_of(populations), jax.process_count()
    if groups % processes:
        raise ValueError(
            f"populations = {populations} cannot be shared by {processes} processes, which take two each, or more: "
            f"give populations={2 * processes * max(1, round(populations / (2 * processes)))}."
        )
    if processes == 1 and jax.config.jax_default_device is not None:  # type: ignore[attr-defined]
        return None  # the user has chosen one
    own: dict[int, list[jax.Device]] = {}
    for device in jax.devices():
        own.setdefault(device.process_index, []).append(device)
    most = 1 if alone and jax.default_backend() == "cpu" else min(len(devices) for devices in own.values())
    used = max(k for k in range(1, most + 1) if groups // processes % k == 0)
    chosen = [device for process in sorted(own) for device in own[process][:used]]
    return None if len(chosen) == 1 else Mesh(np.array(chosen), (AXIS,))


def spread(tree: T, mesh: Mesh | None) -> T:
    """Put arrays [population, ...], the same in every process, where their populations run."""
    return _put(tree, mesh, PartitionSpec(AXIS))


def repeat(tree: T, mesh: Mesh | None) -> T:
    """Put arrays, the same in every process, on every device."""
    return _put(tree, mesh, PartitionSpec())


def one_copy(tree: T) -> T:
    """Return the first device's copy, in this process, of arrays that every device has."""
    return jax.tree.map(lambda a: a.addressable_data(0) if isinstance(a, jax.Array) else a, tree)


def _put(tree: T, mesh: Mesh | None, spec: PartitionSpec) -> T:
    if mesh is None:
        return jax.device_put(tree)  # no program is compiled for that, as for `jnp.asarray`
    sharding = NamedSharding(mesh, spec)
    known: dict[int, jax.Array] = {}  # a model has its data in several places

    def once(a: jax.Array) -> jax.Array:
        if id(a) not in known:
            known[id(a)] = one(a)
        return known[id(a)]

    def one(a: jax.Array) -> jax.Array:
        if isinstance(a, jax.Array) and a.sharding == sharding:
            return a  # there already
        if jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(one(jax.random.key_data(a)))
        there = np.asarray(a)  # from a device, JAX would compile a program that cuts it
        if jax.process_count() == 1:
            return jax.device_put(there, sharding)
        return jax.make_array_from_callback(there.shape, sharding, lambda index: there[index])

    return jax.tree.map(once, tree)


def host(tree: T) -> T:
    """Bring arrays to this process as NumPy's, whatever process made which part."""
    if jax.process_count() == 1:
        return jax.tree.map(_joined, tree)
    from jax.experimental.multihost_utils import process_allgather

    def one(a: jax.Array) -> np.ndarray:
        local = not isinstance(a, jax.Array) or a.is_fully_addressable
        return np.asarray(a if local else process_allgather(a, tiled=True))

    return jax.tree.map(one, tree)


def _joined(a: jax.Array) -> np.ndarray:
    """Join the parts of an array; JAX itself takes three times as long for one that is spread along its first axis."""
    if not isinstance(a, jax.Array) or a.is_fully_replicated:
        return np.asarray(a)
    return np.concatenate([np.asarray(shard.data) for shard in a.addressable_shards])


class LostPeerError(RuntimeError):
    """Another process of the same run has ended, or cannot be reached."""


# How an operation between processes says that it failed. What fails in this process alone says something else.
LOST = re.compile("^(ABORTED|CANCELLED|DEADLINE_EXCEEDED|FAILED_PRECONDITION|UNAVAILABLE|UNKNOWN): |Gloo|NCCL")


@contextmanager
def peers(checkpoint: Path | None) -> Iterator[None]:
    """Say so if a run of several processes fails because one of them is gone."""
    try:
        yield
    except (jax.errors.JaxRuntimeError, ValueError) as error:  # JAX raises either, by the way the program is called
        if jax.process_count() == 1 or not LOST.search(str(error)):
            raise
        where = f"from {checkpoint}, on any number of processes" if checkpoint else "with a checkpoint"
        raise LostPeerError(
            f"process {jax.process_index()} of {jax.process_count()} cannot go on: most likely another one has ended, "
            f"and its own output says why. Run again {where}."
        ) from error


def is_first() -> bool:
    """Say whether this is the process that writes and reports."""
    return jax.process_index() == 0


def agreed(value: float, choose: Callable[[list[float]], float] = itemgetter(0)) -> float:
    """Return the same number in all processes, by default the first one's: clocks differ, decisions must not."""
    if jax.process_count() == 1:
        return value
    from jax.experimental.multihost_utils import process_allgather

    return float(choose(process_allgather(np.float64(value)).tolist()))


def share_bytes(make: Callable[[], bytes]) -> bytes:
    """Make some bytes in the first process, and return them in all.

    Raises:
        OSError: the first could not make them; in all processes, or the others would wait.
    """
    if jax.process_count() == 1:
        return make()
    from jax.experimental.multihost_utils import broadcast_one_to_all

    own, problem = b"", None
    if is_first():
        try:
            own = make()
        except OSError as error:
            own, problem = str(error).encode(), error
    failed = agreed(float(problem is not None))
    buffer = np.zeros(int(agreed(len(own))), dtype=np.uint8)
    if is_first():
        buffer[:] = np.frombuffer(own, dtype=np.uint8)
    shared = np.asarray(broadcast_one_to_all(buffer)).tobytes() if buffer.size else b""
    if failed:
        raise problem or OSError(shared.decode())
    return shared
