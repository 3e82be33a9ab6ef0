"""Run by `test_devices.py` on so many devices as JAX_NUM_CPU_DEVICES says; prints JSON."""

from __future__ import annotations

import json
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jax.tree_util import Partial
from targets import SKEWED_2

import thermint
from thermint import Model, devices
from thermint import population as pop
from thermint.kernels import mala
from thermint.swaps import even_odd

OPTIONS: dict[str, Any] = {"draws": 20, "populations": 16, "seed": 1, "progress": False}
SHORT: dict[str, Any] = OPTIONS | {"reference": "prior", "ladder": 5}  # few programs to compile


def two_modes() -> Model:
    """A likelihood that is large near two places, and a wide normal prior."""

    def log_likelihood(theta: jax.Array) -> jax.Array:
        return jnp.logaddexp(-0.5 * jnp.sum((theta - 2) ** 2) / 0.09, -0.5 * jnp.sum((theta + 2) ** 2) / 0.09)

    return Model(
        log_likelihood=log_likelihood,
        log_prior=lambda theta: -0.5 * theta @ theta / 4 - jnp.log(8 * jnp.pi),
        sample_prior=lambda key: 2 * jax.random.normal(key, (2,)),
    )


def with_data() -> Model:
    """A regression whose functions are bound to arrays, of the prior too."""
    X, width = jnp.linspace(-1, 1, 12).reshape(6, 2), jnp.array([1.0, 2.0])
    return Model(
        Partial(lambda X, theta: -0.5 * jnp.sum((X @ theta - 1) ** 2), X),
        Partial(lambda width, theta: jnp.sum(norm.logpdf(theta, 0, width)), width),
        Partial(lambda width, key: width * jax.random.normal(key, (2,)), width),
    )


def answers() -> dict[str, Any]:
    """Run models: one mode with mala, two with mmala, and one with data."""
    found = {}
    runs = {
        "one mode": (SKEWED_2.model, SHORT),
        "two modes": (two_modes(), OPTIONS | {"reference": "fitted"}),
        "with data": (with_data(), SHORT),
    }
    for name, (model, options) in runs.items():
        result = thermint.evidence(model, **options)
        found[name] = {
            "numbers": [result.log_evidence, result.standard_error, result.evaluations],
            "kernel": result.settings["kernel"],
            "devices": result.settings["devices"],
        }
    return found


def advanced() -> bool:
    """Say whether populations on all devices draw the bits that they draw on one."""
    ladder, populations = np.array([0.0, 0.3, 1.0]), 16
    keys = jax.random.split(jax.random.key(2), populations)
    states, deviation = pop.start(SKEWED_2.model, keys, ladder)
    begun = pop.begin(states, jnp.full((populations, len(ladder)), -1.0))
    factor = np.tile(np.diag(1 / deviation), (len(ladder), 1, 1))
    made = []
    for mesh in (None, devices.mesh_of(populations)):
        model = devices.repeat(SKEWED_2.model, mesh)
        options: Any = {"model": model, "kernel": mala, "swap": even_odd, "length": 10, "mesh": mesh}
        drawn = pop.advance(keys, begun, pop.rungs_of(ladder, factor), 0, 0.1, 7, **options)
        made.append(jax.tree.leaves(devices.host(drawn)))
    return all(map(np.array_equal, *made))


def chosen() -> dict[str, list[int]]:
    """Return how many devices are used for 1, 2, ... 16 populations, where there are 1, 2, 3 and 8."""
    every, found = jax.devices(), {}
    for number in (1, 2, 3, 8):
        with mock.patch.object(jax, "devices", return_value=every[:number]):
            meshes = [devices.mesh_of(populations) for populations in range(1, 17)]
        found[str(number)] = [1 if mesh is None else mesh.size for mesh in meshes]
    return found


def moved() -> dict[str, Any]:
    """Say where arrays are that were spread and repeated, and whether they come back."""
    mesh = devices.mesh_of(16)
    array: Any = np.arange(32.0).reshape(16, 2)
    there, everywhere = devices.spread(array, mesh), devices.repeat(array, mesh)
    keys = jax.random.split(jax.random.key(0), 16)
    with jax.default_device(jax.devices()[-1]):
        by_choice = devices.mesh_of(16)
        at = devices.spread(array, by_choice).devices()
    return {
        "shards": [list(shard.data.shape) for shard in there.addressable_shards],
        "copies": [list(shard.data.shape) for shard in everywhere.addressable_shards],
        "back": bool(np.array_equal(devices.host(there), array) and isinstance(devices.host(there), np.ndarray)),
        "stays": devices.spread(there, mesh) is there,
        "keys": len(devices.spread(keys, mesh).sharding.device_set),
        "default device": by_choice is None and at == {jax.devices()[-1]},
    }


if __name__ == "__main__":
    found = {"devices": jax.device_count(), "answers": answers(), "advanced": advanced()}
    if jax.device_count() == 8:
        found |= {"chosen": chosen(), "moved": moved()}
    print(json.dumps(found))
