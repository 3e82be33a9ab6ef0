"""What kernels share: their parameters, what they report, and the Metropolis-Hastings choice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Protocol, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from thermint.model.evaluation import Evaluation, choose, tempered, usable

Evaluate = Callable[[Array], Evaluation]  # all that is known of the model at a position


class Params(NamedTuple):
    """What the warm-up tunes for each rung, frozen before the draws that count."""

    step_size: Array  # []
    precision_factor: Array  # [d, d], lower Cholesky factor of the inverse of the rung's covariance
    inverse_factor: Array  # [d, d], its inverse


class Noise(NamedTuple):
    """The random numbers of one move, drawn beforehand."""

    normal: Array  # [normals], standard normal; d of them unless the kernel asks for another number
    uniform: Array  # between 0 and 1; a scalar, or [uniforms] where the kernel says how many


class Info(NamedTuple):
    """What a kernel reports of its move."""

    acceptance: Array  # probability with which the proposal was accepted
    proposal: Evaluation
    carry: Array | None = None  # [carry], the kernel's own state after the move, if it has one


class Kernel(Protocol):
    """One move within a rung."""

    def __call__(
        self, noise: Noise, state: Evaluation, t: Array, params: Params, evaluate: Evaluate
    ) -> tuple[Evaluation, Info]:
        """Move ``state`` once, leaving the power posterior at t invariant.

        A kernel with a state of its own is also given that, as ``carry``, and returns it in its `Info`.
        """
        ...


F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Traits:
    """What a kernel needs and costs; see `target_acceptance`."""

    target_acceptance: float = 0.6
    own_metric: bool = False
    evaluations: int = 1
    normals: Callable[[int], int] = lambda d: d
    uniforms: Callable[[int], int] | None = None
    carry: Callable[[int], int] = lambda d: 0

    def numbers(self, d: int) -> tuple[int, int]:
        """Count the normal and the uniform numbers of one move."""
        return self.normals(d), 1 if self.uniforms is None else self.uniforms(d)

    def noise(self, row: Array, d: int) -> Noise:
        """Take the noise of a move from the first columns of a row: the normal numbers, then the uniform ones."""
        normals, uniforms = self.numbers(d)
        uniform = row[..., normals] if self.uniforms is None else row[..., normals : normals + uniforms]
        return Noise(row[..., :normals], uniform)


def traits_of(kernel: Kernel) -> Traits:
    """Return what a kernel says of itself, or the default where it says nothing."""
    names = (field.name for field in fields(Traits))
    return Traits(**{name: getattr(kernel, name) for name in names if hasattr(kernel, name)})


def target_acceptance(
    rate: float,
    *,
    own_metric: bool = False,
    evaluations: int = 1,
    normals: Callable[[int], int] = Traits.normals,
    uniforms: Callable[[int], int] | None = None,
    carry: Callable[[int], int] = Traits.carry,
) -> Callable[[F], F]:
    """Tell the warm-up how to tune a kernel's step size, and the sampler what a move needs and costs.

    Args:
        rate: the acceptance rate that suits the kernel.
        own_metric: the step size is not in units of the rung's adapted covariance.
        evaluations: of the model in one move.
        normals: standard normal numbers of one move, given the dimension d of the parameters; by default d.
        uniforms: numbers between 0 and 1, likewise; ``noise.uniform`` is then a vector. By default it is one scalar.
        carry: numbers in the kernel's own state, likewise. They start as standard normal draws, are given to the kernel
            as ``carry``, are returned in ``Info.carry``, and follow the position through swaps. The kernel must leave
            the product of the power posterior and of the standard normal distribution of its state invariant. At t = 0,
            where positions are drawn afresh, the state stays as it is.

    Example:
        >>> from thermint.kernels import random_walk, target_acceptance
        >>> @target_acceptance(0.5)
        ... def timid(noise, state, t, params, evaluate):
        ...     return random_walk(noise, state, t, params, evaluate)
        >>> timid.target_acceptance
        0.5
    """
    traits = Traits(rate, own_metric, evaluations, normals, uniforms, carry)

    def mark(kernel: F) -> F:
        for name, value in vars(traits).items():
            setattr(kernel, name, value)
        return kernel

    return mark


def apply(
    kernel: Kernel,
    noise: Noise,
    state: Evaluation,
    t: Array,
    params: Params,
    evaluate: Evaluate,
    carry: Array | None,
) -> tuple[Evaluation, Info]:
    """Call a kernel, with its own state if it has one."""
    own: dict[str, Any] = {} if carry is None else {"carry": carry}
    return kernel(noise, state, t, params, evaluate, **own)


def draw_noise(key: Array, shape: tuple[int, ...], dimension: int, traits: Traits = Traits()) -> Noise:
    """Draw the noise of many moves by one call of the generator, which takes long to compile.

    Args:
        key: its source.
        shape: of the moves.
        dimension: of the parameters.
        traits: of the kernel.
    """
    normals, uniforms = traits.numbers(dimension)
    # Open at -1, where the normal quantile is infinite.
    row = jax.random.uniform(key, (*shape, normals + uniforms), minval=jnp.nextafter(-1.0, 0.0), maxval=1.0)
    normal, uniform = traits.noise(row, dimension)
    return Noise(jnp.sqrt(2.0) * jax.lax.erf_inv(normal), (uniform + 1) / 2)


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
