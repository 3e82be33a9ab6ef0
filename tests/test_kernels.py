"""The moves within a rung: what every kernel owes its caller, and that each leaves the power posterior invariant.

The statistical check is calibrated against deliberately broken twins of the kernels, which must fail it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import ndtr
from scipy import integrate, stats
from targets import INDEFINITE, SKEWED, SKEWED_2, TARGETS, Target, features, paired_z

from thermint import Model
from thermint.kernels import Info, Kernel, Params, base, mala, mmala, random_walk, rwm
from thermint.kernels.base import metropolis
from thermint.model import Evaluation, choose, evaluate, score

KERNELS = (mmala, mala, random_walk)
T = 0.5
FACTORS = {1: np.array([[1.3]]), 2: np.array([[1.1, 0.0], [-0.6, 1.5]])}  # of the adapted precision; not diagonal

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


def start(model: Model, position: list[float]) -> Evaluation:
    return jax.jit(partial(evaluate, model))(jnp.asarray(position))


def params(target: Target, step_size: float) -> Params:
    return Params(jnp.asarray(step_size), jnp.asarray(FACTORS[target.model.dimension]))


def take(tree: Any, index: Any) -> Any:
    return jax.tree.map(lambda a: a[index], tree)


def assert_same(a: Any, b: Any) -> None:
    jax.tree.map(np.testing.assert_array_equal, a, b)


@kernels
def test_shapes_types_and_one_evaluation_per_move(kernel: Kernel) -> None:
    calls: list[Array] = []

    def counted(x: Array) -> Evaluation:
        calls.append(x)
        return evaluate(SKEWED_2.model, x)

    def move(key: Array) -> tuple[Evaluation, Info]:
        return kernel(key, state, jnp.asarray(T), params(SKEWED_2, 1.0), counted)

    state = start(SKEWED_2.model, [0.1, -0.4])
    program, (after, info) = jax.make_jaxpr(move, return_shape=True)(jax.random.key(0))
    assert len(calls) == 1
    assert "while[" not in str(program)  # the one call is not in a loop
    assert "scan[" not in str(program)
    want = jax.eval_shape(lambda: state)
    assert isinstance(after, Evaluation)
    assert after == want
    assert isinstance(info, Info)
    assert info.proposal == want
    assert (info.acceptance.shape, info.acceptance.dtype) == ((), jnp.float64)
    assert 0 < kernel.target_acceptance < 1  # type: ignore[attr-defined]


@partial(jax.jit, static_argnames="kernel")
def moves(keys: Array, states: Evaluation, values: dict[str, float], *, kernel: Kernel) -> tuple[Evaluation, Info]:
    """Move each of many states once; what is not zero among ``values`` replaces the values of the proposal."""
    return jax.vmap(lambda key, state: spoiled_move(key, state, values, kernel))(keys, states)


def spoiled_move(key: Array, state: Evaluation, values: dict[str, float], kernel: Kernel) -> tuple[Evaluation, Info]:
    def spoiled(x: Array) -> Evaluation:
        good = evaluate(SKEWED_2.model, x)
        return good._replace(**{name: jnp.where(v == 0, getattr(good, name), v) for name, v in values.items()})

    return kernel(key, state, jnp.asarray(T), params(SKEWED_2, 1.3), spoiled)


GOOD = dict.fromkeys(("log_likelihood", "log_prior", "grad_log_likelihood", "grad_log_prior"), 0.0)


@pytest.fixture(scope="module")
def keys() -> Array:
    return jax.random.split(jax.random.key(1), 2000)


@pytest.fixture(scope="module")
def states() -> Evaluation:
    x = SKEWED_2.draw(np.random.default_rng(1), T, 2000)
    return jax.jit(jax.vmap(partial(evaluate, SKEWED_2.model)))(jnp.asarray(x))


@kernels
def test_moves_under_vmap_and_jit(kernel: Kernel, keys: Array, states: Evaluation) -> None:
    """A vmapped, jitted move is the same as one alone; what is accepted and what is rejected is taken whole."""
    together = moves(keys, states, GOOD, kernel=kernel)
    for i in range(3):
        alone = spoiled_move(keys[i], take(states, i), GOOD, kernel)
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-9), alone, take(together, i))

    after, info = together
    accepted = np.any(np.asarray(after.position != states.position), axis=1)
    assert 0.3 < accepted.mean() < 0.7
    assert_same(take(after, accepted), take(info.proposal, accepted))
    assert_same(take(after, ~accepted), take(states, ~accepted))


@kernels
def test_acceptance_is_the_probability_of_moving(kernel: Kernel, keys: Array, states: Evaluation) -> None:
    after, info = moves(keys, states, GOOD, kernel=kernel)
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
def test_unusable_proposals_are_never_accepted(kernel: Kernel, keys: Array, states: Evaluation) -> None:
    # The random walk never looks at gradients.
    for name, values in (UNUSABLE if kernel is random_walk else UNUSABLE | UNUSABLE_GRADIENT).items():
        after, info = moves(keys, states, GOOD | values, kernel=kernel)
        np.testing.assert_array_equal(info.acceptance, 0.0, err_msg=name)
        assert_same(after, states)


def test_mmala_without_a_metric_says_so() -> None:
    state = start(SKEWED.model, [0.1])._replace(fisher=None, prior_curvature=None)
    with pytest.raises(ValueError, match="needs a model with a metric; use kernels.mala"):
        mmala(jax.random.key(0), state, jnp.asarray(T), params(SKEWED, 1.0), partial(evaluate, SKEWED.model))


# --- Invariance, and twins that break it ---


@partial(jax.jit, static_argnames=("kernel", "model"))
def _move_many(
    keys: Array, x: Array, t: Array, params: Params, flaw: Array | None, *, kernel: Callable, model: Model
) -> tuple[Array, Array]:
    move = kernel if flaw is None else partial(kernel, flaw=flaw)

    def step(state: Evaluation, key: Array) -> tuple[Evaluation, Array]:
        state, info = move(key, state, t, params, partial(evaluate, model))
        return state, info.acceptance

    def chain(keys: Array, x: Array) -> tuple[Array, Array]:
        end, acceptance = jax.lax.scan(step, evaluate(model, x), keys)
        return end.position, acceptance.mean()

    return jax.vmap(chain)(keys, x)


def move_many(
    kernel: Callable, target: Target, t: float, step_size: float, *, flaw: str | None = None, steps: int = 4
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Take 20 000 exact draws and move each a few times: positions before [n, d] and after, mean acceptances [n]."""
    before = target.draw(np.random.default_rng(0), t, 20_000)
    after, acceptance = _move_many(
        jax.random.split(jax.random.key(0), (len(before), steps)),
        jnp.asarray(before),
        jnp.asarray(t),
        params(target, step_size),
        None if flaw is None else jnp.asarray(FLAWS.index(flaw)),
        kernel=kernel,
        model=target.model,
    )
    return before, np.asarray(after), np.asarray(acceptance)


def invariance_z(kernel: Callable, target: Target, t: float, step_size: float, flaw: str | None = None) -> float:
    """Largest change, in standard errors, that the kernel makes to the means of `features` of exact draws."""
    before, after, _ = move_many(kernel, target, t, step_size, flaw=flaw)
    return paired_z(features(target, t, before), features(target, t, after))


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
)


def has(flaw: Array, name: str, wrong: Any, right: Any) -> Any:
    return choose(flaw == FLAWS.index(name), wrong, right)


def broken_metropolis(
    flaw: Array, noise: Array, uniform: Array, state: Evaluation, proposal: Evaluation, t: Array, correction: Array
) -> tuple[Evaluation, Info]:
    uniform = has(flaw, "noise decides on acceptance", ndtr(noise[0]), uniform)
    right = metropolis(uniform, state, proposal, t, correction)
    return has(flaw, "accepts always", (proposal, Info(jnp.ones(()), proposal)), right)


def broken_langevin(
    key: Array,
    state: Evaluation,
    t: Array,
    params: Params,
    evaluate: Callable[[Array], Evaluation],
    *,
    flaw: Array,
    manifold: bool,
) -> tuple[Evaluation, Info]:
    """The Langevin move once more, with one flaw."""
    t = has(flaw, "t of a neighbouring rung", 1.4 * t, t)
    step_size = params.step_size

    def raw_factor(point: Evaluation) -> Array:
        assert point.fisher is not None
        assert point.prior_curvature is not None
        return jnp.linalg.cholesky(t * point.fisher + point.prior_curvature)

    def factor(point: Evaluation) -> Array:
        if not manifold:
            return params.precision_factor
        L = raw_factor(point)
        return choose(jnp.any(jnp.isnan(L)), params.precision_factor, L)

    def drift(point: Evaluation, L: Array) -> Array:
        half = solve_triangular(L, score(point, t), lower=True)
        return 0.5 * step_size**2 * solve_triangular(L, half, lower=True, trans="T")

    L = factor(state)
    noise, uniform = base.draw_noise(key, state.position.size)
    move = drift(state, L) + step_size * solve_triangular(L, noise, lower=True, trans="T")
    proposal = evaluate(state.position + move)

    L_back = has(flaw, "reverse metric is the state's", L, factor(proposal))
    if manifold:
        L_back = has(flaw, "no fallback in reverse", raw_factor(proposal), L_back)
    sign = has(flaw, "reverse drift has the wrong sign", -1.0, 1.0)
    gap = (state.position - proposal.position - sign * drift(proposal, L_back)) / step_size
    noise_back = has(flaw, "reverse factor transposed", L_back, L_back.T) @ gap
    determinant = jnp.sum(jnp.log(jnp.diag(L_back)) - jnp.log(jnp.diag(L)))
    correction = has(flaw, "no determinant", 0.0, determinant) + (noise @ noise - noise_back @ noise_back) / 2
    correction = has(flaw, "no correction", 0.0, correction)
    return broken_metropolis(flaw, noise, uniform, state, proposal, t, correction)


def broken_walk(
    key: Array, state: Evaluation, t: Array, params: Params, evaluate: Callable[[Array], Evaluation], *, flaw: Array
) -> tuple[Evaluation, Info]:
    """The random walk once more, with one flaw."""
    noise, uniform = base.draw_noise(key, state.position.size)
    step = solve_triangular(params.precision_factor, noise, lower=True, trans="T")
    scale = has(flaw, "step depends on the position", jnp.exp(-0.8 * state.position), params.step_size)
    proposal = evaluate(state.position + scale * step)
    t = has(flaw, "t of a neighbouring rung", 1.4 * t, t)
    return broken_metropolis(flaw, noise, uniform, state, proposal, t, jnp.zeros(()))


TWINS: dict[Kernel, Callable] = {
    mmala: partial(broken_langevin, manifold=True),
    mala: partial(broken_langevin, manifold=False),
    random_walk: broken_walk,
}

# Kernel, target and a step size for which about half of the moves are accepted.
CASES = {
    "mmala-skewed": (mmala, SKEWED, 1.6),
    "mmala-skewed-2": (mmala, SKEWED_2, 1.3),
    "mmala-indefinite": (mmala, INDEFINITE, 1.0),
    "mala-skewed": (mala, SKEWED, 1.6),
    "mala-skewed-2": (mala, SKEWED_2, 1.3),
    "random_walk-skewed": (random_walk, SKEWED, 2.0),
    "random_walk-skewed-2": (random_walk, SKEWED_2, 1.3),
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
    np.testing.assert_allclose(after, want, atol=1e-8)
    np.testing.assert_allclose(acceptance, want_acceptance, atol=1e-8)


# --- Detailed balance, pair by pair, against scipy's normal density ---


def imbalance(
    monkeypatch: pytest.MonkeyPatch, kernel: Callable, *, fixed: bool, walk: bool, flaws: tuple[str, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """log of pi(x) q(y|x) a(x, y) over pi(y) q(x|y) a(y, x) at random pairs, [flaw, pair], and where x fell back.

    Args:
        monkeypatch: to make the kernel propose what we want.
        kernel: whose acceptance probability is a.
        fixed: the metric is the adapted one, everywhere.
        walk: there is no drift.
        flaws: of the kernel, one after another; none for a real kernel.
    """
    model, step_size, pairs = INDEFINITE.model, 0.9, 60
    x = INDEFINITE.draw(np.random.default_rng(5), T, 2 * pairs)
    precision = FACTORS[2] @ FACTORS[2].T
    log_pi, gradient = map(np.asarray, jax.jit(jax.vmap(jax.value_and_grad(log_density(model, T))))(x))
    assert model.metric is not None
    fisher, curvature = jax.jit(jax.vmap(model.metric))(x)
    metric = np.array(T * fisher + curvature)
    fallback = np.linalg.eigvalsh(metric)[:, 0] <= 0
    metric[fallback | fixed] = precision
    drift = np.zeros_like(x) if walk else 0.5 * step_size**2 * np.linalg.solve(metric, gradient[:, :, None])[:, :, 0]

    # Row i goes to row `other[i]` and back: both directions of every pair. The noise that leads there is prescribed.
    other = np.arange(2 * pairs)[::-1]
    gap = x[other] - x - drift
    noise = np.einsum("nij,ni->nj", np.linalg.cholesky(metric), gap) / step_size
    for module in (base, rwm):
        monkeypatch.setattr(module, "draw_noise", lambda key, dimension: (key, jnp.asarray(0.5)))

    @jax.jit
    def propose(noise: Array, x: Array, flaw: Array | None) -> Info:
        move = kernel if flaw is None else partial(kernel, flaw=flaw)
        one = partial(move, t=jnp.asarray(T), params=params(INDEFINITE, step_size), evaluate=partial(evaluate, model))
        return jax.vmap(lambda z, v: one(z, evaluate(model, v))[1])(noise, x)

    log_q = [
        stats.multivariate_normal.logpdf(g, cov=stats.Covariance.from_precision(G / step_size**2))
        for g, G in zip(gap, metric, strict=True)
    ]
    result = []
    for index in [jnp.asarray(FLAWS.index(flaw)) for flaw in flaws] or [None]:
        info = propose(jnp.asarray(noise), jnp.asarray(x), index)
        np.testing.assert_allclose(info.proposal.position, x[other], atol=1e-8)
        with np.errstate(divide="ignore", invalid="ignore"):
            flow = log_pi + log_q + np.log(info.acceptance)
            result.append(np.nan_to_num(flow - flow[other], nan=np.inf))
    return np.asarray(result), fallback


@kernels
def test_detailed_balance(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    difference, fallback = imbalance(
        monkeypatch, kernel, fixed=kernel is not mmala, walk=kernel is random_walk, flaws=()
    )
    straddling = fallback != fallback[::-1]
    assert straddling.sum() > 40
    assert np.sum(fallback & ~straddling) > 10
    assert np.sum(~fallback & ~straddling) > 10
    np.testing.assert_allclose(difference, 0.0, atol=1e-8)


def test_broken_twins_of_mmala_are_out_of_balance(monkeypatch: pytest.MonkeyPatch) -> None:
    flaws = FLAWS[4:10]
    difference, fallback = imbalance(monkeypatch, TWINS[mmala], fixed=False, walk=False, flaws=("none", *flaws))
    np.testing.assert_allclose(difference[0], 0.0, atol=1e-8)
    for flaw, wrong in zip(flaws, np.abs(difference[1:]), strict=True):
        assert np.mean(wrong > 0.01) > 0.3, flaw
    # Fallback forgotten in reverse shows where one end or both fell back, and only there.
    lost = np.abs(difference[1 + flaws.index("no fallback in reverse")]) > 1e-8
    np.testing.assert_array_equal(lost, fallback | fallback[::-1])
