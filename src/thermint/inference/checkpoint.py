"""The checkpoint of a call: which file, and what makes two calls the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from thermint.model.model import Model
from thermint.model.options import name_of
from thermint.runtime.hosts import broadcast_scalar, share_bytes
from thermint.runtime.journal import Journal, difference


class Checkpoint(NamedTuple):
    """A file to save a run in, and a word on where its model came from."""

    path: str | Path
    origin: str = ""


def open_journal(
    checkpoint: str | Path | Checkpoint | None,
    model: Model,
    settings: dict[str, Any],
    budget: Mapping[str, float | None],
) -> Journal:
    """Open the checkpoint of a run with these settings, if it is to have one.

    Raises:
        DamagedError, ChangedError: the file is there, but of no use.
        OSError: it cannot be written.
        ValueError: there are several processes, and not all of them were given the same.
    """
    if checkpoint is None and jax.process_count() == 1:
        return Journal(None, {})
    identity = {"thermint": version("thermint"), "model": fingerprint(model), "settings": _plain(settings)}
    _check_peers(identity | {"budget": _plain(dict(budget)), "checkpoint": checkpoint is not None})
    if checkpoint is None:
        return Journal(None, {})
    path, origin = checkpoint if isinstance(checkpoint, Checkpoint) else (checkpoint, "")
    journal = Journal(Path(path), identity, origin=origin, budget=budget)
    journal.write()
    if journal.problem:
        raise OSError(journal.problem)
    return journal


def _check_peers(identity: dict[str, Any]) -> None:
    """Refuse processes that were not given the same: they would answer for no model at all, or wait for each other."""
    if jax.process_count() == 1:
        return
    first = json.loads(share_bytes(lambda: json.dumps(identity).encode()))
    said = difference(first, json.loads(json.dumps(identity)))
    if broadcast_scalar(float(bool(said)), max):
        raise ValueError(
            "the processes of a run must all be given the same model and the same options, and they were not. "
            + (f"Between the first process and this one: {said}." if said else "Another process says which.")
        )


def fingerprint(model: Model) -> dict[str, Any]:
    """Boil a model down to what tells whether it is the same: parameters, and values at two draws of its prior."""

    @jax.jit
    def probe(key: Array) -> tuple[Array, Array]:
        theta = model.sample_prior(key).astype(float)
        return model.log_likelihood(theta), model.log_prior(theta)

    values = [tuple(map(float, probe(jax.random.key(i)))) for i in range(2)]
    return {
        "parameters": list(model.parameter_names),
        "dimension": model.dimension,
        "log_likelihood at two draws of the prior": {str(i): value[0] for i, value in enumerate(values)},
        "log_prior at two draws of the prior": {str(i): value[1] for i, value in enumerate(values)},
    }


def _plain(settings: dict[str, Any]) -> dict[str, Any]:
    """Turn options into what a file holds: functions into their names, arrays into lists."""

    def plain(value: Any) -> Any:
        if callable(value):
            return name_of(value)
        return value.tolist() if isinstance(value, np.ndarray | np.generic) else value

    return {name: plain(value) for name, value in settings.items()}
