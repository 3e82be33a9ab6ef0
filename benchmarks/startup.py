"""Seconds of import, of compilation and of the first result on Pima, with an empty compilation cache and a full one.

``python -m benchmarks.startup`` starts each measurement in a new process. Import is that of thermint and of
arviz-stats, which thermint imports in its first call. Compilation is what the first
result takes longer than the second, from other random numbers: to trace, compile or load programs, check the prior.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile

CODE = """
import json, time
begin = time.perf_counter()
import thermint, arviz_stats.base
imported = time.perf_counter() - begin
model = thermint.paper.pima.model(2)
begin = time.perf_counter()
result = thermint.evidence(model, draws={draws})
first = time.perf_counter() - begin
begin = time.perf_counter()
thermint.evidence(model, draws={draws}, seed=1)
second = time.perf_counter() - begin
print(json.dumps([imported, first, second, result.log_evidence, result.standard_error]))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="import, compilation and first result")
    parser.add_argument("--draws", type=int, default=1000)
    draws = parser.parse_args().draws
    print(f"Pima model 2, default call but for {draws} draws; seconds in a new process")
    print("cache    import   first result   second result   compilation   log evidence")
    with tempfile.TemporaryDirectory() as cache:
        for name in ("empty", "full"):
            environment = os.environ | {"THERMINT_CACHE": cache}
            output = subprocess.run(
                [sys.executable, "-c", CODE.format(draws=draws)],
                env=environment,
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            imported, first, second, value, error = json.loads(output)
            print(
                f"{name:6} {imported:8.2f} {first:14.2f} {second:15.2f} {first - second:13.2f}"
                f"   {value:.4f} ± {error:.4f}"
            )


if __name__ == "__main__":
    main()
