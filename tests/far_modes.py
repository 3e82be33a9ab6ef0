"""Two normals far apart under a wide normal prior, found once for all tests of the search."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from thermint import Model
from thermint.path.path import Path
from thermint.runtime.session import Session
from thermint.sampling.options import SamplerOptions
from thermint.sampling.sampler import Sampler, make_sampler
from thermint.search.modes import Chains
from thermint.search.refinement import FittedPath, refine_reference
from thermint.search.scout import Scout, scout

D, POPULATIONS, PRIOR = 4, 2, 4.0
CENTRES = np.outer([-3.0, 3.0], np.ones(D))
WEIGHTS, WIDTHS = np.array([0.3, 0.7]), np.array([0.4, 1.0])
OPTIONS = SamplerOptions(POPULATIONS)


def log_likelihood(theta: jax.Array) -> jax.Array:
    square = jnp.sum((theta - CENTRES) ** 2, axis=1)
    return jax.nn.logsumexp(np.log(WEIGHTS) - D / 2 * np.log(2 * np.pi * WIDTHS**2) - square / (2 * WIDTHS**2))


MODEL = Model(
    log_likelihood,
    lambda theta: -D / 2 * np.log(2 * np.pi * PRIOR**2) - jnp.sum(theta**2) / (2 * PRIOR**2),
    lambda key: PRIOR * jax.random.normal(key, (D,)),
    normalised=True,
)
TOTAL = WIDTHS**2 + PRIOR**2
EACH = np.log(WEIGHTS) - D / 2 * np.log(2 * np.pi * TOTAL) - np.sum(CENTRES**2, axis=1) / (2 * TOTAL)
LOG_EVIDENCE = float(special.logsumexp(EACH))
# The posterior is a mixture too.
POSTERIOR_WEIGHT = special.softmax(EACH)
POSTERIOR_MEAN = CENTRES * (PRIOR**2 / TOTAL)[:, None]
POSTERIOR_WIDTH = np.sqrt(WIDTHS**2 * PRIOR**2 / TOTAL)


@cache
def scouted(seed: int) -> Scout:
    return scout(MODEL, OPTIONS, jax.random.key(seed), Session())


@cache
def settled(seed: int) -> FittedPath:
    found = scouted(seed)
    key = jax.random.key(100 + seed)
    options = replace(OPTIONS, length=50)
    return refine_reference(MODEL, found.chains, options, key, ladder=None, tolerance=1e-3, session=Session())


@cache
def warm(seed: int) -> Sampler:
    mixture, ladder, _ = settled(seed)
    return make_sampler(Path(MODEL, mixture), ladder, replace(OPTIONS, length=50), jax.random.key(200 + seed))


def tail_and_narrow_mode() -> tuple[Chains, np.ndarray]:
    """Chains in a broad mode, in its tail, and in a narrow mode, not at rest; and where each is: 0, 1, 2."""
    rng = np.random.default_rng(12)
    place = np.repeat([0, 1, 2], [20, 3, 2])
    width = np.array([1.0, 1.0, 0.02])[place, None, None]
    start = np.array([0.0, 30.0, 12.1])[place, None, None]
    centre = np.array([0.0, 0.0, 12.0])[place, None, None]
    position = start + width * rng.standard_normal((25, 25, D))
    return Chains(position, -(position - centre) / width**2, np.array([0.0, -400.0, 5.0])[place]), place
