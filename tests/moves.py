"""What is random in a move of any kernel, a kernel with a state of its own, and the flaws of broken kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from thermint.kernels import Info, Noise, Params, target_acceptance
from thermint.kernels.base import metropolis, traits_of
from thermint.kernels.hmc import leapfrog
from thermint.model.evaluation import Evaluation, choose, score


class Chance(NamedTuple):
    """What is random in a move: its noise, and the kernel's own state before it, if there is one."""

    noise: Noise
    carry: Array | None


def draw_chance(rng: np.random.Generator, shape: tuple[int, ...], dimension: int, kernel: Callable) -> Chance:
    traits = traits_of(kernel)
    normals, uniforms = traits.numbers(dimension)
    numbers = np.concatenate([rng.standard_normal((*shape, normals)), rng.random((*shape, uniforms))], axis=-1)
    carry = traits.carry(dimension)
    own = jnp.asarray(rng.standard_normal((*shape, carry))) if carry else None
    return Chance(traits.noise(jnp.asarray(numbers), dimension), own)


FLAWS = (
    "none",
    "accepts always",
    "t of a neighbouring rung",
    "noise decides on acceptance",
    "no correction",
    "no determinant",
    "reverse drift has the wrong sign",
    "reverse metric is the state's",
    "no fallback in reverse",
    "reverse factor transposed",
    "step depends on the position",
    "kinetic energy has the wrong sign",
    "no half step at the end",
    "momentum drawn with another mass",
    "momentum does not turn",
)


def has(flaw: Array, name: str, wrong: Any, right: Any) -> Any:
    return choose(flaw == FLAWS.index(name), wrong, right)


@target_acceptance(0.8, carry=lambda d: d)
def persistent(
    noise: Noise,
    state: Evaluation,
    t: Array,
    params: Params,
    evaluate: Callable[[Array], Evaluation],
    carry: Array,
    flaw: Array | None = None,
) -> tuple[Evaluation, Info]:
    """Generalised Hamiltonian Monte Carlo (Horowitz, 1991): each step goes on with most of the last one's momentum."""
    L, L_inverse = params.precision_factor, params.inverse_factor
    covariance = L_inverse.T @ L_inverse
    momentum = 0.8 * carry + 0.6 * noise.normal
    velocity = L_inverse.T @ momentum
    end, velocity = leapfrog(1, params.step_size, state, velocity, lambda x: covariance @ score(x, t), evaluate)
    last = L.T @ velocity
    state, info = metropolis(noise.uniform, state, end, t, (momentum @ momentum - last @ last) / 2)
    turned = -momentum if flaw is None else has(flaw, "momentum does not turn", momentum, -momentum)
    return state, info._replace(carry=jnp.where(noise.uniform < info.acceptance, last, turned))
