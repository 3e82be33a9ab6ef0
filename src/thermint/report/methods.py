"""How an answer came about, as a paper describes it, and the references that the description cites."""

from __future__ import annotations

from importlib.metadata import version

import numpy as np

from thermint.estimators import table
from thermint.estimators.table import ESTIMATORS, Citation
from thermint.model.result import Evidence
from thermint.model.settings import Settings
from thermint.report.formatting import number

# Those of estimators are in their table.
REFERENCES = (
    Citation(
        "Friel, Hurn and Wyse 2014",
        "Friel, N., Hurn, M. and Wyse, J. (2014). Improving power posterior estimation of statistical evidence. "
        "Statistics and Computing 24, 709-723.",
        "10.1007/s11222-013-9397-1",
    ),
    Citation(
        "Kass and Raftery 1995",
        "Kass, R. E. and Raftery, A. E. (1995). Bayes factors. "
        "Journal of the American Statistical Association 90(430), 773-795.",
        "10.1080/01621459.1995.10476572",
    ),
)
KERNELS = {
    "mala": "the Metropolis-adjusted Langevin algorithm with adapted covariances",
    "mmala": "the simplified manifold Metropolis-adjusted Langevin algorithm",
    "hmc": "Hamiltonian Monte Carlo with adapted covariances",
    "barker": "Barker proposals with adapted covariances",
    "random_walk": "random walk Metropolis with adapted covariances",
}
SWAPS = {
    "even_odd": "swaps between neighbouring rungs",
    "random_pair": "one swap of a random pair of rungs per iteration",
    "random_pairs": "as many swaps of random pairs of rungs per iteration as there are rungs",
}
RULES = {
    "lobatto": "Gauss-Lobatto quadrature",
    "second-order": "the trapezoid rule with second-order correction (Friel, Hurn and Wyse 2014)",
    "trapezoid": "the trapezoid rule",
}


def kind(result: Evidence) -> str:
    """Name the function that made the result: "evidence", "estimate" (from given draws) or "anneal"."""
    if result.settings.method == "anneal":
        return "anneal"
    return "evidence" if result.settings.reference else "estimate"


def chosen(result: Evidence) -> str:
    """Name the row of the table of estimates that is the answer."""
    method = result.settings.method
    return table.methods().get(method, method)


def methods(result: Evidence) -> str:
    """Describe how the answer was computed, with what this run used."""
    parts = (_annealing,) if kind(result) == "anneal" else (_path, _sampling, _estimator, _errors)
    used = result.settings.versions.get("thermint", version("thermint"))
    return " ".join([*(part(result) for part in parts), f"thermint {used} was used."])


def _annealing(result: Evidence) -> str:
    settings = result.settings
    return (
        "The log evidence was computed by annealed importance sampling (Neal 2001): "
        f"{settings.particles:,} particles were drawn from the prior and moved along a ladder of "
        f"{len(settings.ladder)} inverse temperatures towards the posterior by {_kernel(settings)}, which was tuned "
        "beforehand. The evidence is the mean of their importance weights, and its standard error comes from their "
        "spread."
    )


def _path(result: Evidence) -> str:
    settings = result.settings
    rungs = f"{len(result.rungs)} inverse temperatures t from 0 to 1"
    if settings.reference == "fitted":
        return (
            "The log evidence was computed along a path of densities proportional to "
            "q(θ)^(1-t) [p(y|θ) p(θ)]^t (cf. Friel and Pettitt 2008), "
            f"from a reference q, {_reference(settings)}, to the posterior. The reference was fitted to draws of the "
            f"posterior from a short run that started at the prior. The path has {rungs}."
        )
    return (
        "The log evidence was computed along the path of power posteriors, proportional to p(y|θ)^t p(θ), from the "
        f"prior to the posterior (Friel and Pettitt 2008), at {rungs}."
    )


def _reference(settings: Settings) -> str:
    components, dof = settings.described.get("components", 1), settings.described.get("dof")
    tail = f" with {dof:g} degrees of freedom" if dof else ""
    family = "Student-t" if dof else "normal"
    one = components == 1
    return f"a {family} distribution{tail}" if one else f"a mixture of {components} {family} distributions{tail}"


def _sampling(result: Evidence) -> str:
    settings = result.settings
    if kind(result) == "estimate":
        return f"The draws were given: {settings.draws or 0:,} per rung in each of {settings.populations} populations."
    return (
        f"All rungs were sampled together by population MCMC: {settings.populations} independent populations with "
        f"{settings.draws:,} draws per rung after warm-up, moves by {_kernel(settings)}, and "
        f"{SWAPS.get(str(settings.swap), f'the swap {settings.swap}')}. In all, the likelihood was evaluated "
        f"{result.evaluations:,} times."
    )


def _kernel(settings: Settings) -> str:
    return KERNELS.get(str(settings.kernel), f"the kernel {settings.kernel}")


def _estimator(result: Evidence) -> str:
    fitted = result.settings.reference == "fitted"
    ratio = "the log of the ratio of p(y|θ) p(θ) to q(θ)" if fitted else "log p(y|θ)"
    method = chosen(result)
    if method == "cti":
        rule = RULES.get(str(result.settings.rule), "quadrature")
        return (
            f"The log evidence is the integral over t of the expectation of g, {ratio} (Friel and Pettitt 2008). "
            f"{_control(result)} The integral was computed by {rule}."
        )
    if method == "bridge":
        return (
            "The log evidence is a sum of log ratios of normalising constants of neighbouring rungs, each in bridge "
            "form: log E[exp(d g / 2)] at the lower rung minus log E[exp(-d g / 2)] at the upper one, where g is "
            f"{ratio} and d their distance in t. {_control(result)}"
        )
    estimator = ESTIMATORS[method]
    citation = f" ({estimator.citation.key})" if estimator.citation else ""
    return f"The log evidence was estimated by {estimator.description or estimator.label}{citation}."


def _control(result: Evidence) -> str:
    """Describe the control variates that were used, if any."""
    degrees = result.rungs["degree"].to_numpy() if "degree" in result.rungs else np.zeros(1)
    if not degrees.any():
        why = "" if result.settings.gradients else ", because the model has no gradients"
        return f"Expectations are plain averages over draws: no control variates were used{why}."
    low, high = int(degrees.min()), int(degrees.max())
    degree = f"degree {low}" if low == high else f"degrees {low} to {high}"
    if result.settings.degree == "auto":
        degree += ", chosen at every rung by the variance of held-out draws"
    crossfit = result.settings.crossfit
    fitted = "fitted to other draws than they were applied to" if crossfit else "fitted in sample"
    return (
        "The variance of its average at every rung was reduced by Stein control variates of polynomial trial functions "
        f"({degree}; Oates, Papamarkou and Girolami 2016), whose coefficients were {fitted}."
    )


def _errors(result: Evidence) -> str:
    dof = number(result.degrees_of_freedom, ".0f")
    text = f"The Monte Carlo error comes from batch means ({dof} degrees of freedom)"
    if chosen(result) != "cti":
        return f"{text}."
    by = "the rule itself"
    if "mbar" in result.estimates.index:
        by = "the difference between the rule and MBAR (Shirts and Chodera 2008) on the same draws"
    return f"{text}, and the quadrature error from {by}; the two are added in quadrature."


def cited(text: str) -> list[Citation]:
    """Return the references that a text cites, sorted by author."""
    known = {*REFERENCES, *(one.citation for one in ESTIMATORS.values() if one.citation)}
    return sorted(citation for citation in known if citation.key in text)
