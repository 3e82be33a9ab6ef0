"""Importance weights: when they can be trusted."""

from __future__ import annotations

import numpy as np
import pytest

from thermint.diagnostics import tail_index, weight_warnings


@pytest.mark.parametrize("n", [100, 1000, 100_000])
def test_the_tail_index_of_log_normal_weights_shows_what_they_are_worth(n: int) -> None:
    rng = np.random.default_rng(5)
    # n weights whose logs have variance v are worth n e^-v equal ones, in the long run.
    for worth, low, high in ((20, 0.75, 1.05), (n / 2, 0.0, 0.75), (1, 1.05, 9.0)):
        index = np.mean([tail_index(np.sqrt(np.log(n / worth)) * rng.standard_normal(n)) for _ in range(20)])
        assert low < index < high


def test_a_heavy_tail_is_a_warning_although_the_weights_look_even() -> None:
    """Pareto weights without the largest ones, which a run may not have met."""
    quantile = (np.arange(10, 4000) + 0.5) / 4000
    (warning,) = weight_warnings(-1.3 * np.log(quantile))
    assert "are worth 123.9 equal ones, the largest makes up 3.4%" in warning
    assert not weight_warnings(-0.7 * np.log(quantile))


def test_weights_that_are_even_enough_are_no_warning() -> None:
    rng = np.random.default_rng(6)
    assert not weight_warnings(0.5 * rng.standard_normal(1000))
    assert not weight_warnings(np.zeros(25))
    left = np.where(rng.uniform(size=1000) < 0.5, -np.inf, 0.0)  # weights of zero do not matter
    assert not weight_warnings(left)
    (tail,) = weight_warnings(3.0 * rng.standard_normal(1000))
    assert "their tail has index" in tail
    (one,) = weight_warnings(np.append(np.zeros(99), 4.0))
    assert "the 100 importance weights are worth 7.7 equal ones, the largest makes up 35.5% of their sum" in one
