"""Keys of JAX's random generator, derived by NumPy.

They are the keys that functions of the same names in `jax.random` give. JAX compiles a program for each of these
functions: in a first call that takes 0.13 s of CPU time if it finds them in its cache, and 0.4 s else; here 0.002 s.

A function that is given key data, [..., 2], returns key data, which costs less than JAX's typed keys.
"""

from __future__ import annotations

from typing import TypeVar

import jax
import numpy as np
from jax import Array

K = TypeVar("K", bound=Array | np.ndarray)


def key(seed: int) -> Array:
    """Make the key of a seed.

    >>> from thermint.runtime import keys
    >>> keys.key(0).shape, keys.split(keys.key(0), 3).shape
    ((), (3,))
    """
    return _typed(_halves(seed))


def fold_in(key: K, number: int) -> K:
    """Derive another key from a key, or from each of several."""
    return _like(key, _threefry(key_data(key), _halves(number)))


def split(key: K, n: int, first: int = 0) -> K:
    """Split a key, or each of several, into n keys, [..., n]: those of counters ``first``, ``first`` + 1, ..."""
    counters = np.stack([_halves(i) for i in range(first, first + n)])
    return _like(key, _threefry(key_data(key)[..., None, :], counters))


def key_data(key: Array | np.ndarray) -> np.ndarray:
    """Return the two 32-bit words of a key, or of each of several, [..., 2]."""
    return key if isinstance(key, np.ndarray) else np.asarray(jax.random.key_data(key))


def shape() -> jax.ShapeDtypeStruct:
    """Return shape and type of a key, to trace with."""
    return jax.eval_shape(jax.random.key, 0)


def _halves(number: int) -> np.ndarray:
    return np.array([(number >> 32) & 0xFFFFFFFF, number & 0xFFFFFFFF], dtype=np.uint32)


def _like(key: K, data: np.ndarray) -> K:
    return data if isinstance(key, np.ndarray) else _typed(data)  # type: ignore[return-value]


def _typed(data: np.ndarray) -> Array:
    return jax.random.wrap_key_data(data, impl="threefry2x32")  # type: ignore[arg-type]


@np.errstate(over="ignore")  # words wrap around
def _threefry(key: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Encrypt counters by keys, each [..., 2], by Threefry-2x32 of 20 rounds (Salmon et al., 2011)."""
    rotations = (13, 15, 26, 6), (17, 29, 16, 24)
    key, count = np.broadcast_arrays(key, count)
    parts = key[..., 0], key[..., 1], key[..., 0] ^ key[..., 1] ^ np.uint32(0x1BD11BDA)
    x, y = count[..., 0] + parts[0], count[..., 1] + parts[1]
    for i in range(5):
        for rotation in rotations[i % 2]:
            x = x + y
            y = (y << np.uint32(rotation) | y >> np.uint32(32 - rotation)) ^ x
        x, y = x + parts[(i + 1) % 3], y + parts[(i + 2) % 3] + np.uint32(i + 1)
    return np.stack([x, y], axis=-1)
