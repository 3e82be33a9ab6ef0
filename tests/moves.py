"""What is random in a move of any kernel, a kernel with a state of its own, and the flaws of broken kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from targets import SKEWED_2, Target

from thermint import Model
from thermint.kernels import Info, Kernel, Noise, Params, hmc, mala, target_acceptance
from thermint.kernels.base import apply, metropolis, traits_of
from thermint.kernels.hmc import leapfrog
from thermint.model.evaluation import Evaluation, choose, evaluate, score


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


T = 0.5
FACTORS = {1: np.array([[1.3]]), 2: np.array([[1.1, 0.0], [-0.6, 1.5]])}  # of the adapted precision; not diagonal

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
def _persistent(
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


persistent: Any = _persistent  # which has one argument more than the protocol of kernels without a state
persistent.__name__ = "persistent"


def start(model: Model, position: list[float]) -> Evaluation:
    return jax.jit(partial(evaluate, model))(jnp.asarray(position))


def params(target: Target, step_size: float, kernel: Callable | None = None) -> Params:
    # For hmc the same steps in other units, in which its trajectories are not too long.
    unit = 4.0 if getattr(kernel, "__name__", "") in ("hmc", "broken_hmc") else 1.0
    factor = FACTORS[target.model.dimension] / unit
    return Params(jnp.asarray(step_size / unit), jnp.asarray(factor), jnp.asarray(np.linalg.inv(factor)))


@partial(jax.jit, static_argnames="kernel")
def moves(chance: Chance, states: Evaluation, values: dict[str, float], *, kernel: Kernel) -> tuple[Evaluation, Info]:
    """Move each of many states once; what is not zero among ``values`` replaces the values of the proposal."""
    return jax.vmap(lambda chance, state: spoiled_move(chance, state, values, kernel))(chance, states)


def spoiled_move(
    chance: Chance, state: Evaluation, values: dict[str, float], kernel: Kernel
) -> tuple[Evaluation, Info]:
    def spoiled(x: Array) -> Evaluation:
        good = evaluate(SKEWED_2.model, x)
        return good._replace(**{name: jnp.where(v == 0, getattr(good, name), v) for name, v in values.items()})

    now = params(SKEWED_2, 0.8 if kernel is hmc else 1.3, kernel)
    return apply(kernel, chance.noise, state, jnp.asarray(T), now, spoiled, chance.carry)


GOOD = dict.fromkeys(("log_likelihood", "log_prior", "grad_log_likelihood", "grad_log_prior"), 0.0)


def some_noise() -> Noise:
    """Noise of 2000 moves in two dimensions."""
    return draw_chance(np.random.default_rng(2), (2000,), 2, mala).noise


@cache
def some_states() -> Evaluation:
    """2000 exact draws of `SKEWED_2` at T."""
    x = SKEWED_2.draw(np.random.default_rng(1), T, 2000)
    return jax.jit(jax.vmap(partial(evaluate, SKEWED_2.model)))(jnp.asarray(x))
