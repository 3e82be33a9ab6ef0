"""Run named tasks here or on any executor: what fails is named, and what a dead worker was doing is done again."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from concurrent.futures.process import ProcessPoolExecutor
from functools import lru_cache
from typing import Any, NamedTuple

from thermint.runtime.executors import Call, require_spawned, spread
from thermint.runtime.setup import one_device

Work = Callable[[Any, dict[str, Any]], Any]  # (model, options) -> result


class RunsFailedError(RuntimeError):
    """Some runs have failed; the others ran to their end.

    Attributes:
        results: `Evidence` of the runs that succeeded, by name; ``compare(error.results | {"name": mended})`` goes on
            from there.
        errors: exceptions of those that did not, by name.

    Example:
        >>> import thermint
        >>> def broken():
        ...     raise ValueError("no data")
        >>> try:
        ...     thermint.compare({"broken": broken})
        ... except thermint.RunsFailedError as error:
        ...     print(list(error.errors))
        ['broken']
    """

    def __init__(self, message: str, results: dict[Any, Any] | None = None, errors: dict[Any, Any] | None = None):
        super().__init__(message)
        self.results = results or {}
        self.errors = errors or {}


class Task(NamedTuple):
    """One run: a model, or a function that makes one, and options."""

    model: Any
    options: dict[str, Any]


class Failed:
    """An exception on its way back. It survives a change of process, which not every exception does."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __reduce__(self) -> tuple[Any, ...]:
        said = f"{type(self.error).__name__}: {self.error}"
        try:
            packed = pickle.dumps(self.error)
        except Exception:
            packed = b""
        return _arrived, (packed, said, "".join(traceback.format_exception(self.error)))


def _arrived(packed: bytes, said: str, trace: str) -> Failed:
    """Make the exception again, or one that says the same."""
    try:
        error = pickle.loads(packed)
    except Exception:
        error = RuntimeError(said)
    error.add_note(f"In the worker:\n{trace}")
    return Failed(error)


def run_tasks(
    work: Work, tasks: Mapping[Any, Task], executor: Executor | None, kind: str
) -> tuple[dict[Any, Any], dict[Any, Exception]]:
    """Run every task to its end, one after the other or on an executor.

    Args:
        work: called with model and options; a top-level function.
        tasks: by name. What they return must not depend on when, where or how often they are run.
        executor: of any kind but a pool of forked processes.
        kind: what to call a task in messages, such as "model".

    Returns:
        Results, in the order of the tasks, and exceptions of those that failed.

    Raises:
        ValueError: processes would be forked.
        TypeError: a task cannot be sent to another process. Nothing has been run then.
    """
    errors: dict[Any, Exception] = {}
    if executor is None:
        ended = {name: _attempt(work, *task) for name, task in tasks.items()}
    else:
        require_spawned(executor)
        ended, errors = spread(_calls(work, tasks, executor, kind), executor)
    errors |= {name: one.error for name, one in ended.items() if isinstance(one, Failed)}
    for name, error in errors.items():
        error.add_note(f"This happened with the {kind} {name!r}.")
    in_order = [name for name in tasks if name in errors]
    return {name: ended[name] for name in tasks if name not in errors}, {name: errors[name] for name in in_order}


def failure(results: dict[Any, Any], errors: dict[Any, Exception], kind: str) -> RunsFailedError:
    """Make one exception of all; the same error is said once."""
    names: dict[str, list[str]] = {}
    for name, error in errors.items():
        names.setdefault(f"{type(error).__name__}: {error}", []).append(repr(name))
    lines = [f"  {', '.join(some)}: {said}" for said, some in names.items()]
    first = f"{len(errors)} of {len(errors) + len(results)} {kind}s failed"
    first += "; .results has the others." if results else "."
    return RunsFailedError("\n".join([first, *lines]), results, errors)


def travels(executor: Executor | None) -> bool:
    """Say whether this executor is known to send tasks to other processes."""
    return executor is not None and _packer(executor) is not None


def _packer(executor: Executor) -> Callable[[Any], bytes] | None:
    """Choose how tasks travel to other processes; None if it is not known that they do, as for threads."""
    libraries = {base.__module__.partition(".")[0] for base in type(executor).__mro__}
    if "distributed" in libraries:
        import cloudpickle

        return cloudpickle.dumps
    return pickle.dumps if isinstance(executor, ProcessPoolExecutor) or "mpi4py" in libraries else None


def _calls(work: Work, tasks: Mapping[Any, Task], executor: Executor, kind: str) -> dict[Any, Call]:
    """Make what is submitted for every task, or say which cannot be sent."""
    pack = _packer(executor)
    if pack is None:
        return {name: (_again, (work, *task)) for name, task in tasks.items()}
    packed: dict[int, bytes] = {}  # replicates share one model
    calls: dict[Any, Call] = {}
    for name, (model, options) in tasks.items():
        try:
            packed[id(model)] = packed.get(id(model)) or pack(model)
            calls[name] = _unpacked, (work, packed[id(model)], pack(options))
        except Exception as error:
            raise TypeError(
                f"the {kind} {name!r} cannot be sent to another process ({error}). Give a top-level function that "
                "makes the model, or use a ThreadPoolExecutor."
            ) from error
    return calls


def _attempt(work: Work, model: Any, options: dict[str, Any]) -> Any:
    try:
        return work(model, options)
    except Exception as error:
        return Failed(error)


def _again(work: Work, model: Any, options: dict[str, Any], attempt: int) -> Any:
    """Run a task; Dask takes calls with the same arguments for the same call, hence the number of the attempt."""
    return _attempt(work, model, options)


def _unpacked(work: Work, model: bytes, options: bytes, attempt: int) -> Any:
    """Run a task in another process. What cannot be read there is an error of the task: it would kill a pool."""
    one_device()
    try:
        read = _read(model), pickle.loads(options)
    except Exception as error:
        return Failed(error)
    return _attempt(work, *read)


@lru_cache(maxsize=1)
def _read(model: bytes) -> Any:
    """Read a model; the next replicate finds it again, and with it what was compiled."""
    return pickle.loads(model)
