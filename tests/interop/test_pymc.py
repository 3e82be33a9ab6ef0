"""PyMC models: densities, gradients and draws against PyMC's own, names, refusals and an evidence."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import thermint
from thermint.model.checks import check_shapes
from thermint.model.priors import check_normalised
from thermint.paper import pima

pytest.importorskip("pymc")

import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.distributions import transforms
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op

from thermint.interop.pymc import from_pymc
from thermint.interop.pymc.prior import POOL

Y = np.array([0.3, -1.2, 2.1, 0.7])
IMPUTED = pytest.mark.filterwarnings("ignore:Data in y contains missing values")
COV = np.array([[2.0, 0.5], [0.5, 1.0]])


def _normal() -> None:
    pm.Normal("y", pm.Normal("x", 1.0, 2.0), 1.0, observed=Y)


def _scale() -> None:
    pm.Normal("y", 0.0, pm.HalfNormal("x", 2.0), observed=Y)


def _log_normal() -> None:
    pm.Exponential("y", pm.LogNormal("x", 0.5, 0.7), observed=Y**2)


def _beta() -> None:
    pm.Binomial("y", 10, pm.Beta("x", 2.0, 3.0), observed=[4, 7])


def _uniform() -> None:
    pm.Normal("y", pm.Uniform("x", -1.0, 3.0), 1.0, observed=Y)


def _interval() -> None:
    x = pm.Uniform("x", 0.0, pm.Exponential("bound", 1.0), shape=2)
    pm.Normal("y", x[0] - x[1], 1.0, observed=Y)


def _dirichlet() -> None:
    pm.Categorical("y", p=pm.Dirichlet("x", [1.0, 2.0, 3.0]), observed=[0, 2, 1, 1])


def _ordered() -> None:
    x = pm.Normal("x", 0.0, 2.0, shape=3, transform=transforms.ordered)
    pm.OrderedLogistic("y", eta=0.5, cutpoints=x, observed=[0, 1, 3, 2, 2])


def _descending() -> None:
    descending = transforms.Ordered(positive=True, ascending=False)
    x = pm.Exponential("x", 1.0, shape=2, transform=descending, default_transform=None)
    pm.Normal("y", x[0] - x[1], 1.0, observed=Y)


def _ordered_scales() -> None:
    x = pm.HalfNormal("x", 2.0, shape=2, transform=transforms.ordered)  # after their logarithm
    pm.Normal("y", 0.0, x[1], observed=Y)


def _hierarchical() -> None:
    m, s = pm.Normal("m"), pm.HalfNormal("s")
    x = pm.Normal("x", m, s, shape=(2, 2))
    pm.Normal("y", x.ravel(), 1.0, observed=Y)


def _mv_normal() -> None:
    x = pm.MvNormal("x", [0.0, 1.0], COV)
    pm.MvNormal("y", x, COV, observed=Y.reshape(2, 2))


def _zero_sum() -> None:
    pm.Normal("y", pm.ZeroSumNormal("x", 2.0, shape=4), 1.0, observed=Y)


def _lkj() -> None:
    chol, _, _ = pm.LKJCholeskyCov("x", n=2, eta=2.0, sd_dist=pm.Gamma.dist(3.0, 2.0))
    pm.MvNormal("y", np.zeros(2), chol=chol, observed=Y.reshape(2, 2))


def _lkj_of_three() -> None:
    chol, _, _ = pm.LKJCholeskyCov("x", n=3, eta=2.0, sd_dist=pm.Gamma.dist(3.0, [2.0, 3.0, 4.0]))
    pm.MvNormal("y", np.zeros(3), chol=chol, observed=Y[:3])


def _truncated_normal() -> None:
    pm.Normal("y", pm.TruncatedNormal("x", [1.0, 0.0], 1.0, lower=-0.5, upper=2.0)[0], 1.0, observed=Y)


def _weibull() -> None:
    pm.Normal("y", 0.0, pm.Weibull("x", [2.0, 3.0], 1.5)[0], observed=Y)


def _angle() -> None:
    pm.VonMises("y", pm.VonMises("x", 2.5, 1.0), 2.0, observed=Y)


def _logistic() -> None:
    x = pm.Normal("x", 0.0, 2.0, shape=2)
    pm.Bernoulli("y", logit_p=np.outer(Y, [1.0, 0.5]) @ x, observed=[0, 1, 1, 0])
    pm.Bernoulli("same", logit_p=x[0], observed=[[0, 1], [1, 1]])
    pm.Bernoulli("certain", p=pm.math.sigmoid(np.ones((2, 1)) + x), observed=np.ones((2, 2)))


def _missing() -> None:
    x = pm.Normal("x")
    pm.Normal("y", x, 1.0, observed=np.ma.masked_invalid([0.3, np.nan, 2.1]))


ZOO: dict[str, Callable[[], None]] = {
    "normal": _normal,
    "scale": _scale,
    "log_normal": _log_normal,
    "beta": _beta,
    "uniform": _uniform,
    "interval": _interval,
    "dirichlet": _dirichlet,
    "ordered": _ordered,
    "descending": _descending,
    "ordered_scales": _ordered_scales,
    "hierarchical": _hierarchical,
    "mv_normal": _mv_normal,
    "zero_sum": _zero_sum,
    "lkj": _lkj,
    "lkj_of_three": _lkj_of_three,
    "truncated_normal": _truncated_normal,
    "weibull": _weibull,
    "angle": _angle,
    "logistic": _logistic,
    "missing": _missing,
}

# The integrals of det(R)^(eta - 1) over correlations, with eta = 2: of 1 - r^2 over r in (-1, 1), and of det(R) by the
# partial correlations, (1 - r^2)^(3/2) twice and 1 - r^2.
LKJ = {"lkj": np.log(4 / 3), "lkj_of_three": np.log((3 * np.pi / 8) ** 2 * 4 / 3)}
# What is added to PyMC's log density: log n! of sorted variables; LKJ's constant, whose sign PyMC 5 has wrong.
CONSTANT = {"ordered": np.log(6), "descending": np.log(2), "ordered_scales": np.log(2)}
if pm.__version__.startswith("5."):
    CONSTANT |= {name: -2 * log_integral for name, log_integral in LKJ.items()}


@functools.cache
def built(name: str) -> tuple[pm.Model, thermint.Model]:
    # By default PyTensor has constants such as 2.0, and their logarithms, in single precision; so it has some anyway.
    with pytensor.config.change_flags(cast_policy="numpy+floatX"), pm.Model() as model:
        ZOO[name]()
    return model, from_pymc(model)


def draws(model: thermint.Model, number: int, seed: int = 0) -> jax.Array:
    return jax.jit(jax.vmap(model.sample_prior))(jax.random.split(jax.random.key(seed), number))


def point(model: pm.Model, theta: jax.Array) -> dict[str, np.ndarray]:
    """Split theta as PyMC does."""
    with pytensor.config.change_flags(cxx=""):  # no compiler, which may warn that it finds no BLAS
        shapes = {name: np.shape(value) for name, value in model.initial_point().items()}
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes.values()])
    pieces = np.split(np.asarray(theta), ends[:-1])
    return {name: piece.reshape(shape) for (name, shape), piece in zip(shapes.items(), pieces, strict=True)}


@IMPUTED
@pytest.mark.parametrize("name", [name for name in ZOO if name != "angle"])  # which PyMC winds around the line
def test_densities_and_gradients_are_pymcs(name: str) -> None:
    theirs, model = built(name)
    check_shapes(model)

    @jax.jit
    @jax.vmap
    def at_draws(key: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        theta = model.sample_prior(key)
        value, gradient = jax.value_and_grad(lambda t: model.log_prior(t) + model.log_likelihood(t))(theta)
        return theta, value, gradient, model.log_likelihood(theta)

    outputs = [theirs.logp(), theirs.dlogp(), theirs.logp(theirs.observed_RVs)]
    expected = theirs.compile_fn(outputs, mode=pytensor.compile.mode.Mode(linker="py", optimizer="None"))
    for theta, value, gradient, likelihood in zip(*at_draws(jax.random.split(jax.random.key(0), 3)), strict=True):
        logp, dlogp, observed = expected(point(theirs, theta))
        np.testing.assert_allclose(value, logp + CONSTANT.get(name, 0.0), rtol=1e-8)
        np.testing.assert_allclose(gradient, dlogp, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(likelihood, observed, rtol=1e-8)


@IMPUTED
@pytest.mark.parametrize("name", ZOO)
def test_the_prior_is_normalised_and_is_what_is_drawn(name: str) -> None:
    _, model = built(name)
    assert model.normalised
    check_normalised(replace(model, normalised=False))


def _shifted(model: thermint.Model, shift: float, theta: jax.Array) -> jax.Array:
    return model.log_prior(theta) + shift


def test_the_check_sees_pymcs_own_constants() -> None:
    for name, shift in {"ordered": -1.5 * np.log(6), "lkj": 3 * np.log(4 / 3)}.items():
        _, model = built(name)
        wrong = replace(model, log_prior=partial(_shifted, model, shift), normalised=False)
        with pytest.raises(ValueError, match="not normalised"):
            check_normalised(wrong)


def test_draws_have_the_priors_distribution() -> None:
    for name, distribution in {
        "normal": stats.norm(1, 2),
        "scale": stats.halfnorm(scale=2),
        "log_normal": stats.lognorm(0.7, scale=np.exp(0.5)),
        "beta": stats.beta(2, 3),
        "uniform": stats.uniform(-1, 4),
        "angle": stats.vonmises(1.0, loc=2.5),
    }.items():
        _, model = built(name)
        assert model.constrain is not None
        x = np.asarray(jax.vmap(model.constrain)(draws(model, 4000))["x"])
        if name == "angle":
            x = (x - 2.5 + np.pi) % (2 * np.pi) - np.pi + 2.5
        assert stats.kstest(x, distribution.cdf).pvalue > 1e-3, name
    _, model = built("truncated_normal")
    assert model.constrain is not None
    x = np.asarray(jax.vmap(model.constrain)(draws(model, 4000))["x"])
    assert stats.kstest(x[:, 0], stats.truncnorm(-1.5, 1, 1).cdf).pvalue > 1e-3
    assert stats.kstest(x[:, 1], stats.truncnorm(-0.5, 2).cdf).pvalue > 1e-3


def test_draws_of_a_hierarchy_follow_their_parents() -> None:
    _, model = built("hierarchical")
    assert model.constrain is not None
    values = jax.vmap(model.constrain)(draws(model, 4000))
    z = (np.asarray(values["x"]) - np.asarray(values["m"])[:, None, None]) / np.asarray(values["s"])[:, None, None]
    assert stats.kstest(z.ravel(), stats.norm.cdf).pvalue > 1e-3
    np.testing.assert_allclose(np.corrcoef(z.reshape(-1, 4).T), np.eye(4), atol=5 / np.sqrt(4000))


def test_names_carry_coordinates_and_order() -> None:
    with pm.Model(coords={"covariate": ["age", "bmi"], "arm": ["left", "right"]}) as theirs:
        pm.Data("X", np.ones((4, 2)), dims=("row", "covariate"))
        b = pm.Normal("b", dims="covariate")
        a = pm.Normal("a", dims=("arm", "covariate"))
        c = pm.Normal("c", shape=2)
        p = pm.Dirichlet("p", np.ones(2), dims="arm")
        s = pm.HalfNormal("s")
        pm.Deterministic("sum", a.sum() + b.sum())
        pm.Normal("y", theirs["X"] @ b + c[0] + p[0], s, observed=Y)
    model = from_pymc(theirs)
    assert model.names == (
        *("b[age]", "b[bmi]", "a[left, age]", "a[left, bmi]", "a[right, age]", "a[right, bmi]"),
        *("c[0]", "c[1]", "p[0]", "s"),
    )
    assert model.constrain is not None
    theta = jnp.arange(10.0) / 10
    values = model.constrain(theta)
    assert list(values) == ["b", "a", "c", "p", "s", "sum"]
    np.testing.assert_allclose(values["sum"], theta[:6].sum())
    np.testing.assert_allclose(values["s"], np.exp(0.9))
    np.testing.assert_allclose(values["p"].sum(), 1.0)
    assert model.data is not None
    np.testing.assert_array_equal(model.data["y"], Y)


def test_the_model_is_reused_until_its_data_change() -> None:
    with pm.Model() as theirs:
        x = pm.Data("x", np.arange(4.0))
        pm.Normal("y", pm.Normal("b") * x, 1.0, observed=Y)
    first = from_pymc(theirs)
    assert from_pymc(theirs) is first
    with theirs:
        pm.set_data({"x": -np.arange(4.0)})
    second = from_pymc(theirs)
    theta = jnp.array([0.7])
    np.testing.assert_allclose(first.log_likelihood(theta), second.log_likelihood(-theta))
    assert first.log_likelihood(theta) != second.log_likelihood(theta)


def test_single_precision_data_and_shared_variables_are_read_in_double() -> None:
    with pm.Model() as theirs:
        x = pytensor.shared(np.arange(4.0, dtype="float32"))
        pm.Normal("y", pm.Normal("b") * x, 1.0, observed=Y.astype("float32"))
    check_shapes(from_pymc(theirs))  # float64


def test_a_parent_that_is_observed_is_not_drawn() -> None:
    with pm.Model() as theirs:
        y = pm.Normal("y", pm.Normal("m"), 1.0, observed=5.0)
        pm.Normal("x", y, 0.1)
    x = np.asarray(draws(from_pymc(theirs), 1000))[:, 1]
    assert stats.kstest(x, stats.norm(5, 0.1).cdf).pvalue > 1e-3


def test_pools_stand_in_for_draws_that_jax_cannot_make() -> None:
    with pm.Model() as theirs:
        pm.Normal("y", pm.SkewNormal("x", mu=0.0, sigma=1.0, alpha=3.0), 1.0, observed=Y)
    with pytest.warns(UserWarning, match=rf"picked from {POOL} that PyMC makes now.*skewnormal"):
        model = from_pymc(theirs)
    x = np.asarray(draws(model, 2000))[:, 0]
    assert stats.kstest(x, stats.skewnorm(3).cdf).pvalue > 1e-3
    picked = np.asarray(draws(model, 4000))[:, 0]  # as many as the default call takes at rung 0
    assert len(np.unique(picked)) > 0.92 * len(picked)
    check_normalised(replace(model, normalised=False))
    with pm.Model() as cut_off:
        pm.SkewNormal("x", mu=0.0, sigma=1.0, alpha=3.0, transform=transforms.log)
        pm.Normal("y", 0.0, 1.0, observed=Y)
    with pytest.raises(ValueError, match="transform 'log' of 'x'"), pytest.warns(UserWarning, match="picked"):
        from_pymc(cut_off)


def test_a_density_of_the_users_own_is_checked() -> None:
    def logp(value: pt.TensorVariable, mean: pt.TensorVariable) -> pt.TensorVariable:
        return -((value - mean) ** 2)

    def random(mean: float, rng: np.random.Generator, size: tuple[int, ...]) -> np.ndarray:
        return rng.normal(mean, np.sqrt(0.5), size)

    with pm.Model() as theirs:
        pm.Normal("y", pm.CustomDist("x", 1.0, logp=logp, random=random), 1.0, observed=Y)
    with pytest.warns(UserWarning, match="picked from"):
        model = from_pymc(theirs)
    with pytest.raises(ValueError, match="log_prior is not normalised"):
        check_normalised(model)


def test_potentials_need_a_side() -> None:
    with pm.Model() as theirs:
        x = pm.Normal("x")
        pm.Potential("soft", -0.5 * x**2)
        pm.Normal("y", x, 1.0, observed=Y)
    model = from_pymc(theirs, potentials={"soft": "likelihood"})
    theta = jnp.array([0.4])
    np.testing.assert_allclose(model.log_likelihood(theta), stats.norm.logpdf(Y, 0.4).sum() - 0.08)
    np.testing.assert_allclose(model.log_prior(theta), stats.norm.logpdf(0.4))
    for potentials, message in {
        (): r"the potential 'soft' may belong to the prior or.*potentials=\{'soft': 'likelihood'\}",
        (("soft", "prior"),): r"the prior is not normalised: the mean of its factors \(soft\).* is 0.7",
        (("soft", "both"),): r"potentials\['soft'\] must be 'prior' or 'likelihood', not 'both'",
        (("soft", "likelihood"), ("hard", "likelihood")): "names 'hard', but the model has no pm.Potential",
    }.items():
        with pytest.raises(ValueError, match=message):
            from_pymc(theirs, potentials=dict(potentials))


def test_a_potential_of_the_prior_leaves_it_normalised() -> None:
    with pm.Model() as theirs:
        x = pm.Normal("x")
        pm.Potential("narrower", -0.5 * x**2 + 0.5 * np.log(2.0))  # together, a normal of variance 1/2
        pm.Normal("y", x, 1.0, observed=Y)
    model = from_pymc(theirs, potentials={"narrower": "prior"})
    joint = model.log_prior(jnp.array([0.4])) + model.log_likelihood(jnp.array([0.4]))
    np.testing.assert_allclose(joint, stats.norm.logpdf(0.4, 0, np.sqrt(0.5)) + stats.norm.logpdf(Y, 0.4).sum())


def _refused(priors: Callable[[], object]) -> pm.Model:
    with pm.Model() as model:
        priors()
        pm.Normal("y", pm.Normal("m"), 1.0, observed=Y)
    return model


class WithoutJax(Op):
    """An operation that PyTensor can run in Python alone."""

    def make_node(self, *inputs: Variable) -> Apply:
        return Apply(self, inputs, [inputs[0].type()])

    def perform(self, node: Apply, inputs: Sequence, output_storage: list) -> None:
        output_storage[0][0] = inputs[0]


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "flat": (lambda: pm.Flat("x"), r"prior of 'x' \(Flat\) is improper.*Use a proper distribution"),
    "half_flat": (lambda: pm.HalfFlat("x"), r"prior of 'x' \(HalfFlat\) is improper"),
    "discrete": (lambda: pm.Poisson("x", 3.0), r"'x' \(Poisson\) is a discrete variable: marginalise.*pm.Mixture"),
    "bernoulli": (lambda: pm.Bernoulli("x", 0.3), r"'x' \(Bernoulli\) is a discrete variable"),
    "lkj_corr": (lambda: pm.LKJCorr("x", n=3, eta=2.0), "'x' .*not normalised.*pm.LKJCholeskyCov"),
    "cut_off": (
        lambda: pm.Normal("x", transform=transforms.log),
        r"the transform 'log' of 'x' \(Normal\) cuts off.*pm.Truncated",
    ),
    "narrow": (
        lambda: pm.Uniform("x", 0.0, 10.0, transform=transforms.Interval(2.0, 3.0), default_transform=None),
        "the transform 'interval' of 'x'",
    ),
    "uneven": (
        lambda: pm.Normal("x", [0.0, 1.0], transform=transforms.ordered),
        "'x' has the transform 'ordered', but its entries have different distributions",
    ),
    "minibatch": (
        lambda: pm.Normal("z", 0.0, 1.0, observed=pm.Minibatch(Y, batch_size=2), total_size=4),
        "'z' has a minibatch or a total_size: .*Give them all",
    ),
    "minibatch_without_size": (
        lambda: pm.Normal("z", pm.Minibatch(Y, batch_size=2), 1.0, observed=[0.0, 0.0]),
        "'z' has a minibatch",
    ),
    "total_size": (lambda: pm.Normal("z", 0.0, 1.0, observed=Y, total_size=9), "'z' has a minibatch or a total_size"),
    "no_jax": (
        lambda: pm.CustomDist("x", pm.Normal("z"), logp=lambda value, z: WithoutJax()(z - value), observed=Y),
        r"cannot compile the density of 'x' \(CustomDist.*\) to JAX",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_the_variable(name: str) -> None:
    priors, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        from_pymc(_refused(priors))


def test_single_precision_variables_are_refused() -> None:
    with pm.Model() as theirs:
        pm.Normal("y", pm.Normal("x", dtype="float32"), 1.0, observed=Y)
    with pytest.raises(ValueError, match=r"'x' is float32, and an evidence needs float64: set pytensor.config.floatX"):
        from_pymc(theirs)


@IMPUTED
def test_vectors_with_missing_entries_are_refused() -> None:
    with pm.Model() as theirs:
        pm.Normal("x")
        pm.MvNormal("y", np.zeros(2), COV, observed=np.ma.masked_invalid([[0.3, np.nan], [1.0, 2.0]]))
    with pytest.raises(ValueError, match="'y_unobserved': PyMC cannot tell"):
        from_pymc(theirs)


def test_models_without_parameters_or_data_are_refused() -> None:
    with pm.Model() as nothing_free:
        pm.Normal("y", 0.0, 1.0, observed=Y)
    with pytest.raises(ValueError, match="no free variable"):
        from_pymc(nothing_free)
    with pm.Model() as nothing_observed:
        pm.Normal("x")
    with pytest.raises(ValueError, match="no observed variable"):
        from_pymc(nothing_observed)


def test_a_scale_out_of_bounds_has_density_zero() -> None:
    with pm.Model() as theirs:
        pm.Normal("y", 0.0, pm.Normal("x"), observed=Y)
    assert from_pymc(theirs).log_likelihood(jnp.array([-1.0])) == -jnp.inf


@functools.cache
def _pima() -> thermint.Model:
    X, y = pima._data(2)
    with pm.Model(coords={"covariate": ["intercept", *pima.COVARIATES[2]]}) as theirs:
        beta = pm.Normal("beta", 0.0, pima.TAU**-0.5, dims="covariate")
        pm.Bernoulli("type", logit_p=X @ beta, observed=y.astype(int))
    return from_pymc(theirs)


def test_pima_is_the_plain_model() -> None:
    model, plain = _pima(), pima.model(2)
    assert model.names == tuple(f"beta[{name}]" for name in plain.parameter_names)
    assert model.metric is not None
    assert plain.metric is not None
    for theta in jax.random.normal(jax.random.key(0), (3, 6)):
        for ours, theirs in ((model.log_likelihood, plain.log_likelihood), (model.log_prior, plain.log_prior)):
            np.testing.assert_allclose(ours(theta), theirs(theta), rtol=1e-10)
            np.testing.assert_allclose(jax.grad(ours)(theta), jax.grad(theirs)(theta), rtol=1e-10, atol=1e-10)
        for part, expected in zip(model.metric(theta), plain.metric(theta), strict=True):
            np.testing.assert_allclose(part, expected, rtol=1e-10, atol=1e-10)


Tensor = pt.TensorVariable
Family = Callable[[Tensor, Tensor, np.ndarray | None], object]

# Each with a predictor, a positive parameter and observations, if they are known.
FAMILIES: dict[str, Family] = {
    "normal": lambda eta, s, y: pm.Normal("y", eta, s, observed=y),
    "log_normal": lambda eta, s, y: pm.LogNormal("y", eta, s, observed=y),
    "student_t": lambda eta, s, y: pm.StudentT("y", nu=4 * s, mu=eta, sigma=s, observed=y),
    "bernoulli": lambda eta, s, y: pm.Bernoulli("y", pt.exp(eta) / 4, observed=y),
    "binomial": lambda eta, s, y: pm.Binomial("y", np.arange(N) % 5, logit_p=eta, observed=y),
    "named": lambda eta, s, y: pm.Bernoulli("y", pm.Deterministic("p", pt.sigmoid(eta)), observed=y),
    "poisson": lambda eta, s, y: pm.Poisson("y", pt.exp(eta), observed=y),
    "exponential": lambda eta, s, y: pm.Exponential("y", pt.exp(eta), observed=y),
    "gamma": lambda eta, s, y: pm.Gamma("y", 2 * s, pt.exp(eta), observed=y),
    "negative_binomial": lambda eta, s, y: pm.NegativeBinomial("y", mu=pt.exp(eta), alpha=2 * s, observed=y),
    "categorical_logits": lambda eta, s, y: pm.Categorical("y", logit_p=_columns(eta, s, s * eta), observed=y),
    "categorical_probs": lambda eta, s, y: pm.Categorical(
        "y", _columns(pt.exp(eta) / 4, 1 - pt.exp(eta) / 4), observed=y
    ),
}
N = 20000


def _columns(*columns: Tensor) -> Tensor:
    return pt.stack(pt.broadcast_arrays(*columns), axis=-1)


def _regression(family: Family, y: np.ndarray | None) -> pm.Model:
    with pm.Model() as model:
        x = pm.Normal("x", [0.3, 0.2], 0.1)
        family(x[0] + x[1] * np.linspace(-2, 1, N), pt.exp(x[1]), y)
    return model


@pytest.mark.parametrize("name", FAMILIES)
def test_the_fisher_information_is_the_mean_curvature(name: str) -> None:
    """That of the log likelihood of data that the model draws itself."""
    theta = np.array([0.35, 0.15])
    unobserved = pm.do(_regression(FAMILIES[name], None), {"x": theta})
    y = pm.draw(unobserved["y"], random_seed=1, mode="FAST_COMPILE")
    model = from_pymc(_regression(FAMILIES[name], y))
    assert model.metric is not None
    fisher, prior_curvature = jax.jit(model.metric)(theta)
    curvature = -jax.jit(jax.hessian(model.log_likelihood))(theta)
    unit = np.sqrt(np.diag(fisher))
    np.testing.assert_allclose(curvature / np.outer(unit, unit), fisher / np.outer(unit, unit), atol=0.05)
    np.testing.assert_allclose(prior_curvature, 100 * np.eye(2), atol=1e-9)


def test_other_families_have_no_metric() -> None:
    assert built("angle")[1].metric is None
    assert built("normal")[1].metric is not None


def test_evidence_of_a_conjugate_model() -> None:
    X, y = np.column_stack([np.ones(4), [-1.0, 0.0, 1.0, 2.0]]), Y
    with pm.Model() as theirs:
        beta = pm.Normal("beta", 0.0, 2.0, shape=2)
        pm.Normal("y", X @ beta, 0.5, observed=y)
    exact = stats.multivariate_normal.logpdf(y, np.zeros(4), 4.0 * X @ X.T + 0.25 * np.eye(4))
    result = thermint.evidence(from_pymc(theirs), draws=200, populations=2)
    assert abs(result.log_evidence - exact) < 1e-3 + 4 * result.standard_error
