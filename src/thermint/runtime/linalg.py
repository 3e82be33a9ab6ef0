"""Cholesky factors and triangular solves of one small matrix, to be vmapped over many.

Batched, LAPACK's calls for matrices of a few rows cost more than their arithmetic, and as much as a fast likelihood.
Written out entry by entry, they fuse with what surrounds them and run over the whole batch at once.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache

import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import solve_triangular
from threadpoolctl import ThreadpoolController

# Rows. The unrolled program grows as their cube; beyond this it takes longer to compile than it saves.
MAX_UNROLLED = 8


def cholesky(A: Array) -> Array:
    """Lower Cholesky factor of a symmetric matrix; NaN where it is not positive definite."""
    d = len(A)
    if d > MAX_UNROLLED:
        return jnp.linalg.cholesky(A, symmetrize_input=False)
    L: list[list[Array]] = [[jnp.zeros(())] * d for _ in range(d)]
    for j in range(d):
        L[j][j] = jnp.sqrt(A[j, j] - sum(L[j][k] ** 2 for k in range(j)))
        for i in range(j + 1, d):
            L[i][j] = (A[i, j] - sum(L[i][k] * L[j][k] for k in range(j))) / L[j][j]
    return jnp.stack([jnp.stack(row) for row in L])


def solve_lower(L: Array, b: Array) -> Array:
    """Solve L x = b for a lower triangular L."""
    d = len(b)
    if d > MAX_UNROLLED:
        return solve_triangular(L, b, lower=True)
    x: list[Array] = []
    for i in range(d):
        x.append((b[i] - sum(L[i, k] * x[k] for k in range(i))) / L[i, i])
    return jnp.stack(x)


def solve_lower_transposed(L: Array, b: Array) -> Array:
    """Solve L' x = b for a lower triangular L."""
    d = len(b)
    if d > MAX_UNROLLED:
        return solve_triangular(L, b, lower=True, trans="T")
    x: list[Array] = [jnp.zeros(())] * d
    for i in reversed(range(d)):
        x[i] = (b[i] - sum(L[k, i] * x[k] for k in range(i + 1, d))) / L[i, i]
    return jnp.stack(x)


def one_thread() -> AbstractContextManager[None]:
    """Keep NumPy's and SciPy's linear algebra to one thread.

    For matrices of some hundred rows, threads that wait for a busy core made it 25 times slower.
    """
    return _blas().limit(limits=1, user_api="blas")


@cache
def _blas() -> ThreadpoolController:
    """Find the BLAS libraries, which takes a while, once."""
    return ThreadpoolController()
