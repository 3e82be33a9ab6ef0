"""The bridge form with control variates: the plain one's equal without them, and the truth with them."""

from __future__ import annotations

import numpy as np
import pytest
from targets import DRAWS, LADDER, NORMAL, POPULATIONS, SKEWED, SKEWED_2, Target, exact_draws, far, normal, z_of

import thermint
from thermint.control.coefficients import Controlled, uncontrolled
from thermint.control.gram import TARGETS
from thermint.control.plan import make_plan
from thermint.estimators.bridge import DOWN, UP, controlled_bridge
from thermint.estimators.errors import batch_error
from thermint.estimators.stepping_stone import bridge
from thermint.estimators.table import methods
from thermint.ladders import power
from thermint.path.coordinates import RungMoments, rung_moments

WIDE = normal(np.eye(2), [0.0, 0.0], 1.0, 300.0**2 * np.eye(2))  # g goes down to -1e6 under the prior


# --- Without control ---


@pytest.mark.parametrize("target", [NORMAL, SKEWED_2], ids=["normal", "skewed"])
def test_degree_0_is_the_plain_bridge(target: Target) -> None:
    draws = exact_draws(target, 0)
    plain = bridge(np.asarray(draws.log_likelihood), LADDER, 20)
    result = thermint.estimate(draws, method="bridge", degree=0)
    assert result.log_evidence == pytest.approx(plain.value, abs=1e-10)
    assert result.mc_error == pytest.approx(batch_error(plain.series).error, rel=1e-8)
    assert result.standard_error == result.mc_error
    assert result.quadrature_error == 0


@pytest.mark.parametrize("shift", [0.0, -1e4])
def test_every_constant_and_batch_is_that_of_the_plain_bridge(shift: float) -> None:
    draws = exact_draws(SKEWED_2, 1)
    draws = draws._replace(log_likelihood=draws.log_likelihood + shift)
    plan = make_plan(
        draws=DRAWS, populations=2, rungs=7, dimension=2, degree=0, rule="trapezoid", crossfit=True, components=1
    )
    # Another's centre: the answer must not depend on it.
    gram = plan.empty(rung_moments(draws)._replace(centre=shift + np.linspace(-5.0, 2.0, 7)), POPULATIONS)
    for batch in range(20):
        gram, _ = plan.accumulate(gram, draws.block(20 * batch, 20 * (batch + 1)), batch)
    means, number = uncontrolled(gram), np.asarray(gram.number)
    ratios = controlled_bridge(means, means, number, gram.frame, LADDER)
    plain = bridge(np.asarray(draws.log_likelihood), LADDER, 20)
    assert ratios.value == ratios.log_z[-1]
    np.testing.assert_allclose(ratios.log_z, plain.log_z, rtol=0, atol=1e-10)
    np.testing.assert_allclose(ratios.series, plain.series, rtol=0, atol=1e-9)


def test_where_control_leaves_no_positive_mean_there_is_none() -> None:
    rng = np.random.default_rng(2)
    batches, ladder = 6, np.array([0.0, 0.3, 1.0])
    number = np.array([10.0, 10.0, 10.0, 11.0, 10.0, 11.0])
    values = rng.uniform(0.5, 1.5, (2, batches, POPULATIONS, 3, TARGETS))
    controlled, plain = (
        Controlled(
            value, np.ones((3, TARGETS)), np.ones((3, TARGETS)), np.ones((3, TARGETS), dtype=int), np.zeros((3, 0))
        )
        for value in values
    )
    frame = RungMoments(
        np.zeros((3, 1)), np.zeros((3, 1, 1)), np.ones((3, 1, 1, 1)), np.array([-3.0, -2.0, 1.0]), np.ones(3)
    )
    expected = controlled.mean.copy()
    expected[:, :, 1, UP] = plain.mean[:, :, 1, UP]
    expected[:, :, 2, DOWN] = plain.mean[:, :, 2, DOWN]
    controlled.mean[:, :, 1, UP] -= 3.0
    controlled.mean[:, :, 2, DOWN] -= 3.0
    controlled.mean[0, 0, 0, UP] = -0.5  # one batch below zero does not matter
    expected[0, 0, 0, UP] = -0.5
    ratios = controlled_bridge(controlled, plain, number, frame, ladder)
    mean = np.einsum("b,bprt->rt", number, expected) / (POPULATIONS * number.sum())
    steps = np.array([0.3 * -2.5, 0.7 * -0.5])
    log_ratio = steps + np.log(mean[:2, UP]) - np.log(mean[1:, DOWN])
    np.testing.assert_allclose(ratios.log_z, [0.0, log_ratio[0], log_ratio.sum()], rtol=1e-12)
    series = (expected / mean)[..., :-1, UP] - (expected / mean)[..., 1:, DOWN]
    np.testing.assert_allclose(ratios.series, series.sum(axis=-1), rtol=1e-12, atol=1e-12)


# --- With control ---


@pytest.mark.parametrize("seed", [3, 4, 5])
@pytest.mark.parametrize("target", [NORMAL, SKEWED, SKEWED_2], ids=["normal", "skewed", "skewed-2"])
def test_the_truth_within_four_errors(target: Target, seed: int) -> None:
    result = thermint.estimate(exact_draws(target, seed), method="bridge")
    assert abs(z_of(result, target)) < 4
    assert 0 < result.standard_error < 0.02
    assert not result.warnings


def test_control_variates_reduce_the_error() -> None:
    # Between rungs that are close, exponentials are nearly polynomials.
    draws = exact_draws(NORMAL, 6, power(21, 3), draws=1000)
    errors = [thermint.estimate(draws, method="bridge", degree=degree).standard_error for degree in (0, 2, 4)]
    assert errors[0] > 30 * errors[1]
    assert errors[1] > 1.3 * errors[2]


def test_a_coarse_ladder_costs_the_integral_its_accuracy_but_not_the_bridge() -> None:
    coarse = np.array([0.0, 0.1, 1.0])
    draws = exact_draws(NORMAL, 7, coarse, draws=4000)
    result = thermint.estimate(draws, method="bridge", degree=4, rule="trapezoid")
    assert abs(z_of(result, NORMAL)) < 4
    off = abs(result.estimates.log_evidence["cti"] - NORMAL.log_evidence)
    assert off > 10 * result.standard_error
    assert off > 10 * abs(result.log_evidence - NORMAL.log_evidence)


@pytest.mark.parametrize("target", [NORMAL, SKEWED_2], ids=["normal", "skewed"])
def test_error_is_the_spread(target: Target) -> None:
    results = [thermint.estimate(exact_draws(target, 100 + i), method="bridge", degree=2) for i in range(60)]
    z = np.array([z_of(result, target) for result in results])
    assert not far(z)
    assert abs(z.mean()) < 4 / np.sqrt(len(z))
    # The test itself: errors that are wrong by a factor of two would be noticed.
    assert far(2 * z)
    assert far(z / 2)


# --- Extremes ---


@pytest.mark.parametrize("degree", [0, 2, "auto"])
def test_rungs_with_nothing_in_common_give_numbers_and_a_warning(degree: int | str) -> None:
    ladder = np.array([0.0, 0.5, 1.0])
    draws = exact_draws(WIDE, 8, ladder)
    g = np.asarray(draws.log_likelihood)
    assert np.ptp(0.25 * g[..., 0]) > 1000  # the exponents are clipped at 300
    result = thermint.estimate(draws, method="bridge", degree=degree)
    assert np.isfinite(result.log_evidence)
    assert np.isfinite(result.standard_error)
    assert np.all(np.isfinite(result.estimates))
    assert any("differ by" in warning for warning in result.warnings)


def test_rungs_with_nothing_in_common_have_an_error_to_match() -> None:
    ladder = np.array([0.0, 0.5, 1.0])
    draws = exact_draws(WIDE, 8, ladder)
    plain = bridge(np.asarray(draws.log_likelihood), ladder, 20)
    assert abs(plain.value - WIDE.log_evidence) < 10
    result = thermint.estimate(draws, method="bridge", degree=0)
    assert abs(result.log_evidence - WIDE.log_evidence) < 10 + 10 * result.standard_error  # it is 23 000 away


# --- All methods together ---


def test_all_methods_agree() -> None:
    draws = exact_draws(SKEWED_2, 9)
    results = {
        method: thermint.estimate(draws, method=method) for method in ("cti", "bridge", "stepping-stone", "mbar", "ais")
    }
    for method, result in results.items():
        assert abs(z_of(result, SKEWED_2)) < 4, method
        assert result.settings["method"] == method
        table = result.estimates
        assert list(table.index) == ["cti", "bridge", "forward", "backward", "mbar", "ais"]
        row = table.loc[methods()[method]]
        assert (row.log_evidence, row.standard_error) == (result.log_evidence, result.standard_error)
        np.testing.assert_allclose(table, results["cti"].estimates, rtol=1e-12)  # the same whichever is the answer
        assert (result.quadrature_error > 0) == (method == "cti")
    assert len({result.log_evidence for result in results.values()}) == 5
    table = results["cti"].estimates
    for one in table.index:
        for other in table.index:
            apart = abs(table.log_evidence[one] - table.log_evidence[other])
            assert apart <= 4 * np.hypot(table.standard_error[one], table.standard_error[other]), (one, other)
    assert table.standard_error["bridge"] < table.standard_error[["forward", "backward", "mbar", "ais"]].min() / 2


def test_an_unknown_method_is_refused_by_name() -> None:
    known = "'cti', 'bridge', 'stepping-stone', 'mbar', 'ais', 'cais'"
    with pytest.raises(ValueError, match=f"method = 'harmonic': it must be one of {known}"):
        thermint.estimate(exact_draws(NORMAL, 10), method="harmonic")
