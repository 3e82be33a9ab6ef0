"""Where populations run: side by side on the devices of JAX, of one process or of several.

By default every core that this process may use is a device (see `_runtime`); accelerators go before cores. Populations
never see each other, so that nothing is exchanged between devices but the draws, which every process gets.

Populations run in groups, and a device takes one group after the other. A group is small and always the same, and every
device runs the same compiled program: how many devices there are changes no bit of the draws.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple, TypeVar

import jax
import numpy as np

T = TypeVar("T")


class DeviceLayout(NamedTuple):
    """Which devices of this process run which populations."""

    devices: tuple[jax.Device, ...]
    group: int  # populations that run as one
    populations: slice  # of all, those that this process runs

    def cut(self, own: np.ndarray) -> list[np.ndarray]:
        """Cut an array of this process's populations, [population, ...], into that of each group."""
        return np.split(own, len(own) // self.group)

    @property
    def size(self) -> int:
        """Devices of all processes together."""
        return len(self.devices) * jax.process_count()

    def put(self, tree: T) -> list[T]:
        """Copy arrays to each device."""
        return [_copied(tree, device) for device in self.devices]


def device_layout(populations: int, alone: bool = False) -> DeviceLayout:
    """Share populations between processes, and in each between its devices; ``alone`` takes one CPU device of each.

    Raises:
        ValueError: there are several processes, and the populations cannot be shared between them.
    """
    group = 2 if populations % 2 == 0 else 1  # two share the cost of starting every operation
    groups, processes = populations // group, jax.process_count()
    if groups % processes:
        raise ValueError(
            f"populations = {populations} cannot be shared by {processes} processes, which take two each, or more: "
            f"give populations={2 * processes * max(1, round(populations / (2 * processes)))}."
        )
    share = populations // processes
    own = slice(jax.process_index() * share, (jax.process_index() + 1) * share)
    devices = jax.local_devices()[: groups // processes]
    if jax.config.jax_default_device is not None:  # type: ignore[attr-defined]
        devices = [default_device()]  # the user has chosen one
    elif alone and jax.default_backend() == "cpu":
        devices = devices[:1]
    return DeviceLayout(tuple(devices), group, own)


def default_device() -> jax.Device:
    """Return where JAX runs what nobody has put elsewhere."""
    chosen = jax.config.jax_default_device  # type: ignore[attr-defined]
    if isinstance(chosen, jax.Device):
        return chosen
    return jax.local_devices(backend=chosen)[0]


def _copied(tree: T, device: jax.Device) -> T:
    known: dict[int, jax.Array] = {}  # a model has its data in several places

    def once(a: jax.Array) -> jax.Array:
        if id(a) not in known:
            known[id(a)] = jax.device_put(a, device)
        return known[id(a)]

    return jax.tree.map(once, tree)


def allgather(own: np.ndarray) -> np.ndarray:
    """Join what every process has of its own populations, [population, ...], in all of them."""
    if jax.process_count() == 1:
        return own
    from jax.experimental.multihost_utils import process_allgather

    return np.asarray(process_allgather(own, tiled=True))


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


def broadcast_scalar(value: float, choose: Callable[[list[float]], float] = itemgetter(0)) -> float:
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
    failed = broadcast_scalar(float(problem is not None))
    buffer = np.zeros(int(broadcast_scalar(len(own))), dtype=np.uint8)
    if is_first():
        buffer[:] = np.frombuffer(own, dtype=np.uint8)
    shared = np.asarray(broadcast_one_to_all(buffer)).tobytes() if buffer.size else b""
    if failed:
        raise problem or OSError(shared.decode())
    return shared
