"""thermint.evidence, the default call; effort multiplies the draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import thermint
from benchmarks.peers.tasks import Answer, Task
from benchmarks.precision import EXPENSIVE

DRAWS = 1000  # the default
LEAST = 100
OPTIONS: dict[str, dict[str, Any]] = {"goodwin-3": EXPENSIVE}  # an evaluation takes milliseconds: as in the README


def prepare(task: Task) -> Callable[[int, float], Answer]:
    """Return run(seed, effort)."""

    def run(seed: int, effort: float) -> Answer:
        options = dict(OPTIONS.get(task.name, {}))
        draws = max(LEAST, round(effort * options.pop("draws", DRAWS)))
        if "target_error" in options:  # rounds end when it is reached
            options["target_error"] /= effort**0.5
            options["max_evaluations"] = round(max(1.0, effort) * options["max_evaluations"])
        result = thermint.evidence(task.model, seed=seed, draws=draws, progress=False, **options)
        asked = ", ".join(f"{name}={value:g}" for name, value in {"draws": draws, **options}.items())
        settings = f"evidence(model, {asked})" + ("; warned" if result.warnings else "")
        return Answer(result.log_evidence, result.standard_error, result.evaluations, settings)

    return run
