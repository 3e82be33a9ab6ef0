"""Models of many data: arrays that functions close over become arguments, and batches of points fit in memory.

What a function closes over is a constant of every program that it is part of. XLA copies constants, folds them and
writes them to the compilation cache: a million rows make that slow, and fill disk and memory. As arguments they are
there once, and models that differ in their data only share their programs.

Models that call LAPACK are kept to one CPU device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import ClosedJaxpr, Jaxpr, jaxpr_as_fun
from jax.tree_util import Partial

from thermint.model.model import Model

LARGE = 2**20  # bytes of what a function closes over, from which it becomes an argument: compiled programs stay small
# Bytes of the largest array of a program. About four of that size are needed at once: measured 3 for logistic models,
# gradient included. They take a quarter of a gigabyte.
LARGEST_ARRAY = 2**26
# Batched, these run on the threads that wait for them (JAX 0.10): on two CPU devices at once, they wait forever.
LAPACK = {"cholesky", "triangular_solve", "lu", "eigh", "eig", "svd", "geqrf", "geqp3", "householder_product", "schur"}
BRIEF = 1e8  # numbers that a program computes; beyond it, to optimise takes less time than it saves
USUAL = 25_000  # evaluations, of the scout and of the default call


def lift_constants(model: Model) -> Model:
    """Make a model ready for data of any size: lift large constants, and evaluate points in batches that fit."""
    theta = jax.ShapeDtypeStruct((model.dimension,), jnp.float64)
    functions = {name: getattr(model, name) for name in ("log_likelihood", "metric", "with_fisher")}
    known = {name: f for name, f in functions.items() if f is not None and not isinstance(f, Partial)}
    lifted = {name: _lift(function, theta) for name, function in known.items()}
    changed: dict[str, Any] = {name: made for name, (made, *_) in lifted.items() if made is not known[name]}
    largest = max((size for _, size, _ in lifted.values()), default=0)
    if largest and not model.batch:
        changed["batch"] = max(1, LARGEST_ARRAY // largest)
    if any(calls for *_, calls in lifted.values()):
        changed["one_device"] = True
    return replace(model, **changed) if changed else model


@lru_cache(maxsize=16)  # the same function again must give the same, or its programs would be compiled again
def _lift(function: Callable[[Array], Any], theta: jax.ShapeDtypeStruct) -> tuple[Callable[[Array], Any], int, bool]:
    """Turn what a function closes over into arguments, if it is large.

    Returns:
        The function, the bytes of the largest result in it, and whether it calls LAPACK.
    """
    closed, shape = jax.make_jaxpr(function, return_shape=True)(theta)
    equations = list(_equations(closed.jaxpr))
    largest = max(map(_size, equations), default=0)
    lapack = any(equation.primitive.name in LAPACK for equation in equations)
    if sum(np.asarray(c).nbytes for c in closed.consts) < LARGE:
        return function, largest, lapack
    tree = jax.tree.structure(shape)

    def with_arguments(consts: list[Array], theta: Array) -> Any:
        return jax.tree.unflatten(tree, jaxpr_as_fun(ClosedJaxpr(closed.jaxpr, consts))(theta))

    return Partial(with_arguments, [jnp.asarray(c) for c in closed.consts]), largest, lapack


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
    """Count the numbers that a function computes, the loops in it aside; infinite if it has any."""
    equations = list(_equations(jax.make_jaxpr(function)(jax.ShapeDtypeStruct((dimension,), jnp.float64)).jaxpr))
    if any(equation.primitive.name in ("while", "scan", "pure_callback") for equation in equations):
        return np.inf
    return sum(map(_size, equations)) / 8


def _size(equation: Any) -> int:
    """Return the bytes of the largest result of a step."""
    shapes = (getattr(variable.aval, "shape", ()) for variable in equation.outvars)
    return max((8 * int(np.prod(shape, dtype=float)) for shape in shapes), default=0)


def _equations(jaxpr: Jaxpr) -> Iterator[Any]:
    """Return the steps of a program, and those of programs inside it."""
    for equation in jaxpr.eqns:
        yield equation
        for parameter in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda p: hasattr(p, "eqns")):
            inner: Any = getattr(parameter, "jaxpr", parameter)
            if hasattr(inner, "eqns"):
                yield from _equations(inner)


def map_points(function: Callable[..., Any], batch: int | None, points: int) -> Callable[..., Any]:
    """Map over the first axis of all arguments, ``points`` of them, in batches of so many at a time."""
    if batch is None or points <= batch:
        return jax.vmap(function)
    return lambda *arguments: jax.lax.map(lambda one: function(*one), arguments, batch_size=batch)
