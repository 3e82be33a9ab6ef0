"""Finding the posterior: both of two modes, a reference close to them, and as many rungs as it takes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats
from targets import normal

from thermint import Draws, Model, ladders
from thermint.kernels import mala, mmala
from thermint.model.draws import ScoredDraws
from thermint.paper import linear
from thermint.path.mixture import Mixture
from thermint.path.path import Path
from thermint.path.quadrature import lobatto
from thermint.runtime.session import Session
from thermint.sampling.options import SamplerOptions
from thermint.sampling.sampler import Sampler, default_kernel, make_sampler
from thermint.sampling.warmup import SHORT
from thermint.search import scout as scouting
from thermint.search.scout import (
    CLOSE,
    DESCENT,
    DESCENTS,
    RUNGS,
    SCOUT_CHUNK,
    SCOUT_RUNGS,
    Chains,
    FittedPath,
    Scout,
    _arrived,
    _enough,
    _joined,
    _posterior,
    _scattered,
    _scattered_ends,
    ascend,
    drop_transient,
    levenberg_marquardt,
    missed_modes,
    refine_reference,
    scout,
)

D, POPULATIONS, PRIOR = 4, 2, 4.0
CENTRES = np.outer([-3.0, 3.0], np.ones(D))
WEIGHTS, WIDTHS = np.array([0.3, 0.7]), np.array([0.4, 1.0])
OPTIONS = SamplerOptions(POPULATIONS)


def log_likelihood(theta: jax.Array) -> jax.Array:
    square = jnp.sum((theta - CENTRES) ** 2, axis=1)
    return jax.nn.logsumexp(np.log(WEIGHTS) - D / 2 * np.log(2 * np.pi * WIDTHS**2) - square / (2 * WIDTHS**2))


MODEL = Model(
    log_likelihood,
    lambda theta: -D / 2 * np.log(2 * np.pi * PRIOR**2) - jnp.sum(theta**2) / (2 * PRIOR**2),
    lambda key: PRIOR * jax.random.normal(key, (D,)),
    normalised=True,
)
TOTAL = WIDTHS**2 + PRIOR**2
EACH = np.log(WEIGHTS) - D / 2 * np.log(2 * np.pi * TOTAL) - np.sum(CENTRES**2, axis=1) / (2 * TOTAL)
LOG_EVIDENCE = float(special.logsumexp(EACH))
# The posterior is a mixture too.
POSTERIOR_WEIGHT = special.softmax(EACH)
POSTERIOR_MEAN = CENTRES * (PRIOR**2 / TOTAL)[:, None]
POSTERIOR_WIDTH = np.sqrt(WIDTHS**2 * PRIOR**2 / TOTAL)


@cache
def scouted(seed: int) -> Scout:
    return scout(MODEL, OPTIONS, jax.random.key(seed), Session())


@cache
def settled(seed: int) -> FittedPath:
    found = scouted(seed)
    key = jax.random.key(100 + seed)
    options = replace(OPTIONS, length=50)
    return refine_reference(MODEL, found.chains, options, key, ladder=None, tolerance=1e-3, session=Session())


@cache
def warm(seed: int) -> Sampler:
    mixture, ladder, _ = settled(seed)
    return make_sampler(Path(MODEL, mixture), ladder, replace(OPTIONS, length=50), jax.random.key(200 + seed))


# --- Uphill ---


def test_climbing_ends_at_draws_of_a_normal_posterior() -> None:
    model = linear.model()
    starts = np.random.default_rng(0).normal(0, 10, (4, 4, SCOUT_RUNGS, 3))
    found, steps = levenberg_marquardt(model, starts, np.random.default_rng(0))
    assert steps < 6  # the density is normal
    found = found.reshape(-1, 3)
    X, y = linear._data(0)
    covariance = np.linalg.inv(X.T @ X + np.eye(3))
    z = np.linalg.solve(np.linalg.cholesky(covariance), (found - covariance @ X.T @ y).T)
    assert np.all(np.abs(z.mean(axis=1)) < 4 / np.sqrt(len(found)))
    assert stats.chi2.ppf(1e-4, z.size) < np.sum(z**2) < stats.chi2.isf(1e-4, z.size)


def test_climbing_takes_the_place_of_one_chunk_and_is_counted() -> None:
    with_metric, without = (
        scout(model, OPTIONS, jax.random.key(2), Session()).evaluations
        for model in (linear.model(), replace(linear.model(), metric=None))
    )
    chains = (1 + DESCENTS) * POPULATIONS * SCOUT_RUNGS
    steps, rest = divmod(with_metric - without, chains)
    assert rest == 0
    assert 1 <= steps + SCOUT_CHUNK - 1 < 6  # the density is normal, and soon climbed


def test_climbing_finds_narrow_modes_of_a_skewed_posterior() -> None:
    """Growth a (1 - e^-bt) or decay, observed at a few times: two curves that fit, far apart in the parameters."""
    times = np.linspace(0.5, 4.0, 8)
    data = 1 - np.exp(-2 * times)

    def curve(theta: jax.Array) -> jax.Array:
        return theta[0] ** 2 * (1 - jnp.exp(-jnp.exp(theta[1]) * times))

    def metric(theta: jax.Array) -> tuple[jax.Array, jax.Array]:
        J = jax.jacfwd(curve)(theta) / 0.01
        return J.T @ J, jnp.eye(2) / 9

    model = Model(
        lambda theta: -jnp.sum((curve(theta) - data) ** 2) / (2 * 0.01**2),
        lambda theta: -jnp.sum(theta**2) / 18 - jnp.log(18 * jnp.pi),
        lambda key: 3 * jax.random.normal(key, (2,)),
        metric=metric,
    )
    starts = np.random.default_rng(1).normal(0, 3, (1, 4, SCOUT_RUNGS, 2))
    found = levenberg_marquardt(model, starts, np.random.default_rng(1))[0].reshape(-1, 2)
    modes = np.array([[1.0, np.log(2.0)], [-1.0, np.log(2.0)]])
    near = np.linalg.norm(found[:, None] - modes, axis=-1) < 0.1
    assert np.all(near.sum(axis=0) > 10)
    assert np.all(np.isfinite(found))


# --- Two far modes ---


@pytest.mark.parametrize("seed", range(6))
def test_the_scout_finds_both_modes(seed: int) -> None:
    found = scouted(seed)
    position, score, log_density = found.chains
    chains, number, d = position.shape
    assert (number, d) == (SCOUT_CHUNK, D)
    started = (1 + DESCENTS) * POPULATIONS * SCOUT_RUNGS
    assert 0.8 * started < chains <= started
    away = np.linalg.norm(position[:, :, None] - POSTERIOR_MEAN, axis=-1) / POSTERIOR_WIDTH  # [..., mode]
    share = np.mean(away < 5, axis=(0, 1))
    assert np.all(share > 0.02)  # four chains of 192
    assert share.sum() > 0.9  # and little else
    # Scores are of the posterior, at these positions.
    density = jax.vmap(jax.value_and_grad(lambda theta: MODEL.log_prior(theta) + MODEL.log_likelihood(theta)))
    value, gradient = density(position[:3].reshape(-1, D))
    np.testing.assert_allclose(score[:3].reshape(-1, D), gradient, rtol=1e-8)
    np.testing.assert_allclose(log_density[:3], value.reshape(3, -1).mean(axis=1), rtol=1e-8)
    assert abs(found.log_evidence - LOG_EVIDENCE) < 1.0  # roughly: that is all that it is for
    assert 0.02 < found.standard_error < 0.5
    assert found.evaluations > started * SCOUT_CHUNK * len(DESCENT)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_reference_that_settles_is_close(seed: int) -> None:
    mixture, ladder, evaluations = settled(seed)
    assert mixture.components == 2
    assert default_kernel(Path(MODEL, mixture)) is mmala  # each mode has its own scale
    assert isinstance(mixture, Mixture)
    order = np.argsort(mixture.mean[:, 0])
    for k, mean, width in zip(order, POSTERIOR_MEAN, POSTERIOR_WIDTH, strict=True):
        assert np.linalg.norm(mixture.mean[k] - mean) < 0.3 * width
        ratio = np.linalg.eigvalsh(mixture.cholesky[k] @ mixture.cholesky[k].T) / width**2
        assert 0.8 < ratio[0] < ratio[-1] < 1.8
    assert np.all(np.abs(np.exp(mixture.log_weight[order]) - POSTERIOR_WEIGHT) < 0.15)
    last = warm(seed).last
    assert last is not None
    g = np.asarray(last.log_likelihood)
    divergence = g[..., -1].mean() - g[..., 0].mean()
    assert divergence < CLOSE / 2
    assert g.mean() == pytest.approx(LOG_EVIDENCE, abs=0.2)  # nearly constant
    np.testing.assert_allclose(ladder, ladders.lobatto(RUNGS[0]))
    assert evaluations > 0


# --- Descents ---

WIDE = normal(np.eye(2), [3.0, -2.0], 0.5, 100.0 * np.array([[1.0, 0.5], [0.5, 1.0]]))


def test_descents_end_at_the_posterior() -> None:
    sampler = make_sampler(
        Path(WIDE.model),
        ladders.power(SCOUT_RUNGS),
        SamplerOptions(4, mala, length=SCOUT_CHUNK, schedule=SHORT, adapt_ladder=True),
        jax.random.key(3),
    )
    assert sampler.ladder[0] == 0
    assert sampler.ladder[-1] == 1
    assert np.all(np.diff(sampler.ladder) > 0)
    before = sampler.evaluations
    start = np.random.default_rng(4).multivariate_normal(np.zeros(2), WIDE.covariance(0.0), (4, SCOUT_RUNGS))
    draws = sampler.descend(start, (1.0, 0.3, 0.3, 0.3))
    assert sampler.evaluations - before == 4 * SCOUT_CHUNK * 4 * SCOUT_RUNGS + 4 * 64  # and where they begin
    np.testing.assert_array_equal(draws.ladder, 1.0)
    last = np.asarray(draws.position)[:, -1].reshape(-1, 2)  # of 64 independent chains
    z = np.linalg.solve(np.linalg.cholesky(WIDE.covariance(1.0)), (last - WIDE.mean(1.0)).T)
    assert np.all(np.abs(z.mean(axis=1)) < 4 / 8)
    assert stats.chi2.ppf(1e-4, 128) < np.sum(z**2) < stats.chi2.isf(1e-4, 128)
    assert np.sum((start - WIDE.mean(1.0)) ** 2) > 100 * np.sum((last - WIDE.mean(1.0)) ** 2)  # it came from afar


def test_draws_of_the_prior_go_uphill_to_both_modes() -> None:
    starts = PRIOR * np.random.default_rng(8).standard_normal((4, 64, D))
    ends = ascend(MODEL, starts).reshape(-1, D)
    near = np.linalg.norm(ends[:, None] - POSTERIOR_MEAN, axis=-1) < 2 * POSTERIOR_WIDTH
    assert near.any(axis=1).mean() > 0.9
    assert np.all(near.sum(axis=0) >= 3)


def test_no_mode_has_a_single_chain() -> None:
    rng = np.random.default_rng(9)
    ends = rng.normal(0, 1, (4, 64, D))
    ends[1, :5] = 30.0 + rng.normal(0, 0.1, (5, D))
    chosen = _scattered_ends(ends, SCOUT_RUNGS)
    assert chosen.shape == (1, 4, SCOUT_RUNGS, D)
    assert np.sum(chosen[..., 0] > 20) >= 4


@pytest.mark.parametrize(("weight", "expected"), [(0.3, True), (1e-3, False), (1e-6, False)])
def test_modes_that_are_lost_are_noticed_if_they_matter(weight: float, expected: bool) -> None:
    rng = np.random.default_rng(10)
    width = np.array([1.0, 0.5])
    centre = np.array([0.0, 12.0])
    mode = np.repeat([0, 1], [20, 4])
    position = centre[mode, None, None] + width[mode, None, None] * rng.standard_normal((24, 25, D))
    share = np.log([1 - weight, weight])[mode] - D * np.log(width)[mode]  # of the density at the top
    score = -(position - centre[mode, None, None]) / width[mode, None, None] ** 2
    chains = Chains(position, score, share)
    found = rng.standard_normal((1, 2000, D))
    np.testing.assert_array_equal(missed_modes(chains, found), (mode == 1) & expected)
    assert not missed_modes(Chains(position, score + 5.0, share), found).any()  # on their way
    both = np.concatenate([found, 12.0 + 0.5 * rng.standard_normal((1, 200, D))], axis=1)
    assert not missed_modes(chains, both).any()


def tail_and_narrow_mode() -> tuple[Chains, np.ndarray]:
    """Chains in a broad mode, in its tail, and in a narrow mode, not at rest; and where each is: 0, 1, 2."""
    rng = np.random.default_rng(12)
    place = np.repeat([0, 1, 2], [20, 3, 2])
    width = np.array([1.0, 1.0, 0.02])[place, None, None]
    start = np.array([0.0, 30.0, 12.1])[place, None, None]
    centre = np.array([0.0, 0.0, 12.0])[place, None, None]
    position = start + width * rng.standard_normal((25, 25, D))
    return Chains(position, -(position - centre) / width**2, np.array([0.0, -400.0, 5.0])[place]), place


def test_chains_in_a_tail_are_left_out_and_those_in_a_narrow_mode_are_not() -> None:
    chains, place = tail_and_narrow_mode()
    np.testing.assert_array_equal(chains.is_stationary, place == 0)
    np.testing.assert_array_equal(drop_transient(chains), place != 1)
    assert drop_transient(chains._replace(score=chains.score + 1e4)).all()  # none is at rest: nothing to judge by
    assert drop_transient(chains._replace(score=np.full_like(chains.score, np.nan))).all()  # no gradients


def test_the_first_reference_is_fitted_to_chains_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    chains, _ = tail_and_narrow_mode()
    first: list[Mixture] = []

    class FittedError(Exception):
        pass

    def refuse(path: Path, *_: Any, **__: Any) -> None:
        assert isinstance(path.reference, Mixture)
        first.append(path.reference)
        raise FittedError

    monkeypatch.setattr(scouting, "make_sampler", refuse)
    with pytest.raises(FittedError):
        refine_reference(MODEL, chains, OPTIONS, jax.random.key(0), ladder=None, tolerance=0.01, session=Session())
    assert sorted(np.asarray(first[0].mean)[:, 0].round()) == [0.0, 12.0]  # and not 30


def test_chains_given_back_are_in_both_halves() -> None:
    many, few = np.zeros((1, 100, D)), np.ones((3, 10, D))
    (joined,) = _joined((many,), (few,))
    for half in np.split(joined[0], 2):
        assert 0.2 <= half.mean() < 0.6


def test_scattered_draws_exist_and_are_far_apart() -> None:
    rng = np.random.default_rng(5)
    position = rng.normal(0, [1.0, 100.0], (3, 200, 4, 2))
    position[1, 77, 2] = [30.0, 0.0]  # far in a coordinate of small scale, at one rung only
    position[2, 5:8, 3] = np.array([-20.0, 100.0]) + rng.normal(0, 0.01, (3, 2))  # three draws of six hundred
    chosen = _scattered(position, 2)
    assert chosen.shape == (2, 3, 4, 2)
    for rung in range(4):
        rows = chosen[:, :, rung].reshape(-1, 2)
        existing = position[:, :, rung].reshape(-1, 2)
        assert all(np.any(np.all(existing == row, axis=1)) for row in rows)
        assert len(np.unique(rows, axis=0)) == 6
        # Farther from each other than draws at random are.
        gap = np.min(np.linalg.norm((rows[:, None] - rows) / existing.std(axis=0), axis=-1) + 100 * np.eye(6))
        assert gap > 0.5
    assert np.any(chosen[:, :, 2, 0] == 30.0)
    assert np.sum(np.abs(chosen[:, :, 3, 0] + 20) < 1) == 1  # one of them will do
    assert np.all(np.abs(chosen[:, :, :2, 0]) < 10)


def test_chains_that_have_not_arrived_are_left_out() -> None:
    rng = np.random.default_rng(6)

    def piece() -> Draws:
        scalar, vector = (2, 10, 3), (2, 10, 3, 2)
        return Draws(
            np.ones(3),
            position=rng.standard_normal(vector),
            log_likelihood=rng.normal(-50, 1, scalar),
            log_prior=rng.normal(-3, 1, scalar),
            grad_log_likelihood=rng.standard_normal(vector),
            grad_log_prior=rng.standard_normal(vector),
        )

    pieces = [piece(), piece()]
    np.asarray(pieces[1].log_prior)[0, :, 2] -= 40.0
    position, score, _ = _arrived(pieces)
    assert position.shape == score.shape == (11, 10, 2)
    gradient = [one.grad_log_prior + one.grad_log_likelihood for one in pieces]
    chains = [(i, p, r) for i in range(2) for p in range(2) for r in range(3) if (i, p, r) != (1, 0, 2)]
    for chain, (i, p, r) in enumerate(chains):
        np.testing.assert_array_equal(position[chain], pieces[i].position[p, :, r])
        np.testing.assert_array_equal(score[chain], gradient[i][p, :, r])


# --- The number of rungs ---


def path_of(width: float, rungs: int = 5, d: int = 10, shift: float = 0.0, draws: int = 2000) -> ScoredDraws:
    """Exact draws on the path from N(shift, width^2 I) to N(0, I); the log evidence is 0."""
    rng = np.random.default_rng(7)
    ladder = ladders.lobatto(rungs)
    precision = (1 - ladder) / width**2 + ladder
    mean = (1 - ladder) * shift / width**2 / precision
    x = mean[:, None] + rng.standard_normal((2, draws, rungs, d)) / np.sqrt(precision)[:, None]
    g = np.sum(stats.norm.logpdf(x) - stats.norm.logpdf(x, shift, width), axis=-1)
    return ScoredDraws(g, x, -x)


def test_a_poor_reference_takes_more_rungs_than_a_good_one() -> None:
    first = ladders.lobatto(5)
    chosen = [len(_enough(path_of(width).g, first, 1e-4)) for width in (1.05, 2.5, 6.0)]
    assert chosen[0] == RUNGS[0]
    assert chosen[0] < chosen[1] < chosen[2]
    assert set(chosen) <= set(RUNGS)
    lax, strict = (len(_enough(path_of(1.5).g, first, tolerance)) for tolerance in (1.0, 1e-12))
    assert lax == RUNGS[0]
    assert strict > RUNGS[2]


def test_rungs_with_nothing_in_common_take_the_most() -> None:
    np.testing.assert_allclose(_enough(path_of(1000.0).g, ladders.lobatto(5), 1e-4), ladders.lobatto(RUNGS[-1]))


def test_as_many_rungs_as_chosen_do_integrate_the_curve() -> None:
    for width in (1.1, 2.5):
        nodes = _enough(path_of(width).g, ladders.lobatto(5), 1e-3)
        curve = 5 * (1 - width**-2) * -1 / ((1 - nodes) / width**2 + nodes) + 10 * np.log(width)  # E_t[g]
        assert abs(lobatto(nodes)[0] @ curve) < 2e-3


# --- What a pilot found ---


def test_draws_of_all_rungs_become_draws_of_the_posterior() -> None:
    found = path_of(1.5, d=2, shift=1.0)
    position, score = _posterior(found, ladders.lobatto(5))
    assert position.shape == score.shape == (1, 20_000, 2)
    np.testing.assert_array_equal(score, -position)  # each with its own score
    assert len(np.unique(position[0], axis=0)) > 6000  # not the last rung's 4000 alone
    assert np.all(np.abs(position.mean(axis=1)) < 0.06)
    np.testing.assert_allclose(np.cov(position[0].T), np.eye(2), atol=0.1)
    assert abs(found.position.mean()) > 0.3  # what they were before
    # In the order of time: the first half of these is of the first half of the draws.
    early = found.position[:, :1000].reshape(-1, 2)
    share = np.mean(np.isin(position[0, :9000, 0], early[:, 0]))
    assert share > 0.99


def test_without_overlap_the_posterior_rung_speaks() -> None:
    found = path_of(1000.0, draws=50)
    position, _ = _posterior(found, ladders.lobatto(5))
    np.testing.assert_array_equal(position, found.position[:, :, -1])
