"""Runs that are killed, interrupted or out of disk go on as if nothing had happened; damaged files are refused."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from targets import SKEWED_2, normal

import thermint
from benchmarks.kills import same, survive
from thermint import Evidence
from thermint.inference import checkpoint
from thermint.runtime import journal, store
from thermint.runtime.journal import ChangedError, Journal
from thermint.runtime.progress import Progress
from thermint.runtime.session import Session
from thermint.runtime.store import DamagedError

OPTIONS: dict[str, Any] = {"draws": 100, "populations": 2, "seed": 3, "progress": False}
ON_THE_PRIOR_PATH = OPTIONS | {"reference": "prior", "ladder": 21, "target_error": 2e-4}
ON_THE_FITTED_PATH = OPTIONS | {"reference": "fitted", "target_error": 5e-4, "seed": 7}  # which takes three rounds
BOTH = pytest.mark.parametrize("options", [ON_THE_PRIOR_PATH, ON_THE_FITTED_PATH], ids=["prior", "fitted"])


@pytest.fixture(scope="module")
def expected() -> dict[str, Evidence]:
    """Runs that nothing interrupts."""
    return {
        options["reference"]: thermint.evidence(SKEWED_2.model, **options)
        for options in (ON_THE_PRIOR_PATH, ON_THE_FITTED_PATH)
    }


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write after every step."""
    monkeypatch.setattr(journal, "SAVE_INTERVAL", 0.0)


class Stopped(Exception):  # noqa: N818
    """Stands for the end of a process."""


@BOTH
@pytest.mark.usefixtures("often")
def test_wherever_it_stops_it_goes_on_to_the_same_bits(
    options: dict[str, Any], expected: dict[str, Evidence], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "run"
    assert expected[options["reference"]].settings["rounds"] > 1
    write, written = Journal.write, 0

    def write_and_stop(self: Journal) -> None:
        nonlocal written
        write(self)
        written += 1
        if written in stops:
            raise Stopped

    monkeypatch.setattr(Journal, "write", write_and_stop)
    stops = {2, 5, 14, 27, 44}  # writes after which the process ends
    stopped = 0
    while True:
        try:
            result = thermint.evidence(SKEWED_2.model, **options, checkpoint=file)
        except Stopped:
            stopped += 1
        else:
            break
    assert stopped == len(stops)
    assert same(result, expected[options["reference"]])
    assert result.seconds > 0
    begin = time.perf_counter()
    again = thermint.evidence(SKEWED_2.model, **options, checkpoint=file)
    assert same(again, result)
    assert again.seconds == result.seconds  # nothing was left to do
    assert time.perf_counter() - begin < result.seconds


def test_killed_six_times_at_random_moments(tmp_path: Path) -> None:
    """``python -m benchmarks.kills`` does so a hundred times."""
    _, sizes = survive(tmp_path, kills=6, seed=0)
    assert len(set(sizes)) > 1  # it was killed in several places: how many, depends on how busy the machine is


# --- What may change, and what may not ---


@BOTH
def test_a_smaller_target_goes_on_from_the_end(
    options: dict[str, Any], expected: dict[str, Evidence], tmp_path: Path
) -> None:
    file = tmp_path / "run"
    first = thermint.evidence(SKEWED_2.model, **options | {"target_error": None}, checkpoint=file)
    assert first.settings["rounds"] == 1
    longer = thermint.evidence(SKEWED_2.model, **options, checkpoint=file)
    wanted = expected[options["reference"]]
    assert longer.standard_error <= options["target_error"]
    assert longer.settings["rounds"] > 1
    assert longer.evaluations > first.evaluations
    if options["reference"] == "prior":  # where the ladder is given, it is the same as if asked for at once
        assert same(longer, wanted)


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "seed": ({"seed": 4}, "settings, seed was 3 and is 4"),
    "draws": ({"draws": 200}, "settings, draws was 100 and is 200"),
    "kernel": ({"kernel": thermint.kernels.random_walk}, "settings, kernel was None and is 'random_walk'"),
    "ladder": ({"ladder": 6}, "settings, ladder was"),
    "keep_draws": ({"keep_draws": True}, "settings, keep_draws was False and is True"),
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("checkpoint") / "run"
    thermint.evidence(SKEWED_2.model, **OPTIONS | {"reference": "prior", "ladder": 5}, checkpoint=file)
    return file


@pytest.mark.parametrize("name", CHANGES)
def test_changed_settings_are_refused_by_name(name: str, finished: Path) -> None:
    changed, said = CHANGES[name]
    before = finished.read_bytes()
    with pytest.raises(ChangedError, match=said):
        thermint.evidence(
            SKEWED_2.model, **OPTIONS | {"reference": "prior", "ladder": 5} | changed, checkpoint=finished
        )
    assert finished.read_bytes() == before


def test_another_model_or_version_is_refused(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = OPTIONS | {"reference": "prior", "ladder": 5, "checkpoint": finished}
    with pytest.raises(ChangedError, match="model, log_likelihood at two draws of the prior, 0 was"):
        thermint.evidence(normal(np.eye(2), [1.0, 0.0], 1.0, np.eye(2)).model, **options)
    monkeypatch.setattr(checkpoint, "version", lambda package: "99.0")
    with pytest.raises(ChangedError, match=r"thermint was '.*' and is '99\.0'"):
        thermint.evidence(SKEWED_2.model, **options)


def test_where_it_cannot_be_written_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="could not be written"):
        thermint.evidence(SKEWED_2.model, **OPTIONS, checkpoint=tmp_path / "no" / "such" / "folder")


# --- A full disk ---


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk with room for a small checkpoint but not for a larger one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=160k", "tmpfs", str(disk)]
    if os.geteuid() == 0 and subprocess.run(mount, capture_output=True, check=False).returncode == 0:
        yield disk
        subprocess.run(["umount", str(disk)], check=True)
        return
    # Without the right to make one: files may not be larger than that.
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (80 * 1024, before[1]))
    yield disk
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.usefixtures("often")
def test_a_full_disk_loses_nothing_that_is_saved(
    small_disk: Path, expected: dict[str, Evidence], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = small_disk / "run"
    result = thermint.evidence(SKEWED_2.model, **ON_THE_FITTED_PATH, checkpoint=file)
    assert "could not be written" in result.warnings[0]
    wanted = expected["fitted"]
    assert (result.log_evidence, result.evaluations) == (wanted.log_evidence, wanted.evaluations)
    saved = store.read(file)  # what was written while there was room
    assert saved["stages"] or saved["steps"]
    assert not list(small_disk.glob("*.part"))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(file.read_bytes())
    monkeypatch.undo()
    if os.path.ismount(small_disk):
        assert same(thermint.evidence(SKEWED_2.model, **ON_THE_FITTED_PATH, checkpoint=elsewhere), wanted)


# --- Ctrl-C ---


def interrupt_after(batches: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Press Ctrl-C after so many batches of draws."""
    seen = 0

    def drawn(self: Progress, *_: Any) -> None:
        nonlocal seen
        seen += 1
        if seen == batches:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Progress, "drawn", drawn)


@pytest.mark.parametrize("batches", [12, 30])
def test_ctrl_c_returns_the_answer_so_far(
    batches: int, expected: dict[str, Evidence], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    handler = signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patch:
        interrupt_after(batches, patch)
        result = thermint.evidence(SKEWED_2.model, **ON_THE_FITTED_PATH, checkpoint=tmp_path / "run")
    assert "stopped by Ctrl-C in round " + ("1, after 60 of 100" if batches == 12 else "2") in result.warnings[0]
    assert f"goes on from {tmp_path / 'run'}" in result.warnings[0]
    wanted = expected["fitted"]
    assert abs(result.log_evidence - wanted.log_evidence) < 5 * np.hypot(result.standard_error, wanted.standard_error)
    assert result.standard_error > wanted.standard_error
    assert signal.getsignal(signal.SIGINT) is handler
    assert same(thermint.evidence(SKEWED_2.model, **ON_THE_FITTED_PATH, checkpoint=tmp_path / "run"), wanted)


def test_ctrl_c_before_there_is_an_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with monkeypatch.context() as patch:
        interrupt_after(2, patch)
        with pytest.raises(KeyboardInterrupt, match=r"stopped before there was an answer. All that was done is in"):
            thermint.evidence(SKEWED_2.model, **ON_THE_FITTED_PATH, checkpoint=tmp_path / "run")
    assert store.read(tmp_path / "run")["stages"]["fitted draws"].drawn == 10


def test_the_second_ctrl_c_is_pythons_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn(self: Progress, *_: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Progress, "drawn", drawn)
    with pytest.raises(KeyboardInterrupt):
        thermint.evidence(SKEWED_2.model, **ON_THE_FITTED_PATH)


# --- Results, and damaged files ---


def test_results_come_back_from_files_as_they_were(expected: dict[str, Evidence], tmp_path: Path) -> None:
    for name, result in expected.items():
        result.save(tmp_path / name)
        back = Evidence.load(tmp_path / name)
        assert same(back, result)
        assert str(back) == str(result)
        assert back.as_dict() == result.as_dict()
        assert back.interval() == result.interval()
        assert back.rungs.equals(result.rungs)
        assert back.estimates.equals(result.estimates)


def test_draws_are_kept_if_asked_for(tmp_path: Path) -> None:
    options = OPTIONS | {"reference": "prior", "ladder": 5, "keep_draws": True}
    result = thermint.evidence(SKEWED_2.model, **options, checkpoint=tmp_path / "run")
    assert result.draws is not None
    assert result.draws.position.shape == (2, 100, 5, 2)
    stones = thermint.estimate(result.draws, method="stepping-stone").log_evidence
    assert stones == pytest.approx(result.estimates.log_evidence["forward"], abs=1e-9)
    again = thermint.evidence(SKEWED_2.model, **options, checkpoint=tmp_path / "run")
    assert again.draws is not None
    np.testing.assert_array_equal(again.draws.position, result.draws.position)


def test_more_draws_than_memory_are_refused(monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    options = OPTIONS | {"reference": "prior", "ladder": 5, "keep_draws": True}
    with pytest.raises(ValueError, match=r"keep_draws = True would take \d+\.\d GiB for 100000000 draws"):
        thermint.evidence(SKEWED_2.model, **options | {"draws": 100_000_000})
    thermint.evidence(SKEWED_2.model, **options | {"progress": None})
    assert "keep_draws takes 0.1 MiB" in capfd.readouterr().err


def mutated(whole: bytes, chance: random.Random) -> bytes:
    """Damage a file in one of several ways."""
    at, other = sorted(chance.randrange(len(whole) + 1) for _ in range(2))
    return chance.choice(
        [
            lambda: whole[:at],  # cut short
            lambda: whole[at:],
            lambda: whole[:at] + whole[other:],  # a part is missing
            lambda: whole[:at] + bytes(other - at) + whole[other:],  # or zero
            lambda: whole[:at] + bytes([chance.randrange(256)]) + whole[at + 1 :],  # one byte is wrong
            lambda: whole[:at] + chance.randbytes(20) + whole[at:],  # or some more
            lambda: whole + chance.randbytes(chance.randrange(1, 100)),
        ]
    )()


@pytest.mark.parametrize("kind", ["checkpoint", "result"])
def test_damaged_files_are_refused(
    kind: str, finished: Path, expected: dict[str, Evidence], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / kind
    if kind == "checkpoint":
        file.write_bytes(finished.read_bytes())
    else:
        expected["prior"].save(file)
    whole, chance = file.read_bytes(), random.Random(5)
    for _ in range(300):
        damaged = mutated(whole, chance)
        if damaged == whole:
            continue
        file.write_bytes(damaged)
        with pytest.raises(DamagedError, match=f"{kind} is damaged, cut short, or not a file"):
            Journal(file, {}) if kind == "checkpoint" else Evidence.load(file)


def with_checksum(content: bytes) -> bytes:
    import hashlib

    return content + store.MARK + hashlib.sha256(content).hexdigest().encode() + b"\n"


def test_files_made_up_to_look_right_do_no_harm(finished: Path, tmp_path: Path) -> None:
    """Whoever makes up a file can make up its checksum too; still nothing but a clear error comes of it."""
    whole = finished.read_bytes()
    content, chance = whole[: whole.index(store.MARK)], random.Random(6)
    file, kinds, read = tmp_path / "run", set(), 0
    for _ in range(400):
        file.write_bytes(with_checksum(mutated(content, chance)))
        try:
            Journal(file, {})
        except (DamagedError, ChangedError) as error:
            kinds.add(type(error))
        else:
            read += 1
    assert kinds == {DamagedError, ChangedError}  # of another run, where the damage left enough to see that
    assert read == 0


def of_format(whole: bytes, number: int) -> bytes:
    """Change a checkpoint into one of another format, whose classes this version does not have."""
    import io
    import json

    with np.load(io.BytesIO(whole[: whole.index(store.MARK)])) as file:
        arrays = dict(file)
    tree = json.loads(arrays.pop("tree").tobytes())
    assert tree["items"][0] == ["format", journal.FORMAT]
    tree["items"][0][1] = number
    text = json.dumps(tree).replace('"kind": "RoundResult"', '"kind": "Round"')
    assert '"kind": "Round"' in text
    packed = io.BytesIO()
    np.savez(packed, tree=np.frombuffer(text.encode(), dtype=np.uint8), **arrays)
    return with_checksum(packed.getvalue())


@pytest.mark.parametrize(("number", "said"), [(1, r"an earlier version .* \(format 1,"), (99, "a later version")])
def test_checkpoints_of_other_formats_are_refused_by_their_format(
    number: int, said: str, finished: Path, tmp_path: Path
) -> None:
    (tmp_path / "run").write_bytes(of_format(finished.read_bytes(), number))
    with pytest.raises(ChangedError, match=f"was written by {said}"):
        Journal(tmp_path / "run", {})
    (tmp_path / "run").write_bytes(of_format(finished.read_bytes(), journal.FORMAT))
    with pytest.raises(DamagedError, match="'Round'"):
        Journal(tmp_path / "run", {})


def test_only_registered_classes_are_stored(tmp_path: Path) -> None:
    class Evidence(NamedTuple):
        """Has the name of another."""

        value: float

    with pytest.raises(ValueError, match="has the same name"):
        store.storable(Evidence)
    store.write(tmp_path / "file", Evidence(1.0))
    assert store.read(tmp_path / "file") == (1.0,)  # a plain tuple


def test_files_are_read_where_only_thermint_is_imported(
    expected: dict[str, Evidence], finished: Path, tmp_path: Path
) -> None:
    expected["fitted"].save(tmp_path / "result")
    code = (
        "import sys, thermint; from pathlib import Path; from thermint.runtime.journal import contents;"
        "print(thermint.Evidence.load(sys.argv[1]).log_evidence); assert contents(Path(sys.argv[2]))['stages']"
    )
    ran = [sys.executable, "-c", code, str(tmp_path / "result"), str(finished)]
    assert float(subprocess.check_output(ran, text=True)) == expected["fitted"].log_evidence


# --- How often is written, and how long a step may be ---


class Clock:
    """Time that passes when told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)

    def spend(self, seconds: float) -> None:
        self.now += seconds


def test_it_is_written_twice_a_minute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clock, written = Clock(monkeypatch), []
    monkeypatch.setattr(store, "write", lambda path, value: written.append(clock.now))
    kept = Journal(tmp_path / "run", {})
    for _ in range(600):
        kept.step(lambda: clock.spend(1.0))
    assert 18 <= len(written) <= 20  # in ten minutes


def test_ctrl_c_waits_for_ten_seconds_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, session, steps = Clock(monkeypatch), Session(), []

    def iterate(number: int) -> None:
        clock.spend(number * 0.02 * 7)
        steps.append(number * 0.02 * 7)

    for _ in range(5):
        session.step(iterate, wanted=200 if len(steps) > 1 else 2, cost=7)
    assert all(9 < step <= 10 for step in steps[2:])


@pytest.mark.parametrize(("relative", "same"), [(1e-12, True), (1e-7, False)])
def test_rounding_is_no_other_model_and_other_data_are(relative: float, same: bool) -> None:
    old, new = ({"log_likelihood": {"0": -260.0 * factor}} for factor in (1.0, 1 + relative))
    assert (journal.difference(old, new) == "") is same


def test_nothing_in_a_file_is_run(tmp_path: Path) -> None:
    import io
    import pickle

    class Evil:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "run by the file",)

    packed = io.BytesIO()
    np.savez(packed, tree=np.array([Evil()], dtype=object))
    for content in (packed.getvalue(), pickle.dumps(Evil())):
        (tmp_path / "evil").write_bytes(with_checksum(content))
        with pytest.raises(DamagedError):
            Evidence.load(tmp_path / "evil")
    assert not (tmp_path / "run by the file").exists()
