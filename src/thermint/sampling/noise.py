"""Random numbers of the sampler, made by NumPy: in a program, JAX's generator takes as long to compile as the rest.

Those of iteration n depend on a population's key and on n alone: every population has a stream of its own (Philox, a
generator that can go to any place of its stream at once), of which each iteration takes a piece of the same length.
"""

from __future__ import annotations

import numpy as np
from jax import Array
from scipy.special import ndtri

from thermint.runtime.keys import words

WORDS = 4  # numbers that Philox makes at once


def noise(keys: Array | np.ndarray, first: int, number: int, *, rungs: int, d: int) -> np.ndarray:
    """Draw what is random in so many iterations of each population, from the first on.

    Returns:
        [population, iteration, rung, d + 2]: d standard normal numbers, and two between 0 and 1.

    >>> import jax
    >>> from thermint.sampling.noise import noise
    >>> noise(jax.random.split(jax.random.key(0), 4), 100, 10, rungs=5, d=3).shape
    (4, 10, 5, 5)
    """
    size = rungs * (d + 2)
    steps = -(-size // WORDS)
    streams = map(_philox, words(keys))
    uniform = np.stack(
        [np.random.Generator(stream.advance(first * steps)).random((number, steps * WORDS)) for stream in streams]
    )
    made = uniform[..., :size].reshape(len(keys), number, rungs, d + 2)
    made[..., :d] = ndtri(np.maximum(made[..., :d], 2.0**-54))  # at 0 it is infinite
    return made


def generator(key: Array) -> np.random.Generator:
    """Make a generator of NumPy's from a key."""
    return np.random.Generator(_philox(words(key)))


def _philox(key: np.ndarray) -> np.random.Philox:
    """Make the stream of a key, given as two words of 32 bits."""
    high, low = key.tolist()
    return np.random.Philox(key=high << 32 | low)
