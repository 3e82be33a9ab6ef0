"""Compiled programs are kept in files, found again by what they compute, and never taken for others."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from thermint import Model
from thermint.model import evaluate
from thermint.path import path
from thermint.runtime import keys, programs

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


def test_programs_are_made_once_for_numpys_arrays_and_jaxs(monkeypatch):
    made, found_or_made = [], programs._found_or_made

    def counted(*args):
        made.append(args)
        return found_or_made(*args)

    monkeypatch.setattr(programs, "_found_or_made", counted)
    monkeypatch.setattr(programs, "MOST", 1)
    model = model_of()
    again = path._evaluate_many(np.zeros((1, 2, 3)), model=model, level=0).position
    for at in (np.zeros((1, 2, 3)), jnp.zeros((1, 2, 3)), again):
        assert np.all(path.evaluate_many(model, at).log_prior == float(normal(jnp.zeros(3))))
    assert len(made) == 1
    path.evaluate_many(model, np.zeros((1, 4, 3)))  # and the first is forgotten
    path.evaluate_many(model, np.zeros((1, 2, 3)))
    assert len(made) == 3
    programs.forget()
    path.evaluate_many(model, np.zeros((1, 2, 3)))
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
