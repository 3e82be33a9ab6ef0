"""The paper's two tables: what was published, what the same setting gives here, and what thermint gives by default."""

from __future__ import annotations

import platform
from functools import cache
from importlib.metadata import version

import numpy as np
import pandas as pd

from thermint.paper.study import APPLICATIONS, KEYS, Method, answers
from thermint.paper.tabulated import read

TABLES = {1: ("linear", "radiata"), 2: ("pima", "goodwin")}


def table(number: int, estimates: pd.DataFrame) -> pd.DataFrame:
    """Make Table 1 or 2 from `Study.estimates`: a row for each application, number of draws and estimator.

    Its columns are those published and ours, the root mean square error against the truth, and likelihood evaluations
    and seconds of one replicate of one model.
    """
    columns = ["mse", "se"] if number == 1 else ["mean", "sd"]
    rows = []
    for application in TABLES[number]:
        own = estimates[estimates["application"] == application]
        for draws in sorted(own["draws"].unique()):
            for method, values in answers(estimates, application, draws).items():
                setting = "thermint" if method[0] == "thermint" else "paper"
                cost = own[(own["draws"] == draws) & (own["setting"] == setting)][["evaluations", "seconds"]].mean()
                values = values[np.isfinite(values)]
                square = (values - APPLICATIONS[application].truth) ** 2
                mse = square.mean()
                ours = (
                    (mse, _spread(square) / np.sqrt(len(square))) if number == 1 else (values.mean(), _spread(values))
                )
                rows.append(
                    {"application": application, "N": draws}
                    | dict(zip(("estimator", "degree", "rule"), method, strict=True))
                    | _published(application, draws, method, columns)
                    | dict(zip(columns, ours, strict=True))
                    | {"rmse": np.sqrt(mse), "replicates": len(values)}
                    | {"evaluations": round(cost["evaluations"]), "seconds": float(round(cost["seconds"], 2))}
                )
    return pd.DataFrame(rows)


def _published(application: str, draws: int, method: Method, columns: list[str]) -> dict[str, float]:
    """Look up what the paper says, if anything."""
    row = published()[columns].reindex([(application, draws, *method[1:])]).iloc[0]
    return {f"published_{name}": float(row[name]) for name in columns}


@cache
def published() -> pd.DataFrame:
    """Load the paper's Tables 1 and 2: m.s.e. and its standard error, or mean and s.d. of the log Bayes factor.

    As printed: the first 0.012 of "linear" should read 0.0012, the quadrature floor, as for N = 5000.
    """
    return read("published").set_index(["application", "draws", "degree", "rule"])


def _spread(x: np.ndarray) -> float:
    """Standard deviation; NaN of fewer than two."""
    return float(x.std(ddof=1)) if len(x) > 1 else float("nan")


def markdown(table: pd.DataFrame) -> str:
    """Write a table as Markdown, with three significant digits."""

    def cell(value: object) -> str:
        if isinstance(value, float):
            return "" if np.isnan(value) else f"{value:.3g}"
        return "default" if value == -1 else str(value)

    lines = [list(table.columns), ["---"] * len(table.columns)]
    lines += [[cell(value) for value in row] for row in table.itertuples(index=False)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def provenance(estimates: pd.DataFrame) -> str:
    """Say how the tables came about: settings, seeds, versions, machine and time."""
    kinds = estimates[["application", "draws", "replicate"]].drop_duplicates().value_counts(["application", "draws"])
    runs = ", ".join(
        f"{row.count} of {row.application} with N = {row.draws}" for row in kinds.reset_index().itertuples()
    )
    seconds = estimates.drop_duplicates(list(KEYS))["seconds"].sum()
    names = ("thermint", "jax", "numpy", "scipy")
    versions = ", ".join(f"{name} {version(name)}" for name in names)
    return (
        f"Replicates: {runs}; replicate number = seed. Setting: 51 rungs (i/50)^5, simplified mMALA, as many exchanges "
        "of random pairs an iteration as there are rungs, burn-in N/10, one population, coefficients in sample; "
        '"thermint" is `thermint.evidence` with no more likelihood evaluations. '
        f"{versions}; Python {platform.python_version()}, {platform.machine()}. "
        f"Time of all replicates, one core each: {seconds / 60:.1f} minutes.\n"
    )
