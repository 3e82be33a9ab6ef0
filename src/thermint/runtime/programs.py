"""Compiled programs that outlive their process.

JAX keeps compiled programs on disk too, but it finds them by what tracing gives, and to trace the sampler takes longer
than to run it. Here a program is found by what it is made of: thermint's source, the versions and options of JAX, the
kind of processor, the shapes of the arguments, and what each function of the model computes, constants included. Only
the model's own few functions are traced for that, and nothing is lowered.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import platform
import re
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import cache, lru_cache, partial, wraps
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import serialize_executable
from jax.stages import Compiled
from jax.tree_util import Partial

from thermint.model.closure_constants import work
from thermint.model.model import Model
from thermint.runtime import keys
from thermint.runtime.computes import UnknownError, digest, stable
from thermint.runtime.devices import default_device
from thermint.runtime.setup import cache_folder, compiler_options, cores

R = TypeVar("R")

OWN = "thermint."
BRIEF = 1e8  # numbers that a program computes; beyond it, to optimise takes less time than it saves
USUAL = 25_000  # evaluations, of the scout and of the default call
CALLS = re.compile(r'custom_call_target="([^"]*)"')  # of a compiled program, to other code
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
    path = _path(function, fixed, args, kwargs, here)
    if path is not None and path.exists():
        with suppress(Exception):  # a file that cannot be used is as good as none
            return Program(_loaded(path, jax.tree.structure((args, kwargs)), here), made_here=False)
    before = len(_LOADED_BY_JAX)
    elsewhere = nullcontext() if here == default_device() else jax.default_device(here)
    with elsewhere, nullcontext() if path is None else _unseen_by_jax():
        compiled = program().lower(*args, **kwargs, **fixed).compile()
    made_here = len(_LOADED_BY_JAX) == before  # else what is written would lack its code
    if path is not None and made_here:
        with suppress(Exception):  # a full disk, a version of JAX that cannot write programs
            _write(path, compiled)
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


@contextmanager
def _unseen_by_jax() -> Iterator[None]:
    """Keep a program out of JAX's own cache: what JAX has loaded from there cannot be written to a file of ours."""
    name = "jax_persistent_cache_min_compile_time_secs"
    before = getattr(jax.config, name)
    jax.config.update(name, float("inf"))
    try:
        yield
    finally:
        jax.config.update(name, before)


def _loaded(path: Path, tree: Any, here: jax.Device) -> Compiled:
    """Load a compiled program, for arguments of that structure."""
    content, out_tree, lapack = pickle.loads(path.read_bytes())
    if lapack:
        _start_lapack()
    return _on(here, content, tree, out_tree)


def _write(path: Path, compiled: Compiled) -> None:
    """Write a compiled program, in one step."""
    calls = set(CALLS.findall(compiled.as_text() or ""))
    lapack = {name for name in calls if name.startswith("lapack")}
    if calls - lapack:
        return  # to code that may not be there in another process
    content, _, out_tree = serialize_executable.serialize(compiled)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(f".{os.getpid()}")
    aside.write_bytes(pickle.dumps((content, out_tree, bool(lapack))))
    aside.replace(path)


@cache
def _start_lapack() -> None:
    """Have JAX look up LAPACK's functions, which it does when it lowers a call to one; else programs would crash."""
    jax.jit(jnp.linalg.cholesky).lower(jax.ShapeDtypeStruct((1, 1), float))


def cheap_to_run(model: Model, evaluations: int = USUAL) -> bool:
    """Say whether so many evaluations of a model take less time than to optimise the program that makes them."""
    function: Any = model.log_likelihood
    if isinstance(function, Partial):
        known = next((argument for argument in function.args if isinstance(argument, Model)), None)
        if known is not None:
            return cheap_to_run(known, evaluations)
        if function.args:
            return False  # it is bound to much data
        function = function.func
    d = model.dimension
    return evaluations * (_work(function, d) + 10 * d**2) < BRIEF  # the kernel's own work, too


@lru_cache(maxsize=64)
def _work(function: Callable[..., Any], dimension: int) -> float:
    return work(function, jax.ShapeDtypeStruct((dimension,), jnp.float64))


def _path(
    function: Callable[..., Any], fixed: dict[str, Any], args: tuple, kwargs: dict[str, Any], here: jax.Device
) -> Path | None:
    """Name the file of a program; None where it cannot be kept."""
    folder = cache_folder()
    if folder is None or jax.process_count() > 1:
        return None
    try:
        leaves, tree = jax.tree.flatten((args, kwargs), is_leaf=lambda node: isinstance(node, Model))
        parts = [_setup(), _name(function), *(f"{key}={_name(value)}" for key, value in sorted(fixed.items()))]
        parts += [stable(str(tree)), *(_of_argument(leaf, here) for leaf in leaves), here.platform, here.device_kind]
        where = [_kind(leaf, here)[-1] for leaf in jax.tree.leaves((args, kwargs))]  # the data of a model, too
        parts += [stable(str(place)) for place in where]
    except UnknownError:
        return None
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return folder / f"{function.__name__}-{digest[:40]}"


def _name(value: Any) -> str:
    """Describe something that is part of a program, the same in every process."""
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if _is_own(value):
        return f"{value.__module__}.{value.__qualname__}"
    raise UnknownError


def _is_own(function: Any) -> bool:
    """Say whether a function is one of thermint's, whose source is all there is to it."""
    name = getattr(function, "__qualname__", "<")
    return "<" not in name and getattr(function, "__module__", "").startswith(OWN)


def _of_argument(leaf: Any, here: jax.Device) -> str:
    return _of_model(leaf, here) if isinstance(leaf, Model) else stable(str(_kind(leaf, here)))


# How programs use the functions of a model.
ROLES: dict[str, Callable[..., Any]] = {
    "log_likelihood": jax.value_and_grad,
    "log_prior": jax.value_and_grad,
    "sample_prior": lambda f: f,
    "metric": lambda f: f,
    "with_fisher": partial(jax.value_and_grad, has_aux=True),
    "constrain": lambda f: f,
}


def _of_model(model: Model, here: jax.Device) -> str:
    """Describe all that programs take from a model: what its functions compute, and its options."""
    functions = {role: getattr(model, role) for role in ROLES}
    known = [_of_function(f, role, model, here) for role, f in functions.items() if f is not None]
    return f"{known} {model.names} {model.differentiable} {model.batch} {model.one_device}"


def _of_function(function: Callable[..., Any], role: str, model: Model, here: jax.Device) -> str:
    """Describe what a function computes, in the way in which programs use it."""
    if isinstance(function, Partial) and _is_own(function.func) and not function.keywords:
        bound, tree = jax.tree.flatten(function.args, is_leaf=lambda node: isinstance(node, Model))
        return f"{role} {_name(function.func)} {stable(str(tree))} {[_of_argument(leaf, here) for leaf in bound]}"
    bound_function = function if isinstance(function, Partial) else Partial(function)
    leaves, tree = jax.tree.flatten(bound_function)
    shapes = [jax.ShapeDtypeStruct(np.shape(leaf), leaf.dtype) for leaf in leaves]
    theta = jax.ShapeDtypeStruct((model.dimension,), jnp.float64)
    plain = role == "log_likelihood" and not model.differentiable
    return f"{role} {_computed(tree, tuple(shapes), keys.shape() if role == 'sample_prior' else theta, role, plain)}"


@lru_cache(maxsize=64)
def _computed(
    tree: Any, shapes: tuple[jax.ShapeDtypeStruct, ...], argument: jax.ShapeDtypeStruct, role: str, plain: bool
) -> str:
    """Return a digest of what a function of that structure computes."""
    use = (lambda f: f) if plain else ROLES[role]
    # For several points at once: a function may have a rule of its own for that.
    several = jax.ShapeDtypeStruct((2, *argument.shape), argument.dtype)
    traced = jax.jit(lambda f, x: jax.vmap(use(f))(x)).trace(jax.tree.unflatten(tree, shapes), several)
    return digest(traced)


def _setup() -> str:
    """Describe what programs depend on beside their arguments."""
    config = {name: value for name, value in jax.config.values.items() if not re.search("cache|dir|log", name)}
    backend = jax.devices()[0].client
    versions = jax.__version__, backend.platform, backend.platform_version, jax.device_count()
    return stable(f"{_source()} {_processor()} {cores()} {versions} {os.environ.get('XLA_FLAGS')} {config}")


@cache
def _source() -> str:
    """Return a digest of thermint's own source."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


@cache
def _processor() -> str:
    """Describe the processor: a program for one may not run on another, and clusters share home folders."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    features = sorted({line for line in lines if re.match("flags|Features|model", line)})
    return f"{platform.machine()} {platform.processor()} {features}"
