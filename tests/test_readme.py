"""The README's demo runs as shown; its blocks of code are tested in `test_docs.py`."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_demo_agrees_with_the_reference():
    output = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "pima.py")], capture_output=True, text=True, check=True
    ).stdout
    value, error = map(float, re.search(r"log Bayes factor of age: (\S+) ± (\S+)", output).groups())  # type: ignore[union-attr]
    assert abs(value - -2.6250126) < 4 * error
    assert error < 0.03
