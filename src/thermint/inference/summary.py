"""From sums and traces to the answer: control, integrate, check, and say what was seen."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pandas as pd

from thermint import diagnostics
from thermint.control import basis
from thermint.control.coefficients import Controlled, control, largest_z, mean_zero, uncontrolled
from thermint.control.gram import LARGEST_EXPONENT
from thermint.estimators.ais import ais, controlled_ais, log_weights, weight_warnings
from thermint.estimators.bridge import controlled_bridge
from thermint.estimators.errors import BatchError, batch_error, critical_value
from thermint.estimators.mbar import mbar, rule_error
from thermint.estimators.stepping_stone import Ratios, backward, bridge, forward
from thermint.estimators.thermodynamic import Integral, integrate
from thermint.inference.collect import PathSummary
from thermint.model.draws import Draws
from thermint.model.result import Evidence, plus_minus
from thermint.path.quadrature import RULES, Rule

METHODS = {"cti": "cti", "bridge": "bridge", "stepping-stone": "forward", "mbar": "mbar", "ais": "ais", "cais": "cais"}
COMPARED = {
    "cti": "the thermodynamic integral",
    "bridge": "the bridge form of stepping stones",
    "mbar": "MBAR",
}
BRIDGE_ADVANTAGE = 0.5  # ratio of errors
DISAGREEMENT = 1e-4  # chance that two estimates which agree are said not to
MOST_REWEIGHTED = 200_000  # values of g
FEWEST_FREEDOM = 4.0  # degrees of freedom of an error that means something
ROUNDING = 2.0**-48  # of the answer; no error is smaller
# Quadrature error that draws do not show: it takes the eighth cumulant of g, of which few thousand draws see a part.
# Measured for a normal posterior: 2e-13 and 3e-13 estimated where it was 4.7e-12.
QUADRATURE_FLOOR = 5e-12
NO_VARIANCE = 0.5  # Pareto k
NO_MEAN = 1.0
MAX_INVALID = 1e-3  # share of proposals at which the model may be NaN without this being a border
WIDE_GAP = 0.3  # nats between stepping stones forward and backward
LONGEST_TRACE = 1000  # draws of each population and rung that the result keeps of g
UNCONTROLLED = 0.1  # share of the variance that is left where control variates have not removed such a tail


@np.errstate(over="ignore", invalid="ignore")  # values that overflow are reported below
def summarise(
    run: PathSummary,
    *,
    method: str,
    evaluations: int,
    begin: float,
    settings: dict[str, Any],
    draws: Draws | None = None,
) -> Evidence:
    """Turn sums, traces and acceptance rates into an Evidence.

    Args:
        run: what is kept of the draws.
        method: which estimate is the answer; "auto" is the thermodynamic integral, unless the bridge form is clearly
            better: it needs no moments of g, which may not exist where a path starts, and has no quadrature error.
        evaluations: of the likelihood, in all.
        begin: when the clock started.
        settings: what the run does not know.
        draws: the draws themselves, which only the method "cais" needs.
    """
    plan, ladder, gram, g = run.plan, run.ladder, run.gram, run.g
    warnings: list[str] = []
    number = np.asarray(gram.number)
    rule = RULES[plan.rule]
    ess, r_hat = diagnostics.convergence(g)
    acceptance, outside, invalid, last_visited_reference = (np.stack(part) for part in zip(*run.moves, strict=True))
    plain = uncontrolled(gram)
    uncorrected = integrate(plain, number, gram.frame, ladder, rule)
    share_outside = float(outside[:, :, 1:].mean())
    # Nearly all that is outside may be NaN here and there, which is reported, and no border.
    stray = share_outside <= min(invalid.mean() * outside[0].size / outside[0, :, 1:].size, MAX_INVALID)
    controlled = _control(run, plain, ess, 0.0 if stray else share_outside, warnings)
    integral = integrate(controlled, number, gram.frame, ladder, rule)
    ratios = _ratios(run, controlled, plain, method)
    if method in ("ais", "cais"):
        warnings += weight_warnings(log_weights(g[..., :-1], ladder)[..., -1])
    if method == "cais" and draws is not None:
        # No control variates where those of the rungs are not to be trusted.
        degree = 0 if controlled is plain else plan.degree if plan.fixed else 1
        ratios["cais"], said = controlled_ais(draws, gram.frame, degree, plan.batches, crossfit=plan.crossfit)
        warnings += said
    quadrature = _quadrature_error(run, ratios, rule, integral)
    # Coefficients fitted in sample make the batches look more alike than they are: the error comes from other draws.
    series = {"cti": integral.series} | {name: ratio.series for name, ratio in ratios.items()}
    if not plan.crossfit and controlled.degree.any():
        fitted = control(gram, plan.sizes, fixed=plan.fixed, crossfit=True, highest=controlled.degree.max(axis=1))
        series["cti"] = integrate(fitted, number, gram.frame, ladder, rule).series
        series["bridge"] = _bridge(run, fitted, plain).series

    # The path starts at the prior given a likelihood that is not zero; the prior mass of that is part of the evidence.
    supported = 1 - outside[:, :, 0]
    _check_supported(supported.mean() * float(number.sum()) * g.shape[0], warnings)
    log_supported = float(np.log(supported.mean()))
    series = {name: one + supported / supported.mean() for name, one in series.items()}
    errors = {name: batch_error(one) for name, one in series.items()}
    values = {"cti": integral.value} | {name: ratio.value for name, ratio in ratios.items()}
    total = {name: float(np.hypot(errors[name].error, ROUNDING * max(abs(values[name]), 1.0))) for name in values}
    total["cti"] = float(np.hypot(total["cti"], quadrature))
    total = {name: error if np.isfinite(error) else np.inf for name, error in total.items()}
    estimates = pd.DataFrame(
        {"log_evidence": [value + log_supported for value in values.values()], "standard_error": [*total.values()]},
        index=pd.Index(list(values), name="method"),
    ).astype(float)

    swap_rate = diagnostics.swap_rates(g, ladder)
    tails = [diagnostics.tail(trace, n) for trace, n in zip(np.moveaxis(g, 2, 0), ess, strict=True)]
    variance = controlled.variance[:, 0]
    rungs = pd.DataFrame(
        {
            "t": ladder,
            "weight": rule(ladder)[0],
            "mean": integral.mean,
            "error": _errors(gram.frame.spread, controlled),
            "plain_mean": uncorrected.mean,
            "plain_error": _errors(gram.frame.spread, plain),
            "variance": integral.variance,
            "ratio": controlled.residual[:, 0] / np.where(variance > 0, variance, 1.0),
            "degree": controlled.degree[:, 0],
            "pareto_k": [tail.k for tail in tails],
            "acceptance": acceptance.mean(axis=(0, 1)),
            "swap_rate": swap_rate,
            "barrier": diagnostics.barrier(swap_rate),
            "last_visited_reference": last_visited_reference.mean(axis=(0, 1)),
            "ess": ess,
            "r_hat": r_hat,
        }
    ).rename_axis("rung")
    uncontrolled_tails = [tail for tail, ratio in zip(tails, rungs["ratio"], strict=True) if ratio > UNCONTROLLED]
    if method == "auto":
        overlap = np.nanmin(swap_rate) > 0.1
        # Without a variance, the integral's error cannot be trusted, however small.
        heavy = any(tail.heavier_than(NO_VARIANCE) for tail in uncontrolled_tails)
        method = "bridge" if overlap and (heavy or total["bridge"] < BRIDGE_ADVANTAGE * total["cti"]) else "cti"
    chosen = METHODS[method]
    mc = errors[chosen]
    if not np.isfinite([values[chosen], total[chosen]]).all():
        warnings.append(
            "the log evidence, or its error, is not finite: the log likelihood is so large in places that it overflows."
            " The likelihood may be unbounded, as where a scale tends to zero at a perfect fit, and the evidence "
            "infinite. Keep such parameters away by the prior."
        )
    _check_agreement(values, series, quadrature, chosen, warnings)
    if chosen != "cti":
        quadrature = 0.0
    _check_error(mc, values[chosen], quadrature, number[0], warnings)
    if chosen == "cti" and any(tail.heavier_than(NO_MEAN) for tail in uncontrolled_tails):
        warnings.append(diagnostics.heavy_warning(rungs))
    seen = {
        "round_trips": diagnostics.round_trips(last_visited_reference, int(number.sum())),
        "barrier": float(rungs["barrier"].iloc[-1]),
        "supported": float(supported.mean()),
        "outside": share_outside,
        "invalid": float(invalid.mean()),
    }
    warnings += diagnostics.invalid_warnings(seen["invalid"])
    warnings += diagnostics.trip_warnings(seen["round_trips"], len(ladder))
    return Evidence(
        log_evidence=float(estimates.log_evidence[chosen]),
        standard_error=float(estimates.standard_error[chosen]),
        mc_error=mc.error,
        quadrature_error=quadrature,
        degrees_of_freedom=mc.degrees_of_freedom,
        evaluations=evaluations,
        seconds=time.perf_counter() - begin,
        warnings=(*warnings, *diagnostics.rung_warnings(rungs)),
        rungs=rungs,
        estimates=estimates,
        diagnostics=seen,
        coefficients=pd.DataFrame(controlled.coefficients, columns=_feature_names(run, controlled)).rename_axis("rung"),
        trace=g[:, :: -(-g.shape[1] // LONGEST_TRACE)],
        settings={
            "method": method,
            **settings,
            "draws": int(number.sum()),
            "populations": g.shape[0],
            "ladder": ladder.tolist(),
            "degree": plan.degree if plan.fixed else "auto",
            "rule": plan.rule,
            "crossfit": plan.crossfit,
        },
    )


def _errors(spread: Any, controlled: Controlled) -> np.ndarray:
    """Error of the mean of g at every rung."""
    by_rung = np.moveaxis(controlled.mean[..., 0], 2, 0)
    return np.asarray(spread) * [batch_error(rung).error for rung in by_rung]


def _feature_names(run: PathSummary, controlled: Controlled) -> list[str]:
    """Name the columns of the coefficients."""
    number, (components, d) = controlled.coefficients.shape[1], run.gram.frame.mean.shape[1:]
    return basis.names(d, run.plan.degree, run.plan.cross, components)[:number]


def interim_estimate(run: PathSummary) -> str:
    """Print the answer that the first batches give, roughly: coefficients in sample, no checks."""
    batches = len(run.moves)
    if batches < 2:
        return ""
    log_supported = float(np.log(max(1 - np.mean([batch.outside[:, 0] for batch in run.moves]), 1e-300)))
    begun = run.gram._replace(first=run.gram.first[:batches], number=run.gram.number[:batches])
    controlled = control(begun, run.plan.sizes, fixed=True, crossfit=False)
    integral = integrate(controlled, np.asarray(begun.number), begun.frame, run.ladder, RULES[run.plan.rule])
    error = np.hypot(batch_error(integral.series).error, integral.quadrature_error)
    return f"log evidence {plus_minus(integral.value + log_supported, float(error))}"


def _ratios(run: PathSummary, controlled: Controlled, plain: Controlled, method: str) -> dict[str, Ratios]:
    """Estimate by ratios of normalising constants, in every way that there is."""
    found = {"bridge": _bridge(run, controlled, plain)}
    for name, stones in (("forward", forward), ("backward", backward)):
        found[name] = stones(run.g, run.ladder, run.plan.batches)
    try:
        # For the quadrature error some draws will do; the answer takes all that there are.
        found["mbar"] = mbar(run.g if method == "mbar" else _some(run), run.ladder, run.plan.batches)
    except ValueError:
        if method == "mbar":
            raise
    found["ais"] = ais(run.g, run.ladder, run.plan.batches)
    return found


def _bridge(run: PathSummary, controlled: Controlled, plain: Controlled) -> Ratios:
    """Estimate by the bridge form, with control variates unless the Gram has clipped the exponentials."""
    away = np.abs(run.g - np.asarray(run.gram.frame.centre)).max(axis=(0, 1))
    if np.max(np.diff(run.ladder) * np.maximum(away[:-1], away[1:]) / 2) < LARGEST_EXPONENT:
        return controlled_bridge(controlled, plain, np.asarray(run.gram.number), run.gram.frame, run.ladder)
    return bridge(run.g, run.ladder, run.plan.batches)


def _some(run: PathSummary) -> np.ndarray:
    """Thin the trace of g to what MBAR needs for a quadrature error, but for no less than a draw in each batch."""
    return run.g[:, :: min(-(-run.g.size // MOST_REWEIGHTED), run.g.shape[1] // run.plan.batches)]


def _quadrature_error(run: PathSummary, ratios: dict[str, Ratios], rule: Rule, integral: Integral) -> float:
    """Estimate the quadrature error by MBAR; where rungs do not overlap there is none, and the rule's own will do."""
    if "mbar" not in ratios:
        return integral.quadrature_error
    return float(np.hypot(rule_error(rule, run.ladder, _some(run), ratios["mbar"].log_z, run.ladder), QUADRATURE_FLOOR))


def _control(run: PathSummary, plain: Controlled, ess: np.ndarray, outside: float, warnings: list[str]) -> Controlled:
    """Control the targets, unless there is reason to think that the control variates do not have mean zero."""
    plan, gram = run.plan, run.gram
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
        weights = RULES[plan.rule](run.ladder)[0] * np.asarray(gram.frame.spread)
        total = (shift[..., 0] * weights).sum(axis=-1)
        apart = batch_error(total)
        z = np.array([abs(total.mean()) / max(apart.error, 1e-300)])
        threshold = critical_value(2e-5, apart.degrees_of_freedom)
        where = "over the whole path"
    if np.all(z <= threshold):
        return _with_light_tails(run, controlled, ess, warnings)
    warnings.append(
        f"control variates switched off: their averages should be zero but are {z.max():.2g} standard errors away "
        f"{where} (threshold {threshold:.2g}). Either the posterior density jumps somewhere (write a bounded "
        "parameter with a NumPyro distribution on its range), or a gradient is wrong, or the chains have not converged "
        "(increase draws)."
    )
    return plain


def _tail_of_features(run: PathSummary, rung: int, degree: int, ess: float) -> diagnostics.Tail:
    return diagnostics.tail(run.large[degree - 1, rung][None], ess)


def _with_light_tails(run: PathSummary, controlled: Controlled, ess: np.ndarray, warnings: list[str]) -> Controlled:
    """Lower the degree at rungs where features have a tail so heavy that they may have no variance."""
    degrees = controlled.degree.max(axis=1)
    lowered = degrees.copy()
    for rung in range(len(degrees)):
        while lowered[rung] and _tail_of_features(run, rung, lowered[rung], ess[rung]).heavier_than(NO_VARIANCE):
            lowered[rung] -= 1
    changed = np.flatnonzero(lowered < degrees)
    if not len(changed):
        return controlled
    said = ", ".join(dict.fromkeys(f"{degrees[rung]} to {lowered[rung]}" for rung in changed))
    warnings.append(
        f"degree lowered from {said} at {diagnostics.rung_names(changed)}: features of the control variates have such "
        "heavy tails there that their variance may be infinite, and coefficients fitted to them mean nothing. Priors "
        "with lighter tails, or rungs farther from t = 0, allow a higher degree."
    )
    plan = run.plan
    return control(run.gram, plan.sizes, fixed=plan.fixed, crossfit=plan.crossfit, highest=lowered)


def _check_supported(successes: float, warnings: list[str]) -> None:
    """Refuse, or warn of, a prior that hardly ever gives a likelihood."""
    if successes < 1:
        raise ValueError(
            "no draw from the prior has a likelihood above zero, so the prior mass that has one cannot be estimated. "
            "Increase draws, or use a narrower prior."
        )
    if successes < 20:
        warnings.append(
            f"only {successes:.0f} draws from the prior have a likelihood above zero: the share of prior mass that has "
            "one, which is part of the evidence, is poorly known. Increase draws, or use a narrower prior."
        )


def _check_error(mc: BatchError, value: float, quadrature: float, batch: float, warnings: list[str]) -> None:
    """Warn of an error that is itself in doubt."""
    if mc.disagreement:
        warnings.append(
            "populations disagree by more than their own errors explain, so some have not found all of the posterior; "
            "the error is taken from their spread. Increase draws, or add rungs where swap rates are low."
        )
    if quadrature > max(3 * mc.error, 0.1):
        warnings.append(
            f"the ladder is too coarse: the quadrature error, {quadrature:.2g}, is most of the error. "
            "Use more rungs, such as ladder=101, or more of them near t = 0, such as "
            "ladder=thermint.ladders.power(51, 8)."
        )
    if mc.error < 1e-9 * abs(value):
        return
    if mc.slow:
        warnings.append(
            f"slow: chains remember where they were for longer than {batch:.0f} draws, the length of a batch. The "
            "error comes from several batches joined together, and may still be too small. Increase draws."
        )
    if mc.degrees_of_freedom < FEWEST_FREEDOM and not mc.disagreement:
        warnings.append(
            f"a few batches of {batch:.0f} draws make up most of the Monte Carlo variance, so that the error itself is "
            "uncertain. The log likelihood has a heavy tail, typically near t = 0 under a prior that allows almost "
            "impossible parameters, such as scales close to zero. Use a prior that keeps away from them, or many more "
            "draws."
        )


def _check_agreement(
    values: dict[str, float],
    series: dict[str, np.ndarray],
    quadrature: float,
    chosen: str,
    warnings: list[str],
) -> None:
    """Warn where two estimates from the same draws differ by more than chance and quadrature explain."""
    for name, words in COMPARED.items():
        if name in values and name != chosen and chosen in ("cti", "bridge"):
            difference = values[chosen] - values[name]
            apart = batch_error(series[chosen] - series[name])
            rule = quadrature if "cti" in (chosen, name) else 0.0
            allowed = critical_value(DISAGREEMENT, apart.degrees_of_freedom) * np.hypot(apart.error, rule)
            if abs(difference) > allowed + 1e-9 * max(abs(values[chosen]), 1.0):
                warnings.append(
                    f"{COMPARED[chosen]} and {words} differ by {abs(difference):.2g}, more than chance and quadrature "
                    f"explain ({allowed:.2g}). Some rungs have not converged, or their control variates do not suit "
                    "them. Increase draws, or add rungs."
                )
    # These two have heavier tails than what else there is, so that small gaps say nothing of the answer.
    gap = abs(values["forward"] - values["backward"])
    error = batch_error(series["forward"] - series["backward"]).error
    if gap > 4 * error and (gap > WIDE_GAP or chosen == "forward"):
        warnings.append(
            f"stepping stones forward and backward differ by {gap:.2g}, {gap / error:.2g} standard errors: "
            "neighbouring rungs have too little in common. Add rungs, or leave the ladder to the library."
        )
