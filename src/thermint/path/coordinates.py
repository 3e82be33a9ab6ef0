"""The coordinates in which features are built: frozen before the draws that count, so that features can be added.

Whitened coordinates make the arithmetic well conditioned, and they make the Stein operator that of a Langevin diffusion
preconditioned by the covariance. For a normal density that changes nothing: degree 2 is exact in any frame. Otherwise
features of degree 2 and above span a slightly different space in every frame, with about the same gain.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from thermint.model.draws import Draws
from thermint.runtime.store import storable


@storable
class RungMoments(NamedTuple):
    """Moments of every rung; where a posterior has several modes, of each of several components."""

    log_weight: np.ndarray  # [rung, component]
    mean: np.ndarray  # [rung, component, d]
    cholesky: np.ndarray  # [rung, component, d, d], lower Cholesky factor of the covariance
    centre: np.ndarray  # [rung], of the log likelihood g
    spread: np.ndarray  # [rung], standard deviation of g


def rung_moments(draws: Draws) -> RungMoments:
    """Take the moments of draws, all populations together; covariances shrink to their diagonal where draws are few."""
    position, g = np.asarray(draws.position), np.asarray(draws.log_likelihood)
    mean, cholesky = moments(np.moveaxis(position, 2, 0).reshape(len(draws.ladder), -1, position.shape[-1]))
    spread = g.std(axis=(0, 1))
    return RungMoments(
        log_weight=np.zeros((len(mean), 1)),
        mean=mean[:, None],
        cholesky=cholesky[:, None],
        centre=g.mean(axis=(0, 1)),
        spread=np.where(spread > 0, spread, 1.0),
    )


def moments(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means [rung, d] and Cholesky factors of the covariances [rung, d, d] of draws theta[rung, draw, d].

    Covariances shrink to their diagonal where draws are few.
    """
    _, n, d = theta.shape
    mean = theta.mean(axis=1)
    deviation = theta - mean[:, None]
    covariance = deviation.mT @ deviation / n
    variance = np.einsum("rii->ri", covariance)
    # A rung that did not move at all borrows a little of the others' variance.
    variance = np.maximum(variance, 1e-8 * variance.max(axis=0))
    variance = np.where(variance > 0, variance, 1.0)
    weight = n / (n + 2 * d)
    return mean, np.linalg.cholesky(weight * covariance + (1 - weight) * variance[:, :, None] * np.eye(d))
