"""What a path starts from: the contract of the prior, of a fitted mixture, and of any family to come."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from jax import Array

from thermint.model.evaluation import Evaluation
from thermint.model.model import Model
from thermint.path.coordinates import RungMoments


class Reference(Protocol):
    """A normalised density q that can be drawn from, where the path q^(1 - t) (likelihood * prior)^t starts.

    A reference is a pytree of arrays (`jax.tree_util.register_dataclass`), so that one compiled program serves every
    reference of a family. `thermint.path.prior` and `thermint.path.mixture` are examples.
    """

    @property
    def components(self) -> int:
        """Number of parts, such as modes, each with features in coordinates of its own."""
        ...

    @property
    def kernel(self) -> str | None:
        """Name of the move in `thermint.kernels` that suits the path; None if that depends on the model alone."""
        ...

    @property
    def covariance(self) -> np.ndarray | None:
        """Covariance [d, d] that kernels scale their steps with; None if the warm-up estimates that of every rung."""
        ...

    def draw(self, model: Model, keys: Array | np.ndarray, first: int, noise: np.ndarray) -> np.ndarray:
        """Draw independently for each population and iteration: [population, iteration, d].

        Args:
            model: the model.
            keys: one key for each population, or its key data. The draw of iteration n may use ``fold_in(key, n)``.
            first: number of the first iteration.
            noise: or these random numbers instead, [population, iteration, d + 2]: d standard normal, two uniform.
        """
        ...

    def relative(self, state: Evaluation, with_metric: bool) -> Evaluation:
        """Turn evaluations of a model into those of the path: log q in place of the prior, the rest as likelihood.

        It may have any leading axes, and works for JAX's arrays, one point at a time, and for NumPy's alike.
        """
        ...

    def coordinates(self, frame: RungMoments) -> RungMoments:
        """Choose the coordinates of the features, given the moments of every rung from the warm-up."""
        ...

    def describe(self) -> dict[str, Any]:
        """Describe it in the settings of a result; "reference" is the name of the family."""
        ...
