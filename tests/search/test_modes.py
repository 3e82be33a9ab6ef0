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
