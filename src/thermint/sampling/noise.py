"""Random numbers of the sampler, made by NumPy: in a program, JAX's generator takes as long to compile as the rest.

Those of iteration n depend on a population's key and on n alone: every population has a stream of its own (Philox, a
generator that can go to any place of its stream at once), of which each iteration takes a piece of the same length.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jax import Array
from scipy.special import ndtri

from thermint.runtime.keys import key_data

WORDS = len(np.random.Philox(0).state["buffer"])  # numbers that Philox makes at once


class Block(NamedTuple):
    """Rows of random numbers, each of which starts with the normal ones."""

    rows: int
    normals: int  # standard normal numbers in each row
    uniforms: int  # numbers between 0 and 1

    @property
    def size(self) -> int:
        """Numbers in all rows."""
        return self.rows * (self.normals + self.uniforms)


def noise(keys: Array | np.ndarray, first: int, number: int, *blocks: Block) -> list[np.ndarray]:
    """Draw the random numbers of some iterations of each population.

    Args:
        keys: one for each population.
        first: number of the first iteration.
        number: of iterations.
        blocks: what each iteration needs.

    Returns:
        For each block, [population, iteration, row, normals + uniforms].

    >>> import jax
    >>> from thermint.sampling.noise import Block, noise
    >>> [moves] = noise(jax.random.split(jax.random.key(0), 4), 100, 10, Block(rows=5, normals=3, uniforms=2))
    >>> moves.shape
    (4, 10, 5, 5)
    """
    size = sum(block.size for block in blocks)
    steps = -(-size // WORDS)
    streams = map(_philox, key_data(keys))
    uniform = np.stack(
        [np.random.Generator(stream.advance(first * steps)).random((number, steps * WORDS)) for stream in streams]
    )
    made, edge = [], 0
    for block in blocks:
        part = uniform[..., edge : edge + block.size].reshape(len(keys), number, block.rows, -1)
        normal = part[..., : block.normals]
        normal[...] = ndtri(np.maximum(normal, 2.0**-54))  # at 0 it is infinite
        made.append(part)
        edge += block.size
    return made


def generator(key: Array) -> np.random.Generator:
    """Make a generator of NumPy's from a key."""
    return np.random.Generator(_philox(key_data(key)))


def _philox(key: np.ndarray) -> np.random.Philox:
    """Make the stream of a key, given as two words of 32 bits."""
    high, low = key.tolist()
    return np.random.Philox(key=high << 32 | low)
