"""The moves within a rung: what every kernel owes its caller, and that each leaves the power posterior invariant.

The statistical check is calibrated against deliberately broken twins of the kernels, which must fail it.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import ndtr
from moves import (
    FACTORS,
    FLAWS,
    GOOD,
    Chance,
    T,
    draw_chance,
    has,
    moves,
    params,
    persistent,
    some_states,
    spoiled_move,
    start,
)
from scipy import integrate, stats
from targets import INDEFINITE, SKEWED, SKEWED_2, TARGETS, Target, features, paired_z

from thermint import Model
from thermint.kernels import (
    Info,
    Kernel,
    Noise,
    Params,
    barker,
    hmc,
    mala,
    mmala,
    random_walk,
    target_acceptance,
)
from thermint.kernels.base import apply, draw_noise, metropolis, traits_of
from thermint.kernels.hmc import JITTER, LEVELS, STEPS
from thermint.model.evaluation import Evaluation, evaluate, score

ONE_STEP = (mmala, mala, random_walk)


KERNELS = (*ONE_STEP, hmc, barker, persistent)

kernels = pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__)


# --- The targets themselves ---


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
def test_targets_are_what_they_say(target: Target) -> None:
    model, rng = target.model, np.random.default_rng(0)
    t = 0.4
    x = target.draw(rng, t, 4000)
    for u in target.cdf(t, x).T:
        assert stats.kstest(u, "uniform").pvalue > 1e-4
    prior_draws = jax.jit(jax.vmap(model.sample_prior))(jax.random.split(jax.random.key(0), 4000))
    for u in target.cdf(0.0, np.asarray(prior_draws)).T:
        assert stats.kstest(u, "uniform").pvalue > 1e-4
    standardised = np.linalg.solve(np.linalg.cholesky(target.covariance(t)), (x - target.mean(t)).T)
    assert np.all(np.abs(standardised.mean(axis=1)) < 4.5 / math.sqrt(4000))
    products = (standardised[:, None] * standardised[None]).reshape(-1, 4000)
    error = products.std(axis=1) / math.sqrt(4000)
    assert np.all(np.abs(products.mean(axis=1) - np.eye(x.shape[1]).ravel()) < 4.5 * error)

    # p(x | t) = prior * likelihood^t / normaliser, against the difference quotients of the distribution function.
    if x.shape[1] == 1:
        h = 1e-5
        density = (target.cdf(t, x + h) - target.cdf(t, x - h))[:, 0] / (2 * h)
        log_p = np.asarray(jax.jit(jax.vmap(log_density(model, t)))(x)) - target.log_normaliser(t)
        np.testing.assert_allclose(np.exp(log_p), density, rtol=1e-4, atol=1e-6)
    area, _ = integrate.quad(target.expected_log_likelihood, 0, 1)
    assert target.log_normaliser(0.0) == pytest.approx(0.0, abs=1e-12)
    assert area == pytest.approx(target.log_evidence, abs=1e-9)
    g = np.asarray(jax.jit(jax.vmap(model.log_likelihood))(x))
    assert abs(g.mean() - target.expected_log_likelihood(t)) < 4.5 * g.std() / math.sqrt(4000)


# --- The contract ---


def log_density(model: Model, t: float) -> Callable[[Array], Array]:
    return lambda x: model.log_prior(x) + t * model.log_likelihood(x)


def take(tree: Any, index: Any) -> Any:
    return jax.tree.map(lambda a: a[index], tree)


def assert_same(a: Any, b: Any) -> None:
    jax.tree.map(np.testing.assert_array_equal, a, b)


@kernels
def test_shapes_types_and_evaluations_per_move(kernel: Kernel) -> None:
    calls: list[Array] = []

    def counted(x: Array) -> Evaluation:
        calls.append(x)
        return evaluate(SKEWED_2.model, x)

    def move(chance: Chance) -> tuple[Evaluation, Info]:
        return apply(kernel, chance.noise, state, jnp.asarray(T), params(SKEWED_2, 1.0), counted, chance.carry)

    state = start(SKEWED_2.model, [0.1, -0.4])
    chance = draw_chance(np.random.default_rng(1), (), 2, kernel)
    after, info = jax.eval_shape(move, chance)
    calls.clear()
    with jax.disable_jit():  # loops are Python's
        move(chance)
    assert len(calls) == traits_of(kernel).evaluations
    want = jax.eval_shape(lambda: state)
    assert isinstance(after, Evaluation)
    assert after == want
    assert isinstance(info, Info)
    assert info.proposal == want
    assert (info.acceptance.shape, info.acceptance.dtype) == ((), jnp.float64)
    assert 0 < traits_of(kernel).target_acceptance < 1
    assert (None if info.carry is None else info.carry.shape) == (None if chance.carry is None else chance.carry.shape)


@pytest.fixture
def states() -> Evaluation:
    return some_states()


@pytest.fixture
def chance(kernel: Kernel) -> Chance:
    return draw_chance(np.random.default_rng(2), (2000,), 2, kernel)


@kernels
def test_moves_under_vmap_and_jit(kernel: Kernel, chance: Chance, states: Evaluation) -> None:
    """A vmapped, jitted move is the same as one alone; what is accepted and what is rejected is taken whole."""
    together = moves(chance, states, GOOD, kernel=kernel)
    for i in range(3):
        alone = spoiled_move(take(chance, i), take(states, i), GOOD, kernel)
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-9), alone, take(together, i))

    after, info = together
    accepted = np.any(np.asarray(after.position != states.position), axis=1)
    assert 0.3 < accepted.mean() < 0.7
    assert_same(take(after, accepted), take(info.proposal, accepted))
    assert_same(take(after, ~accepted), take(states, ~accepted))


@kernels
def test_acceptance_is_the_probability_of_moving(kernel: Kernel, chance: Chance, states: Evaluation) -> None:
    after, info = moves(chance, states, GOOD, kernel=kernel)
    acceptance = np.asarray(info.acceptance)
    surplus = np.any(np.asarray(after.position != states.position), axis=1) - acceptance
    assert abs(surplus.mean()) < 4.5 * surplus.std() / math.sqrt(len(surplus))
    assert surplus.std() > 0.1
    assert np.all((acceptance >= 0) & (acceptance <= 1))


UNUSABLE: dict[str, dict[str, float]] = {
    "likelihood is NaN": {"log_likelihood": np.nan},
    "prior is NaN": {"log_prior": np.nan},
    "likelihood is zero": {"log_likelihood": -np.inf},
    "likelihood is zero, its gradient NaN": {"log_likelihood": -np.inf, "grad_log_likelihood": np.nan},
    "prior is zero": {"log_prior": -np.inf},
    "zero prior, infinite likelihood": {"log_prior": -np.inf, "log_likelihood": np.inf},
}
UNUSABLE_GRADIENT: dict[str, dict[str, float]] = {
    "gradient of the likelihood is NaN": {"grad_log_likelihood": np.nan},
    "gradient of the prior is NaN": {"grad_log_prior": np.nan},
}


@kernels
def test_unusable_proposals_are_never_accepted(kernel: Kernel, chance: Chance, states: Evaluation) -> None:
    # The random walk never looks at gradients.
    for name, values in (UNUSABLE | UNUSABLE_GRADIENT).items():
        after, info = moves(chance, states, GOOD | values, kernel=kernel)
        np.testing.assert_array_equal(info.acceptance, 0.0, err_msg=name)
        assert_same(after, states)


def test_mmala_without_a_metric_says_so() -> None:
    state = start(SKEWED.model, [0.1])._replace(fisher=None, prior_curvature=None)
    with pytest.raises(ValueError, match=r"needs a model with a metric; use kernels\.mala"):
        mmala(Noise(jnp.zeros(1), jnp.asarray(0.5)), state, jnp.asarray(T), params(SKEWED, 1.0), lambda x: state)


def test_noise_is_standard_normal_and_uniform() -> None:
    many = 20_000
    noise = draw_noise(jax.random.key(4), (many, 2), 3)
    assert noise.normal.shape == (many, 2, 3)
    assert noise.uniform.shape == (many, 2)
    assert noise.normal.dtype == noise.uniform.dtype == jnp.float64
    columns = np.concatenate([np.asarray(noise.normal).reshape(many, 6), np.asarray(noise.uniform)], axis=1)
    for column in columns[:, :6].T:
        assert stats.kstest(column, "norm").pvalue > 1e-4
    for column in columns[:, 6:].T:
        assert stats.kstest(column, "uniform").pvalue > 1e-4
    # Nothing depends on anything else, nor does its size.
    for series in (columns, np.abs(columns - ([0] * 6 + [0.5] * 2))):
        assert np.abs(np.corrcoef(series.T) - np.eye(8)).max() < 4.5 / math.sqrt(many)


# --- Invariance, and twins that break it ---


@partial(jax.jit, static_argnames=("kernel", "model"))
def _move_many(
    noise: Noise,
    carry: Array | None,
    x: Array,
    t: Array,
    params: Params,
    flaw: Array | None,
    *,
    kernel: Callable,
    model: Model,
) -> tuple[Array, Array]:
    move: Any = kernel if flaw is None else partial(kernel, flaw=flaw)

    def step(now: tuple[Evaluation, Array | None], noise: Noise) -> tuple[tuple[Evaluation, Array | None], Array]:
        state, info = apply(move, noise, now[0], t, params, partial(evaluate, model), now[1])
        return (state, info.carry), info.acceptance

    def chain(noise: Noise, carry: Array | None, x: Array) -> tuple[Array, Array]:
        (end, _), acceptance = jax.lax.scan(step, (evaluate(model, x), carry), noise)
        return end.position, acceptance.mean()

    return jax.vmap(chain)(noise, carry, x)


def move_many(
    kernel: Callable, target: Target, t: float, step_size: float, *, flaw: str | None = None, steps: int = 4
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Take 20 000 exact draws and move each a few times: positions before [n, d] and after, mean acceptances [n]."""
    rng = np.random.default_rng(0)
    before = target.draw(rng, t, 20_000)
    noise, carry = draw_chance(rng, (len(before), steps), before.shape[1], kernel)
    after, acceptance = _move_many(
        noise,
        None if carry is None else carry[:, 0],
        jnp.asarray(before),
        jnp.asarray(t),
        params(target, step_size, kernel),
        None if flaw is None else jnp.asarray(FLAWS.index(flaw)),
        kernel=kernel,
        model=target.model,
    )
    return before, np.asarray(after), np.asarray(acceptance)


def invariance_z(kernel: Callable, target: Target, t: float, step_size: float, flaw: str | None = None) -> float:
    """Largest change, in standard errors, that the kernel makes to the means of `features` of exact draws."""
    before, after, _ = move_many(kernel, target, t, step_size, flaw=flaw)
    return paired_z(features(target, t, before), features(target, t, after))


def broken_metropolis(
    flaw: Array, noise: Noise, state: Evaluation, proposal: Evaluation, t: Array, correction: Array
) -> tuple[Evaluation, Info]:
    uniform = has(flaw, "noise decides on acceptance", ndtr(noise.normal[0]), noise.uniform)
    right = metropolis(uniform, state, proposal, t, correction)
    return has(flaw, "accepts always", (proposal, Info(jnp.ones(()), proposal)), right)


def broken_langevin(
    noise: Noise,
    state: Evaluation,
    t: Array,
    step_size: Array,
    factor: Callable[[Evaluation], Array],
    evaluate: Callable[[Array], Evaluation],
    inverse: Array | None = None,
    *,
    flaw: Array,
) -> tuple[Evaluation, Info]:
    """`base.langevin` once more, with one flaw."""

    def drift(point: Evaluation, L: Array) -> Array:
        half = solve_triangular(L, score(point, t), lower=True)
        return 0.5 * step_size**2 * solve_triangular(L, half, lower=True, trans="T")

    L = factor(state)
    move = drift(state, L) + step_size * solve_triangular(L, noise.normal, lower=True, trans="T")
    proposal = evaluate(state.position + move)

    assert proposal.fisher is not None
    assert proposal.prior_curvature is not None
    L_back = has(flaw, "reverse metric is the state's", L, factor(proposal))
    without_fallback = jnp.linalg.cholesky(t * proposal.fisher + proposal.prior_curvature)
    L_back = has(flaw, "no fallback in reverse", without_fallback, L_back)
    sign = has(flaw, "reverse drift has the wrong sign", -1.0, 1.0)
    gap = (state.position - proposal.position - sign * drift(proposal, L_back)) / step_size
    noise_back = has(flaw, "reverse factor transposed", L_back, L_back.T) @ gap
    determinant = jnp.sum(jnp.log(jnp.diag(L_back)) - jnp.log(jnp.diag(L)))
    correction = has(flaw, "no determinant", 0.0, determinant)
    correction += (noise.normal @ noise.normal - noise_back @ noise_back) / 2
    correction = has(flaw, "no correction", 0.0, correction)
    return broken_metropolis(flaw, noise, state, proposal, t, correction)


def twin_of(kernel: Kernel) -> Callable:
    """Replace `langevin` in a kernel by the broken one."""
    module = importlib.import_module(kernel.__module__)

    def broken(
        noise: Noise,
        state: Evaluation,
        t: Array,
        params: Params,
        evaluate: Callable[[Array], Evaluation],
        *,
        flaw: Array,
    ) -> tuple[Evaluation, Info]:
        with mock.patch.object(module, "langevin", partial(broken_langevin, flaw=flaw)):
            return kernel(noise, state, has(flaw, "t of a neighbouring rung", 1.4 * t, t), params, evaluate)

    return broken


def broken_walk(
    noise: Noise, state: Evaluation, t: Array, params: Params, evaluate: Callable[[Array], Evaluation], *, flaw: Array
) -> tuple[Evaluation, Info]:
    """The random walk once more, with one flaw."""
    step = solve_triangular(params.precision_factor, noise.normal, lower=True, trans="T")
    scale = has(flaw, "step depends on the position", jnp.exp(-0.8 * state.position), params.step_size)
    proposal = evaluate(state.position + scale * step)
    t = has(flaw, "t of a neighbouring rung", 1.4 * t, t)
    return broken_metropolis(flaw, noise, state, proposal, t, jnp.zeros(()))


def broken_hmc(
    noise: Noise, state: Evaluation, t: Array, params: Params, evaluate: Callable[[Array], Evaluation], *, flaw: Array
) -> tuple[Evaluation, Info]:
    """`hmc` once more, in the usual positions and momenta, with one flaw."""
    t = has(flaw, "t of a neighbouring rung", 1.4 * t, t)
    mass = params.precision_factor @ params.precision_factor.T
    momentum = params.precision_factor @ noise.normal
    momentum = has(flaw, "momentum drawn with another mass", noise.normal, momentum)
    interval, uniform = jnp.divmod(LEVELS * noise.uniform, 1.0)
    jitter = 1 + JITTER * (2 * interval + 1 - LEVELS) / LEVELS
    jitter = has(flaw, "step depends on the position", jnp.where(state.position[0] < 0, 1.3, 0.7), jitter)
    step_size = jitter * params.step_size

    here, p = state, momentum
    for step in range(STEPS):
        p += step_size / 2 * score(here, t)
        here = evaluate(here.position + step_size * jnp.linalg.solve(mass, p))
        end = p + step_size / 2 * score(here, t)
        p = has(flaw, "no half step at the end", p, end) if step == STEPS - 1 else end

    correction = (momentum @ jnp.linalg.solve(mass, momentum) - p @ jnp.linalg.solve(mass, p)) / 2
    correction = has(flaw, "kinetic energy has the wrong sign", -correction, correction)
    correction = has(flaw, "no correction", 0.0, correction)
    return broken_metropolis(flaw, noise._replace(uniform=uniform), state, here, t, correction)


@target_acceptance(0.57, uniforms=lambda d: d + 1)
def broken_barker(
    noise: Noise, state: Evaluation, t: Array, params: Params, evaluate: Callable[[Array], Evaluation], *, flaw: Array
) -> tuple[Evaluation, Info]:
    """`barker` once more, by the densities of its proposals, with one flaw."""
    t = has(flaw, "t of a neighbouring rung", 1.4 * t, t)

    def whitened(point: Evaluation) -> Array:
        return solve_triangular(params.precision_factor, score(point, t), lower=True)

    def log_density(w: Array, slope: Array) -> Array:
        """Log density of the proposal w, but for that of its size."""
        return -jnp.sum(jnp.log1p(jnp.exp(-w * slope)))

    z, slope = params.step_size * noise.normal, whitened(state)
    w = jnp.where(noise.uniform[:-1] < 1 / (1 + jnp.exp(-z * slope)), z, -z)
    proposal = evaluate(state.position + solve_triangular(params.precision_factor, w, lower=True, trans="T"))
    sign = has(flaw, "reverse drift has the wrong sign", -1.0, 1.0)
    correction = log_density(-w, sign * whitened(proposal)) - log_density(w, slope)
    correction = has(flaw, "no correction", 0.0, correction)
    return broken_metropolis(flaw, noise._replace(uniform=noise.uniform[-1]), state, proposal, t, correction)


TWINS: dict[Kernel, Callable] = {
    mmala: twin_of(mmala),
    mala: twin_of(mala),
    random_walk: broken_walk,
    hmc: broken_hmc,
    barker: broken_barker,
    persistent: persistent,
}

# Kernel, target and a step size for which about half of the moves are accepted.
CASES: dict[str, tuple[Any, Target, float]] = {
    "mmala-skewed": (mmala, SKEWED, 1.6),
    "mmala-skewed-2": (mmala, SKEWED_2, 1.3),
    "mmala-indefinite": (mmala, INDEFINITE, 1.0),
    "mala-skewed-2": (mala, SKEWED_2, 1.3),
    "random_walk-skewed": (random_walk, SKEWED, 2.0),
    "hmc-skewed-2": (hmc, SKEWED_2, 0.8),
    "barker-skewed-2": (barker, SKEWED_2, 1.6),
    "persistent-skewed-2": (persistent, SKEWED_2, 1.3),
}
ANY = FLAWS[1:4]
BROKEN = {
    "mmala-skewed": (*ANY, "no determinant", "reverse metric is the state's"),
    "mmala-indefinite": (
        *ANY,
        "no correction",
        "no determinant",
        "reverse drift has the wrong sign",
        "reverse metric is the state's",
        "no fallback in reverse",
    ),
    "mala-skewed-2": (*ANY, "no correction", "reverse drift has the wrong sign"),
    "random_walk-skewed": (*ANY, "step depends on the position"),
    "hmc-skewed-2": (
        *ANY,
        "no correction",
        "step depends on the position",
        "kinetic energy has the wrong sign",
        "no half step at the end",
        "momentum drawn with another mass",
    ),
    "barker-skewed-2": (*ANY, "no correction", "reverse drift has the wrong sign"),
    "persistent-skewed-2": ("momentum does not turn",),
}


@pytest.mark.parametrize("case", CASES)
def test_kernel_leaves_the_power_posterior_invariant(case: str) -> None:
    kernel, target, step_size = CASES[case]
    _, _, acceptance = move_many(kernel, target, T, step_size)
    assert 0.3 < acceptance.mean() < 0.7  # both outcomes are common
    assert invariance_z(kernel, target, T, step_size) < 4.5


@pytest.mark.parametrize(("case", "flaw"), [(case, flaw) for case in BROKEN for flaw in BROKEN[case]])
def test_broken_twin_does_not(case: str, flaw: str) -> None:
    kernel, target, step_size = CASES[case]
    assert invariance_z(TWINS[kernel], target, T, step_size, flaw) > 8


@pytest.mark.parametrize("case", BROKEN)
def test_twin_without_a_flaw_is_the_kernel(case: str) -> None:
    """So that what fails in a twin is its flaw."""
    kernel, target, step_size = CASES[case]
    _, want, want_acceptance = move_many(kernel, target, T, step_size)
    _, after, acceptance = move_many(TWINS[kernel], target, T, step_size, flaw="none")
    np.testing.assert_allclose(after, want, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(acceptance, want_acceptance, rtol=1e-7, atol=1e-8)


# --- Detailed balance, pair by pair ---

STEP = 0.9


class Proposals(NamedTuple):
    """The normal distribution from which a kernel proposes at each of n points, and how far it is from balance."""

    x: np.ndarray  # [n, 2]; the pairs are the first with the last, the second with the last but one, ...
    mean: np.ndarray  # [n, 2]
    covariance: np.ndarray  # [n, 2, 2]
    imbalance: np.ndarray  # [n], log of pi(x) q(y|x) a(x, y) over pi(y) q(x|y) a(y, x)


def proposals(kernel: Callable, flaws: tuple[str | None, ...]) -> list[Proposals]:
    """Prescribe the kernel's noise, see where it goes, and lead it from x to y and from y to x; for each flaw.

    So q is the density of what the kernel does, and only the acceptance a is what the kernel says.
    """
    model, rng = INDEFINITE.model, np.random.default_rng(5)
    x = INDEFINITE.draw(rng, T, 120)
    x[::6, 0] = rng.uniform(-0.01, 0.03, 20)  # where the metric is nearly singular
    log_pi = np.asarray(jax.jit(jax.vmap(log_density(model, T)))(x))

    @jax.jit
    def propose(normal: Array, flaw: Array | None) -> Info:
        move = kernel if flaw is None else partial(kernel, flaw=flaw)
        one = partial(move, t=jnp.asarray(T), params=params(INDEFINITE, STEP), evaluate=partial(evaluate, model))
        return jax.vmap(lambda z, x: one(Noise(z, jnp.asarray(0.5)), evaluate(model, x))[1])(normal, x)

    def run(flaw: str | None) -> Proposals:
        index = None if flaw is None else jnp.asarray(FLAWS.index(flaw))

        def lead(normal: np.ndarray) -> Info:
            return propose(jnp.asarray(np.broadcast_to(normal, x.shape)), index)

        mean = np.asarray(lead(np.zeros(2)).proposal.position)
        root = np.stack([lead(e).proposal.position - mean for e in np.eye(2)], axis=-1)  # proposal = mean + root noise
        covariance = root @ root.mT
        y = x[::-1]
        info = lead(np.linalg.solve(root, (y - mean)[:, :, None])[:, :, 0])
        np.testing.assert_allclose(info.proposal.position, y, atol=1e-8)
        log_q = [stats.multivariate_normal.logpdf(*pair) for pair in zip(y, mean, covariance, strict=True)]
        with np.errstate(divide="ignore", invalid="ignore"):
            flow = log_pi + log_q + np.log(info.acceptance)
            return Proposals(x, mean, covariance, np.nan_to_num(flow - flow[::-1], nan=np.inf))

    return [run(flaw) for flaw in flaws]


@pytest.mark.parametrize("kernel", ONE_STEP, ids=lambda kernel: kernel.__name__)
def test_detailed_balance(kernel: Kernel) -> None:
    (found,) = proposals(kernel, (None,))
    np.testing.assert_allclose(found.imbalance, 0.0, atol=1e-8)

    # The proposal is N(x + step^2/2 G^-1 score, step^2 G^-1), where G is the adapted precision or, for mmala, the
    # metric where that is well within the positive definite ones.
    precision = FACTORS[2] @ FACTORS[2].T
    assert INDEFINITE.model.metric is not None
    fisher, curvature = jax.jit(jax.vmap(INDEFINITE.model.metric))(found.x)
    metric = np.array(T * fisher + curvature)
    eigenvalue = np.linalg.eigvalsh(metric)[:, 0]
    metric[(eigenvalue < 0) | (kernel is not mmala)] = precision
    score = np.asarray(jax.jit(jax.vmap(jax.grad(log_density(INDEFINITE.model, T))))(found.x))
    drift = 0.5 * STEP**2 * np.linalg.solve(metric, score[:, :, None])[:, :, 0] * (kernel is not random_walk)
    clear = (eigenvalue < 0) | (eigenvalue > 0.1)
    np.testing.assert_allclose(found.covariance[clear], STEP**2 * np.linalg.inv(metric[clear]), rtol=1e-8)
    np.testing.assert_allclose(found.mean[clear], (found.x + drift)[clear], rtol=1e-8)

    if kernel is mmala:  # all kinds of pairs, and some near the border
        fallback = np.isclose(found.covariance, STEP**2 * np.linalg.inv(precision)).all(axis=(1, 2))
        for pairs in (fallback & ~fallback[::-1], fallback & fallback[::-1], ~fallback & ~fallback[::-1]):
            assert pairs.sum() > 10
        assert np.sum(~clear) > 5


def test_broken_twins_of_mmala_are_out_of_balance() -> None:
    flaws = FLAWS[4:10]
    right, *broken = proposals(TWINS[mmala], ("none", *flaws))
    np.testing.assert_allclose(right.imbalance, 0.0, atol=1e-8)
    for flaw, found in zip(flaws, broken, strict=True):
        assert np.mean(np.abs(found.imbalance) > 0.01) > 0.3, flaw
