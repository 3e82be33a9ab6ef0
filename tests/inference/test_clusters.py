"""Models and replicates on real processes: the answers of a serial run to the last bit, whatever dies or fails."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import mortal
import pandas as pd
import pytest
from targets import NORMAL

import thermint
from thermint import RunsFailedError
from thermint.paper import linear

# What a new process compiles soonest.
OPTIONS: dict[str, Any] = {
    "reference": "prior",
    "ladder": 11,
    "draws": 20,
    "populations": 2,
    "degree": 0,
    "kernel": thermint.kernels.random_walk,
}
LINEAR = partial(linear.model, 0)
ODD = "'odd': (RuntimeError: )?OddError: 1 is not 2"  # the exception itself if Dask, or tblib, helps pickle
ROOT = Path(__file__).parents[2]


def odd() -> None:
    mortal.odd()


def killed_once(folder: str) -> thermint.Model:
    mortal.wait_to_be_killed(folder)
    return linear.model(0)


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """Run here, one after the other."""
    return pd.DataFrame(thermint.compare({"one": LINEAR, "two": LINEAR}, **OPTIONS))


@pytest.fixture(scope="module")
def replicates() -> pd.DataFrame:
    return pd.DataFrame(thermint.replicate(LINEAR, 3, **OPTIONS))


@pytest.fixture(scope="module")
def pool(table: pd.DataFrame) -> Iterator[Executor]:  # which fills the compilation cache
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        yield executor


@pytest.fixture(scope="module")
def dask(table: pd.DataFrame) -> Iterator[Executor]:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address="127.0.0.1:0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client.get_executor()


@pytest.fixture(params=["pool", "dask"])
def executor(request: pytest.FixtureRequest) -> Executor:
    return request.getfixturevalue(request.param)


def same(a: pd.DataFrame, b: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(
        pd.DataFrame(a).drop(columns="seconds", errors="ignore"),
        pd.DataFrame(b).drop(columns="seconds", errors="ignore"),
        check_exact=True,
    )


def test_a_model_that_fails_is_named_and_the_others_results_are_intact(executor: Executor, table: pd.DataFrame) -> None:
    with pytest.raises(RunsFailedError, match="1 of 3 models failed") as caught:
        thermint.compare({"one": LINEAR, "odd": odd, "two": LINEAR}, executor=executor, **OPTIONS)
    assert re.search(ODD, str(caught.value))
    assert list(caught.value.results) == ["one", "two"]
    error = caught.value.errors["odd"]
    assert "raise OddError(1, 2)" in error.__notes__[0]
    assert error.__notes__[1] == "This happened with the model 'odd'."
    assert caught.value.__cause__ is error
    same(thermint.compare(caught.value.results), table)
    same(thermint.compare(caught.value.results | {"two": LINEAR}, executor=executor, **OPTIONS), table)


def test_replicates_do_not_depend_on_where_they_are_run(executor: Executor, replicates: pd.DataFrame) -> None:
    same(thermint.replicate(LINEAR, 3, executor=executor, **OPTIONS), replicates)


def test_what_cannot_be_read_in_a_worker_is_an_error_of_that_model(pool: Executor, monkeypatch: Any) -> None:
    """A notebook's functions are of this kind."""
    monkeypatch.setattr(mortal, "here_only", odd, raising=False)
    function = partial(linear.model, 0)
    monkeypatch.setattr(odd, "__module__", "mortal")
    monkeypatch.setattr(odd, "__qualname__", "here_only")
    with pytest.raises(RunsFailedError, match="Can't get attribute 'here_only'") as caught:
        thermint.compare({"fine": function, "notebook": mortal.here_only}, executor=pool, **OPTIONS)  # type: ignore[attr-defined]
    assert list(caught.value.results) == ["fine"]


def test_what_cannot_be_sent_fails_at_once(pool: Executor) -> None:
    with pytest.raises(TypeError, match="the model 'closure' cannot be sent to another process"):
        thermint.compare({"deadly": mortal.die, "closure": NORMAL.model}, executor=pool)
    with pytest.raises(TypeError, match="the replicate 0 cannot be sent to another process"):
        thermint.replicate(LINEAR, 2, executor=pool, kernel=lambda: None)


def test_dask_takes_closures_too(dask: Executor) -> None:
    number = 0
    table = thermint.compare({"closure": lambda: linear.model(number)}, executor=dask, **OPTIONS)
    same(table, thermint.compare({"closure": LINEAR}, **OPTIONS))


def test_a_worker_killed_mid_task_changes_nothing(executor: Executor, table: pd.DataFrame, tmp_path: Path) -> None:
    thread = mortal.kill_what_waits(tmp_path)
    models = {"one": partial(killed_once, str(tmp_path)), "two": LINEAR}
    same(thermint.compare(models, executor=executor, **OPTIONS), table)
    thread.join(10)
    assert not thread.is_alive()


def mpiexec() -> str | None:
    beside = Path(sys.executable).with_name("mpiexec")
    return str(beside) if beside.exists() else shutil.which("mpiexec")


@pytest.mark.skipif(mpiexec() is None, reason="no MPI here")
def test_mpi(table: pd.DataFrame) -> None:
    command = [
        str(mpiexec()),
        "-n",
        "3",
        sys.executable,
        "-m",
        "mpi4py.futures",
        str(Path(__file__).parents[1] / "on_mpi.py"),
    ]
    folders = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]  # of what `on_mpi` imports from here
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(folders)},
    )
    try:
        output, errors = process.communicate(timeout=180)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert process.returncode == 0, errors
    found = json.loads(output)
    assert found["results"] == table.loc[["one", "two"], "log_evidence"].to_dict()
    assert "1 of 3 models failed" in found["failed"]
    assert re.search(ODD, found["failed"])
    assert found["workers"] == 2


def test_the_guide_is_python() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "scale.md").read_text(), re.DOTALL)
    assert len(blocks) == 8
    for block in blocks:
        compile(block, "docs/scale.md", "exec")
