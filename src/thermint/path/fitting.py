"""Fit a mixture to draws of the posterior: score regression within each mode, and tails that suit held-out draws."""

from __future__ import annotations

import numpy as np
from scipy import special

from thermint.path.coordinates import moments
from thermint.path.mixture import Mixture, log_constant, make_mixture
from thermint.path.splitting import find_modes, log_scale_and_square
from thermint.runtime.linalg import one_thread

MAX_DRAWS = 4000  # that a fit looks at: 200 for each of 20 dimensions, and of more moments are not known better
# Of the covariance. The next wider one than fits best is taken: a path prefers a start too wide to one too narrow.
WIDENINGS = (1.0, 1.1, 1.2, 1.35, 1.6, 2.0, 3.0)
DOFS = (None, 30, 15, 8, 5)  # of a Student-t; None is the normal; fewer would overflow on log scales


def fit(position: np.ndarray, score: np.ndarray | None) -> Mixture:
    """Fit a mixture to draws of the posterior, [chain, draw, d], and the gradients of its log density there, if known.

    Each half of the draws is held out in turn. The number of components, how wide they are and how heavy their tails
    are those that fit the held-out draws best.
    """
    with one_thread():
        return _fit(position, np.full_like(position, np.nan) if score is None else score)


def _fit(position: np.ndarray, score: np.ndarray) -> Mixture:
    chains, draws, d = position.shape
    if draws < 2:
        raise ValueError(
            "a reference is fitted to one half of the draws and judged by the other: give at least 2 draws."
        )
    thinning = -(-chains * draws // MAX_DRAWS)
    halves = [slice(0, draws // 2, thinning), slice(draws // 2, draws, thinning)]
    x = [position[:, half].reshape(-1, d) for half in halves]
    s = [score[:, half].reshape(-1, d) for half in halves]
    both, scores = np.concatenate(x), np.concatenate(s)
    edge = len(x[0])
    labels = find_modes(both, scores, (np.arange(len(both)) >= edge).astype(int))
    components = labels.max() + 1
    held_out = [
        log_scale_and_square(make_mixture(*_moments(x[fitted], s[fitted], labels[half], components)), x[1 - fitted])
        for fitted, half in ((0, slice(edge)), (1, slice(edge, None)))
    ]
    log_scale, square = (np.concatenate(part) for part in zip(*held_out, strict=True))

    def held_out_fit(widening: float, dof: int | None) -> float:
        scale = widening * _variance_to_scale(dof)
        fall = square / scale / 2
        if dof is not None:
            fall = (dof + d) / 2 * np.log1p(square / scale / dof)
        log_kernel = log_constant(d, dof) - fall - 0.5 * d * np.log(scale)
        return float(np.mean(special.logsumexp(log_scale + log_kernel, axis=1)))

    # The normal, unless others are clearly better.
    choices = [(held_out_fit(w, f) - (0.01 if f else 0.0), w, f) for f in DOFS for w in WIDENINGS]
    _, widening, dof = max(choices, key=lambda choice: choice[0])
    weight, mean, covariance = _moments(both, scores, labels, components)
    return make_mixture(weight, mean, WIDENINGS[1] * widening * _variance_to_scale(dof) * covariance, dof)


def _variance_to_scale(dof: int | None) -> float:
    """Square of the scale of a normal or Student-t variable of variance 1."""
    return 1.0 if dof is None else (dof - 2) / dof


def _moments(
    x: np.ndarray, score: np.ndarray, labels: np.ndarray, components: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights, means and covariances of the draws with each label; one without draws is like all of them together."""
    chosen = [labels == k if np.any(labels == k) else np.full(len(labels), True) for k in range(components)]
    # A mode that few draws have found so far may have any weight: none starts with too little to be visited.
    weight = np.bincount(labels, minlength=components) + (0.05 * len(x) if components > 1 else 0.0)
    mean, covariance = zip(*(regress_scores(x[those], score[those]) for those in chosen), strict=True)
    return weight / weight.sum(), np.stack(mean), np.stack(covariance)


def regress_scores(x: np.ndarray, score: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of draws x[n, d], by a regression of their scores.

    The score of a normal density is linear in the position, with slope minus the precision: 2 d draws give both moments
    exactly. For other densities, E[x s'] = -I makes them consistent. Where draws are few, the covariance shrinks to its
    diagonal, and the slope to that of this covariance.
    """
    n, d = x.shape
    (mean,), (cholesky,) = moments(x[None])
    if np.isnan(score).any():  # not known
        return mean, cholesky @ cholesky.T
    z, u = np.linalg.solve(cholesky, (x - mean).T).T, score @ cholesky
    du = u - u.mean(axis=0)
    cross = du.T @ z / n
    ridge = (0.1 * d / n if n < 2 * (d + 1) else 1e-9) * np.eye(d)
    slope = np.linalg.solve(ridge + z.T @ z / n, (ridge - cross).T)
    eigenvalue, vector = np.linalg.eigh((slope + slope.T) / 2)
    root = cholesky @ (vector / np.sqrt(np.clip(eigenvalue, 0.2, 5.0)))
    # The mean score is zero but for chance, and so is what it explains of the mean position.
    shift = (ridge - cross).T @ np.linalg.solve(ridge + du.T @ du / n, u.mean(axis=0))
    return mean + cholesky @ shift, root @ root.T
