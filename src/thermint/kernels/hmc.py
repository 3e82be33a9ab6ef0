"""Hamiltonian Monte Carlo with a constant metric, adapted to the covariance of the rung."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import jax
import jax.numpy as jnp
from jax import Array

from thermint.kernels.base import Evaluate, Info, Kernel, Noise, Params, metropolis, target_acceptance, traits_of
from thermint.model.evaluation import Evaluation, score, usable
from thermint.model.options import require_whole

STEPS = 4  # the longest trajectory, a quarter of a period, takes steps of 0.4 standard deviations
JITTER = 0.2  # of the step size, either way: enough for directions that turn back once in a trajectory to forget
LEVELS = 16  # of the step size, which share the uniform number with the decision to accept


@target_acceptance(0.8, evaluations=STEPS)
def hmc(noise: Noise, state: Evaluation, t: Array, params: Params, evaluate: Evaluate) -> tuple[Evaluation, Info]:
    """Follow Hamilton's equations for a few steps, with the rung's adapted precision as mass; for many parameters."""
    return move(STEPS, noise, state, t, params, evaluate)


@cache
def hamiltonian(steps: int) -> Kernel:
    """Make `hmc` with another number of leapfrog steps; the same kernel for the same number, so that jit knows it.

    >>> hamiltonian(16) is hamiltonian(16)
    True
    """
    require_whole("steps", steps, at_least=1)

    @target_acceptance(traits_of(hmc).target_acceptance, evaluations=steps)
    def kernel(
        noise: Noise, state: Evaluation, t: Array, params: Params, evaluate: Evaluate
    ) -> tuple[Evaluation, Info]:
        return move(steps, noise, state, t, params, evaluate)

    kernel.__name__ = kernel.__qualname__ = f"hamiltonian({steps})"
    return kernel


def move(
    steps: int,
    noise: Noise,
    state: Evaluation,
    t: Array,
    params: Params,
    evaluate: Evaluate,
) -> tuple[Evaluation, Info]:
    """Propose the end of a trajectory with mass matrix G = L L', where L is the factor of the adapted precision.

    The momentum is L noise. What is followed is the velocity, G^-1 momentum = L'^-1 noise, so that a step takes one
    product with the covariance G^-1. The kinetic energy is |L' velocity|^2 / 2.
    """
    level, uniform = split(noise.uniform)
    # For a normal target in whitened coordinates, the correlation of a position with its start is cos(time), and that
    # of its square cos(time)^2: longer than a quarter of the period, trajectories turn back. The time is random,
    # lest some direction with another period never forget where it was.
    step_size = jnp.minimum(params.step_size, math.pi / 2 / steps) * (1 + JITTER * (2 * level - 1))
    L, L_inverse = params.precision_factor, params.inverse_factor
    covariance = L_inverse.T @ L_inverse

    def acceleration(point: Evaluation) -> Array:
        return score(point, t) @ covariance

    velocity = L_inverse.T @ noise.normal
    proposal, velocity = leapfrog(steps, step_size, state, velocity, acceleration, evaluate)
    noise_back = L.T @ velocity
    return metropolis(uniform, state, proposal, t, (noise.normal @ noise.normal - noise_back @ noise_back) / 2)


def leapfrog(
    steps: int,
    step_size: Array,
    state: Evaluation,
    velocity: Array,
    acceleration: Callable[[Evaluation], Array],
    evaluate: Evaluate,
) -> tuple[Evaluation, Array]:
    """Follow a trajectory to its end, or to the first point where the model cannot be used.

    There it stays, and its velocity is NaN: that point is the proposal, which is refused, and counted for what it is.
    The way back from the end would have met the same point, so that this keeps the balance.
    """

    def kick(velocity: Array, point: Evaluation, time: Array) -> Array:
        return jnp.where(usable(point), velocity + time * acceleration(point), jnp.nan)

    def drift(position: Array, velocity: Array) -> Array:
        return jnp.where(jnp.isnan(velocity), position, position + step_size * velocity)

    def leap(_: int, now: tuple[Array, Array]) -> tuple[Array, Array]:
        position, velocity = drift(*now), now[1]
        return position, kick(velocity, evaluate(position), step_size)

    # XLA drops what is not used of an evaluation, so that the metric is computed at the end only.
    now = state.position, kick(velocity, state, step_size / 2)
    position, velocity = jax.lax.fori_loop(0, steps - 1, leap, now)
    end = evaluate(drift(position, velocity))
    return end, kick(velocity, end, step_size / 2)


def split(uniform: Array) -> tuple[Array, Array]:
    """Turn one uniform number into two independent ones: the middle of one of `LEVELS` intervals, and the rest."""
    interval = jnp.floor(LEVELS * uniform)
    return (interval + 0.5) / LEVELS, LEVELS * uniform - interval
