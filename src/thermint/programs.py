"""Compiled programs that outlive their process.

JAX keeps compiled programs on disk too, but it finds them by what tracing gives, and to trace the sampler takes longer
than to run it. Here a program is found by what it is made of: thermint's source, the versions and options of JAX, the
kind of processor, the shapes of the arguments, and what each function of the model computes, as StableHLO, constants
included. Only the model's own few functions are traced for that.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import platform
import re
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, lru_cache, partial, wraps
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import serialize_executable
from jax.sharding import Mesh
from jax.stages import Compiled
from jax.tree_util import Partial

from thermint import keys
from thermint._runtime import cache_folder, compiler_options, cores
from thermint.model import Model
from thermint.sizes import work

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


def jit(*static: str, donate: tuple[str, ...] = (), level: int = 1) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Make a decorator like `jax.jit`, for programs that take longer to compile than to run.

    Programs of thermint's own functions at the top of a module are kept on disk. What such a function needs of a model
    must reach it as an argument.

    Args:
        static: names of the arguments that are part of the program; they are given by name.
        donate: names of the arguments whose memory is used again.
        level: how much it is optimised: 2, as XLA does it, for programs that run long; 1, to compile in a third of that
            time; 0, hardly, for programs that run for a moment. A static argument of that name says so for one call.
    """

    def decorate(function: Callable[..., R]) -> Callable[..., R]:
        @cache
        def plain(level: int) -> Callable[..., R]:
            options = compiler_options(level)
            return jax.jit(function, static_argnames=static, donate_argnames=donate, compiler_options=options)

        if not _is_own(function):
            return wraps(function)(lambda *args, **kwargs: plain(level)(*args, **kwargs))
        programs: dict[Hashable, Callable[..., R]] = {}
        _IN_MEMORY.append(programs)

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> R:
            fixed = {name: kwargs.pop(name) for name in static if name in kwargs}
            leaves, tree = jax.tree.flatten((args, kwargs))
            if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
                return plain(level)(*args, **kwargs, **fixed)
            here = jax.config.jax_default_device, jax.config.jax_enable_x64  # type: ignore[attr-defined]
            signature = tree, tuple(fixed.values()), tuple(map(_kind, leaves)), here
            if signature not in programs:
                worth = fixed.get("level", level)
                while len(programs) >= MOST:
                    del programs[next(iter(programs))]
                programs[signature] = _found_or_made(function, partial(plain, worth), fixed, args, kwargs)
            return programs[signature](*args, **kwargs)

        return call

    return decorate


def _kind(leaf: Any) -> tuple[Hashable, ...]:
    """Return all of an argument that a program depends on; last, where it is, unless that is where all else is."""
    if not isinstance(leaf, jax.Array):
        return np.shape(leaf), np.asarray(leaf).dtype, isinstance(leaf, bool | int | float), None
    elsewhere = leaf.sharding.device_set != {_default_device()}
    return leaf.shape, leaf.dtype, getattr(leaf, "weak_type", False), leaf.sharding if elsewhere else None


def _found_or_made(
    function: Callable[..., R], program: Callable[[], Any], fixed: dict[str, Any], args: tuple, kwargs: dict[str, Any]
) -> Callable[..., R]:
    """Load a program from its file, or compile it and write one."""
    path = _path(function, fixed, args, kwargs)
    tree = jax.tree.structure((args, kwargs))
    if path is not None and path.exists():
        with suppress(Exception):  # a file that cannot be used is as good as none
            return _loaded(path, tree, fixed)
    if path is None:
        return program().lower(*args, **kwargs, **fixed).compile()
    before = len(_LOADED_BY_JAX)
    with _unseen_by_jax():
        compiled = program().lower(*args, **kwargs, **fixed).compile()
    if len(_LOADED_BY_JAX) == before:  # else what is written would lack its code
        with suppress(Exception):  # a full disk, a version of JAX that cannot write programs
            _write(path, compiled)
    return compiled


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


def _loaded(path: Path, tree: Any, fixed: dict[str, Any]) -> Compiled:
    """Load a compiled program, for arguments of that structure."""
    content, out_tree, lapack = pickle.loads(path.read_bytes())
    if lapack:
        _start_lapack()
    mesh = fixed.get("mesh")
    devices = list(mesh.devices.flat) if mesh is not None else [_default_device()]
    return serialize_executable.deserialize_and_load(content, tree, out_tree, execution_devices=devices)


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


def _default_device() -> jax.Device:
    chosen = jax.config.jax_default_device  # type: ignore[attr-defined]
    return chosen if isinstance(chosen, jax.Device) else jax.devices()[0]


def is_brief(model: Model, evaluations: int = USUAL) -> bool:
    """Say whether so many evaluations of a model take less time than to optimise the program that makes them."""
    function: Any = model.log_likelihood
    if isinstance(function, Partial):
        known = next((argument for argument in function.args if isinstance(argument, Model)), None)
        if known is not None:
            return is_brief(known, evaluations)
        if function.args:
            return False  # it is bound to much data
        function = function.func
    d = model.dimension
    return evaluations * (_work(function, d) + 10 * d**2) < BRIEF  # the kernel's own work, too


@lru_cache(maxsize=64)
def _work(function: Callable[..., Any], dimension: int) -> float:
    return work(function, jax.ShapeDtypeStruct((dimension,), jnp.float64))


class UnknownError(Exception):
    """Nothing tells whether another process has the same."""


def _path(function: Callable[..., Any], fixed: dict[str, Any], args: tuple, kwargs: dict[str, Any]) -> Path | None:
    """Name the file of a program; None where it cannot be kept."""
    folder = cache_folder()
    if folder is None or jax.process_count() > 1:
        return None
    try:
        leaves, tree = jax.tree.flatten((args, kwargs), is_leaf=lambda node: isinstance(node, Model))
        parts = [_setup(), _name(function), *(f"{key}={_name(value)}" for key, value in sorted(fixed.items()))]
        parts += [_stable(str(tree)), *map(_of_argument, leaves), str(_default_device())]
        parts += [_stable(str(_kind(leaf)[-1])) for leaf in jax.tree.leaves((args, kwargs))]  # where a model's data are
    except UnknownError:
        return None
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return folder / f"{function.__name__}-{digest[:40]}"


def _name(value: Any) -> str:
    """Describe something that is part of a program, the same in every process."""
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, Mesh):
        return f"{value.axis_names} {[(device.id, device.device_kind) for device in value.devices.flat]}"
    if _is_own(value):
        return f"{value.__module__}.{value.__qualname__}"
    raise UnknownError


def _is_own(function: Any) -> bool:
    """Say whether a function is one of thermint's, whose source is all there is to it."""
    name = getattr(function, "__qualname__", "<")
    return "<" not in name and getattr(function, "__module__", "").startswith(OWN)


def _stable(text: str) -> str:
    """Refuse descriptions that have addresses in them."""
    if re.search(r"\b0x[0-9a-f]{6,}", text):
        raise UnknownError
    return text


def _of_argument(leaf: Any) -> str:
    return _of_model(leaf) if isinstance(leaf, Model) else _stable(str(_kind(leaf)))


# How programs use the functions of a model.
ROLES: dict[str, Callable[..., Any]] = {
    "log_likelihood": jax.value_and_grad,
    "log_prior": jax.value_and_grad,
    "sample_prior": lambda f: f,
    "metric": lambda f: f,
    "with_fisher": partial(jax.value_and_grad, has_aux=True),
    "constrain": lambda f: f,
}


def _of_model(model: Model) -> str:
    """Describe all that programs take from a model: what its functions compute, and its options."""
    functions = {role: getattr(model, role) for role in ROLES}
    known = [_of_function(f, role, model) for role, f in functions.items() if f is not None]
    return f"{known} {model.names} {model.differentiable} {model.batch} {model.one_device}"


def _of_function(function: Callable[..., Any], role: str, model: Model) -> str:
    """Describe what a function computes, in the way in which programs use it."""
    if isinstance(function, Partial) and _is_own(function.func) and not function.keywords:
        bound, tree = jax.tree.flatten(function.args, is_leaf=lambda node: isinstance(node, Model))
        return f"{role} {_name(function.func)} {_stable(str(tree))} {list(map(_of_argument, bound))}"
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
    text = traced.lower().as_text()
    if "callback" in text:
        raise UnknownError
    digest = hashlib.sha256(text.encode())
    for constant in traced.jaxpr.consts:
        digest.update(np.asarray(constant).tobytes())
    return digest.hexdigest()


def _setup() -> str:
    """Describe what programs depend on beside their arguments."""
    config = {name: value for name, value in jax.config.values.items() if not re.search("cache|dir|log", name)}
    backend = jax.devices()[0].client
    versions = jax.__version__, backend.platform, backend.platform_version, jax.device_count()
    return _stable(f"{_source()} {_processor()} {cores()} {versions} {os.environ.get('XLA_FLAGS')} {config}")


@cache
def _source() -> str:
    """Return a digest of thermint's own source."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


@cache
def _processor() -> str:
    """Describe the processor: a program for one may not run on another, and clusters share home folders."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    features = sorted({line for line in lines if re.match("flags|Features|model", line)})
    return f"{platform.machine()} {platform.processor()} {features}"
