"""The exchange of states between rungs: right pairs, right probability, invariant product of power posteriors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from targets import SKEWED, Target, features, paired_z

from thermint.sampling.population import Swap
from thermint.swaps import even_odd, log_ratio, random_pair, random_pairs

LADDER = np.array([0.0, 0.1, 0.35, 0.6, 1.0])
MANY = 20_000  # replicas, everywhere, so that few programs are compiled

swaps = pytest.mark.parametrize("swap", [even_odd, random_pair, random_pairs], ids=lambda swap: swap.__name__)


@partial(jax.jit, static_argnames="swap")
def _orders(uniform: Array, g: Array, ladder: Array, iteration: Array, *, swap: Swap) -> Array:
    return jax.vmap(swap, (0, 0, None, None))(uniform, g, ladder, iteration)


def orders(swap: Swap, g: np.ndarray, ladder: np.ndarray, iteration: int, seed: int = 0) -> np.ndarray:
    """Swap many replicas g[n, rung] independently: permutations [n, rung]."""
    uniform = np.random.default_rng(seed).random(g.shape)
    return np.asarray(_orders(uniform, jnp.asarray(g), jnp.asarray(ladder), jnp.asarray(iteration), swap=swap))


def probability(g: np.ndarray, i: int, j: int) -> float:
    """The Metropolis rule for the product of the power posteriors, spelled out."""
    now = LADDER[i] * g[i] + LADDER[j] * g[j]
    then = LADDER[i] * g[j] + LADDER[j] * g[i]
    return min(1.0, math.exp(then - now))


@pytest.mark.parametrize(
    ("swap", "rungs"), [(even_odd, 2), (even_odd, 4), (even_odd, 5), (random_pair, 2), (random_pair, 5)]
)
def test_swap_is_a_permutation_that_is_its_own_inverse(swap: Swap, rungs: int) -> None:
    g = np.random.default_rng(rungs).normal(0, 3, (MANY, rungs))
    moved = 0
    for iteration in (6, 7):
        order = orders(swap, g, LADDER[:rungs], iteration)
        np.testing.assert_array_equal(np.sort(order, axis=1), np.broadcast_to(np.arange(rungs), order.shape))
        np.testing.assert_array_equal(np.take_along_axis(order, order, axis=1), np.sort(order, axis=1))
        moved += np.sum(order != np.arange(rungs))
    assert moved > MANY / 2


@pytest.mark.parametrize(
    ("rungs", "iteration", "pairs"),
    [
        (5, 0, [(0, 1), (2, 3)]),
        (5, 1, [(1, 2), (3, 4)]),
        (4, 2, [(0, 1), (2, 3)]),
        (4, 3, [(1, 2)]),
        (2, 0, [(0, 1)]),
        (2, 1, []),
    ],
)
def test_even_odd_exchanges_its_pairs_and_no_others(rungs: int, iteration: int, pairs: list[tuple[int, int]]) -> None:
    want = np.arange(rungs)
    for i, j in pairs:
        want[[i, j]] = j, i
    # Equal likelihoods are always exchanged; likelihoods that increase with t hardly ever.
    assert np.all(orders(even_odd, np.zeros((MANY, rungs)), LADDER[:rungs], iteration) == want)
    up = np.tile(1e6 * np.arange(rungs), (MANY, 1))
    assert np.all(orders(even_odd, up, LADDER[:rungs], iteration) == np.arange(rungs))


def test_random_pair_exchanges_one_pair_of_all_with_equal_chance() -> None:
    order = orders(random_pair, np.zeros((MANY, 5)), LADDER, 0)
    pairs = list(itertools.combinations(range(5), 2))
    for i, j in pairs:
        want = np.arange(5)
        want[[i, j]] = j, i
        share = np.mean(np.all(order == want, axis=1))
        assert abs(share - 1 / len(pairs)) < 4.5 * math.sqrt(0.1 * 0.9 / MANY)
    assert np.all(np.sum(order != np.arange(5), axis=1) == 2)  # equal likelihoods are always exchanged
    order = orders(random_pair, np.random.default_rng(0).normal(0, 3, (MANY, 5)), LADDER, 0)
    assert set(np.unique(np.sum(order != np.arange(5), axis=1))) == {0, 2}


G = np.array([-3.0, -2.2, -4.0, -3.1, -1.2])


@pytest.mark.parametrize("iteration", [0, 1])
def test_even_odd_accepts_with_the_metropolis_probability(iteration: int) -> None:
    order = orders(even_odd, np.tile(G, (MANY, 1)), LADDER, iteration)
    lower = range(iteration, 4, 2)
    accepted = {i: order[:, i] == i + 1 for i in lower}
    for i in lower:
        p = probability(G, i, i + 1)
        assert abs(accepted[i].mean() - p) <= 4.5 * math.sqrt(p * (1 - p) / MANY)
    i, j = lower
    # Each pair has a random number of its own.
    joint, p = np.mean(accepted[i] & accepted[j]), probability(G, i, i + 1) * probability(G, j, j + 1)
    assert abs(joint - p) <= 4.5 * math.sqrt(p * (1 - p) / MANY)
    assert sum(0.2 < probability(G, i, i + 1) < 0.95 for i in range(4)) >= 2


def test_random_pair_accepts_with_the_metropolis_probability() -> None:
    order = orders(random_pair, np.tile(G, (MANY, 1)), LADDER, 0)
    for i, j in itertools.combinations(range(5), 2):
        p = 0.1 * probability(G, i, j)
        assert abs(np.mean(order[:, i] == j) - p) < 4.5 * math.sqrt(p * (1 - p) / MANY)


def test_log_ratio_is_that_of_the_product() -> None:
    for i, j in itertools.product(range(5), repeat=2):
        ratio = float(log_ratio(jnp.asarray(G), jnp.asarray(LADDER), jnp.asarray(i), jnp.asarray(j)))
        assert math.exp(min(0.0, ratio)) == pytest.approx(probability(G, i, j), rel=1e-12)


@swaps
def test_zero_and_nan_likelihoods_do_not_climb(swap: Swap) -> None:
    g = np.tile(G, (MANY, 1))
    g[:, 2] = np.nan
    for bad in (-np.inf, np.nan):
        g[:, 0] = bad
        for iteration in (0, 1):
            order = orders(swap, g, LADDER, iteration)
            assert np.all(order[:, [0, 2]] == [0, 2])
            assert np.any(order != np.arange(5)) or (swap is even_odd and iteration == 0)
    # The other way round is a gain: a state without likelihood leaves the higher rung for the prior.
    assert np.all(orders(even_odd, np.tile([-1.0, -np.inf], (MANY, 1)), LADDER[:2], 0) == [1, 0])


# --- Invariance, and what breaks it ---


def swap_z(swap: Swap, target: Target, seen: Callable[[np.ndarray], np.ndarray] = lambda g: g) -> float:
    """Largest change, in standard errors, that swaps make to exact draws from all rungs: each rung and products.

    Args:
        swap: the swap.
        target: whose power posteriors are swapped.
        seen: what the swap gets to see of the log likelihoods g[replica, rung]; the wrong thing for a broken twin.
    """
    rng = np.random.default_rng(3)
    x = np.stack([target.draw(rng, t, MANY) for t in LADDER], axis=1)  # [replica, rung, d]
    g = np.asarray(jax.jit(jax.vmap(jax.vmap(target.model.log_likelihood)))(x))
    rows = np.arange(MANY)[:, None]
    order = np.broadcast_to(np.arange(len(LADDER)), g.shape)
    for sweep in range(4):
        order = np.take_along_axis(order, orders(swap, seen(g[rows, order]), LADDER, sweep, seed=sweep), axis=1)
    assert np.mean(order != np.arange(len(LADDER))) > 0.2

    def moments(x: np.ndarray) -> np.ndarray:
        own = [features(target, t, x[:, rung]) for rung, t in enumerate(LADDER)]
        centred = np.stack([x[:, rung, 0] - target.mean(t)[0] for rung, t in enumerate(LADDER)], axis=1)
        i, j = np.triu_indices(len(LADDER), 1)
        return np.concatenate([*own, centred[:, i] * centred[:, j]], axis=1)

    return paired_z(moments(x), moments(x[rows, order]))


BROKEN: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "sign flipped": lambda g: -g,
    "accepts always": lambda g: 0 * g,
    "t too close": lambda g: 0.5 * g,
    "likelihood of the rung below": lambda g: np.roll(g, 1, axis=1),
}


@swaps
def test_swap_leaves_the_product_of_power_posteriors_invariant(swap: Swap) -> None:
    assert swap_z(swap, SKEWED) < 4.5


@swaps
@pytest.mark.parametrize("seen", BROKEN.values(), ids=BROKEN.keys())
def test_broken_twin_does_not(swap: Swap, seen: Callable[[np.ndarray], np.ndarray]) -> None:
    assert swap_z(swap, SKEWED, seen) > 8
