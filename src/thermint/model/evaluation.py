"""All that is known of a model at one point, and the arithmetic of tempering on it."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from thermint.model.model import Model
from thermint.runtime.store import storable

# Log likelihoods below this count as zero: their squares, and sums of any number of these, must not overflow.
LOWEST = -float(np.finfo(float).max ** (1 / 3))


@storable
class Evaluation(NamedTuple):
    """Everything the samplers and estimators need to know of one point (or, with leading axes, of many).

    It is computed once per proposal. Tempering, swapping and control variates are arithmetic on it.
    """

    position: Array  # [d]
    log_likelihood: Array  # []
    log_prior: Array  # []
    grad_log_likelihood: Array  # [d]
    grad_log_prior: Array  # [d]
    fisher: Array | None = None  # [d, d]
    prior_curvature: Array | None = None  # [d, d]


def evaluate(model: Model, position: Array) -> Evaluation:
    """Values, both gradients and the parts of the metric at one position, in one pass."""
    fisher, prior_curvature = model.metric(position) if model.metric else (None, None)
    if not model.differentiable:
        log_likelihood, grad_log_likelihood = model.log_likelihood(position), jnp.zeros_like(position)
    elif model.metric and model.with_fisher:
        # In place of the metric's, which XLA drops.
        (log_likelihood, fisher), grad_log_likelihood = jax.value_and_grad(model.with_fisher, has_aux=True)(position)
    else:
        log_likelihood, grad_log_likelihood = jax.value_and_grad(model.log_likelihood)(position)
    # Wild proposals, such as a scale of e^-200, are as good as impossible.
    log_likelihood = jnp.where(log_likelihood < LOWEST, -jnp.inf, log_likelihood)
    log_prior, grad_log_prior = jax.value_and_grad(model.log_prior)(position)
    return Evaluation(position, log_likelihood, log_prior, grad_log_likelihood, grad_log_prior, fisher, prior_curvature)


def tempered(state: Evaluation, t: Array) -> Array:
    """Log density of the power posterior, up to its constant: log prior + t * log likelihood (0 * -inf is 0)."""
    return state.log_prior + jnp.where(t > 0, t * state.log_likelihood, 0.0)


def score(state: Evaluation, t: Array | float) -> Array:
    """Gradient of `tempered`, equal to -2 z of the paper (Eqn. "Z path")."""
    return state.grad_log_prior + t * state.grad_log_likelihood


def usable(state: Evaluation) -> Array:
    """Say whether a state may be visited: values and gradients are all finite."""
    isfinite: Any = jnp.isfinite if isinstance(state.position, Array) else np.isfinite
    gradients = isfinite(state.grad_log_likelihood) & isfinite(state.grad_log_prior)
    return isfinite(state.log_likelihood) & isfinite(state.log_prior) & gradients.all(axis=-1)


def impossible(state: Evaluation) -> Array:
    """Say whether the prior or the likelihood is zero."""
    return jnp.minimum(state.log_likelihood, state.log_prior) == -jnp.inf


def choose(condition: Array, new: Any, old: Any) -> Any:
    """Take ``new`` where the scalar condition holds, leaf by leaf."""
    a, unpack = ravel_pytree(new)
    return unpack(jnp.where(condition, a, ravel_pytree(old)[0]))
