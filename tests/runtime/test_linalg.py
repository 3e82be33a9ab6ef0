"""Small linear algebra against NumPy, below and above the size up to which it is written out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thermint.runtime.linalg import MAX_UNROLLED, cholesky, solve_lower, solve_lower_transposed


@pytest.mark.parametrize("d", [1, 2, 5, MAX_UNROLLED, MAX_UNROLLED + 1])
def test_against_numpy(d):
    rng = np.random.default_rng(d)
    root = rng.standard_normal((20, d, d))
    A, b = jnp.asarray(root @ root.mT + np.eye(d)), jnp.asarray(rng.standard_normal((20, d)))
    L = jnp.asarray(np.linalg.cholesky(A))
    np.testing.assert_allclose(jax.jit(jax.vmap(cholesky))(A), L, atol=1e-12)
    np.testing.assert_allclose(jax.vmap(solve_lower)(L, b), np.linalg.solve(L, b[..., None])[..., 0], atol=1e-11)
    np.testing.assert_allclose(
        jax.vmap(solve_lower_transposed)(L, b), np.linalg.solve(L.mT, b[..., None])[..., 0], atol=1e-11
    )


@pytest.mark.parametrize("d", [2, MAX_UNROLLED + 1])
def test_a_matrix_that_is_not_positive_definite_gives_nan(d):
    assert np.isnan(cholesky(jnp.eye(d).at[-1, -1].set(-1.0))).any()
