"""Failure cases: where the answer cannot be right there is a warning or a refusal, and where it can it is right."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jax.scipy.stats import cauchy, logistic, norm
from jax.tree_util import Partial
from scipy import integrate, special, stats

import thermint
from thermint import Evidence, Model

SEEDS = pytest.mark.parametrize("seed", [0, 1])
PRIOR: dict[str, Any] = {"reference": "prior", "ladder": 11, "draws": 100}
PATHS = pytest.mark.parametrize("options", [PRIOR, {"draws": 100}], ids=["prior", "auto"])


def standard_log_prior(x: Array) -> Array:
    return norm.logpdf(x).sum()


def three(key: Array) -> Array:
    return jax.random.normal(key, (3,))


def line_log_likelihood(a: Array, scale: Array, border: Array, beyond: Array, slope: Array, x: Array) -> Array:
    value = norm.logpdf(a @ x, 1.0, scale)
    fixed = jax.lax.stop_gradient(value)
    return jnp.where(x[0] < border, fixed + slope * (value - fixed), beyond)


def line(a: list[float], scale: float, *, border: float = np.inf, beyond: float = 0.0, slope: float = 1.0) -> Model:
    """One observation 1.0 ~ N(a x, scale), x ~ N(0, I): likelihood ``beyond`` for x[0] > border, gradient off by slope.

    The numbers are bound as arrays, so that all of these share their compiled programs.
    """
    bound = [jnp.asarray(value, float) for value in (a, scale, border, beyond, slope)]
    return Model(Partial(line_log_likelihood, *bound), standard_log_prior, three, normalised=True)


def line_log_evidence(a: list[float], scale: float, *, border: float = np.inf) -> float:
    """The closed form, for a border if a is (1, 0, 0)."""
    variance = np.dot(a, a) + scale**2
    inside = special.log_ndtr((border - 1 / variance) * np.sqrt(variance) / scale)
    return float(stats.norm.logpdf(1.0, 0.0, np.sqrt(variance)) + inside)


def line_log_evidence_within(a: float, scale: float, border: float) -> float:
    """Evidence of 1.0 ~ N(a x, scale), x ~ N(0, 1), where x > border has no likelihood."""
    variance = 1 / (1 + a**2 / scale**2)  # of the posterior
    inside = special.log_ndtr((border - variance * a / scale**2) / np.sqrt(variance))
    return float(stats.norm.logpdf(1.0, 0.0, np.hypot(a, scale)) + inside)


def off(result: Evidence, truth: float) -> float:
    """How many of its errors the answer is away."""
    return abs(result.log_evidence - truth) / result.standard_error


def warned(result: Evidence, words: str = "") -> bool:
    return any(words in warning for warning in result.warnings)


# --- Modes and chains ---


def two_modes(d: int, widths: list[float], centre: float) -> tuple[Model, float]:
    """Normals of weights 0.3 and 0.7 at -centre and centre, in every coordinate."""
    log_weights, centres, s = np.log([0.3, 0.7]), np.array([-centre, centre]), np.array(widths)

    def log_likelihood(x: Array) -> Array:
        return jax.nn.logsumexp(log_weights + norm.logpdf(x, centres[:, None], s[:, None]).sum(axis=1))

    truth = special.logsumexp(log_weights + d * stats.norm.logpdf(centres, 0, np.sqrt(1 + s**2)))
    model = Model(log_likelihood, standard_log_prior, lambda key: jax.random.normal(key, (d,)), normalised=True)
    return model, float(truth)


FAR_MODES = two_modes(2, [0.02, 0.02], 2.0)


@SEEDS
def test_two_modes_that_a_short_ladder_cannot_bridge_are_reported(seed: int) -> None:
    model, truth = FAR_MODES
    result = thermint.evidence(model, reference="prior", ladder=4, draws=20, populations=2, seed=seed)
    assert warned(result, "R-hat")
    assert warned(result, "swaps between neighbours")
    assert off(result, truth) < 5


BANANA = Model(
    lambda x: norm.logpdf(x[1] - 2 * x[0] ** 2, 0.0, 0.02) + norm.logpdf(x[0], 0.5, 0.5),
    standard_log_prior,
    lambda key: jax.random.normal(key, (2,)),
    normalised=True,
)


@SEEDS
def test_chains_too_short_say_so(seed: int) -> None:
    """A banana, whose posterior takes many steps to walk along."""
    result = thermint.evidence(BANANA, reference="prior", ladder=11, draws=10, populations=2, seed=seed)
    assert warned(result, "R-hat of the log likelihood exceeds 1.05")
    assert warned(result, "few independent draws")


def shifted_log_prior(shift: Array, x: Array) -> Array:
    return standard_log_prior(x) + shift


def close_to_one(x: Array) -> Array:
    return norm.logpdf(x, 1.0, 0.5).sum()


def draw_thirty(key: Array) -> Array:
    return jax.random.normal(key, (30,))


def thirty(shift: float) -> Model:
    """Thirty parameters, too many for the check that the prior is normalised."""
    return Model(close_to_one, Partial(shifted_log_prior, jnp.asarray(shift)), draw_thirty)


THIRTY_TRUTH = 30 * float(stats.norm.logpdf(1.0, 0.0, np.sqrt(1.25)))


@SEEDS
def test_fewer_draws_than_parameters(seed: int) -> None:
    assert off(thermint.evidence(thirty(0.0), draws=20, seed=seed), THIRTY_TRUTH) < 4


@SEEDS
def test_a_prior_that_is_not_normalised_in_too_many_dimensions_to_check_is_reported(seed: int) -> None:
    result = thermint.evidence(thirty(10.0), draws=20, seed=seed)
    assert off(result, THIRTY_TRUTH) > 5
    assert warned(result, "the two paths disagree")


# --- Tails, and integrals that do not exist ---

OBSERVED = np.array([1.0, 2.0])
CAUCHY = Model(
    lambda x: norm.logpdf(x, OBSERVED).sum(),
    lambda x: cauchy.logpdf(x).sum(),
    lambda key: jax.random.cauchy(key, (2,)),
    normalised=True,
)
CAUCHY_TRUTH = sum(
    np.log(integrate.quad(lambda x, y=y: stats.norm.pdf(x, y) * stats.cauchy.pdf(x), -40, 40, points=[0, y])[0])
    for y in OBSERVED
)


@SEEDS
def test_a_heavy_tailed_prior_with_a_given_degree_is_no_trouble_for_the_bridge_form(seed: int) -> None:
    """Products of two parameters, a feature of degree 2, have no mean under the prior; nor has the log likelihood."""
    result = thermint.evidence(CAUCHY, reference="prior", ladder=11, degree=2, draws=200, seed=seed)
    assert result.settings["method"] == "bridge"
    assert off(result, CAUCHY_TRUTH) < 4


def test_a_heavy_tailed_prior_is_reported_where_the_integral_is_asked_for() -> None:
    said = []
    for seed in range(10):
        result = thermint.evidence(
            CAUCHY, reference="prior", ladder=11, rule="second-order", degree=2, draws=200, seed=seed
        )
        assert off(result, CAUCHY_TRUTH) < 5
        said.append(warned(result, "tail"))
    assert sum(said) >= 8  # now and then control variates leave so little variance that there is nothing to report


@pytest.mark.parametrize("d", [1, 2])
def test_a_flat_prior_is_refused(d: int) -> None:
    model = Model(lambda x: norm.logpdf(x).sum(), lambda x: 0 * x[0], lambda key: jax.random.normal(key, (d,)))
    with pytest.raises(ValueError, match="log_prior is not normalised: exp"):
        thermint.evidence(model)


def unbounded_log_likelihood(x: Array) -> Array:
    """Four observations that are all 1: with the right mean, the smaller the scale the better."""
    return norm.logpdf(jnp.ones(4), x[1], jnp.exp(x[0])).sum()


@SEEDS
def test_an_infinite_evidence_is_reported(seed: int) -> None:
    """The density of log scale falls as e^u, the likelihood given it rises as e^(-3 u): the integral diverges."""
    model = Model(
        unbounded_log_likelihood,
        lambda x: logistic.logpdf(x[0]) + norm.logpdf(x[1]),
        lambda key: jnp.stack([jax.random.logistic(key), jax.random.normal(jax.random.fold_in(key, 1))]),
        normalised=True,
    )
    result = thermint.evidence(model, **PRIOR, seed=seed)
    assert warned(result, "R-hat")


# --- Where there is no likelihood, or no number ---


@SEEDS
@PATHS
def test_no_likelihood_on_half_of_the_prior_mass(options: dict[str, Any], seed: int) -> None:
    model = line([1, 0, 0], 0.5, border=0.0, beyond=-np.inf)
    result = thermint.evidence(model, **options | {"draws": 200}, seed=seed)
    assert off(result, line_log_evidence([1, 0, 0], 0.5, border=0.0)) < 4
    assert result.standard_error < 0.2


@PATHS
def test_nan_on_much_of_the_prior_mass_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"log_likelihood is NaN or infinite at \d+ of 256 draws from the prior"):
        thermint.evidence(line([1, 0, 0], 0.5, border=1.2, beyond=np.nan), **options)


@PATHS
def test_nan_that_no_first_draw_met_is_reported(options: dict[str, Any]) -> None:
    """Beyond four standard deviations of the prior, where the posterior, with mean 3.4, reaches."""
    result = thermint.evidence(line([0.25, 0, 0], 0.1, border=4.0, beyond=np.nan), **options)
    assert warned(result, "was NaN or +inf at")
    assert off(result, line_log_evidence_within(0.25, 0.1, 4.0)) < 4


# --- Directions of which the likelihood knows nothing ---


@SEEDS
@PATHS
@pytest.mark.parametrize(("a", "scale"), [([1, 0, 0], 0.1), ([1, 1, 1], 0.01)], ids=["flat", "ridge"])
def test_flat_directions(a: list[float], scale: float, options: dict[str, Any], seed: int) -> None:
    result = thermint.evidence(line(a, scale), **options, seed=seed)
    assert abs(result.log_evidence - line_log_evidence(a, scale)) < 4 * result.standard_error + 1e-9
    assert result.standard_error < 0.1


# --- Control variates that do not have mean zero ---


UNIFORM = Model(
    lambda x: -x[0],
    lambda x: jnp.where((x[0] > 0) & (x[0] < 1), 0.0, -jnp.inf),
    lambda key: jax.random.uniform(key, (1,)),
)


@SEEDS
@pytest.mark.parametrize("degree", ["auto", 2])
def test_a_uniform_prior_by_hand(degree: int | str, seed: int) -> None:
    """Likelihood e^-x, prior 1 between 0 and 1: the density jumps at both ends."""
    result = thermint.evidence(UNIFORM, degree=degree, draws=200, seed=seed)
    assert off(result, np.log1p(-np.exp(-1.0))) < 4
    assert warned(result, "control variates switched off" if degree == 2 else "control variates not used")


@PATHS
def test_a_wrong_gradient_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"gradient of log_likelihood with respect to 'theta\[0\]' is"):
        thermint.evidence(line([1, 0, 0], 0.5, slope=1.3), **options)
