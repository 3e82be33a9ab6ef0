"""NumPyro models: densities against NumPyro's own, prior draws, metric, evidence in closed form, and refusals."""

import functools
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.contrib.control_flow import scan
from numpyro.infer.reparam import LocScaleReparam
from numpyro.infer.util import initialize_model
from scipy import stats

import thermint
from thermint.model.checks import check_shapes
from thermint.model.evaluation import evaluate
from thermint.paper import pima

Y = jnp.array([1.2, 0.8, 1.9, -0.4])
from_numpyro: Any = thermint.from_numpyro  # whose parts that may be None are not


def zoo(y):
    """Supports of many kinds, some of which depend on other sites."""
    scale = numpyro.sample("scale", dist.HalfCauchy(2.0))
    top = numpyro.sample("top", dist.Uniform(0.0, 1.0 + scale))
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
    numpyro.sample("corr", dist.LKJCholesky(3, 2.0))
    order = numpyro.sample(
        "order",
        dist.TransformedDistribution(dist.Normal(jnp.zeros(2), 1.0).to_event(1), dist.transforms.OrderedTransform()),
    )
    with numpyro.plate("groups", 2):
        effect = numpyro.sample("effect", dist.Normal(top, scale))
    total = numpyro.deterministic("total", effect.sum() + order[0])
    with numpyro.plate("data", len(y)):
        numpyro.sample("y", dist.Normal(total + weights[0], 1.0), obs=y)


def walk(y):
    """A random walk by scan, with a positive site inside."""

    def step(state, y):
        noise = numpyro.sample("noise", dist.LogNormal(0.0, 0.3))
        state = numpyro.sample("state", dist.Normal(state, noise))
        numpyro.sample("y", dist.Normal(state, 0.5), obs=y)
        return state, None

    scan(step, numpyro.sample("first", dist.Normal(0.0, 1.0)), y)


def schools(y, error):
    mean = numpyro.sample("mean", dist.Normal(0.0, 5.0))
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.5))
    with numpyro.plate("schools", len(y)):
        effect = numpyro.sample("effect", dist.Normal(mean, scale))
        numpyro.sample("y", dist.Normal(effect, error), obs=y)


def answers(y):
    """Yes and no of all shapes: one probability for many, a mask, an event, and one answer for all."""
    beta = numpyro.sample("beta", dist.Normal(0.0, 2.0).expand([3]).to_event(1))
    with numpyro.plate("people", len(y)):
        numpyro.sample("same", dist.Bernoulli(logits=beta[0]), obs=y > 0)
        numpyro.sample("always", dist.Bernoulli(logits=beta[1]), obs=1)
        with handlers.mask(mask=y > 1):
            numpyro.sample("some", dist.Bernoulli(logits=beta[2] * y), obs=y > 0)
    numpyro.sample("event", dist.Bernoulli(logits=beta[:, None] * y).to_event(2), obs=y > 0)


decentred = handlers.reparam(schools, config={"effect": LocScaleReparam(0)})


@pytest.mark.parametrize(
    ("model", "arguments"),
    [(zoo, (Y,)), (walk, (Y,)), (answers, (Y,)), (schools, (Y, 1.0)), (decentred, (Y, 1.0))],
    ids=["zoo", "walk", "answers", "centred", "decentred"],
)
def test_densities_are_numpyros(model, arguments):
    ours = from_numpyro(model, *arguments)
    check_shapes(ours)
    theirs = initialize_model(jax.random.key(0), model, model_args=arguments)

    @jax.jit
    def both(key):
        theta = ours.sample_prior(key)
        state = evaluate(replace(ours, metric=None), theta)
        # NumPyro's unconstrained values, by name.
        substituted = handlers.substitute(handlers.seed(model, key), ours.constrain(theta))
        sites = handlers.trace(substituted).get_trace(*arguments)
        free = {
            name: dist.biject_to(site["fn"].support).inv(site["value"])
            for name, site in sites.items()
            if site["type"] == "sample" and not site["is_observed"]
        }
        potential, slope = jax.value_and_grad(theirs.potential_fn)(free)
        slope = jnp.concatenate([slope[name].ravel() for name in free])
        joint, score = state.log_likelihood + state.log_prior, state.grad_log_likelihood + state.grad_log_prior
        return joint, -potential, score, -slope

    for key in jax.random.split(jax.random.key(3), 5):
        joint, potential, score, slope = both(key)
        assert float(joint) == pytest.approx(float(potential), rel=1e-10)
        np.testing.assert_allclose(score, slope, rtol=1e-7, atol=1e-7)


def test_likelihood_and_prior_are_apart():
    model = from_numpyro(schools, Y, 1.0)
    theta = jnp.array([0.3, np.log(1.5), *range(4)])
    expected = np.sum(stats.norm.logpdf(Y, np.arange(4)))
    assert model.log_likelihood(theta) == pytest.approx(expected, rel=1e-12)
    prior = stats.norm.logpdf(0.3, 0, 5) + stats.norm.logpdf(np.log(1.5), 0, 0.5)
    assert model.log_prior(theta) == pytest.approx(prior + np.sum(stats.norm.logpdf(np.arange(4), 0.3, 1.5)), rel=1e-12)


def test_names_values_and_data():
    model = from_numpyro(zoo, Y)
    assert model.parameter_names[:4] == ("scale", "top", "weights[0]", "weights[1]")
    values = model.constrain(model.sample_prior(jax.random.key(0)))
    assert values["weights"].shape == (3,)
    assert float(values["weights"].sum()) == pytest.approx(1.0)
    assert values["total"] == pytest.approx(float(values["effect"].sum() + values["order"][0]))
    assert "y" not in values
    assert list(model.data) == ["y"]
    np.testing.assert_array_equal(model.data["y"], Y)


def test_prior_draws():
    model = from_numpyro(zoo, Y)
    draws = jax.jit(jax.vmap(lambda key: model.constrain(model.sample_prior(key))))(
        jax.random.split(jax.random.key(5), 4000)
    )
    assert stats.kstest(draws["scale"], stats.halfcauchy(0, 2).cdf).pvalue > 1e-3
    assert stats.kstest(draws["top"] / (1 + draws["scale"]), "uniform").pvalue > 1e-3
    standard = (draws["effect"] - draws["top"][:, None]) / draws["scale"][:, None]
    assert stats.kstest(standard.ravel(), "norm").pvalue > 1e-3


@pytest.mark.parametrize(("model", "options"), [(schools, {}), (decentred, {"seed": 1})], ids=["centred", "decentred"])
def test_evidence_of_a_hierarchy(model, options):
    result = thermint.evidence(from_numpyro(model, Y, 1.0), draws=300, progress=False, **options)
    # The effects integrated by hand, mean and log scale on a grid.
    mean, log_scale = np.meshgrid(np.linspace(-25, 25, 1001), np.linspace(-4, 4, 801), indexing="ij")
    density = stats.norm.logpdf(mean, 0, 5) + stats.norm.logpdf(log_scale, 0, 0.5)
    density += sum(stats.norm.logpdf(y, mean, np.hypot(1.0, np.exp(log_scale))) for y in np.asarray(Y))
    truth = np.log(np.trapezoid(np.trapezoid(np.exp(density), dx=0.01), dx=0.05))
    assert result.standard_error < 0.01
    assert abs(result.log_evidence - truth) < 4 * result.standard_error


def logistic(X, y):
    beta = numpyro.sample("beta", dist.Normal(jnp.zeros(X.shape[1]), 1 / np.sqrt(pima.TAU)).to_event(1))
    with numpyro.plate("data", len(y)):
        numpyro.sample("y", dist.Bernoulli(logits=X @ beta), obs=y)


def test_pima_is_the_hand_written_model():
    ours, plain = from_numpyro(logistic, *pima._data(2)), pima.model(2)
    theta = jnp.linspace(-0.5, 0.5, 6)
    for one, two in zip(jax.tree.leaves(evaluate(ours, theta)), jax.tree.leaves(evaluate(plain, theta)), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-10, atol=1e-10)


def test_masks_plates_and_totals_weigh_the_information():
    mask, totals = jnp.array([True, False, True, True]), jnp.array([3, 5, 2, 4])

    def model():
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        with numpyro.plate("data", 4), handlers.mask(mask=mask):
            numpyro.sample("k", dist.Binomial(totals, logits=a), obs=jnp.array([1, 2, 1, 0]))
        with numpyro.plate("more", 4):
            numpyro.sample("y", dist.Normal(a, 2.0), obs=Y)

    information, curvature = from_numpyro(model).metric(jnp.zeros(1))
    assert information[0, 0] == pytest.approx((3 + 2 + 4) / 4 + 4 / 2**2, rel=1e-12)
    assert curvature[0, 0] == pytest.approx(1.0)


def test_no_metric_for_other_distributions():
    def model():
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Cauchy(a, 1.0), obs=Y)

    assert from_numpyro(model).metric is None


# --- Factors ---


def with_factor(shift=0.0):
    a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    numpyro.factor("extra", -0.5 * a**2 + 0.5 * jnp.log(2.0) + shift)  # of mean one under the prior, if shift is zero
    numpyro.sample("y", dist.Normal(a, 1.0), obs=Y)


def test_a_factor_needs_a_side():
    with pytest.raises(ValueError, match="factor 'extra' may belong to the prior or to the likelihood"):
        from_numpyro(with_factor)
    with pytest.raises(ValueError, match=r"factors\['extra'\] must be 'prior' or 'likelihood', not 'both'"):
        from_numpyro(with_factor, factors={"extra": "both"})
    with pytest.raises(ValueError, match="factors names 'other'"):
        from_numpyro(with_factor, factors={"extra": "likelihood", "other": "prior"})


def test_a_factor_counts():
    model = from_numpyro(with_factor, factors={"extra": "likelihood"})
    theta = jnp.array([0.7])
    expected = np.sum(stats.norm.logpdf(Y, 0.7)) - 0.5 * 0.7**2 + 0.5 * np.log(2)
    assert model.log_likelihood(theta) == pytest.approx(expected, rel=1e-12)
    assert model.metric is None


def test_a_factor_of_the_prior_must_leave_it_normalised():
    result = thermint.evidence(from_numpyro(with_factor, factors={"extra": "prior"}), progress=False)
    truth = stats.multivariate_normal.logpdf(Y, np.zeros(4), np.eye(4) + 0.5)  # the prior is N(0, 1/2) in effect
    assert abs(result.log_evidence - truth) < 1e-9  # the posterior is normal
    assert result.standard_error < 1e-9
    with pytest.raises(ValueError, match=r"not normalised: the mean of its factors \(extra\)"):
        from_numpyro(with_factor, shift=0.3, factors={"extra": "prior"})


# --- Refusals ---


def refused(latent=None, y=Y, **plate):
    if latent is not None:
        numpyro.sample("slope", latent)
    a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    with numpyro.plate("rows", 4, **plate):
        numpyro.sample("y", dist.Normal(a, 1.0), obs=y)


def with_param():
    numpyro.sample("y", dist.Normal(numpyro.param("offset", 0.0), 1.0), obs=Y)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (functools.partial(refused, dist.ImproperUniform(dist.constraints.real, (), ())), "'slope'.*improper"),
        (functools.partial(refused, dist.Poisson(3.0)), "'slope'.*discrete: marginalise"),
        (functools.partial(refused, dist.Delta(1.0)), "'slope' is a point mass"),
        (functools.partial(refused, y=Y[:2], subsample_size=2), "plate 'rows' is subsampled .2 of 4."),
        (handlers.scale(refused, 0.5), "'a' is scaled"),
        (functools.partial(refused, y=None), "no observed site"),
        (with_param, "'offset' is a numpyro.param"),
        (functools.partial(numpyro.sample, "y", dist.Normal(0.0, 1.0), obs=Y), "no latent site"),
    ],
)
def test_refusals_name_the_site(model, words):
    with pytest.raises(ValueError, match=words):
        from_numpyro(model)


def test_a_function_is_not_a_model():
    with pytest.raises(TypeError, match=r"'schools' is a function.*thermint\.from_numpyro"):
        thermint.evidence(schools)
