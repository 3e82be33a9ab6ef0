"""A mixture of normals, or of Student-t's, as the reference of a path.

Fitted to the posterior, it makes g = log likelihood + log prior - log q nearly constant: a handful of rungs integrate
g, and control variates leave almost no variance.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy import special

from thermint.model.draws import Array as AnyArray
from thermint.model.evaluation import Evaluation
from thermint.model.model import Model
from thermint.path.coordinates import RungMoments
from thermint.runtime.store import storable


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["log_weight", "mean", "cholesky", "whitening", "dof", "log_height"],
    meta_fields=[],
)
@storable
@dataclass(frozen=True)
class Mixture:
    """A mixture of normals or Student-t's; one compiled program serves both."""

    log_weight: AnyArray  # [component]
    mean: AnyArray  # [component, d]
    cholesky: AnyArray  # [component, d, d], lower factor of each scale matrix
    whitening: AnyArray  # [component, d, d], its inverse
    dof: AnyArray  # [], degrees of freedom of all components, infinite if they are normal
    log_height: AnyArray  # [component], log of weight times density at the mean

    @property
    def components(self) -> int:
        """Number of components."""
        return len(self.log_weight)

    @property
    def kernel(self) -> str:
        """mala, or mmala where there are several components: each then has its own metric."""
        return "mala" if self.components == 1 else "mmala"

    @property
    def covariance(self) -> np.ndarray:
        """Scale matrix of all components together, [d, d]."""
        weight, mean, cholesky = np.exp(self.log_weight), np.asarray(self.mean), np.asarray(self.cholesky)
        away = mean - weight @ mean
        return np.einsum("k,kij->ij", weight, cholesky @ cholesky.mT) + (weight * away.T) @ away

    def components_at(self, theta: AnyArray) -> tuple[Any, Any]:
        """Log of weight times density of every component at theta[..., d], [..., component], and gradients [..., d]."""
        np_: Any = jnp if isinstance(theta, Array) else np
        d = theta.shape[-1]
        whitened = np_.einsum("kij,...kj->...ki", self.whitening, theta[..., None, :] - self.mean)
        square = np_.sum(whitened**2, axis=-1)
        slope = -np_.einsum("kij,...ki->...kj", self.whitening, whitened)
        # A normal has infinite degrees of freedom, with which there would be NaN.
        f = np_.where(np_.isinf(self.dof), 1.0, self.dof)
        fall = np_.where(np_.isinf(self.dof), square / 2, (f + d) / 2 * np_.log1p(square / f))
        pull = np_.where(np_.isinf(self.dof), 1.0, (f + d) / (f + square))
        return self.log_height - fall, pull[..., None] * slope

    def log_density(self, theta: Array) -> Array:
        """Log density, for JAX to differentiate."""
        return jax.nn.logsumexp(self.components_at(theta)[0])

    def draw(self, model: Model, keys: Array | np.ndarray, first: int, noise: np.ndarray) -> np.ndarray:
        """Draw from the noise: d normal numbers, one that chooses the component, and one for Student-t's scale."""
        normal, chooses, scales = noise[..., :-2], noise[..., -2], noise[..., -1]
        if np.isfinite(self.dof):
            share = special.chdtri(int(self.dof), np.maximum(scales, 2.0**-54)) / int(self.dof)
            normal = normal / np.sqrt(share)[..., None]
        edges = np.cumsum(np.exp(self.log_weight))[:-1]
        k = np.searchsorted(edges, chooses)
        return np.asarray(self.mean)[k] + np.einsum("...ij,...j->...i", np.asarray(self.cholesky)[k], normal)

    def relative(self, state: Evaluation, with_metric: bool) -> Evaluation:
        """Turn evaluations of a model into those of the path from here.

        The metric of the reference is the precision of its components, weighted by their responsibilities: each mode
        has a scale of its own. Where the model has no metric, this is that of the whole path.
        """
        np_: Any = jnp if isinstance(state.position, Array) else np
        each, slopes = self.components_at(state.position)
        top = each.max(axis=-1, keepdims=True)
        share = np_.exp(each - top)
        total = share.sum(axis=-1, keepdims=True)
        share = share / total
        density, gradient = (top + np_.log(total))[..., 0], np_.sum(share[..., None] * slopes, axis=-2)
        metric: tuple[Array, ...] = ()
        if with_metric:
            precision = np_.einsum("...k,kji,kjl->...il", share, self.whitening, self.whitening)
            known: Any = state
            own = 0 * precision if known.fisher is None else known.fisher + known.prior_curvature - precision
            metric = own, precision
        return Evaluation(
            state.position,
            state.log_likelihood + state.log_prior - density,
            density,
            state.grad_log_likelihood + state.grad_log_prior - gradient,
            gradient,
            *metric,
        )

    def coordinates(self, frame: RungMoments) -> RungMoments:
        """Build features in the coordinates of the components, the same at every rung."""
        rungs = len(frame.centre)
        log_weight, mean, cholesky = (
            np.broadcast_to(part, (rungs, *np.shape(part))) for part in (self.log_weight, self.mean, self.cholesky)
        )
        return frame._replace(log_weight=log_weight, mean=mean, cholesky=cholesky)

    def describe(self) -> dict[str, Any]:
        """Name the number of components and the degrees of freedom, None if they are normal."""
        dof = int(self.dof) if np.isfinite(self.dof) else None
        return {"reference": "fitted", "components": self.components, "dof": dof}


def make_mixture(weight: np.ndarray, mean: np.ndarray, covariance: np.ndarray, dof: int | None = None) -> Mixture:
    """Build a mixture from its weights [component], means [component, d] and scale matrices [component, d, d]."""
    cholesky = np.linalg.cholesky(covariance)
    log_scale = np.log(np.einsum("kii->ki", cholesky)).sum(axis=1)
    return Mixture(
        log_weight=np.log(weight),
        mean=mean,
        cholesky=cholesky,
        whitening=np.linalg.inv(cholesky),
        dof=np.asarray(np.inf if dof is None else float(dof)),
        log_height=np.log(weight) - log_scale + log_constant(mean.shape[1], dof),
    )


def log_constant(d: int, dof: int | None) -> float:
    """Log density of a standard normal or Student-t vector at zero."""
    if dof is None:
        return -0.5 * d * np.log(2 * np.pi)
    f = dof
    return special.gammaln((f + d) / 2) - special.gammaln(f / 2) - 0.5 * d * np.log(f * np.pi)
