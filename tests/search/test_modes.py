"""Which chains are in a mode, and which modes draws have missed."""

from __future__ import annotations

import numpy as np
import pytest
from far_modes import (
    D,
    tail_and_narrow_mode,
)

from thermint.search.modes import Chains, drop_transient, missed_modes


@pytest.mark.parametrize(("weight", "expected"), [(0.3, True), (0.02, True), (1e-3, False), (1e-6, False)])
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
    np.testing.assert_array_equal(missed_modes(chains, found).position, position[(mode == 1) & expected])
    assert not missed_modes(Chains(position, score + 5.0, share), found).position.size  # on their way
    both = np.concatenate([found, 12.0 + 0.5 * rng.standard_normal((1, 200, D))], axis=1)
    assert not missed_modes(chains, both).position.size


def test_chains_in_a_tail_are_left_out_and_those_in_a_narrow_mode_are_not() -> None:
    chains, place = tail_and_narrow_mode()
    np.testing.assert_array_equal(chains.is_stationary, place == 0)
    np.testing.assert_array_equal(drop_transient(chains).log_density, chains.log_density[place != 1])
    assert (
        len(drop_transient(chains._replace(score=chains.score + 1e4)).score) == 25
    )  # none is at rest: nothing to judge by
    assert len(drop_transient(chains._replace(score=np.full_like(chains.score, np.nan))).score) == 25  # no gradients


def chains_at(centre: np.ndarray, width: float, seed: int = 0) -> Chains:
    """Six chains around each centre [mode, d], all of the same height."""
    rng = np.random.default_rng(seed)
    mode = np.repeat(np.arange(len(centre)), 6)
    away = width * rng.standard_normal((len(mode), 25, centre.shape[1]))
    return Chains(centre[mode, None] + away, -away / width**2, np.zeros(len(mode)))


def test_another_mode_is_more_than_two_standard_deviations_away() -> None:
    edge = np.sqrt(3.0)  # of a uniform distribution of variance 1
    found = np.random.default_rng(1).uniform(-edge, edge, (1, 2000, 1))
    chains = chains_at(np.array([[0.0], [edge + 1.4], [edge + 3.0]]), 0.2)
    np.testing.assert_array_equal(missed_modes(chains, found).position, chains.position[12:])


def test_draws_of_one_mode_are_not_another_in_many_dimensions() -> None:
    """Where no draw is within two standard deviations of any other."""
    rng = np.random.default_rng(2)
    found = rng.standard_normal((1, 1000, 30))
    chains = chains_at(np.zeros((1, 30)), 1.0)
    assert np.min(np.linalg.norm(chains.position[:, :, None] - found[0], axis=-1)) > 2
    assert not missed_modes(chains, found).position.size
    two = Chains(*(np.concatenate(parts) for parts in zip(chains, chains_at(np.full((1, 30), 5.0), 1.0), strict=True)))
    np.testing.assert_array_equal(missed_modes(two, found).position, two.position[6:])


@pytest.mark.parametrize(("drift", "expected"), [(0.0, 1.0), (2.5, 0.0)])
def test_chains_whose_scores_have_a_mean_are_not_stationary(drift: float, expected: float) -> None:
    rng = np.random.default_rng(3)
    x = np.zeros((200, 25, D))
    x[:, 0] = rng.standard_normal((200, D))
    for i in range(1, 25):  # autoregressive, as of a sampler whose steps are short
        x[:, i] = 0.8 * x[:, i - 1] + 0.6 * rng.standard_normal((200, D))
    chains = Chains(x, -x - drift / x.std(axis=1, keepdims=True), np.zeros(200))
    assert abs(chains.is_stationary.mean() - expected) < 0.05
