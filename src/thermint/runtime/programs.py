"""Programs that are compiled once and run on every device, so that all devices give the same bits."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Hashable
from contextlib import nullcontext, suppress
from functools import cache, partial, wraps
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from jax.experimental import serialize_executable
from jax.stages import Compiled

from thermint.runtime.devices import default_device
from thermint.runtime.setup import compiler_options

R = TypeVar("R")

OWN = "thermint."
MOST = 256  # programs of a function in memory; the oldest go first

_IN_MEMORY: list[dict] = []  # the programs of each function


def forget() -> None:
    """Drop all programs from memory, as `jax.clear_caches` does with its own; those on disk stay."""
    for programs in _IN_MEMORY:
        programs.clear()


class Program(NamedTuple):
    """A compiled program."""

    run: Compiled
    made_here: bool  # not read from a file, by us or by JAX: it can be written to one


def jit(*static: str, level: int = 1) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Make a decorator like `jax.jit`, for programs that take longer to compile than to run.

    Programs of thermint's own functions at the top of a module are kept on disk. What such a function needs of a model
    must reach it as an argument. A call may name a ``device`` to run on, where its arguments are; it is JAX's default
    else. Devices of one kind share a program, and so the bits of what it computes.

    Args:
        static: names of the arguments that are part of the program; they are given by name.
        level: how much it is optimised: 1, to compile in a third of the time that XLA would take; 0, hardly, for
            programs that run for a moment. A static argument of that name says so for one call.
    """

    def decorate(function: Callable[..., R]) -> Callable[..., R]:
        @cache
        def plain(level: int) -> Callable[..., R]:
            options = compiler_options(level)
            return jax.jit(function, static_argnames=static, compiler_options=options)

        if not _is_own(function):
            return wraps(function)(lambda *args, **kwargs: plain(level)(*args, **kwargs))
        programs: dict[Hashable, dict[jax.Device, Program]] = {}
        _IN_MEMORY.append(programs)

        @wraps(function)
        def call(*args: Any, device: jax.Device | None = None, **kwargs: Any) -> R:
            fixed = {name: kwargs.pop(name) for name in static if name in kwargs}
            leaves, tree = jax.tree.flatten((args, kwargs))
            if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
                return plain(level)(*args, **kwargs, **fixed)
            here = device or default_device()
            kinds = tuple(_kind(leaf, here) for leaf in leaves)
            signature = tree, tuple(fixed.values()), kinds, here.device_kind, jax.config.jax_enable_x64  # type: ignore[attr-defined]
            if signature not in programs:
                while len(programs) >= MOST:
                    del programs[next(iter(programs))]
            same = programs.setdefault(signature, {})
            if here not in same:
                worth = fixed.get("level", level)
                same[here] = _found_or_made(function, partial(plain, worth), fixed, args, kwargs, here, same)
            return same[here].run(*args, **kwargs)

        return call

    return decorate


def _kind(leaf: Any, here: jax.Device) -> tuple[Hashable, ...]:
    """Return all of an argument that a program depends on; last, where it is, unless that is here."""
    if not isinstance(leaf, jax.Array):
        return np.shape(leaf), np.asarray(leaf).dtype, isinstance(leaf, bool | int | float), None
    elsewhere = leaf.sharding.device_set != {here}
    return leaf.shape, leaf.dtype, getattr(leaf, "weak_type", False), leaf.sharding if elsewhere else None


def _found_or_made(
    function: Callable[..., R],
    program: Callable[[], Any],
    fixed: dict[str, Any],
    args: tuple,
    kwargs: dict[str, Any],
    here: jax.Device,
    same: dict[jax.Device, Program],
) -> Program:
    """Copy a program from another device, or load it from its file, or compile it and write one."""
    for other in same.values():
        if other.made_here:
            with suppress(Exception):  # it calls code of this process, or this version of JAX cannot write programs
                return Program(_on(here, *serialize_executable.serialize(other.run)), made_here=False)
    before = len(_LOADED_BY_JAX)
    elsewhere = nullcontext() if here == default_device() else jax.default_device(here)
    with elsewhere:
        compiled = program().lower(*args, **kwargs, **fixed).compile()
    made_here = len(_LOADED_BY_JAX) == before  # else what is written would lack its code
    return Program(compiled, made_here)


def _on(device: jax.Device, content: bytes, in_tree: Any, out_tree: Any) -> Compiled:
    """Load a program that was written, on whatever device it was compiled for."""
    with suppress(KeyError):  # that is another one
        return serialize_executable.deserialize_and_load(content, in_tree, out_tree, execution_devices=[device])
    unloaded, args_info, no_kwargs = _Reader(content, device).load()
    return Compiled(unloaded.load(), [], in_tree.unflatten(args_info), out_tree, no_kwargs=no_kwargs)


class _Reader(pickle.Unpickler):
    """Reads what `serialize_executable.serialize` wrote, for another device."""

    def __init__(self, content: bytes, device: jax.Device) -> None:
        super().__init__(io.BytesIO(content))
        self._device = device

    def persistent_load(self, named: tuple) -> Any:
        from jax._src.compiler import get_compile_options
        from jax._src.lib import xla_client

        kind, *parts = named
        if kind != "exec":
            return self._device if kind == "device" else self._device.client
        there = np.array([[self._device.id]])
        return self._device.client.deserialize_executable(
            *parts,
            executable_devices=xla_client.DeviceList((self._device,)),
            compile_options=get_compile_options(num_replicas=1, num_partitions=1, device_assignment=there),
        )


_LOADED_BY_JAX: list[str] = []  # an entry for each program that JAX found in its own cache


def _listen(event: str, **_: Any) -> None:
    if event == "/jax/compilation_cache/cache_hits":
        _LOADED_BY_JAX.append(event)


jax.monitoring.register_event_listener(_listen)


def _is_own(function: Any) -> bool:
    """Say whether a function is one of thermint's, whose source is all there is to it."""
    name = getattr(function, "__qualname__", "<")
    return "<" not in name and getattr(function, "__module__", "").startswith(OWN)
