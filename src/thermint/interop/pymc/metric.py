"""The Fisher information of observed variables of common families."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytensor.tensor.random.basic as ptr
from jax import Array
from pytensor.graph.basic import Variable
from pytensor.scalar.basic import EQ, Identity, Switch
from pytensor.scalar.math import Sigmoid
from pytensor.tensor.basic import get_underlying_scalar_constant_value
from pytensor.tensor.special import Softmax
from pytensor.tensor.variable import TensorVariable

from thermint.interop import fisher
from thermint.interop.pymc.compile import Compiler, Density


class Family(NamedTuple):
    """The parameters of an observed variable's distribution, [..., k], and what observations tell about them."""

    parameters: TensorVariable
    information: fisher.Information
    trials: TensorVariable | float = 1.0


def _stacked(*parameters: TensorVariable) -> TensorVariable:
    return pt.stack(pt.broadcast_arrays(*parameters), axis=-1)


def argument_of(variable: Variable, function: type) -> TensorVariable | None:
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
    logits = argument_of(p, Sigmoid)
    if logits is None:
        return Family(_stacked(p), fisher.bernoulli_probs, trials)
    return Family(_stacked(logits), fisher.bernoulli_logits, trials)


def _categorical(p: TensorVariable) -> Family:
    logits = argument_of(p, Softmax)  # over the last axis, as always in a distribution
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


def metric_of(
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
