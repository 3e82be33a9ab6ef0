"""Likelihoods in plain NumPy: values, gradients, batches, evidence against closed forms, and errors as they were."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import thermint
from thermint import Model

X = np.column_stack([np.ones(6), [-1.0, 0.3, 0.8, -0.4, 1.9, 0.1]])
Y = np.array([0.2, 1.4, 2.1, -0.3, 3.8, 0.9])
PRIOR = {"scale": dist.HalfNormal(2.0), "beta": dist.Normal(jnp.zeros(2), 3.0)}


def log_likelihood(p):
    return float(stats.norm.logpdf(Y, X @ p["beta"], p["scale"]).sum())


def gradient(p):
    residual = Y - X @ p["beta"]
    scale = p["scale"]
    return {"beta": X.T @ residual / scale**2, "scale": np.sum(residual**2) / scale**3 - len(Y) / scale}


def many_log_likelihoods(p):
    return stats.norm.logpdf(Y, p["beta"] @ X.T, p["scale"][:, None]).sum(axis=1)


def many_gradients(p):
    residual = Y - p["beta"] @ X.T
    scale = p["scale"][:, None]
    return {
        "beta": residual @ X / scale**2,
        "scale": (np.sum(residual**2, axis=1, keepdims=True) / scale**3 - len(Y) / scale)[:, 0],
    }


WAYS: dict[str, dict[str, Any]] = {
    "gradient": {"gradient": gradient},
    "differences": {"finite_differences": True},
    "coarse differences": {"finite_differences": 1e-4},
    "vectorised": {"log_likelihood": many_log_likelihoods, "gradient": many_gradients, "vectorised": True},
    "vectorised differences": {
        "log_likelihood": many_log_likelihoods,
        "finite_differences": True,
        "vectorised": True,
    },
}


@pytest.mark.parametrize("way", WAYS)
def test_values_and_gradients_are_those_of_the_same_likelihood_in_jax(way):
    exact = Model.from_prior(PRIOR, lambda p: dist.Normal(X @ p["beta"], p["scale"]).log_prob(Y).sum())
    model = thermint.from_numpy(PRIOR, **{"log_likelihood": log_likelihood, **WAYS[way]})
    theta = jnp.asarray(np.random.default_rng(0).normal(size=(2, 3, 3)))
    assert model.differentiable
    assert model.parameter_names == exact.parameter_names
    value, slope = jax.jit(jax.vmap(jax.vmap(jax.value_and_grad(model.log_likelihood))))(theta)
    expected, expected_slope = jax.vmap(jax.vmap(jax.value_and_grad(exact.log_likelihood)))(theta)
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    np.testing.assert_allclose(slope, expected_slope, rtol=1e-6 if "differences" in way else 1e-12)


def test_a_batch_is_one_call():
    sizes = []

    def counted(p):
        sizes.append(len(p["scale"]))
        return many_log_likelihoods(p)

    model = thermint.from_numpy(PRIOR, counted, finite_differences=True, vectorised=True)
    jax.block_until_ready(jax.jit(jax.vmap(jax.vmap(jax.value_and_grad(model.log_likelihood))))(jnp.zeros((4, 5, 3))))
    assert sizes == [4 * 5 * (1 + 2 * 3)]


def test_differences_are_one_sided_beside_a_zero_likelihood():
    def positive(p):
        return 2 * p["x"] if p["x"] >= 0 else -np.inf

    model = thermint.from_numpy({"x": dist.Normal(0, 1)}, positive, finite_differences=True)
    slope = jax.vmap(jax.grad(model.log_likelihood))(jnp.array([[0.0], [1.0]]))
    np.testing.assert_allclose(slope[:, 0], 2.0, rtol=1e-9)


NORMAL_PRIOR = {"beta": dist.Normal(jnp.zeros(2), 3.0)}
TRUTH = float(stats.multivariate_normal.logpdf(Y, np.zeros(6), 9 * X @ X.T + np.eye(6)))


def known_noise(p):
    return -0.5 * np.sum((Y - X @ p["beta"]) ** 2) - 3 * np.log(2 * np.pi)


@pytest.mark.parametrize(("reference", "kernel", "most"), [("prior", "random_walk", 0.2), ("auto", "mala", 0.02)])
def test_without_gradients_there_is_no_control_and_the_result_says_so(reference, kernel, most):
    calls = []

    def counted(p):
        calls.append(1)
        return known_noise(p)

    model = thermint.from_numpy(NORMAL_PRIOR, counted)
    assert not model.differentiable
    result = thermint.evidence(model, reference=reference, draws=200, seed=1)
    assert abs(result.log_evidence - TRUTH) < 4 * result.standard_error
    assert 1e-6 < result.standard_error < most
    assert (result.rungs["degree"] == 0).all()
    assert result.settings["kernel"] == kernel
    assert result.settings["gradients"] is False
    assert "without gradients" in str(result)
    assert not result.warnings
    assert len(calls) == result.evaluations
    with pytest.raises(ValueError, match="degree = 2: control variates need the gradient"):
        thermint.evidence(model, degree=2)


def test_draws_without_gradients_are_estimated_without_control():
    draws = thermint.sample(thermint.from_numpy(NORMAL_PRIOR, known_noise), 21, draws=200, seed=3)
    assert np.isnan(draws.grad_log_likelihood).all()
    result = thermint.estimate(draws)
    assert abs(result.log_evidence - TRUTH) < 4 * result.standard_error
    assert result.standard_error < 0.2
    assert (result.rungs["degree"] == 0).all()
    with pytest.raises(ValueError, match="degree = 1: control variates need the gradient"):
        thermint.estimate(draws, degree=1)


def test_with_gradients_a_normal_posterior_is_exact():
    def slope(p):
        return {"beta": X.T @ (Y - X @ p["beta"])}

    result = thermint.evidence(thermint.from_numpy(NORMAL_PRIOR, known_noise, gradient=slope), draws=50)
    assert abs(result.log_evidence - TRUTH) < 1e-9
    assert "without gradients" not in str(result)


def test_errors_are_the_users_own_and_say_where():
    class SimulatorError(Exception):
        pass

    def fails(p):
        raise SimulatorError("the mesh is degenerate")

    with pytest.raises(SimulatorError, match="the mesh is degenerate") as caught:
        thermint.evidence(thermint.from_numpy(NORMAL_PRIOR, fails))
    assert "This happened in log_likelihood, at beta = [" in caught.value.__notes__[0]
    assert caught.traceback[-1].name == "fails"
    with pytest.raises(SimulatorError):
        thermint.sample(thermint.from_numpy(NORMAL_PRIOR, fails), 3, draws=2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"log_likelihood": lambda p: p["beta"]}, r"log_likelihood must return one number, .* of shape \(2,\)"),
        ({"log_likelihood": lambda p: 0.0, "vectorised": True}, "one number for each of 256 points"),
        ({"gradient": lambda p: p["beta"]}, r"gradient must return a dictionary .* \['beta'\], not a ndarray"),
        ({"gradient": lambda p: {"gamma": 1.0}}, r"\['beta'\], not \['gamma'\]"),
        ({"gradient": lambda p: {"beta": 1.0}}, r"gradient\['beta'\] has shape \(\) instead of \(2,\)"),
    ],
)
def test_wrong_shapes_are_refused_by_name(options, message):
    model = thermint.from_numpy(NORMAL_PRIOR, **{"log_likelihood": known_noise, **options})
    with pytest.raises(TypeError, match=message):
        thermint.evidence(model)


def test_nan_and_options_that_exclude_each_other_are_refused():
    with pytest.raises(ValueError, match="log_likelihood is NaN or infinite at"):
        thermint.evidence(thermint.from_numpy(NORMAL_PRIOR, lambda p: np.nan))
    with pytest.raises(ValueError, match="both given"):
        thermint.from_numpy(PRIOR, log_likelihood, gradient=gradient, finite_differences=True)
    with pytest.raises(ValueError, match="finite_differences = -1"):
        thermint.from_numpy(PRIOR, log_likelihood, finite_differences=-1)
    with pytest.raises(ValueError, match="the prior of 'x' is a float"):
        thermint.from_numpy({"x": 3.0}, log_likelihood)
