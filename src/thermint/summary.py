"""From sums and traces to the answer: control, integrate, check, and say what was seen."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from thermint import diagnostics
from thermint.control import Controlled, batch_means, control, largest_z, mean_zero
from thermint.draws import Draws
from thermint.errors import batch_error, largest_share
from thermint.estimators.thermodynamic import integrate
from thermint.gram import Gram
from thermint.ladders import Ladder
from thermint.plan import Plan
from thermint.quadrature import RULES
from thermint.result import Evidence, plus_minus


class Moves(NamedTuple):
    """What became of the moves of a batch of draws."""

    acceptance: np.ndarray  # [population, rung]; at rung 0 the share of prior draws whose likelihood is not zero
    invalid: float  # share of moves at which the model was NaN


def moves_of(draws: Draws) -> Moves:
    """Average the acceptance of the draws; all ones if the sampler did not say."""
    if draws.acceptance is None:
        return Moves(np.ones(np.shape(draws.log_prior)[::2]), 0.0)
    acceptance = np.asarray(draws.acceptance)
    return Moves(np.nan_to_num(acceptance).mean(axis=1), float(np.isnan(acceptance).mean()))


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
    controlled = _control(gram, plan, ess, warnings)
    integral = integrate(controlled, np.asarray(gram.number), gram.frame, ladder, RULES[plan.rule])

    acceptance = np.stack([batch.acceptance for batch in moves])
    # The path starts at the prior given a likelihood that is not zero; the prior mass of that is part of the evidence.
    supported = acceptance[:, :, 0]
    log_evidence = integral.value + float(np.log(supported.mean()))
    series = integral.series + supported / supported.mean()
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
            "draws": g.shape[1],
            "populations": g.shape[0],
            "ladder": ladder.tolist(),
            "degree": plan.degree if plan.fixed else "auto",
            "rule": plan.rule,
            "crossfit": plan.crossfit,
        },
    )


def so_far(gram: Gram, ladder: Ladder, plan: Plan, batches: int) -> str:
    """Print the answer that the first batches give, roughly: coefficients in sample, no checks."""
    if batches < 2:
        return ""
    begun = gram._replace(first=gram.first[:batches], number=gram.number[:batches])
    controlled = control(begun, plan.sizes, fixed=True, crossfit=False)
    integral = integrate(controlled, np.asarray(begun.number), begun.frame, ladder, RULES[plan.rule])
    error = np.hypot(batch_error(integral.series).error, integral.quadrature_error)
    return f"log evidence {plus_minus(integral.value, float(error))}"


def _control(gram: Gram, plan: Plan, ess: np.ndarray, warnings: list[str]) -> Controlled:
    """Control the targets, unless the features, or what they do to the answer, turn out not to have mean zero."""
    if not plan.degree:
        return control(gram, (0,), fixed=True, crossfit=False)
    # Up to degree 2: averages of higher features are too far from normal to be tested by their batch errors.
    z, threshold = mean_zero(gram, plan.sizes[min(plan.degree, 2)], ess)
    controlled = control(gram, plan.sizes, fixed=plan.fixed, crossfit=plan.crossfit)
    if np.all(z <= threshold):
        shift = batch_means(gram, 1, 2) - controlled.mean[..., :1]
        explained = np.maximum(controlled.variance - controlled.residual, 1.0)[:, :1]  # 1: as in `mean_zero`
        z, threshold = largest_z(shift, 2 * explained / ess[:, None])
    if np.all(z <= threshold):
        return controlled
    warnings.append(
        f"control variates switched off: their averages should be zero but are {z.max():.0f} standard errors away at "
        f"rung {z.argmax()} (threshold {threshold:.1f}). Either the posterior density jumps to zero at a border "
        "(write the parameter with a NumPyro distribution on that range), or a gradient is wrong, or the chains have "
        "not converged (increase draws)."
    )
    return control(gram, (0,), fixed=True, crossfit=False)
