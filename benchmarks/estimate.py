"""Seconds to turn stored draws into an estimate, and memory against the number of draws.

``python -m benchmarks.estimate`` prints both. The draws are exact ones of a normal model, made by NumPy.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

import numpy as np

import thermint
from thermint import Draws
from thermint.control.basis import size
from thermint.ladders import power


def normal_draws(d: int, draws: int, populations: int = 1, rungs: int = 51) -> Draws:
    """Draws of theta ~ N(0, I), y = 0 ~ N(theta, I / 4): the power posterior has precision 1 + 4 t."""
    ladder = power(rungs)
    rng = np.random.default_rng(0)
    theta = rng.standard_normal((populations, draws, rungs, d)) / np.sqrt(1 + 4 * ladder)[:, None]
    square = np.sum(theta**2, axis=-1)
    constant = 0.5 * d * np.log(2 * np.pi)
    return Draws(ladder, theta, -2 * square - constant + d * np.log(2), -0.5 * square - constant, -4 * theta, -theta)


def timings(repeats: int, sizes: list[tuple[int, int]]) -> None:
    print("   d  rungs  draws  features   first call   best of later calls")
    for d, degree in sizes:
        draws = normal_draws(d, 1000)
        times = []
        for _ in range(repeats + 1):
            begin = time.perf_counter()
            result = thermint.estimate(draws, degree=degree)
            times.append(time.perf_counter() - begin)
        assert result.mc_error < 1e-2
        features = size(d, degree)
        print(f"{d:4d} {51:6d} {1000:6d} {features:9d} {times[0]:10.3f} s {min(times[1:]):12.4f} s")


def peak_memory(draws: int) -> float:
    """Peak MiB of a process that runs the sampler for that many draws a rung, on the linear model with 11 rungs."""
    code = (
        "import thermint as t; "
        f"t.evidence(t.paper.linear.model(), reference='prior', ladder=11, populations=1, draws={draws}); "
        "print(next(l for l in open('/proc/self/status') if l.startswith('VmHWM')).split()[1])"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    return float(output) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description="speed and memory of the estimators")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="small sizes only, for CI")
    options = parser.parse_args()
    print(f"thermint {thermint.__version__}: degree 2, second-order rule, cross-fitted, one population")
    timings(options.repeats, [(3, 2)] if options.quick else [(3, 2), (6, 2), (20, 2)])
    print("\ndraws a rung   peak MiB of the process   MiB of the draws, were they kept")
    for draws in (1000, 4000) if options.quick else (1000, 10_000, 100_000, 400_000):
        kept = draws * 11 * (3 * 3 + 2) * 8 / 2**20
        print(f"{draws:12,d} {peak_memory(draws):25.0f} {kept:34.1f}")


if __name__ == "__main__":
    main()
