"""MALA with a constant metric, adapted to the covariance of the rung."""

from __future__ import annotations

from collections.abc import Callable

from jax import Array

from thermint.kernels.base import Info, Noise, Params, langevin, target_acceptance
from thermint.model.evaluation import Evaluation


@target_acceptance(0.6)
def mala(
    noise: Noise, state: Evaluation, t: Array, params: Params, evaluate: Callable[[Array], Evaluation]
) -> tuple[Evaluation, Info]:
    """Langevin move with the rung's adapted precision as metric; for models that give none."""
    step, factor, inverse = params
    return langevin(noise, state, t, step, lambda point: factor, evaluate, inverse)
