"""Does it matter in what a model is written? Pima's second model in plain JAX, NumPyro, PyMC and Bambi.

python -m benchmarks.interop [--repeats 3] [--draws 1000] [--only numpyro ...]

For each: log evidence, error, what building the model and the first call (compilation) took, the CPU seconds of later
calls, and their ratio to plain JAX. All in one process, each in turn, so that the ratios share the machine's moods.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd

import thermint
from thermint.paper import pima

NUMBER = 2
SCALE = 1 / np.sqrt(pima.TAU)  # of the prior


def plain() -> thermint.Model:
    return pima.model(NUMBER)


def in_numpyro() -> thermint.Model:
    X, y = pima._data(NUMBER)
    columns = jnp.asarray(X.T.copy())

    def model() -> None:
        beta = numpyro.sample("beta", dist.Normal(jnp.zeros(X.shape[1]), SCALE).to_event(1))
        with numpyro.plate("people", len(y)):
            numpyro.sample("type", dist.Bernoulli(logits=beta @ columns), obs=y)

    return thermint.from_numpyro(model)


def in_pymc() -> thermint.Model:
    import pymc as pm

    X, y = pima._data(NUMBER)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0.0, SCALE, shape=X.shape[1])
        pm.Bernoulli("type", logit_p=beta @ X.T.copy(), observed=y.astype(int))
    return thermint.from_pymc(model)


def in_bambi() -> thermint.Model:
    import bambi

    X, y = pima._data(NUMBER)
    names = list(pima.COVARIATES[NUMBER])
    table = pd.DataFrame(X[:, 1:], columns=names).assign(type=y.astype(int))
    prior = bambi.Prior("Normal", mu=0, sigma=SCALE)
    priors = {"Intercept": prior, "common": prior}
    formula = f"type ~ {' + '.join(names)}"
    model = bambi.Model(formula, table, family="bernoulli", priors=priors, center_predictors=False)
    return thermint.from_bambi(model)


KINDS: dict[str, Callable[[], thermint.Model]] = {
    "plain": plain,
    "numpyro": in_numpyro,
    "pymc": in_pymc,
    "bambi": in_bambi,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--only", nargs="*", default=list(KINDS), choices=list(KINDS))
    options = parser.parse_args()
    print(f"Pima {NUMBER}, draws = {options.draws}, best of {options.repeats} later calls, seeds 0, 1, ...")
    print(f"truth {pima.log_evidence(NUMBER):.6f}")
    print(
        f"{'written in':12} {'log evidence':>14} {'error':>8} {'build s':>8} {'first s':>8} {'CPU s':>7} {'ratio':>6}"
    )
    models, first = {}, {}
    for name in options.only:
        start = time.perf_counter()
        models[name] = KINDS[name]()
        built = time.perf_counter()
        result = thermint.evidence(models[name], draws=options.draws, progress=False)
        first[name] = (result, built - start, time.perf_counter() - built)
    cpu: dict[str, list[float]] = {name: [] for name in models}
    for repeat in range(options.repeats):
        for name, model in models.items():
            start = time.process_time()
            thermint.evidence(model, draws=options.draws, seed=1 + repeat, progress=False)
            cpu[name].append(time.process_time() - start)
    reference = min(next(iter(cpu.values())))
    for name, (result, build, compiling) in first.items():
        print(
            f"{name:12} {result.log_evidence:14.6f} {result.standard_error:8.1g} {build:8.1f} {compiling:8.1f} "
            f"{min(cpu[name]):7.2f} {min(cpu[name]) / reference:6.2f}"
        )


if __name__ == "__main__":
    main()
