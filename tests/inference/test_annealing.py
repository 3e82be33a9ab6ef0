"""Annealed importance sampling where the evidence is known: unbiased weights, honest errors, zeros, and refusals."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jax.tree_util import Partial
from moves import persistent
from scipy import stats
from targets import NORMAL, SKEWED_2, Target, far

import thermint
from thermint import Evidence, Model, kernels
from thermint.inference import annealing
from thermint.kernels import Kernel
from thermint.ladders import power
from thermint.path.path import Path
from thermint.sampling.options import SamplerOptions
from thermint.sampling.sampler import make_sampler

LADDER = power(6, 3)
PARTICLES = 300
CASES: dict[str, tuple[Target, Kernel]] = {
    "mala": (NORMAL, kernels.mala),
    "random_walk": (SKEWED_2, kernels.random_walk),
    "mmala": (SKEWED_2, kernels.mmala),
    "hmc": (NORMAL, kernels.hmc),
    "barker": (SKEWED_2, kernels.barker),
    "persistent": (NORMAL, persistent),
}


@cache
def replicates(case: str, number: int = 100) -> list[Evidence]:
    target, kernel = CASES[case]
    model = replace(target.model, normalised=True)  # it is: no need to check it a hundred times
    return [
        thermint.anneal(model, LADDER, particles=PARTICLES, kernel=kernel, seed=100 + seed) for seed in range(number)
    ]


def _log_likelihood(parameters: tuple, theta: Array) -> Array:
    slope, constant, low, high, power = parameters
    inside = constant + slope * theta[0] + power * jnp.log(theta[0] - low)
    return jnp.where(theta[0] < low, -jnp.inf, jnp.where(theta[0] > high, jnp.nan, inside))


def _log_prior(theta: Array) -> Array:
    return jax.scipy.stats.norm.logpdf(theta[0])


def _sample_prior(key: Array) -> Array:
    return jax.random.normal(key, (1,))


def tilted(
    *, slope: float = 0.0, constant: float = 0.0, low: float = -50.0, high: float = np.inf, power: float = 0.0
) -> Model:
    """A standard normal prior and the likelihood (theta - low)^power e^(constant + slope theta).

    It is zero below ``low``, where its gradient is NaN, and NaN above ``high``. One compiled program serves all.
    """
    parameters = tuple(map(jnp.float64, (slope, constant, low, high, power)))
    return Model(Partial(_log_likelihood, parameters), _log_prior, _sample_prior, normalised=True)


# --- The truth ---


def bias(evidence: np.ndarray) -> float:
    """How many standard errors the mean of unbiased estimates, each over the truth, is away from 1."""
    return float((evidence.mean() - 1) / (evidence.std(ddof=1) / np.sqrt(len(evidence))))


@pytest.mark.parametrize("case", ["mala", "random_walk"])
def test_the_evidence_is_unbiased(case: str) -> None:
    log_evidence = np.array([result.log_evidence for result in replicates(case)])
    assert abs(bias(np.exp(log_evidence - CASES[case][0].log_evidence))) < 4


def test_weights_that_take_the_likelihood_after_the_move_would_be_noticed() -> None:
    model = replace(NORMAL.model, normalised=True, metric=None)
    options = SamplerOptions(4, kernels.mala, schedule=annealing.SHORT)
    params = make_sampler(Path(model), LADDER, options, jax.random.key(1)).params

    def g(n: int) -> np.ndarray:
        index = np.arange(n * PARTICLES, (n + 1) * PARTICLES)
        made = annealing.anneal_particles(
            jax.random.key(0), index, jnp.asarray(LADDER), params, model=model, kernel=kernels.mala
        )
        return np.asarray(made.g)

    before = np.concatenate([g(n) for n in range(30)])
    after = np.column_stack([before[:, 1:], before[:, -1]])
    assert abs(bias(np.exp(before @ np.diff(LADDER) - NORMAL.log_evidence))) < 4
    assert abs(bias(np.exp(after @ np.diff(LADDER) - NORMAL.log_evidence))) > 8


@pytest.mark.parametrize("case", ["mala", "random_walk"])
def test_error_is_the_spread(case: str) -> None:
    target, results = CASES[case][0], replicates(case)
    z = np.array([(one.log_evidence - target.log_evidence) / one.standard_error for one in results])
    assert 0.01 < np.mean([one.standard_error for one in results]) < 0.15
    assert not far(z)
    # The test itself: an error that is wrong by a factor of two would be noticed.
    assert far(z * 2)
    assert far(z / 2)
    inside = sum(low < target.log_evidence < high for low, high in (one.interval() for one in results))
    assert stats.binom.cdf(inside, len(results), 0.95) > 1e-4
    assert not any(one.warnings for one in results)


@pytest.mark.parametrize("case", ["mmala", "hmc", "barker", "persistent"])
def test_other_kernels_give_the_closed_form(case: str) -> None:
    target, results = CASES[case][0], replicates(case, 10)
    z = np.array([(one.log_evidence - target.log_evidence) / one.standard_error for one in results])
    assert np.all(np.abs(z) < 4.5)
    assert abs(z.mean()) < 4 / np.sqrt(len(z))
    assert results[0].settings["kernel"] == case


def test_two_rungs_are_importance_sampling_from_the_prior() -> None:
    # E[e^theta] = e^(1/2), and the variance of e^theta is e^2 - e.
    result = thermint.anneal(tilted(slope=1.0), 2, particles=1000, seed=4)
    assert abs(result.log_evidence - 0.5) < 4 * result.standard_error
    assert result.standard_error == pytest.approx(np.sqrt((np.e - 1) / 1000), rel=0.2)
    assert result.rungs["acceptance"].isna().tolist() == [False, True]


def test_a_constant_likelihood_is_exact() -> None:
    result = thermint.anneal(tilted(constant=-3.0), 6)
    assert result.log_evidence == pytest.approx(-3.0, abs=1e-12)
    assert result.standard_error == result.mc_error < 1e-12
    assert result.quadrature_error == 0
    np.testing.assert_allclose(result.rungs["ess"], 1000)
    assert not result.warnings


# --- The table, and what it took ---


def test_rungs_have_the_moments_of_their_power_posteriors() -> None:
    tables = [result.rungs for result in replicates("mala")]
    assert list(tables[0].columns) == ["t", "mean", "variance", "acceptance", "ess"]
    mean, variance = (np.array([table[name] for table in tables]) for name in ("mean", "variance"))
    # The variance is the slope of the mean.
    expected = np.array([NORMAL.expected_log_likelihood(t) for t in LADDER])
    slope = (np.array([NORMAL.expected_log_likelihood(t + 1e-5) for t in LADDER]) - expected) / 1e-5
    for values, truth in ((mean, expected), (variance, slope)):
        z = (values.mean(axis=0) - truth) / (values.std(axis=0) / np.sqrt(len(values)))
        assert np.all(np.abs(z) < 5)
    # The test itself: means of the rung below would be noticed.
    assert expected[-1] - expected[-2] > 10 * mean[:, -1].std() / np.sqrt(len(mean))


def test_the_table_says_what_the_answer_rests_on() -> None:
    result = replicates("mala")[0]
    ess, acceptance = result.rungs["ess"], result.rungs["acceptance"]
    assert ess[0] == pytest.approx(PARTICLES)
    assert result.standard_error**2 == pytest.approx((PARTICLES / ess.iloc[-1] - 1) / (PARTICLES - 1), rel=1e-9)
    assert acceptance[0] == 1
    assert np.isnan(acceptance.iloc[-1])  # nobody moves there
    assert np.all(np.abs(acceptance.iloc[1:-1] - 0.6) < 0.2)  # the pilot has tuned the steps
    assert result.as_dict()["rungs"]["acceptance"][-1] is None
    assert list(result.estimates.loc["anneal"]) == [result.log_evidence, result.standard_error]
    assert result.settings["ladder"] == LADDER.tolist()


def test_evaluations_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(annealing, "SHORT", ((1, 0.1),))  # callbacks take their time

    def log_likelihood(theta: Array) -> Array:
        jax.debug.callback(lambda x: calls.append(1), theta[0])
        return -0.5 * theta[0] ** 2

    model = Model(log_likelihood, _log_prior, _sample_prior, normalised=True)
    result = thermint.anneal(model, 4, particles=20, kernel=kernels.hmc)
    jax.effects_barrier()
    assert result.evaluations == len(calls)
    assert len(calls) > 20 * (1 + 2 * 4)  # two rungs between 0 and 1, four leapfrog steps


# --- Randomness ---


def test_the_answer_depends_on_the_seed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    first, again, other = (thermint.anneal(tilted(slope=1.0), 6, particles=2000, seed=seed) for seed in (1, 1, 2))
    assert first.log_evidence == again.log_evidence
    assert abs(first.log_evidence - other.log_evidence) > 1e-6
    one = 8 * 6 * 2  # bytes of a particle's random numbers: at 6 rungs a normal and a uniform number
    monkeypatch.setattr(annealing, "LARGEST_ARRAY", 700 * one)  # three pieces of 667, the last of which is too long
    pieces = thermint.anneal(tilted(slope=1.0), 6, particles=2000, seed=1)
    assert pieces.log_evidence == pytest.approx(first.log_evidence, rel=1e-12)
    assert pieces.evaluations - first.evaluations == 1 * (1 + 4)


# --- Zeros and NaN ---


def test_zero_likelihood_is_weight_zero() -> None:
    result = thermint.anneal(tilted(low=0.5, constant=-1.0), 6, particles=2000, seed=6)
    share = result.rungs["acceptance"][0]
    assert abs(share - stats.norm.sf(0.5)) < 4 * np.sqrt(share * (1 - share) / 2000)
    # Inside, the likelihood is constant: every weight is 0 or 1/e.
    assert result.log_evidence == pytest.approx(np.log(share) - 1, abs=1e-12)
    assert result.standard_error == pytest.approx(np.sqrt((1 - share) / share / 1999), rel=1e-9)
    np.testing.assert_allclose(result.rungs["mean"], -1.0)
    np.testing.assert_allclose(result.rungs["variance"], 0.0, atol=1e-12)
    np.testing.assert_allclose(result.rungs["ess"], 2000 * share)
    assert not result.warnings


@pytest.mark.parametrize(("slope", "power"), [(1.5, 0.0), (0.0, 3.0)], ids=["jump", "smooth"])
def test_zero_likelihood_and_a_slope(slope: float, power: float) -> None:
    x = np.linspace(0.5, 12, 200_001)
    truth = np.log(np.trapezoid((x - 0.5) ** power * np.exp(slope * x) * stats.norm.pdf(x), x))
    result = thermint.anneal(tilted(low=0.5, slope=slope, power=power), 6, particles=10_000, seed=7)
    assert abs(result.log_evidence - truth) < 4 * result.standard_error
    assert result.standard_error < 0.05
    assert np.all(np.isfinite(result.rungs.drop(columns="acceptance")))
    assert not result.warnings


def test_few_particles_with_a_likelihood_are_a_warning() -> None:
    result = thermint.anneal(tilted(low=2.2), 6, seed=3)
    number = round(1000 * result.rungs["acceptance"][0])
    (warning,) = result.warnings
    assert f"only {number} of 1000 particles start where the likelihood is not zero" in warning
    assert "more rungs do not help" in warning


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (tilted(high=0.0), r"log_likelihood is NaN or infinite at .* of 256 draws .*theta\[0\] = "),
        (tilted(high=3.7), r"log_likelihood is NaN or infinite at . of 30000 draws"),
        (tilted(low=20.0), "log_likelihood is -inf at all"),
    ],
    ids=["NaN at every other draw", "NaN at a few particles", "zero everywhere"],
)
def test_prior_draws_that_cannot_be_used_are_an_error(model: Model, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        thermint.anneal(model, 6, particles=30_000)


def test_nan_proposals_are_rejected_and_reported() -> None:
    """NaN where the prior hardly ever goes, but the posterior would."""
    result = thermint.anneal(tilted(slope=3.0, high=4.0), 6, seed=9)
    assert np.isfinite(result.log_evidence)
    assert any("was NaN or +inf at" in warning for warning in result.warnings)


# --- Warnings and refusals ---


def test_uneven_weights_are_a_warning_and_more_rungs_the_remedy() -> None:
    few, many = (thermint.anneal(tilted(slope=6.0), np.linspace(0.0, 1.0, rungs)) for rungs in (5, 51))
    (warning,) = few.warnings
    assert "the 1000 importance weights are worth" in warning
    assert "the log evidence is probably too low" in warning
    assert "rungs" in warning
    assert few.rungs["ess"].iloc[-1] < 50
    assert many.rungs["ess"].iloc[-1] > 100
    assert abs(many.log_evidence - 18) < 4 * many.standard_error
    assert not many.warnings


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"particles": 1}, "particles = 1: it must be a whole number, at least 2"),
        ({"particles": 2.5}, "particles = 2.5"),
        ({"seed": -1}, "seed = -1"),
        ({"ladder": [0, 0.5]}, "end at exactly 1"),
        ({"ladder": 1}, "ladder = 1"),
    ],
)
def test_options_that_cannot_work_are_refused_by_name(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        thermint.anneal(tilted(), **options)


def test_what_is_no_model_or_kernel_is_refused() -> None:
    with pytest.raises(TypeError, match=r"model must be a thermint.Model"):
        thermint.anneal("pima")
    with pytest.raises(TypeError, match="kernel = 'mala': it must be a function"):
        thermint.anneal(tilted(), kernel="mala")  # type: ignore[arg-type]
