"""The paper's study: its setting, its estimators, its file, and its tables."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import thermint
from thermint.cli.commands import app
from thermint.paper import linear, study, tables
from thermint.paper.study import APPLICATIONS, FULL, QUICK, Extent, Study, Task

SMALL = Task("linear", 1, 60, "paper", (0, 3))


# --- The setting ---


def test_the_full_study_is_the_papers() -> None:
    count: dict[tuple[str, int, int, str], int] = {}
    for task in study.tasks(FULL):
        count[task[:4]] = count.get(task[:4], 0) + len(task.replicates)
    assert count == {
        (name, model, draws, setting): 10 if name == "goodwin" else 100
        for name, models, sizes in (
            ("linear", 1, (1000, 5000)),
            ("radiata", 2, (1000, 5000)),
            ("pima", 2, (1000, 5000)),
            ("goodwin", 2, (1000,)),
        )
        for model in range(1, models + 1)
        for draws in sizes
        for setting in ("paper", "thermint")
    }
    costs = [study.cost(task) for task in study.tasks(FULL)]
    assert costs == sorted(costs, reverse=True)


def test_truths_are_those_of_the_sources() -> None:
    assert APPLICATIONS["linear"].truth == linear.log_evidence()
    assert APPLICATIONS["radiata"].truth == pytest.approx(8.7086007043, abs=1e-9)
    assert APPLICATIONS["pima"].truth == pytest.approx(-2.6250126, abs=1e-7)
    assert APPLICATIONS["goodwin"].truth == pytest.approx(-15.402, abs=1e-3)


def test_a_replicate_depends_on_its_own_number_alone() -> None:
    both = study.paper_draws(SMALL)
    alone = study.paper_draws(SMALL._replace(replicates=(3,)))
    assert both.position.shape == (2, 60, 51, 3)
    np.testing.assert_allclose(both.population(1).position, alone.position, rtol=1e-9)
    assert np.abs(np.asarray(both.position[0]) - np.asarray(both.position[1])).max() > 0.1
    np.testing.assert_allclose(both.ladder, (np.arange(51) / 50) ** 5, rtol=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize(("application", "rmse"), [("radiata", 1.3e-5**0.5), ("pima", 0.044)])
def test_the_papers_precision_is_reached(application: str, rmse: float, tmp_path: Path) -> None:
    some = Study(tmp_path / "replicates.jsonl")
    for model in (1, 2):
        some.records += study.run_task(Task(application, model, 1000, "paper", tuple(range(40))))
    found = study.answers(some.estimates(), application, 1000)
    error = {
        method: np.sqrt(np.mean((value - APPLICATIONS[application].truth) ** 2)) for method, value in found.items()
    }
    assert error["CTI", 2, "second-order"] <= rmse
    assert error["TI", 0, "second-order"] > 8 * error["CTI", 2, "second-order"]


def test_estimates_are_those_of_the_library() -> None:
    draws = study.paper_draws(SMALL).population(0)
    rows, rungs, _ = study.estimates_of(draws)
    assert [row[:3] for row in rows] == list(study.METHODS[:-1])
    for estimator, degree, rule, value, _ in rows:
        if rule:
            expected = thermint.estimate(draws, degree=degree, rule=rule, crossfit=False)
        else:
            method = estimator.lower()
            expected = thermint.estimate(draws, method=method, degree=degree, crossfit=False)
        assert value == pytest.approx(expected.log_evidence, abs=1e-9), (estimator, degree, rule)
        if rule == "second-order":
            np.testing.assert_allclose(rungs["integrand"][degree], expected.rungs["mean"], rtol=1e-9)
    assert np.all(np.asarray(rungs["ratio"][0]) == 1)
    assert np.all(np.asarray(rungs["ratio"][2]) < 1e-12)  # exact for a normal posterior


def test_the_default_method_takes_no_more_evaluations_than_the_paper() -> None:
    (record,) = study.run_task(Task("linear", 1, 1000, "thermint", (5,)))
    assert record["evaluations"] <= 51 * 1100
    (row,) = record["estimates"]
    assert row["estimator"] == "thermint"
    assert abs(row["log_evidence"] - linear.log_evidence()) < 1e-9


# --- The file ---


def test_an_interrupted_study_goes_on_where_it_stopped(tmp_path: Path) -> None:
    file = tmp_path / "replicates.jsonl"
    wanted = [SMALL, SMALL._replace(replicates=(4,))]
    first = Study(file)
    assert first.missing(wanted) == wanted
    assert list(first.run(wanted[:1], workers=1)) == wanted[:1]
    with file.open("a") as opened:
        opened.write(json.dumps(first.records[0])[:100])  # cut off in the middle of a line
    before = file.read_text()
    second = Study(file)
    assert second.records == first.records
    assert second.missing(wanted) == wanted[1:]
    assert second.missing([SMALL._replace(replicates=(0, 1, 3))]) == [SMALL._replace(replicates=(1,))]
    assert list(second.run(wanted, workers=1)) == wanted[1:]
    assert file.read_text().startswith(before[:-100])
    assert [record["replicate"] for record in Study(file).records] == [0, 3, 4]
    estimates, rungs = second.estimates(), second.rungs()
    assert len(estimates) == 3 * 9
    assert len(rungs) == 3 * 3 * 51


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "replicates.jsonl"
    file.write_text("{}\n{broken\n{}\n")
    with pytest.raises(ValueError, match=r"replicates.jsonl, line 2 is damaged .*: remove that line"):
        Study(file)
    assert file.read_text() == "{}\n{broken\n{}\n"


# --- Tables ---


def made_up(application: str, values: dict[int, list[float]], method: study.Method, draws: int) -> pd.DataFrame:
    estimator, degree, rule = method
    setting = "thermint" if estimator == "thermint" else "paper"
    return pd.DataFrame(
        [
            (application, model, draws, setting, r, estimator, degree, rule, value, 0.0, 7, 2.0)
            for model, some in values.items()
            for r, value in enumerate(some)
        ],
        columns=[
            *study.KEYS,
            "estimator",
            "degree",
            "rule",
            "log_evidence",
            "standard_error",
            "evaluations",
            "seconds",
        ],
    )


def test_table_1_is_made_of_squared_errors() -> None:
    truth = linear.log_evidence()
    off = np.array([0.1, -0.2, 0.4, np.nan])
    made = made_up("linear", {1: list(truth + off)}, ("CTI", 2, "second-order"), 5000)
    (row,) = tables.table(1, made).to_dict("records")
    square = off[:3] ** 2
    assert row["mse"] == pytest.approx(square.mean())
    assert row["se"] == pytest.approx(square.std(ddof=1) / np.sqrt(3))
    assert row["rmse"] == pytest.approx(np.sqrt(square.mean()))
    assert (row["published_mse"], row["published_se"]) == (2.0e-7, 2.7e-8)
    assert (row["replicates"], row["evaluations"], row["seconds"]) == (3, 7, 2.0)


def test_table_2_is_made_of_differences_of_models() -> None:
    one, two = [1.0, 2.0, 3.0, 9.0], [-1.0, -1.5, 0.5]
    made = pd.concat(
        made_up("pima", {1: one, 2: two}, method, 1000) for method in (("TI", 0, "trapezoid"), ("thermint", -1, ""))
    )
    plain, default = tables.table(2, made).to_dict("records")
    difference = np.array(two) - one[:3]
    for row in (plain, default):
        assert row["mean"] == pytest.approx(difference.mean())
        assert row["sd"] == pytest.approx(difference.std(ddof=1))
        assert row["rmse"] == pytest.approx(np.sqrt(np.mean((difference + 2.6250126) ** 2)))
    assert (plain["published_mean"], plain["published_sd"]) == (-2.59, 0.74)
    assert np.isnan(default["published_mean"])


def test_published_values_are_complete() -> None:
    known = tables.published()
    methods = [method for method in study.METHODS if "TI" in method[0]]
    assert sorted(known.index) == sorted(
        (name, draws, *method[1:]) for name, one in APPLICATIONS.items() for draws in one.draws for method in methods
    )
    assert known.loc[("pima", 1000, 2, "second-order"), "sd"] == 0.044
    assert known.loc[("radiata", 5000, 2, "second-order"), "mse"] == 1.5e-6


def test_markdown_has_a_line_a_row_and_no_nan() -> None:
    table = pd.DataFrame({"degree": [2, -1], "sd": [0.012345, np.nan]})
    assert tables.markdown(table) == "| degree | sd |\n| --- | --- |\n| 2 | 0.0123 |\n| default |  |\n"


# --- The command ---

# The first has enough draws for figures; Pima's, for a table, are too few.
SHORT = {"linear": QUICK["linear"], "pima": Extent((40,), 1)}
OF_ALL = {"pima-estimators", "radiata-variance-ratio"}


@pytest.mark.parametrize(
    ("extent", "compared", "figures"),
    [
        pytest.param(SHORT, {"pima"}, set(), id="short"),
        pytest.param(QUICK, {"pima", "goodwin"}, OF_ALL, id="quick", marks=pytest.mark.slow),
    ],
)
def test_the_quick_study_reproduces_everything(
    extent: dict[str, Extent],
    compared: set[str],
    figures: set[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(study, "QUICK", extent)
    output = tmp_path / "paper"
    result = CliRunner().invoke(app, ["paper", "--quick", "--replicates", "1", "--output", str(output)])
    assert result.exit_code == 0, result.output
    made = output / "quick"
    assert set(pd.read_csv(made / "table-2.csv")["application"]) == compared
    assert "## Table 2" in (made / "tables.md").read_text()
    names = {path.stem for path in (made / "figures").glob("*.png")}
    assert {"linear-coefficients", "linear-integrands", "linear-estimators"} | figures <= names
    lines = (made / "replicates.jsonl").read_text()
    options = ["--application", "linear", "--workers", "1"]
    again = CliRunner().invoke(app, ["paper", "--quick", "--output", str(output), *options])
    assert again.exit_code == 0
    more = (made / "replicates.jsonl").read_text()
    assert more.startswith(lines)  # nothing is run twice
    assert len(more) > len(lines)  # the second replicate
    table = pd.read_csv(made / "table-1.csv")
    floor = table[(table["application"] == "linear") & (table["estimator"] == "CTI") & (table["rule"] == "trapezoid")]
    exact = floor[floor["degree"] == 2].iloc[0]
    assert exact["se"] < 1e-12  # no variance at all
    assert 0.030**2 < exact["mse"] < 0.037**2  # the quadrature floor


def test_an_unknown_application_is_refused_by_name() -> None:
    result = CliRunner().invoke(app, ["paper", "--application", "goodwind"])
    assert result.exit_code == 2
    assert "there is no application 'goodwind'. Give one of linear, radiata, pima, goodwin." in result.output
