"""Coefficients shared along the ladder, for few draws a rung.

The coefficients of neighbouring rungs are close: in coordinates whitened at every rung, and in units of the target's
deviation there, each is a smooth function of the rung's number, which on a good ladder measures the distance along the
path. So a polynomial in it is fitted to all rungs at once,

    minimise  sum over rungs i of  |target_i / deviation_i - sum_k P_k(i) w_i . c_k|^2  +  ridge |c|^2,

with as many unknowns as features times orders, and draws of all rungs to determine them. What it misses at a rung, its
own draws may add, shrunk to nothing by a ridge of their own. All of it is cross-fitted: folds are the same stretches of
time at every rung, so that nothing held out is seen through a swap either.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.polynomial import legendre
from scipy.linalg import lapack

from thermint.control.coefficients import Controlled, first_good, variances
from thermint.control.gram import TARGETS, Gram
from thermint.runtime.linalg import one_thread

ORDERS = (1, 2, 4, 8)  # of the polynomials that are tried: numbers of their coefficients
RIDGES = (1e-3, 1e-1, 1.0)  # on the coefficients, relative to the features' variances
OWN_RIDGES = (1.0, 1e-1, 1e-3)  # on what a rung adds
MOST_UNKNOWNS = 1000
SCALE_ORDER = 5  # of the curve through the logarithms of the targets' deviations


def share(
    gram: Gram, sizes: tuple[int, ...], own: Controlled, own_ridges: tuple[float, ...] = OWN_RIDGES
) -> Controlled:
    """Offer every rung coefficients that are shared with the others, to take if they predict held-out draws better.

    Args:
        gram: sums of features.
        sizes: number of features of degree 0, 1, 2, ..., all leading blocks of the same Gram.
        own: what each rung makes of its own draws, cross-fitted.
        own_ridges: on what a rung adds to the shared curve; if none, nothing is added.
    """
    if sizes[-1] == 0 or len(own.residual) < 3:
        return own
    first, second = np.asarray(gram.first), np.asarray(gram.second)
    total = second.sum(axis=0)
    rungs, targets = np.indices(own.residual.shape)
    with one_thread():
        S, b, variance = _moments(total - second, sizes[-1])
        phis, degrees, residuals = [np.zeros_like(b)], [0], [own.variance]
        for degree, size in enumerate(sizes[1:], start=1):
            for phi in _smooth(S[..., :size, :size], b[..., :size, :], variance):
                phis.append(np.zeros_like(b))
                phis[-1][..., :size, :] = phi
                degrees.append(degree)
                residuals.append(_held_out(first, second, phis[-1])[1])
        best = first_good(np.stack(residuals))
        curve = np.moveaxis(np.stack(phis)[best, :, rungs, :, targets], (0, 1), (1, 3))  # [fold, rung, feature, target]
        used = np.array(degrees)[best]
        offers = [(own.mean, own.residual, own.degree)]
        for ridge in (np.inf, *own_ridges):
            phi = curve if ridge == np.inf else curve + _deviation(S, b - S @ curve, ridge)
            sums, residual = _held_out(first, second, phi)
            degree_used = used if ridge == np.inf else np.full_like(used, len(sizes) - 1)
            offers.append((sums / np.asarray(gram.number)[:, None, None, None], residual, degree_used))
    mean, residual, degree_of = (np.stack(part) for part in zip(*offers, strict=True))
    best = first_good(residual)
    return Controlled(
        np.moveaxis(mean[best, :, :, rungs, targets], (0, 1), (2, 3)),
        own.variance,
        residual[best, rungs, targets],
        degree_of[best, rungs, targets],
        own.coefficients,
    )


def _moments(second: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Covariances of features, and with targets, and variances of these: [fold, rung, ...] from cross-products."""
    features, targets = slice(1 + TARGETS, 1 + TARGETS + size), slice(1, 1 + TARGETS)
    n = second[..., :1, :1]
    mean = second[..., :1, :] / n
    S = second[..., features, features] / n - mean[..., features].mT * mean[..., features]
    b = second[..., features, targets] / n - mean[..., features].mT * mean[..., targets]
    return S, b, variances(second)


def _held_out(first: np.ndarray, second: np.ndarray, phi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sums of controlled targets, [batch, population, rung, target], and their variances, [rung, target]."""
    folds, rungs, size, _ = phi.shape
    fold = np.arange(len(first)) * folds // len(first)
    features, block = slice(1 + TARGETS, 1 + TARGETS + size), slice(1, 1 + TARGETS + size)
    controlled = first[..., 1 : 1 + TARGETS] - np.einsum("bprf,brft->bprt", first[..., features], phi[fold])
    form = np.concatenate([np.broadcast_to(np.eye(TARGETS), (folds, rungs, TARGETS, TARGETS)), -phi], axis=2)
    square = np.sum(form * (second[..., block, block] @ form), axis=(0, 2))
    draws = second[..., 0, 0].sum(axis=0)[:, None]
    return controlled, np.maximum(square / draws - (controlled.sum(axis=(0, 1)) / draws) ** 2, 0.0)


def _smooth(S: np.ndarray, b: np.ndarray, variance: np.ndarray) -> Iterator[np.ndarray]:
    """Fit polynomials along the ladder: coefficients [fold, rung, feature, target] for each order and ridge."""
    folds, rungs, size, _ = S.shape
    place = np.linspace(-1, 1, rungs)
    scale = np.stack([_curve(place, one) for one in variance])
    inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
    orders = [k for k in ORDERS if k < rungs and k * size <= MOST_UNKNOWNS] or [1]
    # Orthonormal over the rungs; those of a lower order come first, so that it is a leading block of the equations.
    P = np.linalg.qr(legendre.legvander(place, orders[-1] - 1))[0]
    # Features have variance one under a normal density; where they have not, in units that all rungs and folds share.
    unit = np.sqrt(np.einsum("frii->i", S) / (folds * rungs))[:, None]
    unit[unit == 0] = 1.0
    products = (P[:, :, None] * P[:, None, :]).reshape(rungs, -1).T
    phi = np.zeros((len(orders), len(RIDGES), *b.shape))
    for f in range(folds):
        A = (products @ (S[f] / (unit * unit.T)).reshape(rungs, -1)).reshape(orders[-1], orders[-1], size, size)
        A = A.transpose(0, 2, 1, 3).reshape(orders[-1] * size, -1)
        right = np.einsum("rk,rpt->kpt", P, b[f] / unit * inverse[f][:, None]).reshape(-1, TARGETS)
        for i, order in enumerate(orders):
            for j, ridge in enumerate(RIDGES):
                c = _solve(A[: order * size, : order * size], right[: order * size], ridge).reshape(order, size, -1)
                phi[i, j, f] = np.einsum("rk,kpt->rpt", P[:, :order], c) * scale[f][:, None] / unit
    yield from phi.reshape(-1, *b.shape)


def _curve(place: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Smooth the targets' deviations along the ladder, [rung, target]; those that are zero stay so."""
    scale = np.sqrt(np.maximum(variance, 0.0))
    for column in scale.T:
        some = column > 1e-10 * column.max()
        order = min(SCALE_ORDER, int(some.sum()) - 1)
        if order > 0:
            logs = legendre.legfit(place[some], np.log(column[some]), order - 1)
            column[some] = np.exp(legendre.legval(place[some], logs))
    return scale


def _deviation(S: np.ndarray, b: np.ndarray, ridge: float) -> np.ndarray:
    """Fit every rung by itself, [fold, rung, feature, target], in units of its own features' deviations."""
    unit = np.sqrt(np.maximum(np.einsum("frii->fri", S), 0.0))[..., None]
    unit[unit == 0] = 1.0
    phi = np.empty_like(b)
    for index in np.ndindex(S.shape[:2]):
        u = unit[index]
        phi[index] = _solve(S[index] / (u * u.T), b[index] / u, ridge) / u
    return phi


def _solve(A: np.ndarray, b: np.ndarray, ridge: float) -> np.ndarray:
    """Solve (A + ridge) x = b for a symmetric A; NaN where that is not positive definite."""
    A = A.copy()
    A.flat[:: len(A) + 1] += ridge
    _, x, failure = lapack.dposv(A.T, b, overwrite_a=True)
    return np.full_like(b, np.nan) if failure else x
