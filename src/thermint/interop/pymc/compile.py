"""From PyTensor's graphs to functions of JAX."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from jax import Array
from pymc.distributions.transforms import Interval
from pymc.logprob.transforms import CircularTransform
from pymc.model.transform.conditioning import change_value_transforms
from pymc.model.transform.optimization import freeze_dims_and_data
from pytensor.compile.mode import get_mode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.basic import in2out, node_rewriter
from pytensor.graph.traversal import ancestors, graph_inputs
from pytensor.link.jax.dispatch import jax_funcify
from pytensor.tensor.math import Dot
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.variable import TensorConstant, TensorVariable

Compiler = Callable[[Sequence[Variable]], Callable[[Array], Sequence[Array]]]  # to a function of theta


Density = Callable[[Array], Array]


def freeze(model: pm.Model) -> pm.Model:
    """Copy the model with its data as constants, in the same order, and with angles on the real line."""
    circular = [rv for rv, transform in model.rvs_to_transforms.items() if isinstance(transform, CircularTransform)]
    names = list(model.named_vars)
    if circular:
        model = change_value_transforms(model, dict.fromkeys(circular, Interval(-np.pi, np.pi)))
    frozen = freeze_dims_and_data(model)
    for variables in (frozen.free_RVs, frozen.observed_RVs, frozen.deterministics):
        variables.sort(key=lambda variable: names.index(variable.name))
    return frozen


def shared_arrays(variables: Iterable[Variable]) -> list[SharedVariable]:
    """Shared arrays (not generators) that the variables depend on."""
    found = graph_inputs(variables)
    return [v for v in found if isinstance(v, SharedVariable) and not isinstance(v.type, RandomType)]


def to_jax(inputs: Sequence[Variable], outputs: Sequence[Variable]) -> Callable[..., Sequence[Array]]:
    """Compile to a function of JAX. Parameters out of bounds give a log density of -inf, as they do in PyMC."""
    constants = [(variable, pt.constant(variable.get_value())) for variable in shared_arrays(outputs)]
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


def in_double(outputs: list[TensorVariable]) -> Sequence[Variable]:
    """Compute in double precision what PyTensor has in single.

    It stores constants such as 10.0 in the smallest type that holds them, so that log(10.0) is wrong in the eighth
    digit, once for each observation.
    """
    single = [v for v in ancestors(outputs) if v.owner and v.type.dtype == "float32"]
    constants = [c for c in graph_inputs(single) if isinstance(c, TensorConstant)]
    doubles = [(c, pt.constant(c.data, dtype="float64")) for c in constants]
    return clone_replace(outputs, doubles, rebuild_strict=False)
