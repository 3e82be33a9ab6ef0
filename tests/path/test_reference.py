"""References fitted to posterior draws: moments, tails, modes, densities, and the path that starts there."""

from __future__ import annotations

import dataclasses
import pickle
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial
from scipy import special, stats
from targets import NORMAL, SKEWED, SKEWED_2, Target

import thermint
from thermint import Model
from thermint.model import evaluate
from thermint.paper import linear
from thermint.path import reference
from thermint.path.reference import MARGIN, SMALLEST, WIDENINGS, Mixture, fit, log_density, make_mixture, with_reference
from thermint.sampling.noise import Block, noise

log_densities = jax.jit(jax.vmap(log_density, (None, 0)))
draws_of = jax.jit(jax.vmap(reference.draw, (None, 0)))
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
    return np.asarray(mixture.factor[k] @ mixture.factor[k].T)


def stretch(mixture: Mixture, covariance: np.ndarray, k: int = 0) -> np.ndarray:
    """Factors by which the fit is wider than the truth, along its axes, smallest first."""
    root = np.linalg.inv(np.linalg.cholesky(covariance))
    return np.linalg.eigvalsh(root @ scale(mixture, k) @ root.T)


def away(mixture: Mixture, mean: np.ndarray, covariance: np.ndarray, k: int = 0) -> float:
    """Distance of the fitted mean from the truth, in standard deviations."""
    off = np.asarray(mixture.mean[k]) - mean
    return float(np.sqrt(off @ np.linalg.solve(covariance, off)))


def assert_stretched_alike(factors: np.ndarray, tolerance: float) -> None:
    """All factors are MARGIN times one of the widenings."""
    assert min(np.max(np.abs(factors / (MARGIN * widening) - 1)) for widening in WIDENINGS) < tolerance, factors


# --- One component ---


@pytest.mark.parametrize(("number", "scales", "means"), [(100, 0.04, 0.005), (500, 2e-3, 2e-4)])
def test_scores_tell_the_moments_of_a_normal_density(number: int, scales: float, means: float) -> None:
    d = 20
    rng = np.random.default_rng(d)
    root = rng.standard_normal((d, d))
    mean, covariance = rng.normal(0, 3, d), root @ root.T / d + 0.1 * np.eye(d)
    sample = normal_sample(mean, covariance, 2, number, seed=0)
    fitted = fit(*sample)
    assert (fitted.components, fitted.dof) == (1, None)
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
    np.testing.assert_allclose(fitted.whitening[0] @ fitted.factor[0], np.eye(d), atol=1e-10)
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
    assert heavy.dof is not None
    assert heavy.dof <= 15
    assert away(heavy, MEAN, COVARIANCE) < 0.15
    # On other draws it is better than the best normal, and not far from the truth.
    other = student_sample(4, 5000, seed + 10).flat
    achieved = np.mean(np.asarray(log_densities(heavy, other)))
    best_normal = np.mean(stats.multivariate_normal(MEAN, np.cov(other.T)).logpdf(other))
    truth = np.mean(stats.multivariate_t(MEAN, COVARIANCE, 4).logpdf(other))
    assert achieved > best_normal + 0.05
    assert achieved > truth - 0.3
    light = fit(*normal_sample(MEAN, COVARIANCE, 4, 500, seed))
    assert light.dof is None


# --- Modes ---

NARROW, LEANING = 0.25 * np.eye(2), np.array([[1.0, 0.6], [0.6, 1.0]])
TWO = np.array([[-4.0, -4.0], [4.0, 4.0]])


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
    gain = np.asarray(log_densities(fitted, other)) - one
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


def test_shares_of_draws_and_their_density_are_scipys() -> None:
    weight, covariance = np.array([0.3, 0.7]), np.stack([NARROW, LEANING])
    x = np.random.default_rng(0).uniform(-5, 5, (200, 2))
    of_each = [stats.multivariate_normal(m, c).logpdf(x) for m, c in zip(TWO, covariance, strict=True)]
    log_each = np.log(weight) + np.stack(of_each, axis=1)
    share, log_height = reference._responsibilities(make_mixture(weight, TWO, covariance), x)
    np.testing.assert_allclose(share, special.softmax(log_each, axis=1), rtol=1e-10, atol=1e-300)
    expected = np.mean(special.logsumexp(log_each, axis=1))
    assert log_height - np.log(2 * np.pi) == pytest.approx(expected, rel=1e-12)  # two dimensions


def test_normals_have_the_moments_of_their_shares() -> None:
    rng = np.random.default_rng(1)
    x, share = rng.standard_normal((50, 3)), rng.dirichlet(np.ones(2), 50)
    made = reference._normals(x, share)
    np.testing.assert_allclose(np.exp(made.log_weight), share.mean(axis=0), rtol=1e-12)
    for k in range(2):
        np.testing.assert_allclose(made.mean[k], np.average(x, axis=0, weights=share[:, k]), rtol=1e-10)
        spread = np.cov(x.T, aweights=share[:, k], ddof=0)
        np.testing.assert_allclose(scale(made, k), spread + SMALLEST * np.eye(3), rtol=1e-10)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_few_draws_of_a_normal_are_not_split(seed: int) -> None:
    # Two normals fit those that they are fitted to better, as they have twice as many parameters.
    z = np.random.default_rng(seed).standard_normal((80, 8))
    own = [
        reference._responsibilities(fitted, z)[1]
        for fitted in (reference._in_two(z), reference._normals(z, np.ones((80, 1))))
    ]
    assert own[0] > own[1] + 2 * reference.MIN_SPLIT_GAIN
    assert reference._split(z, np.arange(80) % 2) is None


# --- Densities and draws ---

ONE_D = {
    "normal": make_mixture(np.ones(1), np.array([[1.0]]), np.array([[[4.0]]])),
    "student": make_mixture(np.ones(1), np.array([[1.0]]), np.array([[[4.0]]]), 3),
    "mixture": make_mixture(np.array([0.3, 0.7]), np.array([[-3.0], [2.0]]), np.array([[[0.25]], [[1.0]]])),
}
TWO_D = {
    "normal": make_mixture(np.ones(1), np.array([[1.0, -1.0]]), LEANING[None]),
    "student": make_mixture(np.ones(1), np.array([[1.0, -1.0]]), LEANING[None], 3),
    "mixture": make_mixture(np.array([0.3, 0.7]), TWO, np.stack([NARROW, LEANING])),
    "students": make_mixture(np.array([0.3, 0.7]), TWO, np.stack([NARROW, LEANING]), 5),
}
# x = sinh(u): the trapezoid rule in u is exact to many digits, and reaches far into the tails.
GRID = np.linspace(-14.0, 14.0, 449)
POINTS, VOLUME = np.sinh(GRID), np.cosh(GRID) * (GRID[1] - GRID[0])


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
        stats.multivariate_normal(m, scale(mixture, k)).logpdf(theta)
        if mixture.dof is None
        else stats.multivariate_t(m, scale(mixture, k), mixture.dof).logpdf(theta)
        for k, m in enumerate(mixture.mean)
    ]
    expected = special.logsumexp(np.stack(each, axis=1) + mixture.log_weight, axis=1)
    np.testing.assert_allclose(logs, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("library", ["jax", "numpy"])
@pytest.mark.parametrize("name", TWO_D)
def test_draws_have_the_density(name: str, library: str) -> None:
    mixture = TWO_D[name]
    if library == "jax":
        x = np.asarray(draws_of(mixture, jax.random.split(jax.random.key(5), 20_000)))
    else:
        x = reference.draw_from(mixture, noise(jax.random.key(5)[None], 0, 20_000, Block(1, 2, 2))[0][0, :, 0])
    if mixture.components == 1:
        belongs = np.zeros(len(x), dtype=int)
    else:  # the components are 11 standard deviations apart; those with heavy tails overlap a little
        belongs = np.asarray(jax.vmap(partial(reference.component_log_densities, mixture))(jnp.asarray(x))).argmax(
            axis=1
        )
        share, p = np.mean(belongs == 0), np.exp(mixture.log_weight[0])
        assert abs(share - p) < 4 * np.sqrt(p * (1 - p) / len(x)) + (0.002 if mixture.dof else 0.0)
    dof = mixture.dof
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


def test_different_keys_draw_differently_and_the_same_alike() -> None:
    one, two = (draws_of(TWO_D["students"], jax.random.split(jax.random.key(seed), 10)) for seed in (1, 2))
    again = draws_of(TWO_D["students"], jax.random.split(jax.random.key(1), 10))
    np.testing.assert_array_equal(one, again)
    assert len(np.unique(np.concatenate([one, two]), axis=0)) == 20


# --- The path ---


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


@pytest.mark.parametrize("library", ["jax", "numpy"])
@pytest.mark.parametrize("name", TWO_D)
@pytest.mark.parametrize("metric", ["the model's", "the reference's", "none"])
def test_the_short_cut_evaluates_the_path(name: str, metric: str, library: str) -> None:
    """Against the model's own functions, differentiated automatically."""
    model = SKEWED_2.model
    path = with_reference(model if metric == "the model's" else dataclasses.replace(model, metric=None), TWO_D[name])
    if metric == "none":
        path = dataclasses.replace(path, metric=None)
    fitted = reference.reference_of(path)
    assert fitted is not None
    for theta in (jnp.array([0.3, -0.8]), jnp.array([-4.0, 3.0])):
        expected, state = evaluate(path, theta), evaluate(fitted.model, theta)
        if library == "numpy":
            state = jax.tree.map(np.asarray, state)
        got = reference.relative(state, fitted.mixture, with_metric=metric != "none")
        assert (got.fisher is None) == (metric == "none")
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-11, atol=1e-11), got, expected)
        assert isinstance(got.log_prior, jax.Array) == (library == "jax")


def test_there_is_no_short_cut_without_gradients_or_a_reference() -> None:
    assert reference.reference_of(SKEWED_2.model) is None
    blind = dataclasses.replace(SKEWED_2.model, differentiable=False)
    assert reference.reference_of(with_reference(blind, TWO_D["normal"])) is None


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
    share = jax.nn.softmax(reference.component_log_densities(TWO_D["mixture"], where))
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


# --- The front ---


def test_fitted_reference() -> None:
    model = linear.model()
    draws = thermint.sample(model, ladder=7, draws=50, populations=2)
    better = thermint.fitted_reference(model, draws)
    x = jax.jit(jax.vmap(better.sample_prior))(jax.random.split(jax.random.key(8), 1000))
    g = np.asarray(jax.jit(jax.vmap(better.log_likelihood))(x))
    ratio = np.exp(g - linear.log_evidence())
    # A normal posterior is known exactly up to MARGIN, so that a thousand draws will do.
    assert ratio.std() < 0.3
    assert abs(ratio.mean() - 1) < 4 * ratio.std() / np.sqrt(1000)
    assert better.dimension == model.dimension
    assert better.parameter_names == model.parameter_names
