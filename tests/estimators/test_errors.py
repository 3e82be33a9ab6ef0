"""The Monte Carlo error of a mean where the truth is known, and an alarm that rings neither too often nor never."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import signal, stats

from thermint.estimators.errors import batch_error, critical_value


def autoregressive(rng: np.random.Generator, shape: tuple[int, ...], rho: float) -> np.ndarray:
    """Stationary AR(1) series of variance 1 along the last axis."""
    noise = rng.standard_normal(shape)
    noise[..., 1:] *= np.sqrt(1 - rho**2)
    return signal.lfilter([1.0], [1.0, -rho], noise, axis=-1)


def error_of_mean(rho: float, draws: int) -> float:
    """Exact standard deviation of the mean of a stationary AR(1) series of variance 1."""
    lag = np.arange(1, draws)
    return float(np.sqrt((1 + 2 * np.sum((1 - lag / draws) * rho**lag)) / draws))


# --- Calibration ---


@pytest.mark.parametrize(("rho", "length"), [(0.0, 1), (0.5, 100), (0.9, 200), (-0.5, 100)])
@pytest.mark.parametrize(("populations", "batches"), [(1, 25), (4, 20)])
def test_error_is_that_of_the_mean(populations: int, batches: int, rho: float, length: int) -> None:
    # Batches are at least ten autocorrelation times long: (1 + rho) / (1 - rho) is 1, 3, 19 and 1/3.
    replicates = 300
    rng = np.random.default_rng(0)
    series = autoregressive(rng, (replicates, populations, batches * length), rho)
    series = series.reshape(replicates, populations, batches, length).mean(axis=-1).swapaxes(1, 2)
    results = [batch_error(one) for one in series]
    truth = error_of_mean(rho, batches * length) / np.sqrt(populations)
    # Mean errors of 300 replicates scatter by 1 %.
    assert np.mean([result.error for result in results]) == pytest.approx(truth, rel=0.1)
    # The truth itself, against the spread of the means (4 % of scatter).
    assert np.std(series.mean(axis=(1, 2))) == pytest.approx(truth, rel=0.18)


def test_correlation_left_between_batches_is_allowed_for() -> None:
    # Batches of two autocorrelation times: their scatter alone understates the error.
    rho, length, batches, populations, replicates = 0.9, 40, 20, 4, 200
    series = autoregressive(np.random.default_rng(1), (replicates, populations, batches * length), rho)
    series = series.reshape(replicates, populations, batches, length).mean(axis=-1).swapaxes(1, 2)
    truth = error_of_mean(rho, batches * length) / np.sqrt(populations)
    naive = np.mean([one.std(axis=0, ddof=1).mean() / np.sqrt(one.size) for one in series])
    reported = np.mean([batch_error(one).error for one in series])
    assert naive < 0.9 * truth
    assert reported == pytest.approx(truth, rel=0.1)


def test_error_scales_and_does_not_shift() -> None:
    series = np.random.default_rng(2).standard_normal((20, 4))
    plain, changed = batch_error(series), batch_error(1000 - 7 * series)
    assert changed.error == pytest.approx(7 * plain.error, rel=1e-10)
    assert changed.degrees_of_freedom == pytest.approx(plain.degrees_of_freedom, rel=1e-8)
    assert changed.disagreement == plain.disagreement


# --- Degrees of freedom ---


@pytest.mark.parametrize(("populations", "batches"), [(1, 25), (4, 20), (2, 10)])
def test_degrees_of_freedom_of_independent_batches(populations: int, batches: int) -> None:
    # Alternating signs leave a negative autocorrelation, for which nothing is taken off.
    series = np.tile([[1.0], [-1.0]], (batches, populations))[:batches]
    assert batch_error(series).degrees_of_freedom == populations * (batches - 1)


def test_correlation_takes_degrees_of_freedom() -> None:
    slow = np.repeat(np.random.default_rng(3).standard_normal((5, 1)), 5, axis=0)  # 25 batches, 5 that differ
    assert 5 < batch_error(slow).degrees_of_freedom < 15


def test_degrees_of_freedom_under_disagreement() -> None:
    series = np.random.default_rng(4).standard_normal((20, 4)) + 10 * np.arange(4)
    assert batch_error(series).degrees_of_freedom == 3


def test_heavy_tails_take_degrees_of_freedom() -> None:
    light = np.random.default_rng(8).standard_normal((20, 4))
    assert batch_error(light).degrees_of_freedom > 50
    heavy = light.copy()
    heavy[3, 1] = 60.0  # one batch of eighty makes up nearly all of the variance
    assert 3 < batch_error(heavy).degrees_of_freedom < 4


@pytest.mark.parametrize(("rho", "length"), [(0.9, 20), (0.98, 50)])
def test_intervals_hold_where_batches_are_as_short_as_the_memory_of_the_chains(rho: float, length: int) -> None:
    """Autocorrelation times are 19 and 99, batches 20 and 50 long; they grow."""
    replicates, populations, batches = 1000, 4, 20
    series = autoregressive(np.random.default_rng(9), (replicates, populations, batches * length), rho)
    series = series.reshape(replicates, populations, batches, length).mean(axis=-1).swapaxes(1, 2)
    results = [batch_error(one) for one in series]
    half = [stats.t.isf(0.025, result.degrees_of_freedom) * result.error for result in results]
    covered = np.mean(np.abs(series.mean(axis=(1, 2))) < half)
    assert 0.915 < covered < 0.98  # 0.90 by batches that do not grow and forget their correlation


def test_chains_slower_than_the_longest_batches_are_noticed() -> None:
    rng = np.random.default_rng(10)
    walks = [batch_error(np.cumsum(rng.standard_normal((20, 4)), axis=0)) for _ in range(200)]
    assert np.mean([walk.slow for walk in walks]) > 0.6
    assert all(walk.slow or walk.disagreement for walk in walks)
    fast = [batch_error(rng.standard_normal((20, 4))).slow for _ in range(500)]
    assert np.mean(fast) < 0.01


# --- Populations that disagree ---


@pytest.mark.parametrize("populations", [2, 4])
def test_disagreement_of_independent_draws_is_as_rare_as_promised(populations: int) -> None:
    # One in a thousand, or a little less because a chance correlation of neighbours widens the error.
    replicates = 4000
    rng = np.random.default_rng(populations)
    alarms = sum(batch_error(rng.standard_normal((20, populations))).disagreement for _ in range(replicates))
    assert 1 <= alarms <= 4 + 4.5 * 2


@pytest.mark.parametrize("populations", [2, 4, 8])
def test_populations_that_differ_are_seen_and_give_the_error(populations: int) -> None:
    rng = np.random.default_rng(5)
    for _ in range(20):
        offsets = rng.permutation(populations)
        series = offsets + 0.01 * rng.standard_normal((20, populations))
        result = batch_error(series)
        assert result.disagreement
        means = series.mean(axis=0)
        assert result.error == pytest.approx(np.sqrt(means.var(ddof=1) / populations), rel=1e-12)


def test_one_population_cannot_disagree() -> None:
    trend = np.linspace(0, 1, 25)[:, None]
    assert not batch_error(trend).disagreement


def test_a_difference_as_large_as_the_errors_is_no_disagreement() -> None:
    noise = np.random.default_rng(6).standard_normal((20, 4))
    offsets = np.array([-1.0, 0.0, 0.0, 1.0]) / np.sqrt(20)  # one standard error of a population's mean
    assert not batch_error(noise - noise.mean(axis=0) + offsets).disagreement
    assert batch_error(noise - noise.mean(axis=0) + 10 * offsets).disagreement


@pytest.mark.parametrize("value", [0.0, 1.0, -257.2, 1e6])
def test_rounding_is_no_disagreement(value: float) -> None:
    # Where control variates are exact, batch means differ in their last digits only, and populations as they please.
    unit = np.spacing(max(abs(value), 1.0))
    rng = np.random.default_rng(7)
    for _ in range(50):
        series = value + unit * rng.integers(-3, 4, (20, 4)) + unit * np.array([0, 40, 0, -40])
        result = batch_error(series)
        assert not result.disagreement
        assert result.error < 1e-12 * max(abs(value), 1.0)
    above = value + 1e6 * unit * np.array([0, 40, 0, -40]) + unit * rng.integers(-3, 4, (20, 4))
    assert batch_error(above).disagreement


def test_constant_series() -> None:
    for populations in (1, 4):
        result = batch_error(np.full((20, populations), -3.7))
        assert result.error < 1e-15
        assert not result.disagreement
        assert np.isfinite(result.degrees_of_freedom)


def test_few_degrees_of_freedom_excuse_no_more_than_ten_do() -> None:
    assert critical_value(1e-4, 1e6) == pytest.approx(stats.norm.isf(0.5e-4), rel=1e-4)
    assert critical_value(1e-4, 10) == pytest.approx(stats.t.isf(0.5e-4, 10))
    assert critical_value(1e-4, 2) == critical_value(1e-4, 10)  # Student's quantile would be 100
