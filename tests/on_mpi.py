"""Run by `test_clusters.py` under mpiexec."""

import json

import mortal
from mpi4py.futures import MPIPoolExecutor
from test_clusters import LINEAR, OPTIONS

import thermint

if __name__ == "__main__":
    with MPIPoolExecutor() as executor:
        try:
            thermint.compare({"one": LINEAR, "odd": mortal.odd, "two": LINEAR}, executor=executor, **OPTIONS)
        except thermint.RunsFailedError as error:
            results = {name: result.log_evidence for name, result in error.results.items()}
            print(json.dumps({"results": results, "failed": str(error), "workers": executor.num_workers}))
