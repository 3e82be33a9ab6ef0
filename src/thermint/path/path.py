"""A path: a model and the reference that it is reached from."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

import jax
import numpy as np
from jax import Array

from thermint.model.closure_constants import cheap_to_run, map_points
from thermint.model.evaluation import Evaluation, evaluate
from thermint.model.model import Model
from thermint.path.prior import Prior
from thermint.path.reference import Reference
from thermint.runtime.programs import jit


@partial(jax.tree_util.register_dataclass, data_fields=["model", "reference"], meta_fields=["with_metric"])
@dataclass(frozen=True)
class Path:
    """The densities between a reference, at t = 0, and the posterior, at t = 1; a pytree.

    In every `Evaluation` of it, the "prior" is the reference's density q, and the "likelihood" is likelihood * prior /
    q, whose log is called g. So the evidence is the same for every reference.
    """

    model: Model
    reference: Reference = field(default_factory=Prior)
    with_metric: bool = True  # evaluate the metric too, where there is one

    def evaluate(self, position: Array) -> Evaluation:
        """Evaluate at one position, [d], in a program of JAX."""
        return self._relative(evaluate(self._model, position))

    def evaluate_many(self, position: np.ndarray | Array) -> Evaluation:
        """Evaluate at positions [population, many, d], as NumPy arrays."""
        return self._relative(evaluate_many(self._model, position))

    def draw(self, keys: Array | np.ndarray, first: int, noise: np.ndarray) -> np.ndarray:
        """Draw from the reference; see there."""
        return self.reference.draw(self.model, keys, first, noise)

    @property
    def _model(self) -> Model:
        return self.model if self.with_metric else replace(self.model, metric=None)

    def _relative(self, state: Evaluation) -> Evaluation:
        found = self.reference.relative(state, self.with_metric)
        # The gradient of g is as unknown as that of the likelihood, which counts as zero.
        return found if self.model.differentiable else found._replace(grad_log_likelihood=state.grad_log_likelihood)


def evaluate_many(model: Model, position: np.ndarray | Array) -> Evaluation:
    """Evaluate a model at positions [population, many, d], as NumPy arrays."""
    return jax.tree.map(np.asarray, _evaluate_many(position, model=model, level=0 if cheap_to_run(model) else 1))


@jit("level")
def _evaluate_many(position: Array, *, model: Model, level: int) -> Evaluation:
    del level
    flat = position.reshape(-1, position.shape[-1])
    found = map_points(partial(evaluate, model), model.batch, len(flat))(flat)
    return jax.tree.map(lambda a: a.reshape(*position.shape[:-1], *a.shape[1:]), found)
