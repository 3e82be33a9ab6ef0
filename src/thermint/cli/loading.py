"""Models and results that the command line names: built-in models, Python files, and saved results."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from thermint.interop import library_of
from thermint.model.result import Evidence

PREFIX = "thermint_model_"  # of the name of a module made of a user's file
# A module of thermint.paper, the arguments of its function model, and what it is.
BUILT_IN: dict[str, tuple[str, dict[str, Any], str]] = {
    "linear": ("linear", {}, "linear regression, 3 coefficients, simulated"),
    "radiata-1": ("radiata", {"number": 1}, "strength of pine by density, Williams' values"),
    "radiata-2": ("radiata", {"number": 2}, "strength of pine by adjusted density"),
    "radiata-1-benchmark": ("radiata", {"number": 1, "benchmark": True}, "by density, with the other copy of the data"),
    "radiata-2-benchmark": ("radiata", {"number": 2, "benchmark": True}, "by adjusted density, with that copy"),
    "pima-1": ("pima", {"number": 1}, "diabetes by four covariates, logistic"),
    "pima-2": ("pima", {"number": 2}, "diabetes by these and age"),
    "goodwin-3": ("goodwin", {"g": 3}, "Goodwin's oscillator of 3 substances; needs diffrax, takes minutes"),
    "goodwin-4": ("goodwin", {"g": 4}, "Goodwin's oscillator of 4 substances; likewise"),
}


def load_model(name: str) -> Any:
    """Find a built-in model, or run a Python file and take a model from it, as ``FILE.py:NAME``."""
    path, colon, attribute = name.rpartition(":")
    if not colon:
        return _built_in(name)
    file = Path(path)
    if not file.is_file():
        raise ValueError(f"there is no file {path}.")
    name = f"{PREFIX}{file.stem}"  # not to hide a module of that name
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # as an import would, so that dataclasses in the file work
    sys.path.insert(0, str(file.parent))  # as for a script, so that the file can import its neighbours
    spec.loader.exec_module(module)
    if not hasattr(module, attribute):
        models = [key for key, value in vars(module).items() if _is_model(value)]
        raise ValueError(f"{path} has no {attribute}. Models in it: {', '.join(models) or 'none'}.")
    model = getattr(module, attribute)
    if not _is_model(model):
        raise ValueError(f"{attribute} in {path} is a {type(model).__name__}, not a thermint.Model.")
    return model


def _is_model(value: Any) -> bool:
    try:
        library_of(value)
    except TypeError:
        return False
    return True


def _built_in(name: str) -> Any:
    """Build one of the paper's models."""
    from thermint import paper

    if name not in BUILT_IN:
        hint = f" {name} is a file: give its model too, as {name}:NAME." if Path(name).is_file() else ""
        raise ValueError(f"there is no model {name!r}.{hint} Give FILE.py:NAME, or one of {', '.join(BUILT_IN)}.")
    module, arguments, _ = BUILT_IN[name]
    return getattr(paper, module).model(**arguments)


def load_result(path: str) -> Evidence:
    """Read a saved result."""
    if not Path(path).is_file():
        raise ValueError(f"there is no file {path}. Give a result that `thermint evidence --save FILE` wrote.")
    return Evidence.load(path)


def named(arguments: list[str]) -> dict[str, str]:
    """Read ``LABEL=MODEL`` or ``MODEL``, whose label is then the last part of its name; labels must differ.

    >>> named(["pima-1", "with age=examples/pima.py:with_age", "examples/pima.py:without_age"])
    {'pima-1': 'pima-1', 'with age': 'examples/pima.py:with_age', 'without_age': 'examples/pima.py:without_age'}
    """
    found: dict[str, str] = {}
    for argument in arguments:
        label, equals, name = argument.partition("=")
        if not equals:
            label, name = argument.rpartition(":")[2], argument
            if is_result(name):
                label = Path(name).stem
        if label in found:
            raise ValueError(
                f"two models have the name {label!r}: {found[label]} and {name}. Give them others, as 'NAME=MODEL'."
            )
        found[label] = name
    return found


def is_result(name: str) -> bool:
    """Say whether this is the name of a saved result, by its ending."""
    return name.endswith(".npz")


def example_scripts() -> dict[str, Path]:
    """Find the example scripts: in an installed package, or beside the sources."""
    here = Path(__file__).parent.parent
    folders = (here / "examples", here.parent.parent / "examples")
    folder = next((folder for folder in folders if folder.is_dir()), None)
    return {} if folder is None else {path.stem: path for path in sorted(folder.glob("*.py"))}
