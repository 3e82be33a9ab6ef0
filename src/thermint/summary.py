"""From sums and traces to the answer: control, integrate, check, and say what was seen."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from thermint import diagnostics
from thermint.control import Controlled, control, largest_z, mean_zero, uncontrolled
from thermint.draws import Draws
from thermint.errors import batch_error, largest_share
from thermint.estimators.thermodynamic import integrate
from thermint.gram import Gram
from thermint.ladders import Ladder
from thermint.plan import Plan
from thermint.quadrature import RULES
from thermint.result import Evidence, plus_minus


class Moves(NamedTuple):
    """What became of the moves of a batch of draws, averaged."""

    acceptance: np.ndarray  # [population, rung]
    outside: np.ndarray  # [population, rung], share of proposals of zero density
    invalid: float  # share of moves at which the model was NaN or +inf


def moves_of(draws: Draws) -> Moves:
    """Average over the draws; where the sampler did not say, all moves were accepted and none fell outside."""
    shape = np.shape(draws.log_prior)
    acceptance = np.ones(shape) if draws.acceptance is None else np.asarray(draws.acceptance)
    outside = np.zeros(shape) if draws.outside is None else np.asarray(draws.outside)
    return Moves(np.nan_to_num(acceptance).mean(axis=1), outside.mean(axis=1), float(np.isnan(acceptance).mean()))


def average(pieces: list[Moves]) -> Moves:
    """Average over chunks of equal length."""
    acceptance, outside, invalid = zip(*pieces, strict=True)
    return Moves(np.mean(acceptance, axis=0), np.mean(outside, axis=0), float(np.mean(invalid)))


def summarise(
    gram: Gram,
    ladder: Ladder,
    g: np.ndarray,
    moves: list[Moves],
    plan: Plan,
    *,
    evaluations: int,
    begin: float,
    settings: dict[str, Any],
) -> Evidence:
    """Turn sums, traces and acceptance rates into an Evidence.

    Args:
        gram: sums of features.
        ladder: inverse temperatures.
        g: log likelihood, [population, draw, rung].
        moves: one entry a batch.
        plan: how the Gram was made.
        evaluations: of the likelihood.
        begin: when the clock started.
        settings: what the plan does not know.
    """
    warnings: list[str] = []
    ess, r_hat = diagnostics.convergence(g)
    acceptance, outside = (np.stack(part) for part in list(zip(*moves, strict=True))[:2])
    controlled = _control(gram, ladder, plan, ess, outside[:, :, 1:].mean(), warnings)
    integral = integrate(controlled, np.asarray(gram.number), gram.frame, ladder, RULES[plan.rule])

    # The path starts at the prior given a likelihood that is not zero; the prior mass of that is part of the evidence.
    supported = 1 - outside[:, :, 0]
    prior_draws = float(np.asarray(gram.number).sum()) * g.shape[0]
    successes = supported.mean() * prior_draws
    if successes < 1:
        raise ValueError(
            f"none of the {prior_draws:.0f} draws from the prior has a likelihood above zero, so the prior mass "
            "that has one cannot be estimated. Increase draws, or use a narrower prior."
        )
    if successes < 20:
        warnings.append(
            f"only {successes:.0f} draws from the prior have a likelihood above zero: the share of prior mass that has "
            "one, which is part of the evidence, is poorly known. Increase draws, or use a narrower prior."
        )
    log_evidence = integral.value + float(np.log(supported.mean()))
    # Coefficients fitted in sample make the batches look more alike than they are: the error comes from other draws.
    series = integral.series
    if not plan.crossfit and plan.degree:
        fitted = control(gram, plan.sizes, fixed=plan.fixed, crossfit=True) if controlled.degree.any() else controlled
        series = integrate(fitted, np.asarray(gram.number), gram.frame, ladder, RULES[plan.rule]).series
    series = series + supported / supported.mean()
    mc = batch_error(series)

    if mc.disagreement:
        warnings.append(
            "populations disagree by more than their own errors explain, so some have not found all of the posterior; "
            "the error is taken from their spread. Increase draws, or add rungs where swap rates are low."
        )
    share = largest_share(series)
    if share > 0.5 and mc.error > 1e-9 * abs(log_evidence):
        warnings.append(
            f"one batch of {gram.number[0]:.0f} draws makes up {share:.0%} of the Monte Carlo variance, "
            "so the error is itself uncertain. The log likelihood has a heavy tail, typically near t = 0 under a prior "
            "that allows almost impossible parameters, such as scales close to zero. Use a prior that keeps away from "
            "them, or many more draws."
        )
    if integral.quadrature_error > max(3 * mc.error, 0.1):
        warnings.append(
            f"the ladder is too coarse: the quadrature error, {integral.quadrature_error:.2g}, is most of the error. "
            "Use more rungs, such as ladder=101, or more of them near t = 0, such as "
            "ladder=thermint.ladders.power(51, 8)."
        )
    invalid = float(np.mean([batch.invalid for batch in moves]))
    if invalid:
        warnings.append(
            f"the model, or its gradient, was NaN or +inf at {invalid:.2%} of the proposals, which were rejected as if "
            "the likelihood were zero there. Return -inf where it is, and guard divisions, logarithms and overflow "
            "elsewhere."
        )
    variance = controlled.variance[:, 0]
    rungs = pd.DataFrame(
        {
            "t": ladder,
            "mean": integral.mean,
            "error": np.asarray(gram.frame.spread)
            * [batch_error(rung).error for rung in np.moveaxis(controlled.mean[..., 0], 2, 0)],
            "variance": integral.variance,
            "ratio": controlled.residual[:, 0] / np.where(variance > 0, variance, 1.0),
            "degree": controlled.degree[:, 0],
            "acceptance": acceptance.mean(axis=(0, 1)),
            "swap_rate": diagnostics.swap_rates(g, ladder),
            "ess": ess,
            "r_hat": r_hat,
        }
    ).rename_axis("rung")
    return Evidence(
        log_evidence=log_evidence,
        standard_error=float(np.hypot(mc.error, integral.quadrature_error)),
        mc_error=mc.error,
        quadrature_error=integral.quadrature_error,
        degrees_of_freedom=mc.degrees_of_freedom,
        evaluations=evaluations,
        seconds=time.perf_counter() - begin,
        warnings=(*warnings, *diagnostics.rung_warnings(rungs)),
        rungs=rungs,
        settings={
            **settings,
            "draws": int(np.asarray(gram.number).sum()),
            "populations": g.shape[0],
            "ladder": ladder.tolist(),
            "degree": plan.degree if plan.fixed else "auto",
            "rule": plan.rule,
            "crossfit": plan.crossfit,
        },
    )


def so_far(gram: Gram, ladder: Ladder, plan: Plan, moves: list[Moves]) -> str:
    """Print the answer that the first batches give, roughly: coefficients in sample, no checks."""
    batches = len(moves)
    if batches < 2:
        return ""
    log_supported = float(np.log(max(1 - np.mean([batch.outside[:, 0] for batch in moves]), 1e-300)))
    begun = gram._replace(first=gram.first[:batches], number=gram.number[:batches])
    controlled = control(begun, plan.sizes, fixed=True, crossfit=False)
    integral = integrate(controlled, np.asarray(begun.number), begun.frame, ladder, RULES[plan.rule])
    error = np.hypot(batch_error(integral.series).error, integral.quadrature_error)
    return f"log evidence {plus_minus(integral.value + log_supported, float(error))}"


def _control(
    gram: Gram, ladder: Ladder, plan: Plan, ess: np.ndarray, outside: float, warnings: list[str]
) -> Controlled:
    """Control the targets, unless there is reason to think that the control variates do not have mean zero."""
    plain = uncontrolled(gram)
    if not plan.degree:
        return plain
    if outside and not plan.fixed:
        warnings.append(
            f"control variates not used: {outside:.2%} of the proposals fell where prior or likelihood is zero. "
            "If the density jumps at that border, control variates would shift the answer. Write the parameter with a "
            "NumPyro distribution on its range, or give a degree if the density falls to zero smoothly."
        )
        return plain
    # Up to degree 2: averages of higher features are too far from normal to be tested by their batch errors.
    z, threshold = mean_zero(gram, plan.sizes[min(plan.degree, 2)], ess)
    where = f"at rung {z.argmax()}"
    controlled = control(gram, plan.sizes, fixed=plan.fixed, crossfit=plan.crossfit)
    if np.all(z <= threshold):
        shift = plain.mean[..., :1] - controlled.mean[..., :1]
        explained = np.maximum(controlled.variance - controlled.residual, 1.0)[:, :1]  # 1: as in `mean_zero`
        z, threshold = largest_z(shift, 2 * explained / ess[:, None])
        where = f"at rung {z.argmax()}"
    if np.all(z <= threshold):
        # One more test, of what it all comes to: the integral with and without control.
        weights = RULES[plan.rule](ladder)[0] * np.asarray(gram.frame.spread)
        total = (shift[..., 0] * weights).sum(axis=-1)
        error, freedom, _ = batch_error(total)
        z, threshold = np.array([abs(total.mean()) / max(error, 1e-300)]), float(stats.t.isf(1e-5, freedom))
        where = "over the whole path"
    if np.all(z <= threshold):
        return controlled
    warnings.append(
        f"control variates switched off: their averages should be zero but are {z.max():.0f} standard errors away "
        f"{where} (threshold {threshold:.1f}). Either the posterior density jumps somewhere (write a bounded "
        "parameter with a NumPyro distribution on its range), or a gradient is wrong, or the chains have not converged "
        "(increase draws)."
    )
    return plain
