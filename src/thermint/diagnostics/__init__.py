"""What can be seen to be wrong, per rung and in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import special

from thermint.path.coordinates import RungMoments
from thermint.path.ladders import Ladder
from thermint.sampling.swaps import swap_rates as swap_rates

if TYPE_CHECKING:
    import pandas as pd

# Measured: 1 to 2.5 where the evidence came out right, but 12 for a banana; 2 to 7 for eight schools, centred.
NARROW = 3.0
FEWEST_TAIL = 100  # draws that show a tail
FEWEST_TRIPS = 5
FEW = 0.1  # of moves, or of swaps, that are accepted


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


class Tail(NamedTuple):
    """The Pareto k of a tail: moments of order 1/k and above are infinite."""

    k: float
    error: float

    def heavier_than(self, k: float) -> bool:
        """Say whether chance is unlikely to explain it."""
        return self.k - 2 * self.error > k


def tail(x: np.ndarray, ess: float) -> Tail:
    """Estimate the heavier tail of x[population, draw], by arviz-stats; ``ess`` is the effective sample size."""
    from arviz_stats.base import array_stats

    if np.ptp(x) <= 1e-12 * np.abs(x).max() or x.size < FEWEST_TAIL:
        return Tail(0.0, 0.0)
    ess = min(ess, x.size)
    with np.errstate(divide="ignore", invalid="ignore"):  # chains that hardly move have many equal values
        k = float(np.nan_to_num(array_stats.pareto_khat(x, chain_axis=0, draw_axis=1, r_eff=ess / x.size)))
    return Tail(k, (1 + max(k, 0.0)) / np.sqrt(min(ess / 5, 3 * np.sqrt(ess))))


def round_trips(last_visited_reference: np.ndarray, draws: int) -> float:
    """How often states went from the last rung to the first and back, in all populations.

    Args:
        last_visited_reference: [batch, population, rung], see `Draws`, averages of ``draws`` iterations in all.
        draws: of one population.
    """
    return float(last_visited_reference[:, :, -1].mean(axis=0).sum() * draws)


def barrier(swap_rate: np.ndarray) -> np.ndarray:
    """Share of swaps rejected, added up from the first rung, [rung]: what states must overcome on their way up.

    Its last entry is the communication barrier of the whole path, which hardly depends on the ladder; a ladder wants
    about twice as many rungs.
    """
    return np.append(0.0, np.cumsum(1 - swap_rate[:-1]))


def trip_warnings(trips: float, rungs: int) -> list[str]:
    """Say that hardly any state has travelled the whole ladder, if so; NaN, where it is not known, says nothing."""
    if rungs < 3 or not trips < FEWEST_TRIPS:
        return []
    return [
        f"states went from one end of the ladder to the other and back {trips:.0f} times in all, so that modes which "
        "are found at one end may never arrive at the other. Increase draws, or add rungs where swap rates are low."
    ]


def heavy_warning(rungs: pd.DataFrame) -> str:
    """Say that the mean log likelihood may be infinite."""
    worst = int(np.argmax(rungs["pareto_k"]))
    return (
        f"the log likelihood has such a heavy tail (Pareto k {rungs['pareto_k'].iloc[worst]:.1f} at rung {worst}) that "
        "its mean, which the integral needs, may be infinite. Use a prior with lighter tails, "
        'reference="fitted", or leave rule to the library, which then may answer by the bridge form, which needs no '
        "mean."
    )


def narrowness(score: np.ndarray, frame: RungMoments) -> np.ndarray:
    """How much narrower a posterior is in places than on the whole: mean square of its score, by coordinate, [d].

    In coordinates where the components of the reference have, on average, unit covariance, it is 1 for normal ones
    that are alike, and large where scores are: in places that are narrow, such as the neck of a funnel.

    Args:
        score: of the posterior, at draws from it or from rungs close to it, [..., d].
        frame: built from the reference.
    """
    weight, factor = special.softmax(np.asarray(frame.log_weight)[-1]), np.asarray(frame.factor)[-1]
    covariance = np.einsum("k,kij->ij", weight, factor @ factor.mT)
    d = score.shape[-1]
    return np.mean((score.reshape(-1, d) @ np.linalg.cholesky(covariance)) ** 2, axis=0)


def narrow_warnings(narrowness: np.ndarray, names: tuple[str, ...]) -> list[str]:
    """Say that the posterior is much narrower in some places than on the whole, if it is."""
    if narrowness.mean() < NARROW:
        return []
    return [
        "the posterior is much narrower in some places than on the whole: its scores are "
        f"{np.sqrt(narrowness.mean()):.2g} times what its width suggests, most of all in "
        f"{names[int(narrowness.argmax())]!r}. Steps that suit the whole hardly enter such places, and what is there "
        "may be missing from the evidence. If a scale of a hierarchy may come near zero, write its effects non-centred "
        "(effect = mean + scale * standard normal). If the posterior is only curved, runs with other seeds will agree."
    ]


def invalid_warnings(share: float) -> list[str]:
    """Say that the model could not be used at a share of the proposals, if there is one."""
    if not share:
        return []
    return [
        f"the model, or its gradient, was NaN or +inf at {share:.2%} of the proposals, which were rejected as if "
        "the likelihood were zero there. Return -inf where it is, and guard divisions, logarithms and overflow "
        "elsewhere."
    ]


def rung_warnings(rungs: pd.DataFrame) -> list[str]:
    """Look at the table of rungs and say what is wrong."""
    found = []
    bad = np.flatnonzero(rungs["r_hat"] > 1.05)
    if len(bad):
        worst = int(np.nanargmax(rungs["r_hat"]))
        found.append(
            f"not converged: R-hat of the log likelihood exceeds 1.05 at {rung_names(bad)} (largest "
            f"{rungs['r_hat'].max():.2f} at rung {worst}), so different populations, or the two halves of one, "
            "do not agree yet and the error may be too small. Increase draws."
        )
    bad = np.flatnonzero(rungs["ess"] < 50)
    if len(bad):
        found.append(
            f"few independent draws: the log likelihood has an effective sample size of {rungs['ess'].min():.0f} at "
            f"rung {int(np.nanargmin(rungs['ess']))}, and below 50 at {rung_names(bad)}, so the error itself is "
            "uncertain. Increase draws."
        )
    # The last rung has no next one: its swap rate is NaN, which compares as false.
    bad = np.flatnonzero(rungs["swap_rate"] < FEW)
    if len(bad):
        found.append(
            f"swaps between neighbours are accepted less than one time in ten at {rung_names(bad)}: modes found at low "
            "t may not reach t = 1. Put more rungs there."
        )
    bad = np.flatnonzero(rungs["acceptance"].iloc[1:] < FEW) + 1
    if len(bad):
        found.append(
            f"moves are accepted less than one time in ten at {rung_names(bad)}: the kernel does not suit the model "
            "there. Try another kernel, or write the model with parameters of similar scale."
        )
    mean, error = rungs["mean"].to_numpy(), rungs["error"].to_numpy()
    drop = mean[:-1] - mean[1:]
    bad = np.flatnonzero(drop > 5 * np.hypot(error[1:], error[:-1]) + 1e-9 * np.abs(mean[1:]))
    if len(bad):
        found.append(
            f"the mean log likelihood falls from rung {bad[0]} to rung {bad[0] + 1} by {drop[bad[0]]:.3g}, more than "
            "five standard errors, although it must rise with t: these rungs have not converged. Increase draws."
        )
    return found


def health(g: np.ndarray, ladder: Ladder, acceptance: list[np.ndarray]) -> str:
    """Say in a few words how the rungs are doing: where moves or swaps are rarely accepted.

    Args:
        g: log likelihood, [population, draw, rung].
        ladder: inverse temperatures.
        acceptance: of moves, [population, rung] for each batch.
    """
    swaps = swap_rates(g, ladder) < FEW  # the last is NaN, which compares as false
    moves = np.mean(acceptance, axis=(0, 1)) < FEW
    moves[0] = False  # draws of its own
    if not (swaps | moves).any():
        return f"{len(ladder)} rungs well"
    poor = {"swaps": np.flatnonzero(swaps), "moves": np.flatnonzero(moves)}
    return " and ".join(f"few {what} at {rung_names(bad)}" for what, bad in poor.items() if len(bad))


def rung_names(indices: np.ndarray) -> str:
    """Name rungs: 'rung 3', 'rungs 3, 4, 7' or '12 rungs from 3 to 20'."""
    if len(indices) == 1:
        return f"rung {indices[0]}"
    if len(indices) <= 5:
        return "rungs " + ", ".join(map(str, indices))
    return f"{len(indices)} rungs between {indices[0]} and {indices[-1]}"
