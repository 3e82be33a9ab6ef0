"""Stein features: against automatic differentiation, the paper's own features, and targets drawn exactly."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.polynomial import hermite_e

from thermint.control import basis
from thermint.control.basis import size

HIGHEST = 5
stein_features = basis.stein_features


@cache
def indices(d: int, degree: int, cross: bool = True) -> tuple[tuple[int, ...], ...]:
    """Powers of the d coordinates: lowest total degree first, then those with more of the first coordinates."""
    every = itertools.product(range(degree + 1), repeat=d)
    kept = [a for a in every if 1 <= sum(a) <= degree and (cross or max(a) == sum(a))]
    return tuple(sorted(kept, key=lambda a: (sum(a), [-k for k in a])))


def polynomials(d: int, degree: int, cross: bool) -> Callable[[jax.Array], jax.Array]:
    """All trial functions of one point x[d]: products of Hermite polynomials by their explicit coefficients."""
    powers = np.zeros((degree + 1, degree + 1))  # [k, j], coefficient of x^j in He_k
    for k in range(degree + 1):
        powers[k, : k + 1] = hermite_e.herme2poly([0.0] * k + [1.0])

    def evaluate(x: jax.Array) -> jax.Array:
        values = powers @ x ** np.arange(degree + 1)[:, None]  # [k, coordinate]
        return jnp.prod(values[np.array(indices(d, degree, cross)), np.arange(d)], axis=1)

    return evaluate


def by_differentiation(d: int, cross: bool, x: np.ndarray, score: np.ndarray) -> np.ndarray:
    """Laplacian(P) + grad(P) . score by automatic differentiation, for x[d, n] and score[d, n]: [feature, n]."""
    P = polynomials(d, HIGHEST, cross)

    def at_point(x: jax.Array, score: jax.Array) -> jax.Array:
        return jnp.trace(jax.hessian(P)(x), axis1=1, axis2=2) + jax.jacobian(P)(x) @ score

    return np.asarray(jax.jit(jax.vmap(at_point, in_axes=1, out_axes=1))(x, score))


def normal_grid(d: int, nodes: int = HIGHEST + 1) -> tuple[np.ndarray, np.ndarray]:
    """Points x[d, n] and weights of a tensor Gauss-Hermite rule for the standard normal, exact to 2 * nodes - 1."""
    node, weight = hermite_e.hermegauss(nodes)
    x = np.array(list(itertools.product(node, repeat=d))).T
    return x, np.array([math.prod(w) for w in itertools.product(weight / weight.sum(), repeat=d)])


# --- Values ---


@pytest.mark.parametrize("cross", [True, False])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_features_follow_automatic_differentiation(d: int, cross: bool) -> None:
    rng = np.random.default_rng(d)
    x, score = rng.normal(0, 1.5, (2, d, 40))  # the identity is algebra: any score will do
    grid, weights = normal_grid(d)
    both = by_differentiation(d, cross, np.hstack([x, grid]), np.hstack([score, -grid]))
    expected = both[:, :40] / np.sqrt(both[:, 40:] ** 2 @ weights)[:, None]
    for degree in range(1, HIGHEST + 1):
        features = np.asarray(stein_features(x, score, degree, cross))
        count = len(indices(d, degree, cross))
        assert features.shape == (count, 40)
        assert size(d, degree, cross) == count
        # Lower degrees are leading blocks of higher ones, in the order of `indices`.
        np.testing.assert_allclose(features, expected[:count], rtol=1e-11, atol=1e-11)


def test_number_of_features() -> None:
    assert [size(6, k) for k in range(5)] == [0, 6, 27, 83, 209]
    assert [size(6, k, cross=False) for k in range(5)] == [0, 6, 12, 18, 24]
    assert stein_features(np.ones((6, 2)), np.ones((6, 2)), 0).shape == (0, 2)
    for d in range(1, 6):
        assert size(d, 2) == d * (d + 3) // 2  # paper, appendix "Second degree polynomials"


# --- The paper's features ---


def paper_features(theta: np.ndarray, score: np.ndarray) -> np.ndarray:
    """w = [z, u, v] of the paper's appendix "Second degree polynomials", for [d, n]: [n, d (d + 3) / 2]."""
    z = -score / 2
    u = theta * z - 0.5
    v = [theta[i] * z[j] + theta[j] * z[i] for j in range(len(theta)) for i in range(j + 1, len(theta))]
    return np.column_stack([*z, *u, *v])


def distance(one: np.ndarray, other: np.ndarray) -> float:
    """Relative size of what the columns of either matrix have outside the span of the other's."""

    def residual(a: np.ndarray, b: np.ndarray) -> float:
        left = a - b @ np.linalg.lstsq(b, a)[0]
        return float(np.max(np.linalg.norm(left, axis=0) / np.linalg.norm(a, axis=0)))

    return max(residual(one, other), residual(other, one))


def frame(d: int) -> tuple[np.ndarray, np.ndarray]:
    """A mean [d, 1] and a lower factor [d, d], far from the identity."""
    rng = np.random.default_rng(10 + d)
    return rng.normal(0, 2, (d, 1)), np.linalg.cholesky(np.cov(rng.standard_normal((d, 2 * d + 2))).reshape(d, d))


def whiten(theta: np.ndarray, score: np.ndarray, mean: np.ndarray, factor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.linalg.solve(factor, theta - mean), factor.T @ score


def features_of(x: np.ndarray, score: np.ndarray, degree: int = 2) -> np.ndarray:
    return np.asarray(stein_features(x, score, degree)).T


@pytest.mark.parametrize("whitened", [False, True])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_degree_2_spans_the_features_of_the_paper(d: int, whitened: bool) -> None:
    theta, score = np.random.default_rng(d).standard_normal((2, d, 100))
    if whitened:
        theta, score = whiten(theta, score, *frame(d))
    ours, papers = features_of(theta, score), paper_features(theta, score)
    assert np.linalg.matrix_rank(papers) == ours.shape[1] == papers.shape[1]
    assert distance(ours, papers) < 1e-10
    assert distance(ours[:, :d], papers[:, :d]) < 1e-10  # degree 1 is z alone
    # The same distance sees a slip in a single feature: here the constant in u.
    slip = papers.copy()
    slip[:, d] += 0.1
    assert distance(ours, slip) > 1e-3


@pytest.mark.parametrize("d", [1, 2, 3])
def test_which_frames_keep_the_span(d: int) -> None:
    # Shifts, rotations and a common scale change nothing beyond conditioning. A frame that stretches or shears, as
    # whitening does, keeps degree 1 only: it stands for trial functions with gradients covariance * grad(P).
    theta, score = np.random.default_rng(d).standard_normal((2, d, 400))
    mean, factor = frame(d)
    rotation = np.linalg.qr(factor @ np.ones((d, d)) + np.eye(d))[0]
    for degree in (1, 2, 3):
        original = features_of(theta, score, degree)
        similar = features_of(*whiten(theta, score, mean, 1.7 * rotation), degree)
        assert distance(similar, original) < 1e-10
    stretched = features_of(*whiten(theta, score, mean, factor))
    assert distance(stretched[:, :d], features_of(theta, score, 1)) < 1e-10
    if d > 1:
        assert distance(stretched, features_of(theta, score)) > 1e-2


@pytest.mark.parametrize("d", [1, 2, 3])
def test_under_a_normal_density_any_frame_spans_all_polynomials(d: int) -> None:
    # This is why degree 2 leaves no variance where the power posterior is normal, whatever the frame.
    rng = np.random.default_rng(d)
    theta = rng.standard_normal((d, 200))
    precision = np.cov(rng.standard_normal((d, 3 * d + 3))).reshape(d, d)
    score = -precision @ (theta - 0.3)
    for degree in (1, 2, 3):
        monomials = np.stack([np.prod(theta.T ** np.array(a), axis=1) for a in indices(d, degree)], axis=1)
        ours = features_of(*whiten(theta, score, *frame(d)), degree)
        assert distance(np.column_stack([np.ones(200), ours]), np.column_stack([np.ones(200), monomials])) < 1e-10
        assert distance(ours, monomials) > 1e-3  # the constant is not among them: their mean is zero


# --- Expectations ---


@pytest.mark.parametrize("cross", [True, False])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_under_a_standard_normal_features_are_orthonormal(d: int, cross: bool) -> None:
    x, weights = normal_grid(d)
    features = np.asarray(stein_features(x, -x, HIGHEST, cross))
    np.testing.assert_allclose(features @ weights, 0, atol=1e-10)
    np.testing.assert_allclose((features * weights) @ features.T, np.eye(len(features)), atol=1e-10)


SHAPES = (3.0, 1.5)


def log_gamma(d: int, number: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Exact draws of d logarithms of gamma variables, and their score, in coordinates of mean 0 and variance 1."""
    rng = np.random.default_rng(seed)
    shape = np.array(SHAPES[:d])[:, None]
    gamma = rng.gamma(shape, size=(d, number))
    theta, score = np.log(gamma), shape - gamma
    scale = theta.std(axis=1, keepdims=True)
    return (theta - theta.mean(axis=1, keepdims=True)) / scale, scale * score


def z_of(features: np.ndarray) -> np.ndarray:
    error = features.std(axis=1, ddof=1) / math.sqrt(features.shape[1])
    return np.abs(features.mean(axis=1)) / error


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("d", [1, 2])
def test_features_have_mean_zero_on_a_skewed_target_and_broken_ones_do_not(d: int, seed: int) -> None:
    x, score = log_gamma(d, 40_000, seed)
    features = np.asarray(stein_features(x, score, HIGHEST))
    assert z_of(features).max() < 4.5
    laplacian = np.asarray(stein_features(x, np.zeros_like(score), HIGHEST))
    broken = {
        "sign of the score": np.asarray(stein_features(x, -score, HIGHEST)),
        "sign of the Laplacian": features - 2 * laplacian,
        "no Laplacian": features - laplacian,
        "score too steep": np.asarray(stein_features(x, 1.1 * score, HIGHEST)),
    }
    for name, twin in broken.items():
        assert z_of(twin).max() > 8, name
