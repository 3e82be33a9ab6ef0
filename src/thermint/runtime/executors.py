"""Calls on any executor: so many at a time, and once more where a worker died."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, Future, wait
from concurrent.futures.process import ProcessPoolExecutor
from typing import Any

TOGETHER = (1, 2)  # attempts beside other calls: a pool that broke does not say which of them its worker died of
ALONE = (3,)  # so that the last attempt is made alone

Call = tuple[Callable[..., Any], tuple[Any, ...]]  # and a last argument, the number of the attempt


def spread(calls: Mapping[Any, Call], executor: Executor) -> tuple[dict[Any, Any], dict[Any, Exception]]:
    """Make calls side by side, until each has ended.

    What a worker was doing when it died is done again, three times at most. A pool of processes breaks when one dies:
    another of the same size takes its place.

    Returns:
        What they returned, and what was raised instead, by their names. Interrupts are raised here and now, and what
        has not begun is cancelled.
    """
    pool = _Pool(executor)
    results: dict[Any, Any] = {}
    errors: dict[Any, Exception] = {}
    try:
        lost = _drain(pool, calls, TOGETHER, _workers(executor, len(calls)), results, errors)
        dead = _drain(pool, {name: calls[name] for name in lost}, ALONE, 1, results, errors)
    except BaseException:
        pool.leave(wait=False)
        raise
    pool.leave(wait=True)
    return results, errors | {name: _died(error) for name, error in dead.items()}


def require_spawned(executor: Executor) -> None:
    """Refuse a pool of processes that would be forked."""
    context: Any = getattr(executor, "_mp_context", None)
    if isinstance(executor, ProcessPoolExecutor) and context.get_start_method() == "fork":
        raise ValueError(
            "the executor forks this process, and JAX, which has threads, may then wait forever. Make it with "
            'ProcessPoolExecutor(..., mp_context=multiprocessing.get_context("spawn")).'
        )


def _drain(
    pool: _Pool,
    calls: Mapping[Any, Call],
    attempts: tuple[int, ...],
    most: int,
    results: dict[Any, Any],
    errors: dict[Any, Exception],
) -> dict[Any, Exception]:
    """Make calls, so many at a time, and sort what comes back; return those whose worker died at every attempt."""
    lost = {}
    queue = deque((name, attempts) for name in calls)
    flying: dict[Future[Any], tuple[Any, tuple[int, ...], Executor]] = {}
    try:
        while queue or flying:
            while queue and len(flying) < most:
                name, (attempt, *left) = queue.popleft()
                flying[pool.submit(calls[name], attempt)] = name, tuple(left), pool.executor
            for future in wait(flying, return_when=FIRST_COMPLETED).done:
                name, again, executor = flying.pop(future)
                error = _error(future)
                if error is None:
                    results[name] = future.result()
                elif not _is_loss(error):
                    errors[name] = error
                else:
                    pool.mend(executor, error)
                    if again:
                        queue.append((name, again))
                    else:
                        lost[name] = error
    except BaseException:
        for future in flying:
            future.cancel()
        raise
    return lost


class _Pool:
    """An executor, or the one that has taken its place."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self._made: list[Executor] = []

    def submit(self, call: Call, attempt: int) -> Future[Any]:
        """Submit a call. An executor that has been shut down says so at once; one that broke, as by a lost call."""
        function, arguments = call
        try:
            return self.executor.submit(function, *arguments, attempt)
        except Exception as error:
            if attempt == 1 and not isinstance(error, BrokenExecutor):
                raise
            future: Future[Any] = Future()
            future.set_exception(error)
            return future

    def mend(self, executor: Executor, error: Exception) -> None:
        """Make a new pool of processes if the one that a call was submitted to is broken; once for all its calls."""
        if executor is self.executor and type(executor) is ProcessPoolExecutor and isinstance(error, BrokenExecutor):
            broken: Any = executor
            self.executor = ProcessPoolExecutor(
                broken._max_workers,
                mp_context=broken._mp_context,
                initializer=broken._initializer,
                initargs=broken._initargs,
                max_tasks_per_child=broken._max_tasks_per_child,
            )
            self._made.append(self.executor)

    def leave(self, wait: bool) -> None:
        for executor in self._made:
            executor.shutdown(wait=wait, cancel_futures=True)


def _workers(executor: Any, calls: int) -> int:
    """Return how many calls may be under way: only these have lost their worker if a pool breaks."""
    pool = isinstance(executor, ProcessPoolExecutor)
    return executor._max_workers if pool else max(calls, 1)


def _error(future: Future[Any]) -> Exception | None:
    """Return what a call ended with; what is no ordinary exception, such as an interrupt, is raised."""
    if future.cancelled():
        return CancelledError("it was cancelled")
    error = future.exception()
    if error is not None and not isinstance(error, Exception):
        raise error
    return error


def _is_loss(error: Exception) -> bool:
    """Say whether a worker was lost; the last of these is Dask's."""
    return isinstance(error, BrokenExecutor | CancelledError) or type(error).__name__ == "KilledWorker"


def _died(error: Exception) -> Exception:
    died = RuntimeError(
        f"its worker died {ALONE[-1]} times; out of memory? Or a script that starts the executor without "
        f'if __name__ == "__main__"? ({error})'
    )
    died.__cause__ = error
    return died
