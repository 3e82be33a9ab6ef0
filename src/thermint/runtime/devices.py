"""Where populations run: side by side on JAX's devices, in groups of one or two.

By default every core is a device (see `setup`); accelerators go before cores. A group is small and always the same, and
all devices run the same program, so that their number changes no bit of the draws.
"""

from __future__ import annotations

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
    """Share populations between processes, and in each between its devices.

    Args:
        populations: of all processes.
        alone: use one CPU device of each process.

    Raises:
        ValueError: there are several processes, and the populations cannot be shared between them.
    """
    group = 2 if populations % 2 == 0 else 1  # in pairs, they share the cost of starting every operation
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
    """Return the device that JAX uses unless told otherwise."""
    chosen = jax.config.jax_default_device  # type: ignore[attr-defined]
    if isinstance(chosen, jax.Device):
        return chosen
    return jax.local_devices(backend=chosen)[0]


def _copied(tree: T, device: jax.Device) -> T:
    """Copy arrays to a device, each once: a model has its data in several places."""
    known: dict[int, jax.Array] = {}

    def once(a: jax.Array) -> jax.Array:
        if id(a) not in known:
            known[id(a)] = jax.device_put(a, device)
        return known[id(a)]

    return jax.tree.map(once, tree)
