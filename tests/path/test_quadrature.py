"""Quadrature along the ladder: exact where it must be, and an error estimate that tells the truth elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate

from thermint import ladders
from thermint.ladders import Ladder
from thermint.paper import linear
from thermint.path.quadrature import RULES, Rule, hermite, lobatto, quadrature_error, second_order, trapezoid


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
    assert RULES["lobatto"] is lobatto


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


def monomial(ladder: Ladder, power: int) -> tuple[np.ndarray, np.ndarray]:
    """Means t^power with their derivatives as variances; about t = 1/2, where all powers stay different."""
    t = 2 * ladder - 1
    return t**power, 2 * power * t ** max(power - 1, 0)


def integral(power: int) -> float:
    return (1 + (-1) ** power) / 2 / (power + 1)


@pytest.mark.parametrize("rungs", [2, 3, 4, 5, 8, 12, 30])
def test_lobatto_is_exact_up_to_its_degree_and_no_further(rungs: int) -> None:
    ladder = ladders.lobatto(rungs)
    for power in range(2 * rungs - 2):
        assert apply(lobatto, ladder, *monomial(ladder, power)) == pytest.approx(integral(power), abs=1e-14)
    if rungs <= 12:
        assert apply(lobatto, ladder, *monomial(ladder, 2 * rungs - 2)) > integral(2 * rungs - 2) + 1e-8
    assert not np.any(lobatto(ladder)[1])


@pytest.mark.parametrize(
    "ladder",
    [ladders.lobatto(rungs) for rungs in (2, 3, 6, 16, 30)] + [np.linspace(0, 1, 8), random_ladder(5, seed=3)],
    ids=lambda ladder: f"{len(ladder)} rungs",
)
def test_hermite_is_exact_up_to_its_degree_and_no_further(ladder: Ladder) -> None:
    for power in range(2 * len(ladder)):
        assert apply(hermite, ladder, *monomial(ladder, power)) == pytest.approx(integral(power), abs=1e-12)
    if len(ladder) <= 8:
        power = 2 * len(ladder)
        assert abs(apply(hermite, ladder, *monomial(ladder, power)) - integral(power)) > 1e-9


def test_hermite_with_two_rungs_is_second_order() -> None:
    ladder = np.array([0.0, 1.0])
    np.testing.assert_allclose(hermite(ladder), second_order(ladder), atol=1e-15)


def test_lobatto_refuses_other_ladders_and_says_what_to_do() -> None:
    for other in (ladders.power(5), ladders.lobatto(5) + np.array([0, 2e-9, 0, 0, 0])):
        with pytest.raises(ValueError, match=r"use ladder=thermint\.ladders\.lobatto\(5\), or rule="):
            lobatto(other)
    lobatto(ladders.lobatto(5) + np.array([0, 5e-10, 0, 0, 0]))


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


# --- The error estimate of the Lobatto rule ---


def ratios(rungs: int, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """True error over estimate for E_t[g] = c - sum_k a_k / (b_k + t); a and b are [path, k], as is the result [path].

    A negative b_k, below -1, is a pole beyond t = 1: a direction in which the posterior is wider than the reference.
    """
    ladder = ladders.lobatto(rungs)
    result = []
    for weight, pole in zip(a, b, strict=True):
        mean = -300 - np.sum(weight / (pole + ladder[:, None]), axis=1)
        variance = np.sum(weight / (pole + ladder[:, None]) ** 2, axis=1)
        error = apply(lobatto, ladder, mean, variance) + 300 + np.sum(weight * np.log(np.abs(1 + 1 / pole)))
        if abs(error) > 1e-10:  # the rest is rounding
            result.append(abs(error) / quadrature_error(lobatto, ladder, mean, variance))
    return np.array(result)


@pytest.mark.parametrize("rungs", [2, 3, 4, 6, 8])
def test_lobatto_estimate_bounds_the_error_on_normal_paths(rungs: int) -> None:
    rng = np.random.default_rng(rungs)
    smooth = ratios(rungs, rng.uniform(0, 1, (100, 3)), 10 ** rng.uniform(-0.5, 1, (100, 3)))
    assert smooth.max() <= 1 + 1e-4
    assert smooth.min() > 1 / 4
    steep = ratios(rungs, rng.uniform(0, 1, (100, 3)), 10 ** rng.uniform(-2, 1, (100, 3)))
    assert steep.max() <= 1 + 1e-4
    assert steep.min() > 1 / 30


@pytest.mark.parametrize("rungs", [3, 4, 6, 8])
def test_lobatto_estimate_where_errors_may_cancel(rungs: int) -> None:
    """Poles on both sides of the path and weights of both signs: the estimate is not small by chance."""
    rng = np.random.default_rng(rungs)
    b = 10 ** rng.uniform(-0.7, 1, (400, 3))
    found = ratios(rungs, rng.normal(size=b.shape) * b, np.where(rng.random(b.shape) < 0.5, b, -1 - b))
    assert np.mean(found > 1.5) < 0.01
    assert found.max() < 5
    assert np.quantile(found, 0.01) > 1 / 30


def test_lobatto_estimate_where_the_leading_term_cancels_exactly() -> None:
    """|Lobatto - Hermite| vanishes for one mixture of a pole on either side; the estimate does not."""
    rungs, b = 4, np.array([0.5, -2.5])
    ladder = ladders.lobatto(rungs)
    means, variances = 1 / (b + ladder[:, None]), -1 / (b + ladder[:, None]) ** 2
    difference = [
        apply(lobatto, ladder, m, v) - apply(hermite, ladder, m, v) for m, v in zip(means.T, variances.T, strict=True)
    ]
    a = np.array([1.0, -difference[0] / difference[1]])
    assert ratios(rungs, a[None], b[None]).max() < 1


@pytest.mark.parametrize("rungs", [2, 4, 7])
def test_lobatto_estimate_is_zero_where_the_rule_is_exact(rungs: int) -> None:
    ladder = ladders.lobatto(rungs)
    mean, variance = monomial(ladder, 2 * rungs - 3)
    assert quadrature_error(lobatto, ladder, mean - 1e3, variance) < 1e-12


def test_noise_adds_to_the_lobatto_estimate_with_small_weights() -> None:
    ladder, rng = ladders.lobatto(4), np.random.default_rng(0)
    for scale, expected in [((1, 0), 0.12), ((0, 1), 0.03)]:
        noise = rng.normal(size=(200, 2, 4)) * np.array(scale)[:, None]
        estimates = [quadrature_error(lobatto, ladder, *pair) for pair in noise]
        assert np.sqrt(np.mean(np.square(estimates))) == pytest.approx(expected, rel=0.2)
