"""Plans: chunks and Grams that fit in memory, and degrees that the draws support."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from thermint.control.basis import size
from thermint.control.plan import Plan, chunk_length, make_plan
from thermint.path.coordinates import RungMoments

BASE: dict[str, Any] = {
    "populations": 4,
    "rungs": 5,
    "dimension": 2,
    "degree": "auto",
    "rule": "second-order",
    "crossfit": True,
}


def plan(draws: int, **changes: Any) -> Plan:
    return make_plan(draws=draws, **(BASE | changes))


def test_chunks_leave_time_to_sum_and_take_little_memory() -> None:
    """The default call draws while it sums features: that needs several chunks, each worth its launch."""
    chunk = {"populations": 4, "rungs": 10, "dimension": 5}
    assert 150 < chunk_length(1000, **chunk) < 300
    assert chunk_length(251, **chunk) == 126  # nearly equal ones
    wide = {"populations": 4, "rungs": 10, "dimension": 2000}
    assert 40e6 < chunk_length(10_000, **wide) * 4 * 10 * 8 * (3 * 2000 + 5) < 80e6  # bytes
    assert chunk_length(10, **wide | {"dimension": 10**7}) == 1


def test_the_trace_of_long_runs_is_thinned() -> None:
    assert plan(8000).thinning == 1
    assert 5000 < plan(10**6).draws / plan(10**6).thinning < 15_000


def test_auto_goes_as_high_as_the_square_of_a_quadratic_form_needs() -> None:
    assert plan(10_000).sizes == (0, 2, 5, 9, 14)  # degree 4, see ERRATA 6


def test_auto_wants_some_draws_for_each_feature() -> None:
    d = 10
    for degree in (1, 2):
        features = size(d, degree)
        assert plan(4 * features, populations=1, dimension=d).degree >= degree
        assert plan(2 * features, populations=1, dimension=d).degree < degree or degree == 2
    lean = plan(2 * size(d, 2), populations=1, dimension=d)
    assert not lean.cross  # cross terms go first


def test_coefficients_see_most_draws() -> None:
    """Each fold is controlled by what is fitted to the others: to four fifths of the draws, even of ten."""
    for draws in (10, 1000):
        rungs, d = 5, 2
        factor = np.broadcast_to(np.eye(d), (rungs, 1, d, d))
        zero = np.zeros((rungs, 1))
        gram = plan(draws).empty(RungMoments(zero, np.zeros((rungs, 1, d)), factor, zero[:, 0], zero[:, 0]), 4)
        assert np.bincount(gram.fold).max() / len(gram.fold) == pytest.approx(0.2)


def test_a_gram_of_more_than_a_gibibyte_is_refused() -> None:
    many = {"populations": 10, "rungs": 10, "degree": 2}
    assert plan(1000, dimension=55, **many).degree == 2
    with pytest.raises(ValueError, match=r"1\.3 GiB\. Use a lower degree or fewer rungs"):
        plan(1000, dimension=60, **many)


def test_auto_stays_well_below() -> None:
    assert plan(10**5, dimension=60, rungs=10).sizes[-1] < size(60, 2)
