"""Draws from a model, for any estimator."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from thermint.control.plan import chunk_length
from thermint.interop import checked_model
from thermint.interop.callback import reraise_user_error
from thermint.kernels import Kernel
from thermint.model.draws import Draws, concatenate
from thermint.model.options import require_kernel, require_whole
from thermint.path.ladders import as_ladder
from thermint.path.path import Path
from thermint.runtime import keys
from thermint.sampling.options import SamplerOptions
from thermint.sampling.population import Swap
from thermint.sampling.sampler import make_sampler
from thermint.sampling.swaps import even_odd


@reraise_user_error()
def sample(
    model: Any,
    ladder: int | npt.ArrayLike | None = None,
    *,
    draws: int = 1000,
    populations: int = 4,
    kernel: Kernel | None = None,
    swap: Swap = even_odd,
    seed: int = 0,
) -> Draws:
    """Sample every power posterior of a ladder by population MCMC, and keep all draws.

    Args:
        model: a `Model`, or a PyMC or Bambi model as it is.
        ladder: inverse temperatures from 0 to 1, or a number of rungs; by default the paper's 51.
        draws: per rung and population, after a warm-up that is discarded.
        populations: independent replicas of the whole ladder.
        kernel: move within a rung, from `thermint.kernels`; by default mala, or hmc for many parameters.
        swap: move between rungs, from `thermint.swaps`.
        seed: the same seed gives the same draws.

    Example:
        >>> import thermint
        >>> draws = thermint.sample(thermint.paper.linear.model(), ladder=5, draws=50, populations=2)
        >>> draws.position.shape
        (2, 50, 5, 3)
    """
    model = checked_model(model)
    require_kernel(kernel)
    require_whole("seed", seed, at_least=0)
    ladder = as_ladder(ladder)
    require_whole("draws", draws, at_least=1)
    require_whole("populations", populations, at_least=1)
    length = chunk_length(draws, populations=populations, rungs=len(ladder), dimension=model.dimension)
    sampler = make_sampler(Path(model), ladder, SamplerOptions(populations, kernel, swap, length), keys.key(seed))
    drawn = concatenate([sampler.chunk() for _ in range(-(-draws // length))]).block(0, draws)
    if model.differentiable:
        return drawn
    return drawn._replace(grad_log_likelihood=np.full(drawn.position.shape, np.nan))
