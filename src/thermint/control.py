"""Control variates from a Gram: coefficients, cross-fitted means, the choice of degree, and the mean-zero test."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import stats
from scipy.linalg import lapack

from thermint.gram import TARGETS, Gram

# Relative jitter on the diagonal of the features' covariance. The first only covers rounding; the others are a ridge,
# tried where draws are few against features, and taken where they predict held-out draws better.
JITTERS = (1e-14, 1e-6, 1e-3, 1e-1)
FEW_DRAWS = 20  # per feature


class Controlled(NamedTuple):
    """Controlled means of y and y^2, where y = (g - centre) / spread, and how much they gained."""

    mean: np.ndarray  # [batch, population, rung, target]
    variance: np.ndarray  # [rung, target], of the target itself
    residual: np.ndarray  # [rung, target], of the controlled target: held out, or in sample without cross-fitting
    degree: np.ndarray  # [rung, target], the degree used


def control(gram: Gram, sizes: tuple[int, ...], *, fixed: bool, crossfit: bool) -> Controlled:
    """Control the targets at every rung.

    Args:
        gram: sums of features.
        sizes: number of features of degree 0, 1, 2, ..., all leading blocks of the same Gram.
        fixed: use the highest degree at every rung, instead of the one with the smallest residual variance.
        crossfit: fit the coefficients for each fold to the other folds; otherwise to all draws, as the paper does.
    """
    first, second = np.asarray(gram.first), np.asarray(gram.second)
    number = np.asarray(gram.number)
    draws = number.sum() * first.shape[1]
    total = second.sum(axis=0)
    training = total - second if crossfit else total[None]
    fits = []
    for degree in range(len(sizes) - 1 if fixed else 0, len(sizes)):
        ridge = crossfit and 0 < draws < FEW_DRAWS * sizes[degree]
        for jitter in JITTERS if ridge else JITTERS[:1]:
            phi = _coefficients(training, sizes[degree], jitter)
            fits.append(
                (degree, *_apply(np.broadcast_to(phi, (len(second), *phi.shape[1:])), gram.fold, first, second))
            )
    degrees, sums, squares = (np.stack(part) for part in zip(*fits, strict=True))
    residuals = np.maximum(squares / draws - (sums.sum(axis=(1, 2)) / draws) ** 2, 0.0)
    diagonal = np.arange(1, 1 + TARGETS)
    variance = total[:, diagonal, diagonal] / draws - (total[:, 0, diagonal] / draws) ** 2
    best = _first_good(residuals)
    rung, target = np.ogrid[: best.shape[0], : best.shape[1]]
    return Controlled(
        mean=np.moveaxis(sums, (0, 3, 4), (0, 1, 2))[best, rung, target].transpose(2, 3, 0, 1)
        / number[:, None, None, None],
        variance=variance,
        residual=residuals[best, rung, target],
        degree=degrees[best],
    )


def _coefficients(second: np.ndarray, size: int, jitter: float) -> np.ndarray:
    """Least squares with intercept of the targets on the first ``size`` features: [fold, rung, size, target].

    The cross-covariance is centred (ERRATA 5): without that, degree 2 is not exact where it should be. NaN where the
    covariance is not positive definite.
    """
    if not size:
        return np.zeros((*second.shape[:2], 0, TARGETS))
    features = slice(1 + TARGETS, 1 + TARGETS + size)
    n = second[..., :1, :1]
    mean = second[..., :1, :] / n
    S = second[..., features, features] / n - mean[..., features].mT * mean[..., features]
    b = second[..., features, 1 : 1 + TARGETS] / n - mean[..., features].mT * mean[..., 1 : 1 + TARGETS]
    # In units of each feature's own standard deviation, so that the jitter means the same to all of them.
    unit = np.sqrt(np.maximum(np.einsum("...ii->...i", S), 0.0))[..., None]
    unit[unit == 0] = 1.0
    S = S / (unit * unit.mT) + jitter * np.eye(size)
    b = b / unit
    phi = np.empty_like(b)
    for index in np.ndindex(S.shape[:2]):
        _, phi[index], failure = lapack.dposv(S[index], b[index])
        if failure:
            phi[index] = np.nan
    return phi / unit


def _apply(phi: np.ndarray, fold: np.ndarray, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sums of the controlled targets, [batch, population, rung, target], and of their squares, [rung, target]."""
    size = phi.shape[2]
    features = slice(1 + TARGETS, 1 + TARGETS + size)
    fitted = np.matmul(first[..., features].swapaxes(1, 2), phi[fold]).swapaxes(1, 2)
    # The residual is a linear form in [targets, features]; its second moment is a quadratic form in the Gram.
    form = np.concatenate([np.broadcast_to(np.eye(TARGETS), (*phi.shape[:2], TARGETS, TARGETS)), -phi], axis=2)
    block = slice(1, 1 + TARGETS + size)
    square = np.einsum("frmk,frmk->rk", form, np.matmul(second[..., block, block], form))
    return first[..., 1 : 1 + TARGETS] - fitted, square


def _first_good(residuals: np.ndarray) -> np.ndarray:
    """Index of the smallest residual variance; an earlier candidate wins unless the gain is more than rounding."""
    best = np.zeros(residuals.shape[1:], dtype=int)
    value = np.where(np.isnan(residuals[0]), np.inf, residuals[0])
    for i, candidate in enumerate(residuals[1:], start=1):
        better = candidate < 0.98 * value - 1e-12
        best, value = np.where(better, i, best), np.where(better, candidate, value)
    return best


def mean_zero(gram: Gram, size: int, ess: np.ndarray) -> tuple[np.ndarray, float]:
    """Test that the averages of the first ``size`` features are zero within their errors.

    They are not where the density does not vanish at the border of its support, or where gradients are wrong; control
    variates would then shift the answer, with no variance to show it. Chains that mix slowly are another matter: there
    control variates help, so errors are at least those of ``ess`` independent draws.

    Args:
        gram: sums of features.
        size: number of features to test.
        ess: [rung], effective number of draws of all populations.

    Returns:
        As `largest_z`.
    """
    features = slice(1 + TARGETS, 1 + TARGETS + size)
    means = np.asarray(gram.first)[..., features] / np.asarray(gram.number)[:, None, None, None]
    total = np.asarray(gram.second).sum(axis=0)
    n = total[:, :1, 0]
    variance = np.einsum("rii->ri", total[:, features, features]) / n - (total[:, features, 0] / n) ** 2
    return largest_z(means, variance / ess[:, None])


def largest_z(means: np.ndarray, floor: np.ndarray, level: float = 1e-4) -> tuple[np.ndarray, float]:
    """Compare averages with zero.

    Args:
        means: batch means, [batch, population, rung, feature].
        floor: smallest variance of an average, [rung, feature].
        level: probability of a false alarm on any of the rungs and features.

    Returns:
        The largest |average| / error among the features of each rung, and the threshold for it.
    """
    means = means.reshape(-1, *means.shape[2:])
    error = np.sqrt(np.maximum(means.var(axis=0, ddof=1) / len(means), floor))
    z = np.abs(means.mean(axis=0)) / np.where(error > 0, error, np.inf)
    return z.max(axis=1), float(stats.t.isf(level / 2 / z.size, len(means) - 1))
