"""Quadrature along the ladder: exact where it must be, and an error estimate that tells the truth elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate

from thermint import ladders
from thermint.ladders import Ladder
from thermint.paper import linear
from thermint.quadrature import RULES, Rule, quadrature_error, second_order, trapezoid


def random_ladder(rungs: int, seed: int = 0) -> Ladder:
    inner = np.sort(np.random.default_rng(seed).uniform(size=rungs - 2))
    return np.concatenate([[0.0], inner, [1.0]])


def apply(rule: Rule, ladder: Ladder, mean: np.ndarray, variance: np.ndarray) -> float:
    mean_weights, variance_weights = rule(ladder)
    return float(mean_weights @ mean + variance_weights @ variance)


LADDERS = {
    "quintic": ladders.power(51),
    "quintic, even": ladders.power(50),
    "random": random_ladder(14),
    "three": random_ladder(3),
    "two": np.array([0.0, 1.0]),
}


@pytest.fixture(params=LADDERS)
def ladder(request: pytest.FixtureRequest) -> Ladder:
    return LADDERS[request.param]


# --- Rules ---


def test_rules_by_name() -> None:
    assert RULES["trapezoid"] is trapezoid
    assert RULES["second-order"] is second_order


def test_trapezoid_agrees_with_scipy(ladder: Ladder) -> None:
    mean, variance = np.random.default_rng(1).normal(-100, 20, (2, len(ladder)))
    assert apply(trapezoid, ladder, mean, variance) == pytest.approx(integrate.trapezoid(mean, ladder), rel=1e-13)


def test_second_order_is_the_formula_of_the_paper(ladder: Ladder) -> None:
    mean, variance = np.random.default_rng(2).normal(50, 20, (2, len(ladder)))
    total = 0.0
    for i in range(len(ladder) - 1):
        step = ladder[i + 1] - ladder[i]
        total += step / 2 * (mean[i] + mean[i + 1])  # Eqn. "quadr1"
        total -= step**2 / 12 * (variance[i + 1] - variance[i])  # Eqn. "2nd quad"
    assert apply(second_order, ladder, mean, variance) == pytest.approx(total, rel=1e-13)


@pytest.mark.parametrize(("rule", "degree"), [(trapezoid, 1), (second_order, 3)])
def test_rules_are_exact_up_to_their_degree_and_no_further(rule: Rule, degree: int, ladder: Ladder) -> None:
    for power in range(degree + 2):
        mean = ladder**power
        variance = power * ladder ** max(power - 1, 0)  # the variance is the derivative of the mean
        error = apply(rule, ladder, mean, variance) - 1 / (power + 1)
        if power <= degree:
            assert abs(error) < 1e-14
        else:
            assert abs(error) > 1e-7


# --- The error estimate ---


@pytest.mark.parametrize("rungs", [51, 50])
@pytest.mark.parametrize("seed", range(6))
def test_estimate_on_the_ladder_of_the_paper(seed: int, rungs: int) -> None:
    ladder = ladders.power(rungs)
    mean, variance = linear.integrand(ladder, seed)
    for rule, floor in [(trapezoid, (-4e-2, -3e-2)), (second_order, (1.2e-4, 2e-4))]:
        error = apply(rule, ladder, mean, variance) - linear.log_evidence(seed)
        assert floor[0] < error < floor[1]
        assert 0.5 < quadrature_error(rule, ladder, mean, variance) / abs(error) < 2


@pytest.mark.parametrize("rungs", [5, 7, 11, 6, 8, 12])
@pytest.mark.parametrize("rule", [trapezoid, second_order])
def test_estimate_on_a_smooth_integrand(rule: Rule, rungs: int) -> None:
    ladder = np.linspace(0, 1, rungs)
    mean, variance = np.exp(2 * ladder), 2 * np.exp(2 * ladder)
    error = apply(rule, ladder, mean, variance) - (np.exp(2) - 1) / 2
    assert 0.5 < quadrature_error(rule, ladder, mean, variance) / abs(error) < 2


def test_estimate_falls_with_the_order_of_the_rule() -> None:
    estimates = []
    for rungs in (17, 33, 65):
        ladder = np.linspace(0, 1, rungs)
        values = np.exp(2 * ladder), 2 * np.exp(2 * ladder)
        estimates.append([quadrature_error(rule, ladder, *values) for rule in (trapezoid, second_order)])
    ratios = np.divide(estimates[:-1], estimates[1:])
    np.testing.assert_allclose(ratios, [[4, 16], [4, 16]], rtol=0.02)


@pytest.mark.parametrize("rule", [trapezoid, second_order])
def test_estimate_is_zero_where_the_rule_is_exact(rule: Rule, ladder: Ladder) -> None:
    degree = 1 if rule is trapezoid else 3
    if rule is second_order and len(ladder) == 2:
        degree = 1  # two rungs cannot tell how good the correction is, only that there is none to make
    mean = 3 - 2 * ladder**degree
    variance = -2 * degree * ladder ** (degree - 1)
    assert quadrature_error(rule, ladder, mean, variance) < 1e-14


@pytest.mark.parametrize("rule", [trapezoid, second_order])
def test_estimate_with_two_rungs_does_not_understate(rule: Rule) -> None:
    ladder = np.array([0.0, 1.0])
    mean, variance = np.exp(2 * ladder), 2 * np.exp(2 * ladder)
    error = abs(apply(rule, ladder, mean, variance) - (np.exp(2) - 1) / 2)
    assert error <= quadrature_error(rule, ladder, mean, variance) < np.inf


def test_estimate_does_not_depend_on_a_constant(ladder: Ladder) -> None:
    mean, variance = np.sin(3 * ladder), 3 * np.cos(3 * ladder)
    for rule in (trapezoid, second_order):
        shifted = quadrature_error(rule, ladder, mean + 1000, variance)
        assert shifted == pytest.approx(quadrature_error(rule, ladder, mean, variance), abs=1e-12)
