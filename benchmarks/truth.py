"""The evidence of Goodwin's oscillator by importance sampling from a Student-t fitted to the posterior.

python -m benchmarks.truth [--species 3] [--draws 600000]

A likelihood takes a fraction of a millisecond without sensitivities: ten minutes for either number of species.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TextIO

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from thermint.paper import goodwin

FREEDOM = 6.0  # degrees of the Student-t
WIDER = 1.1  # than the posterior
BATCH = 2000  # points that are solved side by side
CHUNK = 100_000
CLIMB = 60  # steps to a mode, from each of so many places
PLACES = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--species", type=int, default=3, choices=(3, 4))
    parser.add_argument("--draws", type=int, default=600_000)
    options = parser.parse_args()
    os.environ.setdefault("EQX_ON_ERROR", "off")
    mean, factor = _mode(options.species)
    factor *= WIDER
    for pilot, share in enumerate((150, 30, 15)):
        theta, log_weight = _sample(options.species, mean, factor, options.draws // share, seed=pilot)
        weight = special.softmax(log_weight)
        mean = weight @ theta
        covariance = (theta - mean).T @ ((theta - mean) * weight[:, None])
        factor = WIDER * np.sqrt(1 - 2 / FREEDOM) * np.linalg.cholesky(covariance)
        _report(log_weight, sys.stderr)
    print(f"g = {options.species}, Student-t with {FREEDOM:.0f} degrees of freedom")
    log_weights = []
    for first in range(0, options.draws, CHUNK):
        number = min(CHUNK, options.draws - first)
        log_weights.append(_sample(options.species, mean, factor, number, seed=1000 + first)[1])
        _report(np.concatenate(log_weights), sys.stdout)


def _report(log_weight: np.ndarray, file: TextIO) -> None:
    weight = np.exp(log_weight - log_weight.max())
    value, error = np.log(weight.mean()) + log_weight.max(), weight.std() / weight.mean() / np.sqrt(len(weight))
    print(f"{len(weight)} draws: log evidence {value:.5f} ± {error:.5f}", file=file, flush=True)


def _mode(g: int) -> tuple[np.ndarray, np.ndarray]:
    """Climb by damped scoring from places around the parameters that made the data; the Laplace approximation."""
    model = goodwin.model(g)

    @jax.jit
    def joint(theta: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        parts = goodwin.likelihood(theta)
        log_prior, slope = jax.value_and_grad(model.log_prior)(theta)
        return parts.value + log_prior, parts.gradient + slope, parts.fisher + jnp.diag(jnp.exp(theta))

    made = np.log([1.0, 3.0, 2.0, *[1.0] * (g - 2), 0.5])
    tops = []
    for place in range(PLACES):
        theta, damping = made + 0.3 * (place > 0) * np.random.default_rng(place).standard_normal(g + 2), 0.01
        here = joint(theta)
        for _ in range(CLIMB):
            step = np.linalg.solve(here[2] + damping * np.diag(np.diag(here[2])), here[1])
            there = joint(theta + step)
            if there[0] > here[0]:
                theta, here, damping = theta + step, there, damping / 5
            else:
                damping *= 4
        tops.append((float(here[0]), theta, np.asarray(here[2])))
    _, theta, curvature = max(tops, key=lambda top: top[0])
    return theta, np.linalg.cholesky(np.linalg.inv(curvature))


def _sample(g: int, mean: np.ndarray, factor: np.ndarray, number: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw from the Student-t, [number, d], with the log of posterior over its density, [number]."""
    model, random, d = goodwin.model(g), np.random.default_rng(seed), g + 2
    joint = jax.jit(jax.vmap(lambda theta: model.log_likelihood(theta) + model.log_prior(theta)))
    constant = special.gammaln((FREEDOM + d) / 2) - special.gammaln(FREEDOM / 2) - d / 2 * np.log(FREEDOM * np.pi)
    thetas, log_weights = [], []
    for _ in range(0, number, BATCH):
        normal = random.standard_normal((BATCH, d))
        z = normal / np.sqrt(random.chisquare(FREEDOM, (BATCH, 1)) / FREEDOM)
        log_density = constant - (FREEDOM + d) / 2 * np.log1p(np.sum(z**2, axis=1) / FREEDOM)
        thetas.append(mean + z @ factor.T)
        log_weights.append(np.asarray(joint(thetas[-1])) - log_density + np.log(np.diag(factor)).sum())
    return np.concatenate(thetas), np.concatenate(log_weights)


if __name__ == "__main__":
    main()
