"""The benchmark problems: closed forms, gradients and metrics, and the numerical truths once more, roughly."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from benchmarks import problems
from benchmarks.problems import PROBLEMS, QUICK_EFFORT, Estimate, Problem
from thermint.model.checks import check_shapes
from thermint.model.evaluation import evaluate

EASY = ("correlated", "skewed", "bounded", "schools", "random-effects", "banana")
MANY = {"correlated": 2_000_000, "random-effects": 2_000_000}  # prior draws that it takes; else 200 000
OWN = ("linear-20", "logistic-50", "two-modes", "four-modes", "student", *EASY)


def prior_draws(problem: Problem, number: int) -> jax.Array:
    return jax.jit(jax.vmap(problem.model.sample_prior))(jax.random.split(jax.random.key(1), number))


@pytest.mark.parametrize("name", [name for name in PROBLEMS if not name.startswith("goodwin")])
def test_problem_has_its_name_and_a_truth(name):
    problem = PROBLEMS[name]()
    assert problem.name == name
    assert np.isfinite(problem.log_evidence)
    assert 0 <= problem.truth_error <= 1e-3
    assert PROBLEMS[name]().model is problem.model  # so that compiled programs are reused


@pytest.mark.parametrize("name", OWN)
def test_values_and_gradients_are_finite_at_prior_draws(name):
    problem = PROBLEMS[name]()
    check_shapes(problem.model)
    batch = jax.jit(jax.vmap(lambda theta: evaluate(problem.model, theta)))(prior_draws(problem, 200))
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(batch))


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n in MANY else ()) for n in EASY])
def test_truth_is_the_mean_likelihood_over_the_prior(name):
    problem = PROBLEMS[name]()
    number = MANY.get(name, 200_000)
    likelihood = np.exp(np.asarray(jax.jit(jax.vmap(problem.model.log_likelihood))(prior_draws(problem, number))))
    error = likelihood.std() / np.sqrt(number)
    assert error < 0.05 * likelihood.mean()
    assert abs(likelihood.mean() - np.exp(problem.log_evidence)) < 4 * error


@pytest.mark.parametrize(("name", "d"), [("linear-20", 20), ("logistic-50", 50)])
def test_metric_is_minus_the_hessian(name, d):
    model = PROBLEMS[name]().model
    theta = prior_draws(PROBLEMS[name](), 1)[0]
    assert model.dimension == d
    assert model.metric is not None
    for part, function in zip(model.metric(theta), (model.log_likelihood, model.log_prior), strict=True):
        np.testing.assert_allclose(part, -jax.jit(jax.hessian(function))(theta), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("d", "n"), [(20, 100), (50, 200)])
def test_linear_truth_is_the_density_of_the_data(d, n):
    problem = problems.linear(d, n)
    rng = np.random.default_rng(d)  # the data once more, as the docstring describes them
    X = rng.standard_normal((n, d))
    y = X @ rng.standard_normal(d) + rng.standard_normal(n)
    expected = stats.multivariate_normal(np.zeros(n), X @ X.T + np.eye(n)).logpdf(y)
    np.testing.assert_allclose(problem.log_evidence, expected, rtol=1e-12)
    theta = np.linspace(-1, 1, d)
    expected = np.sum(stats.norm.logpdf(y, X @ theta))
    np.testing.assert_allclose(problem.model.log_likelihood(jnp.asarray(theta)), expected, rtol=1e-12)


def test_linear_without_metric_differs_in_nothing_else():
    with_metric, without = problems.linear(20, 100), problems.linear(20, 100, metric=False)
    theta = jnp.linspace(-1, 1, 20)
    assert without.model.metric is None
    assert without.log_evidence == with_metric.log_evidence
    assert without.model.log_likelihood(theta) == with_metric.model.log_likelihood(theta)


@pytest.mark.parametrize("make", [problems.two_modes, problems.four_modes])
def test_mixture_truth_is_the_integral_in_one_and_two_dimensions(make):
    # The trapezoid rule converges faster than any power of the spacing here.
    grid = np.linspace(-50, 50, 1001)
    for d in (1, 2):
        model = make(d).model
        theta = jnp.stack(jnp.meshgrid(*[jnp.asarray(grid)] * d), axis=-1).reshape(-1, d)
        log_density = jax.jit(jax.vmap(lambda x, m=model: m.log_likelihood(x) + m.log_prior(x)))(theta)
        density = np.exp(np.asarray(log_density)).reshape([len(grid)] * d)
        for _ in range(d):
            density = integrate.trapezoid(density, grid, axis=-1)
        np.testing.assert_allclose(np.log(density), make(d).log_evidence, rtol=1e-10)


@pytest.mark.parametrize(("make", "number"), [(problems.two_modes, 2), (problems.four_modes, 4)])
def test_modes_are_separate(make, number):
    """On the line between two centres the likelihood falls by 20 nats or more below both."""
    model = make().model
    d = model.dimension
    centres = {2: np.outer([-4, 4], np.ones(d)), 4: np.array([np.roll([-6, -2, 2, 6], -k) for k in range(4)])}[number]
    log_likelihood = jax.jit(jax.vmap(model.log_likelihood))
    at_centres = np.asarray(log_likelihood(centres.astype(float)))
    for i in range(number):
        for j in range(i):
            between = np.linspace(0, 1, 101)[:, None] * (centres[i] - centres[j]) + centres[j]
            assert np.min(log_likelihood(between)) < min(at_centres[i], at_centres[j]) - 20


def test_logistic_refuses_sizes_without_a_truth():
    with pytest.raises(ValueError, match=r"\(50, 2000\)"):
        problems.logistic(10, 100)


def test_student_regression_has_the_stated_prior_and_likelihood():
    model = problems.student_regression().model
    rng = np.random.default_rng(4)
    X = rng.standard_normal((100, 5))
    noise = rng.standard_normal(100) / np.sqrt(np.mean(rng.standard_normal((4, 100)) ** 2, axis=0))
    y = X @ rng.standard_normal(5) + noise
    theta = np.array([0.5, -1.0, 0.2, 2.0, -0.3, 0.4])
    prior = stats.norm.logpdf(theta[:5], scale=2.5).sum() + stats.halfcauchy.logpdf(np.exp(0.4)) + 0.4
    likelihood = stats.t.logpdf(y, 4, X @ theta[:5], np.exp(0.4)).sum()
    np.testing.assert_allclose(jax.jit(model.log_prior)(theta), prior, rtol=1e-12)
    np.testing.assert_allclose(jax.jit(model.log_likelihood)(theta), likelihood, rtol=1e-12)


def test_importance_and_bridge_sampling_on_a_skewed_ratio():
    """The target is Gamma(3) times 7, the proposal Gamma(2, scale 1.5)."""
    target, proposal = stats.gamma(3), stats.gamma(2, scale=1.5)

    def log_ratio(x: np.ndarray) -> np.ndarray:
        return np.log(7) + target.logpdf(x) - proposal.logpdf(x)

    independent = log_ratio(proposal.rvs(20_000, random_state=0))
    estimates = (
        problems.importance(independent.reshape(40, -1)),
        problems.bridge(log_ratio(target.rvs(20_000, random_state=1)), independent),
    )
    for estimate in estimates:
        assert 1e-3 < estimate.error < 1e-2
        assert abs(estimate.value - np.log(7)) < 4 * estimate.error


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK_EFFORT)
def test_numerical_truth_again(name):
    problem = PROBLEMS[name]()
    first, second = problems.numerical_truth(problem.model, *QUICK_EFFORT[name], seed=5)
    stored = Estimate(problem.log_evidence, problem.truth_error)
    assert first.error < 0.01
    assert second.error < 0.02
    for a, b in ((first, second), (first, stored), (second, stored)):
        assert abs(a.value - b.value) < 4 * np.hypot(a.error, b.error)
