"""Random-walk Metropolis: no gradients, for checking the others."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array

from thermint.kernels.base import Info, Noise, Params, metropolis, target_acceptance
from thermint.linalg import solve_lower_transposed
from thermint.model import Evaluation


@target_acceptance(0.3)
def random_walk(
    noise: Noise, state: Evaluation, t: Array, params: Params, evaluate: Callable[[Array], Evaluation]
) -> tuple[Evaluation, Info]:
    """Propose a normal step with the rung's adapted covariance."""
    inverse = params.inverse_factor
    step = (
        solve_lower_transposed(params.precision_factor, noise.normal) if inverse is None else inverse.T @ noise.normal
    )
    proposal = evaluate(state.position + params.step_size * step)
    return metropolis(noise.uniform, state, proposal, t, jnp.zeros(()))
