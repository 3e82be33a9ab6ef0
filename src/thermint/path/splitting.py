"""Find the modes among draws: split them in two as long as two normals fit held-out draws better than one."""

from __future__ import annotations

from itertools import count

import numpy as np
from scipy import special

from thermint.path.coordinates import moments
from thermint.path.mixture import Mixture, make_mixture

MAX_COMPONENTS = 8  # each has features of its own, and a banana or a funnel would take ever more
NON_NORMAL = 3.0  # mean square of the whitened score from which a split is tried; two modes 3 sd apart have it
MIN_VARIANCE = 0.05  # of a mode, relative to that of all draws: short chains look too narrow
MIN_SPLIT_GAIN = 0.1  # nats a draw by which another component must improve the held-out fit
FIRST_STEPS = 5  # of expectation and maximisation from each start, before the best goes on


def find_modes(x: np.ndarray, score: np.ndarray, half: np.ndarray, room: int = MAX_COMPONENTS) -> np.ndarray:
    """Label every draw with the mode it belongs to, by splitting in two again and again.

    In coordinates where the draws have unit covariance, the mean square of the score is one for a normal density and
    larger for all others. It is large where modes are far apart. Where one of them has few draws, these lie far from
    all others, and their scores point away from there, as in no tail. Only then is a split tried.

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
    (mean,), (cholesky,) = moments(x[None])
    z, u = np.linalg.solve(cholesky, (x - mean).T).T, score @ cholesky
    known = not np.isnan(score).any()
    smooth = known and np.linalg.eigvalsh(u.T @ u / n)[-1] < NON_NORMAL * (1 + np.sqrt(d / n)) ** 4
    outlying = np.sum(z**2, axis=1) > NON_NORMAL * special.chdtri(d, 1 / n)  # three times the largest normal one
    if smooth and not np.any(np.sum(z * u, axis=1)[outlying] > 0):
        return whole
    side = split(z, half)
    if side is None:
        return whole
    labels = whole
    for part in (0, 1):
        those = side == part
        taken = labels.max() + 1 if part else 0
        labels[those] = taken + find_modes(x[those], score[those], half[those], room - 1 if part == 0 else room - taken)
    return np.unique(labels, return_inverse=True)[1]


def split(z: np.ndarray, half: np.ndarray) -> np.ndarray | None:
    """Split whitened draws z[n, d] in two, 0 and 1: [n].

    None unless that fits held-out halves better and both have a volume: some draws may be copies of others.
    """

    def gain(train: np.ndarray, test: np.ndarray) -> float:
        one, two = fit_normals(train, np.ones((len(train), 1))), fit_two(train)
        return responsibilities(two, test)[1] - responsibilities(one, test)[1]

    if np.mean([gain(z[half == i], z[half != i]) for i in (0, 1)]) < MIN_SPLIT_GAIN:
        return None
    side = responsibilities(fit_two(z), z)[0].argmax(axis=1)
    distinct = min(len(np.unique(z[side == part], axis=0)) for part in (0, 1))
    return side if distinct > z.shape[1] else None


def fit_two(z: np.ndarray) -> Mixture:
    """Fit two normals to draws z[n, d] by expectation and maximisation: a few steps from many starts, then the best."""
    # A mode of few draws is easily missed: start once from the draw that is farthest from all.
    starts = [np.stack([np.zeros(z.shape[1]), z[np.argmax(np.sum(z**2, axis=1))]])]
    random = np.random.default_rng(0)
    for one in z[random.integers(len(z), size=MAX_COMPONENTS + 1)]:
        edges = np.cumsum(np.sum((z - one) ** 2, axis=1))  # another is the likelier the farther it is
        starts.append(np.stack([one, z[np.searchsorted(edges, random.random() * edges[-1])]]))
    nearest = [np.argmin(np.sum((z[:, None] - start) ** 2, axis=2), axis=1) for start in starts]
    fits = [_improve(fit_normals(z, np.eye(2)[label]), z, FIRST_STEPS) for label in nearest]
    return _improve(max(fits, key=lambda one: responsibilities(one, z)[1]), z)


def _improve(mixture: Mixture, z: np.ndarray, steps: int | None = None) -> Mixture:
    """Make some steps of expectation and maximisation, or as many as still gain a little."""
    before = -np.inf
    for _ in count() if steps is None else range(steps):
        share, fits = responsibilities(mixture, z)
        if fits - before < MIN_SPLIT_GAIN / 100:
            break
        mixture, before = fit_normals(z, share), fits
    return mixture


def responsibilities(mixture: Mixture, z: np.ndarray) -> tuple[np.ndarray, float]:
    """Probability that z[n, d] is of each normal component, [n, component], and mean log density but for a constant."""
    log_scale, square = log_scale_and_square(mixture, z)
    each = log_scale - square / 2
    total = special.logsumexp(each, axis=1, keepdims=True)
    return np.exp(each - total), float(total.mean())


def log_scale_and_square(mixture: Mixture, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log weight minus log scale, and squared whitened length, of draws x[n, d]: both [n, component]."""
    whitened = (x - np.asarray(mixture.mean)[:, None]) @ np.asarray(mixture.whitening).mT  # [component, n, d]
    log_scale = np.log(np.einsum("kii->ki", mixture.cholesky)).sum(axis=1)
    square = np.sum(whitened**2, axis=2).T
    return np.broadcast_to(mixture.log_weight - log_scale, square.shape), square


def fit_normals(z: np.ndarray, share: np.ndarray) -> Mixture:
    """Make a mixture of normals with the moments of z[n, d], each of which belongs to them in share[n, component]."""
    total = share.sum(axis=0) + np.finfo(float).tiny
    mean = share.T @ z / total[:, None]
    away = z - mean[:, None]  # [component, n, d]
    covariance = away.mT @ (share.T[..., None] * away) / total[:, None, None] + MIN_VARIANCE * np.eye(z.shape[1])
    return make_mixture(total / total.sum(), mean, covariance)
