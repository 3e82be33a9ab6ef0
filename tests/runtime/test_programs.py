"""Programs are compiled once for all devices, kept in bounded number, and forgotten on demand; keys are JAX's."""

import json
import os
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from thermint import Model
from thermint.model import evaluate, usable
from thermint.runtime import keys, programs


@pytest.fixture
def double(monkeypatch):
    """A program of no one else's, and the shapes it is traced for."""
    monkeypatch.setattr(programs, "_PROGRAMS", {})
    traced = []

    @programs.jit()
    def double(x: Array) -> Array:
        traced.append(x.shape)
        return 2 * x

    return double, traced


def test_programs_on_a_device_are_made_once_for_numpys_arrays_and_jaxs(double):
    call, traced = double
    device = jax.devices()[0]
    for x in (np.ones(3), jnp.ones(3), call(np.ones(3), device=device) / 2):
        assert call(x, device=device).tolist() == [2.0, 2.0, 2.0]
    assert len(programs._PROGRAMS) == len(traced) == 1


def test_static_arguments_and_types_are_part_of_a_program(monkeypatch):
    monkeypatch.setattr(programs, "_PROGRAMS", {})

    @programs.jit("power")
    def raised(x: Array, *, power: int) -> Array:
        return x**power

    device = jax.devices()[0]
    found = [raised(x, power=p, device=device).item() for x, p in ((2.0, 2), (2.0, 3), (np.float32(2), 3), (3, 2))]
    assert found == [4.0, 8.0, 8.0, 9]
    assert len(programs._PROGRAMS) == 4


def test_the_oldest_program_is_dropped(double, monkeypatch):
    monkeypatch.setattr(programs, "MAX_PROGRAMS", 2)
    call, _ = double
    for size in (1, 2, 3):
        call(np.ones(size), device=jax.devices()[0])
    keys: Any = list(programs._PROGRAMS)
    shapes = [kinds[0].shape for _, _, kinds, *_ in keys]
    assert shapes == [(2,), (3,)]
    programs.forget()
    assert not programs._PROGRAMS


COUNT = """
import json, sys
import jax, numpy as np
import thermint
from thermint.runtime.programs import jit
from thermint.runtime.setup import compiler_options

events = []
jax.monitoring.register_event_duration_secs_listener(lambda name, *_, **more: events.append(name))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)

@jit()
def solved(A):
    return jax.numpy.linalg.cholesky(A @ A.T) + jax.numpy.sin(A)

@jit()
def called(x):
    return jax.pure_callback(lambda x: np.asarray(x) + 1, jax.ShapeDtypeStruct((2,), float), x)

A = np.random.default_rng(0).standard_normal((20, 20))
compiler_options(1)  # compiles a trial
events.clear()
bits = {solved(A, device=device).__array__().tobytes().hex() for device in jax.devices()}
compiled = sum("backend_compile" in name for name in events)
found = [called(np.ones(2), device=device).tolist() for device in jax.devices()]
print(json.dumps([len(jax.devices()), sorted(bits), compiled, found]))
"""


def test_devices_share_one_program_also_where_jax_has_it_in_its_cache(tmp_path):
    environment = os.environ | {"THERMINT_CACHE": str(tmp_path), "JAX_NUM_CPU_DEVICES": "3"}
    ran = [
        json.loads(subprocess.check_output([sys.executable, "-c", COUNT], env=environment, text=True)) for _ in range(3)
    ]
    for number, bits, _, called in ran:
        assert number == 3
        assert bits == ran[0][1]
        assert len(bits) == 1
        assert called == [[2.0, 2.0]] * 3  # what calls Python cannot be copied, and is compiled for each
    # What JAX reads from its cache cannot be copied: the second process may compile for another device.
    assert ran[0][2] == 1


@pytest.mark.parametrize("seed", [0, 1, 12345, 2**40 + 7])
def test_keys_are_those_of_jax(seed):
    def same(ours: Array, theirs: Array) -> None:
        np.testing.assert_array_equal(jax.random.key_data(ours), jax.random.key_data(theirs))

    key = jax.random.key(seed)
    several = jax.random.split(key, 3)
    same(keys.key(seed), key)
    same(keys.split(key, 3), several)
    np.testing.assert_array_equal(keys.split(keys.key_data(key), 3), keys.key_data(several))
    same(keys.split(key, 2, first=1), several[1:])
    for number in (0, 1, 2**32 - 1):
        same(keys.fold_in(key, number), jax.random.fold_in(key, np.uint32(number)))
        same(keys.fold_in(several, number), jax.vmap(jax.random.fold_in, (0, None))(several, np.uint32(number)))


def normal(x: Array) -> Array:
    return -0.5 * jnp.sum(x**2) - 0.5 * x.size * jnp.log(2 * jnp.pi)


def test_unusable_states_are_the_same_in_numpy_and_jax():
    state = evaluate(Model(normal, normal, lambda key: jax.random.normal(key, (3,))), jnp.zeros(3))
    spoilt = [state, state._replace(log_prior=jnp.array(-jnp.inf)), state._replace(grad_log_prior=jnp.full(3, jnp.nan))]
    for one, expected in zip(spoilt, (True, False, False), strict=True):
        assert bool(usable(one)) is expected
        assert bool(usable(jax.tree.map(np.asarray, one))) is expected
