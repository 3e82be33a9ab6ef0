"""Populations on one device or on several have the same bits, and users who have chosen their devices keep them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from thermint.runtime import setup as _runtime

ROOT = Path(__file__).parent.parent
COUNTS = (1, 8)
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
    kernels = {"one mode": "mala", "two modes": "mmala", "with data": "mala", "mean and scale": "mala"}
    for name, kernel in kernels.items():
        answer = found["answers"][name]
        assert answer["devices"] == number
        assert answer["kernel"] == kernel
        assert answer["numbers"] == expected["answers"][name]["numbers"]


def test_all_devices_are_used_that_populations_suffice_for() -> None:
    assert on(8)["chosen"] == {
        "1": [1] * 16,
        "2": [1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2],
        "3": [1, 1, 3, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3],
        "8": [1, 1, 3, 2, 5, 3, 7, 4, 8, 5, 8, 6, 8, 7, 8, 8],
    }


def test_devices_have_the_data_and_their_populations() -> None:
    assert on(8)["moved"] == {
        "copies": [[i] for i in range(8)],
        "groups": [[2 * i, 2 * i + 1] for i in range(8)],
        "default device": True,
        "alone": 1,
    }


def test_one_program_runs_on_all_devices() -> None:
    """Compiled here: with a cache, programs may come from a file."""
    done = child(str(ROOT / "on_devices.py"), "ran on", JAX_NUM_CPU_DEVICES="8", THERMINT_CACHE="off")
    assert json.loads(done.stdout) == {"devices": list(range(8)), "compiled": ["jit(_advance)"]}


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
