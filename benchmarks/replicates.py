"""Replicates of the paper's setting: log Bayes factors of radiata pine and Pima, plain and controlled.

One population, 51 quintic rungs, coefficients fitted in sample; all estimators use the same
draws. ``python -m benchmarks.replicates --replicates 50 --draws 1000`` is what the table in the README was made with.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from itertools import product

import numpy as np

import thermint
from thermint import Model
from thermint.paper import pima, radiata
from thermint.paper.study import DEGREES, RULES
from thermint.paper.tables import published

SETTINGS = tuple(product(DEGREES, RULES))  # degree and rule
# What the second-order rule leaves of log B21 on this ladder if means and variances are exact (known to about 5e-4).
PIMA_FLOOR = 0.0008 - 0.0011


SWAPS = {"even-odd": thermint.swaps.even_odd, "random-pair": thermint.swaps.random_pair}


def log_bayes_factors(
    models: tuple[Model, Model], replicates: int, draws: int, swap: str
) -> dict[tuple[int, str], np.ndarray]:
    """Return log B21 and its reported error, [replicate, 2], for each degree and rule."""
    results: dict[tuple[int, str], list[tuple[float, float]]] = {setting: [] for setting in SETTINGS}
    for replicate in range(replicates):
        first, second = (
            thermint.sample(
                model,
                kernel=thermint.kernels.mmala,
                draws=draws,
                populations=1,
                swap=SWAPS[swap],
                seed=2 * replicate + i,
            )
            for i, model in enumerate(models)
        )
        for degree, rule in SETTINGS:
            one, two = (thermint.estimate(d, degree=degree, rule=rule, crossfit=False) for d in (first, second))
            error = float(np.hypot(one.standard_error, two.standard_error))
            results[degree, rule].append((two.log_evidence - one.log_evidence, error))
    return {setting: np.array(values) for setting, values in results.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--replicates", type=int, default=50)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--swap", choices=SWAPS, default="even-odd", help="the paper exchanges random pairs")
    options = parser.parse_args()
    print(
        f"{options.replicates} replicates, 51 quintic rungs, {options.draws} draws a rung, 1 population, "
        f"{options.swap} swaps,\ncoefficients in sample; thermint {thermint.__version__}"
    )
    problems: dict[str, tuple[Callable[[int], Model], float]] = {
        "radiata": (
            partial(radiata.model, benchmark=True),
            radiata.log_evidence(2, benchmark=True) - radiata.log_evidence(1, benchmark=True),
        ),
        "pima": (pima.model, pima.log_evidence(2) - pima.log_evidence(1)),
    }
    for name, (model, truth) in problems.items():
        begin = time.perf_counter()
        results = log_bayes_factors((model(1), model(2)), **vars(options))
        print(f"\n{name}: log B21, truth {truth:.6f}, {time.perf_counter() - begin:.0f} s")
        print("degree rule            mean      s.d.      m.s.e.    reported   published")
        for (degree, rule), values in results.items():
            value, error = values.T
            kind, column = ("m.s.e.", "mse") if name == "radiata" else ("s.d.", "sd")
            paper = published()[column].to_dict()[name, 1000, degree, rule]
            print(
                f"{degree:<6} {rule:<13} {value.mean():9.5f} {value.std(ddof=1):9.2g}"
                f" {np.mean((value - truth) ** 2):9.2g} {error.mean():9.2g} {paper:9.2g} ({kind})"
            )
        if name == "pima":
            value = results[2, "second-order"][:, 0]
            z = (value.mean() - truth - PIMA_FLOOR) / (value.std(ddof=1) / np.sqrt(len(value)))
            print(f"degree 2, second order: mean is {z:+.1f} standard errors from truth + quadrature floor")


if __name__ == "__main__":
    main()
