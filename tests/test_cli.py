"""The command line: answers, JSON, exit codes, and errors that say where a model was looked for."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from thermint.cli import BUILT_IN, app, load_model
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
