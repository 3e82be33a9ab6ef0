"""R-hat, effective sample sizes, and means that must rise with t."""

from __future__ import annotations

import numpy as np
import pandas as pd

MAX_R_HAT = 1.05  # the classical 1.1 is lax; 1.01 (Vehtari et al., 2021) is exceeded by chance at one of many rungs
MIN_ESS = 50  # the standard error itself is then known to 10 %, as 1 / sqrt(2 n)


def convergence(g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Effective sample size for the mean, and split R-hat, of the log likelihood at every rung, by arviz-stats.

    Args:
        g: log likelihood, [population, draw, rung].
    """
    from arviz_stats.base import array_stats

    ess, r_hat = np.full(g.shape[2], float(g.shape[0] * g.shape[1])), np.ones(g.shape[2])
    moves = np.ptp(g, axis=(0, 1)) > 0  # g may not depend on the parameters at all
    if moves.any():
        chains = np.moveaxis(g[..., moves], 2, 0)  # [rung, population, draw]
        half = g.shape[1] // 2
        halves = np.concatenate([chains[:, :, :half], chains[:, :, -half:]], axis=1)
        ess[moves] = array_stats.ess(chains, chain_axis=1, draw_axis=2, method="mean")
        r_hat[moves] = array_stats.rhat(halves, chain_axis=1, draw_axis=2, method="identity")
    return ess, r_hat


def convergence_warnings(rungs: pd.DataFrame) -> list[str]:
    """Warn of rungs whose populations do not agree, or that have few independent draws."""
    found = []
    bad = np.flatnonzero(rungs["r_hat"] > MAX_R_HAT)
    if len(bad):
        worst = int(np.nanargmax(rungs["r_hat"]))
        found.append(
            f"not converged: R-hat of the log likelihood exceeds {MAX_R_HAT} at {rung_names(bad)} (largest "
            f"{rungs['r_hat'].max():.2f} at rung {worst}), so different populations, or the two halves of one, "
            "do not agree yet and the error may be too small. Increase draws."
        )
    bad = np.flatnonzero(rungs["ess"] < MIN_ESS)
    if len(bad):
        found.append(
            f"few independent draws: the log likelihood has an effective sample size of {rungs['ess'].min():.0f} at "
            f"rung {int(np.nanargmin(rungs['ess']))}, and below {MIN_ESS} at {rung_names(bad)}, so the error itself is "
            "uncertain. Increase draws."
        )
    return found


def monotone_warnings(rungs: pd.DataFrame) -> list[str]:
    """Warn where the mean log likelihood falls: its derivative with respect to t is a variance."""
    mean, error = rungs["mean"].to_numpy(), rungs["error"].to_numpy()
    drop = mean[:-1] - mean[1:]
    bad = np.flatnonzero(drop > 5 * np.hypot(error[1:], error[:-1]) + 1e-9 * np.abs(mean[1:]))
    if not len(bad):
        return []
    return [
        f"the mean log likelihood falls from rung {bad[0]} to rung {bad[0] + 1} by {drop[bad[0]]:.3g}, more than "
        "five standard errors, although it must rise with t: these rungs have not converged. Increase draws."
    ]


def rung_names(indices: np.ndarray) -> str:
    """Name rungs: 'rung 3', 'rungs 3, 4, 7' or '12 rungs from 3 to 20'."""
    if len(indices) == 1:
        return f"rung {indices[0]}"
    if len(indices) <= 5:
        return "rungs " + ", ".join(map(str, indices))
    return f"{len(indices)} rungs between {indices[0]} and {indices[-1]}"
