"""Bayes factors and model probabilities: arithmetic, words, independent runs, executors, and what is refused."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import special
from targets import NORMAL, normal

from thermint import Evidence, RunsFailedError
from thermint.inference.compare import COLUMNS, compare, seed_of, words
from thermint.inference.replicate import replicate
from thermint.model.settings import Settings

QUICK: dict[str, Any] = {"reference": "prior", "ladder": 11, "draws": 50, "populations": 2}


def ran(log_evidence, standard_error, warnings=()):
    """Make a result that says so."""
    empty = pd.DataFrame()
    return Evidence(
        log_evidence, standard_error, standard_error, 0.0, 50.0, 100, 1.0, warnings, empty, empty, {}, Settings()
    )


THREE = {"poor": ran(-112.0, 0.3), "best": ran(-100.0, 0.1), "good": ran(-102.0, 0.2, ("not converged",))}


def test_rows_are_sorted_and_differences_have_the_error_of_both():
    table = compare(THREE)
    assert list(table.index) == ["best", "good", "poor"]
    assert table.index.name == "name"
    assert tuple(table.columns) == COLUMNS
    np.testing.assert_allclose(table["log_bf"], [0.0, -2.0, -12.0])
    np.testing.assert_allclose(table["log_bf_error"], [0.0, np.hypot(0.1, 0.2), np.hypot(0.1, 0.3)])
    assert list(table["warnings"]) == [(), ("not converged",), ()]


def test_probabilities_follow_the_prior():
    equal = compare(THREE)
    np.testing.assert_allclose(equal["probability"], special.softmax([-100.0, -102.0, -112.0]))
    prior = {"best": 0.0, "good": 0.25, "poor": 0.75}
    given = compare(THREE, prior=prior)
    assert given["probability"]["best"] == given["probability_error"]["best"] == 0.0
    np.testing.assert_allclose(given["probability"]["poor"], 3 * np.exp(-10.0) / (1 + 3 * np.exp(-10.0)))


def test_the_error_of_a_probability_is_the_spread_of_repeated_runs():
    value, error, prior = np.array([-3.0, -3.4, -4.0]), np.array([0.01, 0.02, 0.03]), np.array([0.2, 0.5, 0.3])
    names = ["a", "b", "c"]
    table = compare(
        {name: ran(v, e) for name, v, e in zip(names, value, error, strict=True)},
        prior=dict(zip(names, prior, strict=True)),
    )
    repeated = value + error * np.random.default_rng(0).standard_normal((20_000, 3))
    spread = special.softmax(repeated + np.log(prior), axis=1).std(axis=0)
    # A standard deviation of n draws has a relative standard error of 1 / sqrt(2 n).
    np.testing.assert_allclose(table.loc[names, "probability_error"], spread, rtol=4 / np.sqrt(2 * 20_000))


@pytest.mark.parametrize(
    ("log_bf", "error", "said"),
    [
        (-0.9, 0.0, "not worth more than a bare mention"),
        (-1.1, 0.01, "positive"),
        (-3.1, 0.01, "strong"),
        (-5.1, 0.01, "very strong"),
        (-0.9, 0.1, "not worth more than a bare mention to positive"),
        (-3.1, 0.1, "positive to strong"),
        (-3.5, 0.2, "strong"),  # four errors would reach down to "positive"
        (-4.0, 3.0, "not worth more than a bare mention to very strong"),
        (0.0, 0.1, "not worth more than a bare mention"),
    ],
)
def test_words_of_kass_and_raftery(log_bf, error, said):
    assert words(log_bf, error) == said


def test_the_printed_form_has_errors_words_and_warnings():
    table: Any = compare(THREE)
    lines = str(table).splitlines()
    assert "-102.00 ± 0.20" in lines[2]
    assert lines[2].endswith("positive")
    assert lines[3].endswith("very strong")
    assert lines[4] == "warning: good: not converged"
    assert "very strong" in table._repr_html_()
    assert "<li>good: not converged</li>" in table._repr_html_()
    # What is made of it is a plain table.
    assert type(table[["log_bf"]]) is type(table.iloc[:2]) is pd.DataFrame
    del table["warnings"]
    assert "standard_error" in str(table)
    assert "standard_error" in table._repr_html_()


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        ({"best": 0.5, "good": 0.5}, r"prior lacks \['poor'\]"),
        ({"best": 0.5, "good": 0.5, "poor": 0.0, "other": 0.0}, r"prior names \['other'\], which are not among"),
        ({"best": 1.5, "good": 0.5, "poor": -1.0}, r"prior\['poor'\] = -1.0"),
        ({"best": 0.5, "good": 0.5, "poor": float("nan")}, r"prior\['poor'\] = nan"),
        ({"best": 0.5, "good": 0.5, "poor": 0.5}, "prior sums to 1.5 instead of 1"),
    ],
)
def test_a_prior_that_is_none_is_refused(prior, message):
    with pytest.raises(ValueError, match=message):
        compare(THREE, prior=prior)


def test_what_cannot_be_compared_is_refused_by_name():
    with pytest.raises(ValueError, match="models is empty"):
        compare({})
    with pytest.raises(TypeError, match="int") as caught:
        compare({"fine": THREE["best"], "wrong": 3})
    assert "'wrong'" in caught.value.__notes__[0]
    with pytest.raises(TypeError, match="is a function") as caught:
        compare({"numpyro": lambda y: None})
    assert "'numpyro'" in caught.value.__notes__[0]
    with pytest.raises(ValueError, match="seed = -1"):
        compare(THREE, seed=-1)


def test_models_are_run_and_agree_with_the_closed_form():
    other = normal([[1.0, 0.5], [0.2, -1.0], [0.7, 0.7]], [1.0, -2.0, 0.5], 0.8, [[20.0, 0.0], [0.0, 20.0]])
    table = compare({"wide": other.model, "narrow": NORMAL.model}, draws=100, degree=0, seed=1)
    truth = other.log_evidence - NORMAL.log_evidence
    assert list(table.index) == ["narrow", "wide"]
    assert 0 < table["log_bf_error"]["wide"] < 0.1
    assert abs(table["log_bf"]["wide"] - truth) < 4 * table["log_bf_error"]["wide"]


def test_runs_are_independent_of_each_other_and_of_what_else_is_compared():
    alone = compare({"one": NORMAL.model}, degree=0, **QUICK)
    both = compare({"two": NORMAL.model, "one": NORMAL.model}, degree=0, **QUICK)
    assert both["log_evidence"]["one"] == alone["log_evidence"]["one"]
    assert both["log_evidence"]["one"] != both["log_evidence"]["two"]
    again = compare({"one": NORMAL.model}, degree=0, seed=1, **QUICK)
    assert again["log_evidence"]["one"] != alone["log_evidence"]["one"]
    assert len({seed_of(seed, name) for seed in range(100) for name in "abc"}) == 300


def test_threads_give_the_same_table_and_show_no_progress(capsys):
    models = {"one": NORMAL.model, "two": lambda: NORMAL.model}
    with ThreadPoolExecutor(2) as executor:
        threads = compare(models, executor=executor, degree=0, **QUICK)
    assert capsys.readouterr().err == ""
    pd.testing.assert_frame_equal(pd.DataFrame(threads), pd.DataFrame(compare(models, degree=0, **QUICK)))


def test_different_data_are_a_warning_whatever_the_names():
    y, z = np.array([1.0, -0.0, 2.5]), np.array([[1], [2]])
    given = {
        "a": replace(NORMAL.model, data={"y": y, "z": z}),
        "b": replace(NORMAL.model, data={"counts": z.astype(float), "heights": y + 0.0}),  # the same
        "unknown": NORMAL.model,
    }
    compare(given, degree=0, **QUICK)  # a warning would be an error
    for other in ({"y": y + 1e-9, "z": z}, {"y": y}, {"y": y, "z": z.ravel()}, {"y": y, "z": z, "again": z}):
        changed = given | {"c": replace(NORMAL.model, data=other)}
        with pytest.warns(UserWarning, match=r"do not share the same data: 'a', 'b' \(.*\); 'c' \("):
            table = compare(changed, degree=0, **QUICK)
        said = ["same data" in " ".join(own) for own in table.loc[["a", "b", "c", "unknown"], "warnings"]]
        assert said == [True, True, True, False]


def test_a_model_that_fails_is_named_and_the_others_are_run() -> None:
    def broken() -> None:
        raise ValueError("there are no data")

    models = {"first": broken, "fine": NORMAL.model, "known": THREE["best"], "last": lambda: int("x")}
    with pytest.raises(RunsFailedError) as caught:
        compare(models, degree=0, **QUICK)
    assert str(caught.value).splitlines() == [
        "2 of 4 models failed; .results has the others.",
        "  'first': ValueError: there are no data",
        "  'last': ValueError: invalid literal for int() with base 10: 'x'",
    ]
    assert isinstance(caught.value.__cause__, ValueError)
    assert caught.value.__cause__.__notes__ == ["This happened with the model 'first'."]
    assert list(caught.value.results) == ["fine", "known"]
    mended = caught.value.results | {"first": NORMAL.model}
    expected = compare({"fine": NORMAL.model, "known": THREE["best"], "first": NORMAL.model}, degree=0, **QUICK)
    pd.testing.assert_frame_equal(compare(mended, degree=0, **QUICK), expected)
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
    assert list(again.results) == ["fine", "known"]


def test_checkpoints_of_many_are_in_a_folder(tmp_path):
    models = {"a/b": NORMAL.model, "a_b": NORMAL.model}
    table = compare(models, checkpoint=tmp_path / "runs", **QUICK)
    files = sorted((tmp_path / "runs").iterdir())
    assert len(files) == 2
    assert all(file.name.startswith("a_b-") for file in files)
    times = [file.stat().st_mtime_ns for file in files]
    pd.testing.assert_frame_equal(compare(models, checkpoint=tmp_path / "runs", **QUICK), table)
    assert [file.stat().st_mtime_ns for file in files] != times  # they were read, and written again
    assert len(list((tmp_path / "runs").iterdir())) == 2
    replicate(NORMAL.model, 2, checkpoint=tmp_path / "replicates", **QUICK)
    assert len(list((tmp_path / "replicates").iterdir())) == 2
