"""A small version of every benchmark, so that none rots."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    ("module", "options", "words"),
    [
        ("overhead", ["--repeats", "1", "--populations", "1"], "ratio"),
        ("estimate", ["--repeats", "1", "--quick"], "peak MiB"),
        ("startup", ["--draws", "20"], "compilation"),
        ("devices", ["--quick"], "speed-up"),
        ("ladders", ["--quick"], "equal rejection"),
        ("precision", ["--quick"], "four-modes"),
        ("shared", ["--quick"], "shared"),
        ("calibration", ["--quick"], "worst z"),
        ("memory", ["--quick"], "peak MiB"),
        ("scaling", ["rows", "--quick", "--repeats", "1"], "slope"),
        ("truth", ["--draws", "4000"], "log evidence"),
        ("interop", ["--draws", "50", "--repeats", "1", "--only", "plain", "numpyro"], "ratio"),
    ],
)
def test_benchmark_runs(module, options, words):
    result = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{module}", *options], cwd=ROOT, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert words in result.stdout
