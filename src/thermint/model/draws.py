"""Draws from the whole ladder: what samplers make and estimators read."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
import numpy.typing as npt

from thermint.runtime.store import storable

Array = jax.Array | npt.NDArray[np.float64]


@storable
class Draws(NamedTuple):
    """Draws from every power posterior of a ladder, by thermint's sampler or any other.

    The axes are population (independent replicas of the whole ladder), draw, rung, and the parameter's index.

    Attributes:
        ladder: inverse temperatures, from 0 to 1.
        position: parameters on the real line.
        log_likelihood: log p(y | theta).
        log_prior: normalised log p(theta).
        grad_log_likelihood: gradient with respect to the position; NaN throughout if not known.
        grad_log_prior: likewise.
        acceptance: probability with which each move was accepted, if known; NaN where the model or its gradient was NaN
            or +inf.
        outside: 1 where a move's proposal had a prior or a likelihood of zero, if known, else 0. At rung 0, where every
            proposal is a fresh draw from the prior, its average is the prior mass that has no likelihood; elsewhere,
            proposals so far away that any density is zero to rounding do not count.
        upward: 1 where the state, on its way between rungs by swaps, was at the first rung more recently than at the
            last, else 0, if known. Its sum at the last rung counts the trips from there to the first and back.

    Example:
        >>> import thermint
        >>> draws = thermint.sample(thermint.paper.linear.model(), ladder=5, draws=50, populations=2)
        >>> draws.block(0, 10).position.shape
        (2, 10, 5, 3)
    """

    ladder: Array  # [rung]
    position: Array  # [population, draw, rung, d]
    log_likelihood: Array  # [population, draw, rung]
    log_prior: Array  # [population, draw, rung]
    grad_log_likelihood: Array  # [population, draw, rung, d]
    grad_log_prior: Array  # [population, draw, rung, d]
    acceptance: Array | None = None  # [population, draw, rung]
    outside: Array | None = None  # [population, draw, rung]
    last_visited_reference: Array | None = None  # [population, draw, rung]

    def block(self, start: int, stop: int) -> Draws:
        """Take the draws from ``start`` to ``stop`` of every population and rung."""
        return self._replace(**{name: a[:, start:stop] for name, a in self._series().items()})

    def population(self, index: int) -> Draws:
        """Take the draws of one population; the axis stays."""
        return self._replace(**{name: a[index : index + 1] for name, a in self._series().items()})

    def _series(self) -> dict[str, Array]:
        return {name: a for name, a in self._asdict().items() if name != "ladder" and a is not None}


def concatenate(pieces: list[Draws]) -> Draws:
    """Join chunks of draws along the draw axis."""
    if len(pieces) == 1:
        return pieces[0]
    series = zip(*(piece._series().items() for piece in pieces), strict=True)
    joined = {items[0][0]: np.concatenate([np.asarray(a) for _, a in items], axis=1) for items in series}
    return pieces[0]._replace(**joined)


def at_rung(draws: Draws, rung: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions [n, d], log likelihoods [n] and scores of the rung's density [n, d], population after population."""
    position, g, _, slope, prior_slope = (
        np.asarray(a)[:, :, rung].reshape(-1, *a.shape[3:]) for a in draws[1:6] if a is not None
    )
    return position, g, prior_slope + float(draws.ladder[rung]) * slope


@storable
class ScoredDraws(NamedTuple):
    """Draws with their places."""

    g: np.ndarray  # log likelihood, [population, draw, rung]
    position: np.ndarray  # [population, draw, rung, d]
    score: np.ndarray  # gradient of the log posterior density, likewise


def scored_draws(draws: Draws) -> ScoredDraws:
    """Take from draws what fitting a reference needs."""
    score = np.asarray(draws.grad_log_prior) + np.asarray(draws.grad_log_likelihood)
    return ScoredDraws(np.asarray(draws.log_likelihood), np.asarray(draws.position), score)


def join(pieces: list[ScoredDraws]) -> ScoredDraws:
    """Join along the draw axis."""
    return ScoredDraws(*(np.concatenate(parts, axis=1) for parts in zip(*pieces, strict=True)))
