"""Annealed importance sampling in equilibrium: truth and exact cases."""

from __future__ import annotations

import numpy as np
import pytest
from targets import NORMAL, SKEWED, SKEWED_2, Target, exact_draws
from test_stepping_stone import assert_error_is_the_spread, error_where_constants_are_true, normal_traces, traces

import thermint
from thermint.estimators.ais import ais
from thermint.estimators.stepping_stone import forward
from thermint.ladders import power


@pytest.mark.parametrize("target", [NORMAL, SKEWED], ids=["normal", "skewed"])
def test_every_constant_is_the_truth(target: Target) -> None:
    ladder = power(7, 3)
    ratios = ais(traces(target, np.random.default_rng(0), ladder, 4, 5000), ladder, 20)
    assert 1e-4 < error_where_constants_are_true(ratios, target, ladder) < 0.03


@pytest.mark.parametrize(("rho", "draws"), [(0.0, 403), (0.8, 1003)])  # not divisible by the number of batches
def test_error_is_the_spread(rho: float, draws: int) -> None:
    assert_error_is_the_spread(ais, power(9, 2), draws, rho)


def test_the_evidence_is_unbiased_and_its_log_too_low() -> None:
    ladder = np.array([0.0, 0.1, 0.4, 1.0])
    g = normal_traces(np.random.default_rng(2), ladder, 4000, 1, 10)

    def bias(estimates: np.ndarray) -> float:
        return float(estimates.mean() / (estimates.std() / np.sqrt(len(estimates))))

    log = np.array([ais(one, ladder, 2).value for one in g]) - NORMAL.log_evidence
    assert abs(bias(np.exp(log) - 1)) < 4
    assert bias(log) < -8
    # The test itself: weights that take each step at its upper end would be noticed.
    upper = np.array([ais(np.roll(one, -1, axis=-1), ladder, 2).value for one in g]) - NORMAL.log_evidence
    assert abs(bias(np.exp(upper) - 1)) > 8


def test_it_is_a_mean_of_products() -> None:
    ladder = np.array([0.0, 0.25, 1.0])
    g = np.random.default_rng(3).standard_normal((2, 5, 3))
    weights = [np.exp(0.25 * one[0] + 0.75 * one[1]) for population in g for one in population]
    ratios = ais(g, ladder, 5)
    assert ratios.value == pytest.approx(np.log(np.mean(weights)), rel=1e-14)
    assert ratios.series == pytest.approx(np.reshape(weights, (2, 5)).T / np.mean(weights), rel=1e-14)
    assert ratios.log_z[1] == pytest.approx(forward(g, ladder, 5).log_z[1], rel=1e-14)  # with a single step, the same
    assert abs(ratios.value - forward(g, ladder, 5).value) > 1e-3  # a product of means


@pytest.mark.parametrize("shift", [-1e5, 1e4])
def test_shift(shift: float) -> None:
    ladder = power(7, 3)
    g = traces(SKEWED, np.random.default_rng(4), ladder, 2, 200)
    here, there = ais(g, ladder, 20), ais(g + shift, ladder, 20)
    assert there.value - here.value == pytest.approx(shift, abs=1e-9)
    assert there.series == pytest.approx(here.series, abs=1e-8)


def test_extremes_of_g() -> None:
    g = np.zeros((1, 10, 3))
    g[0, 0], g[0, 1], g[0, 2] = -1e5, 1e4, -np.inf
    ratios = ais(g, np.array([0.0, 0.5, 1.0]), 5)
    assert ratios.value == pytest.approx(1e4 - np.log(10), rel=1e-14)  # one draw in ten outweighs all others
    assert np.all(np.isfinite(ratios.series))


# --- The front ---


def test_prior_mass_without_a_likelihood_is_part_of_the_evidence() -> None:
    draws = exact_draws(SKEWED_2, 21)
    outside = np.zeros(draws.log_likelihood.shape)
    outside[:, ::4, 0] = 1.0
    whole, part = (thermint.estimate(one, method="ais") for one in (draws, draws._replace(outside=outside)))
    assert part.log_evidence - whole.log_evidence == pytest.approx(np.log(0.75), abs=1e-10)


def test_uneven_weights_are_a_warning() -> None:
    result = thermint.estimate(exact_draws(NORMAL, 22, np.array([0.0, 1.0]), draws=20), method="ais")
    assert any("the 40 importance weights are worth" in warning for warning in result.warnings)
