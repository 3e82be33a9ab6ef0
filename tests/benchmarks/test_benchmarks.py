"""A small version of every benchmark, so that none rots; those that take long only among the slow tests."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("module", "options", "words"),
    [
        ("overhead", ["--repeats", "1", "--populations", "1"], "ratio"),
        ("estimate", ["--repeats", "1", "--quick"], "peak MiB"),
        pytest.param("startup", ["--draws", "20"], "compilation", marks=pytest.mark.slow),
        ("ladders", ["--quick", "--rungs", "16", "--populations", "2"], "equal rejection"),
        ("precision", ["--quick"], "four-modes"),
        ("shared", ["--quick"], "shared"),
        pytest.param("calibration", ["--quick", "--workers", "1"], "worst z", marks=pytest.mark.slow),
        pytest.param("memory", ["--draws", "100", "200"], "peak MiB", marks=pytest.mark.slow),
        pytest.param("scaling", ["populations", "--quick", "--repeats", "1"], "slope", marks=pytest.mark.slow),
        pytest.param("truth", ["--draws", "4000"], "log evidence", marks=pytest.mark.slow),
        ("interop", ["--draws", "50", "--repeats", "1", "--only", "plain", "numpyro"], "ratio"),
    ],
)
def test_benchmark_runs(module, options, words, monkeypatch, capsys):
    """In this process, which has imported everything and compiled some of it."""
    monkeypatch.setattr(sys, "argv", [module, *options])
    importlib.import_module(f"benchmarks.{module}").main()
    assert words in capsys.readouterr().out


@pytest.mark.slow
def test_benchmark_runs_as_a_command():
    command = [sys.executable, "-m", "benchmarks.devices", "--quick"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "speed-up" in result.stdout


def test_every_benchmark_is_a_command():
    for path in sorted((ROOT / "benchmarks").glob("*.py")):
        source = path.read_text()
        assert ("\ndef main(" in source) == source.endswith('\n\nif __name__ == "__main__":\n    main()\n'), path.name
