"""Controlled annealed importance sampling, which the paper compares with (Supplement, Eqn. "bridge improve").

Control variates for the weights of `thermint.estimators.ais` need coefficients for all rungs at once, far more than for
any rung alone: the paper found that estimating them adds more variance than they remove. By least squares with
intercept, in whitened coordinates, they do little harm and no good: with 1000 draws of the paper's linear model, a s.d.
of 0.050 becomes 0.048 with degree 1 and 0.050 to 0.054 with degree 2.

Importing this module makes it the method "cais" of `thermint.estimate`.
"""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
from scipy.linalg import solve

from thermint.control.basis import mixture_features, size
from thermint.control.plan import DRAWS_PER_FEATURE, FOLDS, LARGEST_GRAM
from thermint.estimators.ais import ais, log_weights
from thermint.estimators.base import EstimatorInput, Ratios
from thermint.estimators.errors import batch_error
from thermint.estimators.stepping_stone import batch_means
from thermint.estimators.table import CONTROLLED, ESTIMATORS, Estimator
from thermint.model.draws import Draws, at_rung
from thermint.path.coordinates import RungMoments
from thermint.runtime.linalg import one_thread

JITTER = 1e-10  # on the diagonal of the features' covariance, relative to its largest element


def estimate(given: EstimatorInput) -> Ratios:
    """Estimate with the plan's degree, 1 where it is "auto", and 0 where control variates are not to be trusted."""
    plan = given.path.plan
    degree = 0 if given.controlled is given.plain else plan.degree if plan.fixed else 1
    assert given.draws is not None  # only `thermint.estimate` takes a method
    return controlled_ais(given.draws, given.path.gram.frame, degree, plan.batches, crossfit=plan.crossfit)


def controlled_ais(draws: Draws, frame: RungMoments, degree: int, batches: int, *, crossfit: bool) -> Ratios:
    """Average the products of all steps, with control variates for all rungs jointly (paper, Eqn. "bridge improve").

    Coefficients are least squares with intercept, those of minimum norm where there are more of them than draws. The
    error is that of cross-fitted draws even if the value is not: in sample, many coefficients leave hardly a residual.

    Args:
        draws: from every rung.
        frame: the coordinates of the features.
        degree: of the polynomial trial functions of each rung; none has coordinates of two rungs.
        batches: number of blocks of consecutive draws, for the error.
        crossfit: fit the coefficients to other draws than they are applied to; False is the paper's plug-in.

    Returns:
        The estimate, with constants at the first and last rungs only. It is that of `ais` where the average of the
        controlled weights is not positive, and has no logarithm.

    Raises:
        ValueError: the features take too much memory.
    """
    ladder, g = np.asarray(draws.ladder), np.asarray(draws.log_likelihood)
    plain = ais(g, ladder, batches)
    populations, length, rungs = g.shape
    _, components, d = frame.mean.shape
    coefficients = (rungs - 1) * size(d, degree, components=components)
    if not coefficients:
        return plain
    need = g[..., 0].size * coefficients * 8
    if need > LARGEST_GRAM:
        raise ValueError(
            f'method = "cais" with degree = {degree} has {coefficients} coefficients to fit to {g[..., 0].size} draws, '
            f"and the features take {need / 2**30:.1f} GiB. Use a lower degree, fewer rungs or fewer draws."
        )
    log_weight = log_weights(g[..., :-1], ladder)[..., -1]
    top = log_weight.max()
    w = np.exp(log_weight - top)  # [population, draw]
    below = jax.tree.map(lambda a: a[:-1], frame)  # the last rung has no step up
    h = _features(draws, below, degree=degree).T.reshape(populations, length, -1)

    # As with every other estimator, folds are contiguous blocks, the same in every population.
    fold = np.arange(length) * FOLDS // length
    with one_thread():
        second = np.stack([_cross_products(w[:, fold == k], h[:, fold == k]) for k in range(FOLDS)])
        total = second.sum(axis=0)
        held_out = np.empty_like(w)
        for k in range(FOLDS):
            held_out[:, fold == k] = w[:, fold == k] - h[:, fold == k] @ _coefficients(total - second[k])
        controlled = held_out if crossfit else w - h @ _coefficients(total)

    warnings = _coefficient_warnings(coefficients, w.size)
    mean = controlled.mean()
    if not mean > 0:
        warnings.append(
            f"the controlled weights have an average of {mean * np.exp(top - plain.value):.2g} times that of the plain "
            "ones, which has no logarithm: this is the answer without control variates. They need many more draws."
        )
        return replace(plain, warnings=tuple(warnings))
    series = batch_means(held_out / mean, batches)
    negative = np.mean(controlled < 0)
    if negative:
        warnings.append(
            f"{negative:.1%} of the controlled weights are negative, which no weight can be: polynomials do not suit "
            'weights. Use method="bridge" or "cti", whose control variates are fitted rung by rung.'
        )
    error, uncontrolled = batch_error(series).error, batch_error(plain.series).error
    if error > uncontrolled:
        warnings.append(
            f"control variates did harm: the error is {error:.2g} with them and {uncontrolled:.2g} without, because "
            f'{coefficients} coefficients had to be estimated. Use method="ais"; or "bridge" or "cti", whose control '
            "variates are fitted rung by rung."
        )
    log_z = np.full(rungs, np.nan)
    log_z[0], log_z[-1] = 0.0, top + np.log(mean)
    return Ratios(float(log_z[-1]), series, log_z, warnings=tuple(warnings))


def _features(draws: Draws, frame: RungMoments, *, degree: int) -> np.ndarray:
    """Stein features of all rungs of the frame, [rung * feature, population * draw]."""

    def of_rung(rung: int) -> np.ndarray:
        position, _, score = at_rung(draws, rung)
        return mixture_features(position, score, frame.log_weight[rung], frame.mean[rung], frame.cholesky[rung], degree)

    return np.concatenate([of_rung(rung) for rung in range(len(frame.mean))])


def _cross_products(w: np.ndarray, h: np.ndarray) -> np.ndarray:
    """Sum products of [1, weight, features], two at a time, of w[population, draw] and h[population, draw, feature]."""
    rows = np.concatenate([np.ones_like(w)[..., None], w[..., None], h], axis=-1).reshape(-1, 2 + h.shape[-1])
    return rows.T @ rows


def _coefficients(second: np.ndarray) -> np.ndarray:
    """Least squares with intercept of weight on features; of minimum norm, all but, where these outnumber the draws."""
    covariance = second - np.outer(second[0], second[0]) / second[0, 0]
    features = covariance[2:, 2:]
    features.flat[:: len(features) + 1] += JITTER * features.diagonal().max()
    return solve(features, covariance[2:, 1], assume_a="pos", check_finite=False)


def _coefficient_warnings(coefficients: int, draws: int) -> list[str]:
    """Warn where there are too few draws for the coefficients."""
    if coefficients >= draws - 1:  # one goes to the intercept
        consequence = "They would fit any weights exactly; the answer is what those of minimum norm happen to give."
    elif draws < DRAWS_PER_FEATURE * coefficients:
        consequence = "They follow the noise of these draws too, which can add more variance than they remove."
    else:
        return []
    return [
        f"{coefficients} coefficients from {draws} draws: control variates for all rungs jointly cannot be "
        f"determined. {consequence} Use a lower degree, fewer rungs or many more draws."
    ]


ESTIMATORS["cais"] = Estimator(
    estimate=estimate,
    label="the same, controlled",
    method="cais",
    description=(
        "annealed importance weights of draws in equilibrium, with Stein control variates for all rungs jointly"
    ),
    citation=CONTROLLED,
    on_request=True,
    log_weights=ESTIMATORS["ais"].log_weights,
)
