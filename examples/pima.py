"""Does age help to predict diabetes, once the other covariates are known? A log Bayes factor with an error bar.

Run it with ``make demo``, or one model alone with ``thermint evidence examples/pima.py:with_age``.
"""

from math import hypot

import thermint
from thermint.model.result import plus_minus

without_age = thermint.paper.pima.model(1)
with_age = thermint.paper.pima.model(2)

if __name__ == "__main__":
    results = {}
    for name, model in {"without age": without_age, "with age": with_age}.items():
        results[name] = thermint.evidence(model)
        print(f"{name}: {results[name]}\n")
    simple, full = results.values()
    log_bayes_factor = full.log_evidence - simple.log_evidence
    error = hypot(full.standard_error, simple.standard_error)
    truth = thermint.paper.pima.log_evidence(2) - thermint.paper.pima.log_evidence(1)
    print(f"log Bayes factor of age: {plus_minus(log_bayes_factor, error)}  (by tensor quadrature: {truth:.4f})")
