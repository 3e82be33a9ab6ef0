"""A likelihood in plain NumPy: an enzyme's rate, with no gradient and with one by finite differences.

The function could as well call a simulator or a compiled library. Run it with ``python examples/black_box.py``.
"""

import numpy as np
import numpyro.distributions as dist

import thermint

NOISE = 0.1
rng = np.random.default_rng(1)
concentration = np.linspace(0.2, 6.0, 15)
rate = 2.0 * concentration / (1.5 + concentration) + NOISE * rng.standard_normal(15)


def log_likelihood(p):
    """Michaelis and Menten's law, normal errors. With ``vectorised=True``, p holds a batch: arrays [points]."""
    expected = p["fastest"][:, None] * concentration / (p["half"][:, None] + concentration)
    return np.sum(-0.5 * ((rate - expected) / NOISE) ** 2 - np.log(NOISE * np.sqrt(2 * np.pi)), axis=1)


prior = {"fastest": dist.LogNormal(0.0, 1.0), "half": dist.LogNormal(0.0, 1.0)}
walking = thermint.from_numpy(prior, log_likelihood, vectorised=True)
sloping = thermint.from_numpy(prior, log_likelihood, vectorised=True, finite_differences=True)

if __name__ == "__main__":
    print("with no gradient:", thermint.evidence(walking, draws=500), sep="\n")
    print("with differences:", thermint.evidence(sloping, draws=500), sep="\n")
