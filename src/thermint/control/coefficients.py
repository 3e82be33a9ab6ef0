"""Control variates from a Gram: coefficients, cross-fitted means, the choice of degree, and the mean-zero test."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from scipy import stats
from scipy.linalg import blas, lapack

from thermint.control.gram import TARGETS, Gram
from thermint.runtime.linalg import one_thread

# Relative jitter on the diagonal of the features' covariance. The first only covers rounding; the others are a ridge,
# tried where draws are few against features, and taken where they predict held-out draws better. The last is close to
# no control at all, for those who insist on a degree that their draws cannot support.
JITTERS = (1e-14, 1e-3, 1e-1, 1e1)
FEW_DRAWS = 20  # per feature


class Controlled(NamedTuple):
    """Controlled means of the Gram's targets, and how much they gained."""

    mean: np.ndarray  # [batch, population, rung, target]
    variance: np.ndarray  # [rung, target], of the target itself
    residual: np.ndarray  # [rung, target], of the controlled target: held out, or in sample without cross-fitting
    degree: np.ndarray  # [rung, target], the degree used
    coefficients: np.ndarray  # [rung, feature], of y = (g - centre) / spread; mean over folds, 0 above the degree used


def uncontrolled(gram: Gram) -> Controlled:
    """Take the plain means, as `control` would with no features."""
    total = np.asarray(gram.second)[:, :, : 1 + TARGETS, : 1 + TARGETS].sum(axis=0)
    variance = variances(total)
    none = np.zeros(variance.shape, dtype=int)
    return Controlled(batch_means(gram, 1, 1 + TARGETS), variance, variance, none, np.zeros((len(variance), 0)))


def control(
    gram: Gram, sizes: tuple[int, ...], *, fixed: bool, crossfit: bool, highest: np.ndarray | None = None
) -> Controlled:
    """Control the targets at every rung.

    Args:
        gram: sums of features.
        sizes: number of features of degree 0, 1, 2, ..., all leading blocks of the same Gram.
        fixed: use the highest degree at every rung, instead of the one with the smallest residual variance.
        crossfit: fit the coefficients for each fold to the other folds; otherwise to all draws, as the paper does.
        highest: degree that is allowed at each rung, [rung]; by default the highest that there is.
    """
    highest = np.full(len(gram.frame.centre), len(sizes) - 1) if highest is None else highest
    by_rung = zip(
        np.moveaxis(np.asarray(gram.first), 2, 0), np.moveaxis(np.asarray(gram.second), 1, 0), highest, strict=True
    )
    # Rung by rung, so that the matrices of one fit in the processor's cache.
    with one_thread():
        rungs = [
            _control_rung(first, second, gram.fold, sizes[: 1 + top], fixed, crossfit) for first, second, top in by_rung
        ]
    sums, variance, residual, degree = (np.stack(part) for part in list(zip(*rungs, strict=True))[:4])
    coefficients = np.zeros((len(rungs), sizes[-1]))
    for row, rung in zip(coefficients, rungs, strict=True):
        row[: len(rung[4])] = rung[4]
    mean = np.moveaxis(sums, 0, 2) / np.asarray(gram.number)[:, None, None, None]
    return Controlled(mean, variance, residual, degree, coefficients)


def _control_rung(
    first: np.ndarray, second: np.ndarray, fold: np.ndarray, sizes: tuple[int, ...], fixed: bool, crossfit: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Control one rung, from sums [batch, population, feature] and cross-products [fold, feature, feature].

    Returns:
        Sums of the controlled targets, [batch, population, target]; their variance without and with control and the
        degree used, [target]; the coefficients of the first target, averaged over folds.
    """
    total = second.sum(axis=0)
    draws = total[0, 0]
    if not crossfit:  # one fold, fitted to itself
        second = total[None]
        fold = np.zeros_like(fold)
    degrees, sums, residuals, fitted = [], [], [], []
    for degree in range(len(sizes) - 1 if fixed else 0, len(sizes)):
        size = sizes[degree]
        few = crossfit and draws < FEW_DRAWS * size
        features = slice(1 + TARGETS, 1 + TARGETS + size)
        block = slice(1, features.stop)
        lead = np.s_[: features.stop, : features.stop]
        training = (total[lead] - one[lead] if crossfit else one[lead] for one in second)
        ridges = JITTERS if fixed else JITTERS[:-1]
        for phi in _coefficients(training, ridges if few else JITTERS[:1]):
            controlled = first[..., 1 : 1 + TARGETS] - first[..., features] @ phi[fold]
            # The residual is a linear form in [targets, features]; its second moment is a quadratic form in the Gram.
            form = np.concatenate([np.broadcast_to(np.eye(TARGETS), (len(phi), TARGETS, TARGETS)), -phi], axis=1)
            square = np.sum(form * (second[:, block, block] @ form), axis=(0, 1))
            degrees.append(degree)
            sums.append(controlled)
            fitted.append(phi[..., 0].mean(axis=0))
            residuals.append(np.maximum(square / draws - (controlled.sum(axis=(0, 1)) / draws) ** 2, 0.0))
            if len(residuals) > 1 and degrees[-2] == degree and np.all(residuals[-1] >= residuals[-2]):
                break  # a stronger ridge would only be worse
    best = first_good(np.stack(residuals))
    targets = np.arange(TARGETS)
    return (
        np.stack(sums)[best, ..., targets].transpose(1, 2, 0),
        variances(total),
        np.stack(residuals)[best, targets],
        np.array(degrees)[best],
        fitted[best[0]],
    )


def variances(total: np.ndarray) -> np.ndarray:
    """Variances of the targets, [..., target], from cross-products [..., feature, feature]."""
    draws = total[..., 0, :1]
    targets = np.arange(1, 1 + TARGETS)
    return total[..., targets, targets] / draws - (total[..., 0, targets] / draws) ** 2


def _coefficients(training: Iterable[np.ndarray], jitters: tuple[float, ...]) -> Iterator[np.ndarray]:
    """Regress the targets on the features, with intercept: [fold, size, target] for each jitter.

    ``training`` are the cross-products of the draws that each fold is fitted to, one matrix after the other: one array
    of all would not fit in memory that is used again, and new pages take as long as the arithmetic. Coefficients are
    NaN where the covariance of the features is not positive definite.
    """
    fits = [_normal_equations(second) for second in training]
    for jitter in jitters:
        yield np.stack([_solve(S, b, jitter) / unit for S, b, unit in fits])


def _normal_equations(second: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return correlations of the features, covariances with the targets in the same units, and the units.

    The units are the features' standard deviations, so that a jitter means the same to all. The covariances with the
    targets are centred (ERRATA 5): without that, degree 2 is not exact where it should be.
    """
    targets, features = slice(1, 1 + TARGETS), slice(1 + TARGETS, None)
    n = second[0, 0]
    mean = second[0] / n
    S = second[features, features] / n
    if len(S):
        S = blas.dger(-1.0, mean[features], mean[features], a=S.T, overwrite_a=True).T  # S - outer product, in place
    b = second[features, targets] / n - np.outer(mean[features], mean[targets])
    unit = np.sqrt(np.maximum(np.diagonal(S), 0.0))[:, None]
    unit[unit == 0] = 1.0
    S /= unit
    S /= unit.T
    return S, b / unit, unit


def _solve(S: np.ndarray, b: np.ndarray, jitter: float) -> np.ndarray:
    """Solve (S + jitter) x = b; NaN where that is not positive definite."""
    if not len(S):
        return b
    A = S.copy()
    A.flat[:: len(A) + 1] += jitter
    # Symmetric, so that A.T saves a copy; its lower triangle, as the upper one takes twice as long.
    _, x, failure = lapack.dposv(A.T, b, lower=True, overwrite_a=True)
    return np.full_like(b, np.nan) if failure else x


def first_good(residuals: np.ndarray) -> np.ndarray:
    """Index of the smallest residual variance; an earlier candidate wins unless the gain is more than rounding."""
    best = np.zeros(residuals.shape[1:], dtype=int)
    value = np.where(np.isnan(residuals[0]), np.inf, residuals[0])
    for i, candidate in enumerate(residuals[1:], start=1):
        better = candidate < 0.98 * value - 1e-12
        best, value = np.where(better, i, best), np.where(better, candidate, value)
    return best


def batch_means(gram: Gram, start: int, stop: int) -> np.ndarray:
    """Average columns ``start`` to ``stop`` of the Gram over each batch: [batch, population, rung, column]."""
    return np.asarray(gram.first)[..., start:stop] / np.asarray(gram.number)[:, None, None, None]


def mean_zero(gram: Gram, size: int, ess: np.ndarray) -> tuple[np.ndarray, float]:
    """Test that the averages of the first ``size`` features are zero within their errors.

    They are not where the density jumps at the border of its support, or where gradients are wrong: control variates
    would then shift the answer, and no variance would show it. Where chains mix slowly, control variates help. So the
    error is at least that of ``ess / 2`` independent draws, because g, nearly quadratic, forgets twice as fast as the
    linear features. The variance is at least that under a normal density: features are skewed, and draws that miss
    their tail have a mean off zero and too small a variance.

    Args:
        gram: sums of features.
        size: number of features to test.
        ess: [rung], effective number of draws of all populations.

    Returns:
        As `largest_z`.
    """
    features = slice(1 + TARGETS, 1 + TARGETS + size)
    means = batch_means(gram, features.start, features.stop)
    second = np.asarray(gram.second)
    n = second[:, :, 0, 0].sum(axis=0)[:, None]
    square = np.einsum("frii->ri", second[:, :, features, features])
    variance = square / n - (second[:, :, features, 0].sum(axis=0) / n) ** 2
    return largest_z(means, 2 * np.maximum(variance, 1.0) / ess[:, None])


def largest_z(means: np.ndarray, floor: np.ndarray, level: float = 1e-3) -> tuple[np.ndarray, float]:
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
