"""Sums of features: equal to what numpy makes of all draws at once, however they were cut."""

from __future__ import annotations

from itertools import pairwise

import jax
import numpy as np
import pytest

import thermint
from thermint.control import gram as grams
from thermint.control.gram import Gram
from thermint.control.plan import make_plan
from thermint.model.draws import Draws
from thermint.path.coordinates import RungMoments, rung_moments

POPULATIONS, DRAWS, RUNGS, BATCHES, FOLDS = 2, 60, 3, 6, 3
LADDER = np.array([0.0, 0.3, 1.0])


def some_draws(number: int = DRAWS, seed: int = 0) -> Draws:
    """Draws in which no field can be mistaken for another; they need not come from any model."""
    rng = np.random.default_rng(seed)
    scalar, vector = (POPULATIONS, number, RUNGS), (POPULATIONS, number, RUNGS, 2)
    position = rng.standard_normal(vector) @ np.array([[1.0, 0.0], [0.8, 3.0]]) + np.array([5.0, -2.0])
    return Draws(
        ladder=LADDER,
        position=position,
        log_likelihood=rng.normal(-100.0, 3.0, scalar),
        log_prior=rng.normal(7.0, 1.0, scalar),
        grad_log_likelihood=rng.normal(0.5, 2.0, vector),
        grad_log_prior=rng.normal(-1.0, 0.3, vector),
    )


def some_frame() -> RungMoments:
    """Moments of other draws, as warm-up leaves them."""
    return rung_moments(some_draws(40, seed=1))


def rows_by_hand(draws: Draws, frame: RungMoments) -> np.ndarray:
    """The vector [1, y, y^2, up, down, features of degree 2] of every draw, [population, draw, rung, 10]."""
    rows = np.empty((*draws.log_prior.shape, 10))
    for rung, t in enumerate(LADDER):
        x = (draws.position[:, :, rung] - frame.mean[rung, 0]) @ np.linalg.inv(frame.cholesky[rung, 0]).T
        score = draws.grad_log_prior[:, :, rung] + t * draws.grad_log_likelihood[:, :, rung]
        s = score @ frame.cholesky[rung, 0]
        y = (draws.log_likelihood[:, :, rung] - frame.centre[rung]) / frame.spread[rung]
        features = [
            s[..., 0],
            s[..., 1],
            (1 + x[..., 0] * s[..., 0]) / np.sqrt(2),  # P = (x^2 - 1) / sqrt(8)
            (x[..., 0] * s[..., 1] + x[..., 1] * s[..., 0]) / 2,
            (1 + x[..., 1] * s[..., 1]) / np.sqrt(2),
        ]
        deviation = draws.log_likelihood[:, :, rung] - frame.centre[rung]
        up = np.exp((LADDER[min(rung + 1, len(LADDER) - 1)] - t) * deviation / 2)
        down = np.exp(-(t - LADDER[max(rung - 1, 0)]) * deviation / 2)
        rows[:, :, rung] = np.stack([np.ones_like(y), y, y**2, up, down, *features], axis=-1)
    return rows


def add(gram: Gram, draws: Draws, batch: int) -> Gram:
    return grams.accumulate(gram, draws, batch, degree=2, cross=True)[0]


def new_gram(populations: int = POPULATIONS) -> Gram:
    return grams.empty(some_frame(), populations=populations, batches=BATCHES, folds=FOLDS, degree=2, cross=True)


def gram_of(draws: Draws) -> Gram:
    gram = new_gram()
    length = draws.log_prior.shape[1] // BATCHES
    for batch in range(BATCHES):
        gram = add(gram, draws.block(batch * length, (batch + 1) * length), batch)
    return gram


def assert_same(one: Gram, other: Gram) -> None:
    for name in ("number", "first", "second"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-12, atol=1e-11, err_msg=name)


def test_sums_are_those_of_all_draws() -> None:
    draws = some_draws()
    gram = gram_of(draws)
    rows = rows_by_hand(draws, some_frame())
    batches = np.split(rows, BATCHES, axis=1)
    np.testing.assert_array_equal(gram.number, [10] * BATCHES)
    np.testing.assert_allclose(gram.first, [batch.sum(axis=1) for batch in batches], rtol=1e-11, atol=1e-11)
    for fold, block in enumerate(np.split(rows, FOLDS, axis=1)):  # two batches each
        expected = np.einsum("pnri,pnrj->rij", block, block)
        np.testing.assert_allclose(gram.second[fold], expected, rtol=1e-11, atol=1e-10)


@pytest.mark.parametrize("every", [1, 4])
def test_norms_of_features(every: int) -> None:
    draws = some_draws(10)
    norms = grams.accumulate(new_gram(), draws, 0, degree=2, cross=True, every=every)[1]
    features = rows_by_hand(draws, some_frame())[..., 1 + grams.TARGETS :].reshape(-1, len(LADDER), 5)[::every]
    for degree, number in ((1, 2), (2, 5)):
        expected = np.linalg.norm(features[..., :number], axis=-1).T
        np.testing.assert_allclose(norms[degree - 1], expected, rtol=1e-11)


def test_without_cross_terms_products_of_coordinates_are_left_out() -> None:
    draws = some_draws(10)
    full = add(new_gram(), draws, 0)
    empty = grams.empty(some_frame(), populations=POPULATIONS, batches=BATCHES, folds=FOLDS, degree=2, cross=False)
    slim, _ = grams.accumulate(empty, draws, 0, degree=2, cross=False)
    kept = np.array([0, 1, 2, 3, 4, 5, 6, 7, 9])
    np.testing.assert_allclose(slim.first, full.first[..., kept], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(slim.second, full.second[..., kept, :][..., kept], rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("cuts", [(0, 1, 10), (0, 5, 10), (0, 3, 4, 7, 10)])
def test_chunks_of_a_batch_add_up(cuts: tuple[int, ...]) -> None:
    draws = some_draws()
    gram = new_gram()
    for batch in range(BATCHES):
        for start, stop in pairwise(cuts):
            gram = add(gram, draws.block(batch * 10 + start, batch * 10 + stop), batch)
    assert_same(gram, gram_of(draws))


def test_sums_of_two_halves_add_up() -> None:
    draws = some_draws()
    first, second = new_gram(), new_gram()
    for batch in range(BATCHES):
        first = add(first, draws.block(batch * 10, batch * 10 + 4), batch)
        second = add(second, draws.block(batch * 10 + 4, batch * 10 + 10), batch)
    together = first._replace(
        number=first.number + second.number, first=first.first + second.first, second=first.second + second.second
    )
    assert_same(together, gram_of(draws))


def test_populations_stay_apart_in_first_moments_and_add_up_in_second_ones() -> None:
    draws = some_draws()
    both = gram_of(draws)
    total = np.zeros(both.second.shape)
    for population in range(POPULATIONS):
        one = draws._replace(**{k: a[population : population + 1] for k, a in draws._series().items()})
        gram = new_gram(populations=1)
        for batch in range(BATCHES):
            gram = add(gram, one.block(batch * 10, batch * 10 + 10), batch)
        np.testing.assert_allclose(gram.first[:, 0], both.first[:, population], rtol=1e-12, atol=1e-11)
        np.testing.assert_array_equal(gram.number, both.number)  # draws of *one* population
        total += gram.second
    np.testing.assert_allclose(total, both.second, rtol=1e-12, atol=1e-11)


# --- Batches and folds ---


@pytest.mark.parametrize(("batches", "folds"), [(20, 5), (25, 5), (10, 5), (6, 3), (7, 5)])
def test_folds_are_runs_of_batches_of_nearly_equal_length(batches: int, folds: int) -> None:
    frame = some_frame()
    fold = grams.empty(frame, populations=1, batches=batches, folds=folds, degree=0, cross=True).fold
    assert fold.tolist() == sorted(fold.tolist())
    lengths = np.bincount(fold, minlength=folds)
    assert lengths.sum() == batches
    assert np.ptp(lengths) <= (0 if batches % folds == 0 else 1)


def test_batches_nest_in_folds() -> None:
    # The first row of the second moments holds sums, which must be those of the batches that `fold` names.
    gram = gram_of(some_draws())
    for fold in range(FOLDS):
        inside = np.asarray(gram.first)[gram.fold == fold]
        np.testing.assert_allclose(gram.second[fold, :, 0], inside.sum(axis=(0, 1)), rtol=1e-11, atol=1e-11)
        assert gram.second[fold, 0, 0, 0] == gram.number[gram.fold == fold].sum() * POPULATIONS


def test_memory_does_not_grow_with_the_number_of_draws() -> None:
    shapes = [jax.tree.map(np.shape, gram_of(some_draws(number))) for number in (60, 600)]
    assert shapes[0] == shapes[1]
    assert sum(leaf.nbytes for leaf in jax.tree.leaves(gram_of(some_draws(600)))) < 16 * 1024


@pytest.mark.parametrize(("draws", "populations"), [(1000, 4), (53, 1), (10, 2), (100_003, 1)])
def test_plans_fill_all_folds_alike(draws: int, populations: int) -> None:
    plan = make_plan(
        draws=draws, populations=populations, rungs=3, dimension=2, degree=2, rule="second-order", crossfit=True
    )
    gram = plan.empty(some_frame(), populations)
    assert np.ptp(np.bincount(gram.fold)) == 0
    assert plan.batches * plan.chunks * plan.length >= draws
    assert plan.batches <= draws


@pytest.mark.parametrize("number", [53, 60, 101])
@pytest.mark.parametrize("populations", [1, 2])
def test_estimate_counts_every_draw_once(number: int, populations: int) -> None:
    draws = some_draws(number)
    draws = draws._replace(**{k: a[:populations] for k, a in draws._series().items()})
    result = thermint.estimate(draws, degree=0, rule="trapezoid")
    means = draws.log_likelihood.mean(axis=(0, 1))
    assert result.log_evidence == pytest.approx(np.trapezoid(means, LADDER), rel=1e-12)
    np.testing.assert_allclose(result.rungs["mean"], means, rtol=1e-12)
    np.testing.assert_allclose(result.rungs["variance"], draws.log_likelihood.var(axis=(0, 1)), rtol=1e-10)
