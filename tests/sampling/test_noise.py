"""Random numbers of the sampler: of the right distribution, and the same whatever else is drawn."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy import stats

from thermint.sampling.noise import generator, noise

KEYS = jax.random.split(jax.random.key(1), 3)


def test_iterations_do_not_depend_on_how_they_are_cut() -> None:
    whole = noise(KEYS, 0, 100, rungs=3, d=2)
    for first, number in ((0, 1), (7, 30), (99, 1)):
        piece = noise(KEYS, first, number, rungs=3, d=2)
        np.testing.assert_array_equal(piece, whole[:, first : first + number])
    np.testing.assert_array_equal(
        noise(KEYS, 2**40, 2, rungs=3, d=2)[:, 1], noise(KEYS, 2**40 + 1, 1, rungs=3, d=2)[:, 0]
    )


def test_populations_do_not_depend_on_the_others() -> None:
    together = noise(KEYS, 5, 10, rungs=2, d=1)
    for i in range(3):
        np.testing.assert_array_equal(noise(KEYS[i : i + 1], 5, 10, rungs=2, d=1)[0], together[i])
    assert len(np.unique(together)) == together.size


@pytest.mark.parametrize(("rungs", "d"), [(1, 1), (5, 6)])
def test_numbers_are_normal_and_uniform_and_independent(rungs: int, d: int) -> None:
    made = noise(KEYS, 0, 6000 // rungs, rungs=rungs, d=d)
    assert made.shape == (3, 6000 // rungs, rungs, d + 2)
    normal, uniform = made[..., :d], made[..., d:]
    assert stats.kstest(normal.ravel(), "norm").pvalue > 1e-4
    assert stats.kstest(uniform.ravel(), "uniform").pvalue > 1e-4
    columns = np.concatenate([normal, stats.norm.ppf(uniform)], axis=-1).reshape(-1, d + 2)
    neighbours = np.concatenate([columns[:-1], columns[1:]], axis=1)  # within an iteration or a rung, and to the next
    correlation = np.corrcoef(neighbours.T)[np.triu_indices(2 * (d + 2), 1)]
    assert np.abs(correlation).max() < 5 / np.sqrt(len(neighbours))


def test_generators_of_different_keys_differ() -> None:
    a, b, again = (generator(key).standard_normal(4) for key in (KEYS[0], KEYS[1], KEYS[0]))
    np.testing.assert_array_equal(a, again)
    assert not np.any(a == b)
