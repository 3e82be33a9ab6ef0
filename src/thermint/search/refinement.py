"""References fitted to the posterior ever better, by short runs on the path from each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jax import Array

from thermint.estimators.mbar import log_mixture, mbar, rule_error
from thermint.model.draws import ScoredDraws, concatenate, join, scored_draws
from thermint.model.model import Model
from thermint.path import fitting, ladders
from thermint.path.ladders import Ladder
from thermint.path.path import Path
from thermint.path.quadrature import lobatto
from thermint.path.reference import Reference
from thermint.runtime import keys
from thermint.runtime.session import Session
from thermint.runtime.store import storable
from thermint.sampling.options import SamplerOptions
from thermint.sampling.sampler import make_sampler
from thermint.search.modes import Chains, drop_transient, missed_modes
from thermint.search.scout import CHAINS, DRAWS

MOST_PILOTS = 6  # runs, each as long as a warm-up; a third of them may give back modes that the one before has missed
KL_TOL = 0.5  # nats, symmetrised Kullback-Leibler divergence from the posterior of a reference that is close enough
RUNGS = (5, 7, 10, 14, 20)  # numbers of Lobatto rungs to choose from: each is another program to compile


@storable
class FittedPath(NamedTuple):
    """A path that starts close to the posterior."""

    reference: Reference
    ladder: Ladder
    evaluations: int = 0  # of all that led there


def choose_reference(model: Model, position: np.ndarray, score: np.ndarray) -> Reference:
    """Fit a reference to draws of the posterior [chain, draw, d] and their scores: the families there are."""
    return fitting.fit(position, score if model.differentiable else None)


def refine_reference(
    model: Model,
    chains: Chains,
    options: SamplerOptions,
    key: Array,
    *,
    ladder: Ladder | None,
    tolerance: float,
    session: Session,
) -> FittedPath:
    """Fit a reference to draws of the posterior, run its path, fit again to what that found, until it is close.

    Args:
        model: the model.
        chains: draws of the posterior. The modes among them that a pilot run misses are given back to the next.
        options: of the pilot runs' samplers.
        key: all randomness derives from it.
        ladder: inverse temperatures; by default as many Lobatto nodes as it takes.
        tolerance: quadrature error to aim at, in nats, where the ladder is not given.
        session: is told of every step.
    """
    rungs = ladder if ladder is not None else ladders.lobatto(RUNGS[0])
    evaluations, distance = 0, np.inf
    settled = drop_transient(chains)
    reference = choose_reference(model, settled.position, settled.score)
    reseeds = MOST_PILOTS // 3 if reference.components > 1 else 0
    for pilot in range(MOST_PILOTS):
        sampler = make_sampler(Path(model, reference), rungs, options, keys.fold_in(key, pilot), session=session)
        assert sampler.last is not None
        draws = concatenate([sampler.chunk() for _ in range(-(-DRAWS // options.length))]).block(0, DRAWS)
        evaluations += sampler.evaluations
        found = join([scored_draws(sampler.last), scored_draws(draws)])
        posterior = reweight(found, rungs)
        before, distance = distance, float(found.g[..., -1].mean() - found.g[..., 0].mean())
        # More chains than one rung of a population sends out: one alone may be lost.
        if reseeds and len((missed := missed_modes(chains, posterior[0])).position) > CHAINS:
            reseeds, distance = reseeds - 1, np.inf
            reference = choose_reference(model, *join_halves(posterior, (missed.position, missed.score)))
            continue
        reference = choose_reference(model, *posterior)
        if distance < KL_TOL or distance > 0.7 * before:  # close, or hardly closer than before
            break
    if ladder is None:
        rungs = choose_rungs(found.g, rungs, tolerance)
    return FittedPath(reference, rungs, evaluations)


def refit(
    model: Model, g: np.ndarray, run_on: Ladder, thinned: ScoredDraws, *, ladder: Ladder | None, tolerance: float
) -> FittedPath:
    """Fit the reference again, to draws of a run on its path; `ladder` and `tolerance` as for `refine_reference`."""
    rungs = ladder if ladder is not None else choose_rungs(g, run_on, tolerance)
    return FittedPath(choose_reference(model, *reweight(thinned, run_on)), rungs)


def reweight(found: ScoredDraws, ladder: Ladder) -> tuple[np.ndarray, np.ndarray]:
    """Positions and scores as if drawn from the posterior, [1, draw, d], from the draws of all rungs.

    Rungs close to the reference have jumped between its components freely; the posterior's own draws may not have.
    """
    g, position, score = (np.moveaxis(a, 0, 1) for a in found)  # [draw, population, rung, ...]
    try:
        log_z = mbar(found.g, ladder, 2).log_z
    except ValueError:  # hardly any overlap: the posterior's own draws are all there is
        return found.position[:, :, -1], found.score[:, :, -1]
    log_weight = (g - log_mixture(g, log_z, ladder)).ravel()
    weight = np.exp(log_weight - log_weight.max())
    # Systematic resampling, in the order of time, so that a half of these is of a half of the draws.
    steps = (np.arange(weight.size) + 0.5) / weight.size
    chosen = np.searchsorted(np.cumsum(weight) / weight.sum(), steps)
    d = position.shape[-1]
    return position.reshape(1, -1, d)[:, chosen], score.reshape(1, -1, d)[:, chosen]


def join_halves(many: tuple[np.ndarray, ...], few: tuple[np.ndarray, ...]) -> Iterator[np.ndarray]:
    """Join arrays [chain, draw, d], half by half, and the few so often that they make up a fifth or more."""
    for a, b in zip(many, few, strict=True):
        d = a.shape[-1]
        times = -(-a.size // (4 * b.size))
        halves = zip(np.array_split(a, 2, axis=1), np.array_split(b, 2, axis=1), strict=True)
        joined = [np.concatenate([x.reshape(-1, d), np.tile(y.reshape(-1, d), (times, 1))]) for x, y in halves]
        length = min(map(len, joined))
        yield np.concatenate([half[-length:] for half in joined])[None]


def choose_rungs(g: np.ndarray, ladder: Ladder, tolerance: float) -> Ladder:
    """Choose as few Lobatto rungs as integrate the curve that draws of g show, to the tolerance."""
    g = g[:, :: -(-g[..., 0].size // fitting.MAX_DRAWS)]
    try:
        log_z = mbar(g, ladder, 2).log_z
    except ValueError:  # hardly any overlap
        return ladders.lobatto(RUNGS[-1])
    for rungs in RUNGS[:-1]:
        nodes = ladders.lobatto(rungs)
        if rule_error(lobatto, nodes, g, log_z, ladder) < tolerance:
            return nodes
    return ladders.lobatto(RUNGS[-1])
