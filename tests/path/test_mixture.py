"""A mixture as a reference: its density, draws, metric and coordinates."""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mixtures import ONE_D, POINTS, TWO_D, VOLUME
from scipy import special, stats
from targets import NORMAL, SKEWED_2

from thermint.model import evaluate
from thermint.path.coordinates import RungMoments
from thermint.path.fitted_model import with_reference
from thermint.path.mixture import Mixture, make_mixture
from thermint.path.path import Path
from thermint.sampling.noise import Block, noise

log_densities = jax.jit(jax.vmap(Mixture.log_density, (None, 0)))


@pytest.mark.parametrize("name", ONE_D)
def test_densities_integrate_to_one_in_one_dimension(name: str) -> None:
    density = np.exp(np.asarray(log_densities(ONE_D[name], POINTS[:, None])))
    assert density @ VOLUME == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("name", TWO_D)
def test_densities_integrate_to_one_in_two_dimensions_and_are_scipys(name: str) -> None:
    mixture = TWO_D[name]
    x, y = np.meshgrid(POINTS[::2], POINTS[::2], indexing="ij")
    theta = np.stack([x.ravel(), y.ravel()], axis=1)
    logs = np.asarray(log_densities(mixture, theta))
    volume = np.outer(2 * VOLUME[::2], 2 * VOLUME[::2]).ravel()
    assert np.exp(logs) @ volume == pytest.approx(1.0, abs=1e-3)
    each = [
        stats.multivariate_normal(m, mixture.cholesky[k] @ mixture.cholesky[k].T).logpdf(theta)
        if np.isinf(mixture.dof)
        else stats.multivariate_t(m, mixture.cholesky[k] @ mixture.cholesky[k].T, int(mixture.dof)).logpdf(theta)
        for k, m in enumerate(mixture.mean)
    ]
    expected = special.logsumexp(np.stack(each, axis=1) + mixture.log_weight, axis=1)
    np.testing.assert_allclose(logs, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("source", ["noise", "key"])
@pytest.mark.parametrize("name", TWO_D)
def test_draws_have_the_density(name: str, source: str) -> None:
    mixture, keys = TWO_D[name], jax.random.key(5)[None]
    if source == "noise":
        x = mixture.draw(NORMAL.model, keys, 0, noise(keys, 0, 20_000, Block(1, 2, 2))[0][:, :, 0])[0]
    else:  # of the model that starts there
        sample = with_reference(NORMAL.model, mixture).sample_prior
        x = np.asarray(jax.jit(jax.vmap(sample))(jax.random.split(keys[0], 20_000)))
    if mixture.components == 1:
        belongs = np.zeros(len(x), dtype=int)
    else:  # the components are 11 standard deviations apart; those with heavy tails overlap a little
        belongs = mixture.components_at(x)[0].argmax(axis=1)
        share, p = np.mean(belongs == 0), np.exp(mixture.log_weight[0])
        assert abs(share - p) < 4 * np.sqrt(p * (1 - p) / len(x)) + (0.002 if np.isfinite(mixture.dof) else 0.0)
    dof = mixture.describe()["dof"]
    for k in range(mixture.components):
        z = (x[belongs == k] - mixture.mean[k]) @ np.asarray(mixture.whitening[k]).T
        spread = np.sqrt(dof / (dof - 2)) if dof else 1.0
        assert np.all(np.abs(z.mean(axis=0)) < 4 * spread / np.sqrt(len(z)))
        square = np.sum(z**2, axis=1) / 2
        radius = stats.f(2, dof) if dof else stats.chi2(2, scale=0.5)
        angle = np.arctan2(z[:, 1], z[:, 0])
        assert stats.kstest(square, radius.cdf).pvalue > 1e-4
        assert stats.kstest(angle, stats.uniform(-np.pi, 2 * np.pi).cdf).pvalue > 1e-4  # no axis left stretched
        # The test itself: tails of the other kind would be noticed.
        wrong = stats.chi2(2, scale=0.5) if dof else stats.f(2, 5)
        assert stats.kstest(square, wrong.cdf).pvalue < 1e-8


@pytest.mark.parametrize("library", ["jax", "numpy"])
@pytest.mark.parametrize("name", TWO_D)
@pytest.mark.parametrize("metric", ["the model's", "the reference's", "none"])
def test_a_path_evaluates_its_functions_and_their_derivatives(name: str, metric: str, library: str) -> None:
    """Against the model's own functions, differentiated automatically."""
    model = SKEWED_2.model
    restated = with_reference(
        model if metric == "the model's" else dataclasses.replace(model, metric=None), TWO_D[name]
    )
    if metric != "the model's":
        model = dataclasses.replace(model, metric=None)
    path = Path(model, TWO_D[name], with_metric=metric != "none")
    if metric == "none":
        restated = dataclasses.replace(restated, metric=None)
    for theta in (jnp.array([0.3, -0.8]), jnp.array([-4.0, 3.0])):
        expected = evaluate(restated, theta)
        many = np.broadcast_to(theta, (1, 3, 2))
        got = path.evaluate(theta) if library == "jax" else jax.tree.map(lambda a: a[0, 1], path.evaluate_many(many))
        assert (got.fisher is None) == (metric == "none")
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-11, atol=1e-11), got, expected)
        assert isinstance(got.log_prior, jax.Array) == (library == "jax")


def test_the_covariance_is_that_of_all_components_and_each_has_its_coordinates() -> None:
    rng = np.random.default_rng(8)
    weight, mean = np.array([0.2, 0.3, 0.5]), rng.normal(0, 3, (3, 2))
    covariance = np.stack([np.diag(rng.uniform(0.5, 2, 2)) + 0.3 for _ in range(3)])
    mixture = make_mixture(weight, mean, covariance)
    second = sum(w * (c + np.outer(m, m)) for w, c, m in zip(weight, covariance, mean, strict=True))
    whole = second - np.outer(weight @ mean, weight @ mean)
    np.testing.assert_allclose(mixture.covariance, whole, rtol=1e-12)
    moments = RungMoments(np.zeros((5, 1)), np.zeros((5, 1, 2)), np.ones((5, 1, 2, 2)), np.arange(5.0), np.ones(5))
    frame = mixture.coordinates(moments)
    for rung in range(5):
        np.testing.assert_array_equal(frame.cholesky[rung], mixture.cholesky)
        np.testing.assert_array_equal(frame.log_weight[rung], mixture.log_weight)
        np.testing.assert_array_equal(frame.mean[rung], mean)
    np.testing.assert_array_equal(frame.centre, np.arange(5.0))
