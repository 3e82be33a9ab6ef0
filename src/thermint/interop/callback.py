"""Likelihoods in plain NumPy, or in whatever else Python can call."""

import itertools
import logging
import math
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import Distribution

from thermint.model.model import Model

Values = dict[str, np.ndarray]
Shapes = dict[str, tuple[int, ...]]
Reader = Callable[[Any, tuple[int, ...]], np.ndarray]  # of what a user's function returned for so many points
STEP = float(np.finfo(float).eps ** (1 / 3))  # of central differences: truncation and rounding errors balance there
SCALAR = jax.ShapeDtypeStruct((), jnp.float64)


class FailedError(RuntimeError):
    """A user's function failed inside a compiled program; see `reraise_user_error`."""


def from_numpy(
    prior: Mapping[str, Distribution],
    log_likelihood: Callable[[Values], Any],
    *,
    gradient: Callable[[Values], Mapping[str, Any]] | None = None,
    finite_differences: bool | float = False,
    vectorised: bool = False,
) -> Model:
    """Build a model whose likelihood is a Python function of NumPy arrays: a simulator, a compiled library, a service.

    Without a gradient there are no control variates (degree 0), and chains walk at random (on the path from a fitted
    reference, along the gradient of that), so that the error is larger for as many evaluations; the result says so.

    Args:
        prior: ``{"name": NumPyro distribution}``, as for `Model.from_prior`.
        log_likelihood: ``{"name": value} -> float``, a function of the constrained values. It is called from inside a
            compiled program: it must not call JAX, which may wait for that program forever.
        gradient: ``{"name": value} -> {"name": derivative}``, of the log likelihood with respect to those values.
        finite_differences: make the gradient by central differences, on the real line that the values are mapped to:
            two more evaluations for each parameter. A number is the step to take instead of 6e-6, relative to
            ``max(1, |theta|)``; a simulator with tolerances of its own needs a longer one.
        vectorised: both functions take all points of a batch at once: they get arrays with one more axis in front, and
            return an array [points], and arrays with that axis.

    Raises:
        ValueError: a prior that `Model.from_prior` refuses, or two kinds of gradients at once.

    Example:
        >>> import numpy as np
        >>> import numpyro.distributions as dist
        >>> import thermint
        >>> y = np.array([1.2, 0.8, 1.9])
        >>> model = thermint.from_numpy(
        ...     {"mean": dist.Normal(0, 10)},
        ...     lambda p: -0.5 * np.sum((y - p["mean"]) ** 2) - 1.5 * np.log(2 * np.pi),
        ...     gradient=lambda p: {"mean": np.sum(y - p["mean"])},
        ... )
        >>> model.differentiable
        True
    """
    if gradient is not None and finite_differences:
        raise ValueError("gradient and finite_differences are both given: leave one out.")
    step = STEP if finite_differences is True else float(finite_differences)
    if not 0 <= step < 1:
        raise ValueError(f"finite_differences = {finite_differences!r}: it must be True, False or a step below 1.")
    if gradient is not None:
        return Model.from_prior(prior, _with_gradient(log_likelihood, gradient, vectorised))
    plain = Model.from_prior(prior, partial(_call, log_likelihood, None, vectorised))
    if finite_differences:
        return replace(plain, log_likelihood=_with_differences(plain.log_likelihood, step))
    return replace(plain, differentiable=False)


def _call(
    log_likelihood: Callable[[Values], Any],
    gradient: Callable[[Values], Any] | None,
    vectorised: bool,
    values: dict[str, Array],
) -> Any:
    """Call Python from a compiled program, once for all that is mapped over: the value, and the gradient if asked."""
    shapes = {name: value.shape for name, value in values.items()}  # of one point: the callback sees a batch

    def call(batch: Mapping[str, Any]) -> Any:
        value = _at_points("log_likelihood", log_likelihood, _read_value, shapes, vectorised, batch)
        if gradient is None:
            return value
        columns = _at_points("gradient", gradient, partial(_read_gradient, shapes), shapes, vectorised, batch)
        parts = np.split(columns, np.cumsum([math.prod(shape) for shape in shapes.values()])[:-1], axis=-1)
        slopes = {n: part.reshape(*value.shape, *shapes[n]) for n, part in zip(shapes, parts, strict=True)}
        return value, slopes

    like = {name: jax.ShapeDtypeStruct(shape, jnp.float64) for name, shape in shapes.items()}
    result = SCALAR if gradient is None else (SCALAR, like)
    return jax.pure_callback(call, result, values, vmap_method="broadcast_all")


def _with_gradient(
    function: Callable[[Values], Any], gradient: Callable[[Values], Any], vectorised: bool
) -> Callable[[dict[str, Array]], Array]:
    """Make a function that JAX can differentiate; value and gradient come from one call."""

    @jax.custom_jvp
    def log_likelihood(values: dict[str, Array]) -> Array:
        return _call(function, None, vectorised, values)

    @log_likelihood.defjvp
    def _(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
        value, slopes = _call(function, gradient, vectorised, *primals)
        return value, sum((jnp.sum(slopes[name] * tangent) for name, tangent in tangents[0].items()), jnp.zeros(()))

    return log_likelihood


def _with_differences(plain: Callable[[Array], Array], step: float) -> Callable[[Array], Array]:
    """Make a function of theta[d] that JAX can differentiate, by central differences; all points in one call."""

    @jax.custom_jvp
    def log_likelihood(theta: Array) -> Array:
        return plain(theta)

    @log_likelihood.defjvp
    def _(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
        (theta,) = primals
        h = step * jnp.maximum(1.0, jnp.abs(theta))
        points = theta + jnp.concatenate([jnp.zeros((1, theta.size)), jnp.diag(h), -jnp.diag(h)])
        found = jax.vmap(plain)(points)
        value, up, down = found[0], found[1 : 1 + theta.size], found[1 + theta.size :]
        # One-sided where the likelihood is zero on the other side.
        above, below = up > -jnp.inf, down > -jnp.inf
        rise = jnp.where(above, up, value) - jnp.where(below, down, value)
        slope = rise / (h * jnp.maximum(1, above.astype(int) + below))
        return value, slope @ tangents[0]

    return log_likelihood


def _at_points(
    name: str,
    function: Callable[[Values], Any],
    read: Reader,
    shapes: Shapes,
    vectorised: bool,
    batch: Mapping[str, Any],
) -> np.ndarray:
    """Call a user's function at all points of a batch, at once or one by one, and keep its error for the user."""
    arrays = {key: np.array(batch[key], dtype=np.float64) for key in shapes}  # copies, which the user may write to
    key, shape = next(iter(shapes.items()))
    axes = arrays[key].shape[: arrays[key].ndim - len(shape)]
    flat = {key: array.reshape(-1, *shapes[key]) for key, array in arrays.items()}
    number = math.prod(axes)
    points = [flat] if vectorised else [{key: array[i] for key, array in flat.items()} for i in range(number)]
    results = []
    for point in points:
        try:
            # Wild proposals overflow as a matter of course; the sampler judges what comes of it.
            with np.errstate(all="ignore"):
                results.append(read(function(point), (number,) if vectorised else ()))
        except Exception as error:
            where = "a batch" if vectorised else ", ".join(f"{key} = {value}" for key, value in point.items())
            error.add_note(f"This happened in {name}, at {where}.")
            raise FailedError(_record(error)) from error
    found = results[0] if vectorised else np.stack(results)
    return found.reshape(*axes, *found.shape[1:])


def _read_value(result: Any, points: tuple[int, ...]) -> np.ndarray:
    found = np.asarray(result, dtype=np.float64)
    if found.shape != points:
        wanted = f"one number for each of {points[0]} points" if points else "one number"
        raise TypeError(f"log_likelihood must return {wanted}, but returned an array of shape {found.shape}.")
    return found


def _read_gradient(shapes: Shapes, result: Any, points: tuple[int, ...]) -> np.ndarray:
    """Put the derivatives side by side, [..., column]."""
    if not isinstance(result, Mapping) or set(result) != set(shapes):
        got = sorted(result) if isinstance(result, Mapping) else f"a {type(result).__name__}"
        raise TypeError(f"gradient must return a dictionary with the derivatives for {list(shapes)}, not {got}.")
    found = {name: np.asarray(result[name], dtype=np.float64) for name in shapes}
    for name, shape in shapes.items():
        if found[name].shape != points + shape:
            raise TypeError(f"gradient[{name!r}] has shape {found[name].shape} instead of {points + shape}.")
    return np.concatenate([found[name].reshape(*points, -1) for name in shapes], axis=-1)


# JAX turns what is raised inside a program into text. The text says which of these it was.
_failures: deque[tuple[int, Exception]] = deque(maxlen=16)
_numbers = itertools.count()


def _record(error: Exception) -> str:
    number = next(_numbers)
    _failures.append((number, error))
    return f"thermint failure {number}: {type(error).__name__}: {error}"


@contextmanager
def reraise_user_error() -> Iterator[None]:
    """Raise a user's error as it was, instead of what JAX makes of it."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        found = re.search(r"thermint failure (\d+):", str(error))
        original = dict(_failures).get(int(found[1])) if found else None
        if original is None:
            raise
        raise original from None


def _is_other(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], FailedError))


logging.getLogger("jax._src.callback").addFilter(_is_other)  # it prints the stack of what is raised anyway
