"""Random numbers and states to move."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from moves import T, draw_chance
from targets import SKEWED_2

from thermint.kernels import Noise, mala
from thermint.model.evaluation import Evaluation, evaluate


@pytest.fixture
def noise() -> Noise:
    return draw_chance(np.random.default_rng(2), (2000,), 2, mala).noise


@pytest.fixture(scope="module")
def states() -> Evaluation:
    x = SKEWED_2.draw(np.random.default_rng(1), T, 2000)
    return jax.jit(jax.vmap(partial(evaluate, SKEWED_2.model)))(jnp.asarray(x))
