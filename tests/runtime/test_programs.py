"""Compiled programs are kept in files, found again by what they compute, and never taken for others."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from thermint import Model
from thermint.kernels import mala
from thermint.model import evaluate
from thermint.path.reference import make_mixture, with_reference
from thermint.runtime import computes, keys, programs
from thermint.sampling import population

DATA = np.array([0.3, 1.7, -0.4])


def normal(x: Array) -> Array:
    return -0.5 * jnp.sum(x**2) - 0.5 * x.size * jnp.log(2 * jnp.pi)


def model_of(data: np.ndarray = DATA, **changes: object) -> Model:
    plain = Model(
        log_likelihood=lambda theta: normal(theta - data),
        log_prior=normal,
        sample_prior=lambda key: jax.random.normal(key, (3,)),
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def name_of(model: Model) -> str:
    return programs._of_model(model, jax.devices()[0])


def sign_flipped(rule: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """A likelihood whose gradient is what the rule says, though its value is the same."""

    @jax.custom_jvp
    def likelihood(theta: Array) -> Array:
        return normal(theta)

    likelihood.defjvp(lambda at, along: (likelihood(*at), jnp.vdot(rule(at[0]), along[0])))
    return likelihood


def test_what_computes_the_same_has_the_same_name():
    assert name_of(model_of()) == name_of(model_of(DATA.copy()))


@pytest.mark.parametrize(
    "other",
    [
        model_of(np.nextafter(DATA, 2.0)),
        model_of(log_prior=lambda x: normal(x) + 1e-15),
        model_of(sample_prior=lambda key: 2 * jax.random.normal(key, (3,))),
        model_of(batch=7),
        model_of(differentiable=False),
        model_of(metric=lambda theta: (jnp.eye(3), jnp.eye(3))),
    ],
)
def test_what_computes_something_else_has_another_name(other):
    assert name_of(other) != name_of(model_of())


def test_gradients_of_ones_own_are_part_of_the_name():
    right, wrong = (model_of(log_likelihood=sign_flipped(rule)) for rule in (lambda x: -x, lambda x: x))
    assert name_of(right) != name_of(wrong)


def looped(number: int) -> Callable[[Array], Array]:
    return lambda theta: jax.lax.fori_loop(0, number, lambda _, x: x * 0.9, jnp.sum(theta))


def inner(constant: object, factor: float = 0.3) -> Callable[[Array], Array]:
    """A likelihood with a function within, which has constants of its own."""
    return lambda theta: jnp.sum(jax.jit(lambda x: x * jnp.asarray(constant) * factor)(theta))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (inner(DATA), inner(np.nextafter(DATA, 2.0))),
        (inner(jnp.asarray(DATA)), inner(jnp.asarray(2 * DATA))),
        (inner(DATA), inner(DATA, np.nextafter(0.3, 1.0).item())),
        (inner(DATA), inner(DATA.astype(np.float32))),
        (looped(3), looped(4)),
        (lambda theta: theta[0] - theta[1], lambda theta: theta[1] - theta[0]),
        (lambda theta: theta[0] * theta[1], lambda theta: theta[0] * theta[2]),
        (lambda theta: jnp.sum(theta[::2]), lambda theta: jnp.sum(theta[:2])),
        (lambda theta: jnp.sum(jnp.cumsum(theta)), lambda theta: jnp.sum(jnp.cumsum(theta[::-1])[::-1])),
    ],
)
def test_anything_that_differs_in_what_is_computed_gives_another_name(one, other):
    names = {name_of(model_of(log_likelihood=f)) for f in (one, other)}
    assert len(names) == 2
    assert name_of(model_of(log_likelihood=one)) in names


def test_what_has_no_description_is_known_by_its_lowered_form(monkeypatch):
    def refuse(text: str) -> str:
        raise computes.UnknownError

    def digest(data: np.ndarray) -> str:
        return computes.digest(jax.jit(inner(data)).trace(np.ones(3)))

    described = digest(DATA)
    monkeypatch.setattr(computes, "stable", refuse)
    assert digest(DATA) == digest(DATA.copy()) != described
    assert digest(DATA) != digest(np.nextafter(DATA, 2.0))


@pytest.mark.parametrize("text", ["<function f at 0x7f31ba6c5800>", "array([0., 1., ..., 9.])"])
def test_descriptions_that_leave_something_out_are_refused(text):
    with pytest.raises(computes.UnknownError):
        computes.stable(text)


def test_references_of_one_shape_share_a_name_and_other_models_do_not():
    def fitted(data: np.ndarray, components: int, mean: float) -> str:
        weight = np.full(components, 1 / components)
        mixture = make_mixture(weight, np.full((components, 3), mean), np.tile(np.eye(3), (components, 1, 1)))
        return name_of(with_reference(model_of(data), mixture))

    assert fitted(DATA, 1, 0.0) == fitted(DATA, 1, 0.5)
    assert len({fitted(DATA, 1, 0.0), fitted(DATA, 2, 0.0), fitted(2 * DATA, 1, 0.0)}) == 3


def test_callbacks_and_kernels_of_ones_own_are_not_kept():
    def called(theta: Array) -> Array:
        return jax.pure_callback(lambda x: np.sum(x), jax.ShapeDtypeStruct((), float), theta, vmap_method="sequential")

    with pytest.raises(programs.UnknownError):
        name_of(model_of(log_likelihood=called, differentiable=False))
    assert programs._name(mala) == "thermint.kernels.mala.mala"
    with pytest.raises(programs.UnknownError):
        programs._name(lambda *arguments: mala(*arguments))


RUN = """
import json, sys
import jax, jax.numpy as jnp, numpy as np
from jax import monitoring
compiled = []
monitoring.register_event_duration_secs_listener(lambda name, *_, **more: compiled.append(name))
import thermint
from thermint.paper import pima

if sys.argv[1:]:  # as where several processes run one program: JAX keeps it
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    thermint.runtime.programs._path = lambda *_: None
light = pima.model(1)
calls_lapack = thermint.Model(
    lambda theta: jnp.linalg.slogdet(jnp.eye(2) + jnp.outer(theta, theta))[1] - jnp.linalg.cholesky(jnp.eye(2))[0, 0],
    lambda theta: -0.5 * jnp.sum(theta**2) - jnp.log(2 * jnp.pi),
    lambda key: jax.random.normal(key, (2,)),
)
found = []
for model in (light, calls_lapack):
    position = np.linspace(-1, 1, 6 * model.dimension).reshape(2, 3, -1)
    found.append(thermint.sampling.population.evaluate_all(model, position).grad_log_likelihood.tolist())
number = sum("backend_compile" in name for name in compiled)
print(json.dumps([*found, number]))
"""


def process(cache: Path, *arguments: str) -> tuple[list, list, int]:
    """Run two programs in a new process: their results, and how many programs were compiled."""
    import os

    environment = os.environ | {"THERMINT_CACHE": str(cache)}
    made = subprocess.run([sys.executable, "-c", RUN, *arguments], env=environment, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    return tuple(json.loads(made.stdout))


def test_another_process_finds_programs_and_gets_the_same_bits(tmp_path):
    first, second = process(tmp_path), process(tmp_path)
    assert first[:2] == second[:2]
    assert first[2] >= 2
    assert second[2] == 0
    # Files that are damaged are as good as none.
    damaged, _ = tmp_path.rglob("_evaluate_all-*")
    damaged.write_bytes(damaged.read_bytes()[:1000])
    third = process(tmp_path)
    assert third[:2] == first[:2]
    assert 1 <= third[2] < first[2]


def test_programs_that_jax_has_in_its_own_cache_are_not_written_again(tmp_path):
    expected = process(tmp_path, "left to JAX")
    for _ in range(2):
        assert process(tmp_path)[:2] == expected[:2]
    assert not list(tmp_path.rglob("_evaluate_all-*"))


def test_programs_are_made_once_for_numpys_arrays_and_jaxs(monkeypatch):
    made, found_or_made = [], programs._found_or_made

    def counted(*args):
        made.append(args)
        return found_or_made(*args)

    monkeypatch.setattr(programs, "_found_or_made", counted)
    monkeypatch.setattr(programs, "MOST", 1)
    model = model_of()
    again = population._evaluate_all(np.zeros((1, 2, 3)), model=model, level=0).position
    for at in (np.zeros((1, 2, 3)), jnp.zeros((1, 2, 3)), again):
        assert np.all(population.evaluate_all(model, at).log_prior == float(normal(jnp.zeros(3))))
    assert len(made) == 1
    population.evaluate_all(model, np.zeros((1, 4, 3)))  # and the first is forgotten
    population.evaluate_all(model, np.zeros((1, 2, 3)))
    assert len(made) == 3
    programs.forget()
    population.evaluate_all(model, np.zeros((1, 2, 3)))
    assert len(made) == 4


@pytest.mark.parametrize("seed", [0, 1, 12345, 2**40 + 7])
def test_keys_are_those_of_jax(seed):
    def same(ours: Array, theirs: Array) -> None:
        np.testing.assert_array_equal(jax.random.key_data(ours), jax.random.key_data(theirs))

    key = jax.random.key(seed)
    several = jax.random.split(key, 3)
    same(keys.new(seed), key)
    same(keys.children(key, 3), several)
    for number in (0, 1, 2**32 - 1):
        same(keys.child(key, number), jax.random.fold_in(key, np.uint32(number)))
        same(keys.child(several, number), jax.vmap(jax.random.fold_in, (0, None))(several, np.uint32(number)))


def test_unusable_states_are_the_same_in_numpy_and_jax():
    from thermint.model import usable

    state = evaluate(model_of(), jnp.zeros(3))
    spoilt = [state, state._replace(log_prior=jnp.array(-jnp.inf)), state._replace(grad_log_prior=jnp.full(3, jnp.nan))]
    for one, expected in zip(spoilt, (True, False, False), strict=True):
        assert bool(usable(one)) is expected
        assert bool(usable(jax.tree.map(np.asarray, one))) is expected
