"""Peak memory of a run against its number of draws: it should not grow.

``python -m benchmarks.memory`` runs Pima 2 with 10 000 and with 1 000 000 draws a rung, each in a new process, which
takes some minutes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

CODE = """
import json, resource
import thermint
result = thermint.evidence(thermint.paper.pima.model(2), draws={draws}, progress=False)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps([peak, result.seconds, result.log_evidence, result.standard_error]))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--draws", type=int, nargs="+", default=[10_000, 1_000_000])
    parser.add_argument("--quick", action="store_true", help="1000 and 20 000 draws")
    options = parser.parse_args()
    print("Pima model 2, 4 populations, default call; each in a new process")
    print("draws a rung   peak MiB   ratio   seconds   log evidence (truth -259.857601)")
    first = None
    for draws in [1000, 20_000] if options.quick else options.draws:
        code = [sys.executable, "-c", CODE.format(draws=draws)]
        output = subprocess.run(code, capture_output=True, text=True, check=True).stdout
        peak, seconds, value, error = json.loads(output)
        first = first or peak
        print(f"{draws:12,} {peak:10.0f} {peak / first:7.2f} {seconds:9.1f}   {value:.8f} ± {error:.2g}", flush=True)


if __name__ == "__main__":
    main()
