"""What kernels share: their parameters, what they report, and the Metropolis-Hastings choice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import ndtr

from thermint.model import Evaluation, choose, score, tempered


class Params(NamedTuple):
    """What the warm-up tunes for each rung, frozen before the draws that count."""

    step_size: Array  # []
    precision_factor: Array  # [d, d], lower Cholesky factor of the inverse of the rung's covariance


class Info(NamedTuple):
    """What a kernel says of its move."""

    acceptance: Array  # probability with which the proposal was accepted
    proposal: Evaluation


class Kernel(Protocol):
    """One move within a rung."""

    def __call__(
        self, key: Array, state: Evaluation, t: Array, params: Params, evaluate: Callable[[Array], Evaluation]
    ) -> tuple[Evaluation, Info]:
        """Move ``state`` once, leaving the power posterior at t invariant."""
        ...


F = TypeVar("F", bound=Callable[..., Any])


def target_acceptance(rate: float) -> Callable[[F], F]:
    """Decorate a kernel with the acceptance rate that the warm-up tunes its step size to."""

    def mark(kernel: F) -> F:
        kernel.target_acceptance = rate  # type: ignore[attr-defined]
        return kernel

    return mark


def draw_noise(key: Array, dimension: int) -> tuple[Array, Array]:
    """Draw a standard normal vector and one uniform number, by one call of the generator (which is dear to compile)."""
    normal = jax.random.normal(key, (dimension + 1,))
    return normal[:-1], ndtr(normal[-1])


def metropolis(
    uniform: Array, state: Evaluation, proposal: Evaluation, t: Array, log_correction: Array
) -> tuple[Evaluation, Info]:
    """Accept the proposal with the Metropolis-Hastings probability.

    Args:
        uniform: the random number that decides, between 0 and 1.
        state: where the chain is.
        proposal: where it may go.
        t: inverse temperature.
        log_correction: log q(state | proposal) - log q(proposal | state).
    """
    log_ratio = tempered(proposal, t) - tempered(state, t) + log_correction
    # A NaN anywhere in the proposal makes the ratio NaN: it is never accepted.
    acceptance = jnp.where(jnp.isnan(log_ratio), 0.0, jnp.exp(jnp.minimum(log_ratio, 0.0)))
    return choose(uniform < acceptance, proposal, state), Info(acceptance, proposal)


def langevin(
    key: Array,
    state: Evaluation,
    t: Array,
    step_size: Array,
    factor: Callable[[Evaluation], Array],
    evaluate: Callable[[Array], Evaluation],
) -> tuple[Evaluation, Info]:
    """Move by the Metropolis-adjusted Langevin algorithm with metric G = L L', where L = factor(state).

    Proposal (paper, Supplement): N(theta + step^2/2 G^-1 score, step^2 G^-1). Detailed balance needs only that
    ``factor`` is a function of the state.
    """

    def drifted(point: Evaluation, L: Array) -> Array:
        half = solve_triangular(L, score(point, t), lower=True)
        return point.position + 0.5 * step_size**2 * solve_triangular(L, half, lower=True, trans="T")

    L = factor(state)
    noise, uniform = draw_noise(key, state.position.size)
    proposal = evaluate(drifted(state, L) + step_size * solve_triangular(L, noise, lower=True, trans="T"))

    L_back = factor(proposal)
    noise_back = L_back.T @ (state.position - drifted(proposal, L_back)) / step_size
    log_correction = (
        jnp.sum(jnp.log(jnp.diag(L_back)) - jnp.log(jnp.diag(L))) - (noise_back @ noise_back - noise @ noise) / 2
    )
    return metropolis(uniform, state, proposal, t, log_correction)
