"""Fit a mixture to draws of the posterior: by score regression, one component for each mode that is found."""

from __future__ import annotations

import numpy as np
from scipy import special

from thermint.path.coordinates import moments
from thermint.path.mixture import Mixture, log_constant, make_mixture
from thermint.runtime.linalg import one_thread

MOST_COMPONENTS = 8
MOST_DRAWS = 4000  # that a fit looks at
WIDENINGS = (1.0, 1.1, 1.2, 1.35, 1.6, 2.0, 3.0)  # of the covariance
MARGIN = 1.1  # of the covariance, beyond what fits best: a path prefers a start that is too wide to one too narrow
FREEDOMS = (None, 30, 15, 8, 5)  # degrees of freedom of a Student-t; None is the normal; fewer overflow on log scales
NORMAL_ENOUGH = 3.0  # mean square of the whitened score, up to which no split is tried; modes 3 s.d. apart have it
OUTLYING = 2.0  # squared whitened length of a draw, relative to the largest of so many normal ones, likewise
SMALLEST = 0.05  # variance of a mode, relative to all draws', in the search for modes: short chains look too narrow
MIN_SPLIT_GAIN = 0.1  # nats a draw by which another component must improve the held-out fit
RANDOM_STARTS = 9  # of expectation and maximisation
FIRST_STEPS = 5  # from each of them
MOST_STEPS = 100
EM_TOL = 1e-3  # nats a draw, where they end


def fit(position: np.ndarray, score: np.ndarray | None) -> Mixture:
    """Fit a mixture to draws of the posterior, [chain, draw, d], and the gradients of its log density there, if known.

    The draws' halves are held out in turn to choose how many components there are, how wide they are and how heavy
    their tails: what fits draws that it was not fitted to best.
    """
    with one_thread():
        return _fit(position, np.full_like(position, np.nan) if score is None else score)


def _fit(position: np.ndarray, score: np.ndarray) -> Mixture:
    chains, number, d = position.shape
    if number < 2:
        raise ValueError(
            "a reference is fitted to one half of the draws and judged by the other: give at least 2 draws."
        )
    thinning = -(-chains * number // MOST_DRAWS)
    halves = [slice(0, number // 2, thinning), slice(number // 2, number, thinning)]
    x = [position[:, half].reshape(-1, d) for half in halves]
    s = [score[:, half].reshape(-1, d) for half in halves]
    both, scores = np.concatenate(x), np.concatenate(s)
    edge = len(x[0])
    labels = _modes(both, scores, (np.arange(len(both)) >= edge).astype(int))
    components = labels.max() + 1
    held_out = [
        _log_components(make_mixture(*_moments(x[fitted], s[fitted], labels[half], components)), x[1 - fitted])
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
    choices = [(held_out_fit(w, f) - (0.01 if f else 0.0), w, f) for f in FREEDOMS for w in WIDENINGS]
    _, widening, dof = max(choices, key=lambda choice: choice[0])
    weight, mean, covariance = _moments(both, scores, labels, components)
    return make_mixture(weight, mean, MARGIN * widening * _variance_to_scale(dof) * covariance, dof)


def _variance_to_scale(dof: int | None) -> float:
    """Square of the scale of a normal or Student-t variable of variance 1."""
    return 1.0 if dof is None else (dof - 2) / dof


def _log_components(mixture: Mixture, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log weight minus log scale [n, component], and squared whitened length [n, component], of draws x[n, d]."""
    whitened = (x - np.asarray(mixture.mean)[:, None]) @ np.asarray(mixture.whitening).mT  # [component, n, d]
    log_scale = np.log(np.einsum("kii->ki", mixture.cholesky)).sum(axis=1)
    square = np.sum(whitened**2, axis=2).T
    return np.broadcast_to(mixture.log_weight - log_scale, square.shape), square


def _moments(
    x: np.ndarray, score: np.ndarray, labels: np.ndarray, components: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights, means and covariances of the draws with each label; one without draws is like all of them together."""
    chosen = [labels == k if np.any(labels == k) else np.full(len(labels), True) for k in range(components)]
    # A mode that few draws have found so far may have any weight: none starts with too little to be visited.
    weight = np.bincount(labels, minlength=components) + (0.05 * len(x) if components > 1 else 0.0)
    mean, covariance = zip(*(_normal(x[those], score[those]) for those in chosen), strict=True)
    return weight / weight.sum(), np.stack(mean), np.stack(covariance)


def _normal(x: np.ndarray, score: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of draws x[n, d], with the help of their scores.

    The score of a normal density is a linear function of the position, whose slope is minus the precision: regression
    finds both moments exactly from 2 d draws. For other densities, E[x s'] = -I makes it consistent too. Draws that are
    fewer shrink the covariance to its diagonal, and the slope to that covariance's.
    """
    n, d = x.shape
    (mean,), (factor,) = moments(x[None])
    if np.isnan(score).any():  # not known
        return mean, factor @ factor.T
    z, u = np.linalg.solve(factor, (x - mean).T).T, score @ factor
    du = u - u.mean(axis=0)
    cross = du.T @ z / n
    ridge = (0.1 * d / n if n < 2 * (d + 1) else 1e-9) * np.eye(d)
    slope = np.linalg.solve(ridge + z.T @ z / n, (ridge - cross).T)
    eigenvalue, vector = np.linalg.eigh((slope + slope.T) / 2)
    root = factor @ (vector / np.sqrt(np.clip(eigenvalue, 0.2, 5.0)))
    # The mean score is zero but for chance, and so is what it explains of the mean position.
    shift = (ridge - cross).T @ np.linalg.solve(ridge + du.T @ du / n, u.mean(axis=0))
    return mean + factor @ shift, root @ root.T


def _modes(x: np.ndarray, score: np.ndarray, half: np.ndarray, room: int = MOST_COMPONENTS) -> np.ndarray:
    """Label every draw with the mode it belongs to, by splitting in two as long as that fits held-out draws better.

    In coordinates where the draws have unit covariance, the mean square of the score is at least one in every direction
    and is one for a normal density only. Where modes are far apart it is large; where one of them has few draws, these
    lie far from all others and the score of some points away from there, as in no tail. Only then is a split tried.

    Args:
        x: draws, [n, d].
        score: of these draws, likewise.
        half: which half of a run each draw is from, 0 or 1: [n].
        room: number of modes not to exceed.
    """
    n, d = x.shape
    whole = np.zeros(n, dtype=int)
    if room == 1 or min(np.sum(half == 0), np.sum(half == 1)) < 4 * (d + 1):
        return whole
    (mean,), (factor,) = moments(x[None])
    z, u = np.linalg.solve(factor, (x - mean).T).T, score @ factor
    known = not np.isnan(score).any()
    smooth = known and np.linalg.eigvalsh(u.T @ u / n)[-1] < NORMAL_ENOUGH * (1 + np.sqrt(d / n)) ** 4
    outlying = np.sum(z**2, axis=1) > OUTLYING * special.chdtri(d, 1 / n)
    if smooth and not np.any(np.sum(z * u, axis=1)[outlying] > 0):
        return whole
    side = _split(z, half)
    if side is None:
        return whole
    labels = whole
    for part in (0, 1):
        those = side == part
        taken = labels.max() + 1 if part else 0
        labels[those] = taken + _modes(x[those], score[those], half[those], room - 1 if part == 0 else room - taken)
    return np.unique(labels, return_inverse=True)[1]


def _split(z: np.ndarray, half: np.ndarray) -> np.ndarray | None:
    """Split whitened draws z[n, d] in two, 0 and 1: [n].

    None unless that fits held-out halves better and both have a volume: some draws may be copies of others.
    """

    def gain(train: np.ndarray, test: np.ndarray) -> float:
        one, two = _normals(train, np.ones((len(train), 1))), _in_two(train)
        return _responsibilities(two, test)[1] - _responsibilities(one, test)[1]

    if np.mean([gain(z[half == i], z[half != i]) for i in (0, 1)]) < MIN_SPLIT_GAIN:
        return None
    side = _responsibilities(_in_two(z), z)[0].argmax(axis=1)
    distinct = min(len(np.unique(z[side == part], axis=0)) for part in (0, 1))
    return side if distinct > z.shape[1] else None


def _in_two(z: np.ndarray) -> Mixture:
    """Fit two normals to draws z[n, d] by expectation and maximisation: a few steps from many starts, then the best."""
    # A mode of few draws is easily missed: start once from the draw that is farthest from all.
    starts = [np.stack([np.zeros(z.shape[1]), z[np.argmax(np.sum(z**2, axis=1))]])]
    random = np.random.default_rng(0)
    for one in z[random.integers(len(z), size=RANDOM_STARTS)]:
        edges = np.cumsum(np.sum((z - one) ** 2, axis=1))  # another is the likelier the farther it is
        starts.append(np.stack([one, z[np.searchsorted(edges, random.random() * edges[-1])]]))
    nearest = [np.argmin(np.sum((z[:, None] - start) ** 2, axis=2), axis=1) for start in starts]
    fits = [_improve(_normals(z, np.eye(2)[label]), z, FIRST_STEPS) for label in nearest]
    return _improve(max(fits, key=lambda one: _responsibilities(one, z)[1]), z, MOST_STEPS)


def _improve(mixture: Mixture, z: np.ndarray, steps: int) -> Mixture:
    """Make so many steps of expectation and maximisation, unless the fit stays the same before."""
    before = -np.inf
    for _ in range(steps):
        share, fits = _responsibilities(mixture, z)
        if fits - before < EM_TOL:
            break
        mixture, before = _normals(z, share), fits
    return mixture


def _responsibilities(mixture: Mixture, z: np.ndarray) -> tuple[np.ndarray, float]:
    """Probability that z[n, d] is of each normal component, [n, component], and mean log density but for a constant."""
    log_scale, square = _log_components(mixture, z)
    each = log_scale - square / 2
    total = special.logsumexp(each, axis=1, keepdims=True)
    return np.exp(each - total), float(total.mean())


def _normals(z: np.ndarray, share: np.ndarray) -> Mixture:
    """Make a mixture of normals with the moments of z[n, d], each of which belongs to them in share[n, component]."""
    number = share.sum(axis=0) + np.finfo(float).tiny
    mean = share.T @ z / number[:, None]
    away = z - mean[:, None]  # [component, n, d]
    covariance = away.mT @ (share.T[..., None] * away) / number[:, None, None] + SMALLEST * np.eye(z.shape[1])
    return make_mixture(number / number.sum(), mean, covariance)
