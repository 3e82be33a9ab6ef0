"""The command line: answers, JSON, exit codes, and errors that say where a model was looked for."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import thermint
from thermint.cli.commands import app
from thermint.cli.loading import BUILT_IN, load_model
from thermint.model import Model
from thermint.paper import linear

MODEL_FILE = """
import thermint
mine = thermint.paper.linear.model()
number = 3
"""


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture
def model_file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(MODEL_FILE)
    return str(path)


def test_a_model_from_a_file(model_file):
    result = run("evidence", f"{model_file}:mine", "--draws", "20", "--seed", "3")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("log evidence  -141.4")


def test_json_has_the_fields_of_evidence():
    result = run("evidence", "linear", "--draws", "20", "--json")
    fields = json.loads(result.stdout)
    assert abs(fields["log_evidence"] - linear.log_evidence()) < 5 * fields["standard_error"]
    assert len(fields["rungs"]["t"]) == len(fields["settings"]["ladder"])
    assert set(fields["estimates"]["method"]) == {"cti", "bridge", "forward", "backward", "mbar", "ais"}
    assert fields["rungs"]["swap_rate"][-1] is None  # NaN is no JSON
    assert fields["settings"]["draws"] == 20
    assert fields["settings"]["seed"] == 0


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_models(name):
    assert isinstance(load_model(name), Model)


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("pima-3", "there is no model 'pima-3'"),
        ("nowhere.py:x", "there is no file nowhere.py"),
        ("{file}:other", "has no other. Models in it: mine"),
        ("{file}:number", "number in .* is a int, not a thermint.Model"),
    ],
)
def test_errors_say_where_it_looked(model_file, argument, words):
    with pytest.raises(ValueError, match=words):
        load_model(argument.format(file=model_file))
    result = run("evidence", argument.format(file=model_file))
    assert result.exit_code == 2
    assert result.stderr.startswith("thermint: ")


def test_bad_options_end_with_a_message():
    result = run("evidence", "linear", "--draws", "0")
    assert result.exit_code == 2
    assert "draws = 0" in result.stderr


def test_an_error_in_the_users_own_code_keeps_its_traceback(tmp_path):
    folder = tmp_path / "thermint"  # the name of the folder must not make it ours
    folder.mkdir()
    (folder / "mine.py").write_text("raise ValueError('a typo of mine')")
    result = run("evidence", f"{folder / 'mine.py'}:model")
    assert isinstance(result.exception, ValueError)
    assert "thermint: " not in result.stderr


def test_help_fits_a_screen():
    lines = run("--help").stdout.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    for command in ("evidence", "compare", "resume", "plot", "report", "examples", "doctor", "paper"):
        assert any(line.split()[:1] == [command] for line in lines)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("results") / "linear.npz"
    result = run("evidence", "linear", "--draws", "20", "--save", str(path))
    assert result.exit_code == 0, result.output
    return path


def test_compare_models_and_results(saved, model_file, tmp_path):
    page = tmp_path / "page.html"
    models = ("compare", str(saved), f"again={model_file}:mine", "--draws", "20", "--report", str(page))
    result = run(*models, "--prior", "again=0.25", "--prior", "linear=0.75", "--json")
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["models"]
    assert set(rows) == {"linear", "again"}
    assert rows["linear"]["probability"] == pytest.approx(0.75, abs=1e-3)
    assert page.read_text().startswith("<!DOCTYPE html>")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("compare", "linear"), "nothing to compare"),
        (("compare", "linear", "linear"), "two models have the name 'linear'"),
        (("compare", "linear", "nowhere.npz"), "there is no file nowhere.npz"),
        (("compare", "linear", "pima-1", "--prior", "linear"), "NAME=0.5"),
        (("plot", "nowhere.npz"), "there is no file nowhere.npz"),
        (("plot", "nowhere.npz", "--kind", "pie"), "there is no plot 'pie'"),
        (("report", "nowhere.npz"), "there is no file nowhere.npz"),
        (("examples", "nothing"), "there is no example 'nothing'"),
        (("evidence", __file__), "give its model too"),
    ],
)
def test_what_is_refused(arguments, words):
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("thermint: ")
    assert words in result.stderr


@pytest.mark.parametrize("kind", ["overview", "integrand", "traces"])
def test_plot_draws_a_picture(saved, tmp_path, kind):
    picture = tmp_path / "a.png"
    result = run("plot", str(saved), "--kind", kind, "--output", str(picture))
    assert result.exit_code == 0, result.output
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_several_results_are_compared(saved, tmp_path):
    picture, page = tmp_path / "a.svg", tmp_path / "a.html"
    both = str(saved), f"other={saved}"
    assert run("plot", *both, "--output", str(picture)).exit_code == 0
    assert "other" in picture.read_text()
    assert run("report", *both, "--output", str(page)).exit_code == 0
    assert "other" in page.read_text()


def test_a_folder_that_is_not_there(saved, tmp_path):
    result = run("plot", str(saved), "--output", str(tmp_path / "nowhere" / "a.png"))
    assert result.exit_code == 2
    assert "nowhere" in result.stderr


def test_examples_are_listed_and_printed():
    listed = json.loads(run("examples", "--json").stdout)
    assert set(listed["models"]) == set(BUILT_IN)
    assert "radon" in listed["scripts"]
    assert run("examples", "radon").stdout == (Path(__file__).parents[2] / "examples" / "radon.py").read_text()
    assert "pima-2" in run("examples").stdout


def test_the_doctor_finds_nothing_wrong():
    result = run("doctor", "--json")
    assert result.exit_code == 0, result.output
    findings = {one["what"]: one for one in json.loads(result.stdout)}
    assert findings["precision"]["found"] == "float64"
    assert "off by" in findings["self-test"]["found"]


def test_the_doctor_notices_a_wrong_answer(monkeypatch):
    monkeypatch.setattr(linear, "log_evidence", lambda: -100.0)
    result = run("doctor")
    assert result.exit_code == 1
    assert "BAD self-test" in result.stdout


def test_completion_offers_built_in_models():
    script = run("--show-completion", "bash")
    assert script.exit_code == 0
    environment = {"_THERMINT_COMPLETE": "complete_bash", "COMP_WORDS": "thermint evidence pi", "COMP_CWORD": "2"}
    offered = CliRunner().invoke(app, [], env=environment, prog_name="thermint").stdout.split()
    assert offered == ["pima-1", "pima-2"]


def test_a_missing_file_in_the_users_own_code_keeps_its_traceback(tmp_path):
    (tmp_path / "mine.py").write_text("open('nowhere.csv')")
    result = run("evidence", f"{tmp_path / 'mine.py'}:model")
    assert isinstance(result.exception, FileNotFoundError)


def test_a_model_that_fails_does_not_take_the_others_with_it(saved, tmp_path):
    (tmp_path / "mine.py").write_text(
        "import thermint, jax.numpy as jnp\n"
        "from dataclasses import replace\n"
        "good = thermint.paper.linear.model()\n"
        "broken = replace(good, log_likelihood=lambda theta: jnp.nan * theta[0])\n"
    )
    result = run("compare", f"{tmp_path / 'mine.py'}:broken", str(saved), "--draws", "20")
    assert result.exit_code == 2
    assert "1 of 2 models failed" in result.stderr
    assert "'broken'" in result.stderr
    assert "linear: log evidence  -141.4" in result.stderr


def test_the_package_runs_as_a_module():
    done = subprocess.run([sys.executable, "-m", "thermint", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == thermint.__version__
