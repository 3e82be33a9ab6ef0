"""The answer of a report in sentences, for one model or for several that are compared."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import special

from thermint.inference.compare import SCALE, WITHIN, words
from thermint.model.result import Evidence, digits, plus_minus
from thermint.report.formatting import error_text, quoted, rounded, several, with_error

HUGE = 1e6  # odds beyond these are not quoted: a mistake in the data or in a model is likelier than one in a million
ROUGH = 0.05  # largest error of a log Bayes factor that is quoted without a range: the factor is then known to 10 %


def answer(result: Evidence, name: str = "") -> str:
    """State the log evidence in one sentence that can be quoted."""
    model = f"the model {quoted(name)}" if name else "the model"
    if not np.isfinite([result.log_evidence, result.standard_error]).all():
        return f"The log evidence of {model} cannot be quoted: its value, or its error, is not finite."
    decimals, ends = digits(result.standard_error), result.interval()
    interval = f" (95 % interval {ends[0]:.{decimals}f} to {ends[1]:.{decimals}f})" if np.isfinite(ends).all() else ""
    return (
        f"The log evidence of {model} is {result.log_evidence:.{decimals}f}, with a standard error of "
        f"{error_text(result.standard_error)}{interval}."
    )


def verdict(table: pd.DataFrame) -> str:
    """State which model of a `Comparison` the data favour and by how much, or that the errors do not allow it."""
    finite = np.isfinite(table[["log_evidence", "standard_error"]].to_numpy(dtype=float)).all(axis=1)
    if not finite.all():
        return (
            "The models cannot be compared: the log evidence, or its error, is not finite for "
            f"{several(map(quoted, table.index[~finite]))}."
        )
    best, second = map(quoted, table.index[:2])
    log_bf, error = -table["log_bf"].iloc[1], table["log_bf_error"].iloc[1]
    rivals = undecided(table)
    if rivals:
        return (
            f"The errors do not allow a verdict between {several(map(quoted, rivals))}: the log Bayes factor of "
            f"{best} over {second} is {with_error(log_bf, error)}, which may well be zero. A smaller target_error or "
            "more draws may decide it."
        )
    if len(table) == 2:
        favoured = f"The data favour {best} over {second}: the Bayes factor"
    else:
        favoured = f"Of the {len(table)} models, the data favour {best} most: the Bayes factor over the next, {second},"
    return (
        f"{favoured} is {odds(log_bf, error)} (log {with_error(log_bf, error)}), {strength(log_bf, error)}; "
        f"{_probability(table)}."
    )


def undecided(table: pd.DataFrame) -> list[str]:
    """List the models between which the errors do not allow a verdict, the best first; none if it has no rival."""
    rivals = list(table.index[-table["log_bf"] <= WITHIN * table["log_bf_error"]])
    return rivals if len(rivals) > 1 else []


def odds(log_bf: float, error: float) -> str:
    """Format a Bayes factor above one; as a range where the error is large, and as a bound where the factor is huge.

    >>> odds(2.62499, 2e-5), odds(8.0, 0.01), odds(1.5, 0.3), odds(40.0, 1.0), odds(0.1, 0.2)
    ('about 13.8 to 1', 'about 2,980 to 1', 'between 2.5 and 8.1 to 1', 'more than 10^6 to 1', 'undecided')
    """
    low, high = log_bf - WITHIN * error, log_bf + WITHIN * error
    if low <= 0:
        return "undecided"
    if low > np.log(HUGE):
        return f"more than 10^{np.log10(HUGE):.2g} to 1"
    if error <= ROUGH:
        return f"about {rounded(np.exp(log_bf), 3)} to 1"
    if high > np.log(HUGE):
        return f"more than {rounded(np.exp(low), 2)} to 1"
    return f"between {rounded(np.exp(low), 2)} and {rounded(np.exp(high), 2)} to 1"


def strength(log_bf: float, error: float) -> str:
    """Describe how strong the evidence is on the scale of Kass and Raftery, in a clause.

    >>> strength(2.6, 0.0), strength(0.5, 0.0)[:44]
    ("which is positive evidence on Kass and Raftery's scale", 'which is not worth more than a bare mention ')
    """
    grade, bare = words(log_bf, error), SCALE[0][1]
    if grade.startswith(f"{bare} to "):
        grade = f"between {quoted(bare)} and {grade.removeprefix(f'{bare} to ')}"
    return f"which is {grade}{'' if grade == bare else ' evidence'} on Kass and Raftery's scale"


def _probability(table: pd.DataFrame) -> str:
    """State how probable the best model is, in a clause."""
    value, error = table["probability"].iloc[0], table["probability_error"].iloc[0]
    equal = np.allclose(table["probability"], special.softmax(table["log_evidence"].to_numpy()), rtol=0, atol=1e-6)
    prior = "the prior probabilities given"
    if equal:
        prior = f"equal prior {'odds' if len(table) == 2 else 'probabilities'}"
    if value - WITHIN * error > 0.999:
        probability = "above 0.999"
    else:
        probability = f"{value:.3f}" if error < 5e-4 else plus_minus(value, error)
    return f"with {prior}, {quoted(table.index[0])} has probability {probability}"


def caution(warned: Sequence[str], models: int) -> str:
    """Say that numbers should not be quoted, if there are warnings; ``warned`` names the models that have some."""
    if not warned:
        return ""
    if models == 1:
        return "This number should not be quoted before the warnings below are dealt with."
    which = "all of the models" if len(warned) == models else several(map(quoted, warned))
    return f"These numbers should not be quoted before the warnings below, about {which}, are dealt with."


def meaning(models: int) -> str:
    """Explain what the numbers are, for readers who see them for the first time."""
    if models == 1:
        return (
            "The evidence is the probability (density) of the data under the model, averaged over the prior. By itself "
            "it says little; the difference between the log evidences of two models of the same data is the log of "
            "their Bayes factor."
        )
    return (
        "The evidence is the probability (density) of the data under a model, averaged over its prior. The Bayes "
        "factor of two models is the ratio of their evidences: the factor by which the data change the odds between "
        "them. It compares these models, with their priors, and does not say that any of them is right."
    )
