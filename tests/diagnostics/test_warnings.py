"""Every warning has a threshold: what is clearly below it is left alone, and what is clearly above it is said."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from thermint import diagnostics
from thermint.diagnostics import Tail
from thermint.estimators.base import Estimate
from thermint.estimators.errors import BatchError

WELL = {"r_hat": 1.0, "ess": 1000.0, "swap_rate": 0.5, "acceptance": 0.5, "mean": 0.0, "error": 0.1}


def rungs(**changes: float) -> pd.DataFrame:
    """A table of four rungs that do well, but for the third."""
    table = pd.DataFrame([WELL] * 4)
    for column, value in changes.items():
        table.loc[2, column] = value
    return table


# The warning of a value, one value that is fine, and one that is not: within a factor of two of each other.
THRESHOLDS: dict[str, tuple[Callable[[float], list[str]], float, float, str]] = {
    "R-hat": (lambda x: diagnostics.convergence_warnings(rungs(r_hat=1 + x)), 0.04, 0.06, "exceeds 1.05 at rung 2"),
    "ess": (lambda x: diagnostics.convergence_warnings(rungs(ess=x)), 60, 40, "sample size of 40 at rung 2"),
    "swaps": (lambda x: diagnostics.acceptance_warnings(rungs(swap_rate=x)), 0.12, 0.08, "swaps between neighbours"),
    "moves": (lambda x: diagnostics.acceptance_warnings(rungs(acceptance=x)), 0.12, 0.08, "moves are accepted"),
    "fall": (lambda x: diagnostics.monotone_warnings(rungs(mean=x)), 0.6, 0.8, "falls from rung 2 to rung 3"),
    "trips": (lambda x: diagnostics.trip_warnings(x, 5), 6, 4, "back 4 times in all"),
    "narrow": (lambda x: diagnostics.narrow_warnings(np.array([x]), ("a",)), 2.4, 3.6, "most of all in 'a'"),
    "weights": (lambda x: diagnostics.weight_warnings(np.zeros(int(x))), 25, 15, "are worth 15.0 equal ones"),
    "support": (diagnostics.supported_warnings, 25, 15, "only 15 draws from the prior"),
    "invalid": (diagnostics.invalid_warnings, 0.0, 1e-4, "NaN or +inf at 0.01%"),
    "dof": (lambda x: errors(degrees_of_freedom=x), 5, 3, "a few batches of 50 draws"),
    "quadrature": (lambda x: errors(quadrature=x), 0.08, 0.12, "the ladder is too coarse"),
    "rounds": (lambda x: diagnostics.round_warnings(answer(0.0), answer(x)), 6.5, 7.5, "the last two rounds differ"),
}


def errors(degrees_of_freedom: float = 50.0, quadrature: float = 0.0) -> list[str]:
    return diagnostics.error_warnings(BatchError(0.01, degrees_of_freedom), -10.0, quadrature, 50)


def answer(log_evidence: float, dof: float = 1e6) -> SimpleNamespace:
    return SimpleNamespace(log_evidence=log_evidence, standard_error=1.0, degrees_of_freedom=dof)


@pytest.mark.parametrize("name", THRESHOLDS)
def test_thresholds(name: str) -> None:
    warnings, fine, bad, words = THRESHOLDS[name]
    assert warnings(fine) == []
    (warning,) = warnings(bad)
    assert words in warning


def test_a_prior_without_any_likelihood_is_refused() -> None:
    with pytest.raises(ValueError, match="no draw from the prior has a likelihood above zero"):
        diagnostics.supported_warnings(0.0)


def test_disagreement_of_populations_and_slow_chains_are_said() -> None:
    apart, slow = BatchError(0.01, 3.0, disagreement=True), BatchError(0.01, 50.0, slow=True)
    (warning,) = diagnostics.error_warnings(apart, -10.0, 0.0, 50)  # few degrees of freedom are then no news
    assert "populations disagree" in warning
    (warning,) = diagnostics.error_warnings(slow, -10.0, 0.0, 50)
    assert "for longer than 50 draws" in warning
    assert diagnostics.error_warnings(slow._replace(error=1e-12), -10.0, 0.0, 50) == []  # an error of rounding


@pytest.mark.parametrize(("chance", "agrees"), [(1.4e-4, True), (0.7e-4, False)])
def test_answers_that_agree_are_said_to_disagree_once_in_10_000_times(chance: float, agrees: bool) -> None:
    apart = float(stats.norm.isf(chance / 2)) * np.sqrt(2)
    assert diagnostics.agree(answer(0.0), answer(apart)) == agrees
    assert diagnostics.agree(answer(0.0), answer(-apart)) == agrees


def estimate(value: float, seed: int) -> Estimate:
    """An estimate with an error of 1 in ten, from 20 batches of 4 populations."""
    return Estimate(value, np.random.default_rng(seed).standard_normal((20, 4)))


def test_estimates_from_the_same_draws_must_agree() -> None:
    fine = {name: estimate(0.0, seed) for seed, name in enumerate(("cti", "bridge", "forward", "backward", "mbar"))}
    for name in fine:
        assert diagnostics.estimator_warnings(fine, name, 0.0) == []
    bad = fine | {"bridge": estimate(2.0, 1)}
    (told,) = diagnostics.estimator_warnings(bad, "cti", 0.0)
    assert "thermodynamic integral and bridge form, differ by 2" in told
    assert diagnostics.estimator_warnings(bad, "cti", 2.0) == []  # the error of the rule explains it
    assert len(diagnostics.estimator_warnings(bad, "bridge", 0.0)) == 2
    assert diagnostics.estimator_warnings(bad, "mbar", 0.0) == []  # has nothing that it must agree with
    gap = fine | {"backward": estimate(3.0, 3)}
    for name in ("cti", "mbar", "forward"):
        (told,) = diagnostics.estimator_warnings(gap, name, 0.0)
        assert "stepping stones forward and backward differ by 3" in told


@pytest.mark.parametrize(("apart", "doubted"), [(0.2, False), (0.5, True)])
def test_a_gap_between_stepping_stones_is_a_doubt_of_other_answers_if_it_is_wide(apart: float, doubted: bool) -> None:
    """The evidence by a factor of about 1.35 or more, whatever the errors; the gap is far beyond chance in both."""
    exact = {name: estimate(0.0, 0) for name in ("cti", "bridge", "mbar", "forward")}
    exact |= {"backward": Estimate(apart, exact["forward"].series + 0.01 * estimate(0.0, 1).series)}
    assert len(diagnostics.estimator_warnings(exact, "cti", 0.0)) == doubted
    assert len(diagnostics.estimator_warnings(exact, "forward", 0.0)) == 1


def test_a_moment_is_missing_only_if_chance_does_not_explain_it() -> None:
    assert Tail(0.75, 0.1).lacks_moment(2)
    assert not Tail(0.65, 0.1).lacks_moment(2)
    assert not Tail(0.75, 0.1).lacks_moment(1)
