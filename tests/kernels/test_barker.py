"""Barker proposals: robust where steps along the gradient are not."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from thermint import Model
from thermint.kernels import Kernel, Noise, Params, barker, mala
from thermint.kernels.base import draw_noise, traits_of
from thermint.model.evaluation import Evaluation, evaluate

D, MOVES = 3, 200
STEEP = Model(lambda x: -jnp.sum(x**4), lambda x: jnp.zeros(()), lambda key: jax.random.normal(key, (D,)))


@pytest.mark.parametrize(("kernel", "comes"), [(barker, True), (mala, False)])
def test_barker_comes_home_where_mala_stays(kernel: Kernel, comes: bool) -> None:
    """From far out in a steep density, where a step along the gradient flies off to the other side and farther."""
    params = Params(jnp.asarray(0.5), jnp.eye(D), jnp.eye(D))
    see = partial(evaluate, STEEP)

    @jax.jit
    def run(x: Array) -> Array:
        noise = draw_noise(jax.random.key(0), (MOVES,), D, traits_of(kernel))

        def move(state: Evaluation, one: Noise) -> tuple[Evaluation, None]:
            return kernel(one, state, jnp.asarray(1.0), params, see)[0], None

        return jax.lax.scan(move, see(x), noise)[0].position

    end = run(jnp.full(D, 10.0))
    assert (np.abs(end).max() < 2) == comes
