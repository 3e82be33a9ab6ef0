"""The prior as the reference of a path: power posteriors, as in the paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import Array

from thermint.model.evaluation import Evaluation
from thermint.model.model import Model
from thermint.model.priors import draw_prior
from thermint.path.coordinates import RungMoments
from thermint.runtime import keys as random


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Prior:
    """The model's own prior."""

    @property
    def components(self) -> int:
        """One: features are built in the coordinates of each rung."""
        return 1

    @property
    def kernel(self) -> str | None:
        """None: it depends on the model."""
        return None

    @property
    def covariance(self) -> np.ndarray | None:
        """None: rungs differ too much for one covariance."""
        return None

    def draw(self, model: Model, keys: Array | np.ndarray, first: int, noise: np.ndarray) -> np.ndarray:
        """Draw by the model's ``sample_prior``."""
        return draw_prior(model, random.split(keys, noise.shape[1], first))

    def relative(self, state: Evaluation, with_metric: bool) -> Evaluation:
        """Return the evaluation as it is."""
        return state

    def coordinates(self, frame: RungMoments) -> RungMoments:
        """Return the moments of every rung as they are."""
        return frame

    def describe(self) -> dict[str, Any]:
        """Name it."""
        return {"reference": "prior"}
