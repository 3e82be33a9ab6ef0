"""What the README and the examples show runs as shown."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parent.parent


def test_the_readme_example_gives_what_it_shows():
    text = (ROOT / "README.md").read_text()
    code, shown = re.search(r"```python\n(.*?)```\n+```text\n(.*?)```", text, re.DOTALL).groups()  # type: ignore[union-attr]
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    # Timings differ from machine to machine; the last digits of the answer may.
    first = output.splitlines()[0]
    value, error = map(float, re.findall(r"-?\d+\.\d+", first))
    shown_value, shown_error = map(float, re.findall(r"-?\d+\.\d+", shown.splitlines()[0]))
    assert abs(value - shown_value) < 4 * np.hypot(error, shown_error)  # random numbers differ between versions of JAX
    assert 0.5 < error / shown_error < 2
    assert len(output.splitlines()) == len(shown.splitlines())


def test_the_demo_agrees_with_the_reference():
    output = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "pima.py")], capture_output=True, text=True, check=True
    ).stdout
    value, error = map(float, re.search(r"log Bayes factor of age: (\S+) ± (\S+)", output).groups())  # type: ignore[union-attr]
    assert abs(value - -2.6250126) < 4 * error
    assert error < 0.03
