"""Places where the posterior is much narrower than on the whole, such as the neck of a funnel."""

from __future__ import annotations

import numpy as np
from scipy import special

from thermint.path.coordinates import RungMoments

# Measured: 1 to 2.5 where the evidence came out right, but 12 for a banana; 2 to 7 for eight schools, centred.
NARROW = 3.0


def narrowness(score: np.ndarray, frame: RungMoments) -> np.ndarray:
    """Mean square of the score by coordinate, [d]: how much narrower a posterior is in places than on the whole.

    In coordinates where the components of the reference have, on average, unit covariance, it is 1 for normal ones
    that are alike, and large where scores are: in places that are narrow, such as the neck of a funnel.

    Args:
        score: of the posterior, at draws from it or from rungs close to it, [..., d].
        frame: built from the reference.
    """
    weight, factor = special.softmax(np.asarray(frame.log_weight)[-1]), np.asarray(frame.cholesky)[-1]
    covariance = np.einsum("k,kij->ij", weight, factor @ factor.mT)
    d = score.shape[-1]
    return np.mean((score.reshape(-1, d) @ np.linalg.cholesky(covariance)) ** 2, axis=0)


def narrow_warnings(narrowness: np.ndarray, names: tuple[str, ...]) -> list[str]:
    """Warn where the posterior is much narrower in some places than on the whole."""
    if narrowness.mean() < NARROW:
        return []
    return [
        "the posterior is much narrower in some places than on the whole: its scores are "
        f"{np.sqrt(narrowness.mean()):.2g} times what its width suggests, most of all in "
        f"{names[int(narrowness.argmax())]!r}. Steps that suit the whole hardly enter such places, and what is there "
        "may be missing from the evidence. If a scale of a hierarchy may come near zero, write its effects non-centred "
        "(effect = mean + scale * standard normal). If the posterior is only curved, runs with other seeds will agree."
    ]
