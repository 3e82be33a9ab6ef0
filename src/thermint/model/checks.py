"""Refuse models that cannot have an evidence: shapes, values and gradients, each by name."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from thermint.model.evaluation import Evaluation
from thermint.model.model import Model
from thermint.runtime import keys

WRONG = 0.02  # relative difference of a gradient from differences of values


def check_shapes(model: Model) -> None:
    """Refuse functions that do not return what a Model's functions return, by name; nothing is run."""
    theta = jax.eval_shape(model.sample_prior, keys.shape())
    if not (isinstance(theta, jax.ShapeDtypeStruct) and theta.ndim == 1 and jnp.issubdtype(theta.dtype, jnp.floating)):
        raise TypeError(f"sample_prior must return one flat vector of floats, not {theta}. Ravel the draw.")
    theta = jax.ShapeDtypeStruct(theta.shape, jnp.float64)
    d = theta.size
    for name in ("log_likelihood", "log_prior"):
        value = jax.eval_shape(getattr(model, name), theta)
        if getattr(value, "shape", None) != ():
            raise TypeError(
                f"{name} must return a scalar, but returned {value} for theta of shape ({d},). "
                "Did you forget to sum over the observations?"
            )
        if value.dtype != jnp.float64:
            raise TypeError(
                f"{name} returns {value.dtype} instead of float64. Do not cast: thermint passes a float64 theta."
            )
    if model.metric:
        parts = jax.eval_shape(model.metric, theta)
        if [getattr(part, "shape", None) for part in jax.tree.leaves(parts)] != [(d, d), (d, d)]:
            raise TypeError(f"metric must return (fisher[{d}, {d}], prior_curvature[{d}, {d}]), but returned {parts}.")
    if model.with_fisher:
        if not model.metric:
            raise ValueError("with_fisher is of use only beside a metric; give the model that too.")
        parts = jax.eval_shape(model.with_fisher, theta)
        if [getattr(part, "shape", None) for part in jax.tree.leaves(parts)] != [(), (d, d)]:
            raise TypeError(f"with_fisher must return (log_likelihood, fisher[{d}, {d}]), but returned {parts}.")
    if model.names is not None and len(model.names) != d:
        raise ValueError(f"names has {len(model.names)} entries for a theta of {d}.")


def check_values(model: Model, start: Evaluation) -> None:
    """Refuse a model whose values at prior draws are NaN or +inf, or whose likelihood is zero at all of them.

    Args:
        model: for the names of its parameters.
        start: evaluations at draws from the prior, with any leading axes.
    """
    flat = jax.tree.map(lambda a: np.asarray(a).reshape(-1, *a.shape[start.log_prior.ndim :]), start)
    supported = flat.log_likelihood > -np.inf
    checks = {
        "sample_prior": (~np.isfinite(flat.position), "It must return finite values."),
        "log_prior": (
            ~np.isfinite(flat.log_prior),
            "It must be finite wherever sample_prior can go; do the two describe the same distribution?",
        ),
        "log_likelihood": (
            np.isnan(flat.log_likelihood) | (flat.log_likelihood == np.inf),
            "Return -inf where the likelihood is zero, and guard divisions, logarithms and overflow elsewhere.",
        ),
        "the gradient of log_prior": (~np.isfinite(flat.grad_log_prior), _GRADIENT_HINT),
        "the gradient of log_likelihood": (
            ~np.isfinite(flat.grad_log_likelihood) & supported[:, None],
            _GRADIENT_HINT,
        ),
    }
    for name, (bad, remedy) in checks.items():
        bad = bad.reshape(len(bad), -1).any(axis=1)
        if bad.any():
            where = ", ".join(
                f"{n} = {v:.6g}" for n, v in zip(model.parameter_names, flat.position[bad][0], strict=True)
            )
            raise ValueError(
                f"{name} is NaN or infinite at {bad.sum()} of {len(bad)} draws from the prior, for example at "
                f"{where} (on the unconstrained scale). {remedy}"
            )
    if not supported.any():
        raise ValueError(
            f"log_likelihood is -inf at all {len(supported)} draws from the prior: the prior hardly ever produces "
            "parameters that can explain the data. Check the likelihood's support, or use a narrower prior."
        )


def shifts(shape: tuple[int, ...], deviation: np.ndarray) -> np.ndarray:
    """Make small steps for `check_gradients` from positions of this shape: each in one coordinate, by turns."""
    d = shape[-1]
    turn = np.arange(np.prod(shape[:-1], dtype=int)) % d
    return (1e-3 * deviation * np.eye(d)[turn]).reshape(shape)


def check_gradients(model: Model, start: Evaluation, shift: np.ndarray, ahead: Evaluation, behind: Evaluation) -> None:
    """Refuse a model whose gradients are not what differences of its values say, by name.

    Where gradients are wrong, control variates shift the answer by less than its plain error, and a reference fitted
    to wrong scores looks well fitted: nothing else would show it.

    Args:
        model: for the names of its parameters.
        start: evaluations at draws from the prior, [..., d].
        shift: small steps, each in one coordinate.
        ahead: evaluations at the draws plus these.
        behind: at the draws minus these.
    """
    coordinate = np.argmax(np.abs(shift), axis=-1)
    for name in ("log_likelihood", "log_prior"):
        value, gradient = np.asarray(getattr(start, name)), np.asarray(getattr(start, f"grad_{name}"))
        with np.errstate(invalid="ignore", over="ignore"):  # infinite values, which do not count
            seen = (np.asarray(getattr(ahead, name)) - np.asarray(getattr(behind, name))) / 2
            said = np.sum(gradient * shift, axis=-1)
            apart = np.abs(seen - said) / (np.abs(seen) + np.abs(said) + 1e-9 * np.abs(value) + 1e-300)
        for i, parameter in enumerate(model.parameter_names):
            own = apart[(coordinate == i) & np.isfinite(apart)]
            # Right gradients agree nearly everywhere, wrong ones hardly anywhere.
            if len(own) and np.quantile(own, 0.25) > WRONG:
                clearest = np.where((coordinate == i) & (apart > WRONG), np.abs(said), -1.0)
                where = np.unravel_index(np.argmax(clearest), apart.shape)
                length = shift[where][i]
                raise ValueError(
                    f"the gradient of {name} with respect to {parameter!r} is {said[where] / length:.6g} at "
                    f"{parameter} = {start.position[where][i]:.6g} (on the unconstrained scale), but differences of "
                    f"its values give {seen[where] / length:.6g}. Wrong gradients shift the answer. Correct the "
                    "custom_jvp, the custom_vjp or the gradient that you gave, or leave it out."
                )


_GRADIENT_HINT = (
    "A finite value with a gradient that is not usually comes from jnp.where around an undefined branch: "
    "make the argument safe *inside* the branch as well."
)
