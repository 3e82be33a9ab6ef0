"""Expected information of common distributions, and of a model whose observations have them.

If the observations' distribution has parameters p(theta), the Fisher information of the likelihood is J' F J, summed
over the observations: F is the distribution's information about p, and J the Jacobian of p.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import polygamma

# Counts up to which the negative binomial's information is summed exactly: that about means of up to 100 is then right
# to 1e-4 (with half as many, to 5e-3 only), and that about means of 1000 to 4 %, enough for a metric.
COUNTS = 256
# Entries of the products of all derivatives, up to which they are made first: where the parameters are linear in theta,
# XLA makes them once for all points. On Pima this takes a fifth of the time.
SMALL = 2**16

Information = Callable[[Array], Array]  # from parameters [..., k] to their information [..., k, k]


def pull_back(parameters: Callable[[Array], Array], information: Information) -> Callable[[Array], Array]:
    """Make the Fisher information of theta from that of the parameters of each observation.

    Args:
        parameters: ``theta[d] -> p[..., k]``, with any axes for the observations.
        information: of one observation's parameters.

    Returns:
        ``theta[d] -> [d, d]``.

    Example:
        >>> import jax.numpy as jnp
        >>> from thermint.interop import fisher
        >>> X = jnp.array([[1.0, 0.5], [1.0, -0.5]])
        >>> of_beta = fisher.pull_back(lambda beta: (X @ beta)[:, None], fisher.bernoulli_logits)
        >>> of_beta(jnp.zeros(2)).tolist()
        [[0.5, 0.0], [0.0, 0.125]]
    """

    def fisher(theta: Array) -> Array:
        J = _stacked(jax.jacfwd(parameters)(theta))
        F = _stacked(information(parameters(theta)))
        n, k, d = J.shape
        if n * (k * d) ** 2 <= SMALL:
            return jnp.tensordot(F, J[:, :, None, :, None] * J[:, None, :, None, :], axes=3)
        return (F @ J).reshape(n * k, d).T @ J.reshape(n * k, d)

    return fisher


def _stacked(x: Array) -> Array:
    """All observations on one axis before the last two."""
    return x.reshape(-1, *x.shape[-2:])


def _matrix(rows: list[list[Array]]) -> Array:
    """Stack entries [...] to matrices [..., k, k]."""
    return jnp.stack([jnp.stack(jnp.broadcast_arrays(*row), axis=-1) for row in rows], axis=-2)


def _diagonal(entries: Array) -> Array:
    """Make diagonal matrices [..., k, k] of entries [..., k]."""
    return entries[..., None] * jnp.eye(entries.shape[-1])


def normal(p: Array) -> Array:
    """Information about (loc, scale) of a normal, or of the normal inside a log-normal."""
    return _diagonal(jnp.array([1.0, 2.0]) * p[..., 1:] ** -2.0)


def student_t(p: Array) -> Array:
    """Information about (df, loc, scale) of Student's t."""
    f, scale = p[..., 0], p[..., 2]
    df = (polygamma(1, f / 2) - polygamma(1, (f + 1) / 2)) / 4 - (f + 5) / (2 * f * (f + 1) * (f + 3))
    cross = -2 / (scale * (f + 1) * (f + 3))
    zero = jnp.zeros_like(f)
    return _matrix(
        [
            [df, zero, cross],
            [zero, (f + 1) / ((f + 3) * scale**2), zero],
            [cross, zero, 2 * f / ((f + 3) * scale**2)],
        ]
    )


def bernoulli_logits(p: Array) -> Array:
    """Information about (logits,) of one trial."""
    probability = jax.nn.sigmoid(p)
    return _diagonal(probability * (1 - probability))


def bernoulli_probs(p: Array) -> Array:
    """Information about (probs,) of one trial."""
    return _diagonal(1 / (p * (1 - p)))


def poisson(p: Array) -> Array:
    """Information about (rate,)."""
    return _diagonal(1 / p)


def exponential(p: Array) -> Array:
    """Information about (rate,)."""
    return _diagonal(p**-2.0)


def gamma(p: Array) -> Array:
    """Information about (concentration, rate)."""
    concentration, rate = p[..., 0], p[..., 1]
    return _matrix([[polygamma(1, concentration), -1 / rate], [-1 / rate, concentration / rate**2]])


def negative_binomial(p: Array) -> Array:
    """Information about (mean, concentration).

    That about the concentration c is  sum over k of P(y > k) / (c + k)^2  -  mean / (c (c + mean)). Counts beyond
    `COUNTS` are taken together.
    """
    mean, c = p[..., 0], p[..., 1]
    odds = mean / (mean + c)

    def add(carry: tuple[Array, Array, Array, Array], k: Array) -> tuple[tuple[Array, Array, Array, Array], None]:
        mass, above, mean_above, total = carry  # P(y = k), P(y >= k), E[y; y >= k]
        above, mean_above = above - mass, mean_above - k * mass
        total += above / (c + k) ** 2
        return (mass * odds * (k + c) / (k + 1), above, mean_above, total), None

    start = (jnp.exp(c * jnp.log1p(-odds)), jnp.ones_like(mean), mean, jnp.zeros_like(mean))
    (_, above, mean_above, total), _ = jax.lax.scan(add, start, jnp.arange(float(COUNTS)))
    above = jnp.maximum(above, 0.0)
    typical = jnp.maximum(mean_above / jnp.where(above > 1e-12, above, 1.0), COUNTS)  # of the counts beyond
    total += above * (1 / (c + COUNTS) - 1 / (c + typical))
    about_c = jnp.maximum(total - mean / (c * (c + mean)), 0.0)
    return _diagonal(jnp.stack([c / (mean * (mean + c)), about_c], axis=-1))


def categorical_logits(p: Array) -> Array:
    """Information about the logits of all categories."""
    probability = jax.nn.softmax(p)
    return _diagonal(probability) - probability[..., :, None] * probability[..., None, :]


def categorical_probs(p: Array) -> Array:
    """Information about the probabilities of all categories, which sum to one."""
    return _diagonal(1 / p)
