"""The multistate Bennett acceptance ratio (MBAR): all normalising constants from all draws together.

Were the draws of all K rungs, equally many, thrown together, a draw with log likelihood g would come from rung k with
probability

    w_k(g) = exp(t_k g - log Z_k) / sum_j exp(t_j g - log Z_j).

MBAR chooses the log Z_k so that these add up to the number of draws that did come from rung k, mean w_k = 1/K: the
maximum of a concave likelihood, that of a logistic regression of the rung on g. There is no quadrature error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.polynomial import chebyshev

from thermint.estimators.base import CannotEstimateError, Ratios
from thermint.estimators.stepping_stone import batch_means, bridge
from thermint.path.ladders import Ladder
from thermint.path.quadrature import Rule

# The weights are analytic in a strip of half-width pi around the interval, whose half-length is a half: by Bernstein's
# ellipse, the error falls by RHO with each node, here to rounding.
RHO = 2 * np.pi + np.hypot(2 * np.pi, 1)
NODES = 1 + int(np.ceil(-np.log(np.finfo(float).eps) / np.log(RHO)))
TOLERANCE = np.sqrt(np.finfo(float).eps)  # of the last Newton step, whose square is about the error that it leaves
BLOCK = 4096  # points that are worked on at a time, so that they stay in the processor's cache
MAX_STEPS = 50  # of Newton, each of which squares the error; ten are usual, and more mean that rungs do not overlap

_NODE = chebyshev.chebpts1(NODES)  # [node]
_COEFFICIENTS = chebyshev.chebvander(_NODE, NODES - 1).T * np.append(1.0, np.full(NODES - 1, 2.0))[:, None] / NODES


def mbar(g: np.ndarray, ladder: Ladder, batches: int) -> Ratios:
    """Estimate the log normalising constants of all rungs.

    Args:
        g: log likelihood, [population, draw, rung].
        ladder: inverse temperatures.
        batches: number of blocks of consecutive draws, for the error.

    Raises:
        CannotEstimateError: the draws do not determine the constants, because neighbouring rungs hardly overlap.
    """
    centre = np.median(g[..., -1])  # a shift of g that keeps t g - log Z small
    draws = _condense((g - centre).ravel())
    moments = partial(_moments, draws.point, draws.weight / g.size, ladder)
    start = bridge(g - centre, ladder, batches).log_z
    log_z, overlap, converged = _newton(lambda log_z: moments(log_z, np.zeros_like(log_z))[:2], start)
    shared, where = _weakest(overlap, ladder)
    if not converged:
        raise CannotEstimateError(f"MBAR has not converged: {where}")
    if shared * g.size < 1:  # one over this is about the least that the variance of log Z can be
        raise CannotEstimateError(f"MBAR cannot tell the normalising constants from these draws: {where}")

    # To first order log Z - truth = curvature^-1 (mean w - 1/K); its last entry is the mean of direction @ w.
    direction = _solve(_curvature(overlap), np.eye(len(ladder))[-1])
    influence = _at_draws(draws, moments(log_z, direction)[2])
    log_z = log_z + centre * ladder
    return Ratios(float(log_z[-1]), batch_means(influence.reshape(g.shape).mean(axis=-1), batches), log_z)


def reweighted(g: np.ndarray, log_z: np.ndarray, ladder: Ladder, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Estimate E_t[g] and V_t[g] at any t from the draws of all rungs together, each [m].

    Args:
        g: log likelihood, [population, draw, rung]; a thinned trace will do.
        log_z: [rung], from `mbar`.
        ladder: inverse temperatures.
        t: [m], where to estimate.
    """
    centre = np.median(g[..., -1])
    y = (g - centre).ravel()
    mixture = log_mixture(y, log_z - centre * ladder, ladder)

    def mean_and_variance(t: float) -> tuple[float, float]:
        log_weight = t * y - mixture
        weight = np.exp(log_weight - log_weight.max())
        weight /= weight.sum()
        mean = np.sum(weight * y)
        return mean + centre, np.sum(weight * (y - mean) ** 2)

    mean, variance = np.array([mean_and_variance(one) for one in t]).reshape(-1, 2).T
    return mean, variance


def log_mixture(g: np.ndarray, log_z: np.ndarray, ladder: Ladder) -> np.ndarray:
    """Log density, up to a constant, of the draws of all rungs thrown together, relative to the prior's: at each g."""
    total = np.full(g.shape, -np.inf)
    for t, log_z_t in zip(ladder, log_z, strict=True):
        total = np.logaddexp(total, t * g - log_z_t)
    return total


def rule_error(rule: Rule, nodes: Ladder, g: np.ndarray, log_z: np.ndarray, ladder: Ladder) -> float:
    """How far a quadrature rule is from the integral of the curve E_t[g] that draws show.

    That curve, from the draws of all rungs reweighted to t, is the derivative of the one by which MBAR estimates log Z:
    rule and integral see the same noise.

    Args:
        rule: of quadrature.
        nodes: where it integrates; need not be those of the draws.
        g: log likelihood, [population, draw, rung]; a thinned trace will do.
        log_z: [rung], from `mbar`.
        ladder: inverse temperatures of the draws.
    """
    mean, variance = reweighted(g, log_z, ladder, nodes)
    mean_weights, variance_weights = rule(nodes)
    return abs(float(mean_weights @ mean + variance_weights @ variance - log_z[-1]))


def _moments(
    point: np.ndarray, weight: np.ndarray, ladder: Ladder, log_z: np.ndarray, direction: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return E[w], [rung], E[w w'], [rung, rung], and direction @ w at every point, of points of that weight."""
    rungs = len(ladder)
    mean, second, along = np.zeros(rungs), np.zeros((rungs, rungs)), np.empty(len(point))
    for first in range(0, len(point), BLOCK):
        block = slice(first, first + BLOCK)
        w = ladder[:, None] * point[block] - log_z[:, None]
        w -= w.max(axis=0)
        np.exp(w, out=w)
        w /= w.sum(axis=0)
        mean += w @ weight[block]
        second += (weight[block] * w) @ w.T
        along[block] = direction @ w
    return mean, second, along


def _newton(
    moments: Callable[[np.ndarray], tuple[np.ndarray, ...]], log_z: np.ndarray
) -> tuple[np.ndarray, np.ndarray, bool]:
    """Solve mean w = 1/K.

    Args:
        moments: gives E[w], [rung], and E[w w'], [rung, rung], for any log_z.
        log_z: where to start.

    Returns:
        The best log_z, E[w w'] there, and whether it is the solution.
    """
    rungs = len(log_z)
    mean, overlap = moments(log_z)
    for _ in range(MAX_STEPS):
        step = _solve(_curvature(overlap), mean - 1 / rungs)
        if np.max(np.abs(step)) < TOLERANCE:
            return log_z + step, overlap, True
        mean_there, overlap_there = moments(log_z + step)
        if not np.linalg.norm(mean_there - 1 / rungs) < np.linalg.norm(mean - 1 / rungs):
            # Too far. The fixed-point iteration of mean w = 1/K is slow, but never makes the likelihood smaller.
            step = np.log(np.maximum(rungs * mean, np.finfo(float).tiny))
            step = step - step[0]
            if np.max(np.abs(step)) < TOLERANCE:  # nor does it know where to go
                break
            mean_there, overlap_there = moments(log_z + step)
        log_z, mean, overlap = log_z + step, mean_there, overlap_there
    return log_z, overlap, False


def _curvature(overlap: np.ndarray) -> np.ndarray:
    """Return minus the Hessian of the log likelihood per draw; w adds up to 1, so E[w] is in E[w w'] too."""
    return np.diag(overlap.sum(axis=0)) - overlap


def _solve(curvature: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Solve curvature @ x = right with x[0] = 0, as log Z_0 is; not finite where the curvature is singular."""
    try:
        return np.append(0.0, np.linalg.solve(curvature[1:, 1:], right[1:]))
    except np.linalg.LinAlgError:
        return np.full(len(right), np.nan)


def _weakest(overlap: np.ndarray, ladder: Ladder) -> tuple[float, str]:
    """Return the least overlap of the rungs up to i with those above, and a sentence that says where it is."""
    shared = [overlap[:i, i:].sum() for i in range(1, len(ladder))]
    i = int(np.argmin(shared))
    return shared[i], (
        f"rungs {i} and {i + 1} (t = {ladder[i]:.4g} and {ladder[i + 1]:.4g}) hardly overlap. Add rungs between them, "
        "or increase draws."
    )


# --- Millions of draws as thousands of points ---
#
# Every sum over draws here is of functions w_k, or products of two, of the scalar g. Whatever the ladder in [0, 1],
# these are analytic in the strip |Im g| < pi (the terms of the denominator all point into one half-plane), and
# |w_k| <= 1 / cos(Im g / 2). So in an interval of length 1 a polynomial of degree 15 is one of them to 1e-15, and
# any number of draws in it can be exchanged for weights at its 16 Chebyshev nodes that have the same first 16 moments.


class _Condensed(NamedTuple):
    """Points and weights that stand for draws."""

    point: np.ndarray  # first the draws that stand for themselves, then [node, interval]
    weight: np.ndarray
    crowded: np.ndarray  # [draw], whether its interval has more draws than nodes
    interval: np.ndarray  # of each such draw
    place: np.ndarray  # in it, from -1 to 1


def _condense(y: np.ndarray) -> _Condensed:
    """Exchange draws in intervals of length 1 for weighted points, wherever these are fewer."""
    floor, index, count = np.unique(np.floor(y), return_inverse=True, return_counts=True)
    many = count > NODES
    crowded, left = many[index], floor[many]
    interval = (np.cumsum(many) - 1)[index[crowded]]
    place = 2 * (y[crowded] - left[interval]) - 1
    moments = [np.bincount(interval, T, minlength=len(left)) for T in _polynomials(place)]
    point = left + (1 + _NODE[:, None]) / 2
    weight = _COEFFICIENTS.T @ np.array(moments)
    return _Condensed(
        point=np.append(y[~crowded], point),
        weight=np.append(np.ones(len(y) - len(place)), weight),
        crowded=crowded,
        interval=interval,
        place=place,
    )


def _at_draws(draws: _Condensed, value: np.ndarray) -> np.ndarray:
    """Interpolate a function known at the points, value[point], to the draws."""
    alone = len(draws.crowded) - len(draws.place)
    coefficients = _COEFFICIENTS @ value[alone:].reshape(NODES, -1)
    result = np.zeros(draws.crowded.shape)
    result[~draws.crowded] = value[:alone]
    result[draws.crowded] = sum(
        c[draws.interval] * T for c, T in zip(coefficients, _polynomials(draws.place), strict=True)
    )
    return result


def _polynomials(x: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the Chebyshev polynomials T_0(x), T_1(x), ... of degree below the number of nodes."""
    now, after, twice = np.ones_like(x), x, 2 * x
    for _ in range(NODES):
        yield now
        now, after = after, twice * after - now
