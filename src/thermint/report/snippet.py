"""The call that repeats a run, as Python code."""

from __future__ import annotations

from typing import Any

import numpy as np

from thermint import kernels
from thermint.inference.summary import BRIDGE_ADVANTAGE
from thermint.model.result import Evidence
from thermint.path import ladders
from thermint.report.methods import chosen, kind
from thermint.sampling import swaps


def snippet(result: Evidence) -> str:
    """Write the call that repeats the run, as far as the result knows it, without options at their defaults."""
    settings, call = result.settings, kind(result)
    if call == "anneal":
        options = {
            "ladder": _ladder(settings.ladder),
            "particles": str(settings.particles),
            "kernel": _function(kernels, str(settings.kernel)),
        }
    elif call == "estimate":
        options = {name: repr(settings[name]) for name in ("method", "degree", "rule", "crossfit")}
    else:
        options = _evidence_options(result)
    if settings.seed is not None:
        options["seed"] = str(settings.seed)
    given = ["draws" if call == "estimate" else "model", *(f"{name}={value}" for name, value in options.items())]
    return f"import thermint\n\nresult = thermint.{call}({', '.join(given)})\n"


def _evidence_options(result: Evidence) -> dict[str, str]:
    settings = result.settings
    prior, lobatto = settings.reference == "prior", ladders.is_lobatto(np.asarray(settings.ladder))
    kernel_chosen = not prior and settings.kernel in ("mala", "mmala", "hmc")  # by the fitted path
    rule_chosen = settings.rule == ("lobatto" if lobatto else "second-order")
    rule_needed = not rule_chosen or (chosen(result) == "cti" and _bridge_preferred(result))
    options = (
        ("reference", prior, '"prior"'),
        ("ladder", prior or not lobatto, _ladder(settings.ladder)),
        ("kernel", not kernel_chosen, _function(kernels, str(settings.kernel))),
        ("swap", settings.swap != "even_odd", _function(swaps, str(settings.swap))),
        ("degree", settings.degree != "auto" and settings.gradients, repr(settings.degree)),
        ("rule", rule_needed, f'"{settings.rule}"'),
        ("crossfit", not settings.crossfit, "False"),
        ("draws", True, str((settings.draws or 0) // 2 ** ((settings.rounds or 1) - 1))),  # rounds double them
        ("populations", True, str(settings.populations)),
        ("target_error", settings.target_error is not None, repr(settings.target_error)),
    )
    return {name: value for name, needed, value in options if needed}


def _bridge_preferred(result: Evidence) -> bool:
    """Say whether the library might have answered by the bridge form, had no rule been given."""
    error = result.estimates["standard_error"]
    return bool(error["bridge"] < BRIDGE_ADVANTAGE * error["cti"] or (result.rungs["pareto_k"] > 1 / 2).any())


def _ladder(ladder: list[float]) -> str:
    """Write a ladder as a number of rungs, if that is what it is."""
    return str(len(ladder)) if np.array_equal(ladder, ladders.power(len(ladder))) else repr(list(ladder))


def _function(module: Any, name: str) -> str:
    """Write a kernel or swap of the library by its full name; users must supply the code of their own."""
    return f"thermint.{module.__name__.rpartition('.')[2]}.{name}" if hasattr(module, name) else name
