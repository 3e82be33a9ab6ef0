"""Which tuning constants does a test notice? Each is halved and doubled, and the tests of its room are run.

``python -m benchmarks.constants`` takes hours; ``python -m benchmarks.constants search path`` looks at some rooms. A
constant that nothing notices should be derived, removed, or get a test. Changes are made in a copy of the source.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "thermint"
FACTORS = (0.5, 2.0)
NAMES = {"FORMAT"}  # numbers that name something, such as a file format: nothing to tune


class Constant(NamedTuple):
    """A number, or several, that stands under a name in capitals at the top of a module."""

    file: str  # below SOURCE
    name: str
    line: int  # first line of the statement
    last: int
    value: ast.expr

    @property
    def room(self) -> str:
        """Return the folder."""
        return Path(self.file).parts[0]


def constants(file: str, source: str) -> Iterator[Constant]:
    """Find the constants of a module."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets, value = [node.target], node.value
        else:
            continue
        for target in targets:
            if isinstance(target, ast.Name) and _is_tuned(target.id) and numeric(value):
                yield Constant(file, target.id, node.lineno, node.end_lineno or node.lineno, value)


def _is_tuned(name: str) -> bool:
    return bool(re.fullmatch(r"_?[A-Z][A-Z0-9_]*", name)) and name not in NAMES


def numeric(value: ast.expr) -> bool:
    """Say whether an expression is a number, or holds nothing but numbers and strings."""
    if isinstance(value, ast.Constant):
        return isinstance(value.value, int | float) and not isinstance(value.value, bool)
    if isinstance(value, ast.UnaryOp):
        return numeric(value.operand)
    if isinstance(value, ast.BinOp):
        return numeric(value.left) and numeric(value.right)
    if isinstance(value, ast.Tuple | ast.List):
        plain = all(numeric(one) or isinstance(one, ast.Constant) for one in value.elts)
        return plain and any(map(numeric, value.elts))
    return isinstance(value, ast.Attribute) and value.attr in ("pi", "e", "inf")


def everywhere() -> list[Constant]:
    """Find the constants of all rooms but the paper's, whose settings are the paper's own."""
    files = sorted(path.relative_to(SOURCE) for path in SOURCE.rglob("*.py"))
    return [one for f in files if f.parts[0] != "paper" for one in constants(str(f), (SOURCE / f).read_text())]


def scaled(value: ast.expr, factor: float) -> str:
    """Write an expression with all its numbers multiplied; whole numbers stay whole."""

    class Scale(ast.NodeTransformer):
        def visit_Constant(self, node: ast.Constant) -> ast.Constant:
            number = node.value
            if isinstance(number, bool) or not isinstance(number, int | float):
                return node
            whole = isinstance(number, int)
            return ast.Constant(max(1, round(number * factor)) if whole and number else number * factor)

        def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
            return ast.parse(f"type({ast.unparse(node)})(({ast.unparse(node)}) * {factor})", mode="eval").body

    return ast.unparse(Scale().visit(ast.parse(ast.unparse(value), mode="eval")).body)


def noticed(constant: Constant, factor: float, folder: Path) -> bool:
    """Say whether a test of the room fails when the constant is multiplied."""
    copy = folder / "src" / "thermint"
    shutil.copytree(SOURCE, copy, dirs_exist_ok=True)
    file = copy / constant.file
    lines = file.read_text().splitlines()
    lines[constant.line - 1 : constant.last] = [f"{constant.name} = {scaled(constant.value, factor)}"]
    file.write_text("\n".join(lines) + "\n")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", f"tests/{constant.room}"]
    environment = os.environ | {"PYTHONPATH": str(copy.parent)}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True).returncode != 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rooms", nargs="*", help="rooms to look at; by default all")
    rooms = parser.parse_args().rooms
    with tempfile.TemporaryDirectory() as folder:
        for one in everywhere():
            if not rooms or one.room in rooms:
                seen = [f"x {factor:g}: {'yes' if noticed(one, factor, Path(folder)) else 'NO'}" for factor in FACTORS]
                print(
                    f"{one.file}:{one.line} {one.name} = {ast.unparse(one.value)}  noticed {', '.join(seen)}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
