"""Imports between rooms go one way: a room imports only those before it, lazy imports included."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "thermint"
ROOMS = (
    *("runtime", "model", "interop", "path", "control", "kernels", "sampling", "estimators", "diagnostics", "search"),
    *("inference", "report", "paper", "cli"),
)
# The methods of a result and of a comparison that draw, report or export: (file, room that they import).
EXCEPTIONS = {
    ("model/result.py", "report"),
    ("model/result.py", "interop"),
    ("inference/compare.py", "report"),
}


class Edge(NamedTuple):
    """An import from one room by another."""

    file: str
    line: int
    room: str  # that is imported; "" is the package itself


def edges(file: str, source: str) -> Iterator[Edge]:
    """Find all imports of thermint's modules in a file, at the top, in functions and for types."""
    here = ["thermint", *Path(file).parts[:-1]]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join([*here[: len(here) - node.level + 1], *filter(None, [node.module])] if node.level else [])
            names = [f"{base or node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            package, *rest = name.split(".")
            if package == "thermint":
                room = rest[0] if rest and rest[0] in ROOMS else ""
                yield Edge(file, node.lineno, room)


def wrong(file: str, source: str) -> list[Edge]:
    """Return the imports of a file that go against the order of the rooms."""
    room = Path(file).parts[0]
    before = ROOMS[: ROOMS.index(room) + 1]
    # The command line may use the public names, as a user would.
    allowed = {*before, ""} if room == "cli" else {*before}
    return [e for e in edges(file, source) if e.room not in allowed and (file, e.room) not in EXCEPTIONS]


FILES = sorted(str(path.relative_to(SOURCE)) for room in ROOMS for path in (SOURCE / room).rglob("*.py"))


def test_every_module_has_a_room() -> None:
    folders = {path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == set(ROOMS)
    assert {path.name for path in SOURCE.glob("*.py")} == {
        "__init__.py",
        "__main__.py",
        "ladders.py",
        "plots.py",
        "swaps.py",
    }


@pytest.mark.parametrize("file", FILES)
def test_imports_go_one_way(file: str) -> None:
    assert wrong(file, (SOURCE / file).read_text()) == []


@pytest.mark.parametrize("exception", sorted(EXCEPTIONS))
def test_exceptions_are_needed(exception: tuple[str, str]) -> None:
    file, room = exception
    assert room in {edge.room for edge in edges(file, (SOURCE / file).read_text())}


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("model/draws.py", "from thermint.path.ladders import as_ladder"),
        ("path/ladders.py", "def f():\n    import thermint.sampling.population"),
        (
            "runtime/store.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from thermint.model import Model",
        ),
        ("estimators/bridge.py", "from thermint import kernels, search"),
        ("inference/evidence.py", "from thermint import evidence"),
        ("control/gram.py", "from ..sampling import population"),
    ],
)
def test_a_wrong_edge_is_noticed(file: str, source: str) -> None:
    assert len(wrong(file, source)) == 1


def test_a_right_edge_is_not() -> None:
    source = "from thermint.path import ladders\nfrom . import basis\nimport numpy\n"
    assert wrong("control/gram.py", source) == []


def test_make_check_touches_every_room() -> None:
    makefile = (SOURCE.parents[1] / "Makefile").read_text()
    quick = re.search(r"^QUICK := ((?:.*\\\n)*.*)", makefile, re.MULTILINE)
    assert quick
    files = quick[1].replace("\\\n", " ").split()
    assert all((SOURCE.parents[1] / "tests" / file).exists() for file in files)
    assert {file.partition("/")[0] for file in files} - {"test_rooms.py"} == set(ROOMS)
