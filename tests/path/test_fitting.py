"""Mixtures fitted to posterior draws: moments, tails and modes."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
import pytest
from mixtures import LEANING, NARROW, TWO
from scipy import special, stats
from targets import SKEWED_2, Target

from thermint.path.fitting import WIDENINGS, fit
from thermint.path.mixture import Mixture, make_mixture


def log_densities(mixture: Mixture, x: np.ndarray) -> np.ndarray:
    return special.logsumexp(mixture.components_at(x)[0], axis=1)


COVARIANCE = np.array([[1.0, 0.5, 0.0], [0.5, 2.0, -0.2], [0.0, -0.2, 0.3]])
MEAN = np.array([1.0, 2.0, 3.0])


class Sample(NamedTuple):
    """Independent draws [chain, draw, d] and their scores."""

    position: np.ndarray
    score: np.ndarray

    @property
    def flat(self) -> np.ndarray:
        return self.position.reshape(-1, self.position.shape[-1])


def normal_sample(mean: np.ndarray, covariance: np.ndarray, chains: int, number: int, seed: int) -> Sample:
    x = np.random.default_rng(seed).multivariate_normal(mean, covariance, (chains, number), method="cholesky")
    return Sample(x, -(x - mean) @ np.linalg.inv(covariance))


def student_sample(dof: int, number: int, seed: int) -> Sample:
    """From a Student-t with MEAN and scale matrix COVARIANCE."""
    rng = np.random.default_rng(seed)
    z = rng.multivariate_normal(np.zeros(3), COVARIANCE, (4, number), method="cholesky")
    away = z / np.sqrt(rng.chisquare(dof, (4, number, 1)) / dof)
    pull = away @ np.linalg.inv(COVARIANCE)
    return Sample(MEAN + away, -(dof + 3) * pull / (dof + np.sum(away * pull, axis=-1, keepdims=True)))


def mixture_sample(weight: list[float], mean: np.ndarray, covariance: np.ndarray, number: int, seed: int) -> Sample:
    """From a mixture of normals."""
    rng = np.random.default_rng(seed)
    k = rng.choice(len(mean), (4, number), p=weight)
    x = mean[k] + np.einsum("cnij,cnj->cni", np.linalg.cholesky(covariance)[k], rng.standard_normal((4, number, 2)))
    away = x[:, :, None] - mean
    pull = np.einsum("kij,cnkj->cnki", np.linalg.inv(covariance), away)
    log_each = np.log(weight) - 0.5 * np.linalg.slogdet(covariance)[1] - 0.5 * np.sum(away * pull, axis=-1)
    return Sample(x, -np.einsum("cnk,cnki->cni", special.softmax(log_each, axis=-1), pull))


def skewed_sample(target: Target, t: float, chains: int, number: int, seed: int) -> Sample:
    x = target.draw(np.random.default_rng(seed), t, chains * number)
    model = target.model
    score = jax.jit(jax.vmap(jax.grad(lambda theta: model.log_prior(theta) + t * model.log_likelihood(theta))))(x)
    return Sample(x.reshape(chains, number, -1), np.asarray(score).reshape(chains, number, -1))


def scale(mixture: Mixture, k: int = 0) -> np.ndarray:
    return np.asarray(mixture.cholesky[k] @ mixture.cholesky[k].T)


def stretch(mixture: Mixture, covariance: np.ndarray, k: int = 0) -> np.ndarray:
    """Factors by which the fit is wider than the truth, along its axes, smallest first."""
    root = np.linalg.inv(np.linalg.cholesky(covariance))
    return np.linalg.eigvalsh(root @ scale(mixture, k) @ root.T)


def away(mixture: Mixture, mean: np.ndarray, covariance: np.ndarray, k: int = 0) -> float:
    """Distance of the fitted mean from the truth, in standard deviations."""
    off = np.asarray(mixture.mean[k]) - mean
    return float(np.sqrt(off @ np.linalg.solve(covariance, off)))


def assert_stretched_alike(factors: np.ndarray, tolerance: float) -> None:
    """All factors are WIDENINGS[1] times one of the widenings."""
    assert min(np.max(np.abs(factors / (WIDENINGS[1] * widening) - 1)) for widening in WIDENINGS) < tolerance, factors


# --- One component ---


@pytest.mark.parametrize(("number", "scales", "means"), [(100, 0.04, 0.005), (500, 2e-3, 2e-4)])
def test_scores_tell_the_moments_of_a_normal_density(number: int, scales: float, means: float) -> None:
    d = 20
    rng = np.random.default_rng(d)
    root = rng.standard_normal((d, d))
    mean, covariance = rng.normal(0, 3, d), root @ root.T / d + 0.1 * np.eye(d)
    sample = normal_sample(mean, covariance, 2, number, seed=0)
    fitted = fit(*sample)
    assert (fitted.components, fitted.dof) == (1, np.inf)
    assert_stretched_alike(stretch(fitted, covariance), scales)
    assert away(fitted, mean, covariance) < means
    # What the draws say without their scores is at least twenty times as far off.
    plain = make_mixture(np.ones(1), sample.flat.mean(axis=0)[None], np.cov(sample.flat.T)[None])
    assert np.max(np.abs(stretch(plain, covariance) - 1)) > 10 * scales
    assert away(plain, mean, covariance) > 20 * means


def test_a_skewed_density_has_its_moments_in_the_limit() -> None:
    covariance = SKEWED_2.covariance(1.0)
    fitted = fit(*skewed_sample(SKEWED_2, 1.0, 4, 1000, seed=1))
    assert fitted.components == 1
    assert_stretched_alike(stretch(fitted, covariance), 0.08)
    assert away(fitted, SKEWED_2.mean(1.0), covariance) < 0.03


@pytest.mark.parametrize("number", [2, 5, 12])
def test_fewer_draws_than_dimensions_give_a_density(number: int) -> None:
    d = 20
    covariance = np.diag(np.geomspace(0.01, 100.0, d))
    sample = normal_sample(np.arange(d) / 1.0, covariance, 1, number, seed=2)
    fitted = fit(*sample)
    assert fitted.components == 1
    eigenvalues = np.linalg.eigvalsh(scale(fitted))
    assert eigenvalues[0] > 0
    assert np.all(np.isfinite(log_densities(fitted, sample.flat)))
    np.testing.assert_allclose(fitted.whitening[0] @ fitted.cholesky[0], np.eye(d), atol=1e-10)
    if number > 2:  # of the right order in every direction, which the draws' own singular covariance is not
        assert stretch(fitted, covariance)[0] > 0.1
        assert stretch(fitted, covariance)[-1] < 20


def test_long_chains_are_thinned_evenly() -> None:
    # The second half of every chain is elsewhere; a fit to the first draws only would not know.
    sample = normal_sample(np.zeros(1), np.eye(1), 4, 5000, seed=3)
    drifting = sample.position + np.where(np.arange(5000) < 2500, -0.5, 0.5)[:, None]
    fitted = fit(drifting, -drifting / 1.25)
    assert abs(fitted.mean[0, 0]) < 0.01
    assert_stretched_alike(stretch(fitted, 1.25 * np.eye(1)), 0.01)


# --- Tails ---


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_heavy_tails_are_seen_and_light_ones_too(seed: int) -> None:
    heavy = fit(*student_sample(4, 500, seed))
    assert heavy.components == 1
    assert heavy.dof <= 15
    assert away(heavy, MEAN, COVARIANCE) < 0.15
    # On other draws it is better than the best normal, and not far from the truth.
    other = student_sample(4, 5000, seed + 10).flat
    achieved = np.mean(log_densities(heavy, other))
    best_normal = np.mean(stats.multivariate_normal(MEAN, np.cov(other.T)).logpdf(other))
    truth = np.mean(stats.multivariate_t(MEAN, COVARIANCE, 4).logpdf(other))
    assert achieved > best_normal + 0.05
    assert achieved > truth - 0.3
    light = fit(*normal_sample(MEAN, COVARIANCE, 4, 500, seed))
    assert light.dof == np.inf


# --- Modes ---


def nearest(mixture: Mixture, means: np.ndarray) -> list[int]:
    """Index of the component closest to each of the means."""
    apart = np.sum((np.asarray(mixture.mean)[None] - means[:, None]) ** 2, axis=-1)
    return apart.argmin(axis=1).tolist()


def assert_found(fitted: Mixture, weight: list[float], mean: np.ndarray, covariance: np.ndarray, number: int) -> None:
    """The components are these, each with its own shape; weights, raised by 0.05 each, within four standard errors."""
    components = len(mean)
    order = nearest(fitted, mean)
    assert sorted(order) == list(range(components))
    assert fitted.components == components
    for k, one, truth in zip(order, mean, covariance, strict=True):
        assert_stretched_alike(stretch(fitted, truth, k), 0.02)
        assert away(fitted, one, truth, k) < 0.02
    p, total = np.asarray(weight), 1 + 0.05 * components
    error = np.sqrt(p * (1 - p) / number) / total
    assert np.all(np.abs(np.exp(fitted.log_weight)[order] - (p + 0.05) / total) < 4 * error)
    assert np.exp(fitted.log_weight).sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_two_modes(seed: int) -> None:
    covariance = np.stack([NARROW, LEANING])
    assert_found(fit(*mixture_sample([0.3, 0.7], TWO, covariance, 250, seed)), [0.3, 0.7], TWO, covariance, 1000)


def test_four_modes() -> None:
    mean = np.array([[-6.0, -2.0], [-2.0, 2.0], [2.0, 6.0], [6.0, -6.0]])
    covariance = np.stack([s**2 * np.eye(2) for s in (0.4, 0.6, 0.5, 1.0)])
    weight = [0.1, 0.2, 0.3, 0.4]
    assert_found(fit(*mixture_sample(weight, mean, covariance, 500, 3)), weight, mean, covariance, 2000)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_far_narrow_mode_of_three_per_cent(seed: int) -> None:
    mean, covariance = np.array([[-6.0, -6.0], [4.0, 4.0]]), np.stack([0.09 * np.eye(2), np.eye(2)])
    fitted = fit(*mixture_sample([0.03, 0.97], mean, covariance, 250, seed))
    assert_found(fitted, [0.03, 0.97], mean, covariance, 1000)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_mode_that_one_chain_of_256_has_found(seed: int) -> None:
    d = 8
    position, score = normal_sample(np.full(d, 4.0), np.eye(d), 255, 25, seed)
    alone, its_score = normal_sample(np.full(d, -4.0), 0.25 * np.eye(d), 1, 25, seed)
    fitted = fit(np.concatenate([position, alone]), np.concatenate([score, its_score]))
    assert fitted.components == 2
    k = int(np.asarray(fitted.mean)[:, 0].argmin())
    assert away(fitted, np.full(d, -4.0), 0.25 * np.eye(d), k) < 0.5
    assert np.exp(fitted.log_weight)[k] > 0.04  # enough to be visited


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_one_skewed_mode_stays_one(seed: int) -> None:
    assert fit(*skewed_sample(SKEWED_2, 0.0, 4, 500, seed)).components == 1  # logarithms of exponential variables


def banana_sample(number: int, seed: int) -> Sample:
    """One mode along a parabola."""
    rng = np.random.default_rng(seed)
    a, away = rng.normal(0.9, 0.95, (4, number)), 0.3 * rng.standard_normal((4, number))
    score = [-(a - 0.9) / 0.95**2 + 2 * a * away / 0.3**2, -away / 0.3**2]
    return Sample(np.stack([a, a**2 + away], axis=-1), np.stack(score, axis=-1))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_banana_takes_several_components(seed: int) -> None:
    """Although its density does not dip between them: they need not be modes."""
    sample, other = banana_sample(500, seed), banana_sample(500, 100).flat
    fitted = fit(*sample)
    assert fitted.components >= 3
    one = stats.multivariate_normal(sample.flat.mean(axis=0), np.cov(sample.flat.T)).logpdf(other)
    gain = log_densities(fitted, other) - one
    assert gain.mean() > 0.5 + 4 * gain.std() / np.sqrt(len(gain))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_two_modes_around_a_third_are_told_apart(seed: int) -> None:
    mean, covariance = np.array([[-10.0, 0.0], [0.0, 0.0], [10.0, 0.0]]), np.stack([np.eye(2)] * 3)
    weight = [0.3, 0.4, 0.3]
    assert_found(fit(*mixture_sample(weight, mean, covariance, 500, seed)), weight, mean, covariance, 2000)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_copies_of_a_draw_are_no_mode(seed: int) -> None:
    d = 4
    position, score = normal_sample(np.zeros(d), np.eye(d), 4, 250, seed)
    position[:, ::20], score[:, ::20] = 8 * np.eye(d)[:1], -8 * np.eye(d)[:1]
    assert fit(position, score).components == 1
    position[:, ::20] += 0.1 * np.random.default_rng(seed).standard_normal((4, 13, d))  # as many that are none
    assert fit(position, score).components == 2
