"""Differential equations: do people stay immune after an outbreak? Solved by diffrax, differentiated forwards.

Needs ``pip install "thermint[diffrax]"``. Run it with ``python examples/ode.py``.
"""

from dataclasses import replace

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import thermint

DAYS = np.arange(2.0, 41.0, 3.0)
STEP = 1.0  # constant: with adaptive steps, a wild proposal holds up all that are solved beside it


def velocity(day, state, p):
    """Shares of susceptible and infectious people; with "waning", those who have recovered become susceptible again."""
    s, i = state
    caught, recovered = p["spread"] * s * i, p["recovery"] * i
    return jnp.stack([p.get("waning", 0.0) * (1 - s - i) - caught, caught - recovered])


def infectious(p):
    """Share of infectious people on the observed days."""
    start, days = jnp.array([0.99, 0.01]), diffrax.SaveAt(ts=jnp.asarray(DAYS))
    how = (diffrax.ODETerm(velocity), diffrax.Tsit5(), 0.0, DAYS[-1], STEP)
    solution = diffrax.diffeqsolve(*how, start, p, saveat=days, adjoint=diffrax.ForwardMode())
    return solution.ys[:, 1]


def differentiated_forwards(f):
    """Give f(theta) a gradient by forward mode: for few parameters it is the quicker way."""
    g = jax.custom_jvp(f)

    @g.defjvp
    def _(primals, tangents):
        values, slopes = jax.vmap(lambda along: jax.jvp(f, primals, (along,)))(jnp.eye(len(primals[0])))
        return values[0], slopes @ tangents[0]

    return g


def model(prior):
    """Build a model of the observed shares, with normal errors of s.d. 0.01."""
    built = thermint.Model.from_prior(prior, lambda p: dist.Normal(infectious(p), 0.01).log_prob(share).sum())
    return replace(built, log_likelihood=differentiated_forwards(built.log_likelihood))


noise = 0.01 * np.random.default_rng(0).standard_normal(len(DAYS))
share = np.asarray(infectious({"spread": 0.6, "recovery": 0.2})) + noise
rates = {"spread": dist.LogNormal(-0.5, 0.5), "recovery": dist.LogNormal(-1.5, 0.5)}
lasting, waning = model(rates), model(rates | {"waning": dist.LogNormal(-3.0, 0.5)})

if __name__ == "__main__":
    print(thermint.compare({"lasting": lasting, "waning": waning}, draws=200))
