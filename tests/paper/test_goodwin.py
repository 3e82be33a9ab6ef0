"""Goodwin's oscillator: data, sensitivities, tolerances, failures, prior and reference evidence."""

from __future__ import annotations

import functools
import math
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import thermint
from thermint.model import Evaluation, evaluate
from thermint.model.checks import check_shapes
from thermint.paper import goodwin

pytest.importorskip("diffrax")

TRUE = np.log([1.0, 3.0, 2.0, 1.0, 0.5])
# Found by damped Newton from the true parameters (g = 3) and from many starts (g = 4: the best of several modes).
MODE = {
    3: np.log([0.69677, 1.89383, 1.97789, 0.93833, 0.490536]),
    4: np.log([0.23191, 1.89332, 3.02308, 0.93322, 0.93322, 0.781827]),
}


# The code is the same for any number of species, and compiling it for another takes long.
species = pytest.mark.parametrize("g", [3, pytest.param(4, marks=pytest.mark.slow)])


@jax.jit
@jax.vmap
def tight(theta: jax.Array) -> goodwin.Likelihood:
    return goodwin.likelihood(theta, rtol=1e-10, atol=1e-11, max_steps=100_000)


@functools.cache
def precision(g: int) -> np.ndarray:
    """Of the normal approximation at the mode."""
    fisher = tight(jnp.tile(MODE[g], (40, 1))).fisher[0]  # 40 points everywhere, for one compilation
    return np.asarray(fisher) + np.diag(np.exp(MODE[g]))


@functools.cache
def posterior(g: int, number: int = 20) -> jax.Array:
    """Draws from the normal approximation at the mode."""
    return jnp.asarray(stats.multivariate_normal(MODE[g], np.linalg.inv(precision(g)), seed=1).rvs(number))


@functools.cache
def prior(g: int, number: int = 20) -> jax.Array:
    return jax.jit(jax.vmap(goodwin.model(g).sample_prior))(jax.random.split(jax.random.key(1), number))


@functools.cache
def evaluations(g: int) -> Evaluation:
    """At 20 posterior and 20 prior draws."""
    model = goodwin.model(g)
    return jax.jit(jax.vmap(lambda theta: evaluate(model, theta)))(jnp.concatenate([posterior(g), prior(g)]))


@functools.cache
def exact(g: int) -> tuple[np.ndarray, ...]:
    """Value, gradient and Fisher information at the same draws with tight tolerances."""
    return tuple(map(np.asarray, tight(jnp.concatenate([posterior(g), prior(g)]))))


def scipy_solution(theta: np.ndarray) -> np.ndarray:
    """The observed species by another solver, [40, 2]."""
    a1, a2, *k, alpha = np.exp(theta)

    def velocity(s: float, x: np.ndarray) -> np.ndarray:
        return np.array([a1 / (1 + a2 * x[-1] ** 10), *(k * x[:-1])]) - alpha * x

    zero = np.zeros(len(k) + 1)
    solution = integrate.solve_ivp(velocity, (0, 80), zero, "DOP853", np.arange(41, 81), rtol=1e-11, atol=1e-12)
    return solution.y[:2].T


# --- Data and likelihood ---


def test_data_are_those_described() -> None:
    table = np.loadtxt(f"{thermint.paper.__path__[0]}/data/goodwin_g3.csv", delimiter=",", skiprows=1)
    noise = 0.1 * np.random.default_rng(0).standard_normal((40, 2))
    np.testing.assert_array_equal(table[:, 0], np.arange(41, 81))
    np.testing.assert_allclose(table[:, 1:], scipy_solution(TRUE) + noise, rtol=0, atol=1e-6)


@species
def test_log_likelihood_by_another_solver(g: int) -> None:
    y = np.loadtxt(f"{thermint.paper.__path__[0]}/data/goodwin_g3.csv", delimiter=",", skiprows=1)[:, 1:]
    for i in (0, 20, 21):
        theta = np.asarray(evaluations(g).position[i])
        expected = np.sum(stats.norm.logpdf(y, scipy_solution(theta), 0.1))
        assert evaluations(g).log_likelihood[i] == pytest.approx(expected, abs=1e-3, rel=1e-5)


@species
def test_log_likelihood_does_not_depend_on_tolerances(g: int) -> None:
    error = np.abs(evaluations(g).log_likelihood - exact(g)[0])
    assert error[:20].max() < 2e-4  # posterior; 5e-5 was measured at 200 draws
    assert np.max(error / (1 + np.abs(exact(g)[0]))) < 1e-4


def test_value_is_the_same_with_and_without_gradient() -> None:
    outside = jnp.array([np.full(5, 800.0), np.full(5, np.nan)])
    thetas = jnp.concatenate([evaluations(3).position[2:], outside])
    values = jax.jit(jax.vmap(goodwin.model(3).log_likelihood))(thetas)
    np.testing.assert_allclose(values[:-2], evaluations(3).log_likelihood[2:], rtol=1e-8)
    np.testing.assert_array_equal(values[-2:], -np.inf)


# --- Gradient and metric ---


@species
def test_gradient_by_finite_differences(g: int) -> None:
    h = 1e-4
    shifts = np.zeros((40, g + 2))
    shifts[: 4 * (g + 2)] = h * np.concatenate([c * np.eye(g + 2) for c in (-2, -1, 1, 2)])
    for i in (0, 1, 20):
        values = np.asarray(tight(evaluations(g).position[i] + shifts).value)
        low2, low, high, high2 = values[: 4 * (g + 2)].reshape(4, -1)
        slope = (low2 - 8 * low + 8 * high - high2) / (12 * h)
        scale = np.abs(exact(g)[1][i]).max()
        np.testing.assert_allclose(exact(g)[1][i], slope, rtol=0, atol=1e-4 * scale)
        np.testing.assert_allclose(evaluations(g).grad_log_likelihood[i], slope, rtol=0, atol=1e-3 * scale + 1e-2)


@species
def test_gradient_does_not_depend_on_tolerances(g: int) -> None:
    unit = np.sqrt(np.diagonal(exact(g)[2], axis1=1, axis2=2)).max(axis=1)  # one standard deviation of the score
    error = np.abs(evaluations(g).grad_log_likelihood - exact(g)[1]).max(axis=1)
    assert np.max(error / (1e-6 + unit)) < 2e-3


def test_forward_mode() -> None:
    log_likelihood = goodwin.model(3).log_likelihood
    theta, direction = posterior(3)[0], jnp.arange(1.0, 6.0)
    value, slope = jax.jit(lambda theta: jax.jvp(log_likelihood, (theta,), (direction,)))(theta)
    assert value == pytest.approx(float(evaluations(3).log_likelihood[0]), rel=1e-8)
    assert slope == pytest.approx(float(evaluations(3).grad_log_likelihood[0] @ direction), rel=1e-5)


@species
def test_metric_is_the_sum_of_outer_products_of_sensitivities(g: int) -> None:
    state = jax.tree.map(lambda a: np.asarray(a[0]), evaluations(g))
    h = 1e-4
    shifts = h * np.eye(g + 2)
    columns = [(scipy_solution(state.position + e) - scipy_solution(state.position - e)) / (2 * h) for e in shifts]
    S = np.stack([column.ravel() for column in columns], axis=1)
    expected = S.T @ S / 0.1**2
    np.testing.assert_allclose(state.fisher, expected, rtol=0, atol=1e-3 * np.abs(expected).max())
    np.testing.assert_allclose(state.prior_curvature, np.diag(np.exp(state.position)), rtol=1e-13)


# --- Failures ---


def test_failed_solve_has_zero_likelihood() -> None:
    parts = jax.jit(jax.vmap(functools.partial(goodwin.likelihood, max_steps=300)))(posterior(3))
    assert np.all(np.asarray(parts.value) == -np.inf)
    assert not np.any(parts.gradient)
    assert not np.any(parts.fisher)


def test_extreme_parameters_are_no_exception() -> None:
    model = goodwin.model(3)
    zero = np.zeros(5)
    first = np.eye(5)[0]
    thetas = jnp.array([zero + 800, zero - 800, 300 * first, 800 * first, zero * np.nan, 20 * np.eye(5)[4]])
    state = jax.jit(jax.vmap(lambda theta: evaluate(model, theta)))(thetas)
    assert not np.any(np.isnan(state.log_likelihood))
    assert np.all(np.isfinite(state.grad_log_likelihood))
    assert np.all(np.isfinite(state.fisher))
    failed = np.asarray(state.log_likelihood) == -np.inf
    assert failed[[0, 3, 4]].all()
    assert not np.any(np.asarray(state.grad_log_likelihood)[failed])


# --- Prior ---


@species
def test_prior_is_gamma_with_its_jacobian(g: int) -> None:
    expected = np.sum(stats.gamma.logpdf(np.exp(prior(g)), 2) + prior(g), axis=1)
    np.testing.assert_allclose(jax.vmap(goodwin.model(g).log_prior)(prior(g)), expected, rtol=1e-12)
    curvature = -jax.vmap(jax.hessian(goodwin.model(g).log_prior))(prior(g))
    np.testing.assert_allclose(np.asarray(evaluations(g).prior_curvature)[20:], curvature, rtol=1e-12)


@pytest.mark.parametrize("g", [3, 4])
def test_sample_prior(g: int) -> None:
    draws = np.exp(prior(g, 20_000))
    assert min(stats.kstest(column, stats.gamma(2).cdf).pvalue for column in draws.T) > 1e-3
    assert np.abs(np.corrcoef(draws.T) - np.eye(g + 2)).max() < 5 / math.sqrt(20_000)


# --- Evidence ---


@pytest.mark.slow
@pytest.mark.parametrize("g", [3, 4])
def test_log_evidence_by_importance_sampling(g: int) -> None:
    model = goodwin.model(g)
    proposal = stats.multivariate_t(MODE[g], np.linalg.inv(precision(g)), df=5, seed=2)
    draws = proposal.rvs(20_000)
    log_joint = jax.jit(jax.vmap(lambda theta: model.log_likelihood(theta) + model.log_prior(theta)))
    values = np.concatenate([log_joint(jnp.asarray(part)) for part in np.split(draws, 20)])
    log_weight = values - proposal.logpdf(draws)
    weight = np.exp(log_weight - log_weight.max())
    estimate = log_weight.max() + math.log(weight.mean())
    error = math.hypot(weight.std() / weight.mean() / math.sqrt(len(weight)), 0.0011)
    assert error < 0.01
    assert abs(estimate - goodwin.log_evidence(g)) < 4 * error


# --- What the sampler relies on ---


@pytest.mark.parametrize("g", [3, 4])
def test_names_and_shapes(g: int) -> None:
    model = goodwin.model(g)
    check_shapes(model)
    assert model is goodwin.model(g=g)
    assert goodwin.model(g, metric=False).metric is None
    assert goodwin.model(g, metric=False).with_fisher is None
    assert model.names == ("log_a1", "log_a2", *(f"log_k{i}" for i in range(1, g)), "log_alpha")
    assert model.constrain is not None
    values = model.constrain(jnp.log(jnp.arange(1.0, g + 3)))
    assert list(values) == ["a1", "a2", *(f"k{i}" for i in range(1, g)), "alpha"]
    np.testing.assert_allclose(list(values.values()), np.arange(1, g + 3), rtol=1e-14)


@pytest.mark.parametrize("g", [2, 5])
def test_other_numbers_of_species_are_refused(g: int) -> None:
    for call in (goodwin.model, goodwin.log_evidence):
        with pytest.raises(ValueError, match=f"3 or 4, not {g}"):
            call(g)


def test_missing_diffrax_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "diffrax", None)
    with pytest.raises(ImportError, match=r"thermint\[diffrax\]"):
        goodwin.model(3)
    assert goodwin.log_evidence(3) == 59.8194


def test_import_does_not_need_diffrax() -> None:
    code = "import sys; sys.modules['diffrax'] = None; import thermint.paper.goodwin"
    subprocess.run([sys.executable, "-c", code], check=True)
