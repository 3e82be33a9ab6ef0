"""Run by `test_devices.py` on so many devices as JAX_NUM_CPU_DEVICES says; prints JSON."""

from __future__ import annotations

import json
import sys
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.stats import norm
from jax.tree_util import Partial
from targets import SKEWED_2

import thermint
from thermint import Model
from thermint.kernels import mala
from thermint.path.path import Path
from thermint.runtime import devices
from thermint.sampling import population as pop
from thermint.sampling.starts import begin, start_at_reference
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


def mean_and_scale() -> Model:
    """README's example: its chains go apart as soon as anything is rounded otherwise."""
    y = jnp.array([1.2, 0.8, 1.9, 1.4, 0.3, 1.1, 2.2, 0.9, 1.7, 0.6])
    return Model.from_prior(
        {"mean": dist.Normal(0, 10), "scale": dist.LogNormal(0, 1)},
        lambda p: dist.Normal(p["mean"], p["scale"]).log_prob(y).sum(),
    )


def answers() -> dict[str, Any]:
    """Run models: one mode with mala, two with mmala, one with data, and one that shows every rounding."""
    found = {}
    runs = {
        "one mode": (SKEWED_2.model, SHORT),
        "two modes": (two_modes(), OPTIONS | {"reference": "fitted"}),
        "with data": (with_data(), SHORT),
        "mean and scale": (mean_and_scale(), SHORT | {"draws": 300}),
    }
    for name, (model, options) in runs.items():
        result = thermint.evidence(model, **options)
        found[name] = {
            "numbers": [result.log_evidence, result.standard_error, result.evaluations],
            "kernel": result.settings["kernel"],
            "devices": result.settings["devices"],
        }
    return found


def chosen() -> dict[str, list[int]]:
    """Return how many devices are used for 1, 2, ... 16 populations, where there are 1, 2, 3 and 8."""
    every, found = jax.local_devices(), {}
    for number in (1, 2, 3, 8):
        with mock.patch.object(jax, "local_devices", return_value=every[:number]):
            found[str(number)] = [devices.device_layout(populations).size for populations in range(1, 17)]
    return found


def moved() -> dict[str, Any]:
    """Say where the data of a model are that was copied to all devices, and who runs what."""
    team = devices.device_layout(16)
    copies = team.put(with_data())
    with jax.default_device(jax.devices()[-1]):
        by_choice = devices.device_layout(16)
    return {
        "copies": [sorted({d.id for leaf in jax.tree.leaves(copy) for d in leaf.devices()}) for copy in copies],
        "groups": [part.tolist() for part in team.cut(np.arange(16))],
        "default device": by_choice.devices == (jax.devices()[-1],),
        "alone": devices.device_layout(16, alone=True).size,
    }


def ran_on() -> dict[str, list]:
    """Return where chunks are made, and how often the program that makes them is compiled."""
    compiled: list[str] = []

    def listen(event: str, duration_secs: float, **more: str | int) -> None:
        name = str(more.get("fun_name"))
        if "backend_compile" in event and "_advance" in name:
            compiled.append(name)

    jax.monitoring.register_event_duration_secs_listener(listen)
    engine = pop.engine_of(Path(SKEWED_2.model), 16, kernel=mala, swap=even_odd, length=3)
    ladder = np.array([0.0, 1.0])
    keys = jax.random.split(jax.random.key(2), 16)
    states, _ = start_at_reference(Path(SKEWED_2.model), keys, ladder)
    begun = begin(states, np.full((16, 2), -1.0))
    chunk = pop.launch(engine, keys, begun, pop.rungs_of(ladder, np.tile(np.eye(2), (2, 1, 1))), 0, 0.0, 3)
    return {"devices": [d.id for part in chunk.record for d in part.devices()], "compiled": compiled}


if __name__ == "__main__":
    if sys.argv[1:] == ["ran on"]:
        print(json.dumps(ran_on()))
        sys.exit()
    found = {"devices": jax.device_count(), "answers": answers()}
    if jax.device_count() == 8:
        found |= {"chosen": chosen(), "moved": moved()}
    print(json.dumps(found))
