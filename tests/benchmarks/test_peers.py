"""The benchmark against other packages: what all peers are given, our own peers, the figures, and a small run of it."""

from __future__ import annotations

import argparse
import ast
import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, special, stats

import thermint
from benchmarks import problems
from benchmarks.peers import __main__ as command
from benchmarks.peers import check_bridge, environments, laplace, page
from benchmarks.peers.bridge import bridge
from benchmarks.peers.methods import METHODS, Method
from benchmarks.peers.profile import PHASES, Phases
from benchmarks.peers.scores import Row, failures, reach, read, score
from benchmarks.peers.tasks import (
    FLOOR,
    TASKS,
    batch_log_likelihood_of,
    batch_quantile_of,
    log_likelihood_of,
    quantile_of,
)

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", TASKS)
def test_quantiles_make_the_prior_uniform(name):
    """The density of theta = quantile(u) for uniform u is one over the Jacobian's determinant."""
    task = TASKS[name]()

    def log_density(cube: jax.Array) -> jax.Array:
        return task.model.log_prior(task.quantile(cube)) + jnp.linalg.slogdet(jax.jacfwd(task.quantile)(cube))[1]

    cube = np.random.default_rng(0).random((100, task.dimension))
    cube[0], cube[1] = 1e-6, 1 - 1e-6
    np.testing.assert_allclose(jax.jit(jax.vmap(log_density))(cube), 0, atol=1e-8)


@pytest.mark.parametrize("name", ["radiata-1", "schools", "goodwin-3", "eggbox"])
def test_quantiles_are_those_of_prior_draws(name):
    task = TASKS[name]()
    keys = jax.random.split(jax.random.key(1), 2000)
    drawn = np.asarray(jax.jit(jax.vmap(task.model.sample_prior))(keys))
    mapped = batch_quantile_of(task)(np.random.default_rng(2).random((2000, task.dimension)))
    for one, other in zip(drawn.T, mapped.T, strict=True):
        assert stats.ks_2samp(one, other).pvalue > 1e-4


@pytest.mark.parametrize("name", TASKS)
def test_corners_of_the_cube_are_finite(name):
    task = TASKS[name]()
    corners = batch_quantile_of(task)(np.outer([0.0, 1.0], np.ones(task.dimension)))
    assert np.all(np.isfinite(corners))
    assert np.all(corners[0] < corners[1])


def test_every_task_has_a_title():
    assert list(page.TITLES) == list(TASKS)


def test_batches_of_any_size_are_those_of_single_points():
    task = TASKS["radiata-1"]()
    cube = np.random.default_rng(0).random((1030, 3))
    theta = batch_quantile_of(task)(cube)
    np.testing.assert_allclose(theta[7], quantile_of(task)(cube[7]), rtol=1e-12)
    batched = batch_log_likelihood_of(task)
    np.testing.assert_allclose(batched(theta)[[3, 1029]], [log_likelihood_of(task)(theta[i]) for i in (3, 1029)])
    for size in (1, 3, 1024):
        np.testing.assert_allclose(batched(theta[:size]), batched(theta)[:size], rtol=1e-12)


def test_impossible_points_have_the_floor():
    task = TASKS["radiata-1"]()
    model = thermint.Model(lambda theta: jnp.log(theta[0]), task.model.log_prior, task.model.sample_prior)
    strange = task._replace(model=model)
    points = np.array([[-1.0], [0.0], [1.0]])  # NaN, -inf and 0
    np.testing.assert_array_equal(batch_log_likelihood_of(strange)(points), [FLOOR, FLOOR, 0.0])
    assert [log_likelihood_of(strange, floor=-5.0)(point) for point in points] == [-5.0, -5.0, 0.0]


def test_eggbox_truth_is_the_integral():
    """Inner and outer adaptive quadrature, on the quarter of a period that symmetry leaves."""

    def inner(x: float) -> float:
        return integrate.quad(lambda y: math.exp((2 + math.cos(x) * math.cos(y)) ** 5 - 243), 0, math.pi, epsrel=1e-10)[
            0
        ]

    total = integrate.quad(inner, 0, math.pi, epsrel=1e-9, points=[0.05, math.pi - 0.05])[0]
    assert abs(math.log(total / math.pi**2) + 243 - problems.eggbox().log_evidence) < 1e-6


def test_needle_truth_is_the_integral_in_one_and_two_dimensions():
    # Fine steps about the needle, wide ones elsewhere.
    grid = np.unique(np.concatenate([np.linspace(-40, 40, 1601), np.linspace(-0.6, 1.1, 681)]))
    for d in (1, 2):
        model = problems.needle(d).model
        theta = jnp.stack(jnp.meshgrid(*[jnp.asarray(grid)] * d), axis=-1).reshape(-1, d)
        log_density = jax.jit(jax.vmap(lambda x, m=model: m.log_likelihood(x) + m.log_prior(x)))(theta)
        density = np.exp(np.asarray(log_density)).reshape([len(grid)] * d)
        for _ in range(d):
            density = integrate.trapezoid(density, grid, axis=-1)
        np.testing.assert_allclose(np.log(density), problems.needle(d).log_evidence, atol=1e-4)


def test_needle_has_most_of_the_evidence():
    broad = stats.multivariate_normal(np.zeros(5), 26 * np.eye(5)).logpdf(np.zeros(5)) + np.log(0.1)
    assert problems.needle().log_evidence - broad > np.log(9)


def test_laplace_importance_sampling_is_right_within_its_error():
    task = TASKS["radiata-1"]()
    run = laplace.prepare(task)
    answers = [run(seed, 1.0) for seed in range(10)]
    z = [(answer.log_evidence - task.log_evidence) / answer.error for answer in answers]
    assert all(1e-3 < answer.error < 0.02 for answer in answers)
    assert np.max(np.abs(z)) < 4
    assert np.sqrt(np.mean(np.square(z))) > 0.4
    assert run(0, 0.5).evaluations < answers[0].evaluations


def test_laplace_importance_sampling_is_exact_for_a_normal_posterior():
    task = TASKS["linear-20"]()
    answer = laplace.prepare(task)(0, 0.1)
    assert abs(answer.log_evidence - task.log_evidence) < 1e-8
    assert answer.error < 1e-8


def test_laplace_refuses_where_there_is_no_maximum():
    with pytest.raises(RuntimeError, match="positive definite"):
        laplace.laplace(lambda x: (-x @ x / 2, -x), lambda x: -np.eye(2), starts=np.zeros((1, 2)), scale=np.ones(2))


def test_bridge_is_right_within_its_error():
    """Logarithms of Gamma(3) variables, two of them, with a constant of 7."""

    def density(theta: np.ndarray) -> np.ndarray:
        return np.log(7) + np.sum(3 * theta - np.exp(theta) - special.gammaln(3), axis=1)

    found = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        found.append(bridge(np.log(rng.gamma(3, size=(4, 500, 2))), density, rng))
    value, error = np.transpose(found)
    assert np.max(np.abs(value - np.log(7)) / error) < 4
    assert 0.6 < np.std(value) / np.mean(error) < 1.6


def test_bridge_knows_correlated_draws():
    """Every draw four times: the error is about twice as large."""
    rng = np.random.default_rng(0)
    draws = np.log(rng.gamma(3, size=(4, 1000, 1)))

    def density(theta: np.ndarray) -> np.ndarray:
        return np.sum(3 * theta - np.exp(theta), axis=1)

    plain = bridge(draws, density, np.random.default_rng(1))[1]
    repeated = bridge(np.repeat(draws[:, :250], 4, axis=1), density, np.random.default_rng(1))[1]
    assert 1.2 < repeated / plain < 2.5


def row(method: str, seed: int, off: float, cpu: float, effort: float = 1.0, **other: object) -> Row:
    return {
        "method": method, "task": "pima-1", "effort": effort, "seed": seed, "compiled": seed == 0,
        "log_evidence": -10 + off, "truth": -10.0,
        "error": 0.02, "evaluations": 100, "cpu_seconds": cpu, "compile_seconds": 3.0, "import_seconds": 1.0,
        "memory": 100.0, "settings": "as usual", "version": "1", **other,
    }  # fmt: skip


ROWS = [
    row("thermint", 0, 0.001, 12.0),
    row("thermint", 1, -0.001, 2.0),
    row("thermint", 2, 0.001, 2.0),
    row("dynesty", 0, 0.02, 9.0, error=None),
    row("dynesty", 1, -0.02, 4.0, error=None),
    {"method": "dynesty", "task": "pima-1", "effort": 1.0, "seed": 2, "failed": "ValueError: no"},
    row("dynesty", 0, 0.01, 25.0, effort=4.0, error=0.01),
    row("laplace", 0, 0.1, 3.5),
]


def test_scores_of_made_up_rows():
    ours, dynesty, longer, least = score(ROWS)
    assert (ours.replicates, ours.rmse, ours.run, ours.compile) == (3, pytest.approx(0.001), 2.0, 10.0)
    assert ours.calibration == pytest.approx(20)
    assert (dynesty.replicates, dynesty.failures, dynesty.rmse, dynesty.run) == (2, 1, pytest.approx(0.02), 4.0)
    assert math.isnan(dynesty.calibration)
    assert (longer.run, longer.compile) == (22.0, 3.0)  # one replicate: JAX says what it compiled for
    assert (least.run, least.compile) == (0.5, 3.0)
    assert [failed["failed"] for failed in failures(ROWS)] == ["ValueError: no"]


def test_seconds_to_an_accuracy():
    ours, dynesty, longer, least = score(ROWS)
    assert ours.seconds(0.01, compiling=True) == 12  # not less than the run that was made
    assert ours.seconds(0.0005, compiling=False) == pytest.approx(8)
    assert dynesty.seconds(0.01, compiling=True) == pytest.approx(5 + 4 * 4)
    assert dynesty.rmse_within(2.0) == pytest.approx(0.02 * math.sqrt(2))
    best = reach([dynesty, longer], 0.01, compiling=True)
    assert best is not None
    assert (best.seconds, best.measured) == (pytest.approx(21), False)
    measured = reach([longer], 0.01, compiling=True)
    assert measured is not None
    assert (measured.seconds, measured.measured) == (pytest.approx(25), True)
    assert least.seconds(0.001, compiling=False) == pytest.approx(0.5 * 1e4)
    assert reach([], 0.01, compiling=True) is None


def test_errors_of_few_runs_may_be_small_by_luck():
    lucky = [row("nautilus", seed, 1e-5, 200.0) for seed in range(3)]
    assert score(lucky[:1])[0].rmse == 0.02  # as reported
    assert score(lucky)[0].rmse == pytest.approx(1e-5)
    assert score([row("blackjax", 0, 1e-5, 200.0, error=None)])[0].rmse == pytest.approx(1e-5)  # it reports none


def test_no_length_averages_out_what_is_missed():
    (missed,) = score([row("laplace", 0, 0.3, 4.5, error=0.01)])
    assert missed.biased
    assert reach([missed], 0.1, compiling=True) is None
    assert missed.seconds(0.5, compiling=True) == pytest.approx(4.5)  # the run that was made is that accurate
    assert missed.rmse_within(100 * missed.run) == pytest.approx(0.3)
    assert missed.rmse_within(missed.run / 100) == pytest.approx(3)
    (noisy,) = score([row("laplace", 0, 0.3, 4.5, error=0.1)])
    assert not noisy.biased
    assert noisy.rmse_within(100 * noisy.run) == pytest.approx(0.03)


def test_page_says_where_thermint_does_not_get(tmp_path):
    rows = [row("thermint", 0, 1.0, 5.0), row("dynesty", 0, 0.02, 8.0)]
    page.write(rows, tmp_path / "benchmarks.md", "python -m benchmarks.peers", 600)
    text = (tmp_path / "benchmarks.md").read_text()
    assert "dynesty takes ~23 s, thermint does not get there" in text
    assert "ahead of every package on 0 of 1 problems, and of Laplace importance sampling on 0" in text
    assert "it reports 0.02 where its error is 1" in text


def test_page_keeps_the_rest_and_names_the_losses(tmp_path):
    file = tmp_path / "benchmarks.md"
    file.write_text(f"# Benchmarks\n\nBefore.\n\n{page.BEGIN}\nold\n{page.END}\n\nAfter.\n")
    faster = [*ROWS, row("ultranest", 0, 1e-5, 3.1, error=1e-5)]
    for rows in (ROWS, faster):
        page.write(rows, file, "python -m benchmarks.peers", 600)
    text = file.read_text()
    assert text.startswith("# Benchmarks\n\nBefore.\n\n<!--")
    assert text.endswith("-->\n\nAfter.\n")
    assert "\nold\n" not in text
    assert text.count("## thermint and its peers") == 1
    assert "UltraNest takes 3.1 s, thermint 12 s" in text
    assert "it is 0.05 to 0.05 times as fast as the best package, and 100 times or more on 0" in text
    assert "dynesty, effort 1: ValueError: no" in text
    assert (tmp_path / "peers.png").stat().st_size > 1000


def test_a_clock_that_tells_more_than_the_cpu_seconds_is_not_believed():
    alone = row("dynesty", 0, 0.0, 10.0, compile_seconds=4.0)
    busy = row("dynesty", 0, 0.0, 10.0, compile_seconds=12.0)
    assert [(one.run, one.compile) for (one,) in map(score, ([alone], [busy]))] == [(6.0, 4.0), (10.0, 0.0)]


def test_what_has_no_hope_is_not_tried():
    method = METHODS["dynesty"]
    job = command.Job("dynesty", "pima-1", method.efforts[-1])
    first = {"method": "dynesty", "task": "pima-1", "effort": method.efforts[0]}
    slow = {**first, "cpu_seconds": 500.0}
    assert command._reason_not_to(job, [], 1000) is None
    assert command._reason_not_to(job, [slow], 1e6) is None
    assert "would take about" in str(command._reason_not_to(job, [slow], 1000))
    assert "it failed" in str(command._reason_not_to(job, [{**first, "failed": "no"}], 1000))


def test_what_took_too_long_with_fewer_parameters_is_not_tried_with_more():
    few = {"method": "dynesty", "task": "linear-20", "effort": 1.0, "failed": "one run took long", "limit": 300.0}
    many = command.Job("dynesty", "logistic-50", 1.0)
    assert command._reason_not_to(many, [few], 200.0) == (
        "not tried: with linear regression, d = 20, one run took long"
    )
    assert command._reason_not_to(many, [row("dynesty", 0, 0.0, 1.0, task="linear-20"), few], 200.0) is None
    assert command._reason_not_to(many, [few], 400.0) is None  # there is more time now
    slow = row("dynesty", 0, 0.0, 250.0, task="linear-20")
    assert "d = 20, one run took 250 CPU seconds" in str(command._reason_not_to(many, [few, slow], 200.0))
    assert command._reason_not_to(many, [{**few, "method": "ultranest"}], 200.0) is None
    assert command._reason_not_to(command.Job("dynesty", "pima-1", 1.0), [few], 200.0) is None


def test_what_is_not_tried_is_said_and_tried_again_with_more_time(tmp_path):
    output = tmp_path / "rows.jsonl"
    options = argparse.Namespace(
        methods=["dynesty"], tasks=["linear-50"], replicates=4, limit=200.0, output=output, cores=[0]
    )
    few = {"method": "dynesty", "task": "linear-20", "effort": 1.0, "failed": "too long", "limit": 200.0}
    command._append(output, [json.dumps(few)])
    (job,) = command._jobs(options, 0)
    command._run_all([job], {"peers": "/no/such/interpreter"}, options)
    assert "not tried" in read(output)[-1]["failed"]
    assert not list(command._jobs(options, 0))
    options.limit = 300.0
    assert list(command._jobs(options, 0)) == [job]


def test_replicates_that_there_was_no_time_for_are_added(tmp_path):
    options = argparse.Namespace(
        methods=["dynesty"], tasks=["pima-1"], replicates=4, seconds=100.0, limit=200.0, output=tmp_path / "rows.jsonl"
    )
    assert list(command._jobs(options, 0)) == [command.Job("dynesty", "pima-1", 1.0)]
    command._append(options.output, [json.dumps(row("dynesty", i, 0.0, 1.0, cpu_seconds=40.0)) for i in range(2)])
    assert list(command._jobs(options, 0)) == [command.Job("dynesty", "pima-1", 1.0, first=2)]
    command._append(options.output, [json.dumps(row("dynesty", 2, 0.0, 1.0, cpu_seconds=40.0))])
    assert not list(command._jobs(options, 0))  # its seconds are over
    options.seconds, options.replicates = 1000.0, 3
    assert not list(command._jobs(options, 0))


def test_a_seed_that_fails_does_not_end_the_others(tmp_path):
    options = argparse.Namespace(
        methods=["dynesty"], tasks=["pima-1"], replicates=4, seconds=100.0, limit=200.0, output=tmp_path / "rows.jsonl"
    )
    about = {"method": "dynesty", "task": "pima-1", "effort": 1.0}
    command._append(options.output, [json.dumps(about | {"seed": 0, "failed": "the answer was nan"})])
    assert list(command._jobs(options, 0)) == [command.Job("dynesty", "pima-1", 1.0, first=1)]
    command._append(options.output, [json.dumps(about | {"failed": "the process ended with -9"})])
    assert not list(command._jobs(options, 0))


def test_replicates_of_several_processes_show_several_compilations(tmp_path, monkeypatch):
    output = tmp_path / "rows.jsonl"
    monkeypatch.setattr(command, "_interpreter", lambda _: sys.executable)
    monkeypatch.setattr(subprocess, "run", _pretend)
    monkeypatch.setattr(sys, "argv", ["", "--methods", "dynesty", "--tasks", "pima-1", "--efforts", "1", "--cores", "0",
                                      f"--output={output}", f"--page={tmp_path / 'page.md'}"])  # fmt: skip
    command.main()
    assert [(one["seed"], one["compiled"]) for one in read(output)] == [(i, i in (0, 4, 8)) for i in range(10)]


def _pretend(arguments: list[str], **_: object) -> subprocess.CompletedProcess:
    """Pretend to be a worker, which takes a second for a replicate and five for the first."""
    options = dict(argument[2:].split("=") for argument in arguments if "=" in argument)
    first, number = int(options["first"]), int(options["replicates"])
    rows = [
        row("dynesty", seed, 0.0, 5.0 if seed == first else 1.0, compiled=seed == first)
        for seed in range(first, first + number)
    ]
    return subprocess.CompletedProcess(arguments, 0, "\n".join(map(json.dumps, rows)), "")


def test_what_took_too_long_is_tried_again_with_more_time(tmp_path):
    options = argparse.Namespace(
        methods=["dynesty"], tasks=["pima-1"], replicates=4, seconds=100.0, limit=200.0, output=tmp_path / "rows.jsonl"
    )
    slow = {"method": "dynesty", "task": "pima-1", "effort": 1.0, "failed": "too long", "limit": 200.0}
    command._append(options.output, [json.dumps(slow)])
    assert not list(command._jobs(options, 0))
    options.limit = 300.0
    assert list(command._jobs(options, 0)) == [command.Job("dynesty", "pima-1", 1.0)]
    assert failures([slow]) == [slow]
    assert not failures([slow, row("dynesty", 0, 0.0, 1.0)])


def test_a_job_ends_after_its_cpu_seconds():
    options = argparse.Namespace(seconds=1.0, limit=1.0, replicates=1)
    (line,) = command._work(command.Job("laplace", "pima-1", 1.0), sys.executable, 0, options)
    said = json.loads(line)
    assert said["failed"] == "one run took more than 1 CPU seconds"
    assert said["limit"] == 1.0


def test_a_job_that_is_ended_keeps_its_lines_and_says_so(monkeypatch):
    lines = [json.dumps(row("laplace", seed, 0.0, 1.0, cpu_seconds=40.0)) for seed in range(2)]
    ended = subprocess.CompletedProcess([], -signal.SIGXCPU, "\n".join([*lines, '{"method": "lap']), "")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: ended)
    options = argparse.Namespace(seconds=100.0, limit=200.0, replicates=10)
    *kept, last = command._work(command.Job("laplace", "pima-1", 1.0), sys.executable, 0, options)
    assert kept == lines
    assert json.loads(last)["failed"] == "one run took more than 120 CPU seconds"
    assert score(map(json.loads, [*kept, last]))[0].failures == 1


def test_what_a_method_cannot_do_is_said(monkeypatch):
    monkeypatch.setitem(METHODS, "laplace", Method("L", "laplace", cannot={"pima-1": "too hard"}))
    assert command._reason_not_to(command.Job("laplace", "pima-1", 1.0), [], 1000) == "too hard"


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_its_module(name):
    source = (ROOT / "benchmarks" / "peers" / f"{METHODS[name].module}.py").read_text()
    functions = [node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    assert "prepare" in functions


def test_environments_have_what_their_methods_require():
    assert environments.python_of("main") == Path(sys.executable)
    for method in METHODS.values():
        assert set(method.requirements) <= set(environments.requirements(method.environment))


def test_phases_are_timed_once():
    phases = Phases()

    class Owner:
        def run(self) -> int:
            return self.add() + self.add()

        def add(self) -> int:
            return sum(range(300_000))

    plain = Owner().run()
    phases.wrap(Owner, "run", "draws")
    phases.wrap(Owner, "add", "Gram")
    assert Owner().run() == plain
    assert phases.seconds["Gram"] > phases.seconds["draws"] >= 0


@pytest.mark.slow
def test_profile_of_a_problem():
    made = run_module("profile", "radiata-1", "--draws=100")
    assert made.returncode == 0, made.stderr
    (head, row) = (line.split() for line in made.stdout.splitlines()[-2:])
    assert row[0] == "radiata-1"
    seconds = dict(zip(head[1:], map(float, row[1:]), strict=True))
    assert seconds["compile"] > 0
    assert 0 < seconds["floor"] < sum(seconds[phase] for phase in PHASES)


def test_check_of_the_bridge_says_what_is_missing(monkeypatch, capsys):
    monkeypatch.setattr(check_bridge.shutil, "which", lambda name: None)
    monkeypatch.setattr(sys, "argv", ["check_bridge"])
    check_bridge.main()
    assert "r-cran-bridgesampling" in capsys.readouterr().out


def test_a_worker_says_why_it_failed():
    made = run_module("worker", "laplace", "no-such-task")
    assert '"failed": "KeyError' in made.stdout


@pytest.mark.slow
def test_quick_run(tmp_path):
    made = run_module("", "--quick", f"--page={tmp_path / 'benchmarks.md'}", f"--output={tmp_path / 'peers.jsonl'}")
    assert made.returncode == 0, made.stderr
    assert "Laplace importance sampling" in made.stdout
    text = (tmp_path / "benchmarks.md").read_text()
    assert "| thermint | 1 | 2 |" in text
    assert (tmp_path / "peers.jsonl").read_text().count("\n") == 4
    again = run_module("", "--quick", f"--page={tmp_path / 'benchmarks.md'}", f"--output={tmp_path / 'peers.jsonl'}")
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "peers.jsonl").read_text().count("\n") == 4  # nothing is run twice


def run_module(name: str, *options: str) -> subprocess.CompletedProcess[str]:
    module = f"benchmarks.peers.{name}".rstrip(".")
    return subprocess.run(
        [sys.executable, "-m", module, *options], cwd=ROOT, capture_output=True, text=True, env=dict(os.environ)
    )
