"""Random numbers of the sampler: of the right distribution, and the same whatever else is drawn."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy import stats

from thermint.sampling.noise import Block, generator, noise

KEYS = jax.random.split(jax.random.key(1), 3)


@pytest.mark.parametrize("blocks", [(Block(3, 2, 2),), (Block(3, 2, 1), Block(1, 0, 2), Block(2, 5, 0))])
def test_iterations_do_not_depend_on_how_they_are_cut(blocks: tuple[Block, ...]) -> None:
    def assert_same(pieces: list[np.ndarray], whole: list[np.ndarray], start: int, stop: int) -> None:
        for piece, part in zip(pieces, whole, strict=True):
            np.testing.assert_array_equal(piece, part[:, start:stop])

    whole = noise(KEYS, 0, 100, *blocks)
    for first, number in ((0, 1), (7, 30), (99, 1)):
        assert_same(noise(KEYS, first, number, *blocks), whole, first, first + number)
    assert_same(noise(KEYS, 2**40 + 1, 1, *blocks), noise(KEYS, 2**40, 2, *blocks), 1, 2)


def test_blocks_follow_each_other_in_the_stream() -> None:
    (rows,) = noise(KEYS, 3, 4, Block(3, 2, 2))
    first, rest = noise(KEYS, 3, 4, Block(1, 2, 2), Block(2, 2, 2))
    np.testing.assert_array_equal(np.concatenate([first, rest], axis=2), rows)


def test_populations_do_not_depend_on_the_others() -> None:
    (together,) = noise(KEYS, 5, 10, Block(2, 1, 2))
    for i in range(3):
        np.testing.assert_array_equal(noise(KEYS[i : i + 1], 5, 10, Block(2, 1, 2))[0][0], together[i])
    assert len(np.unique(together)) == together.size


@pytest.mark.parametrize("block", [Block(1, 1, 2), Block(5, 6, 2), Block(2, 1, 4)])
def test_numbers_are_normal_and_uniform_and_independent(block: Block) -> None:
    rows, normals, uniforms = block
    (made,) = noise(KEYS, 0, 6000 // rows, block)
    columns = normals + uniforms
    assert made.shape == (3, 6000 // rows, rows, columns)
    normal, uniform = made[..., :normals], made[..., normals:]
    assert stats.kstest(normal.ravel(), "norm").pvalue > 1e-4
    assert stats.kstest(uniform.ravel(), "uniform").pvalue > 1e-4
    series = np.concatenate([normal, stats.norm.ppf(uniform)], axis=-1).reshape(-1, columns)
    neighbours = np.concatenate([series[:-1], series[1:]], axis=1)  # within an iteration or a rung, and to the next
    correlation = np.corrcoef(neighbours.T)[np.triu_indices(2 * columns, 1)]
    assert np.abs(correlation).max() < 5 / np.sqrt(len(neighbours))


def test_generators_of_different_keys_differ() -> None:
    a, b, again = (generator(key).standard_normal(4) for key in (KEYS[0], KEYS[1], KEYS[0]))
    np.testing.assert_array_equal(a, again)
    assert not np.any(a == b)
