"""Wheel and source distribution: they hold what they should, and the wheel works in an environment of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest

import thermint

ROOT = Path(__file__).parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DATA = ("goodwin_g3.csv", "pima.csv", "published.csv", "radiata_pine.csv")


def run(*command: str | Path, cwd: Path | None = None) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the source distribution, and from it the wheel."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT)
    return folder


def test_versions_agree() -> None:
    version = PROJECT["version"]
    assert thermint.__version__ == version
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {version}" in (ROOT / "CHANGELOG.md").read_text()


def test_wheel_has_types_data_and_licence(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {"thermint/py.typed", "thermint/report/assets/report.css", "thermint/report/assets/report.js"} <= names
    assert "thermint/examples/pima.py" in names
    assert {f"thermint/paper/data/{name}" for name in DATA} <= names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    source = ROOT / "src"
    files = [path for path in source.rglob("*.*") if path.is_file() and "__pycache__" not in path.parts]
    assert {str(path.relative_to(source)) for path in files} <= names
    assert all(name.startswith(("thermint/", f"thermint-{PROJECT['version']}.dist-info/")) for name in names)


def test_sdist_has_what_a_packager_needs(dist: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    top = {"LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "Makefile", "pyproject.toml"}
    assert top | {"docs/conf.py", "docs/index.md"} <= names
    assert {"tests/conftest.py", "benchmarks/precision.py", "examples/pima.py", "docs/paper/surfaces.png"} <= names
    assert {f"src/thermint/paper/data/{name}" for name in DATA} <= names
    unwanted = [name for name in names if "_build" in name or "__pycache__" in name or ".venv" in name]
    assert not unwanted


def test_the_wheel_works_in_an_empty_environment(dist: Path, tmp_path: Path) -> None:
    """Dependencies are resolved anew, without any extra."""
    venv.create(tmp_path / "env")
    folder = tmp_path / "env" / ("Scripts" if sys.platform == "win32" else "bin")
    (wheel,) = dist.glob("*.whl")
    pip = (sys.executable, "-m", "pip", "--python", folder / "python")  # this environment's, for that one
    run(*pip, "install", "--quiet", "--no-compile", wheel)  # of all that is installed, little is imported
    run(*pip, "check")
    code = "import thermint, sys; print(thermint.__version__, thermint.__file__)"
    version, file = run(folder / "python", "-c", code, cwd=tmp_path).split()
    assert version == PROJECT["version"]
    assert Path(file).is_relative_to(tmp_path)
    assert "radon" in run(folder / "thermint", "examples", cwd=tmp_path)
    fields = json.loads(run(folder / "thermint", "evidence", "linear", "--draws", "50", "--json", cwd=tmp_path))
    assert abs(fields["log_evidence"] - thermint.paper.linear.log_evidence()) < 5 * fields["standard_error"]
