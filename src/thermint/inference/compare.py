"""Which model do the data speak for? Bayes factors and posterior model probabilities, with error bars."""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
import types
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import special

from thermint.inference.evidence import evidence
from thermint.inference.tables import RunTable
from thermint.interop import as_model, library_of
from thermint.model.options import require_whole
from thermint.model.result import Evidence, plus_minus
from thermint.runtime.tasks import Task, failure, run_tasks

# Kass and Raftery (1995): words for 2 ln BF, up to each bound.
SCALE = ((2.0, "not worth more than a bare mention"), (6.0, "positive"), (10.0, "strong"), (np.inf, "very strong"))
WITHIN = float(special.ndtri(0.975))  # standard errors of a 95 % interval, which words allow for
COLUMNS = (
    "log_evidence",
    "standard_error",
    "log_bf",
    "log_bf_error",
    "probability",
    "probability_error",
    "warnings",
)

Data = tuple[tuple[tuple[int, ...], bytes], ...]


class Ran(NamedTuple):
    """What a run, here or in another process, hands back."""

    result: Evidence
    data: Data | None  # shape and digest of every array that was observed, sorted; None if not known


class Comparison(RunTable):
    """The table of `compare`: it prints errors beside values, and says in words what the Bayes factors amount to.

    Attributes:
        results: `Evidence` of every model, by name, the best first.
    """

    _metadata = ["results"]  # noqa: RUF012, pandas' way to keep an attribute
    results: dict[str, Evidence]

    needed = COLUMNS

    def printed(self) -> pd.DataFrame:
        """Return the table as it is printed: values with their errors, and the words of Kass and Raftery."""
        others = self["log_bf_error"] > 0

        def column(value: str, error: str) -> list[str]:
            return [plus_minus(v, e) if e > 0 else f"{v:.4g}" for v, e in zip(self[value], self[error], strict=True)]

        return pd.DataFrame(
            {
                "log evidence": column("log_evidence", "standard_error"),
                "log Bayes factor": column("log_bf", "log_bf_error"),
                "probability": column("probability", "probability_error"),
                "evidence against": [
                    words(bf, error) if other else ""
                    for bf, error, other in zip(self["log_bf"], self["log_bf_error"], others, strict=True)
                ],
            },
            index=self.index.rename(None),
        )

    def report(self, path: str | Path) -> Path:
        """Write one HTML page on all models: which one the data favour, by how much, and how that was computed.

        The page needs no network. Returns its path.
        """
        from thermint.report.page import write

        return write(self.results, path, table=self)

    def _notes(self) -> list[str]:
        return [f"warning: {name}: {text}" for name, several in self["warnings"].items() for text in several]

    def _html_notes(self, notes: Sequence[str]) -> str:
        items = "".join(f"<li>{note.removeprefix('warning: ')}</li>" for note in notes)
        return f"<p>Warnings:</p><ul>{items}</ul>" if items else ""


def compare(
    models: Mapping[str, Any],
    *,
    prior: Mapping[str, float] | None = None,
    executor: Executor | None = None,
    **options: Any,
) -> Comparison:
    """Compare models of the same data by their evidences.

    Args:
        models: ``{"name": model}``; an `Evidence` stands for a model that has been run already, and a function without
            arguments for the model that it returns.
        prior: probability of each model before the data were seen; by default all are equal.
        executor: runs the models side by side: any `concurrent.futures.Executor`, such as a `ProcessPoolExecutor` or
            those of Dask and mpi4py; docs/scale.md has an example of each. What is sent to other processes must be
            picklable, which most models are not but a top-level function that makes one is; and JAX wants these
            processes to be spawned (``mp_context=multiprocessing.get_context("spawn")``). Threads take any model.
            What a worker that died was doing is done again, twice at most, with the same answer.
        **options: of `thermint.evidence`. Each model has a seed of its own, made of ``seed`` and its name, so that the
            runs are independent and do not depend on what else is in the table. ``checkpoint`` is a folder with a file
            for each model.

    Returns:
        A table with one row for each model, the best first. It has ``log_evidence`` and its ``standard_error``;
        ``log_bf``, its own minus the best, and the error of that; ``probability`` after the data were seen, and its
        error (delta method); and ``warnings``. Printed, it says what the Bayes factors amount to in the words of Kass
        and Raftery (1995). Its ``results`` are the evidences by name; `thermint.plots.comparison` draws it, and
        ``report(path)`` writes a page.

    Raises:
        ValueError: no models, or a prior that does not name exactly these or is no probability.
        ValueError: an executor whose processes are forked.
        TypeError: a model that cannot be used, or not be sent to another process; an option that there is not.
        RunsFailedError: some models failed while they ran. It names them, and its ``results`` are the evidences of the
            others, all of which have been run.

    Example:
        >>> import thermint
        >>> from thermint.paper import radiata
        >>> table = thermint.compare({"density": radiata.model(1), "adjusted": radiata.model(2)}, draws=100)
        >>> table.index[0], round(float(table.log_bf["density"]), 1)
        ('adjusted', -9.2)
    """
    if not models:
        raise ValueError("models is empty: give at least one, as {'name': model}.")
    names = list(models)
    log_prior = _log_prior(names, prior)
    seed, options = read_options(options, executor)
    own = {name: {**options, "seed": seed_of(seed, name), **saved_as(options, name)} for name in names}
    ran = _run_all(models, own, executor)
    other_data = _different_data({name: one.data for name, one in ran.items()})
    if other_data:
        warnings.warn(other_data, stacklevel=2)

    value = np.array([ran[name].result.log_evidence for name in names])
    error = np.array([ran[name].result.standard_error for name in names])
    best = int(value.argmax())
    probability, probability_error = posterior(value, error, log_prior)
    against_best = np.where(np.arange(len(names)) == best, 0.0, np.hypot(error, error[best]))
    told = [
        ((other_data,) if other_data and one.data is not None else ()) + one.result.warnings for one in ran.values()
    ]
    columns = (value, error, value - value[best], against_best, probability, probability_error, told)
    table = pd.DataFrame(dict(zip(COLUMNS, columns, strict=True)), index=pd.Index(names, name="name"))
    found = Comparison(table.iloc[np.argsort(-value, kind="stable")])
    found.results = {name: ran[name].result for name in found.index}
    return found


def posterior(log_evidence: np.ndarray, error: np.ndarray, log_prior: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Posterior probabilities of models, [model], and their errors by the delta method.

    With p the softmax of log evidence + log prior, dp_i / dl_j = p_i (delta_ij - p_j).
    """
    p = special.softmax(log_evidence + log_prior)
    jacobian = p[:, None] * (np.eye(len(p)) - p)
    return p, np.sqrt((jacobian**2) @ error**2)


def words(log_bf: float, error: float) -> str:
    """Say how strong the evidence is, in the words of Kass and Raftery; of two kinds where the error allows both.

    >>> words(-2.0, 0.1), words(-3.0, 0.4)
    ('positive', 'positive to strong')
    """
    if not np.isfinite([log_bf, error]).all():
        return "unknown"
    low, high = (2 * max(abs(log_bf) + side * WITHIN * error, 0.0) for side in (-1, 1))
    least, most = (next(word for bound, word in SCALE if twice <= bound) for twice in (low, high))
    return least if least == most else f"{least} to {most}"


def seed_of(seed: int, name: str) -> int:
    """Make the seed of one model's run from the seed of all and its name."""
    return int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:4], "big")


def _log_prior(names: list[str], prior: Mapping[str, float] | None) -> np.ndarray:
    """Return the log prior probabilities, [model], or say what is wrong with them."""
    if prior is None:
        return np.full(len(names), -np.log(len(names)))
    missing, unknown = [n for n in names if n not in prior], [n for n in prior if n not in names]
    if missing or unknown:
        wrong = f"lacks {missing}" if missing else f"names {unknown}, which are not among the models"
        raise ValueError(f"prior {wrong}: give one probability for each of {names}.")
    for name in names:
        if not prior[name] >= 0:  # nor NaN
            raise ValueError(f"prior[{name!r}] = {prior[name]!r}: a probability cannot be negative or NaN.")
    total = float(sum(prior.values()))
    if abs(total - 1) > 1e-9:
        raise ValueError(f"prior sums to {total:.10g} instead of 1: divide every probability by that.")
    with np.errstate(divide="ignore"):
        return np.log([float(prior[name]) for name in names])


def _run_all(
    models: Mapping[str, Any], options: dict[str, dict[str, Any]], executor: Executor | None
) -> dict[str, Ran]:
    """Run every model that is not a result already, side by side if there is an executor; an error names the model."""
    ran = {name: Ran(model, None) for name, model in models.items() if isinstance(model, Evidence)}
    tasks = {name: Task(model, options[name]) for name, model in models.items() if name not in ran}
    for name, task in tasks.items():
        try:
            require_model(task.model)
        except TypeError as error:
            error.add_note(f"This happened with the model {name!r}.")
            raise
    made, errors = run_tasks(run_one, tasks, executor, "model")
    ran |= made
    if errors:
        results = {name: ran[name].result for name in models if name in ran}
        raise failure(results, errors, "model") from next(iter(errors.values()))
    return {name: ran[name] for name in models}


def run_one(model: Any, options: dict[str, Any]) -> Ran:
    """Compute the evidence of one model; with what was observed, to be compared with others."""
    model = as_model(model() if makes_one(model) else model)
    return Ran(evidence(model, **options), _data_of(getattr(model, "data", None)))


def require_model(model: Any) -> None:
    """Refuse what is neither a model nor a function that may make one."""
    if not makes_one(model):
        library_of(model)


def makes_one(model: Any) -> bool:
    """Say whether this is a function that can be called without arguments; a NumPyro model usually has some."""
    if not isinstance(model, types.FunctionType | functools.partial):
        return False
    arguments = inspect.signature(model).parameters.values()
    return all(a.default is not a.empty or a.kind in (a.VAR_POSITIONAL, a.VAR_KEYWORD) for a in arguments)


def read_options(options: dict[str, Any], executor: Executor | None) -> tuple[int, dict[str, Any]]:
    """Return the seed and the other options of `thermint.evidence`; names that it does not know are refused."""
    inspect.signature(evidence).bind(None, **options)
    seed = options.get("seed", 0)
    require_whole("seed", seed, at_least=0)
    if options.get("checkpoint") is not None:
        Path(options["checkpoint"]).mkdir(parents=True, exist_ok=True)
    quiet = {} if executor is None else {"progress": False}
    return seed, quiet | {name: value for name, value in options.items() if name != "seed"}


def saved_as(options: Mapping[str, Any], name: Any) -> dict[str, Path]:
    """Name the checkpoint of one run in the folder of all, if there is one; the names of files are safe and differ."""
    folder = options.get("checkpoint")
    if folder is None:
        return {}
    safe = re.sub(r"[^\w.-]+", "_", str(name))
    return {"checkpoint": Path(folder) / f"{safe}-{seed_of(0, str(name)):08x}.npz"}


def _data_of(data: Mapping[str, Any] | None) -> Data | None:
    """Boil observed arrays down to what tells whether they are the same, whatever their names."""
    return None if data is None else tuple(sorted(_digest(np.asarray(values)) for values in data.values()))


def _digest(values: np.ndarray) -> tuple[tuple[int, ...], bytes]:
    plain = values.astype(np.float64) + 0.0 if values.dtype.kind in "biuf" else values.astype(str)  # no -0.0
    return values.shape, hashlib.sha256(np.ascontiguousarray(plain).tobytes()).digest()


def _different_data(data: dict[str, Data | None]) -> str | None:
    """Say which models were not given the same data, as far as that is known."""
    groups: dict[Data, list[str]] = {}
    for name, one in data.items():
        if one is not None:
            groups.setdefault(one, []).append(name)
    if len(groups) < 2:
        return None
    shapes = (
        f"{', '.join(map(repr, names))} (shapes {', '.join(str(shape) for shape, _ in one) or 'none'})"
        for one, names in groups.items()
    )
    return (
        f"the models do not share the same data: {'; '.join(shapes)}. Evidences of different data cannot be compared: "
        "give every model the same observations, on the same scale."
    )
