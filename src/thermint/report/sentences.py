"""What a report says in words: the answer, how far to trust it, how it came about and what to cite.

All of it is plain text; `thermint.report` puts it on a page.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import special

from thermint import kernels
from thermint.diagnostics import MIN_ACCEPTANCE
from thermint.estimators.table import ESTIMATORS
from thermint.estimators.table import methods as estimator_methods
from thermint.inference.compare import SCALE, WITHIN, words
from thermint.inference.summary import BRIDGE_ADVANTAGE, ROUNDING
from thermint.model.result import Evidence, digits, plus_minus
from thermint.path import ladders
from thermint.sampling import swaps

HUGE = 1e6  # Bayes factors beyond this say no more than that
ROUGH = 0.05  # error of a log Bayes factor, from which on the factor is given as a range
MISSING = "–"

# By the words under which a text cites them; those of estimators are in their table.
REFERENCES = {
    "Friel, Hurn and Wyse 2014": (
        "Friel, N., Hurn, M. and Wyse, J. (2014). Improving power posterior estimation of statistical evidence. "
        "Statistics and Computing 24, 709-723.",
        "10.1007/s11222-013-9397-1",
    ),
    "Kass and Raftery 1995": (
        "Kass, R. E. and Raftery, A. E. (1995). Bayes factors. "
        "Journal of the American Statistical Association 90(430), 773-795.",
        "10.1080/01621459.1995.10476572",
    ),
}
KERNELS = {
    "mala": "the Metropolis-adjusted Langevin algorithm with adapted covariances",
    "mmala": "the simplified manifold Metropolis-adjusted Langevin algorithm",
    "hmc": "Hamiltonian Monte Carlo with adapted covariances",
    "random_walk": "random walk Metropolis with adapted covariances",
}
SWAPS = {
    "even_odd": "exchanges between neighbouring rungs",
    "random_pair": "one exchange of a random pair of rungs an iteration",
    "random_pairs": "as many exchanges of random pairs of rungs an iteration as there are rungs",
}
RULES = {
    "lobatto": "Gauss-Lobatto quadrature",
    "second-order": "the trapezoid rule with second-order correction (Friel, Hurn and Wyse 2014)",
    "trapezoid": "the trapezoid rule",
}


class Part(NamedTuple):
    """One part of a standard error, in nats."""

    name: str
    error: float
    note: str


# --- Numbers ---------------------------------------------------------------------------------------------------------


def number(value: Any, form: str) -> str:
    """Print a number, or a dash for what is not one."""
    return format(value, form) if value is not None and np.isfinite(value) else MISSING


def error_text(error: float) -> str:
    """Print an error to two digits; very small ones in powers of ten.

    >>> error_text(0.000412), error_text(3e-13), error_text(0.0), error_text(float("inf"))
    ('0.00041', '3.0e-13', '0', 'not finite')
    """
    if not np.isfinite(error):
        return "not finite"
    if error == 0:
        return "0"
    return f"{error:.{digits(error)}f}" if error >= 1e-9 else f"{error:.1e}"


def with_error(value: float, error: float) -> str:
    """Print a value with its error; without, where there is none, and a dash where there is no value.

    >>> with_error(-141.48, 3e-13), with_error(-2.0, float("nan")), with_error(float("nan"), 1.0)
    ('-141.4800000000 ± 3.0e-13', '-2', '–')
    """
    if not np.isfinite(value):
        return MISSING
    if not np.isfinite(error):
        return f"{value:.6g}"
    return plus_minus(value, error) if error >= 1e-9 else f"{value:.{digits(error)}f} ± {error_text(error)}"


def several(names: Iterable[str]) -> str:
    """Join names.

    >>> several(["a", "b", "c"])
    'a, b and c'
    """
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def quoted(name: Any) -> str:
    """Set a model's name apart from the words around it."""
    return f"“{name}”"


# --- The answer ------------------------------------------------------------------------------------------------------


def answer(result: Evidence, name: str = "") -> str:
    """Say the log evidence in one sentence that can be quoted."""
    model = f"the model {quoted(name)}" if name else "the model"
    if not np.isfinite([result.log_evidence, result.standard_error]).all():
        return f"There is no log evidence of {model} that could be quoted: the number, or its error, is not finite."
    said = f"The log evidence of {model} is {result.log_evidence:.{digits(result.standard_error)}f}"
    said += f", with a standard error of {error_text(result.standard_error)}"
    low, high = (f"{end:.{digits(result.standard_error)}f}" for end in result.interval())
    return said + (f" (95 % interval {low} to {high})." if np.isfinite([float(low), float(high)]).all() else ".")


def verdict(table: pd.DataFrame) -> str:
    """Say which model the data favour, and by how much; or that this cannot be said.

    Args:
        table: of `thermint.compare`, with two models or more.
    """
    numbers = zip(table.index, table["log_evidence"], table["standard_error"], strict=True)
    broken = [name for name, *both in numbers if not np.isfinite(both).all()]
    if broken:
        return (
            "The models cannot be compared: the log evidence, or its error, is not finite for "
            f"{several(map(quoted, broken))}."
        )
    best, second = table.index[:2]
    log_bf, error = -table["log_bf"].iloc[1], table["log_bf_error"].iloc[1]
    rivals = undecided(table)
    if rivals:
        return (
            f"The errors do not allow a verdict between {several(map(quoted, rivals))}: the log Bayes factor of "
            f"{quoted(best)} over {quoted(second)} is {with_error(log_bf, error)}, which may well be zero. Smaller "
            "errors, by target_error or more draws, may decide it."
        )
    if len(table) == 2:
        said = f"The data favour {quoted(best)} over {quoted(second)}: the Bayes factor is "
    else:
        said = f"Of the {len(table)} models, the data favour {quoted(best)} most: the Bayes factor over the next best, "
        said += f"{quoted(second)}, is "
    said += f"{odds(log_bf, error)} (log {with_error(log_bf, error)}), {strength(log_bf, error)}"
    return f"{said}; {_probability(table)}."


def undecided(table: pd.DataFrame) -> list[str]:
    """Name the models between which the errors do not allow a verdict, the best first; none if there is no other."""
    rivals = list(table.index[-table["log_bf"] <= WITHIN * table["log_bf_error"]])
    return rivals if len(rivals) > 1 else []


def odds(log_bf: float, error: float) -> str:
    """Print a Bayes factor above one; as a range where the error is large, and no more than a bound where it is huge.

    >>> odds(2.62499, 2e-5), odds(8.0, 0.01), odds(1.5, 0.3), odds(40.0, 1.0), odds(0.1, 0.2)
    ('about 13.8 to 1', 'about 2,980 to 1', 'between 2.5 and 8.2 to 1', 'more than 10^6 to 1', 'undecided')
    """
    low, high = log_bf - WITHIN * error, log_bf + WITHIN * error
    if low <= 0:
        return "undecided"
    if low > np.log(HUGE):
        return "more than 10^6 to 1"
    if error <= ROUGH:
        return f"about {_rounded(np.exp(log_bf), 3)} to 1"
    if high > np.log(HUGE):
        return f"more than {_rounded(np.exp(low), 2)} to 1"
    return f"between {_rounded(np.exp(low), 2)} and {_rounded(np.exp(high), 2)} to 1"


def _rounded(value: float, figures: int) -> str:
    """Print a number above one to so many figures, without powers of ten.

    >>> _rounded(13.8012, 3), _rounded(2980.9, 3), _rounded(1.0004, 3)
    ('13.8', '2,980', '1.00')
    """
    decimals = figures - 1 - int(np.floor(np.log10(value)))
    return f"{round(value, decimals):,.{max(decimals, 0)}f}"


def strength(log_bf: float, error: float) -> str:
    """Say how strong the evidence is, in a clause, on the scale of Kass and Raftery.

    >>> strength(2.6, 0.0), strength(0.5, 0.0)[:44]
    ("which is positive evidence on Kass and Raftery's scale", 'which is not worth more than a bare mention ')
    """
    said = words(log_bf, error)
    bare = SCALE[0][1]
    if said == bare:
        return f"which is {said} on Kass and Raftery's scale"
    if said.startswith(bare):
        return (
            f"which is between {quoted(bare)} and{said.removeprefix(bare + ' to')} evidence on Kass and Raftery's scale"
        )
    return f"which is {said} evidence on Kass and Raftery's scale"


def _probability(table: pd.DataFrame) -> str:
    """Say how probable the best model is, in a clause."""
    value, error = table["probability"].iloc[0], table["probability_error"].iloc[0]
    equal = np.allclose(table["probability"], special.softmax(table["log_evidence"].to_numpy()), rtol=0, atol=1e-6)
    prior = (
        f"equal prior {'odds' if len(table) == 2 else 'probabilities'}" if equal else "the prior probabilities given"
    )
    if value - WITHIN * error > 0.999:
        said = "above 0.999"
    else:
        said = f"{value:.3f}" if error < 5e-4 else plus_minus(value, error)
    return f"with {prior}, {quoted(table.index[0])} has probability {said}"


def caution(warned: Sequence[str], models: int) -> str:
    """Say that numbers should not be quoted, if there are warnings; ``warned`` names the models that have some."""
    if not warned:
        return ""
    if models == 1:
        return "This number should not be quoted before the warnings below are dealt with."
    which = "all of the models" if len(warned) == models else several(map(quoted, warned))
    return f"These numbers should not be quoted before the warnings below, about {which}, are dealt with."


def meaning(models: int) -> str:
    """Explain what the numbers are to someone who sees them for the first time."""
    if models == 1:
        return (
            "The evidence is the probability (density) of the data under the model, averaged over the prior. By itself "
            "it says little; the difference between the log evidences of two models of the same data is the log of "
            "their Bayes factor."
        )
    return (
        "The evidence is the probability (density) of the data under a model, averaged over its prior. The Bayes "
        "factor of two models is the ratio of their evidences: by how much the data change the odds between them. It "
        "compares these models, with their priors, and does not say that any of them is right."
    )


# --- How far to trust it ---------------------------------------------------------------------------------------------


def budget(result: Evidence) -> list[Part]:
    """Take the standard error apart; the squares of the parts add up to its own."""
    annealed = kind(result) == "anneal"
    rounding = 0.0 if annealed else ROUNDING * max(abs(result.log_evidence), 1.0)
    chance = "spread of the particles' weights" if annealed else "chance, with correlation between draws and rungs"
    rule = "of the rule along the ladder" if _integrates(result) else "none: no rule is used"
    parts = [
        Part("Monte Carlo", result.mc_error, chance),
        Part("quadrature", result.quadrature_error, rule),
        Part("rounding", rounding, "not counted" if annealed else "what floating-point arithmetic may do at most"),
    ]
    rest = result.standard_error**2 - sum(part.error**2 for part in parts)
    if np.isfinite(rest) and rest > 1e-6 * result.standard_error**2:
        parts.append(Part("disagreement", float(np.sqrt(rest)), "between the two paths; see the warnings"))
    return parts


def not_included(result: Evidence, *, compared: bool) -> list[str]:
    """Say what no error bar of this kind covers."""
    said = [
        "Modes of the posterior that no chain has found: what is missed is missing from the evidence, and leaves no "
        "trace in its error.",
        "Approximations inside the likelihood, such as differential equations that are solved to a tolerance.",
        "The choice of the prior, on which the evidence depends: a prior ten times as wide may lower it by log 10 for "
        "every parameter.",
    ]
    if kind(result) == "anneal":
        said.append(
            "The bias of a logarithm: the evidence is unbiased, so that its log is too low on average, by about "
            f"{number(result.standard_error**2 / 2, '.1g')} here."
        )
    if compared:
        said.append("Whether all models were given the same data, which Bayes factors take for granted.")
    return said


def checks(result: Evidence) -> list[str]:
    """Say in words what the diagnostics show."""
    rungs, seen = result.rungs, result.diagnostics
    said = []
    if _has(rungs, "r_hat"):
        said.append(
            f"R-hat of the log likelihood, which should be close to 1, is at most {rungs['r_hat'].max():.3f} "
            f"({_where(rungs['r_hat'], largest=True)}); a warning is given above 1.05."
        )
    if _has(rungs, "ess"):
        of = "weights" if kind(result) == "anneal" else "draws"
        said.append(
            f"The effective number of independent {of} is at least {rungs['ess'].min():,.0f} "
            f"({_where(rungs['ess'], largest=False)})."
        )
    moves = rungs.iloc[1:]
    if _has(moves, "acceptance"):
        said.append(
            f"Moves within rungs were accepted in {moves['acceptance'].min():.0%} to {moves['acceptance'].max():.0%} "
            f"of the cases; below {MIN_ACCEPTANCE:.0%} there would be a warning."
        )
    if _has(rungs, "swap_rate"):
        said.append(
            f"Neighbouring rungs exchanged states in at least {rungs['swap_rate'].min():.0%} of the attempts "
            f"({_where(rungs['swap_rate'], largest=False)} with the next); below {MIN_ACCEPTANCE:.0%} there would be a "
            "warning."
        )
    if np.isfinite(seen.get("round_trips", np.nan)):
        said.append(
            f"States travelled from one end of the ladder to the other and back {seen['round_trips']:,.0f} times. The "
            f"communication barrier that they overcome is {seen['barrier']:.2g}; a ladder wants about twice as many "
            "rungs."
        )
    if _has(rungs, "ratio") and rungs["degree"].any():
        low, high = rungs["ratio"].min(), rungs["ratio"].max()
        said.append(f"Control variates leave between {low:.1g} and {high:.1g} of the variance of g, R(t).")
    if _has(rungs, "pareto_k"):
        said.append(
            f"The log likelihood's heaviest tail has a Pareto k of {rungs['pareto_k'].max():.2f} "
            f"({_where(rungs['pareto_k'], largest=True)}); its variance is infinite above 0.5."
        )
    others = _others(result)
    if len(others):
        said.append(
            f"{len(others)} other methods that use the same draws are at most {others.abs().max():.1f} standard errors "
            f"(theirs and ours combined) away from the answer."
        )
    if seen.get("supported", 1.0) < 1:
        said.append(
            f"The likelihood is zero at {1 - seen['supported']:.2%} of the draws from where the path starts, which the "
            "evidence takes into account."
        )
    for name, where in (("outside", "fell where prior or likelihood is zero"), ("invalid", "gave NaN or +inf")):
        if seen.get(name, 0.0) > 0:
            said.append(f"{seen[name]:.2%} of the proposals {where}, and were rejected.")
    return said


def _has(table: pd.DataFrame, column: str) -> bool:
    return column in table and bool(np.isfinite(table[column].to_numpy(dtype=float)).any())


def _where(column: pd.Series, *, largest: bool) -> str:
    """Name the rung of the largest or smallest value."""
    values = column.to_numpy(dtype=float)
    return f"rung {np.nanargmax(values) if largest else np.nanargmin(values)}"


def _others(result: Evidence) -> pd.Series:
    """Return how many standard errors the other methods are away from the answer."""
    if not {"log_evidence", "standard_error"} <= set(result.estimates):
        return pd.Series(dtype=float)
    others = result.estimates.drop(index=chosen(result), errors="ignore")
    apart: pd.Series = (others["log_evidence"] - result.log_evidence) / np.hypot(
        others["standard_error"], result.standard_error
    )
    return apart[np.isfinite(apart)]


# --- How it came about -----------------------------------------------------------------------------------------------


def kind(result: Evidence) -> str:
    """Name the function that the result comes from: "evidence", "estimate" (of draws made elsewhere) or "anneal"."""
    if result.settings.get("method") == "anneal":
        return "anneal"
    return "evidence" if "reference" in result.settings else "estimate"


def chosen(result: Evidence) -> str:
    """Name the row of the table of estimates that is the answer."""
    method = result.settings.get("method", "cti")
    return estimator_methods().get(method, method)


def _integrates(result: Evidence) -> bool:
    return chosen(result) == "cti"


def methods(result: Evidence) -> str:
    """Describe how the answer was computed, as for a paper, in the words of what was used in this run."""
    if kind(result) == "anneal":
        return _annealing(result)
    return " ".join(part for part in (_path(result), _sampling(result), _estimator(result), _errors(result)) if part)


def _annealing(result: Evidence) -> str:
    settings = result.settings
    return (
        "The log evidence was computed by annealed importance sampling (Neal 2001): "
        f"{settings['particles']:,} particles were drawn from the prior and moved along a ladder of "
        f"{len(settings['ladder'])} inverse temperatures towards the posterior by {_kernel(settings)}, which was tuned "
        "beforehand. The evidence is the mean of their importance weights, and its standard error comes from their "
        f"spread. thermint {_version(settings)} was used."
    )


def _path(result: Evidence) -> str:
    settings = result.settings
    rungs = f"{len(settings.get('ladder', result.rungs))} inverse temperatures t from 0 to 1"
    if settings.get("reference") == "fitted":
        return (
            "The log evidence was computed along a path of densities proportional to "
            "q(θ)^(1-t) [p(y|θ) p(θ)]^t (cf. Friel and Pettitt 2008), "
            f"from a reference q, {_reference(settings)}, to the posterior. The reference was fitted to draws of the "
            f"posterior, which a short run from the prior had found. The path has {rungs}."
        )
    return (
        "The log evidence was computed along the path of power posteriors, proportional to p(y|θ)^t p(θ), from the "
        f"prior to the posterior (Friel and Pettitt 2008), at {rungs}."
    )


def _reference(settings: dict[str, Any]) -> str:
    components, dof = settings.get("components", 1), settings.get("dof")
    tail = f" with {dof:g} degrees of freedom" if dof else ""
    family = "Student-t" if dof else "normal"
    if components == 1:
        return f"a {family} distribution{tail}"
    return f"a mixture of {components} {family} distributions{tail}"


def _sampling(result: Evidence) -> str:
    settings = result.settings
    if kind(result) == "estimate":
        populations = settings.get("populations", 0)
        return f"The draws, {settings.get('draws', 0):,} a rung in {populations} populations, were given."
    return (
        f"All rungs were sampled together by population MCMC: {settings['populations']} independent populations with "
        f"{settings['draws']:,} draws a rung after warm-up, moves by {_kernel(settings)}, and "
        f"{SWAPS.get(settings['swap'], 'the exchange ' + settings['swap'])}. In all, the likelihood was evaluated "
        f"{result.evaluations:,} times."
    )


def _kernel(settings: dict[str, Any]) -> str:
    return KERNELS.get(settings["kernel"], f"the kernel {settings['kernel']}")


def _estimator(result: Evidence) -> str:
    ratio = (
        "the log of the ratio of p(y|θ) p(θ) to q(θ)" if result.settings.get("reference") == "fitted" else "log p(y|θ)"
    )
    method = chosen(result)
    if method == "cti":
        rule = RULES.get(result.settings.get("rule", ""), "quadrature")
        return (
            f"The log evidence is the integral over t of the expectation of g, {ratio} (Friel and Pettitt 2008). "
            f"{_control(result)} The integral was taken by {rule}."
        )
    if method == "bridge":
        return (
            "The log evidence is a sum of log ratios of normalising constants of neighbouring rungs, each in bridge "
            "form: log E[exp(d g / 2)] at the lower rung minus log E[exp(-d g / 2)] at the upper one, where g is "
            f"{ratio} and d their distance in t. {_control(result)}"
        )
    estimator = ESTIMATORS[method]
    cited = f" ({estimator.citation.key})" if estimator.citation else ""
    return f"The log evidence was estimated by {estimator.description or estimator.label}{cited}."


def _control(result: Evidence) -> str:
    """Say which control variates were used, if any."""
    degrees = result.rungs["degree"].to_numpy() if "degree" in result.rungs else np.zeros(1)
    if not degrees.any():
        why = "" if result.settings.get("gradients", True) else ", because the model has no gradients"
        return f"Expectations are plain averages over draws: no control variates were used{why}."
    low, high = int(degrees.min()), int(degrees.max())
    degree = f"degree {low}" if low == high else f"degrees {low} to {high}"
    if result.settings.get("degree") == "auto":
        degree += ", chosen at every rung by the variance of held-out draws"
    fitted = (
        "fitted to other draws than they were applied to"
        if result.settings.get("crossfit", True)
        else "fitted in sample"
    )
    return (
        "The variance of its average at every rung was reduced by Stein control variates of polynomial trial functions "
        f"({degree}; Oates, Papamarkou and Girolami 2016), whose coefficients were {fitted}."
    )


def _errors(result: Evidence) -> str:
    said = (
        f"The Monte Carlo error comes from batch means ({number(result.degrees_of_freedom, '.0f')} degrees of freedom)"
    )
    if _integrates(result):
        by = (
            "the difference between the rule and MBAR (Shirts and Chodera 2008) on the same draws"
            if "mbar" in result.estimates.index
            else "the rule itself"
        )
        said += f", and the quadrature error from {by}; the two are added in quadrature"
    return f"{said}. thermint {_version(result.settings)} was used."


def _version(settings: dict[str, Any]) -> str:
    from importlib.metadata import version

    return str(settings.get("versions", {}).get("thermint", version("thermint")))


def cited(text: str) -> list[tuple[str, str]]:
    """Return the references that a text cites: each with its DOI."""
    known = [one.citation for one in ESTIMATORS.values() if one.citation]
    references = REFERENCES | {one.key: (one.text, one.doi) for one in known}
    return [references[key] for key in sorted(references) if key in text]


# --- To repeat it ----------------------------------------------------------------------------------------------------


def snippet(result: Evidence) -> str:
    """Write the call that repeats the run, as far as the result knows it; options at their defaults are left out."""
    settings = result.settings
    options: dict[str, str] = {}
    if kind(result) == "anneal":
        call, first = "anneal", "model"
        options = {"ladder": _ladder(settings["ladder"]), "particles": str(settings["particles"])}
        options |= _function("kernel", kernels, settings)
    elif kind(result) == "estimate":
        call, first = "estimate", "draws"
        options = {name: repr(settings[name]) for name in ("method", "degree", "rule", "crossfit") if name in settings}
    else:
        call, first = "evidence", "model"
        options = _evidence_options(result)
    if "seed" in settings:
        options["seed"] = str(settings["seed"])
    given = ", ".join([first, *(f"{name}={value}" for name, value in options.items())])
    return f"import thermint\n\nresult = thermint.{call}({given})\n"


def _evidence_options(result: Evidence) -> dict[str, str]:
    settings, options = result.settings, {}
    ladder = np.asarray(settings["ladder"])
    prior = settings["reference"] == "prior"
    if prior:
        options["reference"] = '"prior"'
    if prior or not ladders.is_lobatto(ladder):
        options["ladder"] = _ladder(settings["ladder"])
    if prior or settings["kernel"] not in ("mala", "mmala", "hmc"):  # the fitted path has chosen one of these
        options |= _function("kernel", kernels, settings)
    if settings["swap"] != "even_odd":
        options |= _function("swap", swaps, settings)
    if settings["degree"] != "auto" and settings.get("gradients", True):
        options["degree"] = repr(settings["degree"])
    usual = "lobatto" if ladders.is_lobatto(ladder) else "second-order"
    if settings["rule"] != usual or (_integrates(result) and _bridge_preferred(result)):
        options["rule"] = f'"{settings["rule"]}"'
    if not settings["crossfit"]:
        options["crossfit"] = "False"
    options["draws"] = str(settings["draws"] // 2 ** (settings["rounds"] - 1))  # rounds double them
    options["populations"] = str(settings["populations"])
    if settings["target_error"] is not None:
        options["target_error"] = repr(settings["target_error"])
    return options


def _bridge_preferred(result: Evidence) -> bool:
    """Say whether the library might have answered by the bridge form, had no rule been given."""
    error = result.estimates["standard_error"]
    return bool(error["bridge"] < BRIDGE_ADVANTAGE * error["cti"] or (result.rungs["pareto_k"] > 1 / 2).any())


def _ladder(ladder: list[float]) -> str:
    """Write a ladder as a number of rungs, if that is what it is."""
    return str(len(ladder)) if np.array_equal(ladder, ladders.power(len(ladder))) else repr(list(ladder))


def _function(option: str, module: Any, settings: dict[str, Any]) -> dict[str, str]:
    """Write a kernel or swap of the library; one that is not needs the code of whoever wrote it."""
    name = settings[option]
    return {option: f"thermint.{module.__name__.rpartition('.')[2]}.{name}" if hasattr(module, name) else name}
