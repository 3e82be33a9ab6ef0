"""Keys of JAX's random generator outside of programs, derived by NumPy: JAX would compile a program for each of these.

The keys are those that `jax.random.key`, `fold_in` and `split` give.
"""

from __future__ import annotations

from typing import TypeVar

import jax
import numpy as np
from jax import Array

K = TypeVar("K", bound=Array | np.ndarray)

# Threefry-2x32 (Salmon et al., 2011): 20 rounds, a part of the key added after every four.
ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)
PARITY = np.uint32(0x1BD11BDA)


def new(seed: int) -> Array:
    """Make the key of a seed, as `jax.random.key` does.

    >>> from thermint import keys
    >>> keys.new(0).shape, keys.children(keys.new(0), 3).shape
    ((), (3,))
    """
    return _wrapped(_words(seed))


def child(key: K, number: int) -> K:
    """Derive another key from a key, or from each of several, as `jax.random.fold_in` does; or `words` from words."""
    return _like(key, _threefry(words(key), _words(number)))


def children(key: K, number: int, first: int = 0) -> K:
    """Derive so many keys from a key, or from each of several, [..., number]: child(key, first), child(key, first + 1).

    From 0 on, these are what `jax.random.split` gives.
    """
    count = np.stack([_words(i) for i in range(first, first + number)])
    return _like(key, _threefry(words(key)[..., None, :], count))


def shape() -> jax.ShapeDtypeStruct:
    """Return shape and type of a key, to trace with."""
    return jax.eval_shape(jax.random.key, 0)


def _words(number: int) -> np.ndarray:
    """Split a number into two words of 32 bits."""
    return np.array([(number >> 32) & 0xFFFFFFFF, number & 0xFFFFFFFF], dtype=np.uint32)


def words(key: Array | np.ndarray) -> np.ndarray:
    """Return what a key is made of, or each of several: two words of 32 bits, [..., 2]. JAX takes a while for that."""
    return key if isinstance(key, np.ndarray) else np.asarray(jax.random.key_data(key))


def _like(key: K, data: np.ndarray) -> K:
    """Return words as what they were derived from: as keys, or as they are."""
    return data if isinstance(key, np.ndarray) else _wrapped(data)  # type: ignore[return-value]


def _wrapped(data: np.ndarray) -> Array:
    return jax.random.wrap_key_data(data, impl="threefry2x32")  # type: ignore[arg-type]


@np.errstate(over="ignore")  # words wrap around
def _threefry(key: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Encrypt counts by keys, each [..., 2]."""
    key, count = np.broadcast_arrays(key, count)
    parts = key[..., 0], key[..., 1], key[..., 0] ^ key[..., 1] ^ PARITY
    x, y = count[..., 0] + parts[0], count[..., 1] + parts[1]
    for i in range(5):
        for rotation in ROTATIONS[i % 2]:
            x = x + y
            y = (y << np.uint32(rotation) | y >> np.uint32(32 - rotation)) ^ x
        x, y = x + parts[(i + 1) % 3], y + parts[(i + 2) % 3] + np.uint32(i + 1)
    return np.stack([x, y], axis=-1)
