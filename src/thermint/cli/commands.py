"""The commands: ``thermint evidence MODEL`` and others."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from thermint.cli import loading
from thermint.cli.loading import BUILT_IN
from thermint.report.plots import KINDS

app = typer.Typer(
    help="Bayesian model evidence with an error bar you can bet on.",
    epilog="MODEL is FILE.py:NAME or a name of `thermint examples`. Exit codes: 0, 2 bad input, 130 interrupted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _complete(typed: str) -> list[str]:
    """Complete the name of a built-in model."""
    return [name for name in BUILT_IN if name.startswith(typed)]


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(version("thermint"))
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Bayesian model evidence with an error bar you can bet on."""


MODEL: dict[str, Any] = {"metavar": "MODEL", "autocompletion": _complete}
ModelName = Annotated[
    str, typer.Argument(help="FILE.py:NAME (the file is run), or a model of `thermint examples`.", **MODEL)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print all of it as JSON, for machines.")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same answer.")]
DrawsOption = Annotated[int, typer.Option(help="Draws per rung and population, after warm-up.")]
TargetError = Annotated[float | None, typer.Option(help="Standard error to reach, by rounds of doubling length.")]
MaxEvaluations = Annotated[int | None, typer.Option(help="Of the likelihood, at most.")]
MaxSeconds = Annotated[float | None, typer.Option(help="No round begins that would end later.")]
Save = Annotated[Path | None, typer.Option(help="Write the result to a file, for `plot`, `report` and `compare`.")]
Report = Annotated[Path | None, typer.Option(help="Write a page for people: one HTML file.", metavar="FILE.html")]
Results = Annotated[list[str], typer.Argument(help="Saved results; several are compared.", metavar="RESULT")]


@app.command()
def evidence(
    model: ModelName,
    seed: Seed = 0,
    draws: DrawsOption = 1000,
    target_error: TargetError = None,
    max_evaluations: MaxEvaluations = None,
    max_seconds: MaxSeconds = None,
    checkpoint: Annotated[Path | None, typer.Option(help="File to save the run in; see `thermint resume`.")] = None,
    save: Save = None,
    report: Report = None,
    as_json: AsJson = False,
) -> None:
    """Compute the log evidence of a model."""
    budget = {"target_error": target_error, "max_evaluations": max_evaluations, "max_seconds": max_seconds}
    run(model, {"seed": seed, "draws": draws} | budget, checkpoint, save, report, as_json)


@app.command()
def compare(
    models: Annotated[list[str], typer.Argument(help="MODEL, NAME=MODEL, or a saved result; two or more.", **MODEL)],
    prior: Annotated[list[str] | None, typer.Option(help="Probability before the data, NAME=0.5; all or none.")] = None,
    seed: Seed = 0,
    draws: DrawsOption = 1000,
    target_error: TargetError = None,
    max_evaluations: MaxEvaluations = None,
    max_seconds: MaxSeconds = None,
    checkpoint: Annotated[Path | None, typer.Option(help="Folder to save the runs in, and to go on from.")] = None,
    report: Report = None,
    as_json: AsJson = False,
) -> None:
    """Compare models: Bayes factors and posterior probabilities."""
    import thermint

    budget = {"target_error": target_error, "max_evaluations": max_evaluations, "max_seconds": max_seconds}
    options: dict[str, Any] = {"seed": seed, "draws": draws, "checkpoint": checkpoint} | budget
    with failures():
        if len(models) < 2:
            raise ValueError("there is nothing to compare: give two models or more.")
        found = {
            label: loading.load_result(name) if loading.is_result(name) else loading.load_model(name)
            for label, name in loading.named(models).items()
        }
        try:
            table = thermint.compare(found, prior=probabilities(prior), **options)
        except thermint.RunsFailedError as error:
            done = (f"{name}: {str(one).splitlines()[0]}" for name, one in error.results.items())
            fail("\n".join([str(error), *done]))
        if report:
            table.report(report)
    if as_json:
        rows = json.loads(table.to_json(orient="index", double_precision=15))
        results = {name: result.as_dict() for name, result in table.results.items()}
        print(json.dumps({"models": rows, "results": results}, indent=2))
    else:
        print(table)


@app.command()
def resume(
    checkpoint: Annotated[Path, typer.Argument(help="File of an earlier run.")],
    model: Annotated[
        str | None, typer.Argument(help="FILE.py:NAME of that run, if it was one; the file is run.")
    ] = None,
    target_error: TargetError = None,
    max_evaluations: MaxEvaluations = None,
    max_seconds: MaxSeconds = None,
    save: Save = None,
    report: Report = None,
    as_json: AsJson = False,
) -> None:
    """Go on with a run that was interrupted, or for longer.

    The checkpoint itself runs nothing.
    """
    from thermint.runtime.journal import contents

    with failures():
        found = contents(checkpoint)
    if found is None:
        fail(f"there is no file {checkpoint}.")
    origin = found["origin"]
    if model is None and not origin:
        fail(f"{checkpoint} was made in Python and does not name its model. Go on there, by the same call.")
    if model is None and origin not in BUILT_IN:
        fail(
            f"{checkpoint} is of the model {origin}, whose Python file would be run. To run it, write: "
            f"thermint resume {checkpoint} {origin}"
        )
    options = {name: value for name, value in found["identity"]["settings"].items() if name not in ("kernel", "swap")}
    budget = {"target_error": target_error, "max_evaluations": max_evaluations, "max_seconds": max_seconds}
    options |= found["budget"] | {name: value for name, value in budget.items() if value is not None}
    run(model or origin, options, checkpoint, save, report, as_json)


@app.command()
def plot(
    results: Results,
    output: Annotated[Path, typer.Option(help="The picture: .png, .pdf or .svg.")] = Path("thermint.png"),
    kind: Annotated[str, typer.Option(help=f"Of one result: {', '.join(KINDS)}.")] = "overview",
) -> None:
    """Draw saved results."""
    if kind not in KINDS:
        fail(f"there is no plot {kind!r}. Give one of {', '.join(KINDS)}.")
    with failures():
        import numpy as np

        from thermint.report import plots

        shown = saved(results)
        axes = getattr(shown.plot, kind)() if len(results) == 1 else plots.comparison(shown)
        np.ravel(axes)[0].figure.figure.savefig(output, dpi=200)
    print(output)


@app.command()
def report(results: Results, output: Annotated[Path, typer.Option(help="The page.")] = Path("thermint.html")) -> None:
    """Write a page on saved results: one HTML file."""
    with failures():
        saved(results).report(output)
    print(output)


@app.command()
def examples(
    name: Annotated[str | None, typer.Argument(help="Print this script, to be saved and changed.")] = None,
    as_json: AsJson = False,
) -> None:
    """List built-in models and example scripts, or print one of these."""
    scripts = loading.example_scripts()
    if name is not None:
        if name not in scripts:
            fail(f"there is no example {name!r}. There are {', '.join(scripts)}.")
        print(scripts[name].read_text(), end="")
        return
    models = {key: about for key, (_, _, about) in BUILT_IN.items()}
    first_lines = {key: path.read_text().split('"""')[1].split("\n")[0] for key, path in scripts.items()}
    if as_json:
        print(json.dumps({"models": models, "scripts": first_lines}, indent=2))
        return
    for title, listed in (
        ("Models, as in `thermint evidence pima-2`:", models),
        ("\nScripts, as in `thermint examples radon > radon.py`:", first_lines),
    ):
        print("\n".join([title, *(f"  {key:20} {about}" for key, about in listed.items())]))


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Look at this installation, and run a short self-test."""
    from thermint.cli.doctor import examine

    findings = examine()
    if as_json:
        print(json.dumps([finding._asdict() for finding in findings], indent=2))
    else:
        for what, found, good, advice in findings:
            print(f"{'ok ' if good else 'BAD'} {what:10} {found}" + (f"\n               {advice}" if advice else ""))
    if not all(finding.good for finding in findings):
        raise typer.Exit(1)


@app.command()
def paper(
    quick: Annotated[bool, typer.Option("--quick", help="Two replicates of each, in one or two minutes.")] = False,
    output: Annotated[Path, typer.Option(help="Directory for replicates, tables and figures.")] = Path("paper-results"),
    application: Annotated[list[str] | None, typer.Option(help="Only this one; may be given several times.")] = None,
    replicates: Annotated[int | None, typer.Option(min=1, help="At most so many of each.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; by default one a core.")] = None,
) -> None:
    """Reproduce the paper: every table and figure, beside ours.

    Interrupted, it goes on where it stopped.
    """
    try:
        from thermint.paper import reproduce, study
    except ImportError as error:
        fail(str(error))
    extent = study.QUICK if quick else study.FULL
    unknown = [name for name in application or () if name not in extent]
    if unknown:
        fail(f"there is no application {unknown[0]!r}. Give one of {', '.join(extent)}.")
    chosen = {
        name: extent[name]._replace(replicates=min(extent[name].replicates, replicates or extent[name].replicates))
        for name in application or extent
    }
    try:
        print(reproduce.reproduce(chosen, output / "quick" if quick else output, workers))
    except KeyboardInterrupt:
        print(f"thermint: stopped. What is done is in {output}; the same command goes on from there.", file=sys.stderr)
        raise typer.Exit(130) from None
    except (ValueError, ImportError) as error:
        fail(str(error))


def run(
    model: str, options: dict[str, Any], checkpoint: Path | None, save: Path | None, report: Path | None, as_json: bool
) -> None:
    """Compute an evidence, write what was asked for, and print it."""
    import thermint
    from thermint.inference.checkpoint import Checkpoint

    with failures():
        file = Checkpoint(checkpoint, model) if checkpoint else None
        result = thermint.evidence(loading.load_model(model), checkpoint=file, **options)
        if save:
            result.save(save)
        if report:
            result.report(report)
    print(json.dumps(result.as_dict(), indent=2) if as_json else result)


def saved(results: list[str]) -> Any:
    """Load one result, or compare several."""
    from thermint import compare

    found = {label: loading.load_result(path) for label, path in loading.named(results).items()}
    return compare(found) if len(found) > 1 else next(iter(found.values()))


def probabilities(prior: list[str] | None) -> dict[str, float] | None:
    """Read ``NAME=0.5``."""
    found = {}
    for one in prior or ():
        name, _, value = one.rpartition("=")
        try:
            found[name] = float(value)
        except ValueError:
            raise ValueError(f"--prior {one}: write it as NAME=0.5.") from None
    return found or None


@contextmanager
def failures() -> Iterator[None]:
    """Turn errors of thermint's into a message and an exit code; errors in the user's own code keep their traceback."""
    try:
        yield
    except (ValueError, TypeError, OSError, ImportError) as error:
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        ours = Path(frames[-1].f_code.co_filename).is_relative_to(Path(__file__).parent.parent)
        theirs = any(frame.f_globals.get("__name__", "").startswith(loading.PREFIX) for frame in frames)
        if theirs or not (ours or isinstance(error, OSError)):
            raise  # from the user's own code, who needs to see where
        fail(str(error))
    except KeyboardInterrupt as error:
        print(f"thermint: {error}", file=sys.stderr)
        raise typer.Exit(130) from None


def fail(message: str) -> NoReturn:
    """Print an error and end with exit code 2."""
    print(f"thermint: {message}", file=sys.stderr)
    raise typer.Exit(2)
