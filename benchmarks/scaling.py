"""Cost of a draw against the size of the problem: rows of data, parameters, rungs, populations.

``python -m benchmarks.scaling`` times the loop that takes nearly all of a long run: a chunk of draws from every rung
and population by mala or hmc, and their sums of features. Logistic regression on made-up data. One size is varied at a
time.

    ms          for one draw from all rungs and populations
    us a point  for one evaluation of the model: ms, divided by their number
    slope       of log ms against log size, from the size before; 1 is proportional
    peak MiB    of the process so far

Slopes well above 1 (above 2 for parameters, where the features' products are summed) would be a cliff.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np

BASE = {"rows": 1000, "parameters": 6, "rungs": 5, "populations": 4}
# A million rows are those of a regression with 20 parameters; the other sizes are that of few rows.
AXES: dict[str, tuple[list[int], dict[str, int]]] = {
    "rows": ([1_000, 10_000, 100_000, 1_000_000], {"parameters": 20, "populations": 2}),
    "parameters": ([2, 5, 10, 20, 50, 100, 200], {}),
    "rungs": ([4, 8, 16, 32, 64, 101], {}),
    "populations": ([1, 2, 4, 8, 16, 32, 64], {}),
}
QUICK: dict[str, list[int]] = {"rows": [1_000, 100_000], "parameters": [2, 20], "rungs": [4, 16], "populations": [1, 8]}
DRAWS = 20  # of a chunk
SLACK = 0.75  # of a slope: measured ones scatter


def cost(rows: int, parameters: int, rungs: int, populations: int, repeats: int) -> dict[str, float]:
    """Time the loop for one size; the best of the repeats, because others use the machine too."""
    import jax
    import jax.numpy as jnp

    import thermint
    from thermint.control.plan import make_plan
    from thermint.interop import checked_model
    from thermint.path.path import Path
    from thermint.sampling.options import SamplerOptions
    from thermint.sampling.sampler import default_kernel, make_sampler

    rng = np.random.default_rng(0)
    X = jnp.asarray(rng.normal(size=(rows, parameters)))
    y = jnp.asarray(rng.uniform(size=rows) < 0.5, dtype=float)

    def log_likelihood(theta: jax.Array) -> jax.Array:
        eta = X @ theta
        return jnp.sum(y * eta - jnp.logaddexp(0.0, eta))

    model = checked_model(
        thermint.Model(
            log_likelihood,
            lambda theta: -0.5 * jnp.sum(theta**2) - 0.5 * parameters * jnp.log(2 * jnp.pi),
            lambda key: jax.random.normal(key, (parameters,)),
            normalised=True,
        )
    )
    kernel = default_kernel(Path(model))
    sampler = make_sampler(
        Path(model),
        thermint.ladders.power(rungs),
        SamplerOptions(populations, kernel, length=DRAWS, schedule=((DRAWS, 0.1),)),
        jax.random.key(0),
    )
    size = {"draws": 1000, "populations": populations, "rungs": rungs, "dimension": parameters}
    plan = make_plan(**size, degree="auto", rule="second-order", crossfit=True, length=DRAWS)
    gram = plan.empty(sampler.frame, populations)
    times = []
    for _ in range(1 + repeats):
        begin = time.perf_counter()
        gram, _ = plan.accumulate(gram, sampler.chunk(), 0)
        times.append(time.perf_counter() - begin)
    milliseconds = 1e3 * min(times[1:]) / DRAWS
    points = rungs * populations * getattr(kernel, "evaluations", 1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"ms": milliseconds, "us a point": 1e3 * milliseconds / points, "peak MiB": peak}


def measured(size: dict[str, int], repeats: int) -> dict[str, float]:
    """Run `cost` in a new process."""
    code = f"import json; from benchmarks.scaling import cost; print(json.dumps(cost(**{size!r}, repeats={repeats})))"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    return json.loads(output)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("axis", nargs="*", choices=[*AXES, []], help="which sizes to vary; by default all")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="two sizes each")
    options = parser.parse_args()
    print(f"base size {BASE}; chunks of {DRAWS} draws, best of {options.repeats}, each size in a new process")
    cliffs = []
    for axis in options.axis or AXES:
        values, other = AXES[axis]
        base = BASE | other
        print(f"\n{axis} (others: { {name: value for name, value in base.items() if name != axis} })")
        print(f"{axis:>12} {'ms':>10} {'us a point':>11} {'slope':>6} {'peak MiB':>9}")
        before: tuple[int, float] | None = None
        for value in QUICK[axis] if options.quick else values:
            found: dict[str, Any] = measured(base | {axis: value}, options.repeats)
            slope = np.log(found["ms"] / before[1]) / np.log(value / before[0]) if before else np.nan
            print(f"{value:12,} {found['ms']:10.3f} {found['us a point']:11.2f} {slope:6.2f} {found['peak MiB']:9.0f}")
            if slope > (2 if axis == "parameters" else 1) + SLACK:
                cliffs.append(f"{axis} {before[0] if before else ''} to {value}: slope {slope:.2f}")
            before = value, found["ms"]
    print("\n" + ("cliffs: " + "; ".join(cliffs) if cliffs else "no cliff"))


if __name__ == "__main__":
    main()
