"""The design pages are true to the tree: the files, functions and tests that they name exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "thermint"
PAGES = [ROOT / "CONTRIBUTING.md", ROOT / "docs" / "design.md", ROOT / "docs" / "algorithm.md"]
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
ROOMS = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}


def names_in(path: Path) -> set[str]:
    """Name the functions, classes and values at the top of a module."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", node)]
        found |= {getattr(target, "name", getattr(target, "id", "")) for target in targets}
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_and_functions_exist(page: Path) -> None:
    code = re.findall(r"`([^`\n]+)`", page.read_text())
    paths = [words for words in code if words.split("/")[0] in ROOMS and "/" in words]
    assert paths or page.name != "design.md"
    for words in paths:
        file, _, name = words.partition(": ")
        assert (PACKAGE / file).exists(), f"{page.name} names {file}"
        assert not name or name in names_in(PACKAGE / file), f"{page.name} names {name} in {file}"


def test_the_design_names_every_room() -> None:
    picture = (ROOT / "docs" / "rooms.svg").read_text()
    assert set(re.findall(r'class="name">(\w+)<', picture)) == ROOMS
    assert set(re.findall(r"\b(\w+)/", (ROOT / "docs" / "design.md").read_text())) >= ROOMS - {"paper"}


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_a_decision_has_its_parts_and_is_guarded(page: Path) -> None:
    text = page.read_text()
    assert re.findall(r"^## (.*)", text, re.MULTILINE) == ["Context", "Decision", "Figure", "Guarded by"]
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    guards = re.findall(r"^- `(test_\w+)`: ", text, re.MULTILINE)
    assert guards
    for name in guards:
        assert f"def {name}(" in tests, f"{page.name} names {name}"


def test_decisions_are_listed_and_numbered() -> None:
    index = (ROOT / "docs" / "decisions" / "index.md").read_text()
    assert sorted(re.findall(r"^(\d\d-[\w-]+)$", index, re.MULTILINE)) == [page.stem for page in DECISIONS]
    assert [int(page.stem[:2]) for page in DECISIONS] == list(range(1, len(DECISIONS) + 1))


def test_the_glossary_is_short() -> None:
    terms = re.findall(r"^- \*\*(.+?)\*\*: ", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    assert 15 <= len(terms) <= 25
    assert len(set(terms)) == len(terms)
