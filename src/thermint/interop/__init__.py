"""Models people already have: NumPyro, PyMC, Bambi and plain Python; results as ArviZ reads them."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from thermint.model.model import Model


def as_model(model: Any) -> Model:
    """Take a Model as it is, and make one of a PyMC or Bambi model.

    Raises:
        TypeError: it is none of these; the message says what to do with a NumPyro model.
    """
    library = library_of(model)
    return getattr(optional(library), f"from_{library}")(model) if library else model


def library_of(model: Any) -> str | None:
    """Name the library that a model comes from, None for a Model; what is no model is refused as by `as_model`."""
    if isinstance(model, Model):
        return None
    libraries = {base.__module__.partition(".")[0] for base in type(model).__mro__}
    for name in ("pymc", "bambi"):
        if name in libraries:
            return name
    if callable(model):
        raise TypeError(
            f"{getattr(model, '__name__', model)!r} is a function. If it is a NumPyro model, write "
            "thermint.from_numpyro(model, *args, **kwargs), with the arguments that it is called with."
        )
    raise TypeError(f"model must be a thermint.Model, a PyMC model or a Bambi model, not {type(model).__name__}.")


def optional(name: str) -> ModuleType:
    """Import our side of an optional library, saying how to install that where it is missing."""
    try:
        return importlib.import_module(f"thermint.interop.{name}")
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise ImportError(f'this needs {name}, which is not installed: pip install "thermint[{name}]".') from error
