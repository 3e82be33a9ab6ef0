"""Make calls on any executor, and repeat those whose worker died."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, Future, wait
from concurrent.futures.process import ProcessPoolExecutor
from typing import Any

# Of a call whose worker dies. A pool that broke does not say which call killed it, so that the last attempt is made
# alone: two before it spare the others most of the wait.
MAX_ATTEMPTS = 3

Call = tuple[Callable[..., Any], tuple[Any, ...]]  # and a last argument, the number of the attempt


def spread(calls: Mapping[Any, Call], executor: Executor) -> tuple[dict[Any, Any], dict[Any, Exception]]:
    """Make calls side by side, until each has ended.

    A call whose worker died is repeated, up to `MAX_ATTEMPTS` times in all. A pool of processes breaks when one of them
    dies, and is replaced by another like it. An interrupt is raised at once, and calls that have not begun are
    cancelled.

    Returns:
        Results and exceptions, by the names of the calls.
    """
    pool = _Pool(executor)
    results: dict[Any, Any] = {}
    errors: dict[Any, Exception] = {}
    try:
        beside, alone = (*range(1, MAX_ATTEMPTS),), (MAX_ATTEMPTS,)
        lost = _drain(pool, calls, beside, _workers(executor, len(calls)), results, errors)
        dead = _drain(pool, {name: calls[name] for name in lost}, alone, 1, results, errors)
    except BaseException:
        pool.leave(wait=False)
        raise
    pool.leave(wait=True)
    return results, errors | {name: _died(error) for name, error in dead.items()}


def require_spawned(executor: Executor) -> None:
    """Refuse a pool of processes that would be forked."""
    if isinstance(executor, ProcessPoolExecutor) and _made_with(executor)["mp_context"].get_start_method() == "fork":
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
    """Make calls, up to ``most`` at a time, and add to results and errors; return those that lost every worker."""
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
        """Submit a call. If the executor is broken, the future says so; if it was shut down, this raises."""
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
        """Replace the pool of processes that a call was submitted to, if it is broken and still in use."""
        if executor is self.executor and type(executor) is ProcessPoolExecutor and isinstance(error, BrokenExecutor):
            self.executor = ProcessPoolExecutor(**_made_with(executor))
            self._made.append(self.executor)

    def leave(self, wait: bool) -> None:
        for executor in self._made:
            executor.shutdown(wait=wait, cancel_futures=True)


def _made_with(pool: ProcessPoolExecutor) -> dict[str, Any]:
    """Return the arguments that a pool of processes was made with, which nothing public says."""
    private: Any = pool
    return {
        "max_workers": private._max_workers,
        "mp_context": private._mp_context,
        "initializer": private._initializer,
        "initargs": private._initargs,
        "max_tasks_per_child": private._max_tasks_per_child,
    }


def _workers(executor: Executor, calls: int) -> int:
    """Return how many calls may be under way: only these have lost their worker if a pool breaks."""
    return _made_with(executor)["max_workers"] if isinstance(executor, ProcessPoolExecutor) else max(calls, 1)


def _error(future: Future[Any]) -> Exception | None:
    """Return the exception of a call, if any; raise it if it is no ordinary one, such as an interrupt."""
    if future.cancelled():
        return CancelledError("it was cancelled")
    error = future.exception()
    if error is not None and not isinstance(error, Exception):
        raise error
    return error


def _is_loss(error: Exception) -> bool:
    """Say whether an error means that a worker was lost; KilledWorker is Dask's."""
    return isinstance(error, BrokenExecutor | CancelledError) or type(error).__name__ == "KilledWorker"


def _died(error: Exception) -> Exception:
    died = RuntimeError(
        f"its worker died {MAX_ATTEMPTS} times; out of memory? Or a script that starts the executor without "
        f'if __name__ == "__main__"? ({error})'
    )
    died.__cause__ = error
    return died
