"""The paper's models: hand formulas, metrics, priors and true log evidences."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, special, stats

import thermint
from thermint.model import Evaluation, evaluate, score
from thermint.model.checks import check_shapes
from thermint.paper import linear, pima, radiata

MODELS: dict[str, Callable[[], thermint.Model]] = {
    "linear": lambda: linear.model(),
    "linear-7": lambda: linear.model(7),
    "radiata-1": lambda: radiata.model(1),
    "radiata-2": lambda: radiata.model(2),
    "radiata-1-benchmark": lambda: radiata.model(1, benchmark=True),
    "pima-1": lambda: pima.model(1),
    "pima-2": lambda: pima.model(2),
}
TEMPERATURES = (0.0, 0.03, 1.0)


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> thermint.Model:
    return MODELS[request.param]()


@functools.cache
def prior_draws(model: thermint.Model, number: int) -> jax.Array:
    return jax.jit(jax.vmap(model.sample_prior))(jax.random.split(jax.random.key(1), number))


@functools.cache
def batched(model: thermint.Model) -> Callable[[jax.Array], Evaluation]:
    return jax.jit(jax.vmap(lambda theta: evaluate(model, theta)))


def evaluations(model: thermint.Model, draws: jax.Array) -> list[Evaluation]:
    """Evaluate as the sampler does, batched in one compiled program, and give the results one by one."""
    batch = batched(model)(draws)
    return [jax.tree.map(lambda leaf, i=i: np.asarray(leaf[i]), batch) for i in range(len(draws))]


def hessian(function: Callable[..., jax.Array], *args: jax.Array) -> np.ndarray:
    """The Hessian with respect to the first argument, for each row of the arguments."""
    return np.asarray(jax.jit(jax.vmap(jax.hessian(function)))(*args))


def z(state: Evaluation, t: float) -> np.ndarray:
    """The paper's z(theta | y, t), Eqn. "Z path": minus half the score, by automatic differentiation."""
    return -np.asarray(score(state, jnp.asarray(t))) / 2


def near_and_far(model: thermint.Model) -> jax.Array:
    """Draws from the prior, the same drawn towards 0, and 0 itself."""
    draws = prior_draws(model, 5)
    return jnp.concatenate([draws, draws / 20, jnp.zeros_like(draws[:1])])


# --- The data, read here independently of the package's own loading ---


def read(name: str) -> np.ndarray:
    return np.loadtxt(f"{thermint.paper.__path__[0]}/data/{name}.csv", delimiter=",", skiprows=1)


def linear_data(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((100, 3))
    return X, X @ [0, 1, 2] + rng.standard_normal(100)


def radiata_data(number: int, benchmark: bool) -> tuple[np.ndarray, np.ndarray]:
    table = read("radiata_pine")
    assert table.shape == (42, 3)
    if benchmark:
        assert table[8].tolist() == [3160, 27.1, 26.3]
        table[8] = [3670, 32.3, 29.0]
    x = table[:, number]
    return x - x.mean(), table[:, 0]


def pima_data(number: int) -> tuple[np.ndarray, np.ndarray]:
    table = read("pima")
    assert table.shape == (532, 8)
    assert table[:, 7].sum() == 177
    covariates = table[:, [0, 1, 4, 5, 6][: 3 + number]]
    X = np.ones((532, 4 + number))
    X[:, 1:] = stats.zscore(covariates, ddof=1)
    return X, table[:, 7]


# --- Values and gradients against the formulas of the paper ---


@pytest.mark.parametrize("seed", [0, 7])
def test_linear_follows_the_paper(seed: int) -> None:
    X, y = linear_data(seed)
    model = linear.model(seed)
    for state, t in itertools.product(evaluations(model, prior_draws(model, 5)), TEMPERATURES):
        beta = state.position
        np.testing.assert_allclose(state.log_likelihood, np.sum(stats.norm.logpdf(y, X @ beta)), rtol=1e-13)
        by_hand = -t / 2 * X.T @ y + (t * X.T @ X + np.eye(3)) @ beta / 2  # Eqn. "CVs1"
        np.testing.assert_allclose(z(state, t), by_hand, rtol=0, atol=1e-13 * np.abs(by_hand).max())


@pytest.mark.parametrize("benchmark", [False, True])
@pytest.mark.parametrize("number", [1, 2])
def test_radiata_follows_the_paper(number: int, benchmark: bool) -> None:
    x, y = radiata_data(number, benchmark)
    model = radiata.model(number, benchmark)
    r0, s0, a0, b0, n = 0.06, 6.0, 6.0, 4 * 300**2, 42
    for state, t in itertools.product(evaluations(model, prior_draws(model, 5)), TEMPERATURES):
        alpha, beta, eta = state.position
        residual, tau = y - alpha - beta * x, math.exp(eta)
        expected = stats.norm.logpdf(residual, scale=tau**-0.5).sum()
        np.testing.assert_allclose(state.log_likelihood, expected, rtol=1e-13)
        by_hand = [  # appendix "Unknown precision"
            -t * tau * residual.sum() / 2 + tau * r0 * (alpha - 3000) / 2,
            -t * tau * (residual @ x) / 2 + tau * s0 * (beta - 185) / 2,
            -n * t / 4
            + t * tau * (residual @ residual) / 4
            - (1 + a0) / 2
            + tau / 2 * (b0 + r0 / 2 * (alpha - 3000) ** 2 + s0 / 2 * (beta - 185) ** 2),
        ]
        np.testing.assert_allclose(z(state, t), by_hand, rtol=1e-11)


@pytest.mark.parametrize("number", [1, 2])
def test_pima_follows_the_paper(number: int) -> None:
    X, y = pima_data(number)
    model = pima.model(number)
    for state, t in itertools.product(evaluations(model, near_and_far(model)), TEMPERATURES):
        eta = X @ state.position
        np.testing.assert_allclose(state.log_likelihood, special.log_expit((2 * y - 1) * eta).sum(), rtol=1e-13)
        by_hand = -t / 2 * X.T @ (y - special.expit(eta)) + 0.01 * state.position / 2
        np.testing.assert_allclose(z(state, t), by_hand, rtol=0, atol=1e-12)  # entries of the sum are of order 1e2


@pytest.mark.parametrize("size", [1e2, 1e3, 1e6, 1e90])
@pytest.mark.parametrize("number", [1, 2])
def test_pima_does_not_overflow(number: int, size: float) -> None:
    X, y = pima_data(number)
    model = pima.model(number)
    for state in evaluations(model, size / 10 * prior_draws(model, 5)):
        assert state.fisher is not None
        eta = X @ state.position
        p = special.expit(eta)
        np.testing.assert_allclose(state.log_likelihood, special.log_expit((2 * y - 1) * eta).sum(), rtol=1e-13)
        np.testing.assert_allclose(state.grad_log_likelihood, X.T @ (y - p), rtol=0, atol=1e-12)
        np.testing.assert_allclose(state.fisher, X.T @ (X * (p * (1 - p))[:, None]), rtol=0, atol=1e-12)


def test_a_likelihood_too_small_to_be_squared_is_zero() -> None:
    model = pima.model(1)
    (state,) = evaluations(model, 1e200 * prior_draws(model, 1))
    assert state.log_likelihood == -np.inf


# --- Metrics against automatic differentiation ---


def test_prior_curvature_is_minus_the_hessian_of_the_log_prior(model: thermint.Model) -> None:
    draws = prior_draws(model, 5)
    expected = -hessian(model.log_prior, draws)
    for state, curvature in zip(evaluations(model, draws), expected, strict=True):
        assert state.prior_curvature is not None
        np.testing.assert_allclose(state.prior_curvature, curvature, rtol=1e-13)


@pytest.mark.parametrize("name", ["linear", "linear-7", "pima-1", "pima-2"])
def test_fisher_is_minus_the_hessian_where_that_does_not_depend_on_y(name: str) -> None:
    model = MODELS[name]()
    draws = near_and_far(model)
    expected = -hessian(model.log_likelihood, draws)
    for state, fisher in zip(evaluations(model, draws), expected, strict=True):
        assert state.fisher is not None
        np.testing.assert_allclose(state.fisher, fisher, rtol=0, atol=1e-13 * np.abs(fisher).max())


@pytest.mark.parametrize("benchmark", [False, True])
@pytest.mark.parametrize("number", [1, 2])
def test_radiata_fisher_is_the_expectation_of_minus_the_hessian(number: int, benchmark: bool) -> None:
    x, _ = radiata_data(number, benchmark)
    model = radiata.model(number, benchmark)
    draws = prior_draws(model, 5)

    def log_likelihood(theta: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.sum(jax.scipy.stats.norm.logpdf(y, theta[0] + theta[1] * x, jnp.exp(-theta[2] / 2)))

    # The Hessian is a sum of quadratics in one y_i each: the two-point rule mean ± scale gives its exact expectation.
    mean, scale = draws[:, :1] + draws[:, 1:2] * x, jnp.exp(-draws[:, 2:] / 2)
    expected = -(hessian(log_likelihood, draws, mean - scale) + hessian(log_likelihood, draws, mean + scale)) / 2
    for state, fisher in zip(evaluations(model, draws), expected, strict=True):
        assert state.fisher is not None
        unit = np.sqrt(np.diag(fisher))  # the entries differ by many orders of magnitude
        np.testing.assert_allclose((state.fisher - fisher) / np.outer(unit, unit), 0, atol=1e-13)


# --- Priors ---


@pytest.mark.parametrize(("name", "scale"), [("linear", 1.0), ("pima-1", 10.0), ("pima-2", 10.0)])
def test_normal_priors_are_normalised(name: str, scale: float) -> None:
    model = MODELS[name]()
    for state in evaluations(model, prior_draws(model, 5)):
        expected = stats.norm.logpdf(state.position, scale=scale).sum()
        np.testing.assert_allclose(state.log_prior, expected, rtol=1e-13)


@pytest.mark.parametrize("number", [1, 2])
def test_radiata_prior_is_normal_gamma_with_its_jacobian(number: int) -> None:
    model = radiata.model(number)
    for state in evaluations(model, prior_draws(model, 5)):
        alpha, beta, eta = state.position
        tau = math.exp(eta)
        expected = (
            stats.norm.logpdf(alpha, 3000, (0.06 * tau) ** -0.5)
            + stats.norm.logpdf(beta, 185, (6 * tau) ** -0.5)
            + stats.gamma.logpdf(tau, 6, scale=1 / (4 * 300**2))
            + eta
        )
        np.testing.assert_allclose(state.log_prior, expected, rtol=1e-13)


def test_sample_prior_matches_log_prior(model: thermint.Model) -> None:
    # Stein's identity, E[f(u) score(u) + grad f(u)] = 0, for f = 1, u_i, u_i u_j in standardised coordinates u. It
    # fixes the first moments of the draws to those of log_prior, correlations and skewness included.
    number = 100_000
    draws = np.asarray(prior_draws(model, number))
    mean, scale = draws.mean(axis=0), draws.std(axis=0)
    u = (draws - mean) / scale
    s = np.asarray(jax.jit(jax.vmap(jax.grad(model.log_prior)))(draws)) * scale
    d = u.shape[1]
    identity = np.eye(d)
    columns = [s]
    for i in range(d):
        columns.append(u[:, i, None] * s + identity[i])
        columns += [
            (u[:, i] * u[:, j])[:, None] * s + u[:, j, None] * identity[i] + u[:, i, None] * identity[j]
            for j in range(i + 1)
        ]
    features = np.concatenate(columns, axis=1)
    error = features.std(axis=0, ddof=1) / math.sqrt(number)
    assert np.abs(features.mean(axis=0) / error).max() < 5


# --- Log evidences ---


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_linear_log_evidence(seed: int) -> None:
    X, y = linear_data(seed)
    marginal = stats.multivariate_normal(cov=np.eye(100) + X @ X.T).logpdf(y)
    assert linear.log_evidence(seed) == pytest.approx(marginal, abs=1e-10, rel=0)
    # Bayes' theorem at any beta: evidence = likelihood x prior / posterior.
    covariance = np.linalg.inv(X.T @ X + np.eye(3))
    beta = np.array([0.3, 0.9, 1.8])
    model = linear.model(seed)
    joint = model.log_likelihood(jnp.asarray(beta)) + model.log_prior(jnp.asarray(beta))
    posterior = stats.multivariate_normal(covariance @ X.T @ y, covariance).logpdf(beta)
    assert linear.log_evidence(seed) == pytest.approx(float(joint) - posterior, abs=1e-10, rel=0)


@pytest.mark.parametrize("seed", [0, 7])
def test_integral_of_the_linear_integrand_is_the_log_evidence(seed: int) -> None:
    integral, _ = integrate.quad(
        lambda t: float(linear.integrand(t, seed)[0]), 0, 1, epsabs=1e-10, epsrel=1e-13, limit=200
    )
    assert linear.log_evidence(seed) == pytest.approx(integral, abs=1e-8, rel=0)


def test_variance_of_the_linear_integrand_is_its_slope() -> None:
    for low, high in [(0.0, 0.01), (0.01, 0.2), (0.2, 1.0)]:
        integral, _ = integrate.quad(lambda t: float(linear.integrand(t)[1]), low, high, epsabs=1e-10, epsrel=1e-13)
        rise = linear.integrand(high)[0] - linear.integrand(low)[0]
        assert integral == pytest.approx(rise, rel=1e-10)


def test_linear_integrand_is_vectorised() -> None:
    t = np.linspace(0, 1, 6).reshape(2, 3)
    means, variances = linear.integrand(t, seed=3)
    assert means.shape == variances.shape == (2, 3)
    for index in np.ndindex(2, 3):
        np.testing.assert_allclose((means[index], variances[index]), linear.integrand(t[index], seed=3), rtol=1e-13)


@pytest.mark.parametrize(
    ("number", "benchmark", "expected"),
    [
        (1, True, -310.1515248446),
        (2, True, -301.4429241403),
        (1, False, -310.5493520356),
        (2, False, -301.3875374098),
    ],
)
def test_radiata_log_evidence(number: int, benchmark: bool, expected: float) -> None:
    assert radiata.log_evidence(number, benchmark) == pytest.approx(expected, abs=1e-8, rel=0)


def test_benchmark_copy_gives_the_published_bayes_factor() -> None:
    log_bayes_factor = radiata.log_evidence(2, benchmark=True) - radiata.log_evidence(1, benchmark=True)
    assert round(log_bayes_factor, 4) == 8.7086


def test_pima_log_bayes_factor() -> None:
    assert pima.log_evidence(2) - pima.log_evidence(1) == pytest.approx(-2.6250126, abs=1e-6, rel=0)


def gauss_hermite(model: thermint.Model, mode: jax.Array, factor: np.ndarray, nodes: int) -> float:
    """Log evidence by a tensor Gauss-Hermite rule in u, where theta = mode + sqrt(2) factor u."""
    d = len(mode)
    u, weight = special.roots_hermite(nodes)
    log_weight = np.log(weight) + u**2
    log_joint = jax.jit(jax.vmap(lambda theta: model.log_likelihood(theta) + model.log_prior(theta)))
    tail = np.array(list(itertools.product(u, repeat=d - 1)))
    log_weight_tail = np.array(list(itertools.product(log_weight, repeat=d - 1))).sum(axis=1)
    slabs = []
    for i in range(nodes):
        slab = np.column_stack([np.full(len(tail), u[i]), tail])
        terms = log_joint(mode + math.sqrt(2) * slab @ factor.T) + log_weight_tail + log_weight[i]
        slabs.append(special.logsumexp(terms))
    return special.logsumexp(slabs) + d / 2 * math.log(2) + np.log(np.diag(factor)).sum()


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 2])
def test_pima_log_evidence_by_quadrature(number: int) -> None:
    model = pima.model(number)
    mode = jnp.zeros(model.dimension)
    for _ in range(20):  # Newton's method; the metric is the exact Hessian
        state = evaluate(model, mode)
        assert state.fisher is not None
        assert state.prior_curvature is not None
        precision = np.asarray(state.fisher + state.prior_curvature)
        mode = mode + np.linalg.solve(precision, score(state, jnp.asarray(1.0)))
    factor = np.linalg.cholesky(np.linalg.inv(precision))
    previous = gauss_hermite(model, mode, factor, 4)
    for nodes in range(6, 15, 2):
        estimate = gauss_hermite(model, mode, factor, nodes)
        if abs(estimate - previous) < 1e-6:
            break
        previous = estimate
    assert abs(estimate - previous) < 1e-6
    assert pima.log_evidence(number) == pytest.approx(estimate, abs=1e-7, rel=0)


# --- What the sampler relies on ---


def test_names_and_shapes(model: thermint.Model) -> None:
    check_shapes(model)
    assert model.names is not None
    assert len(set(model.names)) == model.dimension


def test_names() -> None:
    assert linear.model().names == ("beta[0]", "beta[1]", "beta[2]")
    assert radiata.model(2).names == ("alpha", "beta", "log_tau")
    assert pima.model(1).names == ("intercept", "npreg", "glu", "bmi", "ped")
    assert pima.model(2).names == ("intercept", "npreg", "glu", "bmi", "ped", "age")


def test_radiata_constrain() -> None:
    constrain = radiata.model(1).constrain
    assert constrain is not None
    values = constrain(jnp.array([3000.0, 185.0, -11.0]))
    assert {name: float(value) for name, value in values.items()} == {
        "alpha": 3000.0,
        "beta": 185.0,
        "tau": pytest.approx(math.exp(-11.0), rel=1e-14),
    }


def test_the_same_arguments_give_the_same_object() -> None:
    assert linear.model() is linear.model(0) is linear.model(seed=0)
    assert linear.model(1) is not linear.model(0)
    assert radiata.model(1) is radiata.model(number=1, benchmark=False)
    assert radiata.model(1) is not radiata.model(1, benchmark=True)
    assert pima.model(2) is pima.model(number=2)


@pytest.mark.parametrize("call", [pima.model, pima.log_evidence, radiata.model, radiata.log_evidence])
@pytest.mark.parametrize("number", [0, 3])
def test_unknown_number_is_refused(call: Callable[[int], object], number: int) -> None:
    with pytest.raises(ValueError, match=rf"1 or 2, not {number}"):
        call(number)
