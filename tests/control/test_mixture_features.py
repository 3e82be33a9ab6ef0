"""Features of polynomials times responsibilities: against automatic differentiation, and mixtures drawn exactly."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_basis import indices, polynomials, z_of

from thermint.control import basis
from thermint.control.basis import size

DEGREE = 4
features_of = basis.mixture_features


class Parts(NamedTuple):
    """A mixture of normals."""

    log_weight: np.ndarray  # [component]
    mean: np.ndarray  # [component, d]
    factor: np.ndarray  # [component, d, d]

    def log_components(self, theta: jax.Array) -> jax.Array:
        """Log weight plus log density of each component, up to a common constant, from inverses and determinants."""
        covariance = self.factor @ self.factor.mT
        away = theta - self.mean
        square = jnp.einsum("ki,kij,kj->k", away, np.linalg.inv(covariance), away)
        return self.log_weight - 0.5 * np.linalg.slogdet(covariance)[1] - 0.5 * square

    def draw(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Independent draws [n, d] and their scores."""
        k = rng.choice(len(self.mean), n, p=np.exp(self.log_weight))
        theta = self.mean[k] + np.einsum("nij,nj->ni", self.factor[k], rng.standard_normal((n, self.mean.shape[1])))
        score = jax.vmap(jax.grad(lambda theta: jax.nn.logsumexp(self.log_components(theta))))(theta)
        return theta, np.asarray(score)


def some_parts(components: int, d: int, seed: int = 0, apart: float = 1.5) -> Parts:
    """Components that overlap, each of another shape."""
    rng = np.random.default_rng(100 * components + 10 * d + seed)
    weight = rng.uniform(0.5, 1.5, components)
    factor = np.tril(rng.normal(0, 0.4, (components, d, d)), -1)
    factor += rng.uniform(0.6, 1.6, (components, 1, d)) * np.eye(d)
    return Parts(np.log(weight / weight.sum()), rng.normal(0, apart, (components, d)), factor)


def names(components: int, d: int, degree: int, cross: bool = True) -> list[tuple[int, tuple[int, ...]]]:
    """Component and powers of each feature, in order: lowest degree first, constants with degree 1."""
    constant = (0,) * d
    blocks = itertools.product(range(1, degree + 1), range(components))
    return [
        (k, powers)
        for total, k in blocks
        for powers in (constant, *indices(d, degree, cross))
        if sum(powers) == total or (total == 1 and powers == constant)
    ]


def by_differentiation(parts: Parts, theta: np.ndarray, score: np.ndarray, cross: bool) -> dict[tuple, np.ndarray]:
    """Laplacian(P r) + grad(P r) . score in each component's whitened coordinates, by name: [n]."""
    d = theta.shape[1]
    P = polynomials(d, DEGREE, cross)

    @jax.jit
    @jax.vmap
    def at_point(theta: jax.Array, score: jax.Array) -> jax.Array:
        def trial(x: jax.Array, k: int) -> jax.Array:
            responsibility = jax.nn.softmax(parts.log_components(parts.mean[k] + parts.factor[k] @ x))[k]
            return responsibility * jnp.append(P(x), 1.0)

        rows = []
        for k in range(len(parts.mean)):
            x = jnp.linalg.solve(parts.factor[k], theta - parts.mean[k])
            slope = jax.jacfwd(trial)(x, k) @ (parts.factor[k].T @ score)
            rows.append(slope + jnp.trace(jax.jacfwd(jax.jacfwd(trial))(x, k), axis1=1, axis2=2))
        return jnp.stack(rows)

    values = np.asarray(at_point(theta, score))  # [n, component, polynomial]
    powers = [*indices(d, DEGREE, cross), (0,) * d]
    return {(k, a): values[:, k, i] for k in range(len(parts.mean)) for i, a in enumerate(powers)}


def deviation(powers: tuple[int, ...]) -> float:
    """By which a feature is divided: |a| sqrt(a!), or 1 for the constant."""
    return max(sum(powers), 1) * float(np.sqrt(np.prod([np.prod(np.arange(1, k + 1)) for k in powers])))


@pytest.mark.parametrize(
    ("components", "d", "cross"),
    [(2, 1, True), (2, 2, True), (2, 3, True), (3, 1, True), (3, 2, True), (3, 3, True), (2, 2, False)],
)
def test_every_feature_follows_automatic_differentiation(components: int, d: int, cross: bool) -> None:
    parts = some_parts(components, d)
    rng = np.random.default_rng(d)
    theta, score = rng.normal(0, 1.5, (2, 30, d))  # the identity is algebra: any score will do
    expected = by_differentiation(parts, theta, score, cross)
    features = np.asarray(features_of(theta, score, *parts, DEGREE, cross))
    order = names(components, d, DEGREE, cross)
    assert sorted(order) == sorted(expected)
    assert features.shape == (len(order), 30)
    assert size(d, DEGREE, cross, components) == len(order)
    for name, feature in zip(order, features, strict=True):
        value = expected[name] / deviation(name[1])
        np.testing.assert_allclose(feature, value, rtol=1e-9, atol=1e-9 * np.abs(value).max(), err_msg=str(name))


def test_a_single_component_has_the_features_of_polynomials() -> None:
    parts = some_parts(1, 2)._replace(log_weight=np.array([-0.7]))  # its responsibility is 1 whatever its weight
    theta, score = np.random.default_rng(0).normal(0, 1.5, (2, 30, 2))
    x, s = np.linalg.solve(parts.factor[0], (theta - parts.mean[0]).T), (score @ parts.factor[0]).T
    features = features_of(theta, score, *parts, DEGREE, True)
    np.testing.assert_allclose(features, basis.stein_features(x, s, DEGREE), rtol=1e-12, atol=1e-12)
    assert len(features) == size(2, DEGREE) == size(2, DEGREE, components=1)


@pytest.mark.parametrize("cross", [True, False])
def test_lower_degrees_are_leading_blocks(cross: bool) -> None:
    parts = some_parts(3, 2)
    theta, score = np.random.default_rng(1).normal(0, 1.5, (2, 30, 2))
    full = np.asarray(features_of(theta, score, *parts, DEGREE, cross))
    for degree in range(DEGREE):
        part = features_of(theta, score, *parts, degree, cross)
        assert len(part) == size(2, degree, cross, 3) == (degree and len(names(3, 2, degree, cross)))
        np.testing.assert_allclose(part, full[: len(part)], rtol=1e-11, atol=1e-11, err_msg=f"degree {degree}")


def test_far_from_a_component_its_features_vanish() -> None:
    # The responsibility underflows there; its logarithm's derivatives must not make it NaN.
    parts = some_parts(2, 2)._replace(mean=np.array([[0.0, 0.0], [300.0, 0.0]]), factor=np.stack([np.eye(2)] * 2))
    theta = np.random.default_rng(2).normal(0, 1, (10, 2))
    features = np.asarray(features_of(theta, -theta, *parts, DEGREE, True))
    assert np.all(np.isfinite(features))
    mine = np.array([k == 0 for k, _ in names(2, 2, DEGREE)])
    np.testing.assert_array_equal(features[~mine], 0.0)
    constant = np.array([powers == (0, 0) for _, powers in names(2, 2, DEGREE)])
    expected = basis.stein_features(theta.T, -theta.T, DEGREE)
    np.testing.assert_allclose(features[mine & ~constant], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("own", [True, False], ids=["own-frame", "other-frame"])
@pytest.mark.parametrize(("components", "d"), [(2, 1), (2, 2), (3, 2)])
def test_features_have_mean_zero_under_a_mixture_and_finished_ones_do_not(components: int, d: int, own: bool) -> None:
    truth = some_parts(components, d)
    parts = truth if own else some_parts(components, d, seed=1)
    theta, score = truth.draw(np.random.default_rng(3), 100_000)
    features = np.asarray(features_of(theta, score, *parts, DEGREE, True))
    z = dict(zip(names(components, d, DEGREE), z_of(features), strict=True))
    assert max(z.values()) < 4, z

    # The broken twin: features of polynomials, finished, times the responsibility.
    responsibility = np.asarray(jax.vmap(lambda theta: jax.nn.softmax(parts.log_components(theta)))(theta)).T
    for k in range(components):
        one = Parts(*(part[k : k + 1] for part in parts))
        finished = np.asarray(features_of(theta, score, *one, DEGREE, True))
        assert z_of(finished * responsibility[k]).max() > 8
