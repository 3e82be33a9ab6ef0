"""Random-walk Metropolis: no gradients, for checking the others."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from thermint.kernels.base import Evaluate, Info, Noise, Params, metropolis, target_acceptance
from thermint.model.evaluation import Evaluation


@target_acceptance(0.3)
def random_walk(
    noise: Noise, state: Evaluation, t: Array, params: Params, evaluate: Evaluate
) -> tuple[Evaluation, Info]:
    """Propose a normal step with the rung's adapted covariance."""
    proposal = evaluate(state.position + params.step_size * (params.inverse_factor.T @ noise.normal))
    return metropolis(noise.uniform, state, proposal, t, jnp.zeros(()))
