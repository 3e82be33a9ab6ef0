"""The model that `fitted_reference` returns: the same evidence, from another start."""

from __future__ import annotations

import dataclasses
import pickle
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial
from mixtures import LEANING, NARROW, ONE_D, POINTS, TWO, TWO_D, VOLUME
from targets import NORMAL, SKEWED, SKEWED_2

import thermint
from thermint import Model
from thermint.model import evaluate
from thermint.paper import linear
from thermint.path.fitted_model import with_reference
from thermint.path.mixture import Mixture, make_mixture

log_density = Mixture.log_density
log_densities = jax.jit(jax.vmap(log_density, (None, 0)))


@pytest.mark.parametrize("name", TWO_D)
def test_the_joint_density_stays(name: str) -> None:
    path = with_reference(NORMAL.model, TWO_D[name])
    theta = jnp.asarray(np.random.default_rng(6).normal(0, 3, (20, 2)))

    @partial(jax.jit, static_argnums=1)
    def joint(theta: jax.Array, model: Model) -> jax.Array:
        return jax.vmap(lambda x: model.log_likelihood(x) + model.log_prior(x))(theta)

    np.testing.assert_allclose(joint(theta, path), joint(theta, NORMAL.model), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(jax.vmap(path.log_prior)(theta), log_densities(TWO_D[name], theta), rtol=1e-12)
    assert path.normalised


@pytest.mark.parametrize("name", ONE_D)
def test_the_evidence_stays(name: str) -> None:
    path = with_reference(SKEWED.model, ONE_D[name])
    inside = np.abs(POINTS) < 30  # beyond, the rate or its inverse is e^30
    theta = POINTS[inside, None]
    log_joint = jax.jit(jax.vmap(lambda x: path.log_likelihood(x) + path.log_prior(x)))(theta)
    assert np.log(np.exp(log_joint) @ VOLUME[inside]) == pytest.approx(SKEWED.log_evidence, abs=1e-6)


def test_the_evidence_is_the_mean_likelihood_under_the_reference() -> None:
    # This needs draws and density to be of the same reference.
    mixture = make_mixture(np.ones(1), SKEWED_2.mean(1.0)[None], 1.2 * SKEWED_2.covariance(1.0)[None], 5)
    path = with_reference(SKEWED_2.model, mixture)
    x = jax.jit(jax.vmap(path.sample_prior))(jax.random.split(jax.random.key(7), 20_000))
    ratio = np.exp(np.asarray(jax.jit(jax.vmap(path.log_likelihood))(x)) - SKEWED_2.log_evidence)
    error = ratio.std() / np.sqrt(len(ratio))
    assert error < 0.01
    assert abs(ratio.mean() - 1) < 4 * error


def test_the_metric_goes_from_the_references_to_the_models() -> None:
    path = with_reference(SKEWED_2.model, TWO_D["normal"])
    theta = jnp.array([0.3, -0.8])
    assert path.metric is not None
    fisher, curvature = jax.jit(path.metric)(theta)
    np.testing.assert_allclose(curvature, -jax.jit(jax.hessian(path.log_prior))(theta), rtol=1e-10, atol=1e-12)
    model = SKEWED_2.model
    joint = jax.jit(jax.hessian(lambda x: model.log_likelihood(x) + model.log_prior(x)))(theta)
    np.testing.assert_allclose(fisher + curvature, -joint, rtol=1e-10, atol=1e-12)


def test_one_calculation_of_likelihood_and_fisher_serves_the_path_too() -> None:
    model = SKEWED_2.model
    assert model.metric is not None

    def with_fisher(theta: jax.Array) -> tuple[jax.Array, jax.Array]:
        assert model.metric is not None
        return model.log_likelihood(theta), model.metric(theta)[0]

    theta = jnp.array([0.3, -0.8])
    plain = evaluate(with_reference(model, TWO_D["mixture"]), theta)
    joint = evaluate(with_reference(dataclasses.replace(model, with_fisher=with_fisher), TWO_D["mixture"]), theta)
    for one, two in zip(jax.tree.leaves(joint), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-13)


def test_without_a_metric_of_the_model_the_references_serves_all_rungs() -> None:
    plain = Model(NORMAL.model.log_likelihood, NORMAL.model.log_prior, NORMAL.model.sample_prior)
    path = with_reference(plain, TWO_D["mixture"])
    assert path.metric is not None
    for mean, covariance in zip(TWO, (NARROW, LEANING), strict=True):  # each mode has its own
        fisher, curvature = path.metric(jnp.asarray(mean) + 0.1)
        np.testing.assert_array_equal(fisher, 0.0)
        np.testing.assert_allclose(curvature, np.linalg.inv(covariance), rtol=1e-8, atol=1e-8)
    # Between them it is what each is responsible for.
    where = jnp.array([-1.7, -1.7])
    share = jax.nn.softmax(TWO_D["mixture"].components_at(where)[0])
    assert 0.01 < share[0] < 0.99
    expected = share[0] * np.linalg.inv(NARROW) + share[1] * np.linalg.inv(LEANING)
    np.testing.assert_allclose(path.metric(where)[1], expected, rtol=1e-10)


def test_no_likelihood_stays_no_likelihood() -> None:
    def log_likelihood(theta: jax.Array) -> jax.Array:
        return jnp.where(theta[0] > 0, -theta[0], -jnp.inf)

    model = Model(log_likelihood, NORMAL.model.log_prior, NORMAL.model.sample_prior)
    path = with_reference(model, TWO_D["students"])
    g = jax.jit(jax.vmap(path.log_likelihood))(jnp.array([[-1.0, 0.0], [1.0, 0.0], [-300.0, 300.0]]))
    assert g[0] == g[2] == -jnp.inf
    assert np.isfinite(g[1])


def test_references_of_one_shape_share_a_program() -> None:
    traces = []

    def log_likelihood(theta: jax.Array) -> jax.Array:
        traces.append(theta)
        return -jnp.sum(theta**2)

    model = Model(log_likelihood, NORMAL.model.log_prior, NORMAL.model.sample_prior)
    value = jax.jit(lambda model, theta: model.log_likelihood(theta))
    theta = jnp.array([0.5, 0.25])
    first, second = TWO_D["mixture"], make_mixture(np.array([0.5, 0.5]), TWO + 1.0, np.stack([LEANING, NARROW]))
    values = [value(with_reference(model, mixture), theta) for mixture in (first, second)]
    assert len(traces) == 1
    for one, mixture in zip(values, (first, second), strict=True):  # arrays are arguments, not baked in
        expected = -jnp.sum(theta**2) + model.log_prior(theta) - log_density(mixture, theta)
        assert one == pytest.approx(float(expected), rel=1e-12)
    value(with_reference(model, TWO_D["students"]), theta)  # Student-t's too
    assert len(traces) == 1


def test_a_reference_of_several_components_knows_its_dimension() -> None:
    assert with_reference(NORMAL.model, TWO_D["normal"]).dimension == 2
    assert with_reference(NORMAL.model, TWO_D["mixture"]).dimension == 2


def standard_normal(theta: jax.Array) -> jax.Array:
    return -0.5 * jnp.sum(theta**2) - 0.5 * theta.size * jnp.log(2 * jnp.pi)


def sample_standard_normal(key: jax.Array) -> jax.Array:
    return jax.random.normal(key, (2,))


def test_a_model_with_a_reference_can_be_hashed_pickled_and_flattened() -> None:
    path = with_reference(Model(standard_normal, standard_normal, sample_standard_normal), TWO_D["student"])
    theta = jnp.array([0.5, 0.25])
    assert {path: 1}[path] == 1
    assert isinstance(path.log_prior, Partial)
    leaves, structure = jax.tree.flatten(path)
    copies = pickle.loads(pickle.dumps(path)), jax.tree.unflatten(structure, leaves)
    for copy in copies:
        assert copy.normalised
        assert copy.log_likelihood(theta) == path.log_likelihood(theta)
        np.testing.assert_array_equal(copy.sample_prior(jax.random.key(1)), path.sample_prior(jax.random.key(1)))


def test_fitted_reference() -> None:
    model = linear.model()
    draws = thermint.sample(model, ladder=7, draws=50, populations=2)
    better = thermint.fitted_reference(model, draws)
    x = jax.jit(jax.vmap(better.sample_prior))(jax.random.split(jax.random.key(8), 1000))
    g = np.asarray(jax.jit(jax.vmap(better.log_likelihood))(x))
    ratio = np.exp(g - linear.log_evidence())
    # A normal posterior is known exactly up to a widening, so that a thousand draws will do.
    assert ratio.std() < 0.3
    assert abs(ratio.mean() - 1) < 4 * ratio.std() / np.sqrt(1000)
    assert better.dimension == model.dimension
    assert better.parameter_names == model.parameter_names
