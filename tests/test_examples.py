"""Every example runs, and its numbers are right where they can be known."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("name", [path.name for path in sorted(EXAMPLES.glob("*.py")) if path.name != "pima.py"])
def test_example(name):
    done = subprocess.run([sys.executable, str(EXAMPLES / name)], capture_output=True, text=True, cwd=EXAMPLES)
    assert done.returncode == 0, done.stderr
    found = re.search(WORDS[name], done.stdout)
    assert found, done.stdout
    if name == "other_sampler.py":
        value, error, truth = map(float, found.groups())
        assert abs(value - truth) < 4 * error + 1e-6
    if name == "eight_schools.py":
        value, error = map(float, re.findall(rf"log evidence {NUMBER} ± {NUMBER}", done.stdout)[1])  # non-centred
        assert abs(value - float(found[1])) < 4 * error < 0.02
    if name == "black_box.py":
        answers = re.findall(rf"log evidence +{NUMBER} ± {NUMBER}", done.stdout)
        (walking, error), (sloping, _) = [tuple(map(float, one)) for one in answers]
        assert abs(walking - sloping) < 4 * error


def test_examples_are_short():
    lengths = {path.name: len(path.read_text().splitlines()) for path in EXAMPLES.glob("*.py")}
    assert all(length <= 60 for length in lengths.values()), lengths
