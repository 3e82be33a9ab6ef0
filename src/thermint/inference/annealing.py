"""Annealed importance sampling (Neal, Statistics and Computing 11, 2001).

A particle starts at a draw from the prior. At every step of the ladder its weight is multiplied by the likelihood, to
the power of t_{i+1} - t_i, at the point where it is, and then it moves once by a kernel that leaves rung i + 1
invariant. The mean weight is an unbiased estimate of the evidence, although particles lag behind the distributions of
their rungs; the further they lag, the more uneven are their weights.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pandas as pd
from jax import Array

from thermint.diagnostics import MIN_WEIGHTS, invalid_warnings, weight_warnings
from thermint.estimators.ais import log_weights
from thermint.estimators.stepping_stone import log_mean_exp
from thermint.interop import checked_model
from thermint.interop.callback import reraise_user_error
from thermint.kernels import Kernel, Noise, Params
from thermint.kernels.base import apply, draw_noise, traits_of
from thermint.model.checks import check_values
from thermint.model.closure_constants import LARGEST_ARRAY
from thermint.model.evaluation import Evaluation, evaluate, impossible, usable
from thermint.model.model import Model
from thermint.model.options import name_of, require_kernel, require_whole
from thermint.model.result import Evidence
from thermint.model.settings import Settings
from thermint.path.ladders import Ladder, as_ladder
from thermint.path.path import Path
from thermint.runtime import keys
from thermint.runtime.programs import jit
from thermint.sampling.options import SamplerOptions
from thermint.sampling.sampler import default_kernel, make_sampler
from thermint.sampling.warmup import SHORT


class AnnealedParticles(NamedTuple):
    """What particles met on their way up, [particle] or [particle, rung]."""

    start: Evaluation  # at draws from the prior
    g: Array  # log likelihood at the rungs below 1, after the move there
    acceptance: Array  # of the moves at the rungs between 0 and 1; NaN as in `Draws`


@reraise_user_error()
def anneal(
    model: Any,
    ladder: int | npt.ArrayLike | None = None,
    *,
    particles: int = 1000,
    kernel: Kernel | None = None,
    seed: int = 0,
) -> Evidence:
    """Estimate the log evidence by annealed importance sampling, from particles that are moved up the ladder.

    The kernel is tuned for every rung beforehand, by a short run of population MCMC whose draws are not used otherwise:
    the mean weight, exp(log_evidence), is unbiased. Its log is too low by half the squared error, on average.

    Args:
        model: a `Model`, or a PyMC or Bambi model as it is.
        ladder: inverse temperatures from 0 to 1, or a number of rungs; by default the paper's 51. More rungs make the
            weights more even.
        particles: independent of each other.
        kernel: move within a rung, from `thermint.kernels`; by default mala, or hmc for many parameters.
        seed: the same seed gives the same answer.

    Returns:
        The evidence. In its table of rungs, ``mean`` and ``variance`` of the log likelihood are weighted, so that they
        are those of the rung's power posterior; ``ess`` is the effective number of the weights on arrival there, the
        last of which is what the answer rests on; ``acceptance`` at rung 0 is the share of prior draws whose likelihood
        is not zero, and there is no move at t = 1.

    Example:
        >>> import thermint
        >>> result = thermint.anneal(thermint.paper.linear.model())
        >>> low, high = result.interval(0.999)
        >>> low < thermint.paper.linear.log_evidence() < high
        True
    """
    begin = time.perf_counter()
    model = checked_model(model)
    require_kernel(kernel)
    require_whole("particles", particles, at_least=2)
    require_whole("seed", seed, at_least=0)
    ladder = as_ladder(ladder)
    kernel = kernel or default_kernel(Path(model))
    if not traits_of(kernel).own_metric:
        model = replace(model, metric=None)  # nobody needs it
    key_pilot, key = keys.split(keys.key(seed), 2)
    options = SamplerOptions(kernel=kernel, schedule=SHORT)
    pilot = make_sampler(Path(model), ladder, options, key_pilot)
    most = max(1, LARGEST_ARRAY // (8 * len(ladder) * sum(traits_of(kernel).numbers(model.dimension))))
    length = -(-particles // -(-particles // most))  # pieces whose random numbers fit in memory
    pieces = []
    for first in range(0, particles, length):
        index = np.arange(first, first + length)
        piece = anneal_particles(key, index, jnp.asarray(ladder), pilot.params, model=model, kernel=kernel)
        pieces.append(jax.tree.map(np.asarray, piece))
    made = jax.tree.map(lambda *parts: np.concatenate(parts)[:particles], *pieces)
    check_values(model, made.start)

    cost = (len(ladder) - 2) * traits_of(kernel).evaluations
    moves = _moves(made)
    log_weight = log_weights(made.g, ladder)
    log_mean, share = log_mean_exp(log_weight[None])
    log_evidence = float(log_mean[-1])
    error, dof = _error(share[0, :, -1])
    invalid = float(np.isnan(moves).sum() / max(moves.size, 1))
    return Evidence(
        log_evidence=log_evidence,
        standard_error=error,
        mc_error=error,
        quadrature_error=0.0,
        degrees_of_freedom=dof,
        evaluations=pilot.evaluations + length * len(pieces) * (1 + cost),
        seconds=time.perf_counter() - begin,
        warnings=(*_warnings(log_weight[:, -1]), *invalid_warnings(invalid)),
        rungs=_rungs(made, share[0], ladder),
        estimates=pd.DataFrame(
            {"log_evidence": [log_evidence], "standard_error": [error]}, index=pd.Index(["anneal"], name="method")
        ),
        diagnostics={"invalid": invalid},
        settings=Settings(
            method="anneal",
            kernel=name_of(kernel),
            gradients=model.differentiable,
            seed=seed,
            particles=particles,
            ladder=ladder.tolist(),
            parameters=list(model.parameter_names),
            versions={package: version(package) for package in ("thermint", "jax")},
        ),
    )


@jit("kernel")
def anneal_particles(
    key: Array, index: Array, ladder: Array, params: Params, *, model: Model, kernel: Kernel
) -> AnnealedParticles:
    """Move particles from the prior to the last rung below 1; another move, at t = 1, would change no weight.

    Args:
        key: the randomness of a particle derives from it and from the particle's number alone.
        index: numbers of the particles.
        ladder: inverse temperatures.
        params: of the kernel, [rung].
        model: the model.
        kernel: the move within a rung.
    """
    between = ladder[1:-1], jax.tree.map(lambda a: a[1:-1], params)
    traits = traits_of(kernel)
    own = traits.carry(model.dimension)

    def move(
        now: tuple[Evaluation, Array | None], rung: tuple[Noise, Array, Params]
    ) -> tuple[tuple[Evaluation, Array | None], tuple[Array, Array]]:
        state, carry = now
        moved, info = apply(kernel, rung[0], state, *rung[1:], partial(evaluate, model), carry)
        known = usable(info.proposal) | impossible(info.proposal)
        return (moved, info.carry), (moved.log_likelihood, jnp.where(known, info.acceptance, jnp.nan))

    def one(n: Array) -> AnnealedParticles:
        key_prior, key_noise = jax.random.split(jax.random.fold_in(key, n))
        start = evaluate(model, model.sample_prior(key_prior).astype(float))
        noise = draw_noise(key_noise, between[0].shape, start.position.size, traits)
        carry = jax.random.normal(jax.random.fold_in(key_noise, 1), (own,)) if own else None
        _, (g, acceptance) = jax.lax.scan(move, (start, carry), (noise, *between))
        return AnnealedParticles(start, jnp.append(start.log_likelihood, g), acceptance)

    return jax.vmap(one)(index)


def _error(share: np.ndarray) -> tuple[float, float]:
    """Standard error of the log of a mean, and its degrees of freedom, from what is averaged over its mean.

    The error rests on the sample variance, whose own relative variance is (kurtosis - 1) / n; that of a normal sample
    with f degrees of freedom is 2 / f.
    """
    n = len(share)
    variance = np.var(share)
    if variance == 0:
        return 0.0, n - 1.0
    kurtosis = np.mean((share - 1) ** 4) / variance**2
    return float(np.sqrt(variance / (n - 1))), float(min(2 * n / max(kurtosis - 1, 2.0), n - 1))


def _moves(made: AnnealedParticles) -> np.ndarray:
    """Acceptance of the moves, [particle, rung - 2], of particles whose weight is not zero."""
    return np.asarray(made.acceptance)[np.asarray(made.start.log_likelihood) > -np.inf]


def _rungs(made: AnnealedParticles, share: np.ndarray, ladder: Ladder) -> pd.DataFrame:
    """Tabulate the rungs; ``share`` are the weights on arrival at every rung but the first, over their mean."""
    supported = made.start.log_likelihood > -np.inf  # the others have g = -inf and weight zero ever after
    weight = np.column_stack([supported, share])[supported]
    weight /= weight.sum(axis=0)
    g = np.column_stack([made.g, made.g[:, -1]])[supported]  # nobody moves at t = 1
    mean = np.sum(weight * g, axis=0)
    return pd.DataFrame(
        {
            "t": ladder,
            "mean": mean,
            "variance": np.sum(weight * (g - mean) ** 2, axis=0),
            "acceptance": np.concatenate([[supported.mean()], np.nan_to_num(_moves(made)).mean(axis=0), [np.nan]]),
            "ess": 1 / np.sum(weight**2, axis=0),
        }
    ).rename_axis("rung")


def _warnings(log_weight: np.ndarray) -> list[str]:
    """Say where the weights cannot be trusted."""
    supported = np.sum(log_weight > -np.inf)
    if supported == len(log_weight) or supported >= MIN_WEIGHTS:
        return weight_warnings(log_weight)
    return [
        f"only {supported} of {len(log_weight)} particles start where the likelihood is not zero, and the others have "
        "weight zero: the share of prior mass that has a likelihood, which is part of the evidence, is poorly known. "
        "Use more particles, or a narrower prior; more rungs do not help."
    ]
