"""Replicates: independent, repeatable, and words for how their spread compares with the reported errors."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pandas as pd
import pytest
from targets import NORMAL

import thermint
from thermint import RunsFailedError
from thermint.inference.compare import compare
from thermint.inference.replicate import COLUMNS, Replicates, replicate, spread_of

QUICK: dict[str, Any] = {"reference": "prior", "ladder": 11, "draws": 50, "populations": 2, "degree": 0}


def of(values: Any, errors: Any, freedom: float = 50.0, warnings: tuple[str, ...] = ()) -> Replicates:
    """Make a table of these answers."""
    columns = dict.fromkeys(COLUMNS, 0) | {
        "log_evidence": values,
        "standard_error": errors,
        "degrees_of_freedom": freedom,
        "seconds": 1.26,
        "warnings": [warnings] * len(values),
    }
    return Replicates(pd.DataFrame(columns, index=pd.RangeIndex(len(values), name="replicate")))


def test_every_row_is_a_run_with_its_own_seed() -> None:
    table = replicate(NORMAL.model, 3, seed=2, **QUICK)
    assert tuple(table.columns) == COLUMNS
    assert list(table.index) == [0, 1, 2]
    assert table.index.name == "replicate"
    assert table["seed"].nunique() == table["log_evidence"].nunique() == 3
    alone = thermint.evidence(NORMAL.model, **QUICK, seed=int(table["seed"][1]))
    for name in set(COLUMNS) - {"seed", "seconds"}:
        assert table[name][1] == getattr(alone, name)
    # More of them change nothing, and another seed everything.
    fewer, other = replicate(NORMAL.model, 1, seed=2, **QUICK), replicate(NORMAL.model, 1, seed=3, **QUICK)
    assert fewer["log_evidence"][0] == table["log_evidence"][0] != other["log_evidence"][0]


def test_threads_and_functions_that_make_models_give_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    made = []

    def model() -> thermint.Model:
        made.append(1)
        return NORMAL.model

    with ThreadPoolExecutor(2) as executor:
        table = replicate(model, 3, executor=executor, **QUICK)
    assert capsys.readouterr().err == ""
    pd.testing.assert_series_equal(table["log_evidence"], replicate(NORMAL.model, 3, **QUICK)["log_evidence"])
    assert len(made) == 1


def test_the_spread_and_its_error() -> None:
    values = np.array([-3.0, -2.0, -4.0, -3.0])
    mean, error, ratio, (low, high) = of(values, [0.5, 1.0, 0.5, 1.0]).spread()
    deviation = np.sqrt(2 / 3)
    assert (mean, error, ratio) == pytest.approx((-3.0, deviation / 2, deviation / np.sqrt(0.625)))
    assert 0 < low < 1 < high


def test_errors_that_are_right_are_said_to_be_wrong_once_in_a_hundred() -> None:
    """Each error is estimated with few degrees of freedom, as in a run."""
    rng = np.random.default_rng(1)
    n, freedom, times = 8, 5.0, 12_000
    wrong = 0
    for _ in range(times):
        errors = np.sqrt(rng.chisquare(freedom, n) / freedom)
        spread = spread_of(rng.standard_normal(n), errors, n * freedom)
        wrong += not spread.expected[0] <= spread.ratio <= spread.expected[1]
    assert abs(wrong / times - 0.01) < 4 * np.sqrt(0.01 * 0.99 / times)


def test_the_printed_form_has_the_mean_and_a_verdict() -> None:
    values = np.random.default_rng(0).standard_normal(20)
    table: Any = of(values, np.full(20, 1.0), warnings=("not mixed",))
    lines = str(table).splitlines()
    assert lines[0].split() == ["seed", "log", "evidence", "evaluations", "seconds", "warnings"]
    assert lines[-1].startswith(f"mean {values.mean():.2f} ± ")
    assert "the reported errors agree with the spread" in lines[-1]
    assert "are smaller than the spread, which is" in of(values, np.full(20, 0.1)).summary()
    assert "are larger than the spread" in of(values, np.full(20, 10.0)).summary()
    assert "agree with the spread" in table._repr_html_()
    assert type(table.iloc[:2]) is type(table[["seed"]]) is pd.DataFrame
    assert str(of([1.0], [0.1])).splitlines()[-1] == "one replicate: no spread to compare its error with"
    with pytest.raises(ValueError, match="run two at least"):
        of([1.0], [0.1]).spread()
    del table["warnings"]
    assert "log_evidence" in str(table)
    assert "standard_error" in table._repr_html_()


def test_long_tables_are_cut_where_pandas_cuts_them() -> None:
    assert len(str(of(np.arange(500.0), np.ones(500))).splitlines()) < 100


def test_what_cannot_be_replicated_is_refused_before_anything_runs() -> None:
    with pytest.raises(ValueError, match="n = 0"):
        replicate(NORMAL.model, 0)
    with pytest.raises(ValueError, match="seed = -1"):
        replicate(NORMAL.model, 2, seed=-1)
    with pytest.raises(TypeError, match="unexpected keyword argument 'drwas'"):
        replicate(NORMAL.model, 2, drwas=10)
    with pytest.raises(TypeError, match="unexpected keyword argument 'drwas'"):
        compare({"a": NORMAL.model}, drwas=10)
    with pytest.raises(TypeError, match="not int"):
        replicate(3, 2)


def test_failures_are_named_once() -> None:
    with pytest.raises(RunsFailedError, match=r"^2 of 2 replicates failed\.\n  0, 1: ValueError: draws = 3") as caught:
        replicate(NORMAL.model, 2, draws=3)
    assert caught.value.results == {}
    assert list(caught.value.errors) == [0, 1]
