"""Calls on executors: what dead workers were doing is done again, a bounded number of times, and blamed fairly."""

import multiprocessing
import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import mortal
import pytest

from thermint.runtime.executors import require_spawned, spread
from thermint.runtime.tasks import Failed


def spawning(workers: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))


class Scripted(Executor):
    """Ends calls as it is told, one after the other; then as they end."""

    def __init__(self, *errors: BaseException | None) -> None:
        self.errors = list(errors)
        self.attempts: list[int] = []

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        self.attempts.append(arguments[-1])
        future: Future[Any] = Future()
        error = self.errors.pop(0) if self.errors else None
        if error is None:
            future.set_result(function(*arguments))
        else:
            future.set_exception(error)
        return future


class KilledWorker(Exception):  # noqa: N818  # as Dask calls it
    pass


SQUARES: dict[str, Any] = {str(n): (mortal.square, (n,)) for n in range(4)}


def test_calls_end_by_name() -> None:
    with ThreadPoolExecutor(2) as executor:
        results, errors = spread({**SQUARES, "odd": (mortal.odd, ())}, executor)
    assert results == {"0": (0, 1), "1": (1, 1), "2": (4, 1), "3": (9, 1)}
    assert str(errors["odd"]) == "1 is not 2"
    assert list(errors) == ["odd"]


def test_nothing_to_do() -> None:
    with spawning(1) as executor:
        assert spread({}, executor) == ({}, {})


@pytest.mark.parametrize("loss", [BrokenExecutor("gone"), KilledWorker("gone")])
def test_lost_calls_are_submitted_again_and_three_times_at_most(loss: Exception) -> None:
    executor = Scripted(loss, None, loss)
    assert spread({"a": SQUARES["3"], "b": SQUARES["2"]}, executor) == ({"a": (9, 3), "b": (4, 1)}, {})
    executor = Scripted(loss, loss, loss)
    results, errors = spread({"a": SQUARES["3"]}, executor)
    assert executor.attempts == [1, 2, 3]
    assert not results
    assert "its worker died 3 times; out of memory?" in str(errors["a"])
    assert errors["a"].__cause__ is loss


def test_calls_that_someone_cancelled_are_submitted_again() -> None:
    class Forgetful(Scripted):
        def submit(self, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
            if arguments[-1] > 1:
                return super().submit(function, *arguments)
            future: Future[Any] = Future()
            future.cancel()
            future.set_running_or_notify_cancel()
            return future

    assert spread({"a": SQUARES["3"]}, Forgetful()) == ({"a": (9, 2)}, {})


def test_an_executor_that_is_shut_down_says_so() -> None:
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    with pytest.raises(RuntimeError, match="after shutdown"):
        spread(SQUARES, executor)


def test_an_interrupt_goes_through_and_cancels_what_has_not_begun() -> None:
    """Ctrl-C reaches the main thread, or a worker."""
    over = threading.Event()
    begun: list[int] = []

    def work(attempt: int) -> None:
        begun.append(attempt)
        over.wait(10)

    def interrupted(attempt: int) -> None:
        raise KeyboardInterrupt

    several: dict[str, Any] = {str(n): (work, ()) for n in range(9)}
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # shells let jobs in the background ignore it
    with ThreadPoolExecutor(1) as executor:
        threading.Timer(0.2, signal.pthread_kill, (threading.get_ident(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            spread(several, executor)
        over.set()
        with pytest.raises(KeyboardInterrupt):
            spread({"first": (interrupted, ())}, executor)
    signal.signal(signal.SIGINT, before)
    assert begun == [1]


def test_forked_processes_are_refused() -> None:
    with (
        ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as executor,
        pytest.raises(ValueError, match=r'mp_context=multiprocessing.get_context\("spawn"\)'),
    ):
        require_spawned(executor)


@pytest.fixture
def pool() -> Iterator[ProcessPoolExecutor]:
    with spawning(2) as executor:
        yield executor


def test_a_worker_killed_mid_task_is_replaced(pool: ProcessPoolExecutor, tmp_path: Path) -> None:
    thread = mortal.kill_what_waits(tmp_path)
    large = b"x" * 2**22  # more than a pipe holds
    calls: dict[str, Any] = {"killed": (mortal.killed_once, (str(tmp_path), large)), **SQUARES}
    results, errors = spread(calls, pool)
    thread.join(10)
    assert not errors
    assert results["killed"] == (len(large), 2)
    assert {name: results[name][0] for name in SQUARES} == {"0": 0, "1": 1, "2": 4, "3": 9}
    # The user's pool is broken for good, which is no reason to give up.
    results, errors = spread({"3": SQUARES["3"]}, pool)
    assert (results, errors) == ({"3": (9, 2)}, {})


def test_a_broken_pool_is_replaced_by_one_like_it() -> None:
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn, initializer=mortal.remember, initargs=("7",)) as pool:
        with pytest.raises(BrokenExecutor):
            pool.submit(mortal.die).result()
        assert spread({"after": (mortal.remembered, ())}, pool) == ({"after": ("7", 2)}, {})


def test_a_task_that_kills_every_worker_is_named_and_the_others_end(pool: ProcessPoolExecutor) -> None:
    calls: dict[str, Any] = {str(n): (mortal.slow_square, (n,)) for n in range(6)}
    results, errors = spread({"0": calls.pop("0"), "deadly": (mortal.die, ()), **calls}, pool)
    assert list(errors) == ["deadly"]
    assert "its worker died 3 times" in str(errors["deadly"])
    assert {name: square for name, (square, _) in results.items()} == {str(n): n**2 for n in range(6)}


def test_any_exception_survives_the_journey() -> None:
    def travelled(error: Exception) -> Exception:
        try:
            raise error
        except Exception as raised:
            return pickle.loads(pickle.dumps(Failed(raised))).error

    value = travelled(ValueError("y is NaN"))
    assert isinstance(value, ValueError)
    assert str(value) == "y is NaN"
    assert "raise error" in value.__notes__[0]  # where it was raised
    assert str(travelled(mortal.OddError(1, 2))) in ("OddError: 1 is not 2", "1 is not 2")  # tblib may help pickle
    assert str(travelled(type("LocalError", (Exception,), {})("here"))) == "LocalError: here"
