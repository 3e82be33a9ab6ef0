"""What the documentation shows runs as shown: its Python, what that prints, and its commands."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pages
import pytest
import typer

import thermint
from thermint.cli.commands import app

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in PAGES if "_build" not in page.parts]
NUMBER = r"-?\d[\d,]*\.?\d*(?:e[+-]?\d+)?"
WITH_ERROR = re.compile(rf"({NUMBER}) ± ({NUMBER})")
NOT_RUN = {"docs/scale.md": 1}  # SLURM


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def test_hardly_any_block_is_not_run():
    found = {name_of(page): [b for b in pages.blocks(page.read_text()) if b.kind == "not run"] for page in PAGES}
    assert {name: len(several) for name, several in found.items() if several} == NOT_RUN
    for several in found.values():
        for block in several:
            assert re.match(r"# Not run \S+ \S+ \S+", block.code), "say why"


def kinds(page: Path) -> set[str]:
    return {block.kind for block in pages.blocks(page.read_text())}


RUN = {"python", "script", "command"}
WITH_PYTHON = [page for page in PAGES if kinds(page) & RUN]


def test_every_block_is_of_a_known_kind():
    for page in PAGES:
        assert kinds(page) <= RUN | {"file", "not run", "shell", "text", "directive"}, name_of(page)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to work in and to import from; what a page changes in thermint is undone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in pages.SHORTENED:
        monkeypatch.setattr(thermint, name, getattr(thermint, name))
    yield tmp_path
    for name, module in [*sys.modules.items()]:
        if str(getattr(module, "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


# What it adds to the tables of estimators and front ends would stay there.
APART = "CONTRIBUTING.md"


@pytest.mark.filterwarnings("default")  # as for a reader
@pytest.mark.parametrize("page", WITH_PYTHON, ids=name_of)
def test_python_runs_as_shown(page, folder):
    """In this process, which has imported everything and compiled some of it, where the page leaves nothing behind."""
    if name_of(page) == APART:
        command = [sys.executable, str(Path(__file__).with_name("pages.py")), str(page)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
        assert done.returncode == 0, done.stderr
        results = json.loads(done.stdout.splitlines()[-1])
    else:
        results = pages.run(page)
    for line, printed, shown in results:
        if shown is not None:
            compare_output(printed, shown, f"{name_of(page)}, line {line}")


def compare_output(printed: str, shown: str, where: str) -> None:
    """Words of the first line must be the same; numbers with errors must agree within these."""
    lines, expected = printed.splitlines(), shown.splitlines()
    assert len(lines) == len(expected), f"{where} prints\n{printed}"
    assert words(lines[0]) == words(expected[0]), f"{where} prints\n{printed}"
    for line, other in zip(lines, expected, strict=True):
        found, wanted = (np.array(WITH_ERROR.findall(one.replace(",", "")), float) for one in (line, other))
        assert found.shape == wanted.shape, f"{where} prints\n{line}"
        for (value, error), (shown_value, shown_error) in zip(found, wanted, strict=True):
            # Random numbers differ between versions of JAX. Errors are printed to two digits.
            assert abs(value - shown_value) <= 4 * np.hypot(error, shown_error), f"{where} prints\n{line}"
            assert 0.4 < error / shown_error < 2.5, f"{where} prints\n{line}"


def words(line: str) -> list[str]:
    return re.sub(NUMBER, "#", line).split()


def test_outputs_are_compared():
    compare_output("log evidence  -3.02 ± 0.01\n  2 s\n", "log evidence -3.01 ± 0.01\n  1 s\n", "here")
    for wrong in ("log evidence  -3.30 ± 0.01\n  2 s\n", "log evidence  -3.01 ± 0.05\n  2 s\n", "-3.01 ± 0.01\n 1 s\n"):
        with pytest.raises(AssertionError):
            compare_output(wrong, "log evidence -3.01 ± 0.01\n  1 s\n", "here")


# --- Commands ---


def commands(page: Path) -> list[str]:
    """Return the commands of a page: lines of shell blocks, and what stands between backticks."""
    text = page.read_text()
    lines = [line for block in pages.blocks(text) if block.kind == "shell" for line in block.code.splitlines()]
    inline = re.findall(r"`((?:thermint|make|pip|python) [^`\n]+)`", pages.PIECE.sub("", text))
    found = [re.sub(r"^(\w+=\S+ )+", "", line.strip().removeprefix("$ ").removesuffix(" &")) for line in lines + inline]
    return [line for line in found if line.startswith(("thermint ", "make ", "pip ", "python "))]


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=name_of)
def test_commands_exist(page):
    for command in commands(page):
        first, *arguments = shlex.split(command, comments=True)
        if first == "thermint":
            require_thermint(arguments)
        elif first == "make":
            assert re.search(rf"^{arguments[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), command
        elif first == "python" and arguments[0] == "-m":
            assert importlib.util.find_spec(arguments[1]), command
        for extras in re.findall(r"(?:thermint|\.)\[([\w,-]+)\]", command):
            assert set(extras.split(",")) <= set(project()["optional-dependencies"]), command


def require_thermint(arguments: list[str]) -> None:
    """Have Typer read the arguments, without running anything."""
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    name, *rest = arguments
    assert name in group.commands, f"thermint {name}"
    if rest == ["--help"]:
        return
    group.commands[name].make_context(name, rest)


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


# --- Structure ---


def test_the_api_page_describes_every_public_name():
    """That the site builds without warnings is seen by ``make docs``."""
    page = (ROOT / "docs" / "api.md").read_text()
    described = {name.rpartition(".")[2] for name in re.findall(r"^\.\. auto\w+:: ([\w.]+)", page, re.MULTILINE)}
    assert {*thermint.__all__, "from_pymc", "from_bambi"} <= described


def test_notebooks_are_stored_without_outputs():
    for path in (ROOT / "docs" / "notebooks").glob("*.ipynb"):
        cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
        assert cells
        assert not any(cell["outputs"] or cell["execution_count"] for cell in cells), path.name


def test_links_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[\w-]*)?\)", pages.PIECE.sub("", page.read_text())):
            if not re.match(r"https?:|mailto:", target):
                assert (page.parent / target).exists(), f"{name_of(page)} links to {target}"
