"""The density of yes and no: against SciPy, and its derivatives in closed form."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from thermint.interop import logistic

LOGITS = np.array([-800.0, -30.0, -1.3, 0.0, 0.4, 40.0, 800.0])


def test_log_density() -> None:
    np.testing.assert_allclose(
        logistic.log_density(jnp.asarray(LOGITS), jnp.ones(7)), special.log_expit(LOGITS), atol=1e-12
    )
    np.testing.assert_allclose(
        logistic.log_density(jnp.asarray(LOGITS), jnp.zeros(7)), special.log_expit(-LOGITS), atol=1e-12
    )


def test_derivatives() -> None:
    p = special.expit(LOGITS)
    first, second = jax.grad(logistic.softplus), jax.grad(jax.grad(logistic.softplus))
    np.testing.assert_allclose(jax.vmap(first)(jnp.asarray(LOGITS)), p, rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(jax.vmap(second)(jnp.asarray(LOGITS)), p * (1 - p), rtol=1e-12, atol=1e-15)
