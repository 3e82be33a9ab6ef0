"""Models of many data give the same answers in less memory: data become arguments, and points go in batches."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jax.tree_util import Partial
from targets import SKEWED_2

import thermint
from thermint.model import Model
from thermint.model.closure_constants import LARGEST_ARRAY, cheap_to_run, lift_constants, map_points
from thermint.path.path import evaluate_many

D = 3


def logistic(rows: int) -> Model:
    rng = np.random.default_rng(0)
    X = jnp.asarray(rng.normal(size=(rows, D)))
    y = jnp.asarray(rng.uniform(size=rows) < 0.5, dtype=float)

    def log_likelihood(theta: Array) -> Array:
        eta = X @ theta
        return jnp.sum(y * eta - jnp.logaddexp(0.0, eta))

    return Model(
        log_likelihood,
        lambda theta: -0.5 * jnp.sum(theta**2) - 0.5 * D * jnp.log(2 * jnp.pi),
        lambda key: jax.random.normal(key, (D,)),
        metric=lambda theta: (X.T @ X / 4, jnp.eye(D)),
    )


def test_data_become_arguments_where_there_are_many() -> None:
    small, large = lift_constants(logistic(100)), lift_constants(logistic(100_000))
    assert not isinstance(small.log_likelihood, Partial)
    assert jax.tree.leaves(small) == []
    assert isinstance(large.log_likelihood, Partial)
    assert isinstance(large.metric, Partial)
    assert sorted(leaf.shape for leaf in jax.tree.leaves(large)) == [(100_000,), (100_000, D), (100_000, D)]
    constants = jax.make_jaxpr(lambda model, x: model.log_likelihood(x))(large, jnp.zeros(D)).consts
    assert constants == []


def test_the_same_model_gives_the_same_program() -> None:
    model = logistic(100_000)
    once, again = lift_constants(model), lift_constants(model)
    assert once.log_likelihood is again.log_likelihood
    assert str(jax.tree.structure(once)) == str(jax.tree.structure(again))
    assert lift_constants(once) == once


def test_values_gradients_and_metric_are_the_same() -> None:
    model = logistic(100_000)
    position = np.random.default_rng(1).normal(size=(2, 5, D))
    got, wanted = evaluate_many(lift_constants(model), position), evaluate_many(model, position)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-10), got, wanted)


@pytest.mark.parametrize("rows", [100, 100_000, 10_000_000])
def test_batches_fit_in_memory(rows: int) -> None:
    """By the size of what is computed on the way: nothing is run."""
    like = jax.ShapeDtypeStruct((rows, D), jnp.float64)

    def log_likelihood(theta: Array) -> Array:
        return jnp.sum(jnp.exp(jnp.zeros(like.shape) @ theta))

    model = replace(logistic(10), log_likelihood=log_likelihood, metric=None)
    points = lift_constants(model).batch
    assert points == max(1, LARGEST_ARRAY // (rows * D * 8))


def test_from_a_megabyte_on_data_become_arguments() -> None:
    """Three columns and an outcome of 30 000 rows take less, of 40 000 more."""
    assert not isinstance(lift_constants(logistic(30_000)).log_likelihood, Partial)
    assert isinstance(lift_constants(logistic(40_000)).log_likelihood, Partial)


def test_models_that_compute_little_are_not_worth_optimising() -> None:
    """In all evaluations of a default call, logistic regression of 200 rows computes 0.7e8 numbers, of 400 1.4e8."""
    assert cheap_to_run(logistic(200))
    assert not cheap_to_run(logistic(400))
    assert cheap_to_run(logistic(400), evaluations=10_000)


def test_a_user_may_choose_the_batch() -> None:
    assert lift_constants(replace(logistic(100), batch=7)).batch == 7


def test_loops_inside_are_seen() -> None:
    def log_likelihood(theta: Array) -> Array:
        def body(carry: Array, _: None) -> tuple[Array, None]:
            return carry + jnp.sum(jnp.ones(1_000_000) * theta[0]), None

        return jax.lax.scan(body, theta[0], length=3)[0]

    points = lift_constants(replace(logistic(10), log_likelihood=log_likelihood, metric=None)).batch
    assert points == LARGEST_ARRAY // 8_000_000


@pytest.mark.parametrize("batch", [None, 1, 2, 3, 7, 10])
def test_points_are_mapped_in_order_whatever_the_batch(batch: int | None) -> None:
    x, y = jnp.arange(7.0), jnp.arange(14.0).reshape(7, 2)
    got = map_points(lambda a, b: {"sum": a + b.sum(), "both": a * b}, batch, 7)(x, y)
    np.testing.assert_array_equal(got["sum"], x + y.sum(axis=1))
    np.testing.assert_array_equal(got["both"], x[:, None] * y)


def test_answers_do_not_depend_on_the_batch() -> None:
    """But for rounding, which chains may amplify: the same within a hundredth of the error."""
    options: dict[str, Any] = {"draws": 100, "populations": 2, "seed": 3, "progress": False}
    whole = thermint.evidence(SKEWED_2.model, **options)
    parts = thermint.evidence(replace(SKEWED_2.model, batch=3), **options)
    assert whole.standard_error < 4e-4
    assert abs(parts.log_evidence - whole.log_evidence) < 0.01 * whole.standard_error
    assert parts.standard_error == pytest.approx(whole.standard_error, rel=0.01)
    assert parts.evaluations == whole.evaluations


def test_models_that_call_lapack_have_one_device() -> None:
    def log_likelihood(theta: Array) -> Array:
        factor = jnp.linalg.cholesky(jnp.exp(theta[0]) * jnp.eye(3) + 1.0)
        return -jnp.sum(jnp.log(jnp.diag(factor)))

    assert lift_constants(replace(logistic(10), log_likelihood=log_likelihood)).one_device
    assert not lift_constants(logistic(10)).one_device
