"""The short run that finds the posterior: both of two modes, by chains from everywhere."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest
from far_modes import (
    LOG_EVIDENCE,
    MODEL,
    OPTIONS,
    POPULATIONS,
    POSTERIOR_MEAN,
    POSTERIOR_WIDTH,
    D,
    scouted,
)
from scipy import stats
from targets import normal

from thermint import Draws, ladders
from thermint.estimators.errors import critical_value
from thermint.kernels import mala
from thermint.paper import linear
from thermint.path.path import Path
from thermint.runtime.session import Session
from thermint.sampling.options import SamplerOptions
from thermint.sampling.sampler import make_sampler
from thermint.sampling.swaps import swap_rates
from thermint.sampling.warmup import SHORT
from thermint.search.scout import CHAINS, CHUNK, DESCENT, SCOUT_RUNGS, gather_chains, scatter, scatter_groups, scout

WIDE = normal(np.eye(2), [3.0, -2.0], 0.5, 100.0 * np.array([[1.0, 0.5], [0.5, 1.0]]))


def test_climbing_takes_the_place_of_one_chunk_and_is_counted() -> None:
    with_metric, without = (
        scout(model, OPTIONS, jax.random.key(2), Session()).evaluations
        for model in (linear.model(), replace(linear.model(), metric=None))
    )
    chains = (1 + CHAINS) * POPULATIONS * SCOUT_RUNGS
    steps, rest = divmod(with_metric - without, chains)
    assert rest == 0
    assert 1 <= steps + CHUNK - 1 < 6  # the density is normal, and soon climbed


@pytest.mark.parametrize("seed", range(6))
def test_the_scout_finds_both_modes(seed: int) -> None:
    found = scouted(seed)
    position, score, log_density = found.chains
    chains, number, d = position.shape
    assert (number, d) == (CHUNK, D)
    started = (1 + CHAINS) * POPULATIONS * SCOUT_RUNGS
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
    errors = abs(found.log_evidence - LOG_EVIDENCE) / found.standard_error
    assert errors < critical_value(1e-4, found.degrees_of_freedom)
    assert 0.02 < found.standard_error < 1.0  # roughly: that is all that it is for
    assert found.evaluations > started * CHUNK * len(DESCENT)


def test_descents_end_at_the_posterior() -> None:
    sampler = make_sampler(
        Path(WIDE.model),
        ladders.power(SCOUT_RUNGS),
        SamplerOptions(4, mala, length=CHUNK, schedule=SHORT, adapt_ladder=True),
        jax.random.key(3),
    )
    assert sampler.ladder[0] == 0
    assert sampler.ladder[-1] == 1
    assert np.all(np.diff(sampler.ladder) > 0)
    before = sampler.evaluations
    start = np.random.default_rng(4).multivariate_normal(np.zeros(2), WIDE.covariance(0.0), (4, SCOUT_RUNGS))
    draws = sampler.descend(start, (1.0, 0.3, 0.3, 0.3))
    assert sampler.evaluations - before == 4 * CHUNK * 4 * SCOUT_RUNGS + 4 * 64  # and where they begin
    np.testing.assert_array_equal(draws.ladder, 1.0)
    last = np.asarray(draws.position)[:, -1].reshape(-1, 2)  # of 64 independent chains
    z = np.linalg.solve(np.linalg.cholesky(WIDE.covariance(1.0)), (last - WIDE.mean(1.0)).T)
    assert np.all(np.abs(z.mean(axis=1)) < 4 / 8)
    assert stats.chi2.ppf(1e-4, 128) < np.sum(z**2) < stats.chi2.isf(1e-4, 128)
    assert np.sum((start - WIDE.mean(1.0)) ** 2) > 100 * np.sum((last - WIDE.mean(1.0)) ** 2)  # it came from afar


def test_no_mode_has_a_single_chain() -> None:
    rng = np.random.default_rng(9)
    ends = rng.normal(0, 1, (4, 64, D))
    ends[1, :5] = 30.0 + rng.normal(0, 0.1, (5, D))
    chosen = scatter_groups(ends, SCOUT_RUNGS)
    assert chosen.shape == (1, 4, SCOUT_RUNGS, D)
    assert np.sum(chosen[..., 0] > 20) >= 4


def test_scattered_draws_exist_and_are_far_apart() -> None:
    rng = np.random.default_rng(5)
    position = rng.normal(0, [1.0, 100.0], (3, 200, 4, 2))
    position[1, 77, 2] = [30.0, 0.0]  # far in a coordinate of small scale, at one rung only
    position[2, 5:8, 3] = np.array([-20.0, 100.0]) + rng.normal(0, 0.01, (3, 2))  # three draws of six hundred
    chosen = scatter(position, 2)
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
    position, score, _ = gather_chains(pieces)
    assert position.shape == score.shape == (11, 10, 2)
    gradient = [one.grad_log_prior + one.grad_log_likelihood for one in pieces]
    chains = [(i, p, r) for i in range(2) for p in range(2) for r in range(3) if (i, p, r) != (1, 0, 2)]
    for chain, (i, p, r) in enumerate(chains):
        np.testing.assert_array_equal(position[chain], pieces[i].position[p, :, r])
        np.testing.assert_array_equal(score[chain], gradient[i][p, :, r])


def test_as_many_modes_are_kept_as_there_are_groups_of_four() -> None:
    rng = np.random.default_rng(9)
    centres = 50.0 * rng.standard_normal((16, D))
    ends = centres[np.tile(np.arange(16), (4, 4))] + rng.standard_normal((4, 64, D))
    chosen = scatter_groups(ends, SCOUT_RUNGS).reshape(-1, D)
    near = np.argmin(np.linalg.norm(chosen[:, None] - centres, axis=-1), axis=1)
    np.testing.assert_array_equal(np.bincount(near), 4)


def test_the_scout_is_a_small_part_of_a_call_and_its_rungs_overlap() -> None:
    found = scouted(1)
    assert found.evaluations < 10_000 * POPULATIONS
    assert found.draws.position.shape[1] >= 100  # as a fit takes for a few parameters
    rates = swap_rates(np.asarray(found.draws.log_likelihood), np.asarray(found.draws.ladder))[:-1]
    assert rates.min() > 0.5


def test_chains_at_the_posterior_are_stationary_wherever_they_come_from() -> None:
    found = scout(WIDE.model, OPTIONS, jax.random.key(1), Session())
    assert found.chains.is_stationary.mean() > 0.9
    assert len(found.chains.position) > 0.9 * 3 * POPULATIONS * SCOUT_RUNGS
