"""Expected information: against the Monte Carlo average of the score's outer product, and by hand for Pima."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

from thermint.interop import fisher
from thermint.paper import pima

# Distribution, its information, and parameters.
FAMILIES = {
    "normal": (lambda p: dist.Normal(p[0], p[1]), fisher.normal, [0.3, 1.7]),
    "log-normal": (lambda p: dist.LogNormal(p[0], p[1]), fisher.normal, [0.3, 0.7]),
    "student": (lambda p: dist.StudentT(p[0], p[1], p[2]), fisher.student_t, [3.5, 0.2, 1.4]),
    "bernoulli logits": (lambda p: dist.Bernoulli(logits=p[0]), fisher.bernoulli_logits, [0.8]),
    "bernoulli probs": (lambda p: dist.Bernoulli(probs=p[0]), fisher.bernoulli_probs, [0.3]),
    "poisson": (lambda p: dist.Poisson(p[0]), fisher.poisson, [2.3]),
    "exponential": (lambda p: dist.Exponential(p[0]), fisher.exponential, [2.3]),
    "gamma": (lambda p: dist.Gamma(p[0], p[1]), fisher.gamma, [2.5, 0.6]),
    "negative binomial": (lambda p: dist.NegativeBinomial2(p[0], p[1]), fisher.negative_binomial, [3.0, 1.5]),
    "large counts": (lambda p: dist.NegativeBinomial2(p[0], p[1]), fisher.negative_binomial, [600.0, 1.5]),
    "categorical logits": (lambda p: dist.Categorical(logits=p), fisher.categorical_logits, [0.3, -0.5, 1.0]),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_information_is_the_expected_outer_product_of_the_score(family):
    make, information, values = FAMILIES[family]
    p = jnp.asarray(values)
    y = make(p).sample(jax.random.key(1), (400_000,))
    score = jax.jit(jax.vmap(jax.grad(lambda p, y: make(p).log_prob(y)), (None, 0)))
    s = np.asarray(score(p, y))
    products = s[:, :, None] * s[:, None, :]
    error = products.std(axis=0) / np.sqrt(len(s))
    np.testing.assert_array_less(abs(products.mean(axis=0) - information(p)), 4 * error + 1e-12)
    # The test would notice a wrong factor.
    diagonal = np.diagonal(information(p))
    assert np.all(np.diagonal(error) < 0.03 * diagonal)


@pytest.mark.parametrize(("mean", "tolerance"), [(1.0, 1e-10), (100.0, 1e-4), (1000.0, 0.05)])
@pytest.mark.parametrize("concentration", [0.5, 2.0, 20.0])
def test_negative_binomial_by_the_whole_sum(mean, tolerance, concentration):
    """The sum over k of P(y > k) / (c + k)^2, to its end."""
    k = np.arange(200_000)
    above = stats.nbinom.sf(k, concentration, concentration / (concentration + mean))
    exact = np.sum(above / (concentration + k) ** 2) - mean / (concentration * (concentration + mean))
    found = fisher.negative_binomial(jnp.array([mean, concentration]))[1, 1]
    np.testing.assert_allclose(found, exact, rtol=tolerance)


def test_probabilities_of_categories():
    """Through the softmax, the information about probabilities is that about logits."""
    logits = jnp.array([0.3, -0.5, 1.0])
    by_probs = fisher.pull_back(lambda x: jax.nn.softmax(x)[None], fisher.categorical_probs)(logits)
    np.testing.assert_allclose(by_probs, fisher.categorical_logits(logits), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("small", [0, 2**16])  # up to which products of derivatives are made first
def test_pulled_back_to_pima(small, monkeypatch):
    monkeypatch.setattr(fisher, "SMALL", small)
    X = jnp.asarray(pima._data(2)[0])
    beta = jnp.linspace(-0.5, 0.5, X.shape[1])
    ours = jax.jit(fisher.pull_back(lambda beta: (X @ beta)[:, None], fisher.bernoulli_logits))(beta)
    by_hand = pima.model(2).metric
    assert by_hand is not None
    np.testing.assert_allclose(ours, by_hand(beta)[0], rtol=1e-10)


@pytest.mark.parametrize("small", [0, 2**16])
def test_many_axes_of_observations_are_summed(small, monkeypatch):
    monkeypatch.setattr(fisher, "SMALL", small)
    p = jax.random.normal(jax.random.key(0), (4, 3, 2))

    def parameters(theta):
        return jnp.stack([p[..., 0] * theta[0], jnp.exp(p[..., 1] * theta[1])], axis=-1)

    theta = jnp.array([0.5, -0.3])
    each = [_one(parameters, i, j)(theta) for i in range(4) for j in range(3)]
    np.testing.assert_allclose(fisher.pull_back(parameters, fisher.normal)(theta), np.sum(each, axis=0), rtol=1e-12)


def _one(parameters, i, j):
    return fisher.pull_back(lambda theta: parameters(theta)[i, j], fisher.normal)
