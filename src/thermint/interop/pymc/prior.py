"""Draws of the prior on the real line, and the constants that PyMC's densities lack."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytensor.tensor.random.basic as ptr
from jax import Array
from jax.flatten_util import ravel_pytree
from jax.tree_util import Partial
from pymc.distributions.continuous import TruncatedNormalRV
from pymc.distributions.multivariate import _LKJCholeskyCovRV
from pymc.distributions.transforms import Ordered, _default_transform
from pymc.logprob.transforms import ChainedTransform, Transform
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Constant, Variable, equal_computations
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import graph_inputs
from pytensor.link.jax.dispatch.random import jax_sample_fn
from pytensor.tensor.basic import get_underlying_scalar_constant_value
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.variable import TensorVariable
from scipy.special import gammaln

from thermint.interop.pymc.checks import kind_of
from thermint.interop.pymc.compile import in_double, to_jax
from thermint.model.priors import DRAWS as PRIOR_DRAWS
from thermint.runtime.programs import jit

# Draws of the prior that PyMC makes where PyTensor cannot draw in JAX. Of the 4000 that the default call takes from
# them at rung 0, some 6 % are then repeats: the effective number of draws is hardly smaller.
POOL = 2**15


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


def prior_draws(model: pm.Model) -> tuple[Callable[[Array], Array], list[tuple[int, ...]]]:
    """Make `sample_prior`, and the shapes of the variables on the real line."""
    instead = {rv: model.rvs_to_values[rv] for rv in model.observed_RVs}
    instead |= {rv: _lkj_draw(rv) for rv in model.free_RVs if isinstance(rv.owner.op, _LKJCholeskyCovRV)}
    draws = clone_replace([_unconstrained(model, rv) for rv in model.free_RVs], instead)
    generators = [variable for variable in graph_inputs(draws) if isinstance(variable.type, RandomType)]
    inputs = [generator.type() for generator in generators]
    try:
        compiled = to_jax(inputs, clone_replace(draws, dict(zip(generators, inputs, strict=True))))

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
        _check_transforms(model, jit()(jax.vmap(draw))(jax.random.split(jax.random.key(0), PRIOR_DRAWS)))
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
                f"the transform {model.rvs_to_transforms[rv].name!r} of {rv.name!r} ({kind_of(rv)}) cuts off a part of "
                "its distribution, and the rest is not normalised, so that the evidence is not defined. Use "
                "pm.Truncated, or a distribution on that support."
            )


def _has_own_transform(model: pm.Model, rv: TensorVariable) -> bool:
    """Say whether a variable has the transform that PyMC gives its distribution."""
    pair = model.rvs_to_transforms[rv], _default_transform(rv.owner.op, rv)
    mapped = [rv if transform is None else transform.forward(rv, *rv.owner.inputs) for transform in pair]
    return equal_computations(mapped[:1], mapped[1:])


def missing_constant(model: pm.Model, rv: TensorVariable, shape: tuple[int, ...]) -> float:
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
    at_identity = to_jax([], in_double([pm.logp(cholesky, np.eye(n)[np.tril_indices(n)])]))()[0]
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
