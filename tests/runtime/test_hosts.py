"""One run over two processes: the bits of one process, and an end in bounded time whatever happens to either."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from on_hosts import FITTED, LONG, OPTIONS
from targets import SKEWED_2

import thermint
from thermint.runtime import hosts, store

MOST_SECONDS = 240.0  # of any pair of processes, on a busy machine
SOON = 60.0  # seconds in which a process ends whose peer has


class Ended(NamedTuple):
    """What became of a process."""

    code: int
    said: list[dict[str, Any]]
    errors: str
    at: float  # time, in seconds


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(task: str, folder: Path, processes: int = 2, begun: int = 2) -> list[Ended]:
    """Run a task in so many processes, and wait until all have ended; none outlives this."""
    port = str(free_port())
    child = Path(__file__).parents[1] / "on_hosts.py"
    commands = [[sys.executable, str(child), task, str(i), str(processes), port, str(folder)] for i in range(begun)]
    outputs = [(folder / f"{task}-{i}.out", folder / f"{task}-{i}.err") for i in range(begun)]
    running = []
    for command, (out, err) in zip(commands, outputs, strict=True):
        with out.open("w") as stdout, err.open("w") as stderr:
            running.append(subprocess.Popen(command, stdout=stdout, stderr=stderr, start_new_session=True))
    try:
        ends = wait(running)
    finally:
        for process in running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return [
        Ended(process.returncode, lines(out.read_text()), err.read_text(), end)
        for process, (out, err), end in zip(running, outputs, ends, strict=True)
    ]


def wait(running: list[subprocess.Popen]) -> list[float]:
    """Return when each process ended."""
    begin = time.monotonic()
    ends: dict[int, float] = {}
    while len(ends) < len(running):
        for i, process in enumerate(running):
            if i not in ends and process.poll() is not None:
                ends[i] = time.monotonic()
        waited = time.monotonic() - begin
        assert waited < MOST_SECONDS, f"processes {set(range(len(running))) - set(ends)} have not ended"
        time.sleep(0.05)
    return [ends[i] for i in range(len(running))]


def lines(text: str) -> list[dict[str, Any]]:
    """Read what the tasks print, and leave out what JAX does."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def alone(**options: Any) -> list[float]:
    """Return what one process finds."""
    result = thermint.evidence(SKEWED_2.model, **options, progress=False)
    return [result.log_evidence, result.standard_error, result.evaluations]


@pytest.fixture(scope="module")
def expected() -> list[float]:
    return alone(**LONG)


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Ended]]:
    folder = tmp_path_factory.mktemp("together")
    ended = start("together", folder)
    for process in ended:
        assert process.code == 0, process.errors
        assert len(process.said) == 6
    return folder, ended


def test_two_processes_have_the_bits_of_one(together: tuple[Path, list[Ended]]) -> None:
    first, second = together[1]
    for number, options in enumerate((OPTIONS, FITTED)):
        assert first.said[number] == second.said[number]
        assert first.said[number]["devices"] == 2
        assert first.said[number]["numbers"] == alone(**options)


def test_only_the_first_process_reports_and_writes(together: tuple[Path, list[Ended]]) -> None:
    folder, (first, second) = together
    assert "thermint: round 1: log evidence" in first.errors
    assert "thermint:" not in second.errors
    assert store.read(folder / "run-0")["stages"]
    assert not (folder / "run-1").exists()


def test_populations_that_cannot_be_shared_are_refused(together: tuple[Path, list[Ended]]) -> None:
    for process in together[1]:
        said = process.said[2]["error"]
        assert "populations = 3 cannot be shared by 2 processes" in said
        assert "give populations=4" in said


def test_processes_that_differ_are_refused(together: tuple[Path, list[Ended]]) -> None:
    first, second = together[1]
    assert "must all be given the same model and the same options" in first.said[3]["error"]
    assert "settings, seed was 0 and is 1" in second.said[3]["error"]


def test_what_only_the_first_process_can_see_is_refused_in_both(together: tuple[Path, list[Ended]]) -> None:
    first, second = together[1]
    assert "Is a directory" in first.said[4]["error"]
    assert "Is a directory" in second.said[4]["error"]


def test_ctrl_c_in_one_process_ends_the_run_in_both(together: tuple[Path, list[Ended]]) -> None:
    first, second = together[1]
    assert first.said[5] == second.said[5]
    assert "stopped by Ctrl-C in round" in first.said[5]["warnings"][0]


def test_a_killed_process_ends_the_run_and_the_checkpoint_goes_on(tmp_path: Path, expected: list[float]) -> None:
    survivor, killed = start("killed", tmp_path)
    assert killed.code == -signal.SIGKILL
    assert survivor.code != 0
    assert survivor.at - killed.at < SOON
    assert "LostPeerError: process 0 of 2 cannot go on" in survivor.errors
    assert f"Run again from {tmp_path / 'run'}, on any number of processes" in survivor.errors
    assert store.read(tmp_path / "run")["stages"]
    (tmp_path / "copy").write_bytes((tmp_path / "run").read_bytes())
    assert alone(**LONG, checkpoint=tmp_path / "copy") == expected

    first, second = start("resumed", tmp_path)
    assert first.said[0]["numbers"] == second.said[0]["numbers"] == expected
    assert first.code == -signal.SIGKILL  # the one that all others talk to
    assert second.code != 0
    assert second.at - first.at < SOON
    assert "LostPeerError" in second.errors or "JAX distributed service" in second.errors  # who sees it first


def test_an_error_in_one_process_alone_ends_the_run(tmp_path: Path) -> None:
    first, second = start("failing", tmp_path)
    assert first.code != 0
    assert second.code != 0
    assert "MemoryError: in one process alone" in second.errors


def test_a_process_that_never_comes_is_not_waited_for(tmp_path: Path) -> None:
    (lonely,) = start("lonely", tmp_path, begun=1)
    assert lonely.code != 0
    assert "DEADLINE_EXCEEDED" in lonely.errors


def test_a_failure_of_this_process_is_not_blamed_on_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts.jax, "process_count", lambda: 2)
    with pytest.raises(ValueError, match="degree"), hosts.peers(None):
        raise ValueError("degree = -1")
    with pytest.raises(hosts.LostPeerError, match="Run again with a checkpoint"), hosts.peers(None):
        raise ValueError("UNKNOWN: Gloo all-reduce failed")
