"""Models of many data: arrays that functions close over become arguments, and batches of points fit in memory.

What a function closes over is a constant of every program that it is part of. XLA copies constants, folds them and
writes them to the compilation cache: a million rows make that slow, and fill disk and memory. As arguments they are
there once, and models that differ in their data only share their programs.
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

from thermint.model import Model

LARGE = 2**20  # bytes of what a function closes over, from which it becomes an argument
AT_ONCE = 2**28  # bytes that intermediate results of one batch may take
LIVE = 4  # results as large as the largest that are needed at once, gradient included: measured 3 for logistic models


def sized(model: Model) -> Model:
    """Make a model ready for data of any size; small ones stay as they are."""
    theta = jax.ShapeDtypeStruct((model.dimension,), jnp.float64)
    functions = {name: getattr(model, name) for name in ("log_likelihood", "metric", "with_fisher")}
    known = {name: f for name, f in functions.items() if f is not None and not isinstance(f, Partial)}
    lifted = {name: _lifted(function, theta) for name, function in known.items()}
    changed: dict[str, Any] = {name: made for name, (made, _) in lifted.items() if made is not known[name]}
    largest = max((size for _, size in lifted.values()), default=0)
    batch = model.batch or max(1, AT_ONCE // max(LIVE * largest, 1))
    return replace(model, **changed, batch=batch) if changed or batch < 2**12 else model


@lru_cache(maxsize=16)  # the same function again must give the same, or its programs would be compiled again
def _lifted(function: Callable[[Array], Any], theta: jax.ShapeDtypeStruct) -> tuple[Callable[[Array], Any], int]:
    """Turn what a function closes over into arguments, if it is large; and return the bytes of its largest result."""
    closed, shape = jax.make_jaxpr(function, return_shape=True)(theta)
    largest = max(_sizes(closed.jaxpr), default=0)
    if sum(np.asarray(c).nbytes for c in closed.consts) < LARGE:
        return function, largest
    tree = jax.tree.structure(shape)

    def with_arguments(consts: list[Array], theta: Array) -> Any:
        return jax.tree.unflatten(tree, jaxpr_as_fun(ClosedJaxpr(closed.jaxpr, consts))(theta))

    return Partial(with_arguments, [jnp.asarray(c) for c in closed.consts]), largest


def _sizes(jaxpr: Jaxpr) -> Iterator[int]:
    """Return the bytes of every result in a program."""
    for equation in jaxpr.eqns:
        for variable in equation.outvars:
            shape = getattr(variable.aval, "shape", ())
            yield int(np.prod(shape, dtype=float)) * getattr(getattr(variable.aval, "dtype", None), "itemsize", 8)
        for parameter in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda p: hasattr(p, "eqns")):
            inner: Any = getattr(parameter, "jaxpr", parameter)
            if hasattr(inner, "eqns"):
                yield from _sizes(inner)


def map_points(function: Callable[..., Any], batch: int | None, points: int) -> Callable[..., Any]:
    """Map over the first axis of all arguments, ``points`` of them, in batches of so many at a time."""
    if batch is None or points <= batch:
        return jax.vmap(function)
    return lambda *arguments: jax.lax.map(lambda one: function(*one), arguments, batch_size=batch)
