"""The command line: ``thermint evidence MODEL``, ``thermint resume FILE`` and ``thermint paper``."""

from __future__ import annotations

import importlib.util
import json
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

if TYPE_CHECKING:
    from thermint.model import Model

app = typer.Typer(
    help="Bayesian model evidence with an error bar you can bet on.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

# A module of thermint.paper, and the arguments of its function model.
BUILT_IN: dict[str, tuple[str, dict[str, Any]]] = {
    "linear": ("linear", {}),
    "radiata-1": ("radiata", {"number": 1}),
    "radiata-2": ("radiata", {"number": 2}),
    "radiata-1-benchmark": ("radiata", {"number": 1, "benchmark": True}),
    "radiata-2-benchmark": ("radiata", {"number": 2, "benchmark": True}),
    "pima-1": ("pima", {"number": 1}),
    "pima-2": ("pima", {"number": 2}),
    "goodwin-3": ("goodwin", {"g": 3}),
    "goodwin-4": ("goodwin", {"g": 4}),
}


@app.callback()
def main() -> None:
    """Bayesian model evidence with an error bar you can bet on."""


ModelName = Annotated[
    str, typer.Argument(help=f"FILE.py:NAME (the file is Python, and is run), or one of {', '.join(BUILT_IN)}.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print all fields of the result as JSON.")]
TargetError = Annotated[float | None, typer.Option(help="Standard error to reach, by rounds of doubling length.")]
MaxEvaluations = Annotated[int | None, typer.Option(help="Of the likelihood, at most.")]
MaxSeconds = Annotated[float | None, typer.Option(help="No round begins that would end later.")]


@app.command()
def evidence(
    model: ModelName,
    seed: Annotated[int, typer.Option(help="The same seed gives the same answer.")] = 0,
    draws: Annotated[int, typer.Option(help="Draws per rung and population, after warm-up.")] = 1000,
    target_error: TargetError = None,
    max_evaluations: MaxEvaluations = None,
    max_seconds: MaxSeconds = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="File to save the run in, and to go on from; see `thermint resume`.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compute the log evidence of a model."""
    options: dict[str, Any] = {"seed": seed, "draws": draws}
    budget = {"target_error": target_error, "max_evaluations": max_evaluations, "max_seconds": max_seconds}
    run(model, options | budget, checkpoint, as_json)


@app.command()
def resume(
    checkpoint: Annotated[Path, typer.Argument(help="File of an earlier run.")],
    model: Annotated[
        str | None,
        typer.Argument(help="FILE.py:NAME as in that run, which runs the file; not needed for built-in models."),
    ] = None,
    target_error: TargetError = None,
    max_evaluations: MaxEvaluations = None,
    max_seconds: MaxSeconds = None,
    as_json: AsJson = False,
) -> None:
    """Go on with a run that was interrupted, or that is to become more precise. The checkpoint itself runs nothing."""
    from thermint.journal import contents

    try:
        found = contents(checkpoint)
    except (ValueError, OSError) as error:
        fail(str(error))
    if found is None:
        fail(f"there is no file {checkpoint}.")
    origin = found["origin"]
    if model is None and not origin:
        fail(f"{checkpoint} does not say which model it is of: it was made from Python. Go on there, by the same call.")
    if model is None and origin not in BUILT_IN:
        fail(
            f"{checkpoint} is of the model {origin}, a Python file that would be run. To run it, say so: "
            f"thermint resume {checkpoint} {origin}"
        )
    options = {name: value for name, value in found["identity"]["settings"].items() if name not in ("kernel", "swap")}
    given = {"target_error": target_error, "max_evaluations": max_evaluations, "max_seconds": max_seconds}
    budget = found["budget"] | {name: value for name, value in given.items() if value is not None}
    run(model or origin, options | budget, checkpoint, as_json)


def run(model: str, options: dict[str, Any], checkpoint: Path | None, as_json: bool) -> None:
    """Compute an evidence and print it."""
    import thermint
    from thermint.journal import Checkpoint

    saved = Checkpoint(checkpoint, model) if checkpoint else None
    try:
        result = thermint.evidence(load_model(model), checkpoint=saved, **options)
    except (ValueError, TypeError, OSError) as error:
        origin = Path(traceback.extract_tb(error.__traceback__)[-1].filename)
        if not origin.is_relative_to(Path(__file__).parent):
            raise  # from the user's own code, who needs to see where
        fail(str(error))
    except KeyboardInterrupt as error:
        print(f"thermint: {error}", file=sys.stderr)
        raise typer.Exit(130) from None
    print(json.dumps(result.as_dict(), indent=2) if as_json else result)


@app.command()
def paper(
    quick: Annotated[bool, typer.Option("--quick", help="Two replicates of each, in one or two minutes.")] = False,
    output: Annotated[Path, typer.Option(help="Directory for replicates, tables and figures.")] = Path("paper-results"),
    application: Annotated[list[str] | None, typer.Option(help="Only this one; may be given several times.")] = None,
    replicates: Annotated[int | None, typer.Option(min=1, help="At most so many of each.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; by default one a core.")] = None,
) -> None:
    """Reproduce the paper: every table and figure, beside ours. Interrupted, it goes on where it stopped."""
    try:
        from thermint.paper import reproduce, study
    except ImportError as error:
        fail(str(error))
    extent = study.QUICK if quick else study.FULL
    for name in application or ():
        if name not in extent:
            fail(f"there is no application {name!r}. Give one of {', '.join(extent)}.")
    chosen = {
        name: one._replace(replicates=min(one.replicates, replicates or one.replicates))
        for name, one in extent.items()
        if application is None or name in application
    }
    try:
        print(reproduce.reproduce(chosen, output / "quick" if quick else output, workers))
    except KeyboardInterrupt:
        print(f"thermint: stopped. What is done is in {output}; the same command goes on from there.", file=sys.stderr)
        raise typer.Exit(130) from None
    except (ValueError, ImportError) as error:
        fail(str(error))


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
    from thermint import paper

    if name not in BUILT_IN:
        raise ValueError(f"there is no model {name!r}. Give FILE.py:NAME, or one of {', '.join(BUILT_IN)}.")
    module, arguments = BUILT_IN[name]
    return getattr(paper, module).model(**arguments)


def fail(message: str) -> NoReturn:
    """Print an error and end with exit code 2."""
    print(f"thermint: {message}", file=sys.stderr)
    raise typer.Exit(2)
