"""Random-walk Metropolis: no gradients, for checking the others."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import solve_triangular

from thermint.kernels.base import Info, Params, draw_noise, metropolis, target_acceptance
from thermint.model import Evaluation


@target_acceptance(0.3)
def random_walk(
    key: Array, state: Evaluation, t: Array, params: Params, evaluate: Callable[[Array], Evaluation]
) -> tuple[Evaluation, Info]:
    """Propose a normal step with the rung's adapted covariance."""
    noise, uniform = draw_noise(key, state.position.size)
    step = solve_triangular(params.precision_factor, noise, lower=True, trans="T")
    proposal = evaluate(state.position + params.step_size * step)
    return metropolis(uniform, state, proposal, t, jnp.zeros(()))
