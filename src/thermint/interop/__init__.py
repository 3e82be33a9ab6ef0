"""Models people already have: NumPyro, PyMC, Bambi and plain Python; results as ArviZ reads them."""

import importlib
from types import ModuleType
from typing import Any

from thermint.model.checks import check_shapes
from thermint.model.closure_constants import lift_constants
from thermint.model.model import Model
from thermint.model.priors import check_normalised
from thermint.runtime.setup import require_float64

# Libraries whose models are taken as they are, with the name to print. ``library.py`` in this folder has
# ``from_library(model) -> Model``, which is then also ``thermint.from_library``.
FRONT_ENDS = {"pymc": "PyMC", "bambi": "Bambi"}


def as_model(model: Any) -> Model:
    """Return a Model as it is, and convert a model of another library.

    Raises:
        TypeError: no front end takes it; the message says what to do with a NumPyro model.
    """
    library = library_of(model)
    return getattr(optional(library), f"from_{library}")(model) if library else model


def checked_model(model: Any) -> Model:
    """Return a model of any kind as a Model, and refuse one that cannot have an evidence before anything is sampled."""
    model = as_model(model)
    require_float64()
    check_shapes(model)
    check_normalised(model)
    return lift_constants(model)


def library_of(model: Any) -> str | None:
    """Name the library that a model comes from, None for a Model.

    Raises:
        TypeError: as `as_model`.
    """
    if isinstance(model, Model):
        return None
    libraries = {base.__module__.partition(".")[0] for base in type(model).__mro__}
    known = next((library for library in FRONT_ENDS if library in libraries), None)
    if known is not None:
        return known
    if callable(model):
        raise TypeError(
            f"{getattr(model, '__name__', model)!r} is a function. If it is a NumPyro model, write "
            "thermint.from_numpyro(model, *args, **kwargs), with the arguments that it is called with."
        )
    names = " or ".join(f"a {name} model" for name in FRONT_ENDS.values())
    raise TypeError(f"model must be a thermint.Model, {names}, not {type(model).__name__}.")


def optional(library: str) -> ModuleType:
    """Import the front end of an optional library, or say how to install the library."""
    try:
        return importlib.import_module(f"thermint.interop.{library}")
    except ModuleNotFoundError as error:
        if error.name != library:
            raise
        raise ImportError(
            f'this needs {library}, which is not installed: pip install "thermint[{library}]".'
        ) from error
