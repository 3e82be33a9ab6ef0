"""Modes among draws: what is split in two, and what is not."""

from __future__ import annotations

import numpy as np
import pytest
from mixtures import LEANING, NARROW, TWO
from scipy import special, stats

from thermint.path import splitting
from thermint.path.fitting import fit
from thermint.path.mixture import make_mixture


def modes(centres: np.ndarray, draws: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draws of equally heavy standard normals at the centres [mode, d], and their scores: [1, draw, d]."""
    rng = np.random.default_rng(seed)
    x = centres[rng.integers(len(centres), size=draws)] + rng.standard_normal((draws, centres.shape[1]))
    away = x[:, None] - centres
    share = special.softmax(-np.sum(away**2, axis=-1) / 2, axis=1)
    return x[None], -np.einsum("nk,nki->ni", share, away)[None]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(("apart", "components"), [(3.3, 1), (4.3, 2)])
def test_modes_are_split_where_that_is_clearly_better(apart: float, components: int, known: bool) -> None:
    x, score = modes(np.array([[0.0, 0.0], [apart, 0.0]]), 4000, seed=1)
    assert fit(x, score if known else None).components == components


def test_many_modes_are_found_but_not_ever_more() -> None:
    angle = 2 * np.pi * np.arange(12) / 12
    ring = 30 * np.column_stack([np.cos(angle), np.sin(angle)])
    assert fit(*modes(ring[::2], 3000, seed=2)).components == 6
    assert 6 <= fit(*modes(ring, 3000, seed=2)).components <= 10


def test_shares_of_draws_and_their_density_are_scipys() -> None:
    weight, covariance = np.array([0.3, 0.7]), np.stack([NARROW, LEANING])
    x = np.random.default_rng(0).uniform(-5, 5, (200, 2))
    of_each = [stats.multivariate_normal(m, c).logpdf(x) for m, c in zip(TWO, covariance, strict=True)]
    log_each = np.log(weight) + np.stack(of_each, axis=1)
    share, log_height = splitting.responsibilities(make_mixture(weight, TWO, covariance), x)
    np.testing.assert_allclose(share, special.softmax(log_each, axis=1), rtol=1e-10, atol=1e-300)
    expected = np.mean(special.logsumexp(log_each, axis=1))
    assert log_height - np.log(2 * np.pi) == pytest.approx(expected, rel=1e-12)  # two dimensions


def test_normals_have_the_moments_of_their_shares() -> None:
    rng = np.random.default_rng(1)
    x, share = rng.standard_normal((50, 3)), rng.dirichlet(np.ones(2), 50)
    made = splitting.fit_normals(x, share)
    np.testing.assert_allclose(np.exp(made.log_weight), share.mean(axis=0), rtol=1e-12)
    for k in range(2):
        np.testing.assert_allclose(made.mean[k], np.average(x, axis=0, weights=share[:, k]), rtol=1e-10)
        spread = np.cov(x.T, aweights=share[:, k], ddof=0)
        np.testing.assert_allclose(
            made.cholesky[k] @ made.cholesky[k].T, spread + splitting.MIN_VARIANCE * np.eye(3), rtol=1e-10
        )


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_few_draws_of_a_normal_are_not_split(seed: int) -> None:
    # Two normals fit those that they are fitted to better, as they have twice as many parameters.
    z = np.random.default_rng(seed).standard_normal((80, 8))
    own = [
        splitting.responsibilities(fitted, z)[1]
        for fitted in (splitting.fit_two(z), splitting.fit_normals(z, np.ones((80, 1))))
    ]
    assert own[0] > own[1] + 2 * splitting.MIN_SPLIT_GAIN
    assert splitting.split(z, np.arange(80) % 2) is None
