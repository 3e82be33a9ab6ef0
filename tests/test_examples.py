"""Every example runs, and its numbers are right where they can be known."""

import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import thermint

EXAMPLES = Path(__file__).parent.parent / "examples"
NUMBER = r"(-?\d+\.\d+)"
# What each prints.
WORDS = {
    "bambi_formula.py": r"type ~ glu \+ bmi \+ ped .*\n",
    "black_box.py": r"without gradients",
    "eight_schools.py": rf"by numerical integration: {NUMBER}",
    "ode.py": r"lasting .*\n",
    "other_sampler.py": rf"cti, degree auto: {NUMBER} ± {NUMBER}  \(truth {NUMBER}\)",
    "radon.py": r"hierarchical .*\n",
}
# Those whose numbers nobody knows are run in brief with these options, which compile soon.
BRIEF = ("bambi_formula.py", "ode.py", "radon.py")
QUICK: dict[str, Any] = {"reference": "prior", "ladder": 5, "draws": 20, "populations": 2, "degree": 0}

FEWER: dict[str, Any] = {"draws": 200, "progress": False}


def check(name: str, printed: str, largest_error: float = 0.005) -> None:
    found = re.search(WORDS[name], printed)
    assert found, printed
    if name == "other_sampler.py":
        value, error, truth = map(float, found.groups())
        assert abs(value - truth) < 4 * error + 1e-6
    if name == "eight_schools.py":
        value, error = map(float, re.findall(rf"log evidence {NUMBER} ± {NUMBER}", printed)[1])  # non-centred
        assert abs(value - float(found[1])) < 4 * error
        assert error < largest_error
    if name == "black_box.py":
        answers = re.findall(rf"log evidence +{NUMBER} ± {NUMBER}", printed)
        (walking, error), (sloping, _) = [tuple(map(float, one)) for one in answers]
        assert abs(walking - sloping) < 4 * error


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "other_sampler.py" else pytest.mark.slow) for name in sorted(WORDS)]
)
def test_example(name: str) -> None:
    command = [sys.executable, str(EXAMPLES / name)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=EXAMPLES)
    assert done.returncode == 0, done.stderr
    check(name, done.stdout)


@pytest.mark.parametrize("name", BRIEF)
def test_example_in_brief(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """All of the script, with fewer draws and on the prior path."""
    compare = thermint.compare

    def quick(models: dict, **options: int) -> object:
        assert set(options) <= {"draws"}
        return compare(models, **QUICK, kernel=thermint.kernels.random_walk)

    monkeypatch.setattr(thermint, "compare", quick)
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    check(name, capsys.readouterr().out)


@pytest.mark.parametrize("name", ["black_box.py", "eight_schools.py"])
def test_example_with_fewer_draws(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    evidence = thermint.evidence
    monkeypatch.setattr(thermint, "evidence", lambda model, **options: evidence(model, **options | FEWER))
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    check(name, capsys.readouterr().out, largest_error=0.03)  # twice what such a run has


def test_every_example_is_run() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {*WORDS, "pima.py"}  # which test_readme.py runs


def test_examples_are_short() -> None:
    lengths = {path.name: len(path.read_text().splitlines()) for path in EXAMPLES.glob("*.py")}
    assert all(length <= 60 for length in lengths.values()), lengths
