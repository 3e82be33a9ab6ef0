"""Barker proposals (Livingstone and Zanella, JRSS B 84, 2022): the gradient chooses directions, not lengths."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from thermint.kernels.base import Evaluate, Info, Noise, Params, metropolis, target_acceptance
from thermint.model.evaluation import Evaluation, score


@target_acceptance(0.57, uniforms=lambda d: d + 1)
def barker(noise: Noise, state: Evaluation, t: Array, params: Params, evaluate: Evaluate) -> tuple[Evaluation, Info]:
    """Move each whitened coordinate up or down, as its score suggests; for models with steep or heavy tails.

    In coordinates whitened by the rung's adapted covariance, with score s, coordinate i moves by w_i = b_i z_i, where
    z_i is normal and the sign b_i is 1 with probability 1 / (1 + exp(-z_i s_i)). A step that is too long for the
    posterior is rejected more often, but never flies off as one along the gradient does.
    """
    inverse = params.inverse_factor
    size = params.step_size * noise.normal
    up = noise.uniform[:-1] < jax.nn.sigmoid(size * (inverse @ score(state, t)))
    jump = jnp.where(up, size, -size)
    proposal = evaluate(state.position + inverse.T @ jump)
    # log of sigmoid(-w s_back) / sigmoid(w s), where s_back is the score at the proposal.
    there, back = jump * (inverse @ score(state, t)), -jump * (inverse @ score(proposal, t))
    log_correction = jnp.sum(jax.nn.log_sigmoid(back) - jax.nn.log_sigmoid(there))
    return metropolis(noise.uniform[-1], state, proposal, t, log_correction)
