"""Find the posterior: a short run on the prior path, then references that are fitted to it ever better."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from jax import Array
from scipy.spatial import cKDTree

from thermint.estimators.errors import batch_error
from thermint.estimators.mbar import log_mixture, mbar, rule_error
from thermint.estimators.stepping_stone import bridge
from thermint.model.closure_constants import cheap_to_run
from thermint.model.draws import Draws, ScoredDraws, concatenate, join, scored_draws
from thermint.model.evaluation import Evaluation, usable
from thermint.model.evaluation import score as tempered_score
from thermint.model.model import Model
from thermint.path import ladders
from thermint.path.coordinates import moments
from thermint.path.fitting import fit
from thermint.path.ladders import Ladder
from thermint.path.path import Path, evaluate_many
from thermint.path.quadrature import lobatto
from thermint.path.reference import Reference
from thermint.runtime import keys
from thermint.runtime.session import Session
from thermint.runtime.store import storable
from thermint.sampling import population as pop
from thermint.sampling.noise import generator
from thermint.sampling.options import SamplerOptions
from thermint.sampling.sampler import make_sampler
from thermint.sampling.warmup import SHORT

SCOUT_RUNGS = 16
SCOUT_DRAWS = 100  # per rung and population, after warm-up
SCOUT_CHUNK = 25
DESCENTS = 2  # chains from each rung of each population
ASCENT = 16  # steps uphill of draws of the prior, before as many chains start from them as there are rungs
DESCENT = (1.0, 0.3)  # gains of the chunks that each of them makes at t = 1: the steps of its start may be far too long
CLIMB = 20  # steps uphill before, at most, where the model has a metric
ASCENT_TOL = 0.01  # nats that the next step promises, where climbing ends
PILOT_DRAWS = 100
MOST_PILOTS = 6
MOST_GIVEN_BACK = 2  # times that modes which a pilot has lost are given back to the next
MOST_NEIGHBOURS = 1000  # draws among which the nearest is looked for
FARTHER = 3.0  # than the nearest draw usually is, where a mode is lost
FAR = 2.0  # standard deviations of the draws
FEWEST_LOST = 3  # chains in a mode; every mode that prior draws lead to has four
LEAST_LOG_SHARE = -5.0  # of the posterior, that a mode which is lost must seem to have
MAX_MEAN_SCORE = 1.5  # average score of a chain, in units of its width, where it is not in a mode
CLOSE = 0.5  # nats, symmetrised Kullback-Leibler divergence between a reference that needs no further fit and posterior
MOST_REWEIGHTED = 20_000  # values of g that the choice of rungs looks at
RUNGS = (5, 7, 10, 14, 20)  # numbers of Lobatto rungs to choose from: each is another program to compile


@storable
class Chains(NamedTuple):
    """Draws of the posterior, from short chains that come from everywhere."""

    position: np.ndarray  # [chain, draw, d]
    score: np.ndarray  # likewise
    log_density: np.ndarray  # of likelihood times prior, average of each chain, [chain]

    @property
    def width(self) -> np.ndarray:
        """Standard deviations of each chain, [chain, d]."""
        return np.maximum(self.position.std(axis=1), 1e-300)

    @property
    def is_stationary(self) -> np.ndarray:
        """Which chains are in a mode, [chain]: scores average to nothing there, and not on the way out of a tail."""
        return np.abs(self.width * self.score.mean(axis=1)).max(axis=1) < MAX_MEAN_SCORE


@storable
class Scout(NamedTuple):
    """What the short run on the prior path found."""

    draws: Draws
    chains: Chains
    log_evidence: float
    standard_error: float
    degrees_of_freedom: float
    evaluations: int


def scout(model: Model, options: SamplerOptions, key: Array, session: Session) -> Scout:
    """Run the prior path briefly, on a ladder that moves to where it is needed."""
    options = replace(options, length=SCOUT_CHUNK, schedule=SHORT, adapt_ladder=True, cheap_to_run=cheap_to_run(model))
    sampler = make_sampler(Path(model), ladders.power(SCOUT_RUNGS), options, key, session=session)
    draws = concatenate([sampler.chunk() for _ in range(SCOUT_DRAWS // SCOUT_CHUNK)])
    g = np.asarray(draws.log_likelihood)
    ratios = bridge(g, sampler.ladder, 5)
    error = batch_error(ratios.series)
    # Prior draws without likelihood are part of the evidence; the path starts where there is some.
    supported = 1 - np.asarray(draws.outside)[:, :, 0].mean()
    value = ratios.value + float(np.log(max(supported, 1 / g[..., 0].size)))
    places = np.asarray(draws.position)
    of_the_prior = places[:, : pop.starts(sampler.ladder), 0]
    evaluations = 0
    if model.differentiable:
        of_the_prior = ascend(model, of_the_prior)
        evaluations = (1 + ASCENT) * of_the_prior[..., 0].size
    starts = np.concatenate([_scattered(places, DESCENTS), _scattered_ends(of_the_prior, SCOUT_RUNGS)])
    gains: tuple[float, ...] = DESCENT
    if model.metric is not None:
        starts, steps = levenberg_marquardt(model, starts, generator(keys.child(key, len(places))))
        gains, evaluations = DESCENT[:1], evaluations + (1 + steps) * starts[..., 0].size
    chains = _arrived([sampler.descend(start, gains) for start in starts])
    evaluations += sampler.evaluations
    return Scout(draws, chains, value, error.error, error.degrees_of_freedom, evaluations)


@np.errstate(over="ignore", invalid="ignore")  # gradients may overflow; such steps are not taken
def ascend(model: Model, position: np.ndarray) -> np.ndarray:
    """Follow the gradient of the posterior density uphill from draws of the prior, [population, many, d].

    A step goes in the direction of the gradient, in units of the prior's deviations. It is taken if the density rises,
    and the next is longer; else shorter. After a few of them draws from different basins are far apart, so that a mode
    which is narrow, and of no weight at any rung but the last, is found if one draw in a hundred starts in its basin.
    """
    model = replace(model, metric=None)
    here = evaluate_many(model, position)
    scale = np.maximum(position.std(axis=(0, 1)), 1e-300)
    length = np.ones((*position.shape[:2], 1))
    for _ in range(ASCENT):
        slope = scale * tempered_score(here, 1.0)
        direction = slope / np.maximum(np.linalg.norm(slope, axis=-1, keepdims=True), 1e-300)
        there = evaluate_many(model, here.position + length * scale * direction)
        rises = np.asarray(_log_joint(there) > _log_joint(here))
        here = jax.tree.map(partial(_where, rises), there, here)
        length *= np.where(rises, 1.5, 0.4)[..., None]
    return np.asarray(here.position)


def _where(condition: np.ndarray, new: np.ndarray, old: np.ndarray) -> np.ndarray:
    return np.where(condition.reshape(*condition.shape, *(1,) * (new.ndim - condition.ndim)), new, old)


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # such steps are not taken
def levenberg_marquardt(model: Model, starts: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, int]:
    """Climb to modes of the posterior by damped scoring (Levenberg and Marquardt), and step off at random.

    A step solves (G + damping * diag G) step = score, where G is the model's metric at t = 1. It is taken if the
    density rises, and the damping follows. No step is longer than the starts are spread. From the mode, a draw of the
    normal approximation there.

    Args:
        model: with a metric.
        starts: [..., d].
        random: for the last step.

    Returns:
        Where it ends, and how many steps it took, the last aside.
    """
    d = starts.shape[-1]
    scale = np.maximum(starts.reshape(-1, d).std(axis=0), 1e-300)
    here = evaluate_many(model, starts.reshape(1, -1, d))
    damping = np.full(here.log_prior.shape, 0.01)
    for steps in range(CLIMB + 1):
        slope = np.asarray(tempered_score(here, 1.0))
        step = np.linalg.solve(_curvature(here, damping), slope[..., None])[..., 0]
        if steps == CLIMB or not np.any(np.sum(slope * step, axis=-1) > 2 * ASCENT_TOL):
            break
        step /= np.maximum(1.0, np.max(np.abs(step) / scale, axis=-1, keepdims=True))
        there = evaluate_many(model, here.position + np.where(np.isfinite(step), step, 0.0))
        rises = np.asarray(usable(there) & (_log_joint(there) > _log_joint(here)))
        here = jax.tree.map(partial(_where, rises), there, here)
        damping *= np.where(rises, 0.2, 4.0)
    eigenvalue, vector = np.linalg.eigh(_curvature(here, np.full_like(damping, 1e-6)))
    away = np.einsum("...ij,...j->...i", vector, random.standard_normal(here.position.shape) / np.sqrt(eigenvalue))
    known = np.isfinite(away).all(axis=-1, keepdims=True)
    return np.asarray(here.position + np.where(known, away, 0.0)).reshape(starts.shape), steps


def _curvature(state: Evaluation, damping: np.ndarray) -> np.ndarray:
    """Return G + damping * diag G, [..., d, d]; the identity where it is not known."""
    assert state.fisher is not None
    assert state.prior_curvature is not None
    G = np.asarray(state.fisher + state.prior_curvature)
    one = np.eye(G.shape[-1])
    G = np.where(np.isfinite(G).all(axis=(-2, -1), keepdims=True), G, one)
    return G + (damping[..., None, None] * np.abs(G) + np.finfo(float).tiny) * one  # never quite singular


def _log_joint(state: Evaluation) -> Array:
    return state.log_likelihood + state.log_prior


def _scattered(position: np.ndarray, times: int) -> np.ndarray:
    """Choose draws of every rung that are far from each other, ``times`` for each population.

    Args:
        position: [population, draw, rung, d].
        times: how many.

    Returns:
        [times, population, rung, d].
    """
    populations, _, rungs, d = position.shape
    chosen = np.empty((rungs, times * populations, d))
    for rung in range(rungs):
        x = position[:, :, rung].reshape(-1, d)
        chosen[rung] = x[_far_apart(x, times * populations)]
    return np.moveaxis(chosen.reshape(rungs, times, populations, d), 0, 2)


def _scattered_ends(position: np.ndarray, rungs: int) -> np.ndarray:
    """Choose so many for each population, [1, population, rung, d], of [population, many, d].

    A quarter are far from each other; the others are the three nearest to each of those, so that no mode has a single
    chain.
    """
    populations, _, d = position.shape
    x = position.reshape(-1, d)
    z = x / np.maximum(x.std(axis=0), 1e-300)
    centres = _far_apart(x, populations * rungs // 4)
    nearest = np.argsort(np.sum((z[centres, None] - z) ** 2, axis=-1), axis=1)[:, :4]
    return x[nearest].reshape(1, populations, rungs, d)


def _far_apart(x: np.ndarray, number: int) -> np.ndarray:
    """Choose so many of x[n, d] that are far from each other: their indices, the farthest from the mean first."""
    z = (x - x.mean(axis=0)) / np.maximum(x.std(axis=0), 1e-300)
    nearest = np.sum(z**2, axis=1)  # to the mean at first, then to those chosen
    chosen = []
    for _ in range(number):
        chosen.append(int(nearest.argmax()))
        nearest = np.minimum(nearest, np.sum((z - z[chosen[-1]]) ** 2, axis=1))
    return np.array(chosen)


def _arrived(pieces: list[Draws]) -> Chains:
    """Take all chains but those that are still far from where others are."""
    log_joint = np.stack([np.asarray(piece.log_prior + piece.log_likelihood).mean(axis=1) for piece in pieces])
    _, position, score = (np.stack(parts).swapaxes(2, 3) for parts in zip(*map(scored_draws, pieces), strict=True))
    arrived = log_joint > log_joint.max() - (10 + 2 * position.shape[-1])  # [piece, population, rung]
    return Chains(position[arrived], score[arrived], log_joint[arrived])


def missed_modes(chains: Chains, found: np.ndarray) -> np.ndarray:
    """Say which chains are where none of the draws found[..., d] is, though the posterior has a share there, [chain].

    Places are told apart by the distance to the nearest draw. Chains on their way out of a tail do not count: in a mode
    scores average to nothing. The share is judged as if all modes were normal: by the average density and by the
    volume, as the chains show it.
    """
    number, draws, d = chains.position.shape
    x = np.unique(found.reshape(-1, d), axis=0)
    x = x[:: -(-len(x) // MOST_NEIGHBOURS)]
    whitening = np.linalg.inv(moments(x[None])[1][0])
    tree = cKDTree(x @ whitening.T)
    usual = np.quantile(np.asarray(tree.query(tree.data, k=2)[0])[:, 1], 0.99)
    some = chains.position[:, :: -(-draws // 5)]
    away = np.median(tree.query(some @ whitening.T)[0], axis=1) > max(FARTHER * usual, FAR)
    if not away.any() or away.all():
        return np.zeros(number, dtype=bool)
    log_share = chains.log_density + np.log(chains.width).sum(axis=1)
    return away & chains.is_stationary & (log_share > log_share[~away].max() + LEAST_LOG_SHARE)


def drop_transient(chains: Chains) -> np.ndarray:
    """Say which chains are no longer on their way out of a tail, [chain]; all of them, unless most are at rest.

    On their way are those that are not at rest, and lower than most that are. One that is higher has found a narrow
    mode, where its steps are too long.
    """
    is_stationary = chains.is_stationary
    if is_stationary.mean() < 0.5:
        return np.full(len(is_stationary), True)
    return is_stationary | (chains.log_density > np.median(chains.log_density[is_stationary]))


@storable
class FittedPath(NamedTuple):
    """A path that starts close to the posterior."""

    reference: Reference
    ladder: Ladder
    evaluations: int = 0  # of all that led there


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
        chains: draws of the posterior. Modes that they have found and a pilot run has lost are given back to the next.
        options: of the pilot runs' samplers.
        key: all randomness derives from it.
        ladder: inverse temperatures; by default as many Lobatto nodes as it takes.
        tolerance: quadrature error to aim at, in nats, where the ladder is not given.
        session: is told of every step.
    """
    rungs = ladder if ladder is not None else ladders.lobatto(RUNGS[0])
    evaluations, distance = 0, np.inf
    first = drop_transient(chains)
    reference = _fit(model, chains.position[first], chains.score[first])
    reseeds = MOST_GIVEN_BACK if reference.components > 1 else 0
    for pilot in range(MOST_PILOTS):
        sampler = make_sampler(Path(model, reference), rungs, options, keys.child(key, pilot), session=session)
        assert sampler.last is not None
        pieces = concatenate([sampler.chunk() for _ in range(-(-PILOT_DRAWS // options.length))]).block(0, PILOT_DRAWS)
        evaluations += sampler.evaluations
        found = join([scored_draws(sampler.last), scored_draws(pieces)])
        position, score = _posterior(found, rungs)
        before, distance = distance, float(found.g[..., -1].mean() - found.g[..., 0].mean())
        if reseeds and np.sum(missing := missed_modes(chains, position)) >= FEWEST_LOST:
            reseeds, distance = reseeds - 1, np.inf
            reference = _fit(model, *_joined((position, score), (chains.position[missing], chains.score[missing])))
            continue
        reference = _fit(model, position, score)
        if distance < CLOSE or distance > 0.7 * before:
            break
    if ladder is None:
        rungs = _enough(found.g, rungs, tolerance)
    return FittedPath(reference, rungs, evaluations)


def _joined(many: tuple[np.ndarray, ...], few: tuple[np.ndarray, ...]) -> Iterator[np.ndarray]:
    """Join arrays [chain, draw, d], half by half, and the few so often that they make up a fifth or more."""
    for a, b in zip(many, few, strict=True):
        d = a.shape[-1]
        times = -(-a.size // (4 * b.size))
        halves = zip(np.array_split(a, 2, axis=1), np.array_split(b, 2, axis=1), strict=True)
        joined = [np.concatenate([x.reshape(-1, d), np.tile(y.reshape(-1, d), (times, 1))]) for x, y in halves]
        number = min(map(len, joined))
        yield np.concatenate([half[-number:] for half in joined])[None]


def refit(
    model: Model, g: np.ndarray, run_on: Ladder, some: ScoredDraws, *, ladder: Ladder | None, tolerance: float
) -> FittedPath:
    """Fit the reference again, to draws of a run on its path; `ladder` and `tolerance` as for `refine_reference`."""
    rungs = ladder if ladder is not None else _enough(g, run_on, tolerance)
    return FittedPath(_fit(model, *_posterior(some, run_on)), rungs)


def _fit(model: Model, position: np.ndarray, score: np.ndarray) -> Reference:
    """Fit a mixture to draws, with the help of their scores where the model has gradients."""
    return fit(position, score if model.differentiable else None)


def _posterior(found: ScoredDraws, ladder: Ladder) -> tuple[np.ndarray, np.ndarray]:
    """Positions and scores as if drawn from the posterior, [1, draw, d], from the draws of all rungs, reweighted.

    Rungs close to the reference have jumped between its components freely; the posterior's own draws may not have.
    """
    g, position, score = (np.moveaxis(a, 0, 1) for a in found)  # [draw, population, rung, ...]
    try:
        log_z = mbar(found.g, ladder, 2).log_z
    except ValueError:  # hardly any overlap: what there is
        return found.position[:, :, -1], found.score[:, :, -1]
    log_weight = (g - log_mixture(g, log_z, ladder)).ravel()
    weight = np.exp(log_weight - log_weight.max())
    # Systematic resampling, in the order of time, so that a half of these is of a half of the draws.
    steps = (np.arange(weight.size) + 0.5) / weight.size
    chosen = np.searchsorted(np.cumsum(weight) / weight.sum(), steps)
    d = position.shape[-1]
    return position.reshape(1, -1, d)[:, chosen], score.reshape(1, -1, d)[:, chosen]


def _enough(g: np.ndarray, ladder: Ladder, tolerance: float) -> Ladder:
    """Choose as many Lobatto rungs as it takes to integrate the curve that a pilot's draws show to the tolerance."""
    g = g[:, :: -(-g.size // MOST_REWEIGHTED)]
    try:
        log_z = mbar(g, ladder, 2).log_z
    except ValueError:  # hardly any overlap
        return ladders.lobatto(RUNGS[-1])
    for rungs in RUNGS[:-1]:
        nodes = ladders.lobatto(rungs)
        if rule_error(lobatto, nodes, g, log_z, ladder) < tolerance:
            return nodes
    return ladders.lobatto(RUNGS[-1])
