"""A PyMC model as a Model: observed variables are the likelihood, free ones the prior."""

from collections.abc import Callable, Mapping, Sequence
from weakref import WeakKeyDictionary

import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytensor.tensor.random.basic as ptr
from jax import Array
from jax.flatten_util import ravel_pytree
from pymc.distributions.custom import CustomDistRV
from pytensor.graph.basic import Variable
from pytensor.scalar.math import Sigmoid
from pytensor.tensor.variable import TensorVariable

from thermint.interop import logistic
from thermint.interop.pymc.checks import check_compiles, check_potentials, check_variables
from thermint.interop.pymc.compile import Compiler, Density, freeze, in_double, shared_arrays, to_jax
from thermint.interop.pymc.metric import argument_of, metric_of
from thermint.interop.pymc.prior import missing_constant, prior_draws
from thermint.model.model import Model
from thermint.model.priors import check_factors, subscripts

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
    check_potentials(model, sides)
    check_variables(model)
    state = _state(model, sides)
    if model not in _latest or _latest[model][0] != state:
        _latest[model] = state, _build(model, sides)
    return _latest[model][1]


def _build(original: pm.Model, sides: dict[str, str]) -> Model:
    model = freeze(original)
    free, observed = model.free_RVs, model.observed_RVs
    sample_prior, shapes = prior_draws(model)
    unravel = ravel_pytree([jnp.zeros(shape) for shape in shapes])[1]

    def function(outputs: Sequence[Variable]) -> Callable[[Array], Sequence[Array]]:
        compiled = to_jax(model.value_vars, outputs)
        return lambda theta: compiled(*unravel(theta))

    def log_density(variables: list[TensorVariable], constant: float = 0.0) -> Density:
        compiled = function(in_double([model.logp(variables)]))
        return lambda theta: compiled(theta)[0] + constant

    check_compiles(model, [*free, *observed], shapes)
    constants = [missing_constant(model, rv, shape) for rv, shape in zip(free, shapes, strict=True)]
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
        metric=None if sides else metric_of(model, data, function, log_prior),
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
    compiled = function(in_double([total, *model.replace_rvs_by_values(list(logits.values()))]))
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
    return argument_of(p, Sigmoid)


def _state(model: pm.Model, sides: dict[str, str]) -> tuple:
    """Everything about a PyMC model that can change: variables, data, coordinates."""
    variables = model.named_vars.values()
    data = tuple(np.asarray(shared.get_value()).tobytes() for shared in shared_arrays(variables))
    return sides, tuple(map(id, variables)), data, dict(model.coords)


def _data(model: pm.Model) -> dict[str, np.ndarray]:
    values = to_jax([], [model.rvs_to_values[rv] for rv in model.observed_RVs])()
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
