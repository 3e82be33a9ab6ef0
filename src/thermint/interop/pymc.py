"""PyMC models: observed variables are the likelihood, free ones the prior, and PyTensor compiles both to JAX."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytensor.tensor.random.basic as ptr
from jax import Array
from jax.flatten_util import ravel_pytree
from jax.tree_util import Partial
from pymc.data import MinibatchOp
from pymc.distributions.continuous import FlatRV, HalfFlatRV, TruncatedNormalRV
from pymc.distributions.custom import CustomDistRV
from pymc.distributions.distribution import PartialObservedRV
from pymc.distributions.multivariate import CARRV, ICARRV, LKJCorrRV, _LKJCholeskyCovRV
from pymc.distributions.transforms import Interval, Ordered, _default_transform
from pymc.logprob.transforms import ChainedTransform, CircularTransform, Transform
from pymc.model.transform.conditioning import change_value_transforms
from pymc.model.transform.optimization import freeze_dims_and_data
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pymc.vartypes import discrete_types
from pytensor.compile.mode import Mode, get_mode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable, equal_computations
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.basic import in2out, node_rewriter
from pytensor.graph.traversal import ancestors, graph_inputs
from pytensor.link.jax.dispatch import jax_funcify
from pytensor.link.jax.dispatch.random import jax_sample_fn
from pytensor.scalar.basic import EQ, Identity, Switch
from pytensor.scalar.math import Sigmoid
from pytensor.tensor.basic import get_underlying_scalar_constant_value
from pytensor.tensor.math import Dot
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.special import Softmax
from pytensor.tensor.variable import TensorConstant, TensorVariable
from scipy.special import gammaln

from thermint.interop import fisher, logistic
from thermint.model.model import Model
from thermint.model.priors import check_factors, subscripts
from thermint.runtime.programs import jit

POOL = 2**15  # draws of the prior, where PyTensor cannot draw in JAX
TRIED = 1000  # draws of the prior, to see whether a transform cuts some off
INSTEAD_OF = {CARRV: "pm.MvNormal with its precision as tau", LKJCorrRV: "pm.LKJCholeskyCov"}  # no densities in PyMC 5

Density = Callable[[Array], Array]
Compiler = Callable[[Sequence[Variable]], Callable[[Array], Sequence[Array]]]  # to a function of theta

_latest: WeakKeyDictionary[pm.Model, tuple[tuple, Model]] = WeakKeyDictionary()


def from_pymc(model: pm.Model, *, potentials: Mapping[str, str] | None = None) -> Model:
    """Build a Model from a PyMC model: its observed variables are the likelihood, its free ones the prior.

    Theta is PyMC's own unconstrained space, and the Jacobians are part of the prior. All is compiled to JAX by
    PyTensor. `constrain` returns free variables and deterministics; names carry the labels of the model's coordinates.
    Data that are missing are free variables, as PyMC has them. Where all observed variables have common distributions,
    the Model has a metric; see `thermint.interop.fisher`. As long as the PyMC model and its data do not change, the
    same Model is returned, so that compiled programs are reused.

    Draws of the prior are made in JAX. Where PyTensor cannot (rare distributions, or a `pm.CustomDist` with
    ``random``), PyMC makes 32768 beforehand, of which `sample_prior` picks one at random, and a warning says so.

    In three places PyMC's densities are no densities, and are made such here: the constant of `pm.LKJCholeskyCov` is
    corrected; iid variables with PyMC's ``ordered`` transform are sorted iid variables, whose density is n! times as
    large; angles are mapped to the real line instead of winding around it.

    Args:
        model: the PyMC model.
        potentials: ``{"name": "prior" or "likelihood"}``, the side that each `pm.Potential` belongs to; the evidence
            depends on it. Those of the prior must leave it normalised, which is checked.

    Raises:
        ValueError: a free variable is improper, discrete or cut off by its transform; data are a minibatch; a potential
            is not in ``potentials``; PyTensor cannot compile a distribution to JAX. The message names the variable.

    Example:
        >>> import pymc as pm, thermint
        >>> with pm.Model(coords={"arm": ["left", "right"]}) as model:
        ...     p = pm.Beta("p", 2, 2, dims="arm")
        ...     heads = pm.Binomial("heads", 10, p, observed=[7, 4], dims="arm")
        >>> thermint.from_pymc(model).parameter_names
        ('p[left]', 'p[right]')
    """
    sides = dict(potentials or {})
    _check_potentials(model, sides)
    _check_variables(model)
    state = _state(model, sides)
    if model not in _latest or _latest[model][0] != state:
        _latest[model] = state, _build(model, sides)
    return _latest[model][1]


def _build(original: pm.Model, sides: dict[str, str]) -> Model:
    model = _frozen(original)
    free, observed = model.free_RVs, model.observed_RVs
    sample_prior, shapes = _prior_draws(model)
    unravel = ravel_pytree([jnp.zeros(shape) for shape in shapes])[1]

    def function(outputs: Sequence[Variable]) -> Callable[[Array], Sequence[Array]]:
        compiled = _to_jax(model.value_vars, outputs)
        return lambda theta: compiled(*unravel(theta))

    def log_density(variables: list[TensorVariable], constant: float = 0.0) -> Density:
        compiled = function(_in_double([model.logp(variables)]))
        return lambda theta: compiled(theta)[0] + constant

    _check_compiles(model, [*free, *observed], shapes)
    constants = [_missing_constant(model, rv, shape) for rv, shape in zip(free, shapes, strict=True)]
    log_prior = log_density(free, sum(constants))
    of_prior = [name for name, side in sides.items() if side == "prior"]
    if of_prior:
        check_factors(of_prior, log_density([model[name] for name in of_prior]), sample_prior)
    data = _data(model)
    named = [*free, *model.deterministics]
    values = function(model.replace_rvs_by_values(named))
    return Model(
        _log_likelihood(model, [model[name] for name in sides], data, function),
        log_prior,
        sample_prior,
        metric=None if sides else _metric(model, data, function, log_prior),
        constrain=lambda theta: {rv.name: value for rv, value in zip(named, values(theta), strict=True)},
        names=tuple(name for rv, shape in zip(free, shapes, strict=True) for name in _names(model, rv, shape)),
        normalised=not any(isinstance(rv.owner.op, CustomDistRV) for rv in free),
        data=data,
    )


def _log_likelihood(
    model: pm.Model, potentials: list[TensorVariable], data: dict[str, np.ndarray], function: Compiler
) -> Density:
    """Make the log density of all observed variables and of the potentials; given logits, by our own formula."""
    logits = {rv: of for rv in model.observed_RVs if (of := _logits(rv, data[rv.name])) is not None}
    others = [*(rv for rv in model.observed_RVs if rv not in logits), *potentials]
    total = model.logp(others) if others else pt.constant(0.0)
    compiled = function(_in_double([total, *model.replace_rvs_by_values(list(logits.values()))]))
    observed = [jnp.asarray(data[rv.name]) for rv in logits]

    def log_likelihood(theta: Array) -> Array:
        total, *etas = compiled(theta)
        of_logits = (logistic.log_density(eta, y) for eta, y in zip(etas, observed, strict=True))
        return sum((jnp.sum(each) for each in of_logits), total)

    return log_likelihood


def _logits(rv: TensorVariable, data: np.ndarray) -> TensorVariable | None:
    """Return the logits of an observed Bernoulli variable, if it has such, and data that are all 0 or 1."""
    if not isinstance(rv.owner.op, ptr.BernoulliRV) or not np.isin(data, (0, 1)).all():
        return None
    (p,) = rv.owner.op.dist_params(rv.owner)
    return _argument(p, Sigmoid)


# What is refused.


def _check_potentials(model: pm.Model, sides: dict[str, str]) -> None:
    names = [potential.name for potential in model.potentials]
    for name in names:
        if name not in sides:
            raise ValueError(
                f"the potential {name!r} may belong to the prior or to the likelihood, and the evidence depends on "
                f"which: say potentials={{{name!r}: 'likelihood'}} or potentials={{{name!r}: 'prior'}}."
            )
    for name, side in sides.items():
        if name not in names:
            raise ValueError(f"potentials names {name!r}, but the model has no pm.Potential of that name.")
        if side not in ("prior", "likelihood"):
            raise ValueError(f"potentials[{name!r}] must be 'prior' or 'likelihood', not {side!r}.")


def _check_variables(model: pm.Model) -> None:
    if not model.free_RVs:
        raise ValueError("the PyMC model has no free variable: there is nothing to integrate over.")
    if not model.observed_RVs and not model.potentials:
        raise ValueError("the PyMC model has no observed variable: give the data by observed=..., or by pm.observe.")
    for rv in model.free_RVs:
        op = rv.owner.op
        if isinstance(op, FlatRV | HalfFlatRV | ICARRV):
            raise ValueError(
                f"the prior of {rv.name!r} ({_kind(rv)}) is improper: it has no normalising constant, so the evidence "
                "is not defined. Use a proper distribution, wide if you know little."
            )
        if type(op) in INSTEAD_OF:
            raise ValueError(
                f"PyMC's density of {rv.name!r} ({_kind(rv)}) is not normalised, so that the evidence would be wrong. "
                f"Use {INSTEAD_OF[type(op)]}."
            )
        if rv.dtype in discrete_types:
            raise ValueError(
                f"{rv.name!r} ({_kind(rv)}) is a discrete variable: marginalise it, that is, sum over its values, "
                "by pm.Mixture or by marginalize of pymc_extras."
            )
        if rv.dtype != "float64":
            raise ValueError(
                f"{rv.name!r} is {rv.dtype}, and an evidence needs float64: set pytensor.config.floatX = 'float64' "
                "before the model is built."
            )
        if isinstance(op, PartialObservedRV) and op.ndim_supp > 0:
            raise ValueError(
                f"{rv.name!r}: PyMC cannot tell the density of a vector's missing entries from that of the others. "
                "Leave out vectors with missing entries, or write the missing ones as variables of their own."
            )
    for rv in [*model.observed_RVs, *model.potentials]:
        for variable in ancestors([rv, model.rvs_to_values.get(rv, rv)]):
            if variable.owner and isinstance(variable.owner.op, MinibatchOp | MinibatchRandomVariable):
                raise ValueError(
                    f"{rv.name!r} has a minibatch or a total_size: the evidence needs the likelihood of all data. "
                    "Give them all, without pm.Minibatch and total_size."
                )


def _check_compiles(model: pm.Model, variables: list[TensorVariable], shapes: list[tuple[int, ...]]) -> None:
    """Refuse by name a variable whose density PyTensor cannot compile to JAX."""
    point = [jax.ShapeDtypeStruct(shape, float) for shape in shapes]

    def check(variables: list[TensorVariable]) -> None:
        jax.eval_shape(_to_jax(model.value_vars, [model.logp(variables)]), *point)

    try:
        check(variables)
    except (NotImplementedError, TypeError):
        for variable in variables:
            try:
                check([variable])
            except (NotImplementedError, TypeError) as error:
                raise ValueError(
                    f"PyTensor cannot compile the density of {variable.name!r} ({_kind(variable)}) to JAX. Use another "
                    f"distribution or parametrisation. The reason: {error}"
                ) from error
        raise


def _kind(rv: TensorVariable) -> str:
    return getattr(rv.owner.op, "_print_name", (type(rv.owner.op).__name__,))[0]


# From PyTensor to JAX.


def _frozen(model: pm.Model) -> pm.Model:
    """Copy the model with its data as constants, in the same order, and with angles on the real line."""
    circular = [rv for rv, transform in model.rvs_to_transforms.items() if isinstance(transform, CircularTransform)]
    names = list(model.named_vars)
    if circular:
        model = change_value_transforms(model, dict.fromkeys(circular, Interval(-np.pi, np.pi)))
    frozen = freeze_dims_and_data(model)
    for variables in (frozen.free_RVs, frozen.observed_RVs, frozen.deterministics):
        variables.sort(key=lambda variable: names.index(variable.name))
    return frozen


def _shared(variables: Iterable[Variable]) -> list[SharedVariable]:
    """Shared arrays (not generators) that the variables depend on."""
    found = graph_inputs(variables)
    return [v for v in found if isinstance(v, SharedVariable) and not isinstance(v.type, RandomType)]


def _to_jax(inputs: Sequence[Variable], outputs: Sequence[Variable]) -> Callable[..., Sequence[Array]]:
    """Compile to a function of JAX. Parameters out of bounds give a log density of -inf, as they do in PyMC."""
    constants = [(variable, pt.constant(variable.get_value())) for variable in _shared(outputs)]
    mode = get_mode("JAX").including("local_check_parameter_to_ninf_switch")
    with pytensor.config.change_flags(cxx=""):  # folding constants is faster without a C compiler
        graph = FunctionGraph(inputs, clone_replace(outputs, constants), clone=True)
        mode.optimizer.rewrite(graph)
        _constants_last.rewrite(graph)
        return jax_funcify(graph)


@in2out
@node_rewriter([Dot])
def _constants_last(graph: FunctionGraph, node: Apply) -> list[Any] | None:
    """Write X @ b as (b' @ X')' where X is constant: XLA lays out the former badly for a batch of b."""
    X: Any
    b: Any
    X, b = node.inputs
    if not isinstance(X, Constant) or isinstance(b, Constant):
        return None
    return [pt.dot(b.T, pt.constant(np.ascontiguousarray(X.data.T))).T]


def _in_double(outputs: list[TensorVariable]) -> Sequence[Variable]:
    """Compute in double precision what PyTensor has in single.

    It stores constants such as 10.0 in the smallest type that holds them, so that log(10.0) is wrong in the eighth
    digit, once for each observation.
    """
    single = [v for v in ancestors(outputs) if v.owner and v.type.dtype == "float32"]
    constants = [c for c in graph_inputs(single) if isinstance(c, TensorConstant)]
    doubles = [(c, pt.constant(c.data, dtype="float64")) for c in constants]
    return clone_replace(outputs, doubles, rebuild_strict=False)


def _state(model: pm.Model, sides: dict[str, str]) -> tuple:
    """Everything about a PyMC model that can change: variables, data, coordinates."""
    variables = model.named_vars.values()
    data = tuple(np.asarray(shared.get_value()).tobytes() for shared in _shared(variables))
    return sides, tuple(map(id, variables)), data, dict(model.coords)


def _data(model: pm.Model) -> dict[str, np.ndarray]:
    values = _to_jax([], [model.rvs_to_values[rv] for rv in model.observed_RVs])()
    return {rv.name: np.asarray(value) for rv, value in zip(model.observed_RVs, values, strict=True)}


def _names(model: pm.Model, rv: TensorVariable, shape: tuple[int, ...]) -> list[str]:
    """Name the entries of a free variable, by the labels of its coordinates where it has such."""
    dims = model.named_vars_to_dims.get(rv.name, ())
    labels = [model.coords.get(dim) or range(length) for dim, length in zip(dims, shape, strict=False)]
    # Transforms such as that of a simplex have another shape, whose entries have no labels.
    if not shape or tuple(map(len, labels)) != shape:
        return [f"{rv.name}{index}" for index in subscripts(shape)]
    return [
        f"{rv.name}[{', '.join(str(a[i]) for a, i in zip(labels, index, strict=True))}]" for index in np.ndindex(shape)
    ]


# The prior.


def _unconstrained(model: pm.Model, rv: TensorVariable) -> TensorVariable:
    """Map a variable's draw to the real line."""
    transform = model.rvs_to_transforms[rv]
    if transform is None:
        return rv
    ordered = _ordered(transform)
    if ordered is None:
        return transform.forward(rv, *rv.owner.inputs)
    increasing = pt.sort(rv, axis=-1)
    return transform.forward(increasing if ordered.ascending else increasing[..., ::-1], *rv.owner.inputs)


def _ordered(transform: Transform | None) -> Ordered | None:
    """Find the transform that orders, perhaps after one that maps each entry to the real line."""
    steps = transform.transform_list if isinstance(transform, ChainedTransform) else [transform]
    return next((step for step in steps if isinstance(step, Ordered)), None)


def _prior_draws(model: pm.Model) -> tuple[Callable[[Array], Array], list[tuple[int, ...]]]:
    """Make `sample_prior`, and the shapes of the variables on the real line."""
    instead = {rv: model.rvs_to_values[rv] for rv in model.observed_RVs}
    instead |= {rv: _lkj_draw(rv) for rv in model.free_RVs if isinstance(rv.owner.op, _LKJCholeskyCovRV)}
    draws = clone_replace([_unconstrained(model, rv) for rv in model.free_RVs], instead)
    generators = [variable for variable in graph_inputs(draws) if isinstance(variable.type, RandomType)]
    inputs = [generator.type() for generator in generators]
    try:
        compiled = _to_jax(inputs, clone_replace(draws, dict(zip(generators, inputs, strict=True))))

        def draw(key: Array) -> Sequence[Array]:
            keys = jax.random.split(key, len(inputs))
            return [jnp.asarray(value, float) for value in compiled(*({"jax_state": k} for k in keys))]

        shapes = [value.shape for value in jax.eval_shape(draw, jax.random.key(0))]
    except (NotImplementedError, TypeError) as error:
        pool = _pool(draws, error)
        _check_transforms(model, pool)
        flat = jnp.concatenate([jnp.asarray(values).reshape(POOL, -1) for values in pool], axis=1)
        return Partial(_pick, flat), [values.shape[1:] for values in pool]
    if not all(_has_own_transform(model, rv) for rv in model.free_RVs):
        _check_transforms(model, jit()(jax.vmap(draw))(jax.random.split(jax.random.key(0), TRIED)))
    return lambda key: ravel_pytree(draw(key))[0], shapes


def _pool(draws: list[Variable], error: Exception) -> Sequence[np.ndarray]:
    warnings.warn(
        f"draws of the prior are picked from {POOL} that PyMC makes now, as PyTensor cannot draw in JAX: {error}",
        stacklevel=5,
    )
    return pm.draw(draws, POOL, random_seed=0, mode=Mode(linker="py", optimizer="fast_compile"))


def _pick(pool: Array, key: Array) -> Array:
    return pool[jax.random.randint(key, (), 0, len(pool))]


def _check_transforms(model: pm.Model, draws: Sequence[Array | np.ndarray]) -> None:
    """Refuse transforms that reach a part of the support only: what is left of the prior has an unknown integral."""
    for rv, value in zip(model.free_RVs, draws, strict=True):
        if np.isnan(value).any():
            raise ValueError(
                f"the transform {model.rvs_to_transforms[rv].name!r} of {rv.name!r} ({_kind(rv)}) cuts off a part of "
                "its distribution, and the rest is not normalised, so that the evidence is not defined. Use "
                "pm.Truncated, or a distribution on that support."
            )


def _has_own_transform(model: pm.Model, rv: TensorVariable) -> bool:
    """Say whether a variable has the transform that PyMC gives its distribution."""
    pair = model.rvs_to_transforms[rv], _default_transform(rv.owner.op, rv)
    mapped = [rv if transform is None else transform.forward(rv, *rv.owner.inputs) for transform in pair]
    return equal_computations(mapped[:1], mapped[1:])


def _missing_constant(model: pm.Model, rv: TensorVariable, shape: tuple[int, ...]) -> float:
    """Say what must be added to PyMC's log density of a free variable to normalise it."""
    if _ordered(model.rvs_to_transforms[rv]):
        _check_exchangeable(rv)
        return float(np.prod(shape[:-1]) * gammaln(shape[-1] + 1))
    if isinstance(rv.owner.op, _LKJCholeskyCovRV):
        _, n, eta, _ = rv.owner.inputs
        return _lkj_constant(*map(get_underlying_scalar_constant_value, (n, eta)))
    return 0.0


def _check_exchangeable(rv: TensorVariable) -> None:
    parameters = rv.owner.op.dist_params(rv.owner)
    alike = [
        p.type.shape[-1:] in ((), (1,)) or (isinstance(p, Constant) and np.ptp(p.data, axis=-1).max() == 0)
        for p in parameters
    ]
    if rv.owner.op.ndim_supp > 0 or not all(alike):
        raise ValueError(
            f"{rv.name!r} has the transform 'ordered', but its entries have different distributions, so that the "
            "prior's constant is not known. Give all entries the same, or write them as a cumulative sum."
        )


def _lkj_constant(n: int, eta: float) -> float:
    """Correct the constant of PyMC's LKJCholeskyCov, in which PyMC 5 adds the logarithm of the integral.

    The density of the correlations is det(R)^(eta - 1) over its integral. At the identity, with Exponential(1) standard
    deviations, PyMC's log density is n times -1 and its constant. PyMC 6 has it right, and the correction is zero.
    """
    k = np.arange(1, n)
    log_integral = np.sum(k / 2 * np.log(np.pi) + gammaln(eta + (n - 1 - k) / 2)) - (n - 1) * gammaln(eta + (n - 1) / 2)
    cholesky = pm.LKJCholeskyCov.dist(n=n, eta=eta, sd_dist=pm.Exponential.dist(1.0), compute_corr=False)
    at_identity = _to_jax([], _in_double([pm.logp(cholesky, np.eye(n)[np.tril_indices(n)])]))()[0]
    return float(-log_integral - (at_identity + n))


def _lkj_draw(rv: TensorVariable) -> TensorVariable:
    """Draw the packed Cholesky factor of an LKJ prior from independent partial correlations (the C-vine).

    PyMC 6 draws its rows in a scan, where JAX does not know how long each of them is.
    """
    rng, n, eta, sd = rv.owner.inputs
    n, eta = (get_underlying_scalar_constant_value(parameter).item() for parameter in (n, eta))
    columns = np.tril_indices(n, -1)[1]
    shape = eta + (n - 2 - columns) / 2
    partial = 2 * ptr.beta.make_node(rng, None, shape, shape).outputs[1] - 1
    rows = [sd[:1]]
    for k in range(1, n):
        of_row = partial[k * (k - 1) // 2 :][:k]
        left = pt.sqrt(pt.concatenate([[1.0], pt.cumprod(1 - of_row**2)]))  # of the row's norm, from each entry on
        rows.append(sd[k] * left * pt.concatenate([of_row, [1.0]]))
    return pt.concatenate(rows)


# PyTensor has no draws in JAX of these two.
@jax_sample_fn.register(TruncatedNormalRV)
def _truncated_normal(op: Any, node: Any) -> Callable[..., Array]:
    def draw(key: Array, size: tuple[int, ...] | None, dtype: str, *parameters: Array) -> Array:
        loc, scale, low, high = parameters
        shape = jnp.broadcast_shapes(*map(jnp.shape, parameters)) if size is None else size
        return loc + scale * jax.random.truncated_normal(key, (low - loc) / scale, (high - loc) / scale, shape, dtype)

    return draw


@jax_sample_fn.register(ptr.WeibullRV)
def _weibull(op: Any, node: Any) -> Callable[..., Array]:
    def draw(key: Array, size: tuple[int, ...] | None, dtype: str, shape: Array) -> Array:
        return jax.random.exponential(key, jnp.shape(shape) if size is None else size, dtype) ** (1 / shape)

    return draw


# The metric.


class Family(NamedTuple):
    """The parameters of an observed variable's distribution, [..., k], and what observations tell about them."""

    parameters: TensorVariable
    information: fisher.Information
    trials: TensorVariable | float = 1.0


def _stacked(*parameters: TensorVariable) -> TensorVariable:
    return pt.stack(pt.broadcast_arrays(*parameters), axis=-1)


def _argument(variable: Variable, function: type) -> TensorVariable | None:
    """Return x if the variable is function(x), perhaps under names that PyMC gave it or Bambi's guards."""
    while variable.owner:
        if isinstance(_scalar_op(variable), Identity):
            variable = variable.owner.inputs[0]
        elif isinstance(_scalar_op(variable), Switch) and _is_guard(*variable.owner.inputs):
            variable = variable.owner.inputs[2]
        else:
            return variable.owner.inputs[0] if isinstance(_scalar_op(variable), function) else None
    return None


def _is_guard(condition: TensorVariable, instead: TensorVariable, otherwise: TensorVariable) -> bool:
    """Recognise switch(x == a, b, x) with a and b equal to rounding, which keeps a probability from being 0 or 1."""
    if not condition.owner or not isinstance(_scalar_op(condition), EQ):
        return False
    x, a = condition.owner.inputs
    at, guard = (get_underlying_scalar_constant_value(v, raise_not_constant=False) for v in (a, instead))
    constant = not isinstance(at, Variable) and not isinstance(guard, Variable)
    return x is otherwise and constant and bool(np.isclose(at, guard, atol=1e-12))


def _scalar_op(variable: Variable) -> Any:
    return getattr(variable.owner.op, "scalar_op", variable.owner.op)


def _binomial(trials: TensorVariable | float, p: TensorVariable) -> Family:
    # 1 / (p (1 - p)) overflows where p is 0 or 1 to rounding; the logits' information does not.
    logits = _argument(p, Sigmoid)
    if logits is None:
        return Family(_stacked(p), fisher.bernoulli_probs, trials)
    return Family(_stacked(logits), fisher.bernoulli_logits, trials)


def _categorical(p: TensorVariable) -> Family:
    logits = _argument(p, Softmax)  # over the last axis, as always in a distribution
    return Family(p, fisher.categorical_probs) if logits is None else Family(logits, fisher.categorical_logits)


# By the class of PyTensor's operation, from its parameters, which are not always those of PyMC's distribution.
FAMILIES: dict[type, Callable[..., Family]] = {
    ptr.NormalRV: lambda loc, scale: Family(_stacked(loc, scale), fisher.normal),
    ptr.LogNormalRV: lambda loc, scale: Family(_stacked(loc, scale), fisher.normal),
    ptr.StudentTRV: lambda df, loc, scale: Family(_stacked(df, loc, scale), fisher.student_t),
    ptr.BernoulliRV: lambda p: _binomial(1.0, p),
    ptr.BinomialRV: _binomial,
    ptr.PoissonRV: lambda rate: Family(_stacked(rate), fisher.poisson),
    ptr.ExponentialRV: lambda scale: Family(_stacked(1 / scale), fisher.exponential),
    ptr.GammaRV: lambda concentration, scale: Family(_stacked(concentration, 1 / scale), fisher.gamma),
    ptr.NegBinomialRV: lambda n, p: Family(_stacked(n * (1 - p) / p, n), fisher.negative_binomial),
    ptr.CategoricalRV: _categorical,
}


def _metric(
    model: pm.Model, data: dict[str, np.ndarray], function: Compiler, log_prior: Density
) -> Callable[[Array], tuple[Array, Array]] | None:
    """Make the metric of a model whose observed variables are all of known families."""
    if not all(type(rv.owner.op) in FAMILIES for rv in model.observed_RVs):
        return None
    parts = [_fisher(model, rv, data[rv.name].shape, function) for rv in model.observed_RVs]

    def metric(theta: Array) -> tuple[Array, Array]:
        return sum((part(theta) for part in parts), jnp.zeros(())), -jax.hessian(log_prior)(theta)

    return metric


def _fisher(
    model: pm.Model, rv: TensorVariable, shape: tuple[int, ...], function: Compiler
) -> Callable[[Array], Array]:
    """Make the Fisher information of one observed variable."""
    family = FAMILIES[type(rv.owner.op)](*rv.owner.op.dist_params(rv.owner))
    at = function(model.replace_rvs_by_values([family.parameters, pt.as_tensor(family.trials)]))

    def parameters(theta: Array) -> Array:
        p = at(theta)[0]
        return jnp.broadcast_to(p, (*shape, p.shape[-1]))

    def information(theta: Array) -> Array:
        trials = jnp.broadcast_to(at(theta)[1], shape)[..., None, None]
        return fisher.pull_back(parameters, lambda p: trials * family.information(p))(theta)

    return information
