"""Virtual environments for peers whose packages the project's own does not have: ``.venv-peers/<environment>``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.peers.methods import MAIN, METHODS

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".venv-peers"
STAMP = "requirements.txt"  # what was installed, written once it is


class EnvironmentFailedError(RuntimeError):
    """An environment could not be made; the message is pip's."""


def python_of(environment: str) -> Path:
    """Return the interpreter of an environment, where it is or will be."""
    return Path(sys.executable) if environment == MAIN else FOLDER / environment / "bin" / "python"


def make(environment: str) -> Path:
    """Make an environment with thermint and all that its methods require, unless it is there; return its interpreter.

    Raises:
        EnvironmentFailedError: pip cannot install it.
    """
    python = python_of(environment)
    if environment == MAIN:
        return python
    wanted = requirements(environment)
    stamp = FOLDER / environment / STAMP
    if stamp.exists() and stamp.read_text().split("\n") == wanted:
        return python
    if not python.exists():
        _run([sys.executable, "-m", "venv", str(FOLDER / environment)])
    # Goodwin's oscillator needs diffrax.
    _run([str(python), "-m", "pip", "install", "--quiet", "--editable", f"{ROOT}[diffrax]", *wanted])
    stamp.write_text("\n".join(wanted))
    return python


def requirements(environment: str) -> list[str]:
    """List what the methods of an environment require, together."""
    methods = [method for method in METHODS.values() if method.environment == environment]
    return sorted({requirement for method in methods for requirement in method.requirements})


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "ERROR" in line] or done.stderr.splitlines() or ["?"]
        raise EnvironmentFailedError(errors[-1].strip())
