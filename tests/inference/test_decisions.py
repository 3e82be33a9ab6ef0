"""Which path is the answer, and which estimate: the thresholds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from targets import NORMAL, exact_draws, normal

import thermint
from thermint.diagnostics import Tail
from thermint.estimators.path_summary import Moves
from thermint.inference import decisions, paths, summary
from thermint.ladders import lobatto


def answer(log_evidence: float, *warnings: str) -> Any:
    return SimpleNamespace(log_evidence=log_evidence, standard_error=1.0, degrees_of_freedom=1e6, warnings=warnings)


@pytest.mark.parametrize("reference", ["auto", "fitted"])
@pytest.mark.parametrize(("chance", "doubted"), [(0.07, False), (0.035, True), (7e-5, True)])
def test_a_path_that_warns_of_itself_is_doubted_sooner(reference: str, chance: float, doubted: bool) -> None:
    apart = float(stats.norm.isf(chance / 2)) * np.sqrt(2)
    call: Any = SimpleNamespace(options=SimpleNamespace(reference=reference))
    surely = chance < 1e-4
    assert decisions._confirmed(call, answer(0.0), answer(apart)) == (not surely)
    assert decisions._confirmed(call, answer(0.0, "slow"), answer(-apart)) == (not surely)  # the scout found less
    warned = decisions._confirmed(call, answer(0.0, "slow"), answer(apart))
    assert warned == (not doubted if reference == "auto" else not surely)


@pytest.mark.parametrize(
    ("bridge", "overlap", "k", "method"),
    [
        (0.4, 0.5, 0.0, "bridge"),
        (0.6, 0.5, 0.0, "cti"),
        (0.4, 0.05, 0.0, "cti"),  # neighbours hardly overlap
        (2.0, 0.5, 0.8, "bridge"),  # no variance, so that the integral's error means nothing
    ],
)
def test_the_bridge_form_is_the_answer_where_it_is_clearly_better(
    bridge: float, overlap: float, k: float, method: str
) -> None:
    found: Any = SimpleNamespace(total={"cti": 1.0, "bridge": bridge})
    table = pd.DataFrame({"swap_rate": [0.5, overlap, np.nan]})
    assert summary._better(found, table, [Tail(k, 0.1)]) == method


def test_tails_count_where_control_variates_leave_them() -> None:
    tails = [Tail(0.9, 0.1), Tail(0.8, 0.1)]
    assert summary._uncontrolled(tails, [0.08, 0.13]) == tails[1:]


@pytest.mark.parametrize(("invalid", "border"), [(0.0007, False), (0.0014, True)])
def test_proposals_that_are_nan_here_and_there_are_no_border(invalid: float, border: bool) -> None:
    outside = np.full((1, 1, 3), invalid)
    moves = Moves(np.ones((1, 1, 3)), outside, np.array([invalid]), np.zeros((1, 1, 3)))  # type: ignore[arg-type]
    assert (summary._beyond_border(moves) > 0) == border


def test_the_error_covers_what_draws_do_not_show_of_the_quadrature_error() -> None:
    """Where draws show none, it may be 4.7e-12 (see the constant): here all rungs are nearly the same."""
    target = normal(np.eye(2), [0.1, 0.2], 30.0, np.eye(2))
    result = thermint.estimate(exact_draws(target, 0, lobatto(10)), degree=2)
    assert 4.7e-12 < result.quadrature_error < 8e-12


def test_without_a_target_the_prior_path_has_the_rungs_of_a_target_of_four_thousandths() -> None:
    draws = exact_draws(NORMAL, 1, thermint.ladders.power(16, 4))
    rungs = [len(paths._adapted(draws, target)) for target in (8e-3, 4e-3, None, 2e-3)]
    assert rungs[0] < rungs[1] == rungs[2] < rungs[3]
