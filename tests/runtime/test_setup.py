"""Programs are compiled with options that this version of XLA knows, and once."""

import os
import subprocess
import sys
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import pytest
from jax import Array

from thermint.runtime import setup as _runtime
from thermint.runtime.programs import jit


@pytest.fixture
def other_options(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(_runtime, "COMPILER_OPTIONS", {"xla_of_the_future": True, "xla_backend_optimization_level": 1})
    _runtime.compiler_options.cache_clear()
    yield
    _runtime.compiler_options.cache_clear()


def test_all_options_are_known_to_this_version():
    """But for one that the XLA of JAX 0.12 has no more."""
    gone = {"xla_cpu_use_fusion_emitters"} if jax.__version_info__ >= (0, 12) else set()
    usual = {name: value for name, value in _runtime.COMPILER_OPTIONS.items() if name not in gone}
    assert _runtime.compiler_options(1) == usual
    assert _runtime.compiler_options(0) == usual | _runtime.UNOPTIMISED


@pytest.mark.usefixtures("other_options")
def test_options_that_xla_does_not_know_are_left_out():
    assert _runtime.compiler_options(1) == {"xla_backend_optimization_level": 1}
    assert jit()(lambda x: 2 * x)(jnp.ones(())) == 2.0


def test_a_program_is_traced_once_for_each_static_argument():
    traced = []

    @jit("power")
    def raised(x: Array, *, power: int) -> Array:
        traced.append(power)
        return x**power

    assert [float(raised(jnp.array(x), power=power)) for x, power in ((2.0, 2), (3.0, 2), (2.0, 3))] == [4.0, 9.0, 8.0]
    assert traced == [2, 3]
    jax.clear_caches()
    assert float(raised(jnp.array(2.0), power=2)) == 4.0


def test_another_process_finds_compiled_programs(tmp_path):
    code = """if True:
        import jax, thermint
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # however fast this machine compiles
        events = []
        jax.monitoring.register_event_listener(lambda event, **_: events.append(event.rpartition("/")[2]))
        thermint.sample(thermint.paper.linear.model(), ladder=3, draws=10, populations=2)
        print(events.count("cache_hits"), events.count("cache_misses"))
        """
    environment = os.environ | {"THERMINT_CACHE": str(tmp_path)}
    (hits, misses), (found, compiled) = (
        map(int, subprocess.check_output([sys.executable, "-c", code], env=environment, text=True).split())
        for _ in range(2)
    )
    assert misses > 0
    assert compiled == 0
    assert found == hits + misses  # a program may be asked for twice
