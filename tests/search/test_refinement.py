"""References that are close to the posterior, and as many rungs as it takes."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from far_modes import (
    LOG_EVIDENCE,
    MODEL,
    OPTIONS,
    POSTERIOR_MEAN,
    POSTERIOR_WEIGHT,
    POSTERIOR_WIDTH,
    D,
    scouted,
    settled,
    tail_and_narrow_mode,
    warm,
)
from scipy import stats
from targets import normal

from thermint import Model, ladders
from thermint.kernels import mmala
from thermint.model.draws import ScoredDraws
from thermint.path.mixture import Mixture
from thermint.path.path import Path
from thermint.path.quadrature import lobatto
from thermint.runtime.session import Session
from thermint.sampling.sampler import default_kernel, make_sampler
from thermint.search import refinement
from thermint.search.modes import Chains
from thermint.search.refinement import KL_TOL, RUNGS, choose_rungs, join_halves, refine_reference, reweight


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
    assert divergence < KL_TOL / 2
    assert g.mean() == pytest.approx(LOG_EVIDENCE, abs=0.2)  # nearly constant
    np.testing.assert_allclose(ladder, ladders.lobatto(RUNGS[0]))
    assert evaluations > 0


def test_the_first_reference_is_fitted_to_stationary_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    chains, _ = tail_and_narrow_mode()
    first: list[Mixture] = []

    class FittedError(Exception):
        pass

    def refuse(path: Path, *_: Any, **__: Any) -> None:
        assert isinstance(path.reference, Mixture)
        first.append(path.reference)
        raise FittedError

    monkeypatch.setattr(refinement, "make_sampler", refuse)
    with pytest.raises(FittedError):
        refine_reference(MODEL, chains, OPTIONS, jax.random.key(0), ladder=None, tolerance=0.01, session=Session())
    assert sorted(np.asarray(first[0].mean)[:, 0].round()) == [0.0, 12.0]  # and not 30


def test_chains_given_back_are_in_both_halves() -> None:
    many, few = np.zeros((1, 100, D)), np.ones((3, 10, D))
    (joined,) = join_halves((many,), (few,))
    for half in np.split(joined[0], 2):
        assert 0.2 <= half.mean() < 0.6


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
    chosen = [len(choose_rungs(path_of(width).g, first, 1e-4)) for width in (1.05, 2.5, 6.0)]
    assert chosen[0] == RUNGS[0]
    assert chosen[0] < chosen[1] < chosen[2]
    assert set(chosen) <= set(RUNGS)
    lax, strict = (len(choose_rungs(path_of(1.5).g, first, tolerance)) for tolerance in (1.0, 1e-12))
    assert lax == RUNGS[0]
    assert strict > RUNGS[2]


def test_rungs_with_nothing_in_common_take_the_most() -> None:
    np.testing.assert_allclose(choose_rungs(path_of(1000.0).g, ladders.lobatto(5), 1e-4), ladders.lobatto(RUNGS[-1]))


def test_as_many_rungs_as_chosen_do_integrate_the_curve() -> None:
    for width in (1.1, 2.5):
        nodes = choose_rungs(path_of(width).g, ladders.lobatto(5), 1e-3)
        curve = 5 * (1 - width**-2) * -1 / ((1 - nodes) / width**2 + nodes) + 10 * np.log(width)  # E_t[g]
        assert abs(lobatto(nodes)[0] @ curve) < 2e-3


def test_draws_of_all_rungs_become_draws_of_the_posterior() -> None:
    found = path_of(1.5, d=2, shift=1.0)
    position, score = reweight(found, ladders.lobatto(5))
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
    position, _ = reweight(found, ladders.lobatto(5))
    np.testing.assert_array_equal(position, found.position[:, :, -1])


def pilots(model: Model, chains: Chains, key: int = 0) -> int:
    """Number of pilot runs that the refinement makes."""
    made: list[Path] = []

    def count(path: Path, *args: Any, **options: Any) -> Any:
        made.append(path)
        return make_sampler(path, *args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(refinement, "make_sampler", count)
        refine_reference(model, chains, OPTIONS, jax.random.key(key), ladder=None, tolerance=1e-2, session=Session())
    return len(made)


STANDARD = normal(np.eye(D), np.zeros(D), 1.0, 1e4 * np.eye(D))


@pytest.mark.parametrize(("variance", "expected"), [(1.35, 1), (1.6, 2)])
def test_a_reference_is_fitted_again_where_it_is_not_close(variance: float, expected: int) -> None:
    """The symmetrised divergence of normals is 2 (v + 1 / v - 2) here: 0.32 and 0.66 with a tenth as a margin."""
    x = np.sqrt(variance) * np.random.default_rng(1).standard_normal((32, 25, D))
    assert pilots(STANDARD.model, Chains(x, -x / variance, np.zeros(32))) == expected


def test_modes_are_given_back_twice_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refinement, "missed_modes", lambda chains, found: chains.take(chains.position[:, 0, 0] > 0))
    assert pilots(MODEL, scouted(1).chains) == 3
    monkeypatch.setattr(refinement, "missed_modes", lambda chains, found: chains.take(np.arange(2)))  # too few
    assert pilots(MODEL, scouted(1).chains) == 1
