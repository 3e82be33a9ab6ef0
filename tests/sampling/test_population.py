"""The whole ladder: chunks, populations, rung 0, frozen and moving step sizes, stationarity, and the warm-up."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from moves import persistent
from scipy import stats
from targets import SKEWED_2, Target, features, normal, paired_z

from thermint import Model
from thermint.kernels import Info, Kernel, Noise, Params, barker, hmc, mala, mmala, random_walk, target_acceptance
from thermint.model import Evaluation, evaluate
from thermint.model.draws import Draws
from thermint.path.path import Path
from thermint.sampling import population as pop
from thermint.sampling.options import SamplerOptions
from thermint.sampling.population import Population, Swap
from thermint.sampling.sampler import Sampler, default_kernel, make_sampler
from thermint.sampling.starts import begin, reference_draws, start_at_reference
from thermint.sampling.warmup import LONG, concatenate, precision_factor_of, warmup
from thermint.swaps import even_odd

ROUNDS, GAINS = zip(*LONG, strict=True)
# Few programs are compiled: nearly all tests run 8 populations by chunks of 25 on this target, whose rungs differ.
TARGET = normal([[1.0, 0.5], [0.2, -1.0], [0.7, 0.7]], [0.4, -1.0, 0.2], 0.2, [[2.0, 0.6], [0.6, 1.0]])
LADDER = np.array([0.0, 0.01, 0.1, 1.0])
POPULATIONS, LENGTH = 8, 25


def keys_of(populations: int, seed: int = 0) -> Array:
    return jax.random.split(jax.random.key(seed), populations)


@partial(jax.jit, static_argnames="model")
def evaluate_all(x: Array, *, model: Model) -> Evaluation:
    """Evaluate positions [n, rung, d]."""
    return jax.vmap(jax.vmap(partial(evaluate, model)))(x)


def start_at(x: np.ndarray, model: Model, log_step: float = 0.0) -> Population:
    """Start at positions [population, rung, d]."""
    return begin(evaluate_all(jnp.asarray(x), model=model), jnp.asarray(np.full(x.shape[:2], log_step)))


def exact_draws(target: Target, populations: int) -> np.ndarray:
    """Independent exact draws at all rungs, [population, rung, d]."""
    rng = np.random.default_rng(7)
    return np.stack([target.draw(rng, t, populations) for t in LADDER], axis=1)


def true_factors(target: Target) -> np.ndarray:
    return np.stack([np.linalg.cholesky(np.linalg.inv(target.covariance(t))) for t in LADDER])


def advance(
    start: Population,
    length: int = LENGTH,
    *,
    model: Model = TARGET.model,
    factors: np.ndarray | None = None,
    keys: Array | None = None,
    iteration: int = 0,
    gain: float = 0.0,
    stop: int | None = None,
    kernel: Any = mmala,
    swap: Swap = even_odd,
) -> tuple[Population, Draws]:
    engine = pop.engine_of(Path(model), len(start.log_step), kernel=kernel, swap=swap, length=length)
    keys = keys_of(len(start.log_step)) if keys is None else keys
    rungs = pop.rungs_of(LADDER, true_factors(TARGET) if factors is None else factors)
    return pop.collect(pop.launch(engine, keys, start, rungs, iteration, gain, stop or iteration + length))


def take(tree: Any, index: Any) -> Any:
    return jax.tree.map(lambda a: a[index], tree)


def assert_close(a: Any, b: Any, atol: float) -> None:
    jax.tree.map(partial(np.testing.assert_allclose, rtol=atol, atol=atol), a, b)


@target_acceptance(0.5, normals=lambda d: d + 3, uniforms=lambda d: 2, carry=lambda d: d)
def followed(
    noise: Noise, state: Evaluation, t: Array, params: Params, evaluate: Callable[[Array], Evaluation], carry: Array
) -> tuple[Evaluation, Info]:
    """A kernel whose own state is the position."""
    assert (noise.normal.shape, noise.uniform.shape) == ((5,), (2,))
    proposal = evaluate(state.position + 0.1 * noise.normal[3:])
    return proposal, Info(jnp.exp(-noise.uniform[1]), proposal, proposal.position)


@pytest.fixture(scope="module")
def start() -> Population:
    return start_at(exact_draws(TARGET, POPULATIONS), TARGET.model, log_step=0.3)


# --- Chunks, populations, step sizes ---


def test_chunks_of_any_length_give_the_same_draws(start: Population) -> None:
    end, whole = advance(start, gain=0.1)
    now, pieces = start, []
    for iteration in range(0, 25, 5):
        now, piece = advance(now, 5, iteration=iteration, gain=0.1)
        pieces.append(piece)
    assert_close(concatenate(pieces), whole, atol=1e-12)
    assert_close(now, end, atol=1e-12)
    # It is the number of the iteration that tells draws apart.
    _, other = advance(start, 5, iteration=5, gain=0.1)
    assert not np.any(other.position[:, :, 0] == pieces[0].position[:, :, 0])


def test_the_state_of_a_kernel_follows_the_position(start: Population) -> None:
    """Through swaps, too; only where the position is drawn afresh, at t = 0, it stays as it was."""
    begun = start._replace(carry=np.full((POPULATIONS, len(LADDER), 2), 7.0))
    end, draws = advance(begun, 1, kernel=followed)
    assert end.carry is not None
    fresh = np.all(end.state.position == draws.position[:, 0, :1], axis=-1)
    np.testing.assert_array_equal(fresh.sum(axis=1), 1)
    assert not fresh[:, 0].all()  # swaps took place
    np.testing.assert_array_equal(end.carry, np.where(fresh[..., None], 7.0, end.state.position))


def test_a_kernel_has_numbers_of_its_own(start: Population) -> None:
    begun = start._replace(carry=np.zeros((POPULATIONS, len(LADDER), 2)))
    _, draws = advance(begun, kernel=followed)
    z = np.diff(np.concatenate([begun.state.position[:, None], draws.position], axis=1), axis=1)[:, 0, 1:] / 0.1
    assert stats.kstest(z.ravel(), "norm").pvalue > 1e-4
    assert draws.acceptance is not None
    assert stats.kstest(-np.log(draws.acceptance[:, :, 1:]).ravel(), "uniform").pvalue > 1e-4


def test_draws_of_a_population_do_not_depend_on_the_others(start: Population) -> None:
    keys = keys_of(POPULATIONS)
    end, draws = advance(start, keys=keys, gain=0.1)
    for i in (0, 5):
        alone_end, alone = advance(take(start, slice(i, i + 1)), keys=keys[i : i + 1], gain=0.1)
        assert_close(alone._series(), take(draws._series(), slice(i, i + 1)), atol=1e-9)
        assert_close(alone_end, take(end, slice(i, i + 1)), atol=1e-9)
    assert len(np.unique(draws.position[:, :, 0, 0])) == POPULATIONS * LENGTH  # each has its own randomness


def test_draws_carry_the_values_of_their_positions(start: Population) -> None:
    """Swaps and rejections move all parts of a state together."""
    end, draws = advance(start)
    want = evaluate_all(draws.position.reshape(-1, *draws.position.shape[2:]), model=TARGET.model)
    for name in ("log_likelihood", "log_prior", "grad_log_likelihood", "grad_log_prior"):
        np.testing.assert_allclose(getattr(draws, name).ravel(), getattr(want, name).ravel(), rtol=1e-9, atol=1e-9)
    assert_close(end.state, evaluate_all(end.state.position, model=TARGET.model), atol=1e-9)
    np.testing.assert_array_equal(draws.ladder, LADDER)
    acceptance = np.asarray(draws.acceptance)
    assert np.all((acceptance >= 0) & (acceptance <= 1))
    assert acceptance.min() < 0.5


def test_step_sizes_are_frozen_unless_there_is_a_gain(start: Population) -> None:
    end, _ = advance(start)
    np.testing.assert_array_equal(end.log_step, start.log_step)
    end, draws = advance(start, gain=0.1)
    surplus = np.sum(np.asarray(draws.acceptance) - 0.7, axis=1)  # over mmala's target
    np.testing.assert_allclose(end.log_step, start.log_step + 0.1 * surplus, atol=1e-12)
    moved = np.abs(end.log_step - start.log_step)
    assert np.all(moved > 0)
    assert np.median(moved) > 1e-2


def test_states_that_come_from_the_first_rung_are_followed(start: Population) -> None:
    """Swaps without chance: even iterations exchange rungs (0,1) and (2,3), odd ones (1,2)."""

    def always(uniform: Array, g: Array, ladder: Array, iteration: Array) -> Array:
        return jnp.where(iteration % 2 == 0, jnp.array([1, 0, 3, 2]), jnp.array([0, 2, 1, 3]))

    end, draws = advance(start, 8, swap=always)
    rung_of = np.arange(4)  # state by state
    last_visited_reference = np.zeros(4)
    for n, recorded in enumerate(np.asarray(draws.last_visited_reference)[0]):
        last_visited_reference[rung_of == 0] = 1
        np.testing.assert_array_equal(recorded[rung_of], last_visited_reference)
        last_visited_reference[rung_of == 3] = 0
        rung_of = np.array([1, 0, 3, 2] if n % 2 == 0 else [0, 2, 1, 3])[rung_of]
    np.testing.assert_array_equal(np.asarray(end.last_visited_reference)[0, rung_of], last_visited_reference)
    assert np.asarray(draws.last_visited_reference)[0, :, -1].sum() > 0


def test_nothing_happens_after_the_stop(start: Population) -> None:
    stopped, draws = advance(start, 10, stop=6, gain=0.1)
    end, expected = advance(start, 6, gain=0.1)
    assert_close(stopped, end, atol=1e-12)
    assert_close(draws.block(0, 6), expected, atol=1e-12)


# --- Rung 0 ---


def test_rung_0_draws_independently_from_the_prior() -> None:
    now, pieces = start_at(np.full((POPULATIONS, 4, 2), 30.0), TARGET.model), []
    for iteration in range(0, 1000, LENGTH):
        now, piece = advance(now, iteration=iteration)
        pieces.append(piece)
    draws = concatenate(pieces)
    x = np.asarray(draws.position)[:, :, 0].transpose(0, 2, 1)  # [population, d, draw]
    length = x.shape[2]
    for u in TARGET.cdf(0.0, np.asarray(draws.position)[:, :, 0]).reshape(-1, 2).T:
        assert stats.kstest(u, "uniform").pvalue > 1e-4
    np.testing.assert_array_equal(np.asarray(draws.acceptance)[:, :, 0], 1.0)

    white = np.linalg.solve(np.linalg.cholesky(TARGET.covariance(0.0)), x).reshape(-1, length)
    for series in (white, (white**2 - 1) / math.sqrt(2)):  # of all populations and coordinates
        now_and_next = series[:, :-1] @ series[:, 1:].T / (length - 1)
        assert np.abs(now_and_next).max() < 4.5 / math.sqrt(length)
        together = series @ series.T / length
        assert np.abs(together[~np.eye(len(series), dtype=bool)]).max() < 4.5 / math.sqrt(length)


LOW, HIGH = (float(stats.norm.ppf(p)) for p in (0.1, 0.7))


def cut_model(low: float, high: float) -> Model:
    """A standard normal prior and a likelihood exp(-theta), but zero below ``low`` and NaN above ``high``."""

    def log_likelihood(theta: Array) -> Array:
        return jnp.where(theta[0] < low, -jnp.inf, jnp.where(theta[0] > high, jnp.nan, -theta[0]))

    return Model(
        log_likelihood=log_likelihood,
        log_prior=lambda theta: -0.5 * theta[0] ** 2 - 0.5 * math.log(2 * math.pi),
        sample_prior=lambda key: jax.random.normal(key, (1,)),
    )


def test_rung_0_is_the_prior_where_there_is_a_likelihood() -> None:
    """60 % of the prior has a likelihood, 10 % has none and for 30 % the model fails."""
    model, populations, length = cut_model(LOW, HIGH), 2000, 5
    truth = [stats.truncnorm(LOW + t, HIGH + t, loc=-t) for t in LADDER]  # t theta shifts the mean by -t
    rng = np.random.default_rng(8)
    x = np.stack([p.rvs(populations, random_state=rng) for p in truth], axis=1)[:, :, None]
    end, draws = advance(start_at(x, model), length, model=model, kernel=mala, factors=np.ones((4, 1, 1)), gain=0.01)
    for rung, p in enumerate(truth):
        assert stats.kstest(np.asarray(draws.position)[:, -1, rung, 0], p.cdf).pvalue > 1e-4
        assert stats.kstest(np.asarray(end.state.position)[:, rung, 0], p.cdf).pvalue > 1e-4
    acceptance = np.asarray(draws.acceptance)
    assert all(np.all(np.isfinite(array)) for array in draws._replace(acceptance=None)._series().values())

    # NaN is reported, a zero likelihood is a rejection like others, and step sizes take both for rejections.
    for outcome, share in ((acceptance == 1, 0.6), (acceptance == 0, 0.1), (np.isnan(acceptance), 0.3)):
        assert abs(outcome[:, :, 0].mean() - share) < 4.5 * math.sqrt(share * (1 - share) / (populations * length))
    assert 0.1 < np.isnan(acceptance[:, :, 1:]).mean() < 0.4
    np.testing.assert_allclose(end.log_step, 0.01 * np.sum(np.nan_to_num(acceptance) - 0.6, axis=1), atol=1e-12)


@pytest.mark.parametrize(
    ("step", "share"),
    [(1.0, 0.5), (10.0, stats.norm.cdf(1.0) - 0.5), (1000.0, 0.0)],  # steps of up to 10 s.d. are near
    ids=["border", "near and far", "far away"],
)
def test_only_what_is_near_is_a_border(step: float, share: float) -> None:
    """The likelihood is zero below zero: by steps of any length from there half of all proposals fall there."""
    model = cut_model(0.0, np.inf)
    start = start_at(np.full((400, len(LADDER), 1), 1e-9), model, math.log(step))
    _, draws = advance(start, 1, model=model, kernel=random_walk, factors=np.ones((4, 1, 1)))
    outside = np.asarray(draws.outside)[:, 0]
    error = 0.5 / math.sqrt(len(outside))
    assert abs(outside[:, 0].mean() - 0.5) < 4 * error  # of the prior's mass, whatever the step
    assert np.all(abs(outside[:, 1:].mean(axis=0) - share) < 4 * error)


# --- Stationarity ---


def stationarity_z(swap: Swap) -> float:
    """Largest change, in standard errors, that four iterations make to exact draws at all rungs of 5000 ladders."""
    x = exact_draws(SKEWED_2, 5000)
    end, draws = advance(
        start_at(x, SKEWED_2.model, 0.3), 4, model=SKEWED_2.model, factors=true_factors(SKEWED_2), swap=swap
    )
    assert np.all(np.asarray(draws.acceptance).mean(axis=(0, 1))[1:] > 0.3)

    def moments(x: np.ndarray) -> np.ndarray:
        return np.concatenate([features(SKEWED_2, t, x[:, rung]) for rung, t in enumerate(LADDER)], axis=1)

    last, swapped = np.asarray(draws.position)[:, -1], np.asarray(end.state.position)
    return max(paired_z(moments(x), moments(last)), paired_z(moments(x), moments(swapped)))


def flipped(key: Array, g: Array, ladder: Array, iteration: Array) -> Array:
    return even_odd(key, -g, ladder, iteration)


def test_exact_draws_stay_exact() -> None:
    assert stationarity_z(even_odd) < 4.5


def test_broken_swap_is_noticed() -> None:
    assert stationarity_z(flipped) > 8


# --- The start ---


def test_start_weighs_prior_draws_by_the_likelihood() -> None:
    states, deviation = start_at_reference(Path(TARGET.model), keys_of(400), LADDER)
    assert_close(states, evaluate_all(states.position, model=TARGET.model), atol=1e-12)
    x = np.asarray(states.position)
    for u in TARGET.cdf(0.0, x[:, 0]).T:
        assert stats.kstest(u, "uniform").pvalue > 1e-4
    # One of 64 draws is not quite a draw from the power posterior, but close.
    g = np.asarray(states.log_likelihood).mean(axis=0)
    want = np.array([TARGET.expected_log_likelihood(t) for t in LADDER])
    assert np.all(np.abs(g - want) < 0.15 * (want[-1] - want[0]))
    # The spread of half the draws has 0.37 of the information in all.
    error = 1 / math.sqrt(2 * 0.37 * 400 * 64)
    np.testing.assert_allclose(deviation, np.sqrt(np.diag(TARGET.covariance(0.0))), rtol=4.5 * error)


def test_start_lends_a_supported_draw_to_a_population_without_any() -> None:
    model = cut_model(stats.norm.ppf(0.99), np.inf)
    states, _ = start_at_reference(Path(model), keys_of(8), LADDER)
    assert np.all(np.isfinite(states.log_likelihood))
    assert np.all(np.asarray(states.position) > stats.norm.ppf(0.99))
    assert 1 < len(np.unique(np.asarray(states.position)[:, 0])) < 8


# --- Warm-up ---


class Calls:
    """A sampler that draws from known normals, and remembers what the warm-up asked of it."""

    def __init__(self) -> None:
        self.asked: list[tuple[np.ndarray, np.ndarray, int, float]] = []  # log steps, factor, iteration, gain
        self.stops: list[int] = []
        self.covariance = np.array([[[4.0, 1.0], [1.0, 1.0]], [[0.04, -0.02], [-0.02, 0.09]]])

    def __call__(
        self, now: Population, factor: np.ndarray, ladder: np.ndarray, iteration: int, gain: float, stop: int
    ) -> tuple[Population, Draws]:
        assert list(ladder) == [0.0, 1.0]
        self.stops.append(stop)
        self.asked.append((np.asarray(now.log_step), factor, iteration, gain))
        rng = np.random.default_rng(iteration)
        x = np.stack([rng.multivariate_normal([0, 0], S, (5, stop - iteration)) for S in self.covariance], axis=2)
        series = (x, x[..., 0], x[..., 0], x, x, x[..., 0])
        log_step = now.log_step + jnp.asarray(rng.normal(size=(5, 2)))
        return now._replace(log_step=log_step), Draws(jnp.array([0.0, 1.0]), *map(jnp.asarray, series))


def test_everything_is_learned_between_the_rounds_of_the_warmup() -> None:
    calls = Calls()
    state = Evaluation(*(jnp.zeros(()),) * 5)
    first = np.tile(np.eye(2), (2, 1, 1))
    options: dict[str, Any] = {"rounds": LONG, "rescale": False, "adapt_covariance": True, "adapt_ladder": False}
    rounds = list(warmup(begin(state, jnp.zeros((5, 2))), first, np.array([0.0, 1.0]), calls, 30, **options))
    chunks = [math.ceil(length / 30) for length in ROUNDS]
    ends = np.cumsum(ROUNDS)
    np.testing.assert_array_equal([tuned.iteration for tuned in rounds], ends)
    np.testing.assert_array_equal([tuned.draws.position.shape[1] for tuned in rounds], ROUNDS)
    stops = [min(first + 30, end) for end, n in zip(ends, ROUNDS, strict=True) for first in range(end - n, end, 30)]
    np.testing.assert_array_equal(calls.stops, stops)
    assert [gain for *_, gain in calls.asked] == [g for g, n in zip(GAINS, chunks, strict=True) for _ in range(n)]
    begun = [first for end, n in zip(ends, ROUNDS, strict=True) for first in range(end - n, end, 30)]
    assert [iteration for *_, iteration, _ in calls.asked] == begun
    assert all(gain > 0 for gain in GAINS)

    # Every round uses what the one before it learned: nothing within the round, all of it afterwards.
    learned = [first, *(tuned.precision_factor for tuned in rounds[:-1])]
    for (_, factor, _, _), want in zip(calls.asked, np.repeat(learned, chunks, axis=0), strict=True):
        np.testing.assert_array_equal(factor, want)
    for tuned, n, start in zip(rounds, chunks, np.cumsum([0, *chunks]), strict=False):
        log_step = np.asarray(tuned.population.log_step)
        assert np.all(log_step == log_step[0])  # populations agree
        if start + n < len(calls.asked):
            np.testing.assert_array_equal(calls.asked[start + n][0], log_step)
    final = rounds[-1]
    np.testing.assert_array_equal(final.precision_factor, precision_factor_of(final.frame.cholesky[:, 0]))
    # 500 independent draws: entries of the whitened covariance have a standard error of at most sqrt(2 / 500).
    for L, S in zip(final.precision_factor, calls.covariance, strict=True):
        np.testing.assert_allclose(L.T @ S @ L, np.eye(2), atol=4.5 * math.sqrt(2 / 500))


def options_for(kernel: Any) -> SamplerOptions:
    return SamplerOptions(POPULATIONS, kernel, even_odd, LENGTH)


@cache
def warmed_up(kernel: Hashable) -> tuple[Sampler, Draws]:
    """A sampler and its first 200 draws of each population."""
    sampler = make_sampler(Path(TARGET.model), LADDER, options_for(kernel), jax.random.key(1))
    return sampler, concatenate([sampler.chunk() for _ in range(8)])


kernels = pytest.mark.parametrize(
    "kernel", [mmala, mala, random_walk, barker, persistent], ids=lambda kernel: kernel.__name__
)


@kernels
def test_warmup_reaches_the_acceptance_that_suits_the_kernel(kernel: Any) -> None:
    _, draws = warmed_up(kernel)
    acceptance = np.asarray(draws.acceptance).mean(axis=(0, 1))
    # From seed to seed it varies by up to 0.045 around the target; untuned, it would be 0.3 off.
    np.testing.assert_allclose(acceptance[1:], kernel.target_acceptance, atol=4.5 * 0.045)


@kernels
def test_warmup_learns_the_moments_of_every_rung(kernel: Any) -> None:
    frame = warmed_up(kernel)[0].frame
    for rung, t in enumerate(LADDER):
        S = TARGET.covariance(t)
        L = precision_factor_of(frame.cholesky[:, 0])[rung]
        scale = np.linalg.eigvalsh(L.T @ S @ L)  # 1 if L is right
        assert np.all((scale > 0.6) & (scale < 1.6))
        assert np.all(np.abs(frame.mean[rung, 0] - TARGET.mean(t)) < 0.4 * np.sqrt(np.diag(S)))
        assert abs(frame.centre[rung] - TARGET.expected_log_likelihood(t)) < 0.4 * frame.spread[rung]
    # The rungs differ so much that one covariance for all would not pass.
    first, last = (np.linalg.eigvalsh(TARGET.covariance(t)).max() for t in (0.0, 1.0))
    assert first > 20 * last


@kernels
def test_draws_after_warmup_have_the_right_means(kernel: Any) -> None:
    """Eight populations are eight independent answers."""
    _, draws = warmed_up(kernel)
    for rung, t in enumerate(LADDER):
        answers = np.asarray(draws.position)[:, :, rung].mean(axis=1)
        score = (answers.mean(axis=0) - TARGET.mean(t)) / (answers.std(axis=0, ddof=1) / math.sqrt(POPULATIONS))
        assert np.all(np.abs(score) < stats.t(POPULATIONS - 1).isf(stats.norm.sf(4.5)))


def test_sampler_draws_do_not_depend_on_the_chunks() -> None:
    """Rounds of 25 and more iterations are the same for chunks of 25 and of 5, and so are then all draws."""
    sampler, draws = warmed_up(mmala)
    same = make_sampler(Path(TARGET.model), LADDER, replace(options_for(mmala), length=5), jax.random.key(1))
    assert same.place.iteration == sum(ROUNDS)
    looks = 3 * reference_draws(LADDER)  # at the draws to start from, and twice beside them to check gradients
    assert same.evaluations == POPULATIONS * (sum(ROUNDS) * len(LADDER) + looks)
    assert_close(same.frame, sampler.frame, atol=1e-9)
    assert_close(concatenate([same.chunk() for _ in range(40)]), draws, atol=1e-9)
    assert same.evaluations == sampler.evaluations  # 200 draws later
    assert len(np.unique(draws.position[:, :, 0, 0])) == POPULATIONS * 200  # chunks go on, and populations differ

    other = make_sampler(Path(TARGET.model), LADDER, options_for(mmala), jax.random.key(2))
    assert not np.any(other.chunk().position[:, :, 0] == draws.position[:, :LENGTH, 0])


def test_sampler_is_frozen_after_warmup(monkeypatch: pytest.MonkeyPatch) -> None:
    _, expected = warmed_up(mmala)
    asked: list[dict[str, Any]] = []
    original = pop.launch

    def spy(
        engine: pop.Engine, keys: Array, now: Population, rungs: pop.Rungs, iteration: int, gain: float, stop: int
    ) -> Any:
        chunk = original(engine, keys, now, rungs, iteration, gain, stop)
        log_step = pop.collect(chunk)[0].log_step
        asked.append({"log_step": log_step, "factor": rungs.precision_factor, "iteration": iteration, "gain": gain})
        return chunk

    monkeypatch.setattr(pop, "launch", spy)
    sampler = make_sampler(Path(TARGET.model), LADDER, options_for(mmala), jax.random.key(1))
    rounds = len(asked)
    assert rounds == 2 + sum(ROUNDS) / LENGTH
    assert all(call["gain"] > 0 for call in asked)
    assert_close(concatenate([sampler.chunk() for _ in range(3)]), expected.block(0, 75), atol=1e-12)
    begun = range(0, LENGTH * (len(asked) - 2), LENGTH)
    assert [call["iteration"] for call in asked] == sorted({*begun, 1, 2})  # the second shows how long one takes
    first, *others = asked[rounds:]
    assert len(others) == 2
    np.testing.assert_array_equal(first["factor"], precision_factor_of(sampler.frame.cholesky[:, 0]))
    for call in (first, *others):
        assert call["gain"] == 0
        np.testing.assert_array_equal(call["factor"], first["factor"])
        np.testing.assert_array_equal(call["log_step"], np.tile(np.asarray(first["log_step"])[0], (POPULATIONS, 1)))


def test_chunks_that_were_begun_ahead_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler, _ = warmed_up(mala)
    begun: list[int] = []
    original = pop.launch

    def spy(*args: Any) -> Any:
        begun.append(args[4])
        return original(*args)

    monkeypatch.setattr(pop, "launch", spy)
    again = Sampler(sampler._steps, sampler.place, None)
    first = again.place.iteration
    plain = [again.chunk() for _ in range(4)]
    begun.clear()
    again = Sampler(sampler._steps, sampler.place, None)
    ahead = [again.chunk(ahead) for ahead in (3, 2, 1, 0)]
    assert begun == [first + LENGTH * i for i in range(4)]  # each once
    jax.tree.map(np.testing.assert_array_equal, ahead, plain)

    # What was begun for nothing does no harm: here chains go elsewhere, there they start again.
    again = Sampler(sampler._steps, sampler.place, None)
    again.chunk(2)
    elsewhere = np.zeros((POPULATIONS, len(LADDER), TARGET.model.dimension))
    assert np.all(np.isfinite(again.descend(elsewhere, (0.1,)).log_prior))
    again.chunk(2)
    again = Sampler(sampler._steps, sampler.place, None)
    jax.tree.map(np.testing.assert_array_equal, [again.chunk() for _ in range(4)], plain)


def test_default_kernel_depends_on_the_number_of_parameters() -> None:
    assert default_kernel(Path(TARGET.model)) is mala
    many = replace(TARGET.model, sample_prior=lambda key: jax.random.normal(key, (50,)))
    assert default_kernel(Path(many)) is hmc


@pytest.mark.parametrize("kernel", [mala, hmc, random_walk])
def test_many_parameters_do_without_lapack(kernel: Kernel) -> None:
    """On several devices at once, JAX 0.10 waits forever for its batched calls."""
    d = 12
    model = Model(
        lambda theta: -jnp.sum(theta**2),
        lambda theta: -0.5 * jnp.sum(theta**2) - 0.5 * d * jnp.log(2 * jnp.pi),
        lambda key: jax.random.normal(key, (d,)),
    )
    rungs = pop.rungs_of(LADDER, np.tile(np.eye(d), (len(LADDER), 1, 1)))
    at, own = np.zeros((2, len(LADDER), 3 * d + 4)), np.zeros((2, LENGTH * (len(LADDER) * (d + 2) + d)))
    function = pop._advance.__wrapped__  # type: ignore[attr-defined]  # not compiled
    options: Any = {"path": Path(model), "length": LENGTH, "kernel": kernel, "swap": even_odd, "level": 1}
    program = str(jax.make_jaxpr(partial(function, **options))(at, own, (rungs, (0, 0.0, LENGTH))))
    assert "while" in program
    assert "triangular_solve" not in program
    assert "cholesky" not in program
