"""The front: exactness in the normal case, agreement with closed forms, options, and errors that name the culprit."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import thermint
from thermint import Draws, Model, ladders
from thermint.paper import linear, radiata
from thermint.path.quadrature import second_order, trapezoid


@functools.cache
def linear_draws(seed):
    return thermint.sample(linear.model(), draws=100, populations=2, seed=seed)


@pytest.mark.parametrize("crossfit", [True, False])
@pytest.mark.parametrize("seed", [0, 1])
def test_degree_two_is_exact_for_a_normal_posterior(seed, crossfit):
    """Degree 2 leaves the noise-free trapezoid value; degree 4 the noise-free second-order one (ERRATA 6)."""
    ladder = ladders.power()
    mean, variance = linear.integrand(ladder)
    draws = linear_draws(seed)

    two = thermint.estimate(draws, degree=2, rule="trapezoid", crossfit=crossfit)
    assert abs(two.log_evidence - trapezoid(ladder)[0] @ mean) < 1e-9
    assert two.mc_error < 1e-9
    np.testing.assert_allclose(two.rungs["ratio"], 0.0, atol=1e-9)

    four = thermint.estimate(draws, degree=4, rule="second-order", crossfit=crossfit)
    mean_weights, variance_weights = second_order(ladder)
    assert abs(four.log_evidence - mean_weights @ mean - variance_weights @ variance) < 1e-8
    np.testing.assert_allclose(four.rungs["variance"], variance, rtol=1e-8)

    one = thermint.estimate(draws, degree=1, rule="trapezoid", crossfit=crossfit)
    assert one.mc_error > 1e-3  # what the exactness is worth


def test_evidence_is_exact_too():
    ladder = ladders.power()
    result = thermint.evidence(
        linear.model(), reference="prior", ladder=51, draws=100, populations=2, degree=2, rule="trapezoid", seed=7
    )
    assert abs(result.log_evidence - trapezoid(ladder)[0] @ linear.integrand(ladder)[0]) < 1e-9
    # What is left is quadrature, and the result knows how much.
    assert abs(result.log_evidence - linear.log_evidence()) < 2 * result.quadrature_error < 0.13


# Swaps come after the kernel's move and know nothing of it.
@pytest.mark.parametrize(
    ("kernel", "swap"),
    [
        (thermint.kernels.mmala, thermint.swaps.even_odd),
        (thermint.kernels.mala, thermint.swaps.even_odd),
        (thermint.kernels.random_walk, thermint.swaps.even_odd),
        (thermint.kernels.random_walk, thermint.swaps.random_pair),
    ],
)
def test_every_kernel_and_swap_gives_the_closed_form(kernel, swap):
    result = thermint.evidence(
        radiata.model(1), reference="prior", kernel=kernel, swap=swap, draws=500, ladder=31, seed=3
    )
    assert abs(result.log_evidence - radiata.log_evidence(1)) < 4 * result.standard_error
    assert result.standard_error < 0.03
    assert result.settings["kernel"] == kernel.__name__


@pytest.fixture(scope="module")
def radiata_draws():
    return thermint.sample(radiata.model(2), draws=500, seed=4)


# What each leaves of the error, times two: plain averages, then the trapezoid's own error, then little.
LARGEST_ERRORS = {"trapezoid": (0.08, 0.09, 0.05, 0.05), "second-order": (0.07, 0.075, 0.0035, 0.0007)}


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
@pytest.mark.parametrize("rule", LARGEST_ERRORS)
def test_every_degree_and_rule_gives_the_closed_form(degree, rule, radiata_draws):
    result = thermint.estimate(radiata_draws, degree=degree, rule=rule)
    assert abs(result.log_evidence - radiata.log_evidence(2)) < 4 * result.standard_error
    assert result.standard_error < LARGEST_ERRORS[rule][degree]
    assert (result.rungs["degree"] == degree).all()
    assert not result.warnings


def test_control_variates_reduce_the_error():
    draws = thermint.sample(radiata.model(1), draws=500, seed=5)
    errors = [thermint.estimate(draws, degree=degree).mc_error for degree in (0, 2, 3)]
    assert errors[0] > 10 * errors[1] > 20 * errors[2]


def test_the_same_seed_gives_the_same_answer_and_another_does_not():
    first, again, other = (
        thermint.evidence(linear.model(), draws=20, ladder=11, degree=1, seed=seed).log_evidence for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_estimate_takes_draws_from_elsewhere():
    """Exact draws of a normal model, made by NumPy."""
    rng = np.random.default_rng(0)
    ladder = ladders.power(21)
    # theta ~ N(0, 1), observation 1.5 ~ N(theta, 1): the power posterior has precision 1 + t and mean 1.5 t / (1 + t).
    theta = 1.5 * ladder / (1 + ladder) + rng.standard_normal((2, 200, 21)) / np.sqrt(1 + ladder)
    draws = Draws(
        ladder=ladder,
        position=theta[..., None],
        log_likelihood=np.asarray(stats.norm.logpdf(1.5, theta, 1)),
        log_prior=np.asarray(stats.norm.logpdf(theta)),
        grad_log_likelihood=(1.5 - theta)[..., None],
        grad_log_prior=-theta[..., None],
    )
    truth = stats.norm.logpdf(1.5, 0, np.sqrt(2))
    controlled, plain = (thermint.estimate(draws, degree=degree) for degree in (4, 0))
    assert abs(controlled.log_evidence - truth) < 2 * controlled.quadrature_error + 1e-9 < 3e-5
    assert abs(plain.log_evidence - truth) < 4 * plain.standard_error
    assert plain.standard_error < 0.03
    assert controlled.mc_error < 1e-9 < plain.mc_error

    with pytest.raises(ValueError, match=r"log_prior has shape \(2, 200, 20\)"):
        thermint.estimate(draws._replace(log_prior=draws.log_prior[..., 1:]))
    with pytest.raises(ValueError, match="ladder has 20 rungs but the draws have 21"):
        thermint.estimate(draws._replace(ladder=ladders.power(20)))
    spoiled = np.array(draws.log_likelihood)
    spoiled[1, 7, 3] = np.nan
    with pytest.raises(ValueError, match="log_likelihood is not finite at population 1, draw 7, rung 3"):
        thermint.estimate(draws._replace(log_likelihood=spoiled))


def test_zero_likelihood_prior_mass_is_part_of_the_evidence():
    """A likelihood that is zero for theta < 0.5 and falls smoothly to zero there: control variates stay valid."""

    def log_likelihood(theta):
        inside = theta[0] > 0.5
        return jnp.where(inside, 3 * jnp.log(jnp.where(inside, theta[0] - 0.5, 1.0)), -jnp.inf)

    model = Model(
        log_likelihood,
        lambda theta: jax.scipy.stats.norm.logpdf(theta[0]),
        lambda key: jax.random.normal(key, (1,)),
    )
    x = np.linspace(0.5, 12, 200_001)
    truth = np.log(np.trapezoid((x - 0.5) ** 3 * stats.norm.pdf(x), x))
    result = thermint.evidence(model, reference="prior", ladder=51, draws=2000, seed=1, degree=2)
    assert abs(result.log_evidence - truth) < 4 * result.standard_error
    assert result.standard_error < 0.05
    # Whether the density jumps at the border cannot be told for sure, so that nobody's choice is no control.
    careful = thermint.evidence(model, draws=2000, seed=1)
    assert any("control variates not used" in warning for warning in careful.warnings)
    assert abs(careful.log_evidence - truth) < 4 * careful.standard_error
    assert careful.standard_error < 0.005
    assert result.rungs["acceptance"][0] == pytest.approx(stats.norm.sf(0.5), abs=0.03)


def test_a_density_that_jumps_at_its_border_switches_control_variates_off():
    """Likelihood e^-x on x > 0: Stein's identity fails by a boundary term, which no variance shows."""

    def log_likelihood(theta):
        return jnp.where(theta[0] > 0, -theta[0], -jnp.inf)

    model = Model(
        log_likelihood,
        lambda theta: jax.scipy.stats.norm.logpdf(theta[0]),
        lambda key: jax.random.normal(key, (1,)),
    )
    truth = np.log(np.exp(0.5) * stats.norm.sf(1.0))
    result = thermint.evidence(model, reference="prior", ladder=51, draws=1000, degree=2)
    assert any("control variates switched off" in warning for warning in result.warnings)
    assert (result.rungs["degree"] == 0).all()
    assert abs(result.log_evidence - truth) < 4 * result.standard_error
    assert result.standard_error < 0.03


@pytest.mark.parametrize("populations", [1, 4])
def test_borders_too_low_for_the_mean_zero_test(populations):
    """A hand-written prior, normal truncated at 0: with control the answer is off by 0.006, many of its errors."""

    def log_prior(theta):
        return jnp.where(theta[0] > 0, jax.scipy.stats.norm.logpdf(theta[0] - 2.5) - stats.norm.logcdf(2.5), -jnp.inf)

    def sample_prior(key):
        return 2.5 + jax.random.truncated_normal(key, -2.5, jnp.inf, (1,))

    model = Model(lambda theta: -0.5 * (theta[0] - 2.5) ** 2, log_prior, sample_prior)
    truth = np.log(stats.norm.cdf(2.5 * np.sqrt(2)) / stats.norm.cdf(2.5) / np.sqrt(2))
    result = thermint.evidence(model, populations=populations)
    assert abs(result.log_evidence - truth) < 4 * result.standard_error
    assert result.standard_error < 0.003  # half of what control would shift the answer by
    assert any("control variates not used" in warning for warning in result.warnings)
    assert not any("NaN" in warning for warning in result.warnings)


def test_no_prior_draw_with_a_likelihood_is_an_error():
    model = Model(
        lambda theta: jnp.where(theta[0] > 2.05, -(theta[1] ** 2), -jnp.inf),
        lambda theta: jax.scipy.stats.norm.logpdf(theta).sum(),
        lambda key: jax.random.normal(key, (2,)),
    )
    with pytest.raises(ValueError, match="no draw from the prior has a likelihood"):
        thermint.evidence(model, reference="prior", draws=10, populations=1, ladder=6, seed=2)


def test_a_ladder_too_coarse_is_reported():
    model = Model.from_prior(
        {"x": dist.Normal(jnp.zeros(3), 100.0)}, lambda p: dist.Normal(p["x"], 0.01).log_prob(1.0).sum()
    )
    result = thermint.evidence(model, reference="prior", draws=50, ladder=11)
    assert any("the ladder is too coarse" in warning for warning in result.warnings)


def test_in_sample_coefficients_do_not_flatter_the_error():
    """With few draws a feature, residuals in sample are too small; the error must not be."""
    together = thermint.sample(radiata.model(1), ladder=21, draws=50, populations=20)
    draws = [together.population(i) for i in range(20)]
    results = [thermint.estimate(d, degree=2, crossfit=False) for d in draws]
    honest = [thermint.estimate(d, degree=2) for d in draws]
    for one, other in zip(results, honest, strict=True):
        assert one.mc_error > 0.9 * other.mc_error


def test_long_traces_are_thinned():
    result = thermint.evidence(linear.model(), reference="prior", ladder=[0, 1], draws=25_000, populations=1, degree=0)
    assert result.settings["draws"] == 25_000
    assert result.rungs["ess"].max() <= 10_000


@pytest.mark.parametrize("reference", ["prior", "auto"])
def test_a_likelihood_that_does_not_depend_on_the_parameters(reference):
    model = Model.from_prior({"x": dist.Normal(0.0, 1.0)}, lambda p: 0 * p["x"] - 3.0)
    result = thermint.evidence(model, reference=reference, draws=50, ladder=6)
    assert result.log_evidence == pytest.approx(-3.0, abs=1e-12)
    assert not result.warnings


@pytest.mark.parametrize("reference", ["prior", "auto"])
def test_nan_proposals_are_rejected_and_reported(reference):
    """NaN far out in a tail that the first prior draws do not reach."""
    model = Model(
        lambda theta: -0.5 * theta[0] ** 2 + jnp.where(theta[0] > 3.7, jnp.nan, 0.0),
        lambda theta: jax.scipy.stats.norm.logpdf(theta[0]),
        lambda key: jax.random.normal(key, (1,)),
    )
    result = thermint.evidence(model, reference=reference, draws=1000, ladder=11, seed=0)
    assert any("was NaN or +inf at" in warning for warning in result.warnings)
    truth = -0.5 * np.log(2)  # beyond 3.7 the posterior has no mass to speak of
    assert abs(result.log_evidence - truth) < 4 * result.standard_error
    assert result.standard_error < {"prior": 0.01, "auto": 0.0015}[reference]


def test_a_heavy_tail_is_no_trouble():
    """A scale that may come near zero: the log likelihood has no mean under the prior; one draw can decide it all."""
    y = jnp.array([1.2, 0.8, 1.9, 1.4, 0.3])
    model = Model.from_prior(
        {"mean": dist.Normal(0, 10), "scale": dist.HalfNormal(2)},
        lambda p: dist.Normal(p["mean"], p["scale"]).log_prob(y).sum(),
    )
    truth = -9.110347  # the mean integrated in closed form, the scale numerically
    # Two of these seeds meet such a draw.
    results = [thermint.evidence(model, reference="prior", ladder=51, seed=seed) for seed in range(6, 12)]
    integrals = np.array([result.estimates.loc["cti"] for result in results])
    assert integrals[:, 1].max() > 0.5
    assert np.all(np.abs(integrals[:, 0] - truth) < 5 * integrals[:, 1])
    # The bridge form, from the same draws, needs no mean of the log likelihood, and is taken.
    assert all(
        result.settings["method"] == "bridge" for result in results if result.estimates.standard_error["cti"] > 0.1
    )
    fitted = [thermint.evidence(model, seed=seed) for seed in range(3)]
    for result in (*results, *fitted):
        assert abs(result.log_evidence - truth) < 5 * result.standard_error
        assert result.standard_error < 0.05


def test_a_run_too_short_to_converge_says_so():
    """Two modes that are never bridged: populations sit in one or the other, at every rung but the first."""

    def log_likelihood(theta):
        return jnp.logaddexp(-2e4 * (theta[0] - 1) ** 2, -2e4 * (theta[0] + 1) ** 2 - 2.0)

    model = Model(
        log_likelihood,
        lambda theta: jax.scipy.stats.norm.logpdf(theta[0]),
        lambda key: jax.random.normal(key, (1,)),
    )
    result = thermint.evidence(model, reference="prior", ladder=[0, 0.5, 1], draws=100, populations=8)
    text = " ".join(result.warnings)
    assert "R-hat" in text
    assert "swaps between neighbours" in text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"draws": 0}, "draws = 0: it must be a whole number, at least 10"),
        ({"draws": 9}, "draws = 9: it must be a whole number, at least 10"),
        ({"seed": 1.5}, "seed = 1.5"),
        ({"draws": 10.5}, "draws = 10.5"),
        ({"populations": 0}, "populations = 0"),
        ({"degree": -1}, "degree = -1"),
        ({"degree": "two"}, "degree = 'two'"),
        ({"degree": 2.0}, "degree = 2.0"),
        ({"rule": "simpson"}, "rule = 'simpson': it must be one of 'trapezoid', 'second-order'"),
        ({"reference": "posterior"}, "reference = 'posterior'"),
        ({"ladder": [0, 0.5, 0.4, 1]}, "rung 1 has t = 0.5 and rung 2 has t = 0.4"),
        ({"ladder": [0.1, 1]}, "start at exactly 0"),
        ({"ladder": [0, 0.5]}, "end at exactly 1"),
        ({"ladder": [0, np.nan, 1]}, "not finite, at rung 1"),
        ({"ladder": 1}, "at least 2"),
        ({"ladder": np.nan}, "at least 2"),
        ({"ladder": [[0, 1]]}, "vector"),
        ({"degree": 16, "draws": 50_000, "ladder": 51}, "cross-products take"),
        ({"degree": 4, "draws": 10, "populations": 1, "crossfit": False}, "34 coefficients to fit to 10 draws"),
    ],
)
def test_bad_options_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        thermint.evidence(linear.model(), **options)


def test_a_lobatto_rule_needs_its_ladder_on_the_prior_path():
    with pytest.raises(ValueError, match=r'rule = "lobatto" with reference = "prior" needs ladder'):
        thermint.evidence(linear.model(), reference="prior", rule="lobatto")


def test_a_kernel_must_be_a_function():
    with pytest.raises(TypeError, match="kernel = 'mala': it must be a function"):
        thermint.evidence(linear.model(), kernel="mala")  # type: ignore[arg-type]


def test_draws_must_be_draws():
    with pytest.raises(TypeError, match=r"must be a thermint\.Draws, not ndarray"):
        thermint.estimate(np.zeros(3))  # type: ignore[arg-type]


def test_mmala_without_a_metric_is_refused():
    model = Model(
        lambda theta: -theta @ theta,
        lambda theta: jax.scipy.stats.norm.logpdf(theta[0]),
        lambda key: jax.random.normal(key, (1,)),
    )
    with pytest.raises(ValueError, match=r"mmala needs a model with a metric; use kernels\.mala"):
        thermint.evidence(model, kernel=thermint.kernels.mmala)


def test_method_is_named():
    draws = thermint.sample(linear.model(), ladder=3, draws=10, populations=1)
    with pytest.raises(ValueError, match="method = 'nested'"):
        thermint.estimate(draws, method="nested")


def test_sample_returns_what_was_asked_for():
    draws = thermint.sample(linear.model(), ladder=4, draws=123, populations=3)
    assert draws.position.shape == (3, 123, 4, 3)
    assert draws.acceptance is not None
    assert draws.acceptance.shape == (3, 123, 4)


def test_the_result_prints_its_error_budget():
    result = thermint.evidence(linear.model(), draws=50, ladder=21)
    text = str(result)
    assert text.startswith(f"log evidence  {result.log_evidence:.3f}"[:18])
    for part in ("±", "95 % interval", "Monte Carlo", "quadrature", "likelihood evaluations", " s"):
        assert part in text
    assert result.standard_error == pytest.approx(np.hypot(result.mc_error, result.quadrature_error))
    assert list(result.rungs.columns) == [
        "t", "weight", "mean", "error", "plain_mean", "plain_error", "variance", "ratio", "degree", "pareto_k",
        "acceptance", "swap_rate", "barrier", "last_visited_reference", "ess", "r_hat",
    ]  # fmt: skip
    low, high = result.interval(0.5)
    assert low < result.log_evidence < high
    assert high - low < np.subtract(*result.interval(0.9)[::-1])
    with pytest.raises(ValueError, match="level = 95"):
        result.interval(95)


def test_evaluations_are_counted():
    calls: list[int] = []

    def log_likelihood(theta):
        jax.debug.callback(lambda x: calls.append(len(calls)), theta[0])
        return -0.5 * theta @ theta

    model = Model(
        log_likelihood, lambda theta: jax.scipy.stats.norm.logpdf(theta).sum(), lambda key: jax.random.normal(key, (2,))
    )
    result = thermint.evidence(model, ladder=3, draws=20, populations=2)
    jax.effects_barrier()
    assert len(calls) == result.evaluations


@pytest.mark.parametrize(("width", "low", "high"), [(1.3, 0.0, 1e-8), (4.0, 2e-4, 2e-3)])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_quadrature_error_is_not_the_noise_of_the_draws(width, low, high, seed):
    """Exact draws of the path from N(0, width I) to N(0, I), whose quadrature errors are 2.5e-10 and 5.9e-4."""
    t, d = ladders.lobatto(5), 3
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((4, 500, len(t), d)) / np.sqrt((1 - t) / width + t)[:, None]
    log_reference = stats.norm.logpdf(x, scale=np.sqrt(width)).sum(axis=-1)
    g = stats.norm.logpdf(x).sum(axis=-1) - log_reference
    result = thermint.estimate(Draws(t, x, g, log_reference, -x + x / width, -x / width), degree=0)
    assert low < result.quadrature_error < high  # the rule's own estimate would be 2e-4 to 7e-3
    assert result.mc_error > 3e-3
