"""What a user gives us: a Model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import jax
import numpy as np
from jax import Array
from jax.tree_util import Partial

from thermint.runtime import keys

if TYPE_CHECKING:
    from numpyro.distributions import Distribution


_FUNCTIONS = ("log_likelihood", "log_prior", "sample_prior", "metric", "with_fisher", "constrain")  # of a Model
_STATIC = ("names", "normalised", "differentiable", "batch", "one_device")


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
        one_device: run all populations on one CPU device. Set for models that call LAPACK: see `closure_constants`.
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
        from thermint.model.priors import unconstrained

        return unconstrained(prior, log_likelihood)
