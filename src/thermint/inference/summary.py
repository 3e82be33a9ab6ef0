"""From sums and traces to the answer: control, estimate, check, and say what was seen."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd

from thermint import diagnostics
from thermint.control import basis
from thermint.control.coefficients import Controlled, control, uncontrolled
from thermint.diagnostics import Tail
from thermint.estimators import table
from thermint.estimators.base import Estimate, EstimatorInput, Integral, Ratios
from thermint.estimators.errors import BatchError, batch_error
from thermint.estimators.mbar import rule_error
from thermint.estimators.path_summary import MAX_KEPT, Moves, PathSummary
from thermint.estimators.thermodynamic import integrate
from thermint.inference.controlling import trusted_control
from thermint.model.draws import Draws
from thermint.model.result import Evidence, plus_minus
from thermint.model.settings import Settings
from thermint.path.quadrature import RULES

BRIDGE_ADVANTAGE = 0.5  # ratio of errors
ROUNDING = 16 * float(np.finfo(float).eps)  # of the answer: what sums of thousands of terms may lose; the least error
# Quadrature error that draws do not show: it takes the eighth cumulant of g, of which few thousand draws see a part.
# Measured for a normal posterior: 2e-13 and 3e-13 estimated where it was 4.7e-12.
QUADRATURE_FLOOR = 5e-12
MAX_INVALID = 1e-3  # share of proposals at which the model may be NaN without this being a border
UNCONTROLLED = 0.1  # share of the variance that is left where control variates have not removed such a tail


class _Estimated(NamedTuple):
    """All estimates, and their errors."""

    estimates: dict[str, Estimate]
    mc: dict[str, BatchError]
    total: dict[str, float]  # Monte Carlo and quadrature error, and rounding
    quadrature: float  # error of the thermodynamic integral


@np.errstate(over="ignore", invalid="ignore")  # values that overflow are reported below
def summarise(
    path: PathSummary,
    *,
    method: str,
    evaluations: int,
    begin: float,
    settings: Settings,
    draws: Draws | None = None,
) -> Evidence:
    """Turn sums, traces and acceptance rates into an Evidence.

    Args:
        path: what is kept of the draws.
        method: which estimate is the answer; "auto" is the thermodynamic integral, unless the bridge form is clearly
            better: it needs no moments of g, which may not exist where a path starts, and has no quadrature error.
        evaluations: of the likelihood, in all.
        begin: when the clock started.
        settings: what the path does not know.
        draws: the draws themselves, if all are at hand.
    """
    moves: Moves = jax.tree.map(lambda *parts: np.stack(parts), *path.moves)
    ess, r_hat = diagnostics.convergence(path.g)
    plain = uncontrolled(path.gram)
    controlled, warnings = trusted_control(path, plain, ess, _beyond_border(moves))
    given = EstimatorInput(path, plain, controlled, draws)
    estimates = table.evaluate(given, method)
    warnings += _request_warnings(given, estimates, method)

    # The path starts at the prior given a likelihood that is not zero; the prior mass of that is part of the evidence.
    supported = 1 - moves.outside[:, :, 0]
    warnings += diagnostics.supported_warnings(supported.mean() * float(given.batch_sizes.sum()) * len(path.g))
    found = _with_errors(given, estimates, supported / supported.mean())
    log_supported = float(np.log(supported.mean()))

    tails = [diagnostics.tail(trace, n) for trace, n in zip(np.moveaxis(path.g, 2, 0), ess, strict=True)]
    rungs = _rungs(given, estimates["cti"], moves, tails, ess, r_hat)
    heavy = _uncontrolled(tails, rungs["ratio"])
    if method == "auto":
        method = _better(found, rungs, heavy)
    answer = table.methods()[method]
    value, mc, total = estimates[answer].value, found.mc[answer], found.total[answer]
    warnings += _overflow_warnings(value, total)
    warnings += diagnostics.estimator_warnings(found.estimates, answer, found.quadrature)
    quadrature = found.quadrature if answer == "cti" else 0.0
    warnings += diagnostics.error_warnings(mc, value, quadrature, given.batch_sizes[0])
    if answer == "cti" and any(tail.lacks_moment(1) for tail in heavy):
        warnings.append(diagnostics.heavy_warning(rungs))
    seen = {
        "round_trips": diagnostics.round_trips(moves.last_visited_reference, int(given.batch_sizes.sum())),
        "barrier": float(rungs["barrier"].iloc[-1]),
        "supported": float(supported.mean()),
        "outside": float(moves.outside[:, :, 1:].mean()),
        "invalid": float(np.mean(moves.invalid)),
    }
    warnings += diagnostics.invalid_warnings(seen["invalid"])
    warnings += diagnostics.trip_warnings(seen["round_trips"], len(path.ladder))
    warnings += diagnostics.convergence_warnings(rungs)
    warnings += diagnostics.acceptance_warnings(rungs)
    warnings += diagnostics.monotone_warnings(rungs)
    plan = path.plan
    return Evidence(
        log_evidence=value + log_supported,
        standard_error=total,
        mc_error=mc.error,
        quadrature_error=quadrature,
        degrees_of_freedom=mc.degrees_of_freedom,
        evaluations=evaluations,
        seconds=time.perf_counter() - begin,
        warnings=tuple(warnings),
        rungs=rungs,
        estimates=_tabulate(found, log_supported),
        diagnostics=seen,
        coefficients=_coefficients(path, controlled),
        trace=path.g[:, :: -(-path.g[..., 0].size // MAX_KEPT)],
        settings=replace(
            settings,
            method=method,
            ladder=path.ladder.tolist(),
            draws=int(given.batch_sizes.sum()),
            populations=len(path.g),
            degree=plan.degree if plan.fixed else "auto",
            rule=plan.rule,
            crossfit=plan.crossfit,
        ),
    )


def _beyond_border(moves: Moves) -> float:
    """Share of proposals beyond a border of the support; none where nearly all of them are NaN here and there."""
    outside, invalid = moves.outside, np.mean(moves.invalid)
    share = float(outside[:, :, 1:].mean())
    stray = share <= min(invalid * outside[0].size / outside[0, :, 1:].size, MAX_INVALID)
    return 0.0 if stray else share


def _request_warnings(given: EstimatorInput, estimates: dict[str, Estimate], method: str) -> list[str]:
    """Warn of what the estimator that was asked for knows of its estimate."""
    if method not in table.methods():
        return []
    name = table.methods()[method]
    log_weights = table.ESTIMATORS[name].log_weights
    uneven = diagnostics.weight_warnings(log_weights(given)) if log_weights else []
    return [*uneven, *estimates[name].warnings]


def _with_errors(given: EstimatorInput, estimates: dict[str, Estimate], supported: np.ndarray) -> _Estimated:
    """Compute the errors of all estimates.

    Args:
        given: what they were made of.
        estimates: by name.
        supported: [batch, population], whose mean is 1; varies as the prior mass with a likelihood does.
    """
    series = {name: one.series for name, one in _other_draws(given, estimates).items()}
    estimates = {name: replace(one, series=series[name] + supported) for name, one in estimates.items()}
    quadrature = _quadrature_error(given, estimates)
    mc = {name: batch_error(one.series) for name, one in estimates.items()}
    total = {}
    for name, one in estimates.items():
        total[name] = float(np.hypot(mc[name].error, ROUNDING * max(abs(one.value), 1.0)))
        if name == "cti":
            total[name] = float(np.hypot(total[name], quadrature))
        if not np.isfinite(total[name]):
            total[name] = np.inf
    return _Estimated(estimates, mc, total, quadrature)


def _other_draws(given: EstimatorInput, estimates: dict[str, Estimate]) -> dict[str, Estimate]:
    """Estimate again with coefficients from other draws: fitted in sample, they make the batches look too alike."""
    path, degree = given.path, given.controlled.degree
    if path.plan.crossfit or not degree.any():
        return estimates
    fitted = control(path.gram, path.plan.sizes, fixed=path.plan.fixed, crossfit=True, highest=degree.max(axis=1))
    again = {
        name: one.estimate(given._replace(controlled=fitted))
        for name, one in table.ESTIMATORS.items()
        if one.uses_control
    }
    return estimates | again


def _quadrature_error(given: EstimatorInput, estimates: dict[str, Estimate]) -> float:
    """Estimate the quadrature error by MBAR; where rungs do not overlap there is none, and the rule's own will do."""
    integral, mbar = estimates["cti"], estimates.get("mbar")
    assert isinstance(integral, Integral)
    if mbar is None:
        return integral.quadrature_error
    assert isinstance(mbar, Ratios)
    error = rule_error(given.rule, given.ladder, given.thinned(), mbar.log_z, given.ladder)
    return float(np.hypot(error, QUADRATURE_FLOOR))


def _uncontrolled(tails: list[Tail], ratio: Sequence[float] | pd.Series) -> list[Tail]:
    """Return the tails of the rungs where control variates have not removed them."""
    return [tail for tail, left in zip(tails, ratio, strict=True) if left > UNCONTROLLED]


def _better(found: _Estimated, rungs: pd.DataFrame, tails: list[Tail]) -> str:
    """Choose the bridge form where it is clearly better than the thermodynamic integral and neighbours overlap."""
    if np.nanmin(rungs["swap_rate"]) <= diagnostics.MIN_ACCEPTANCE:
        return "cti"
    # Without a variance, the integral's error cannot be trusted, however small.
    heavy = any(tail.lacks_moment(2) for tail in tails)
    return "bridge" if heavy or found.total["bridge"] < BRIDGE_ADVANTAGE * found.total["cti"] else "cti"


def _overflow_warnings(value: float, error: float) -> list[str]:
    if np.isfinite([value, error]).all():
        return []
    return [
        "the log evidence, or its error, is not finite: the log likelihood is so large in places that it overflows."
        " The likelihood may be unbounded, as where a scale tends to zero at a perfect fit, and the evidence "
        "infinite. Keep such parameters away by the prior."
    ]


def _tabulate(found: _Estimated, log_supported: float) -> pd.DataFrame:
    """Make the table of estimates."""
    values = [one.value + log_supported for one in found.estimates.values()]
    index = pd.Index(list(found.estimates), name="method")
    return pd.DataFrame({"log_evidence": values, "standard_error": [*found.total.values()]}, index=index).astype(float)


def _rungs(
    given: EstimatorInput, integral: Estimate, moves: Moves, tails: list[Tail], ess: np.ndarray, r_hat: np.ndarray
) -> pd.DataFrame:
    """Make the table of rungs."""
    assert isinstance(integral, Integral)
    path, controlled = given.path, given.controlled
    frame, variance = path.gram.frame, controlled.variance[:, 0]
    swap_rate = diagnostics.swap_rates(path.g, path.ladder)
    return pd.DataFrame(
        {
            "t": path.ladder,
            "weight": given.rule(path.ladder)[0],
            "mean": integral.mean,
            "error": _errors(frame.spread, controlled),
            "plain_mean": integrate(given.plain, given.batch_sizes, frame, path.ladder, given.rule).mean,
            "plain_error": _errors(frame.spread, given.plain),
            "variance": integral.variance,
            "ratio": controlled.residual[:, 0] / np.where(variance > 0, variance, 1.0),
            "degree": controlled.degree[:, 0],
            "pareto_k": [tail.k for tail in tails],
            "acceptance": moves.acceptance.mean(axis=(0, 1)),
            "swap_rate": swap_rate,
            "barrier": diagnostics.barrier(swap_rate),
            "last_visited_reference": moves.last_visited_reference.mean(axis=(0, 1)),
            "ess": ess,
            "r_hat": r_hat,
        }
    ).rename_axis("rung")


def _errors(spread: Any, controlled: Controlled) -> np.ndarray:
    """Error of the mean of g at every rung."""
    by_rung = np.moveaxis(controlled.mean[..., 0], 2, 0)
    return np.asarray(spread) * [batch_error(rung).error for rung in by_rung]


def _coefficients(path: PathSummary, controlled: Controlled) -> pd.DataFrame:
    """Make the table of coefficients, with the names of their features."""
    size, (components, d) = controlled.coefficients.shape[1], path.gram.frame.mean.shape[1:]
    names = basis.names(d, path.plan.degree, path.plan.cross, components)[:size]
    return pd.DataFrame(controlled.coefficients, columns=names).rename_axis("rung")


def interim_estimate(path: PathSummary) -> str:
    """Print the answer that the first batches give, roughly: coefficients in sample, no checks."""
    batches = len(path.moves)
    if batches < 2:
        return ""
    log_supported = float(np.log(max(1 - np.mean([batch.outside[:, 0] for batch in path.moves]), 1e-300)))
    gram = path.gram._replace(first=path.gram.first[:batches], number=path.gram.number[:batches])
    controlled = control(gram, path.plan.sizes, fixed=True, crossfit=False)
    integral = integrate(controlled, np.asarray(gram.number), gram.frame, path.ladder, RULES[path.plan.rule])
    error = np.hypot(batch_error(integral.series).error, integral.quadrature_error)
    return f"log evidence {plus_minus(integral.value + log_supported, float(error))}"
