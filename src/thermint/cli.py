"""The command line: ``thermint evidence MODEL``."""

from __future__ import annotations

import importlib.util
import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from thermint.model import Model

app = typer.Typer(
    help="Bayesian model evidence with an error bar you can bet on.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

BUILT_IN = ("linear", "radiata-1", "radiata-2", "radiata-1-benchmark", "radiata-2-benchmark", "pima-1", "pima-2")


@app.callback()
def main() -> None:
    """Bayesian model evidence with an error bar you can bet on."""


@app.command()
def evidence(
    model: Annotated[str, typer.Argument(help=f"FILE.py:NAME (the file is run), or one of {', '.join(BUILT_IN)}.")],
    seed: Annotated[int, typer.Option(help="The same seed gives the same answer.")] = 0,
    draws: Annotated[int, typer.Option(help="Draws per rung and population, after warm-up.")] = 1000,
    as_json: Annotated[bool, typer.Option("--json", help="Print all fields of the result as JSON.")] = False,
) -> None:
    """Compute the log evidence of a model."""
    import thermint

    try:
        result = thermint.evidence(load_model(model), seed=seed, draws=draws)
    except (ValueError, TypeError) as error:
        origin = traceback.extract_tb(error.__traceback__)[-1].filename
        if Path(origin).parent.parent.name != "thermint" and Path(origin).parent.name != "thermint":
            raise  # from the user's own code, who needs to see where
        fail(str(error))
    print(json.dumps(result.as_dict(), indent=2) if as_json else result)


def load_model(name: str) -> Model:
    """Find a built-in model, or run a Python file and take a model from it.

    Raises:
        ValueError: there is no such model; the message says where it was looked for.
    """
    from thermint.model import Model

    path, colon, attribute = name.rpartition(":")
    if not colon:
        return _built_in(name)
    file = Path(path)
    if not file.is_file():
        raise ValueError(f"there is no file {path}.")
    name = f"thermint_model_{file.stem}"  # not to hide a module of that name
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # as an import would, so that dataclasses in the file work
    sys.path.insert(0, str(file.parent))  # as for a script, so that the file can import its neighbours
    spec.loader.exec_module(module)
    if not hasattr(module, attribute):
        models = [key for key, value in vars(module).items() if isinstance(value, Model)]
        raise ValueError(f"{path} has no {attribute}. Models in it: {', '.join(models) or 'none'}.")
    model = getattr(module, attribute)
    if not isinstance(model, Model):
        raise ValueError(f"{attribute} in {path} is a {type(model).__name__}, not a thermint.Model.")
    return model


def _built_in(name: str) -> Model:
    """Build one of the paper's models."""
    from thermint.paper import linear, pima, radiata

    builders: dict[str, Callable[[], Model]] = {
        "linear": linear.model,
        "radiata-1": lambda: radiata.model(1),
        "radiata-2": lambda: radiata.model(2),
        "radiata-1-benchmark": lambda: radiata.model(1, benchmark=True),
        "radiata-2-benchmark": lambda: radiata.model(2, benchmark=True),
        "pima-1": lambda: pima.model(1),
        "pima-2": lambda: pima.model(2),
    }
    if name not in builders:
        raise ValueError(f"there is no model {name!r}. Give FILE.py:NAME, or one of {', '.join(builders)}.")
    return builders[name]()


def fail(message: str) -> None:
    """Print an error and end with exit code 2."""
    print(f"thermint: {message}", file=sys.stderr)
    raise typer.Exit(2)
