"""Tuning constants are few, and each says why it has its value."""

from __future__ import annotations

import ast

import pytest

from benchmarks.constants import SOURCE, Constant, constants, everywhere, scaled

MOST = 80  # outside of the paper's room


def explained(constant: Constant, source: str) -> bool:
    """Say whether a comment stands beside the constant, or right above it."""
    lines = source.splitlines()
    beside = any("  # " in line or line.strip().startswith("#") for line in lines[constant.line - 1 : constant.last])
    return beside or lines[constant.line - 2].startswith("#")


def test_there_are_few() -> None:
    assert len(everywhere()) <= MOST


@pytest.mark.parametrize("constant", everywhere(), ids=lambda one: f"{one.file}:{one.name}")
def test_each_says_why(constant: Constant) -> None:
    assert explained(constant, (SOURCE / constant.file).read_text())


def test_constants_are_found() -> None:
    source = (
        "A = 1\n# Why.\nB: float = 2.0**3\nc = 3\nD = (1, None, -2)\nE = 'x'\nF = True\nG = math.pi / 2\nH = f(1)\n"
    )
    found = list(constants("search/scout.py", source))
    assert [one.name for one in found] == ["A", "B", "D", "G"]
    assert [explained(one, source) for one in found] == [False, True, False, False]


@pytest.mark.parametrize(
    ("value", "wanted"), [("3", 6), ("0.5", 1.0), ("-2.0", -4.0), ("2**10", 2**11), ("(1, None, 2.5)", (2, None, 5.0))]
)
def test_all_kinds_of_numbers_are_doubled(value: str, wanted: object) -> None:
    assert eval(scaled(ast.parse(value, mode="eval").body, 2.0)) == wanted
