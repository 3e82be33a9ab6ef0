"""What a run took: CPU seconds, those of them that went into compilation, and memory. Linux, and mostly any Unix."""

from __future__ import annotations

import resource
import time

# JAX reports each of these once a program. Programs within programs are traced within their trace and not reported.
EVENTS = {
    "/jax/core/compile/jaxpr_trace_duration": "trace",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lower",
    "/jax/core/compile/backend_compile_duration": "compile",
}


class Compilation:
    """Seconds that JAX has spent on tracing, lowering and compiling since this was made, in all and by kind.

    These are seconds of a clock on the wall: on a core of one's own they are CPU seconds too.
    """

    def __init__(self) -> None:
        from jax import monitoring  # not above: the worker sets up the process before JAX is imported

        self.seconds = dict.fromkeys(EVENTS.values(), 0.0)
        monitoring.register_event_duration_secs_listener(self._heard)

    def _heard(self, event: str, duration_secs: float, **about: str | int) -> None:
        if event in EVENTS:
            self.seconds[EVENTS[event]] += duration_secs

    @property
    def total(self) -> float:
        """Seconds in all."""
        return sum(self.seconds.values())


def cpu_seconds() -> float:
    """CPU seconds of this process and all its threads, and of children that have ended (compilers, for example)."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def peak_memory() -> float:
    """The most memory that this process has had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
