"""Results as ArviZ reads them."""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

if TYPE_CHECKING:
    from thermint.model.result import Evidence, Posterior


def to_datatree(result: Evidence) -> xr.DataTree:
    """Turn a result into a tree of datasets, as ArviZ 1 reads it; `arviz.from_datatree` makes it one of ArviZ 0.x's.

    Args:
        result: of `thermint.evidence` or `thermint.estimate`.

    Returns:
        The groups ``posterior``, named values with dimensions chain and draw; ``sample_stats`` of these draws; and
        ``evidence``: the table of rungs and that of estimates, with the answer and what it took as attributes
        (warnings, diagnostics and settings in JSON). A result without posterior draws, such as that of
        `thermint.anneal`, has the last alone. All of it can be written by `to_netcdf` and `to_zarr`.
    """
    groups = {} if result.posterior is None else _draws(result.posterior)
    return xr.DataTree.from_dict({**groups, "evidence": _evidence(result)})


def _draws(posterior: Posterior) -> dict[str, xr.Dataset]:
    """Return the posterior, and the statistics of its draws."""
    stats = {
        "lp": posterior.log_likelihood + posterior.log_prior,
        "total_log_likelihood": posterior.log_likelihood,  # ArviZ takes "log_likelihood" for one value a datum
        "log_prior": posterior.log_prior,
    }
    if posterior.acceptance is not None:
        stats["acceptance_rate"] = posterior.acceptance
    return {"posterior": _dataset(posterior.values), "sample_stats": _dataset(stats)}


def _dataset(values: dict[str, np.ndarray]) -> xr.Dataset:
    """Name the axes of values [chain, draw, ...] as ArviZ does: chain, draw, name_dim_0, name_dim_1, ..."""
    variables: dict[str, tuple[list[str], np.ndarray]] = {}
    coordinates: dict[str, np.ndarray] = {}
    for name, value in values.items():
        axes = ["chain", "draw", *(f"{name}_dim_{axis}" for axis in range(value.ndim - 2))]
        variables[name] = (axes, value)
        coordinates |= {axis: np.arange(size) for axis, size in zip(axes, value.shape, strict=True)}
    return xr.Dataset(variables, coordinates, attrs=_library())


def _evidence(result: Evidence) -> xr.Dataset:
    """Return both tables, with all else as attributes that a file can hold: numbers and text."""
    tables = {str(name): ("rung", column.to_numpy()) for name, column in result.rungs.items()}
    tables |= {f"estimated_{name}": ("estimator", column.to_numpy()) for name, column in result.estimates.items()}
    numbers = ("log_evidence", "standard_error", "mc_error", "quadrature_error", "degrees_of_freedom", "evaluations")
    attributes: dict[str, Any] = {name: getattr(result, name) for name in (*numbers, "seconds")}
    attributes |= {name: json.dumps(result.as_dict()[name]) for name in ("warnings", "diagnostics", "settings")}
    coordinates = {"rung": result.rungs.index.to_numpy(), "estimator": result.estimates.index.to_numpy().astype(str)}
    return xr.Dataset(tables, coordinates, attrs=attributes | _library())


def _library() -> dict[str, str]:
    return {"inference_library": "thermint", "inference_library_version": version("thermint")}
