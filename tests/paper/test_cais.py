"""Controlled annealed importance sampling: truth, exact cases, and how control fails."""

from __future__ import annotations

import numpy as np
import pytest
from targets import NORMAL, SKEWED_2, Target, exact_draws, far, z_of

import thermint
from thermint import Draws
from thermint.estimators.ais import ais
from thermint.estimators.base import Ratios
from thermint.estimators.errors import batch_error
from thermint.paper.cais import controlled_ais
from thermint.path.coordinates import rung_moments


def made_up(w: np.ndarray, theta: np.ndarray) -> Draws:
    """Draws theta[population, draw, rung, 1] from standard normal rungs, with weights w[population, draw].

    The weights are put into g at the first rung, whatever they depend on.
    """
    rungs = theta.shape[2]
    g = np.zeros(theta.shape[:3])
    g[..., 0] = np.log(w) * (rungs - 1)  # equal steps
    return Draws(np.linspace(0.0, 1.0, rungs), theta, g, np.zeros_like(g), np.zeros_like(theta), -theta)


def controlled(
    draws: Draws, degree: int, *, crossfit: bool = True, batches: int = 20
) -> tuple[Ratios, Ratios, list[str]]:
    """The controlled estimate, the plain one, and warnings."""
    ratios = controlled_ais(draws, rung_moments(draws), degree, batches, crossfit=crossfit)
    plain = ais(np.asarray(draws.log_likelihood), np.asarray(draws.ladder), batches)
    return ratios, plain, list(ratios.warnings)


@pytest.mark.parametrize("crossfit", [True, False])
def test_weights_that_are_sums_of_polynomials_of_the_rungs_are_exact(crossfit: bool) -> None:
    theta = np.random.default_rng(7).standard_normal((2, 300, 5, 1))
    slope, curve = np.array([0.3, -0.2, 0.5, 0.1]), np.array([0.2, 0.4, 0.1, 0.3])
    below = theta[:, :, :-1, 0]  # the last rung has no step
    w = 5.0 + np.sum(slope * below + curve * below**2, axis=-1)
    exact, plain, warnings = controlled(made_up(w, theta), 2, crossfit=crossfit)
    assert exact.value == pytest.approx(np.log(6.0), abs=1e-10)
    assert np.std(exact.series) < 1e-10
    assert exact.log_z[[0, -1]].tolist() == [0.0, exact.value]
    assert not warnings
    linear, _, _ = controlled(made_up(w, theta), 1, crossfit=crossfit)
    assert 1e-6 < batch_error(linear.series).error < batch_error(plain.series).error
    # What is left is the quadratic part, of variance 2 curve^2.
    assert np.std(linear.series) == pytest.approx(np.sqrt(2 * curve @ curve / 15) / 6, rel=0.4)


def test_no_polynomial_has_coordinates_of_two_rungs() -> None:
    theta = np.random.default_rng(8).standard_normal((2, 500, 3, 1))
    w = np.exp(0.3 * theta[:, :, 0, 0] * theta[:, :, 1, 0])
    ratios, plain, _ = controlled(made_up(w, theta), 2)
    assert batch_error(ratios.series).error > 0.8 * batch_error(plain.series).error


def test_the_last_rung_does_not_matter() -> None:
    theta = np.random.default_rng(9).standard_normal((1, 200, 4, 1))
    w = np.exp(0.2 * theta.sum(axis=(2, 3)))
    other = theta.copy()
    other[:, :, -1] = 17.0
    first, second = (controlled(made_up(w, place), 2)[0] for place in (theta, other))
    assert first.value == second.value


def test_degree_0_is_the_plain_estimate() -> None:
    ratios, plain, warnings = controlled(exact_draws(SKEWED_2, 10), 0)
    assert ratios.value == plain.value
    assert np.array_equal(ratios.series, plain.series)
    assert not warnings


@pytest.mark.parametrize("crossfit", [True, False])
@pytest.mark.parametrize(("target", "degree"), [(NORMAL, 1), (SKEWED_2, 2)], ids=["normal-1", "skewed-2"])
def test_controlled_error_is_the_spread(target: Target, degree: int, crossfit: bool) -> None:
    ratios = [controlled(exact_draws(target, 200 + i), degree, crossfit=crossfit)[:2] for i in range(80)]
    error, plain = (np.array([batch_error(one[k].series).error for one in ratios]) for k in (0, 1))
    z = (np.array([one.value for one, _ in ratios]) - target.log_evidence) / error
    assert not far(z)
    assert abs(z.mean()) < 4 / np.sqrt(len(z))
    # The test itself: errors that are wrong by a factor of two would be noticed.
    assert far(2 * z)
    assert far(z / 2)
    assert np.mean(error) < 0.95 * np.mean(plain)  # 800 draws are enough for 12 or 30 coefficients


def test_in_sample_the_error_is_still_that_of_other_draws() -> None:
    draws = exact_draws(SKEWED_2, 11, draws=40)
    (fitted, _, _), (plug_in, _, _) = (controlled(draws, 2, crossfit=crossfit) for crossfit in (True, False))
    assert plug_in.value != fitted.value
    ratio = np.exp(fitted.value - plug_in.value)
    assert plug_in.series == pytest.approx(ratio * fitted.series, rel=1e-10)


# --- How control fails ---


@pytest.mark.parametrize("crossfit", [True, False])
@pytest.mark.parametrize(("degree", "coefficients", "alarm"), [(1, 12, "determined"), (2, 30, "minimum norm")])
def test_too_few_draws_for_the_coefficients(degree: int, coefficients: int, alarm: str, crossfit: bool) -> None:
    # Six steps and d = 2: m d coefficients for degree 1, m d (d + 3) / 2 for degree 2.
    draws = exact_draws(NORMAL, 12, draws=15)
    ratios, plain, warnings = controlled(draws, degree, crossfit=crossfit, batches=15)
    assert f"{coefficients} coefficients from 30 draws" in warnings[0]
    assert alarm in warnings[0]
    assert np.isfinite(ratios.value)
    assert 0 < batch_error(ratios.series).error < 10
    # Least squares are still worth something: another answer, but not an absurd one.
    assert 0 < abs(ratios.value - plain.value) < 2


def test_more_coefficients_than_draws_fit_noise_exactly() -> None:
    rng = np.random.default_rng(13)
    theta = rng.standard_normal((1, 20, 31, 1))
    draws = made_up(rng.uniform(0.5, 1.5, (1, 20)), theta)
    (fitted, _, _), (plug_in, _, _) = (controlled(draws, 1, crossfit=crossfit) for crossfit in (True, False))
    # In sample nothing is left of the weights, yet the error is not zero.
    assert batch_error(plug_in.series).error > 0.01
    assert np.isfinite(fitted.value)


def test_noise_is_fitted_and_does_harm() -> None:
    rng = np.random.default_rng(14)
    theta = rng.standard_normal((2, 60, 41, 1))
    w = rng.uniform(0.1, 1.0, (2, 60))  # nothing that the features could explain
    ratios, plain, warnings = controlled(made_up(w, theta), 1)
    error, without = batch_error(ratios.series).error, batch_error(plain.series).error
    assert error > without
    assert any(f"did harm: the error is {error:.2g} with them and {without:.2g} without" in w for w in warnings)


@pytest.mark.parametrize("crossfit", [True, False])
def test_a_controlled_mean_that_is_not_positive_gives_the_plain_answer(crossfit: bool) -> None:
    # Draws that are not from the rung's density, so that the features' averages are far from zero.
    theta = 8.0 + np.random.default_rng(15).uniform(size=(2, 100, 2, 1))
    ratios, plain, warnings = controlled(made_up(theta[:, :, 0, 0] - 7.5, theta), 1, crossfit=crossfit)
    assert ratios.value == plain.value
    assert np.array_equal(ratios.series, plain.series)
    (warning,) = warnings
    # E[theta - 7.5] = 1, and 0 - 7.5 after control.
    assert "average of -7." in warning
    assert "the answer without control variates" in warning


def test_negative_integrands_are_counted() -> None:
    theta = np.random.default_rng(16).standard_normal((2, 1000, 2, 1))
    w = np.exp(2 * theta[:, :, 0, 0])
    ratios, _, warnings = controlled(made_up(w, theta), 1, crossfit=False)
    # The best line through e^(2 theta) is e^2 (1 + 2 theta): what is left, plus e^2, is e^(2 theta) - 2 e^2 theta.
    share = np.mean(w < 2 * np.e**2 * theta[:, :, 0, 0])
    assert share > 0.3
    (counted,) = [float(w.split("%")[0]) / 100 for w in warnings if "of the controlled weights are negative" in w]
    assert counted == pytest.approx(share, abs=0.15)
    assert np.isfinite(ratios.value)


def test_features_that_take_too_much_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thermint.paper.cais.LARGEST_GRAM", 1000)
    with pytest.raises(ValueError, match='method = "cais" with degree = 2 has 30 coefficients to fit to 800 draws'):
        controlled(exact_draws(NORMAL, 17), 2)


# --- The front ---


@pytest.mark.parametrize("method", ["ais", "cais"])
def test_estimate_gives_the_truth(method: str) -> None:
    result = thermint.estimate(exact_draws(SKEWED_2, 18), method=method, degree=1)
    assert abs(z_of(result, SKEWED_2)) < 4
    assert 0.001 < result.standard_error == result.mc_error < 0.1
    assert result.quadrature_error == 0
    assert result.settings["method"] == method
    assert list(result.estimates.loc[method]) == [result.log_evidence, result.standard_error]
    assert ("cais" in result.estimates.index) == (method == "cais")


def test_options_reach_the_controlled_estimate() -> None:
    draws = exact_draws(SKEWED_2, 19)
    values = {
        (degree, crossfit): thermint.estimate(draws, method="cais", degree=degree, crossfit=crossfit).log_evidence
        for degree in ("auto", 0, 1, 2)
        for crossfit in (True, False)
    }
    plain = thermint.estimate(draws, method="ais").log_evidence
    assert values["auto", True] == values[1, True]
    assert values[0, True] == values[0, False] == plain
    assert len(set(values.values())) == 5
    plug_in, _, _ = controlled(draws, 2, crossfit=False)
    assert values[2, False] == plug_in.value


def test_no_control_where_that_of_the_rungs_is_switched_off() -> None:
    draws = exact_draws(SKEWED_2, 20)
    outside = np.zeros(draws.log_likelihood.shape)
    outside[0, 3, 4] = 1.0  # one proposal fell where the density is zero: it may jump there
    result = thermint.estimate(draws._replace(outside=outside), method="cais")
    assert any("control variates not used" in warning for warning in result.warnings)
    assert result.log_evidence == result.estimates.log_evidence["ais"]
