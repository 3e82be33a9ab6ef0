"""What `estimate` needs, and what it refuses."""

from __future__ import annotations

import ast
from pathlib import Path

import thermint

SOURCE = Path(thermint.__file__).parent


def imported(module: str, known: set[str]) -> set[str]:
    """Collect the modules of thermint that a module imports, and that those import."""
    path = SOURCE.joinpath(*module.split(".")[1:])
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if module in known or module == "thermint" or not file.exists():
        return known
    known.add(module)
    for node in ast.parse(file.read_text()).body:  # not in functions, which draw and report
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("thermint"):
            for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                imported(str(name), known)
    return known


def test_it_needs_no_sampler() -> None:
    samplers = {"thermint.sampling.population", "thermint.sampling.sampler", "thermint.search.scout"}
    assert samplers <= imported("thermint.inference.evidence", set())
    assert not imported("thermint.inference.estimate", set()) & samplers
