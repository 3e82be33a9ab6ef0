"""Programs compiled with thermint's options, and programs that are compiled once and run on any device."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import cache, wraps
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from jax.experimental import serialize_executable
from jax.sharding import SingleDeviceSharding
from jax.stages import Compiled

from thermint.runtime.setup import compiler_options

R = TypeVar("R")

# In memory; the oldest is dropped. Measured: 290 memory maps for a program on 8 devices, where Linux allows a process
# 65 530 and XLA crashes beyond. A run has two or three programs.
MAX_PROGRAMS = 64


class Program(NamedTuple):
    """A program compiled for one device."""

    run: Compiled
    compiled_here: bool  # not read from JAX's cache


# By function, signature and device.
_PROGRAMS: dict[Hashable, dict[jax.Device, Program]] = {}


def forget() -> None:
    """Drop the programs that are kept here, as `jax.clear_caches` does with JAX's own."""
    _PROGRAMS.clear()


def jit(*static: str, level: int = 1) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Make a decorator like `jax.jit`, for programs that take longer to compile than to run.

    A call may name a ``device``, where all arguments that are JAX arrays must be. Such calls share one program between
    devices of a kind, so that it is compiled once and rounds alike on all of them.

    Args:
        static: names of the arguments that are part of the program; they are given by name.
        level: of optimisation: 1 compiles in a third of the time that XLA's default takes; 0 hardly optimises, for
            programs that run for a moment. A static argument named "level" replaces it for one call.
    """

    def decorate(function: Callable[..., R]) -> Callable[..., R]:
        @cache
        def jitted(level: int) -> Any:
            return jax.jit(function, static_argnames=static, compiler_options=compiler_options(level))

        @wraps(function)
        def call(*args: Any, device: jax.Device | None = None, **kwargs: Any) -> R:
            program = jitted(kwargs.get("level", level))
            if device is None:
                return program(*args, **kwargs)
            fixed = {name: kwargs.pop(name) for name in static if name in kwargs}
            leaves, tree = jax.tree.flatten((args, kwargs))
            kinds = tuple(map(jax.typeof, leaves))
            signature = program, tree, kinds, tuple(fixed.items()), device.device_kind
            if signature not in _PROGRAMS and len(_PROGRAMS) >= MAX_PROGRAMS:
                del _PROGRAMS[next(iter(_PROGRAMS))]
            same = _PROGRAMS.setdefault(signature, {})
            if device not in same:
                same[device] = _copied(same, device) or _compiled(program, args, kwargs, fixed, device)
            return same[device].run(*args, **kwargs)

        return call

    return decorate


_CACHE_HITS: list[str] = []  # an entry for each program that JAX has read from its cache


def _listen(event: str, **_: Any) -> None:
    if event == "/jax/compilation_cache/cache_hits":
        _CACHE_HITS.append(event)


jax.monitoring.register_event_listener(_listen)


def _compiled(program: Any, args: tuple, kwargs: dict[str, Any], fixed: dict[str, Any], device: jax.Device) -> Program:
    """Compile a program for a device, or have JAX read it from its cache."""

    def there(leaf: Any) -> jax.ShapeDtypeStruct:
        # jax.default_device would do, but then JAX would trace again for every device.
        kind = jax.typeof(leaf)
        sharding = SingleDeviceSharding(device)
        return jax.ShapeDtypeStruct(kind.shape, kind.dtype, sharding=sharding, weak_type=kind.weak_type)

    hits = len(_CACHE_HITS)
    args, kwargs = jax.tree.map(there, (args, kwargs))
    run = program.lower(*args, **kwargs, **fixed).compile()
    return Program(run, compiled_here=len(_CACHE_HITS) == hits)


def _copied(programs: dict[jax.Device, Program], device: jax.Device) -> Program | None:
    """Copy a program from another device, if one was compiled in this process.

    What JAX read from its cache cannot be copied: its machine code is not in what `serialize` returns (JAX 0.10, 0.12).
    """
    for program in programs.values():
        if program.compiled_here:
            with suppress(Exception):  # the program calls Python
                content, in_tree, out_tree = serialize_executable.serialize(program.run)
                executable, args_info, no_kwargs = _Unpickler(content, device).load()
                args_info = in_tree.unflatten(args_info)
                run = Compiled(executable.load(), [], args_info, out_tree, no_kwargs=no_kwargs)
                return Program(run, compiled_here=False)
    return None


class _Unpickler(pickle.Unpickler):
    """Load a serialized program on another device than it was compiled for.

    `serialize_executable.deserialize_and_load` cannot: it raises KeyError (JAX 0.10, 0.12).
    """

    def __init__(self, content: bytes, device: jax.Device) -> None:
        super().__init__(io.BytesIO(content))
        self._device = device

    def persistent_load(self, named: tuple) -> Any:
        from jax._src.compiler import get_compile_options
        from jax._src.lib import xla_client

        kind, *parts = named
        if kind != "exec":
            return self._device if kind == "device" else self._device.client
        assignment = np.array([[self._device.id]])
        return self._device.client.deserialize_executable(
            *parts,
            executable_devices=xla_client.DeviceList((self._device,)),
            compile_options=get_compile_options(num_replicas=1, num_partitions=1, device_assignment=assignment),
        )
