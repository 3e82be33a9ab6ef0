"""The whole ladder: chunks, populations, rung 0, frozen and moving step sizes, stationarity, and the warm-up."""

from __future__ import annotations

import math
from functools import cache, partial
from itertools import islice
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from scipy import stats
from targets import NORMAL, SKEWED_2, Target, features, paired_z

from thermint import Model, population as pop
from thermint.draws import Draws
from thermint.kernels import Kernel, mala, mmala, random_walk
from thermint.model import Evaluation, evaluate
from thermint.population import Population, Swap
from thermint.sampler import make_sampler
from thermint.swaps import even_odd
from thermint.warmup import GAINS, ROUNDS, Tuned, concatenate, precision_factor_of, warmup

LADDER = np.array([0.0, 0.1, 0.4, 1.0])
KERNELS = (mmala, mala, random_walk)


def keys_of(populations: int, seed: int = 0) -> Array:
    return jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(seed), jnp.arange(populations))


@partial(jax.jit, static_argnames="model")
def evaluate_all(x: Array, *, model: Model) -> Evaluation:
    """Evaluate positions [population, rung, d]."""
    return jax.vmap(jax.vmap(partial(evaluate, model)))(x)


def exact_start(target: Target, populations: int, ladder: np.ndarray = LADDER, log_step: float = 0.0) -> Population:
    """Independent exact draws at all rungs."""
    rng = np.random.default_rng(7)
    x = np.stack([target.draw(rng, t, populations) for t in ladder], axis=1)
    return Population(evaluate_all(jnp.asarray(x), model=target.model), jnp.full(x.shape[:2], log_step))


def true_factors(target: Target, ladder: np.ndarray = LADDER) -> Array:
    return jnp.asarray(np.stack([np.linalg.cholesky(np.linalg.inv(target.covariance(t))) for t in ladder]))


def advance(
    start: Population,
    model: Model,
    length: int,
    *,
    keys: Array | None = None,
    factors: Array | None = None,
    ladder: np.ndarray = LADDER,
    iteration: int = 0,
    gain: float = 0.0,
    kernel: Kernel = mmala,
    swap: Swap = even_odd,
) -> tuple[Population, Draws]:
    populations, rungs, d = start.state.position.shape
    return pop.advance(
        keys_of(populations) if keys is None else keys,
        start,
        jnp.broadcast_to(jnp.eye(d), (rungs, d, d)) if factors is None else factors,
        jnp.asarray(ladder),
        np.int64(iteration),
        np.float64(gain),
        model=model,
        kernel=kernel,
        swap=swap,
        length=length,
    )


def take(tree: Any, index: Any) -> Any:
    return jax.tree.map(lambda a: a[index], tree)


def assert_close(a: Any, b: Any, atol: float) -> None:
    jax.tree.map(partial(np.testing.assert_allclose, atol=atol), a, b)


# --- Chunks and populations ---


def test_chunks_of_any_length_give_the_same_draws() -> None:
    start = exact_start(NORMAL, 3)
    end, whole = advance(start, NORMAL.model, 12, gain=0.1)
    pieces, now = [], start
    for iteration in (0, 4, 8):
        now, piece = advance(now, NORMAL.model, 4, iteration=iteration, gain=0.1)
        pieces.append(piece)
    assert_close(concatenate(pieces), whole, atol=1e-12)
    assert_close(now, end, atol=1e-12)
    # It is the number of the iteration that tells draws apart.
    _, again = advance(start, NORMAL.model, 4, iteration=4, gain=0.1)
    assert np.all(np.asarray(again.position != pieces[0].position).any(axis=(1, 3)))


def test_draws_of_a_population_do_not_depend_on_the_others() -> None:
    start, keys = exact_start(NORMAL, 3), keys_of(3)
    end, draws = advance(start, NORMAL.model, 12, keys=keys, gain=0.1)
    for i in range(3):
        alone_end, alone = advance(take(start, slice(i, i + 1)), NORMAL.model, 12, keys=keys[i : i + 1], gain=0.1)
        assert_close(alone._replace(ladder=draws.ladder), draws.map_series(i) if False else alone, atol=0)
        for name, series in draws._series().items():
            np.testing.assert_allclose(getattr(alone, name)[0], series[i], atol=1e-9)
        assert_close(take(alone_end, 0), take(end, i), atol=1e-9)
    assert np.all(np.asarray(draws.position[0] != draws.position[1]).any(axis=(0, 2)))  # each has its own key
