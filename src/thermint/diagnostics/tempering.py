"""Swaps, moves and trips along the ladder."""

from __future__ import annotations

import numpy as np
import pandas as pd

from thermint.diagnostics.convergence import rung_names
from thermint.path.ladders import Ladder
from thermint.sampling.swaps import swap_rates

MIN_ACCEPTANCE = 0.1  # of moves, or of swaps
MIN_TRIPS = 5  # a smaller count is known to half of itself at best, and modes may never have changed places


def barrier(swap_rate: np.ndarray) -> np.ndarray:
    """Share of swaps rejected, added up from the first rung, [rung]: what states must overcome on their way up.

    Its last entry is the communication barrier of the whole path, which hardly depends on the ladder; a ladder wants
    about twice as many rungs.
    """
    return np.append(0.0, np.cumsum(1 - swap_rate[:-1]))


def round_trips(last_visited_reference: np.ndarray, draws: int) -> float:
    """How often states went from the last rung to the first and back, in all populations.

    Args:
        last_visited_reference: [batch, population, rung], see `Draws`, averages of ``draws`` iterations in all.
        draws: of one population.
    """
    return float(last_visited_reference[:, :, -1].mean(axis=0).sum() * draws)


def trip_warnings(trips: float, rungs: int) -> list[str]:
    """Warn where hardly any state has travelled the whole ladder; NaN means that it is not known."""
    if rungs < 3 or not trips < MIN_TRIPS:
        return []
    return [
        f"states went from one end of the ladder to the other and back {trips:.0f} times in all, so that modes which "
        "are found at one end may never arrive at the other. Increase draws, or add rungs where swap rates are low."
    ]


def acceptance_warnings(rungs: pd.DataFrame) -> list[str]:
    """Warn of rungs where swaps or moves are rarely accepted."""
    found = []
    # The last rung has no next one: its swap rate is NaN, which compares as false.
    bad = np.flatnonzero(rungs["swap_rate"] < MIN_ACCEPTANCE)
    if len(bad):
        found.append(
            f"swaps between neighbours are accepted less than one time in ten at {rung_names(bad)}: modes found at low "
            "t may not reach t = 1. Put more rungs there."
        )
    bad = np.flatnonzero(rungs["acceptance"].iloc[1:] < MIN_ACCEPTANCE) + 1
    if len(bad):
        found.append(
            f"moves are accepted less than one time in ten at {rung_names(bad)}: the kernel does not suit the model "
            "there. Try another kernel, or write the model with parameters of similar scale."
        )
    return found


def health(g: np.ndarray, ladder: Ladder, acceptance: list[np.ndarray]) -> str:
    """Describe the rungs in a few words: where moves or swaps are rarely accepted.

    Args:
        g: log likelihood, [population, draw, rung].
        ladder: inverse temperatures.
        acceptance: of moves, [population, rung] for each batch.
    """
    swaps = swap_rates(g, ladder) < MIN_ACCEPTANCE  # the last is NaN, which compares as false
    moves = np.mean(acceptance, axis=(0, 1)) < MIN_ACCEPTANCE
    moves[0] = False  # draws of its own
    if not (swaps | moves).any():
        return f"{len(ladder)} rungs well"
    poor = {"swaps": np.flatnonzero(swaps), "moves": np.flatnonzero(moves)}
    return " and ".join(f"few {what} at {rung_names(bad)}" for what, bad in poor.items() if len(bad))
