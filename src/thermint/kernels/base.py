"""What kernels share: their parameters, what they report, and the Metropolis-Hastings choice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from thermint.model.evaluation import Evaluation, choose, score, tempered, usable
from thermint.runtime.linalg import solve_lower, solve_lower_transposed


class Params(NamedTuple):
    """What the warm-up tunes for each rung, frozen before the draws that count."""

    step_size: Array  # []
    precision_factor: Array  # [d, d], lower Cholesky factor of the inverse of the rung's covariance
    inverse_factor: Array  # [d, d], its inverse


class Noise(NamedTuple):
    """The randomness of one move, drawn beforehand."""

    normal: Array  # [d], standard normal
    uniform: Array  # [], between 0 and 1


class Info(NamedTuple):
    """What a kernel says of its move."""

    acceptance: Array  # probability with which the proposal was accepted
    proposal: Evaluation


class Kernel(Protocol):
    """One move within a rung."""

    def __call__(
        self, noise: Noise, state: Evaluation, t: Array, params: Params, evaluate: Callable[[Array], Evaluation]
    ) -> tuple[Evaluation, Info]:
        """Move ``state`` once, leaving the power posterior at t invariant."""
        ...


F = TypeVar("F", bound=Callable[..., Any])


def target_acceptance(rate: float, *, own_metric: bool = False, evaluations: int = 1) -> Callable[[F], F]:
    """Tell the warm-up how to tune a kernel's step size, and the sampler what a move costs.

    Args:
        rate: the acceptance rate that suits the kernel.
        own_metric: the step size is not in units of the rung's adapted covariance.
        evaluations: of the model in one move.

    Example:
        >>> from thermint.kernels import random_walk, target_acceptance
        >>> @target_acceptance(0.5)
        ... def timid(noise, state, t, params, evaluate):
        ...     return random_walk(noise, state, t, params, evaluate)
        >>> timid.target_acceptance
        0.5
    """

    def mark(kernel: F) -> F:
        kernel.target_acceptance = rate  # type: ignore[attr-defined]
        kernel.own_metric = own_metric  # type: ignore[attr-defined]
        kernel.evaluations = evaluations  # type: ignore[attr-defined]
        return kernel

    return mark


def draw_noise(key: Array, shape: tuple[int, ...], dimension: int) -> Noise:
    """Draw the randomness of many moves by one call of the generator, which is dear to compile.

    Args:
        key: its source.
        shape: of the moves.
        dimension: of the parameters.
    """
    # Open at -1, where the normal quantile is infinite.
    uniform = jax.random.uniform(key, (*shape, dimension + 1), minval=jnp.nextafter(-1.0, 0.0), maxval=1.0)
    return Noise(jnp.sqrt(2.0) * jax.lax.erf_inv(uniform[..., :-1]), (uniform[..., -1] + 1) / 2)


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
    # A metric or an earlier gradient may be NaN where the proposal itself is not.
    allowed = usable(proposal) & ~jnp.isnan(log_ratio)
    acceptance = jnp.where(allowed, jnp.exp(jnp.minimum(log_ratio, 0.0)), 0.0)
    return choose(uniform < acceptance, proposal, state), Info(acceptance, proposal)


def langevin(
    noise: Noise,
    state: Evaluation,
    t: Array,
    step_size: Array,
    factor: Callable[[Evaluation], Array],
    evaluate: Callable[[Array], Evaluation],
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
