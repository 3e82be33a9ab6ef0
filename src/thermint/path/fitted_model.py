"""A model with the same evidence whose path starts close to the posterior, from draws that a user has."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
from jax import Array
from jax.tree_util import Partial

from thermint.model.draws import Draws, scored_draws
from thermint.model.model import Model
from thermint.path.fitting import fit
from thermint.path.mixture import Mixture
from thermint.path.path import Path


def fitted_reference(model: Model, draws: Draws) -> Model:
    """Make a model with the same evidence whose path starts close to the posterior.

    Args:
        model: the model.
        draws: whose last rung, the posterior's, is what the reference is fitted to.

    Returns:
        A model whose "prior" is a mixture fitted to the draws and whose "likelihood" is the rest.

    Example:
        >>> import thermint
        >>> model = thermint.paper.linear.model()
        >>> better = thermint.fitted_reference(model, thermint.sample(model, draws=50, populations=2))
        >>> result = thermint.evidence(better, reference="prior", ladder=5, draws=100)
        >>> abs(result.log_evidence - thermint.paper.linear.log_evidence()) < 0.01
        True
    """
    _, position, score = scored_draws(draws)
    return with_reference(model, fit(position[:, :, -1], score[:, :, -1] if model.differentiable else None))


def with_reference(model: Model, mixture: Mixture) -> Model:
    """Make the model whose prior is the mixture and whose evidence is that of ``model``."""
    return replace(
        model,
        log_likelihood=Partial(_log_likelihood, model, mixture),
        log_prior=Partial(Mixture.log_density, mixture),
        sample_prior=Partial(_draw, mixture),
        metric=Partial(_metric, model, mixture),
        with_fisher=Partial(_with_fisher, model, mixture) if model.with_fisher else None,
        normalised=True,
    )


def _log_likelihood(model: Model, mixture: Mixture, theta: Array) -> Array:
    # Not that of `Path.evaluate`, which computes gradients: programs differentiate it.
    return model.log_likelihood(theta) + model.log_prior(theta) - mixture.log_density(theta)


def _metric(model: Model, mixture: Mixture, theta: Array) -> tuple[Array, Array]:
    state = Path(model, mixture).evaluate(theta)
    assert state.fisher is not None
    assert state.prior_curvature is not None
    return state.fisher, state.prior_curvature


def _with_fisher(model: Model, mixture: Mixture, theta: Array) -> tuple[Array, Array]:
    """Log likelihood and Fisher information of the path from one calculation by the model."""
    assert model.with_fisher is not None
    assert model.metric is not None
    log_likelihood, fisher = model.with_fisher(theta)
    parts = fisher, model.metric(theta)[1]
    known = replace(model, log_likelihood=lambda _: log_likelihood, metric=lambda _: parts, with_fisher=None)
    return _log_likelihood(known, mixture, theta), _metric(known, mixture, theta)[0]


def _draw(mixture: Mixture, key: Array) -> Array:
    choice, normals, scales = jax.random.split(key, 3)
    k = jax.random.categorical(choice, jnp.asarray(mixture.log_weight))
    normal = jax.random.normal(normals, (mixture.mean.shape[1],))
    dof = jnp.where(jnp.isinf(mixture.dof), 1.0, mixture.dof)
    scale = jnp.where(jnp.isinf(mixture.dof), 1.0, jnp.sqrt(dof / jax.random.chisquare(scales, dof)))
    return jnp.asarray(mixture.mean)[k] + scale * (jnp.asarray(mixture.cholesky)[k] @ normal)
