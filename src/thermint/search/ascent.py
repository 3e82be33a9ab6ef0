"""Climb the posterior density, from many points at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np

from thermint.model.evaluation import Evaluation, score, usable
from thermint.model.model import Model
from thermint.path.path import evaluate_many

MAX_STEPS = 20  # of a climb with a metric, whose last steps are Newton's: most climbs end sooner
ASCENT_TOL = 0.01  # nats that the next step promises, where a climb ends: a seventh of a standard deviation


@np.errstate(over="ignore", invalid="ignore")  # gradients may overflow; such steps are not taken
def ascend(model: Model, position: np.ndarray, steps: int) -> np.ndarray:
    """Follow the gradient of the posterior density uphill from draws of the prior, [population, many, d].

    A step goes in the direction of the gradient, in units of the prior's standard deviations. It is taken if the
    density rises, and the next one is longer; else shorter. After a few of them, draws from different basins are
    far apart: a mode that is narrow, and of no weight but at the last rung, is found if one draw in a hundred starts in
    its basin.
    """
    model = replace(model, metric=None)
    here = evaluate_many(model, position)
    scale = spread(position)
    length = np.ones((*position.shape[:2], 1))
    for _ in range(steps):
        slope = scale * score(here, 1.0)
        direction = slope / np.maximum(np.linalg.norm(slope, axis=-1, keepdims=True), 1e-300)
        there = evaluate_many(model, here.position + length * scale * direction)
        rises = np.asarray(log_joint(there) > log_joint(here))
        here = _choose(rises, there, here)
        length *= np.where(rises, 1.5, 0.4)[..., None]
    return np.asarray(here.position)


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # such steps are not taken
def levenberg_marquardt(model: Model, starts: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, int]:
    """Climb to modes by damped scoring (Levenberg and Marquardt), and draw from the normal approximation there.

    A step solves (G + damping * diag G) step = score, where G is the model's metric at t = 1. It is taken if the
    density rises, and the damping follows. No step is longer than the starts are spread.

    Args:
        model: with a metric.
        starts: [..., d].
        random: for the draw.

    Returns:
        The draws, and the number of steps before them.
    """
    d = starts.shape[-1]
    flat = starts.reshape(-1, d)
    scale, here = spread(flat), evaluate_many(model, flat[None])
    damping = np.full(here.log_prior.shape, 0.01)
    for steps in range(MAX_STEPS + 1):
        slope = np.asarray(score(here, 1.0))
        step = np.linalg.solve(_curvature(here, damping), slope[..., None])[..., 0]
        if steps == MAX_STEPS or not np.any(np.sum(slope * step, axis=-1) > 2 * ASCENT_TOL):
            break
        step /= np.maximum(1.0, np.max(np.abs(step) / scale, axis=-1, keepdims=True))
        there = evaluate_many(model, here.position + np.where(np.isfinite(step), step, 0.0))
        rises = np.asarray(usable(there) & (log_joint(there) > log_joint(here)))
        here = _choose(rises, there, here)
        damping *= np.where(rises, 0.2, 4.0)
    eigenvalue, vector = np.linalg.eigh(_curvature(here, np.full_like(damping, 1e-6)))
    away = np.einsum("...ij,...j->...i", vector, random.standard_normal(here.position.shape) / np.sqrt(eigenvalue))
    known = np.isfinite(away).all(axis=-1, keepdims=True)
    return np.asarray(here.position + np.where(known, away, 0.0)).reshape(starts.shape), steps


def spread(x: np.ndarray) -> np.ndarray:
    """Standard deviations over all axes but the last, never zero."""
    return np.maximum(x.std(axis=tuple(range(x.ndim - 1))), 1e-300)


def log_joint(state: Any) -> Any:
    """Log of likelihood times prior, of an `Evaluation` or of `Draws`."""
    return state.log_likelihood + state.log_prior


def _choose(condition: np.ndarray, new: Evaluation, old: Evaluation) -> Evaluation:
    """Take what is new where the condition, [population, many], holds."""

    def choose(new: np.ndarray, old: np.ndarray) -> np.ndarray:
        return np.where(condition.reshape(*condition.shape, *(1,) * (new.ndim - condition.ndim)), new, old)

    return jax.tree.map(choose, new, old)


def _curvature(state: Evaluation, damping: np.ndarray) -> np.ndarray:
    """Return G + damping * diag G, [..., d, d]; the identity where it is not known."""
    assert state.fisher is not None
    assert state.prior_curvature is not None
    G = np.asarray(state.fisher + state.prior_curvature)
    one = np.eye(G.shape[-1])
    G = np.where(np.isfinite(G).all(axis=(-2, -1), keepdims=True), G, one)
    return G + (damping[..., None, None] * np.abs(G) + np.finfo(float).tiny) * one  # never quite singular
