"""Cost of the whole sampler, per rung and draw, against a bare batched value-gradient-metric call on the same batch.

``python -m benchmarks.overhead`` measures both in one run, by turns, on Pima's model 2.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import thermint
from thermint.kernels import mmala
from thermint.ladders import power
from thermint.model import Evaluation, Model, evaluate
from thermint.paper import pima
from thermint.path.path import Path
from thermint.sampling import population as pop
from thermint.sampling.starts import begin, start_at_reference
from thermint.swaps import even_odd

LENGTH = 50  # iterations of one timed call


@partial(jax.jit, static_argnames=("model", "length"))
def bare(position: Array, *, model: Model, length: int) -> Evaluation:
    """Evaluate the model on a batch ``length`` times, at positions that change so that nothing can be skipped."""
    batched = jax.vmap(jax.vmap(partial(evaluate, model)))

    def step(now: Array, _: None) -> tuple[Array, Evaluation]:
        result = batched(now)
        return now + 1e-12 * result.grad_log_likelihood, result

    return jax.lax.scan(step, position, length=length)[1]


def seconds(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - begin


def measure(populations: int, repeats: int) -> tuple[float, float]:
    """Return microseconds per evaluation of the bare call and of the sampler: the best of several, taken by turns."""
    model, ladder = pima.model(2), power()
    keys = jax.random.split(jax.random.key(0), populations)
    states, deviation = start_at_reference(Path(model), keys, ladder)
    factor = np.tile(np.diag(1 / deviation), (len(ladder), 1, 1))
    population = begin(states, jnp.full((populations, len(ladder)), -1.0))

    engine = pop.engine_of(Path(model), populations, kernel=mmala, swap=even_odd, length=LENGTH)
    rungs = pop.rungs_of(ladder, factor)

    def sampler() -> Any:
        return pop.collect(pop.launch(engine, keys, population, rungs, 0, 0.0, LENGTH))

    def floor() -> Any:
        return bare(states.position, model=model, length=LENGTH)

    seconds(floor), seconds(sampler)  # compile
    times = np.array([(seconds(floor), seconds(sampler)) for _ in range(repeats)])
    evaluations = populations * len(ladder) * LENGTH
    best_floor, best_sampler = times.min(axis=0) / evaluations * 1e6
    return float(best_floor), float(best_sampler)


def main() -> None:
    parser = argparse.ArgumentParser(description="overhead of the sampler on Pima, model 2")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--populations", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64])
    options = parser.parse_args()
    print(f"thermint {thermint.__version__}, jax {jax.__version__}, {len(jax.devices())} device(s)")
    print(f"Pima model 2 (d=6, n=532), 51 rungs, mmala, even-odd swaps, chunks of {LENGTH}, best of {options.repeats}")
    print("populations   bare us/eval   sampler us/eval   ratio   draws/s (all rungs and populations)")
    for populations in options.populations:
        floor, sampler = measure(populations, options.repeats)
        print(f"{populations:11d} {floor:14.2f} {sampler:17.2f} {sampler / floor:7.2f} {1e6 / sampler:12,.0f}")


if __name__ == "__main__":
    main()
