"""The controlled thermodynamic integral (paper, Eqn. "cont path samp")."""

from __future__ import annotations

import numpy as np

from thermint.control.coefficients import Controlled
from thermint.estimators.base import EstimatorInput, Integral
from thermint.path.coordinates import RungMoments
from thermint.path.ladders import Ladder
from thermint.path.quadrature import Rule, quadrature_error


def estimate(given: EstimatorInput) -> Integral:
    """Integrate the controlled means along the ladder; see `integrate`."""
    return integrate(given.controlled, given.batch_sizes, given.path.gram.frame, given.ladder, given.rule)


def integrate(
    controlled: Controlled, batch_sizes: np.ndarray, frame: RungMoments, ladder: Ladder, rule: Rule
) -> Integral:
    """Integrate E_t[g] along the ladder.

    Args:
        controlled: batch means of y = (g - centre) / spread, of y^2, and of others that are not used.
        batch_sizes: [batch], number of draws in each.
        frame: centre and spread of every rung.
        ladder: inverse temperatures.
        rule: quadrature weights for means and variances.
    """
    centre, spread = np.asarray(frame.centre), np.asarray(frame.spread)
    y, y2 = np.average(controlled.mean[..., :2].mean(axis=1), axis=0, weights=batch_sizes).T
    mean, variance = centre + spread * y, spread**2 * (y2 - y**2)
    mean_weights, variance_weights = rule(ladder)
    # V = y2 - y^2 is nonlinear; what varies from batch to batch is the linear part of its expansion (delta method).
    batch_y, batch_y2 = controlled.mean[..., 0], controlled.mean[..., 1]
    series = mean_weights * spread * batch_y + variance_weights * spread**2 * (batch_y2 - 2 * y * batch_y)
    return Integral(
        value=float(mean_weights @ mean + variance_weights @ variance),
        series=series.sum(axis=-1),
        quadrature_error=quadrature_error(rule, ladder, mean, variance),
        mean=mean,
        variance=variance,
    )
