"""Several processes that share one run, by `jax.distributed`: what they exchange, and the loss of one of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path

import jax
import numpy as np


def allgather(own: np.ndarray) -> np.ndarray:
    """Join the populations of all processes, [population, ...], in each of them."""
    if jax.process_count() == 1:
        return own
    from jax.experimental.multihost_utils import process_allgather

    return np.asarray(process_allgather(own, tiled=True))


class LostPeerError(RuntimeError):
    """Another process of the same run has ended, or cannot be reached."""


# Errors of operations between processes begin like this; those of this process alone do not.
_LOST_PEER = re.compile("^(ABORTED|CANCELLED|DEADLINE_EXCEEDED|FAILED_PRECONDITION|UNAVAILABLE|UNKNOWN): |Gloo|NCCL")


@contextmanager
def peers(checkpoint: Path | None) -> Iterator[None]:
    """Raise LostPeerError if a run of several processes fails because one of them has ended."""
    try:
        yield
    except (jax.errors.JaxRuntimeError, ValueError) as error:  # JAX raises either, by the way the program is called
        if jax.process_count() == 1 or not _LOST_PEER.search(str(error)):
            raise
        where = f"from {checkpoint}, on any number of processes" if checkpoint else "with a checkpoint"
        raise LostPeerError(
            f"process {jax.process_index()} of {jax.process_count()} cannot go on: most likely another one has ended, "
            f"and its own output says why. Run again {where}."
        ) from error


def is_first() -> bool:
    """Say whether this is the process that writes and reports."""
    return jax.process_index() == 0


def broadcast_scalar(value: float, choose: Callable[[list[float]], float] = itemgetter(0)) -> float:
    """Return the same number in all processes, by default the first one's: clocks differ, and decisions must not."""
    if jax.process_count() == 1:
        return value
    from jax.experimental.multihost_utils import process_allgather

    return float(choose(process_allgather(np.float64(value)).tolist()))


def share_bytes(make: Callable[[], bytes]) -> bytes:
    """Make bytes in the first process, and return them in all.

    Raises:
        OSError: in all processes, if the first could not make them.
    """
    if jax.process_count() == 1:
        return make()
    from jax.experimental.multihost_utils import broadcast_one_to_all

    own, problem = b"", None
    if is_first():
        try:
            own = make()
        except OSError as error:
            own, problem = str(error).encode(), error
    failed = broadcast_scalar(float(problem is not None))
    buffer = np.zeros(int(broadcast_scalar(len(own))), dtype=np.uint8)
    if is_first():
        buffer[:] = np.frombuffer(own, dtype=np.uint8)
    shared = np.asarray(broadcast_one_to_all(buffer)).tobytes() if buffer.size else b""
    if failed:
        raise problem or OSError(shared.decode())
    return shared
