"""What a user gives us, a Model, and all that is known of it at one point, an Evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree
from jax.tree_util import Partial

from thermint import keys

if TYPE_CHECKING:
    from numpyro.distributions import Distribution


_FUNCTIONS = ("log_likelihood", "log_prior", "sample_prior", "metric", "with_fisher", "constrain")  # of a Model
_STATIC = ("names", "normalised", "differentiable", "batch", "one_device")
WRONG = 0.02  # relative difference of a gradient from differences of values
LOWEST = -1e100  # log likelihood; below it the likelihood counts as zero


@jax.tree_util.register_pytree_node_class
@dataclass(frozen=True)
class Model:
    """A Bayesian model as functions of one flat vector of real parameters.

    To JAX it is a pytree whose leaves are the arrays that its functions are bound to by `jax.tree_util.Partial`, if
    any: models that differ in those only, such as references fitted to different draws, share one compiled program.

    Args:
        log_likelihood: ``theta[d] -> scalar``, differentiable by JAX. ``-inf`` where the likelihood is zero.
        log_prior: ``theta[d] -> scalar``, the *normalised* log density of the prior.
        sample_prior: ``key -> theta[d]``, one independent draw from the prior.
        metric: ``theta[d] -> (fisher[d, d], prior_curvature[d, d])``: the Fisher information of the likelihood, and
            minus the Hessian of ``log_prior``. The metric at inverse temperature t is ``t * fisher + prior_curvature``.
        with_fisher: ``theta[d] -> (log_likelihood, fisher[d, d])``, where one expensive calculation, such as the
            solution of differential equations, gives both: it then stands in for the two wherever both are needed.
        constrain: ``theta[d] -> {"name": value}``, the named values that a user knows.
        names: one name for each entry of theta.
        normalised: ``log_prior`` is known to be normalised, and to be what ``sample_prior`` draws from; else this is
            checked numerically in up to ten dimensions.
        differentiable: JAX can differentiate ``log_likelihood``. Else its gradient counts as unknown (zero in every
            `Evaluation`), and there are no control variates.
        batch: points at which the model is evaluated at once, at most; by default as many as fit in some memory.
        one_device: run all populations on one CPU device. Set for models that call LAPACK: see `thermint.sizes`.
        data: ``{"name": observed values}``, where they are known: `compare` warns of models with different data.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from thermint import Model
        >>> def normal(x):
        ...     return -0.5 * jnp.sum(x**2) - 0.5 * x.size * jnp.log(2 * jnp.pi)
        >>> model = Model(
        ...     log_likelihood=lambda theta: normal(theta - 1.0),
        ...     log_prior=normal,
        ...     sample_prior=lambda key: jax.random.normal(key, (2,)),
        ... )
        >>> model.dimension
        2
    """

    log_likelihood: Callable[[Array], Array]
    log_prior: Callable[[Array], Array]
    sample_prior: Callable[[Array], Array]
    _: KW_ONLY
    metric: Callable[[Array], tuple[Array, Array]] | None = None
    with_fisher: Callable[[Array], tuple[Array, Array]] | None = None
    constrain: Callable[[Array], dict[str, Array]] | None = None
    names: tuple[str, ...] | None = None
    normalised: bool = False
    differentiable: bool = True
    batch: int | None = None
    one_device: bool = False
    data: Mapping[str, np.ndarray] | None = field(default=None, compare=False, repr=False)  # to JAX it does not exist

    def __post_init__(self) -> None:
        if self.names is not None:
            object.__setattr__(self, "names", tuple(self.names))  # a list is welcome too

    def tree_flatten(self) -> tuple[tuple, tuple]:
        """Split into functions, which may hold arrays, and the rest."""
        functions = (getattr(self, name) for name in _FUNCTIONS)
        bound = (f if f is None or isinstance(f, Partial) else Partial(f) for f in functions)
        return tuple(bound), tuple(getattr(self, name) for name in _STATIC)

    @classmethod
    def tree_unflatten(cls, rest: tuple, functions: tuple) -> Model:
        """Put together what `tree_flatten` split."""
        bound = dict(zip(_FUNCTIONS, functions, strict=True))
        return cls(**bound, **dict(zip(_STATIC, rest, strict=True)))

    @cached_property
    def dimension(self) -> int:
        """The number of real parameters."""
        return jax.eval_shape(self.sample_prior, keys.shape()).size

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """``names``, or ``theta[0], theta[1], ...`` where the user gave none."""
        return self.names or tuple(f"theta[{i}]" for i in range(self.dimension))

    @staticmethod
    def from_prior(prior: Mapping[str, Distribution], log_likelihood: Callable[[dict[str, Array]], Array]) -> Model:
        """Build a model from NumPyro distributions, one for each named parameter.

        Constrained parameters (scales, probabilities, simplices, ...) are mapped to the real line by NumPyro's
        bijections, and the Jacobian is part of the prior.

        Args:
            prior: ``{"name": distribution}``; proper, continuous and independent of each other.
            log_likelihood: ``{"name": value} -> scalar``, a function of the constrained values.

        Raises:
            ValueError: a distribution is discrete, improper or has invalid parameters; the message names it.

        Example:
            >>> import jax.numpy as jnp
            >>> import numpyro.distributions as dist
            >>> from thermint import Model
            >>> y = jnp.array([1.2, 0.8, 1.9])
            >>> model = Model.from_prior(
            ...     {"mean": dist.Normal(0, 10), "scale": dist.HalfNormal(2)},
            ...     lambda p: dist.Normal(p["mean"], p["scale"]).log_prob(y).sum(),
            ... )
            >>> model.parameter_names
            ('mean', 'scale')
        """
        from thermint.priors import unconstrained

        return unconstrained(prior, log_likelihood)


class Evaluation(NamedTuple):
    """Everything the samplers and estimators need to know of one point (or, with leading axes, of many).

    It is computed once per proposal. Tempering, swapping and control variates are arithmetic on it.
    """

    position: Array  # [d]
    log_likelihood: Array  # []
    log_prior: Array  # []
    grad_log_likelihood: Array  # [d]
    grad_log_prior: Array  # [d]
    fisher: Array | None = None  # [d, d]
    prior_curvature: Array | None = None  # [d, d]


def evaluate(model: Model, position: Array) -> Evaluation:
    """Values, both gradients and the parts of the metric at one position, in one pass."""
    fisher, prior_curvature = model.metric(position) if model.metric else (None, None)
    if not model.differentiable:
        log_likelihood, grad_log_likelihood = model.log_likelihood(position), jnp.zeros_like(position)
    elif model.metric and model.with_fisher:
        # In place of the metric's, which XLA drops.
        (log_likelihood, fisher), grad_log_likelihood = jax.value_and_grad(model.with_fisher, has_aux=True)(position)
    else:
        log_likelihood, grad_log_likelihood = jax.value_and_grad(model.log_likelihood)(position)
    # Wild proposals, such as a scale of e^-200, are as good as impossible; their squares would overflow.
    log_likelihood = jnp.where(log_likelihood < LOWEST, -jnp.inf, log_likelihood)
    log_prior, grad_log_prior = jax.value_and_grad(model.log_prior)(position)
    return Evaluation(position, log_likelihood, log_prior, grad_log_likelihood, grad_log_prior, fisher, prior_curvature)


def tempered(state: Evaluation, t: Array) -> Array:
    """Log density of the power posterior, up to its constant: log prior + t * log likelihood (0 * -inf is 0)."""
    return state.log_prior + jnp.where(t > 0, t * state.log_likelihood, 0.0)


def score(state: Evaluation, t: Array | float) -> Array:
    """Gradient of `tempered`, equal to -2 z of the paper (Eqn. "Z path")."""
    return state.grad_log_prior + t * state.grad_log_likelihood


def usable(state: Evaluation) -> Array:
    """Say whether a state may be visited: values and gradients are all finite."""
    isfinite: Any = jnp.isfinite if isinstance(state.position, Array) else np.isfinite
    gradients = isfinite(state.grad_log_likelihood) & isfinite(state.grad_log_prior)
    return isfinite(state.log_likelihood) & isfinite(state.log_prior) & gradients.all(axis=-1)


def impossible(state: Evaluation) -> Array:
    """Say whether the prior or the likelihood is zero."""
    return jnp.minimum(state.log_likelihood, state.log_prior) == -jnp.inf


def choose(condition: Array, new: Any, old: Any) -> Any:
    """Take ``new`` where the scalar condition holds, leaf by leaf."""
    a, unpack = ravel_pytree(new)
    return unpack(jnp.where(condition, a, ravel_pytree(old)[0]))


def check_shapes(model: Model) -> None:
    """Refuse functions that do not return what a Model's functions return, by name; nothing is run."""
    theta = jax.eval_shape(model.sample_prior, keys.shape())
    if not (isinstance(theta, jax.ShapeDtypeStruct) and theta.ndim == 1 and jnp.issubdtype(theta.dtype, jnp.floating)):
        raise TypeError(f"sample_prior must return one flat vector of floats, not {theta}. Ravel the draw.")
    theta = jax.ShapeDtypeStruct(theta.shape, jnp.float64)
    d = theta.size
    for name in ("log_likelihood", "log_prior"):
        value = jax.eval_shape(getattr(model, name), theta)
        if getattr(value, "shape", None) != ():
            raise TypeError(
                f"{name} must return a scalar, but returned {value} for theta of shape ({d},). "
                "Did you forget to sum over the observations?"
            )
        if value.dtype != jnp.float64:
            raise TypeError(
                f"{name} returns {value.dtype} instead of float64. Do not cast: thermint passes a float64 theta."
            )
    if model.metric:
        parts = jax.eval_shape(model.metric, theta)
        if [getattr(part, "shape", None) for part in jax.tree.leaves(parts)] != [(d, d), (d, d)]:
            raise TypeError(f"metric must return (fisher[{d}, {d}], prior_curvature[{d}, {d}]), but returned {parts}.")
    if model.with_fisher:
        if not model.metric:
            raise ValueError("with_fisher is of use only beside a metric; give the model that too.")
        parts = jax.eval_shape(model.with_fisher, theta)
        if [getattr(part, "shape", None) for part in jax.tree.leaves(parts)] != [(), (d, d)]:
            raise TypeError(f"with_fisher must return (log_likelihood, fisher[{d}, {d}]), but returned {parts}.")
    if model.names is not None and len(model.names) != d:
        raise ValueError(f"names has {len(model.names)} entries for a theta of {d}.")


def check_values(model: Model, start: Evaluation) -> None:
    """Refuse a model whose values at prior draws are NaN or +inf, or whose likelihood is zero at all of them.

    Args:
        model: for the names of its parameters.
        start: evaluations at draws from the prior, with any leading axes.
    """
    flat = jax.tree.map(lambda a: np.asarray(a).reshape(-1, *a.shape[start.log_prior.ndim :]), start)
    supported = flat.log_likelihood > -np.inf
    checks = {
        "sample_prior": (~np.isfinite(flat.position), "It must return finite values."),
        "log_prior": (
            ~np.isfinite(flat.log_prior),
            "It must be finite wherever sample_prior can go; do the two describe the same distribution?",
        ),
        "log_likelihood": (
            np.isnan(flat.log_likelihood) | (flat.log_likelihood == np.inf),
            "Return -inf where the likelihood is zero, and guard divisions, logarithms and overflow elsewhere.",
        ),
        "the gradient of log_prior": (~np.isfinite(flat.grad_log_prior), _GRADIENT_HINT),
        "the gradient of log_likelihood": (
            ~np.isfinite(flat.grad_log_likelihood) & supported[:, None],
            _GRADIENT_HINT,
        ),
    }
    for name, (bad, remedy) in checks.items():
        bad = bad.reshape(len(bad), -1).any(axis=1)
        if bad.any():
            where = ", ".join(
                f"{n} = {v:.6g}" for n, v in zip(model.parameter_names, flat.position[bad][0], strict=True)
            )
            raise ValueError(
                f"{name} is NaN or infinite at {bad.sum()} of {len(bad)} draws from the prior, for example at "
                f"{where} (on the unconstrained scale). {remedy}"
            )
    if not supported.any():
        raise ValueError(
            f"log_likelihood is -inf at all {len(supported)} draws from the prior: the prior hardly ever produces "
            "parameters that can explain the data. Check the likelihood's support, or use a narrower prior."
        )


def shifts(shape: tuple[int, ...], deviation: np.ndarray) -> np.ndarray:
    """Make small steps for `check_gradients` from positions of this shape: each in one coordinate, by turns."""
    d = shape[-1]
    turn = np.arange(np.prod(shape[:-1], dtype=int)) % d
    return (1e-3 * deviation * np.eye(d)[turn]).reshape(shape)


def check_gradients(model: Model, start: Evaluation, shift: np.ndarray, ahead: Evaluation, behind: Evaluation) -> None:
    """Refuse a model whose gradients are not what differences of its values say, by name.

    Where gradients are wrong, control variates shift the answer by less than its plain error, and a reference fitted
    to wrong scores looks well fitted: nothing else would show it.

    Args:
        model: for the names of its parameters.
        start: evaluations at draws from the prior, [..., d].
        shift: small steps, each in one coordinate.
        ahead: evaluations at the draws plus these.
        behind: at the draws minus these.
    """
    coordinate = np.argmax(np.abs(shift), axis=-1)
    for name in ("log_likelihood", "log_prior"):
        value, gradient = np.asarray(getattr(start, name)), np.asarray(getattr(start, f"grad_{name}"))
        with np.errstate(invalid="ignore", over="ignore"):  # infinite values, which do not count
            seen = (np.asarray(getattr(ahead, name)) - np.asarray(getattr(behind, name))) / 2
            said = np.sum(gradient * shift, axis=-1)
            apart = np.abs(seen - said) / (np.abs(seen) + np.abs(said) + 1e-9 * np.abs(value) + 1e-300)
        for i, parameter in enumerate(model.parameter_names):
            own = apart[(coordinate == i) & np.isfinite(apart)]
            # Right gradients agree nearly everywhere, wrong ones hardly anywhere.
            if len(own) and np.quantile(own, 0.25) > WRONG:
                clearest = np.where((coordinate == i) & (apart > WRONG), np.abs(said), -1.0)
                where = np.unravel_index(np.argmax(clearest), apart.shape)
                length = shift[where][i]
                raise ValueError(
                    f"the gradient of {name} with respect to {parameter!r} is {said[where] / length:.6g} at "
                    f"{parameter} = {start.position[where][i]:.6g} (on the unconstrained scale), but differences of "
                    f"its values give {seen[where] / length:.6g}. Wrong gradients shift the answer. Correct the "
                    "custom_jvp, the custom_vjp or the gradient that you gave, or leave it out."
                )


_GRADIENT_HINT = (
    "A finite value with a gradient that is not usually comes from jnp.where around an undefined branch: "
    "make the argument safe *inside* the branch as well."
)
