"""Refuse by name what has no evidence, or what PyTensor cannot compile to JAX."""

import jax
import pymc as pm
from pymc.data import MinibatchOp
from pymc.distributions.continuous import FlatRV, HalfFlatRV
from pymc.distributions.distribution import PartialObservedRV
from pymc.distributions.multivariate import CARRV, ICARRV, LKJCorrRV
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pymc.vartypes import discrete_types
from pytensor.graph.traversal import ancestors
from pytensor.tensor.variable import TensorVariable

from thermint.interop.pymc.compile import to_jax

INSTEAD_OF = {CARRV: "pm.MvNormal with its precision as tau", LKJCorrRV: "pm.LKJCholeskyCov"}  # no densities in PyMC 5


def check_potentials(model: pm.Model, sides: dict[str, str]) -> None:
    """Refuse potentials that are not said to belong to the prior or to the likelihood."""
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


def check_variables(model: pm.Model) -> None:
    """Refuse variables whose density is improper, discrete, in single precision or of a part of the data."""
    if not model.free_RVs:
        raise ValueError("the PyMC model has no free variable: there is nothing to integrate over.")
    if not model.observed_RVs and not model.potentials:
        raise ValueError("the PyMC model has no observed variable: give the data by observed=..., or by pm.observe.")
    for rv in model.free_RVs:
        op = rv.owner.op
        if isinstance(op, FlatRV | HalfFlatRV | ICARRV):
            raise ValueError(
                f"the prior of {rv.name!r} ({kind_of(rv)}) is improper: it has no normalising constant, so the "
                "evidence is not defined. Use a proper distribution, wide if you know little."
            )
        if type(op) in INSTEAD_OF:
            raise ValueError(
                f"PyMC's density of {rv.name!r} ({kind_of(rv)}) is not normalised, so the evidence would be wrong. "
                f"Use {INSTEAD_OF[type(op)]}."
            )
        if rv.dtype in discrete_types:
            raise ValueError(
                f"{rv.name!r} ({kind_of(rv)}) is a discrete variable: marginalise it, that is, sum over its values, "
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


def check_compiles(model: pm.Model, variables: list[TensorVariable], shapes: list[tuple[int, ...]]) -> None:
    """Refuse by name a variable whose density PyTensor cannot compile to JAX."""
    point = [jax.ShapeDtypeStruct(shape, float) for shape in shapes]

    def check(variables: list[TensorVariable]) -> None:
        jax.eval_shape(to_jax(model.value_vars, [model.logp(variables)]), *point)

    try:
        check(variables)
    except (NotImplementedError, TypeError):
        for variable in variables:
            try:
                check([variable])
            except (NotImplementedError, TypeError) as error:
                raise ValueError(
                    f"PyTensor cannot compile the density of {variable.name!r} ({kind_of(variable)}) to JAX. Use "
                    f"another distribution or parametrisation. The reason: {error}"
                ) from error
        raise


def kind_of(rv: TensorVariable) -> str:
    """Name the distribution of a variable."""
    return getattr(rv.owner.op, "_print_name", (type(rv.owner.op).__name__,))[0]
