"""Hamiltonian Monte Carlo: trajectories that lead back, keep volumes and end in time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from moves import GOOD, Chance, T, moves, params, some_noise, some_states, start
from targets import SKEWED_2, Target, normal

import thermint
from thermint import Draws, Model
from thermint.diagnostics import convergence
from thermint.kernels import Info, Noise, Params, hamiltonian, hmc, mala
from thermint.kernels.hmc import JITTER, LEVELS, STEPS, leapfrog, split
from thermint.model.evaluation import Evaluation, evaluate, score


@pytest.fixture
def noise() -> Noise:
    return some_noise()


@pytest.fixture
def states() -> Evaluation:
    return some_states()


def fly(
    model: Model, steps: int, step_size: float, x: Array, velocity: Array, evaluations: Callable | None = None
) -> tuple[Evaluation, Array]:
    """Follow a trajectory in unit metric."""
    see = evaluations or partial(evaluate, model)
    return leapfrog(steps, jnp.asarray(step_size), see(x), velocity, lambda point: score(point, jnp.asarray(T)), see)


def energy(point: Evaluation, velocity: Array) -> Array:
    return -point.log_prior - T * point.log_likelihood + velocity @ velocity / 2


START = jnp.array([0.3, -0.8]), jnp.array([0.7, 0.4])


@pytest.mark.parametrize("steps", [1, 2, 7])
def test_leapfrog_leads_back_and_keeps_volumes(steps: int) -> None:
    end, velocity = fly(SKEWED_2.model, steps, 0.4, *START)
    assert np.linalg.norm(end.position - START[0]) > 0.1
    back, reverse = fly(SKEWED_2.model, steps, 0.4, end.position, -velocity)
    np.testing.assert_allclose(back.position, START[0], atol=1e-10)
    np.testing.assert_allclose(-reverse, START[1], atol=1e-10)

    def flow(both: Array) -> Array:
        end, velocity = fly(SKEWED_2.model, steps, 0.4, both[:2], both[2:])
        return jnp.concatenate([end.position, velocity])

    assert np.linalg.det(jax.jit(jax.jacfwd(flow))(jnp.concatenate(START))) == pytest.approx(1.0, abs=1e-10)


def test_energy_error_is_of_second_order() -> None:
    def error(steps: int) -> float:
        return float(energy(*fly(SKEWED_2.model, steps, 0.5 / steps, *START)) - first)

    first = energy(evaluate(SKEWED_2.model, START[0]), START[1])
    assert error(8) / error(16) == pytest.approx(4.0, rel=0.02)
    assert error(16) / error(32) == pytest.approx(4.0, rel=0.01)


def test_one_leapfrog_step_is_a_langevin_move(noise: Noise, states: Evaluation) -> None:
    level, uniform = split(noise.uniform)
    step_size = 1.3 * (1 + JITTER * (2 * level - 1))

    def langevin(noise: Noise, state: Evaluation, step_size: Array) -> tuple[Evaluation, Info]:
        now = params(SKEWED_2, 1.3)._replace(step_size=step_size)
        return mala(noise, state, jnp.asarray(T), now, partial(evaluate, SKEWED_2.model))

    want = jax.jit(jax.vmap(langevin))(noise._replace(uniform=uniform), states, step_size)
    jax.tree.map(
        partial(np.testing.assert_allclose, rtol=1e-7, atol=1e-9),
        moves(Chance(noise, None), states, GOOD, kernel=hamiltonian(1)),
        want,
    )


def test_split_gives_two_independent_uniforms() -> None:
    """Every level comes with the same values of the rest."""
    level, rest = split((jnp.arange(8.0 * LEVELS) + 0.5) / (8 * LEVELS))
    want = np.meshgrid((np.arange(LEVELS) + 0.5) / LEVELS, (np.arange(8) + 0.5) / 8, indexing="ij")
    np.testing.assert_array_equal(np.stack([level, rest]), np.reshape(want, (2, -1)))


def test_trajectory_ends_where_the_model_cannot_be_used() -> None:
    """At the first such point, which is the proposal, even if the trajectory would have gone on to a good one."""
    good, _ = fly(SKEWED_2.model, 2, 0.2, *START)

    def evaluate_hole(x: Array) -> Evaluation:
        here, outside = evaluate(SKEWED_2.model, x), jnp.all(jnp.abs(x - good.position) < 1e-6)
        return here._replace(log_likelihood=jnp.where(outside, -jnp.inf, here.log_likelihood))

    end, velocity = fly(SKEWED_2.model, 5, 0.2, *START, evaluate_hole)
    np.testing.assert_allclose(end.position, good.position, atol=1e-12)
    assert end.log_likelihood == -np.inf
    assert np.all(np.isnan(velocity))


def test_trajectories_are_no_longer_than_a_quarter_of_a_period(noise: Noise, states: Evaluation) -> None:
    def end(step_size: float) -> Array:
        move = partial(hmc, t=jnp.asarray(T), params=params(SKEWED_2, step_size), evaluate=see)
        return jax.jit(jax.vmap(lambda noise, state: move(noise, state)[1].proposal.position))(noise, states)

    see = partial(evaluate, SKEWED_2.model)
    limit = math.pi / 2 / STEPS
    np.testing.assert_array_equal(end(50.0), end(limit))
    assert np.any(end(0.99 * limit) != end(limit))


def test_directions_that_turn_back_forget() -> None:
    """A direction that is back where it started after each trajectory, because the metric misjudges its scale."""
    model = replace(SKEWED_2.model, log_likelihood=lambda x: 0.0 * x[0], log_prior=lambda x: -0.5 * x @ x, metric=None)
    wide = jnp.eye(1) * math.sqrt(2) / (math.pi / 2 / STEPS)  # four leapfrog steps of that length are a period
    now = Params(jnp.asarray(10.0), 1 / wide, wide)
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.standard_normal((4000, 1)))
    noise = Noise(jnp.asarray(rng.standard_normal((4000, 1))), jnp.asarray(rng.random(4000)))

    @jax.jit
    @jax.vmap
    def one(noise: Noise, x: Array) -> Info:
        return hmc(noise, evaluate(model, x), jnp.asarray(1.0), now, partial(evaluate, model))[1]

    info = one(noise, x)
    assert np.corrcoef(info.proposal.position[:, 0], x[:, 0])[0, 1] < 0.6  # 1 if all steps had one length
    assert info.acceptance.mean() > 0.7


def test_metric_is_computed_at_the_last_point_only() -> None:
    calls = []

    def identity(theta: np.ndarray) -> np.ndarray:
        calls.append(theta)
        return np.eye(2)

    def metric(theta: Array) -> tuple[Array, Array]:
        result = jax.pure_callback(identity, jax.ShapeDtypeStruct((2, 2), theta.dtype), theta)
        return result, result

    model = replace(SKEWED_2.model, metric=metric)
    state = start(SKEWED_2.model, [0.1, -0.4])
    move = partial(hmc, t=jnp.asarray(T), params=params(SKEWED_2, 0.3), evaluate=partial(evaluate, model))
    _, info = jax.block_until_ready(jax.jit(move)(Noise(jnp.ones(2), jnp.asarray(0.5)), state))
    np.testing.assert_array_equal(calls, [info.proposal.position])


def test_hamiltonian_is_cached_and_named() -> None:
    kernel: Any = hamiltonian(3)
    assert kernel.__name__ == "hamiltonian(3)"
    assert kernel.evaluations == 3
    assert kernel is hamiltonian(3)
    with pytest.raises(ValueError, match="steps = 0: it must be a whole number, at least 1"):
        hamiltonian(0)


def test_hmc_samples_fifty_dimensions_better_than_mala() -> None:
    """Both get the same number of gradients."""
    rng, d = np.random.default_rng(3), 50
    design = rng.standard_normal((80, d)) * np.exp(rng.uniform(-1, 1, d))
    target = normal(design, design @ rng.standard_normal(d), 1.0, np.eye(d))
    ladder, each = [0.0, 0.1, 1.0], 400

    draws = thermint.sample(target.model, ladder, draws=each, populations=4, kernel=hmc)
    langevin = thermint.sample(target.model, ladder, draws=each * STEPS, populations=4, kernel=mala)

    # Fresh draws from the prior at rung 0, whatever the kernel.
    prior = np.asarray(draws.position)[:, :, 0].reshape(-1, d)
    assert len(np.unique(prior[:, 0])) == 4 * each
    assert np.abs(prior.mean(axis=0)).max() < 4.5 / math.sqrt(4 * each)
    np.testing.assert_allclose(prior.std(axis=0), 1.0, atol=4.5 / math.sqrt(8 * each))

    for rung, t in enumerate(ladder[1:], start=1):
        x, g = in_units(target, t, draws, rung)
        series = np.concatenate([x, x**2 - 1, g], axis=2)
        error = series.std(axis=(0, 1)) / np.sqrt(convergence(series)[0])
        assert np.abs(series.mean(axis=(0, 1)) / error).max() < 4.5
        slow_x, slow_g = in_units(target, t, langevin, rung)
        assert convergence(x)[0].min() > 3 * convergence(slow_x)[0].min()
        assert convergence(g)[0].min() > convergence(slow_g)[0].min()


def in_units(target: Target, t: float, draws: Draws, rung: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions, standardised, and the log likelihood less its exact mean: [population, draw, d] and [..., 1]."""
    deviation = np.asarray(draws.position)[:, :, rung] - target.mean(t)
    x = np.linalg.solve(np.linalg.cholesky(target.covariance(t)), deviation[..., None])[..., 0]
    return x, np.asarray(draws.log_likelihood)[:, :, rung, None] - target.expected_log_likelihood(t)
