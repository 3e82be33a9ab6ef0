"""The Metropolis-adjusted Langevin algorithm, with any metric, and with the adapted covariance of the rung."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array

from thermint.kernels.base import Evaluate, Info, Noise, Params, metropolis, target_acceptance
from thermint.model.evaluation import Evaluation, score
from thermint.runtime.linalg import solve_lower, solve_lower_transposed


@target_acceptance(0.6)
def mala(noise: Noise, state: Evaluation, t: Array, params: Params, evaluate: Evaluate) -> tuple[Evaluation, Info]:
    """Langevin move with the rung's adapted precision as metric; for models that give none."""
    step, factor, inverse = params
    return langevin(noise, state, t, step, lambda point: factor, evaluate, inverse)


def langevin(
    noise: Noise,
    state: Evaluation,
    t: Array,
    step_size: Array,
    factor: Callable[[Evaluation], Array],
    evaluate: Evaluate,
    inverse: Array | None = None,
) -> tuple[Evaluation, Info]:
    """Move by the Metropolis-adjusted Langevin algorithm with metric G = L L', where L = factor(state).

    Proposal (paper, Supplement): N(theta + step^2/2 G^-1 score, step^2 G^-1). Detailed balance needs only that
    ``factor`` is a function of the state. If that is constant, its ``inverse`` may be given, to multiply by instead of
    solving.
    """

    def solved(L: Array, b: Array) -> Array:
        return solve_lower(L, b) if inverse is None else inverse @ b

    # With G = L L', drift and noise are L'^-1 (step^2/2 L^-1 score + step noise): two triangular solves, not three.
    L = factor(state)
    half_drift = 0.5 * step_size * solved(L, score(state, t))
    whole = half_drift + noise.normal
    jump = step_size * (solve_lower_transposed(L, whole) if inverse is None else inverse.T @ whole)
    proposal = evaluate(state.position + jump)
    # The noise that would lead back: L' (-jump) / step = half_drift + noise_back, all at the proposal.
    L_back = factor(proposal)
    half_drift_back = 0.5 * step_size * solved(L_back, score(proposal, t))
    noise_back = -(L_back.T @ jump) / step_size - half_drift_back
    log_correction = jnp.sum(jnp.log(jnp.diag(L_back)) - jnp.log(jnp.diag(L))) + 0.5 * (
        noise.normal @ noise.normal - noise_back @ noise_back
    )
    return metropolis(noise.uniform, state, proposal, t, log_correction)
