"""Stepping stones in bridge form with control variates: no quadrature error, whatever the ladder."""

from __future__ import annotations

import numpy as np

from thermint.control.coefficients import Controlled
from thermint.control.gram import LARGEST_EXPONENT
from thermint.estimators import stepping_stone
from thermint.estimators.base import EstimatorInput, Ratios
from thermint.path.coordinates import RungMoments
from thermint.path.ladders import Ladder

UP, DOWN = 2, 3  # the Gram's targets


def estimate(given: EstimatorInput) -> Ratios:
    """Estimate with control variates, unless the Gram has clipped the exponentials."""
    frame, ladder = given.path.gram.frame, given.ladder
    away = np.abs(given.g - np.asarray(frame.centre)).max(axis=(0, 1))
    if np.max(np.diff(ladder) * np.maximum(away[:-1], away[1:]) / 2) < LARGEST_EXPONENT:
        return controlled_bridge(given.controlled, given.plain, given.batch_sizes, frame, ladder)
    return stepping_stone.bridge(given.g, ladder, given.batches)


def controlled_bridge(
    controlled: Controlled, plain: Controlled, batch_sizes: np.ndarray, frame: RungMoments, ladder: Ladder
) -> Ratios:
    """Sum log E_i[e^(D g / 2)] - log E_{i+1}[e^(-D g / 2)] over the steps D of the ladder.

    Args:
        controlled: batch means of e^(D (g - centre) / 2) up and of e^(-D (g - centre) / 2) down, among others.
        plain: the same without control, for rungs where control leaves no positive mean.
        batch_sizes: [batch], number of draws in each.
        frame: centre of every rung.
        ladder: inverse temperatures.
    """
    up, down = (_positive(controlled, plain, batch_sizes, target) for target in (UP, DOWN))
    mean_up, mean_down = (np.average(part.mean(axis=1), axis=0, weights=batch_sizes) for part in (up, down))
    centre = np.asarray(frame.centre)
    middle = np.diff(ladder) * (centre[:-1] + centre[1:]) / 2
    log_ratio = middle + np.log(mean_up[:-1]) - np.log(mean_down[1:])
    series = (up / mean_up)[..., :-1] - (down / mean_down)[..., 1:]  # delta method
    log_z = np.append(0.0, np.cumsum(log_ratio))
    return Ratios(float(log_z[-1]), series.sum(axis=-1), log_z)


def _positive(controlled: Controlled, plain: Controlled, batch_sizes: np.ndarray, target: int) -> np.ndarray:
    """Batch means of a target, [batch, population, rung], controlled wherever that has a positive average."""
    mean = controlled.mean[..., target]
    average = np.average(mean.mean(axis=1), axis=0, weights=batch_sizes)
    return np.where(average > 0, mean, plain.mean[..., target])
