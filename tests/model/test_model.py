"""Model, Evaluation and from_prior: values, gradients and Jacobians against automatic differentiation and SciPy."""

import re
from contextlib import nullcontext
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import thermint
from thermint import Model
from thermint.model import evaluate, score, tempered
from thermint.model.checks import check_gradients, shifts
from thermint.model.priors import check_factors, check_normalised

Y = jnp.array([1.2, 0.8, 1.9])


def log_normal_density(x):
    return -0.5 * jnp.sum(x**2) - 0.5 * x.size * jnp.log(2 * jnp.pi)


def make_model(**changes):
    """Return a normal prior and a normal likelihood in two dimensions, with some functions replaced."""
    functions = {
        "log_likelihood": lambda theta: log_normal_density(theta - 1.0),
        "log_prior": log_normal_density,
        "sample_prior": lambda key: jax.random.normal(key, (2,)),
    }
    return Model(**(functions | changes))


def test_evaluation_holds_values_and_gradients():
    model = make_model(log_likelihood=lambda theta: jnp.sin(theta[0]) * theta[1] ** 3)
    theta = jnp.array([0.3, -1.2])
    result = evaluate(model, theta)
    assert result.log_likelihood == pytest.approx(np.sin(0.3) * -(1.2**3), rel=1e-14)
    np.testing.assert_allclose(
        result.grad_log_likelihood, [np.cos(0.3) * -(1.2**3), 3 * np.sin(0.3) * 1.44], rtol=1e-13
    )
    np.testing.assert_allclose(result.grad_log_prior, -theta, rtol=1e-14)
    assert result.fisher is None
    assert result.position.dtype == jnp.float64


def test_one_calculation_of_likelihood_and_fisher_stands_in_for_two():
    theta = jnp.array([0.3, -1.2])
    parts = {"metric": lambda theta: (jnp.diag(theta**2), jnp.eye(2))}
    plain = make_model(**parts)
    calls = []

    def with_fisher(theta):
        calls.append(theta)
        return plain.log_likelihood(theta), jnp.diag(theta**2)

    def never(theta):
        raise AssertionError("the likelihood was calculated a second time")

    joint = make_model(**parts, log_likelihood=never, with_fisher=with_fisher)
    for one, two in zip(evaluate(joint, theta), evaluate(plain, theta), strict=True):
        np.testing.assert_array_equal(one, two)
    assert len(calls) == 1


def test_tempered_and_score_agree_with_automatic_differentiation():
    model = make_model()
    theta, t = jnp.array([0.3, -1.2]), jnp.array(0.37)
    np.testing.assert_allclose(
        score(evaluate(model, theta), t), jax.grad(lambda x: tempered(evaluate(model, x), t))(theta), rtol=1e-13
    )


def test_zero_likelihood_does_not_reach_the_prior_rung():
    state = evaluate(make_model(log_likelihood=lambda theta: jnp.log(0.0) + 0 * theta[0]), jnp.zeros(2))
    assert tempered(state, jnp.array(0.0)) == state.log_prior
    assert tempered(state, jnp.array(1e-9)) == -jnp.inf


def test_the_model_is_traced_once_per_program():
    traces = []

    def log_likelihood(theta):
        traces.append(1)
        return log_normal_density(theta - 1.0)

    jax.jit(lambda x: evaluate(make_model(log_likelihood=log_likelihood), x))(jnp.zeros(2))
    assert len(traces) == 1


@pytest.mark.parametrize(
    ("distribution", "frozen"),
    [
        (dist.Gamma(3.0, 2.0), stats.gamma(3.0, scale=0.5)),
        (dist.HalfCauchy(2.0), stats.halfcauchy(scale=2.0)),
        (dist.Beta(2.0, 5.0), stats.beta(2.0, 5.0)),
        (dist.Uniform(-1.0, 3.0), stats.uniform(-1.0, 4.0)),
        (dist.LogNormal(0.3, 0.7), stats.lognorm(0.7, scale=np.exp(0.3))),
        (dist.StudentT(4.0, 1.0, 2.0), stats.t(4.0, 1.0, 2.0)),
    ],
)
def test_from_prior_includes_the_jacobian(distribution, frozen):
    """The density of the unconstrained value is that of the constrained one times |dx/du|, by finite differences."""
    model = Model.from_prior({"x": distribution}, lambda p: 0.0 * p["x"])
    check_normalised(model)
    assert model.constrain is not None
    constrain = model.constrain
    u = jax.random.normal(jax.random.key(1), (20, 1))

    def constrained(u):
        return np.asarray(jax.vmap(lambda v: constrain(v)["x"])(jnp.asarray(u)))

    step = 1e-5
    slope = (constrained(u + step) - constrained(u - step)) / (2 * step)
    expected = frozen.logpdf(constrained(u)) + np.log(np.abs(slope))
    np.testing.assert_allclose(jax.vmap(model.log_prior)(u), expected, atol=1e-7)
    draws = jax.vmap(model.sample_prior)(jax.random.split(jax.random.key(2), 2000))
    assert stats.kstest(constrained(draws), frozen.cdf).pvalue > 1e-4


def test_from_prior_keeps_order_names_and_shapes():
    model = Model.from_prior(
        {"z": dist.Normal(jnp.zeros(2), 1.0), "a": dist.HalfNormal(1.0), "w": dist.Dirichlet(jnp.ones(3))},
        lambda p: p["z"].sum() * p["a"] + p["w"][0],
    )
    assert model.constrain is not None
    assert model.parameter_names == ("z[0]", "z[1]", "a", "w[0]", "w[1]")  # a simplex of three has two free values
    values = model.constrain(model.sample_prior(jax.random.key(0)))
    assert {name: value.shape for name, value in values.items()} == {"z": (2,), "a": (), "w": (3,)}
    assert values["w"].sum() == pytest.approx(1.0)
    assert jnp.isfinite(model.log_likelihood(jnp.zeros(5)))


def test_from_prior_gives_the_closed_form_evidence():
    """A normal mean with a normal prior: y is jointly normal."""
    model = Model.from_prior({"mean": dist.Normal(0.0, 2.0)}, lambda p: dist.Normal(p["mean"], 1.0).log_prob(Y).sum())
    truth = stats.multivariate_normal.logpdf(np.asarray(Y), np.zeros(3), np.eye(3) + 4.0)
    result = thermint.evidence(model, draws=100)
    assert abs(result.log_evidence - truth) < 4 * result.standard_error
    assert result.standard_error < 0.01


@pytest.mark.parametrize(
    ("distribution", "words"),
    [
        (dist.ImproperUniform(dist.constraints.real, (), ()), "'slope'.*improper"),
        (dist.Normal(0.0, 1.0).mask(False), "'slope'.*improper"),
        (dist.Poisson(3.0), "'slope'.*discrete"),
        (dist.Delta(1.0), "'slope'.*point mass"),
        (dist.Normal(0.0, -1.0, validate_args=False), "'slope'.*check its parameters"),
        (3.0, "'slope'.*not a NumPyro distribution"),
    ],
)
def test_from_prior_refuses_by_name(distribution, words):
    with pytest.raises(ValueError, match=words):
        Model.from_prior({"fine": dist.Normal(0.0, 1.0), "slope": distribution}, lambda p: p["slope"])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"log_likelihood": lambda theta: theta}, "log_likelihood must return a scalar.*forget to sum"),
        ({"log_prior": lambda theta: theta}, "log_prior must return a scalar"),
        ({"sample_prior": lambda key: jax.random.normal(key, (2, 2))}, "sample_prior must return one flat vector"),
        ({"log_likelihood": lambda theta: theta.sum().astype(jnp.float32)}, "log_likelihood returns float32"),
        ({"metric": lambda theta: (jnp.eye(2), jnp.eye(3))}, "metric must return"),
        (
            {"metric": lambda theta: (jnp.eye(2), jnp.eye(2)), "with_fisher": lambda theta: jnp.eye(2)},
            "with_fisher must return",
        ),
    ],
)
def test_wrong_shapes_are_refused(changes, words):
    with pytest.raises(TypeError, match=words):
        thermint.evidence(make_model(**changes))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"log_likelihood": lambda theta: jnp.log(theta[0])}, r"log_likelihood is NaN.*theta\[0\] = -.*Return -inf"),
        ({"log_likelihood": lambda theta: jnp.inf * theta[0]}, "log_likelihood is NaN or infinite"),
        (
            {"log_likelihood": lambda theta: jnp.sqrt(jnp.abs(0 * theta[0]))},
            "gradient of log_likelihood is NaN.*inside",
        ),
        ({"log_likelihood": lambda theta: -jnp.inf + 0 * theta[0]}, "-inf at all .* draws from the prior"),
        ({"log_prior": lambda theta: -0.5 * theta @ theta}, "log_prior is not normalised.*about 6"),
        ({"with_fisher": lambda theta: (theta[0], jnp.eye(2))}, "with_fisher is of use only beside a metric"),
        ({"names": ("a",)}, "names has 1 entries for a theta of 2"),
    ],
)
def test_unusable_values_are_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        thermint.evidence(make_model(**changes), draws=20)


@pytest.mark.parametrize("constant", [-0.05, 0.05])
def test_a_one_dimensional_prior_must_integrate_to_one(constant):
    model = make_model(
        log_prior=lambda theta: log_normal_density(theta) + constant,
        sample_prior=lambda key: jax.random.normal(key, (1,)),
    )
    with pytest.raises(ValueError, match="log_prior is not normalised"):
        check_normalised(model)


def bounded(theta):
    return jnp.where(jnp.all((theta > 0) & (theta < 1)), 0.0, -jnp.inf)


@pytest.mark.parametrize("d", [1, 2, 5, 10])
@pytest.mark.parametrize(
    ("log_prior", "draw"),
    [
        (lambda x: jnp.sum(dist.Normal(0, 1).log_prob(x)), lambda key, d: jax.random.normal(key, (d,))),
        (lambda x: jnp.sum(dist.Cauchy(0, 1).log_prob(x)), lambda key, d: jax.random.cauchy(key, (d,))),
        (bounded, lambda key, d: jax.random.uniform(key, (d,))),
        (
            lambda x: (
                jnp.logaddexp(jnp.sum(dist.Normal(-30, 1).log_prob(x)), jnp.sum(dist.Normal(30, 3).log_prob(x)))
                - jnp.log(2.0)
            ),
            lambda key, d: jnp.where(
                jax.random.bernoulli(key),
                -30 + jax.random.normal(jax.random.fold_in(key, 1), (d,)),
                30 + 3 * jax.random.normal(jax.random.fold_in(key, 1), (d,)),
            ),
        ),
    ],
    ids=["normal", "cauchy", "uniform", "two modes"],
)
def test_normalised_priors_of_many_shapes_pass_and_scaled_ones_do_not(log_prior, draw, d):
    model = make_model(log_prior=log_prior, sample_prior=lambda key: draw(key, d))
    check_normalised(model)
    forgotten = d * 0.5 * np.log(2 * np.pi)  # the usual mistake, whatever the shape
    wrong = make_model(log_prior=lambda x: log_prior(x) + forgotten, sample_prior=lambda key: draw(key, d))
    with pytest.raises(ValueError, match="not normalised"):
        check_normalised(wrong)


@pytest.mark.parametrize("part", ["log_likelihood", "log_prior"])
def test_wrong_gradients_are_refused_by_the_name_of_the_parameter(part):
    def wrong(f):
        @jax.custom_jvp
        def value(theta):
            return f(theta)

        value.defjvp(lambda p, t: (f(*p), jax.jvp(f, p, (t[0] * jnp.array([1.0, 1.2]),))[1]))
        return value

    model = make_model(**{part: wrong(getattr(make_model(), part))}, normalised=True)
    with pytest.raises(ValueError, match=rf"gradient of {part} with respect to 'theta\[1\]' is") as caught:
        thermint.evidence(model)
    said, given = (float(text) for text in re.findall(r"(?:is|give) (-?\d+\.\d+)", str(caught.value)))
    assert said == pytest.approx(1.2 * given, rel=1e-3)


@pytest.mark.parametrize(("factor", "refused"), [(1.03, False), (1.06, True)])
def test_gradients_may_be_as_far_off_as_differences_are(factor, refused):
    position = jnp.asarray(np.random.default_rng(0).standard_normal((1, 50, 2)))
    model, shift = make_model(), shifts(position.shape, np.ones(2))
    at, ahead, behind = (jax.vmap(jax.vmap(partial(evaluate, model)))(position + s) for s in (0, shift, -shift))
    wrong = at._replace(grad_log_likelihood=factor * at.grad_log_likelihood)
    with pytest.raises(ValueError, match="gradient of log_likelihood") if refused else nullcontext():
        check_gradients(model, wrong, shift, ahead, behind)


@pytest.mark.parametrize(("mean", "refused"), [(1.0, False), (1.08, False), (1.14, True)])
def test_factors_of_a_prior_must_average_to_one_within_their_noise(mean, refused):
    """A factor with as much spread as its mean is known to 2 % by some thousand draws."""
    with pytest.raises(ValueError, match=r"the mean of its factors \(tilt\)") if refused else nullcontext():
        check_factors(["tilt"], lambda x: jnp.log(mean * x), lambda key: jax.random.exponential(key))


def test_single_precision_is_refused():
    jax.config.update("jax_enable_x64", False)
    try:
        with pytest.raises(RuntimeError, match="64-bit mode was switched off"):
            thermint.evidence(make_model())
    finally:
        jax.config.update("jax_enable_x64", True)


def test_something_that_is_no_model_is_refused():
    with pytest.raises(TypeError, match=r"must be a thermint\.Model, a PyMC model or a Bambi model, not dict"):
        thermint.evidence({})
