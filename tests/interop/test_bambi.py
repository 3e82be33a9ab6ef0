"""Bambi models: names, priors, and the same densities as models written by hand."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import thermint
from thermint.model.checks import check_shapes
from thermint.model.priors import check_normalised
from thermint.paper import pima

pytest.importorskip("bambi")

import bambi

from thermint.interop.bambi import from_bambi

# Bambi asks pandas for columns of objects in a way that pandas 3 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:For backward compatibility, 'str' dtypes are included")


def _groups() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    x = rng.normal(size=24)
    return pd.DataFrame({"y": 1 + x + rng.normal(size=24), "x": x, "g": pd.Categorical(np.repeat(["a", "b", "c"], 8))})


def test_names_and_data_are_bambis() -> None:
    data = _groups()
    theirs = bambi.Model("y ~ x + (1|g)", data)
    model = from_bambi(theirs)
    assert theirs.built
    assert model.names == (
        *("sigma", "Intercept", "x", "1|g_sigma"),
        *("1|g_offset[a]", "1|g_offset[b]", "1|g_offset[c]"),
    )
    check_shapes(model)
    assert model.data is not None
    np.testing.assert_array_equal(model.data["y"], data["y"])
    assert from_bambi(theirs) is model


def test_automatic_priors_are_proper() -> None:
    for formula in ("y ~ x", "y ~ 0 + x + (1|g)"):
        model = from_bambi(bambi.Model(formula, _groups()))
        check_normalised(replace(model, normalised=False))


def test_flat_priors_are_refused() -> None:
    theirs = bambi.Model("y ~ x", _groups(), priors={"x": bambi.Prior("Flat")})
    with pytest.raises(ValueError, match=r"prior of 'x' \(Flat\) is improper"):
        from_bambi(theirs)


def test_pima_is_the_plain_model() -> None:
    X, y = pima._data(1)
    names = pima.COVARIATES[1]
    prior = bambi.Prior("Normal", mu=0, sigma=pima.TAU**-0.5)
    theirs = bambi.Model(
        f"type ~ {' + '.join(names)}",
        pd.DataFrame({"type": y.astype(int), **{name: X[:, i] for i, name in enumerate(names, 1)}}),
        family="bernoulli",
        priors=dict.fromkeys(["Intercept", *names], prior),
    )
    model, plain = from_bambi(theirs), pima.model(1)
    assert model.names == ("Intercept", *names)
    assert model.metric is not None
    assert plain.metric is not None
    for theta in jax.random.normal(jax.random.key(0), (3, 5)):
        np.testing.assert_allclose(model.log_likelihood(theta), plain.log_likelihood(theta), rtol=1e-10)
        np.testing.assert_allclose(model.log_prior(theta), plain.log_prior(theta), rtol=1e-10)
        for part, expected in zip(model.metric(theta), plain.metric(theta), strict=True):
            np.testing.assert_allclose(part, expected, rtol=1e-8, atol=1e-10)


def test_certain_probabilities_are_not_cut_off() -> None:
    """Bambi replaces probabilities of 0 and 1 by their neighbours; the density of the model itself has no such flat."""
    theirs = bambi.Model("y ~ x", pd.DataFrame({"y": [0, 1], "x": [1.0, -1.0]}), family="bernoulli")
    model = from_bambi(theirs)
    value, slope = jax.value_and_grad(model.log_likelihood)(jnp.array([0.0, 800.0]))
    assert float(value) == pytest.approx(-1600.0)
    np.testing.assert_allclose(slope, [0.0, -2.0], atol=1e-12)


def test_an_evidence_agrees_with_the_regression_by_hand() -> None:
    data = _groups()
    by_formula = from_bambi(
        bambi.Model(
            "y ~ 0 + x",
            data,
            priors={"x": bambi.Prior("Normal", mu=0, sigma=1.5), "sigma": bambi.Prior("HalfNormal", sigma=2.0)},
        )
    )
    x, y = data["x"].to_numpy(), data["y"].to_numpy()
    grid = jnp.stack(jnp.meshgrid(jnp.linspace(-3.0, 4.0, 400), jnp.linspace(-2.0, 2.5, 400), indexing="ij"), axis=-1)
    b, u = grid[..., 0], grid[..., 1]
    log_joint = (
        jnp.sum(_log_normal(y, b[..., None] * x, jnp.exp(u)[..., None]), axis=-1)
        + _log_normal(b, 0.0, 1.5)
        + (jnp.log(2) + _log_normal(jnp.exp(u), 0.0, 2.0) + u)
    )
    exact = jax.nn.logsumexp(log_joint) + np.log(7 / 399 * 4.5 / 399)
    result = thermint.evidence(by_formula, draws=200, populations=2)
    assert abs(result.log_evidence - exact) < 1e-3 + 4 * result.standard_error


def _log_normal(y: np.ndarray | jax.Array, mean: jax.Array | float, scale: jax.Array | float) -> jax.Array:
    y = jnp.asarray(y)
    return -0.5 * ((y - mean) / scale) ** 2 - jnp.log(scale) - 0.5 * jnp.log(2 * jnp.pi)
