"""Populations on one device or on several have the same bits, and users who have chosen their devices keep them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from thermint import _runtime, devices

ROOT = Path(__file__).parent
COUNTS = (1, 2, 8)
SETTINGS = ("JAX_NUM_CPU_DEVICES", "XLA_FLAGS")


def child(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    """Run Python with settings of its own."""
    inherited = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    inherited["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, *arguments], env=inherited | environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done


@cache
def on(number: int) -> dict[str, Any]:
    """Run `on_devices` on so many."""
    return json.loads(child(str(ROOT / "on_devices.py"), JAX_NUM_CPU_DEVICES=str(number)).stdout)


@pytest.mark.parametrize("number", COUNTS)
def test_any_number_of_devices_gives_the_same_bits(number: int) -> None:
    found, expected = on(number), on(1)
    assert found["devices"] == number
    for name, kernel in {"one mode": "mala", "two modes": "mmala", "with data": "mala"}.items():
        answer = found["answers"][name]
        assert answer["devices"] == number
        assert answer["kernel"] == kernel
        assert answer["numbers"] == expected["answers"][name]["numbers"]


@pytest.mark.parametrize("number", COUNTS[1:])
def test_a_chunk_has_the_same_bits_with_a_mesh_and_without(number: int) -> None:
    assert on(number)["advanced"]


def test_devices_have_equal_shares() -> None:
    assert on(8)["chosen"] == {
        "1": [1] * 16,
        "2": [1, 1, 1, 2, 1, 1, 1, 2, 1, 1, 1, 2, 1, 1, 1, 2],
        "3": [1, 1, 3, 2, 1, 3, 1, 2, 3, 1, 1, 3, 1, 1, 3, 2],
        "8": [1, 1, 3, 2, 5, 3, 7, 4, 3, 5, 1, 6, 1, 7, 5, 8],
    }


def test_arrays_go_to_the_devices_and_come_back() -> None:
    assert on(8)["moved"] == {
        "shards": [[2, 2]] * 8,
        "copies": [[16, 2]] * 8,
        "back": True,
        "stays": True,
        "keys": 8,
        "default device": True,
    }


def test_one_device_needs_no_mesh() -> None:
    tree: dict[str, Any] = {"a": np.arange(3.0)}
    for put in (devices.spread, devices.repeat):
        there = put(tree, None)["a"]
        assert isinstance(there, jax.Array)
        np.testing.assert_array_equal(devices.host(there), tree["a"])


@pytest.mark.parametrize("populations", range(1, 17))
def test_groups_are_equal(populations: int) -> None:
    assert populations % devices.group_of(populations) == 0
    assert devices.group_of(populations) <= 2


LATE = """
import json, warnings
import jax
jax.devices()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import thermint
from on_devices import SKEWED_2, SHORT
result = thermint.evidence(SKEWED_2.model, **SHORT)
numbers = [result.log_evidence, result.standard_error, result.evaluations]
said = [str(warning.message) for warning in caught]
print(json.dumps([said, result.settings["devices"], numbers]))
"""


def test_jax_that_has_started_keeps_its_devices_and_a_warning_says_so() -> None:
    said, number, numbers = json.loads(child("-c", LATE).stdout)
    assert number == 1
    assert numbers == on(1)["answers"]["one mode"]["numbers"]
    if _runtime.cores() == 1:
        assert said == []
        return
    assert len(said) == 1
    assert "JAX was started before thermint was imported, with 1 CPU device(s)" in said[0]
    assert "The answers are the same. To have all cores, import thermint before JAX is used." in said[0]


COUNT = "import thermint, jax; print(jax.device_count())"


@pytest.mark.parametrize(
    ("settings", "number"),
    [
        ({"XLA_FLAGS": "--xla_force_host_platform_device_count=3"}, 3),
        ({"JAX_NUM_CPU_DEVICES": "3"}, 3),
        ({}, _runtime.cores()),
    ],
)
def test_users_choose_the_number_of_devices(settings: dict[str, str], number: int) -> None:
    assert int(child("-W", "error::UserWarning", "-c", COUNT, **settings).stdout) == number
