"""Does the choice of the ladder help? Spread of plain and controlled integrals on ladders chosen from one short run.

Plain and controlled integrals use the same draws. ``python -m benchmarks.ladders`` takes some minutes.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

import thermint
from thermint import Model, ladders
from thermint.paper import pima, radiata
from thermint.path.ladders import Ladder, Table


def choices(table: Table, rungs: int, tolerance: float) -> dict[str, Ladder]:
    """Ladders by name, from the table of rungs of a short run."""
    return {
        "quintic": ladders.power(rungs),
        "geometric": ladders.geometric(rungs, smallest=1e-5),
        "optimal TI (paper)": ladders.optimal(table, rungs, centred=False),
        "optimal TI, centred": ladders.optimal(table, rungs),
        "optimal CTI (paper)": ladders.optimal(table, rungs, centred=False, controlled=True),
        "optimal CTI, centred": ladders.optimal(table, rungs, controlled=True),
        "equal rejection": ladders.equal_rejection(table, rungs),
        f"adapted, {tolerance:g}": ladders.adapted(table, tolerance),
    }


def replicate(model: Model, ladder: Ladder, replicates: int, **options: Any) -> dict[int, np.ndarray]:
    """Log evidence, its Monte Carlo and quadrature errors and the largest rejection rate, [4, replicate], by degree."""
    results: dict[int, list[tuple[float, ...]]] = {0: [], 2: []}
    for seed in range(replicates):
        draws = thermint.sample(model, ladder, seed=seed, **options)
        for degree, rows in results.items():
            answer = thermint.estimate(draws, degree=degree, rule="second-order")
            rejection = 1 - answer.rungs["swap_rate"].min()
            rows.append((answer.log_evidence, answer.mc_error, answer.quadrature_error, rejection))
    return {degree: np.array(rows).T for degree, rows in results.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--replicates", type=int, default=20)
    parser.add_argument("--rungs", type=int, default=31)
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--populations", type=int, default=4)
    parser.add_argument("--tolerance", type=float, default=1e-3, help="of the adapted ladder")
    parser.add_argument("--quick", action="store_true", help="radiata, 2 replicates of 50 draws")
    options = parser.parse_args()
    if options.quick:
        options.replicates, options.draws = 2, 50
    print(
        f"{options.replicates} replicates, {options.rungs} rungs, {options.draws} draws a rung, {options.populations} "
        f"populations, second-order rule, cross-fitted; thermint {thermint.__version__}\n"
        f"short run: 16 quintic rungs, {options.draws} draws a rung, {options.populations} populations"
    )
    sampling = {"draws": options.draws, "populations": options.populations}
    problems = {"radiata-1": (radiata.model(1), radiata.log_evidence(1))}
    if not options.quick:
        problems["pima-1"] = pima.model(1), pima.log_evidence(1)
    for name, (model, truth) in problems.items():
        begin = time.perf_counter()
        short = thermint.evidence(model, reference="prior", ladder=16, degree=2, seed=10**6, **sampling)
        print(f"\n{name}: log evidence, truth {truth:.6f}; barrier {ladders.barrier(short.rungs):.1f}")
        print("                           largest      plain TI                         controlled, degree 2")
        print("ladder                rungs rejection |  bias    s.d.    m.c.    quad. |  bias    s.d.    m.c.    quad.")
        for label, ladder in choices(short.rungs, options.rungs, options.tolerance).items():
            line = f"{label:<21} {len(ladder):>5}"
            for degree, (value, mc, quadrature, rejection) in replicate(
                model, ladder, options.replicates, **sampling
            ).items():
                line += f" {rejection.mean():>9.2f}" if degree == 0 else ""
                line += f" | {value.mean() - truth:+.0e}"
                line += "".join(f" {x:.1e}" for x in (value.std(ddof=1), mc.mean(), quadrature.mean()))
            print(line, flush=True)
        print(f"{time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    main()
