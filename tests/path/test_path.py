"""A path from any reference: the prior, and a family that this file alone knows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path as File
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from scipy import special, stats
from targets import NORMAL, SKEWED_2

import thermint
from thermint import Model
from thermint.model import Evaluation, evaluate
from thermint.model.checks import check_gradients, shifts
from thermint.path.coordinates import RungMoments
from thermint.path.path import Path
from thermint.runtime import keys
from thermint.runtime.store import storable
from thermint.sampling.noise import Block, noise
from thermint.search import refinement


@jax.tree_util.register_dataclass
@storable
@dataclass(frozen=True)
class Laplace:
    """Independent Laplace distributions."""

    mean: Any  # [d]
    scale: Any  # [d]

    @property
    def components(self) -> int:
        return 1

    @property
    def kernel(self) -> str:
        return "mala"

    @property
    def covariance(self) -> np.ndarray:
        return np.diag(2 * np.asarray(self.scale) ** 2)

    def draw(self, model: Model, keys: Array | np.ndarray, first: int, noise: np.ndarray) -> np.ndarray:
        uniform = special.ndtr(noise[..., :-2])
        return np.asarray(stats.laplace.ppf(uniform, self.mean, self.scale))

    def relative(self, state: Evaluation, with_metric: bool) -> Evaluation:
        np_: Any = jnp if isinstance(state.position, Array) else np
        z = (state.position - self.mean) / self.scale
        log_q = -np_.sum(np_.abs(z) + np_.log(2 * self.scale), axis=-1)
        grad = -np_.sign(z) / self.scale
        return Evaluation(
            state.position,
            state.log_likelihood + state.log_prior - log_q,
            log_q,
            state.grad_log_likelihood + state.grad_log_prior - grad,
            grad,
        )

    def coordinates(self, frame: RungMoments) -> RungMoments:
        return frame

    def describe(self) -> dict[str, Any]:
        return {"reference": "fitted", "family": "laplace"}


AWAY = Laplace(np.array([0.5, -0.5]), np.array([1.0, 2.0]))


def test_the_prior_is_the_model_itself() -> None:
    path, theta = Path(SKEWED_2.model), jnp.array([0.3, -0.8])
    jax.tree.map(np.testing.assert_array_equal, path.evaluate(theta), evaluate(SKEWED_2.model, theta))
    assert replace(path, with_metric=False).evaluate(theta).fisher is None
    key, numbers = keys.key(3), np.zeros((1, 5, 4))
    expected = jax.vmap(SKEWED_2.model.sample_prior)(jax.random.split(key, 7)[2:])
    np.testing.assert_allclose(path.draw(key[None], 2, numbers)[0], expected, rtol=1e-12)


@pytest.mark.parametrize("reference", [None, AWAY])
def test_one_point_and_many_are_evaluated_alike(reference: Laplace | None) -> None:
    path = Path(SKEWED_2.model) if reference is None else Path(SKEWED_2.model, reference)
    theta = np.random.default_rng(0).standard_normal((2, 3, 2))
    many = path.evaluate_many(theta)
    for i, j in np.ndindex(2, 3):
        one = path.evaluate(jnp.asarray(theta[i, j]))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b[i, j], rtol=1e-12), one, many)  # noqa: B023
    assert all(isinstance(part, np.ndarray) for part in many if part is not None)


def test_the_gradient_of_g_is_unknown_where_the_models_is() -> None:
    blind = replace(SKEWED_2.model, differentiable=False, metric=None)
    state = Path(blind, AWAY).evaluate(jnp.array([0.3, -0.8]))
    np.testing.assert_array_equal(state.grad_log_likelihood, 0.0)
    np.testing.assert_allclose(state.grad_log_prior, [1.0, 0.5])
    joint = blind.log_likelihood(state.position) + blind.log_prior(state.position)
    np.testing.assert_allclose(state.log_likelihood + state.log_prior, joint)


def test_another_family_is_a_density_with_its_draws_and_gradients() -> None:
    path, key = Path(NORMAL.model, AWAY), keys.key(1)[None]
    (numbers,) = noise(key, 0, 20_000, Block(1, 2, 2))
    x = path.draw(key, 0, numbers[:, :, 0])
    state = path.evaluate_many(x)
    # The mean likelihood under the reference is the evidence, only if draws and density agree.
    ratio = np.exp(state.log_likelihood[0] - NORMAL.log_evidence)
    error = ratio.std() / np.sqrt(ratio.size)
    assert error < 0.05
    assert abs(ratio.mean() - 1) < 4 * error
    shift = shifts(x.shape, AWAY.scale)
    check_gradients(NORMAL.model, state, shift, *(path.evaluate_many(x + s) for s in (shift, -shift)))


def test_evidence_takes_another_family_from_the_place_that_chooses(
    monkeypatch: pytest.MonkeyPatch, tmp_path: File
) -> None:
    def choose(model: Model, position: np.ndarray, score: np.ndarray) -> Laplace:
        flat = position.reshape(-1, position.shape[-1])
        return Laplace(np.median(flat, axis=0), np.abs(flat - np.median(flat, axis=0)).mean(axis=0))

    monkeypatch.setattr(refinement, "choose_reference", choose)
    result = thermint.evidence(SKEWED_2.model, reference="fitted", seed=1, checkpoint=tmp_path / "run")
    assert result.settings["family"] == "laplace"
    assert result.settings["kernel"] == "mala"
    assert result.standard_error < 0.01
    assert abs(result.log_evidence - SKEWED_2.log_evidence) < 4 * result.standard_error
    again = thermint.evidence(SKEWED_2.model, reference="fitted", seed=1, checkpoint=tmp_path / "run")
    assert again.log_evidence == result.log_evidence
