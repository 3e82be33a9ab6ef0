"""The paper's study: population MCMC in the paper's own setting, many times, and every estimator on the same draws.

51 quintic rungs, simplified mMALA, exchanges of random pairs, 10 % burn-in, one population, coefficients fitted in
sample. Step sizes are tuned beforehand, once a model, and then frozen. Beside that stands `thermint.evidence` as it
comes, with no more likelihood evaluations. What was run is kept in a file, one line a replicate: a study that was
interrupted goes on from there.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import pathlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from thermint.control.coefficients import control
from thermint.control.plan import make_plan
from thermint.estimators.errors import batch_error
from thermint.estimators.path_summary import summarise_draws
from thermint.estimators.thermodynamic import integrate
from thermint.inference.evidence import evidence
from thermint.kernels import mmala
from thermint.model.draws import Draws, concatenate
from thermint.model.model import Model
from thermint.paper import goodwin, linear, pima, radiata
from thermint.paper.cais import controlled_ais
from thermint.path import ladders, quadrature
from thermint.path.path import Path
from thermint.sampling.options import SamplerOptions
from thermint.sampling.population import collect, engine_of, launch, rungs_of
from thermint.sampling.sampler import Sampler, make_sampler
from thermint.sampling.starts import begin, start_at
from thermint.sampling.swaps import even_odd, random_pairs
from thermint.sampling.warmup import LONG, WarmupSchedule

RUNGS = 51
RULES = ("trapezoid", "second-order")
DEGREES = (0, 1, 2)
CHUNK = 50
FEWEST_DRAWS = 1000  # N whose evaluations are enough for `thermint.evidence`; fewer are for a quick look only
QUICK_ROUNDS: WarmupSchedule = ((20, 0.3),)  # of the tuning run, for fewer
TUNING_SEED, REPLICATE_SEED = 0, 1  # of the tuning runs and of the replicates, which share nothing else
# Estimator, degree and rule.
Method = tuple[str, int, str]
METHODS: tuple[Method, ...] = (
    *(("CTI" if degree else "TI", degree, rule) for degree, rule in product(DEGREES, RULES)),
    ("AIS", 0, ""),
    ("CAIS", 1, ""),
    ("CAIS", 2, ""),
    ("thermint", -1, ""),
)
KEYS = ("application", "model", "draws", "setting", "replicate")
Record = dict[str, Any]


@dataclass(frozen=True)
class Application:
    """One of the paper's applications."""

    name: str
    title: str
    models: tuple[Callable[[], Model], ...]
    log_evidence: tuple[float, ...]
    draws: tuple[int, ...] = (1000, 5000)
    replicates: int = 100
    block: int = 10  # replicates that run side by side in one program
    tuning: int = 4  # populations of the run that tunes the sampler
    weight: float = 1.0  # time of an evaluation, very roughly

    @property
    def truth(self) -> float:
        """Log evidence, or log Bayes factor B21 where there are two models."""
        return self.log_evidence[-1] - (self.log_evidence[0] if len(self.models) == 2 else 0.0)


def _models(
    module: ModuleType, *numbers: int, **options: Any
) -> tuple[tuple[Callable[[], Model], ...], tuple[float, ...]]:
    """Return functions that build the models of a module, and their log evidences."""
    build = tuple(partial(module.model, number, **options) for number in numbers)
    return build, tuple(module.log_evidence(number, **options) for number in numbers)


APPLICATIONS = {
    application.name: application
    for application in (
        Application("linear", "Linear regression", (linear.model,), (linear.log_evidence(),)),
        Application("radiata", "Radiata pine", *_models(radiata, 1, 2, benchmark=True)),
        Application("pima", "Pima Indians", *_models(pima, 1, 2)),
        # The slowest solution of a batch holds up all others, so that blocks have one replicate.
        Application(
            "goodwin", "Goodwin oscillator", *_models(goodwin, 3, 4), (1000,), 10, block=1, tuning=1, weight=100.0
        ),
    )
}


class Extent(NamedTuple):
    """How much of an application is run."""

    draws: tuple[int, ...]  # N
    replicates: int


FULL = {name: Extent(one.draws, one.replicates) for name, one in APPLICATIONS.items()}
QUICK = {name: Extent((1000,), 2) for name in ("linear", "radiata", "pima")} | {"goodwin": Extent((40,), 1)}


class Task(NamedTuple):
    """Some replicates of one model that are run in one go."""

    application: str
    model: int  # 1 or 2
    draws: int  # N
    setting: str  # "paper", or "thermint" for the default method with no more evaluations
    replicates: tuple[int, ...]


def tasks(extent: dict[str, Extent]) -> list[Task]:
    """List the tasks of a study, the longest first, so that all workers end at about the same time."""
    found = []
    for name, (sizes, count) in extent.items():
        block = APPLICATIONS[name].block
        for draws, model, setting in product(
            sizes, range(1, 1 + len(APPLICATIONS[name].models)), ("paper", "thermint")
        ):
            if setting == "thermint" and draws < FEWEST_DRAWS:
                continue
            replicates = (tuple(range(first, min(first + block, count))) for first in range(0, count, block))
            found += [Task(name, model, draws, setting, some) for some in replicates]
    return sorted(found, key=cost, reverse=True)


def cost(task: Task) -> float:
    """Say roughly what a task takes, in units of one replicate of N = 1000 of an explicit likelihood."""
    return task.draws / 1000 * len(task.replicates) * APPLICATIONS[task.application].weight


def run_task(task: Task) -> list[Record]:
    """Run some replicates."""
    return _thermint(task) if task.setting == "thermint" else _paper(task)


def _thermint(task: Task) -> list[Record]:
    """Call `thermint.evidence` as it comes, allowed as many evaluations as the paper's setting takes."""
    model = APPLICATIONS[task.application].models[task.model - 1]()
    records = []
    for replicate in task.replicates:
        result = evidence(model, max_evaluations=_evaluations(task.draws), seed=replicate, progress=False)
        row = ("thermint", -1, "", result.log_evidence, result.standard_error)
        records.append(_record(task, replicate, result.evaluations, result.seconds, [row], result.warnings))
    return records


def _paper(task: Task) -> list[Record]:
    """Draw as the paper does, and estimate in every way from the same draws."""
    begin = time.perf_counter()
    all_draws = paper_draws(task)
    sampling = (time.perf_counter() - begin) / len(task.replicates)
    evaluations = _evaluations(task.draws)
    records = []
    for position, replicate in enumerate(task.replicates):
        begin = time.perf_counter()
        rows, rungs, warnings = estimates_of(all_draws.population(position))
        seconds = sampling + time.perf_counter() - begin
        records.append(_record(task, replicate, evaluations, seconds, rows, warnings) | rungs)
    return records


def _record(
    task: Task, replicate: int, evaluations: int, seconds: float, rows: list[tuple], warnings: tuple[str, ...]
) -> Record:
    names = ("estimator", "degree", "rule", "log_evidence", "standard_error")
    return dict(zip(KEYS, (*task[:4], replicate), strict=True)) | {
        "evaluations": evaluations,
        "seconds": round(seconds, 3),
        "estimates": [dict(zip(names, row, strict=True)) for row in rows],
        "warnings": list(warnings),
    }


@cache
def tuned(application: str, model: int, rounds: WarmupSchedule, length: int) -> Sampler:
    """Tune step sizes and find places to start from; the paper does not say how it did either.

    On Pima, chains that start at draws of the prior take longer than the paper's burn-in to arrive.
    """
    swap = even_odd if rounds is LONG else random_pairs  # for a quick look, one program less to compile
    options = SamplerOptions(APPLICATIONS[application].tuning, mmala, swap, length, rounds)
    path = Path(APPLICATIONS[application].models[model - 1]())
    return make_sampler(path, ladders.power(RUNGS), options, jax.random.key(TUNING_SEED))


def paper_draws(task: Task) -> Draws:
    """Draw as the paper does; each replicate is one population, whose numbers depend on its own index alone."""
    model = APPLICATIONS[task.application].models[task.model - 1]()
    burn_in = _burn_in(task.draws)
    length = min(CHUNK, -(-(burn_in + task.draws) // 2))
    pilot = tuned(task.application, task.model, LONG if task.draws >= FEWEST_DRAWS else QUICK_ROUNDS, length)
    assert pilot.last is not None
    params, places = pilot.params, np.asarray(pilot.last.position)
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(REPLICATE_SEED), task.model), task.draws)
    keys = jax.vmap(partial(jax.random.fold_in, key))(np.asarray(task.replicates))
    starts = []
    for replicate in task.replicates:
        random = np.random.default_rng([REPLICATE_SEED, task.model, task.draws, replicate])
        population, draw = random.integers(places.shape[0], size=RUNGS), random.integers(places.shape[1], size=RUNGS)
        starts.append(places[population, draw, np.arange(RUNGS)])
    state = start_at(Path(model), np.stack(starts))
    now = begin(state, jnp.broadcast_to(jnp.log(params.step_size), (len(starts), RUNGS)))
    engine = engine_of(Path(model), len(starts), kernel=mmala, swap=random_pairs, length=length, alone=True)
    rungs = rungs_of(pilot.ladder, params.precision_factor)
    pieces = []
    for iteration in range(0, burn_in + task.draws, length):
        now, piece = collect(launch(engine, keys, now, rungs, iteration, 0.0, iteration + length))
        pieces.append(piece)
    return concatenate(pieces).block(burn_in, burn_in + task.draws)


def _burn_in(draws: int) -> int:
    return draws // 10


def _evaluations(draws: int) -> int:
    return RUNGS * (_burn_in(draws) + draws)


def estimates_of(draws: Draws) -> tuple[list[tuple], dict[str, Any], tuple[str, ...]]:
    """Estimate the log evidence from the draws of one population in all of the paper's ways.

    Returns rows (estimator, degree, rule, log evidence, standard error); integrand and variance ratio R,
    [degree][rung]; and warnings.
    """
    ladder, (number, rungs, d) = np.asarray(draws.ladder), draws.position.shape[1:]
    plan = make_plan(draws=number, populations=1, rungs=rungs, dimension=d, degree=2, rule=RULES[1], crossfit=False)
    gram = summarise_draws(draws, plan).gram
    rows: list[tuple] = []
    integrand, ratio = [], []
    for degree in DEGREES:
        controlled = control(gram, plan.sizes[: degree + 1], fixed=True, crossfit=False)
        for rule in RULES:
            integral = integrate(controlled, np.asarray(gram.number), gram.frame, ladder, quadrature.RULES[rule])
            rows.append(("CTI" if degree else "TI", degree, rule, integral.value, batch_error(integral.series).error))
        integrand.append(integral.mean.tolist())
        ratio.append((controlled.residual[:, 0] / controlled.variance[:, 0]).tolist())
    warnings: list[str] = []
    for degree in DEGREES:
        found = controlled_ais(draws, gram.frame, degree, plan.batches, crossfit=False)
        rows.append(("CAIS" if degree else "AIS", degree, "", found.value, batch_error(found.series).error))
        warnings += [f"CAIS, degree {degree}: {one}" for one in found.warnings]
    return rows, {"integrand": integrand, "ratio": ratio}, tuple(warnings)


class Study:
    """Replicates in a file, and what is still to do."""

    def __init__(self, file: pathlib.Path) -> None:
        self.file = file
        self.records: list[Record] = []
        whole = file.read_text() if file.exists() else ""
        lines = whole.splitlines(keepends=True)
        for number, line in enumerate(lines, start=1):
            try:
                self.records.append(json.loads(line))
            except json.JSONDecodeError as error:
                if number < len(lines):
                    raise ValueError(f"{file}, line {number} is damaged ({error}): remove that line.") from error
                # Cut off when the study was interrupted; that replicate is run again.
                with file.open("r+") as opened:
                    opened.truncate(len("".join(lines[:-1]).encode()))

    def missing(self, wanted: list[Task]) -> list[Task]:
        """Return the tasks without the replicates that are done."""
        done = {tuple(record[key] for key in KEYS) for record in self.records}
        left = (
            task._replace(replicates=tuple(r for r in task.replicates if (*task[:4], r) not in done)) for task in wanted
        )
        return [task for task in left if task.replicates]

    def run(self, wanted: list[Task], workers: int) -> Iterator[Task]:
        """Run what is missing in so many processes, and yield each task when its results are in the file."""
        missing = self.missing(wanted)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with pinned(workers) as executor:
            futures = {executor.submit(run_task, task): task for task in missing}
            try:
                for future in as_completed(futures):
                    records = future.result()
                    with self.file.open("a") as file:
                        file.writelines(json.dumps(record) + "\n" for record in records)
                    self.records += records
                    yield futures[future]
            finally:
                executor.shutdown(wait=False, cancel_futures=True)

    def estimates(self) -> pd.DataFrame:
        """One row an estimate."""
        shared = (*KEYS, "evaluations", "seconds")
        rows = [{key: record[key] for key in shared} | row for record in self.records for row in record["estimates"]]
        return pd.DataFrame(rows)

    def rungs(self) -> pd.DataFrame:
        """One row for each replicate, degree and rung."""
        rows = [
            (*(record[key] for key in KEYS if key != "setting"), degree, rung, t, *values)
            for record in self.records
            if "ratio" in record
            for degree in DEGREES
            for rung, (t, *values) in enumerate(
                zip(ladders.power(RUNGS), record["integrand"][degree], record["ratio"][degree], strict=True)
            )
        ]
        names = [key for key in KEYS if key != "setting"] + ["degree", "rung", "t", "integrand", "ratio"]
        return pd.DataFrame(rows, columns=names)


def answers(estimates: pd.DataFrame, application: str, draws: int) -> dict[Method, np.ndarray]:
    """Log evidence, or log Bayes factor B21 where there are two models, of every replicate: [replicate].

    Failures, NaN or infinite, are among them; replicates that only one of the models has are not.

    Raises:
        ValueError: nothing of that kind has been run.
    """
    table = estimates[(estimates["application"] == application) & (estimates["draws"] == draws)].fillna({"rule": ""})
    found = {}
    for method in METHODS:
        estimator, degree, rule = method
        rows = table[(table["estimator"] == estimator) & (table["degree"] == degree) & (table["rule"] == rule)]
        models = range(1, 1 + len(APPLICATIONS[application].models))
        series = [rows[rows["model"] == model].set_index("replicate")["log_evidence"] for model in models]
        values = pd.concat(series, axis=1, join="inner").to_numpy(dtype=float)  # [replicate, model]
        if len(values):
            found[method] = values[:, -1] - (values[:, 0] if len(models) == 2 else 0.0)
    if not found:
        raise ValueError(f"no replicate of {application!r} with {draws} draws is complete: both models are needed.")
    return found


def pinned(workers: int) -> Executor:
    """Start processes with one core each: two that share their threads take longer than one."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    for worker in range(workers):
        queue.put(cores[worker % len(cores)] if cores else None)
    return ProcessPoolExecutor(workers, mp_context=context, initializer=_begin_worker, initargs=(queue,))


def _begin_worker(cores: Any) -> None:
    # diffrax's checks of its own input call back from XLA, and programs that do so are not cached.
    os.environ.setdefault("EQX_ON_ERROR", "off")
    core = cores.get()
    if core is not None:
        os.sched_setaffinity(0, {core})
