"""Which modes short chains from everywhere have found, and which of these later draws have missed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from thermint.path.coordinates import moments
from thermint.path.fitting import MAX_DRAWS
from thermint.runtime.store import storable

FAR = 2.0  # standard deviations of the draws, or distances between neighbours among them, from other modes
LEAST_LOG_SHARE = -5.0  # of the posterior, that a missed mode seems to have: less would shift log Z by under 0.01
MAX_MEAN_SCORE = 1.5  # of a chain in a mode, in units of its width; 0 but for its correlated draws


@storable
class Chains(NamedTuple):
    """Short chains at t = 1 that come from everywhere."""

    position: np.ndarray  # [chain, draw, d]
    score: np.ndarray  # likewise
    log_density: np.ndarray  # of likelihood times prior, average of each chain, [chain]

    @property
    def width(self) -> np.ndarray:
        """Standard deviations of each chain, [chain, d]."""
        return np.maximum(self.position.std(axis=1), 1e-300)

    @property
    def is_stationary(self) -> np.ndarray:
        """Which chains are in a mode, [chain]: scores average to nothing there, and not on the way out of a tail."""
        return np.abs(self.width * self.score.mean(axis=1)).max(axis=1) < MAX_MEAN_SCORE

    def take(self, chosen: np.ndarray) -> Chains:
        """Take the chosen chains."""
        return Chains(self.position[chosen], self.score[chosen], self.log_density[chosen])


def missed_modes(chains: Chains, found: np.ndarray) -> Chains:
    """Return the chains in modes where none of the draws found[..., d] is, though the posterior has a share there.

    A mode is another one if it is far from the nearest draw. Its share is judged as if all modes were normal: by its
    average density and its volume, as the chains show them. Chains on their way out of a tail do not count.
    """
    draws, d = chains.position.shape[1:]
    x = np.unique(found.reshape(-1, d), axis=0)
    x = x[:: -(-len(x) // MAX_DRAWS)]
    whitening = np.linalg.inv(moments(x[None])[1][0])
    tree = cKDTree(x @ whitening.T)
    usual = np.quantile(np.asarray(tree.query(tree.data, k=2)[0])[:, 1], 0.99)
    thinned = chains.position[:, :: -(-draws // 5)]
    away = np.median(tree.query(thinned @ whitening.T)[0], axis=1) > FAR * max(usual, 1.0)
    if not away.any() or away.all():
        return chains.take(np.zeros_like(away))
    log_share = chains.log_density + np.log(chains.width).sum(axis=1)
    return chains.take(away & chains.is_stationary & (log_share > log_share[~away].max() + LEAST_LOG_SHARE))


def drop_transient(chains: Chains) -> Chains:
    """Drop the chains that are still on their way out of a tail; none, unless most are stationary.

    On their way are those that are not stationary, and lower than most that are. One that is higher has found a narrow
    mode, where its steps are too long.
    """
    is_stationary = chains.is_stationary
    if is_stationary.mean() < 0.5:
        return chains
    return chains.take(is_stationary | (chains.log_density > np.median(chains.log_density[is_stationary])))
