"""What every estimator reads and returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from thermint.control.coefficients import Controlled
from thermint.control.plan import LONGEST_TRACE
from thermint.estimators.path_summary import PathSummary
from thermint.model.draws import Draws
from thermint.path.quadrature import RULES, Rule

# Values of g that MBAR reweights to estimate a quadrature error: all that are kept of 4 populations at 5 rungs.
MAX_REWEIGHTED = 20 * LONGEST_TRACE


class CannotEstimateError(ValueError):
    """The draws do not allow this estimate; the message says why."""


@dataclass(frozen=True)
class Estimate:
    """An estimate of the log evidence."""

    value: float
    series: np.ndarray  # [batch, population], whose mean varies as the value does
    warnings: tuple[str, ...] = field(default=(), kw_only=True)


@dataclass(frozen=True)
class Ratios(Estimate):
    """An estimate as a ratio of normalising constants."""

    log_z: np.ndarray  # [rung], log normalising constants relative to rung 0; the last is the value


@dataclass(frozen=True)
class Integral(Estimate):
    """An estimate as the integral of E_t[g] over t."""

    quadrature_error: float
    mean: np.ndarray  # [rung], E_t[g]
    variance: np.ndarray  # [rung], V_t[g]


class EstimatorInput(NamedTuple):
    """What an estimator may read."""

    path: PathSummary
    plain: Controlled  # batch means of the Gram's targets
    controlled: Controlled  # the same with control variates; the plain ones where these are not to be trusted
    draws: Draws | None = None  # where `thermint.estimate` was given them
    chosen: bool = False  # whether this estimate is to be the answer

    @property
    def g(self) -> np.ndarray:
        """Log likelihood (less the reference), [population, draw, rung]."""
        return self.path.g

    @property
    def ladder(self) -> np.ndarray:
        """Inverse temperatures, [rung]."""
        return self.path.ladder

    @property
    def batches(self) -> int:
        """Number of blocks of consecutive draws of a population, for the error."""
        return self.path.plan.batches

    @property
    def rule(self) -> Rule:
        """Quadrature along the ladder."""
        return RULES[self.path.plan.rule]

    @property
    def batch_sizes(self) -> np.ndarray:
        """Number of draws in each batch, [batch]."""
        return np.asarray(self.path.gram.number)

    def thinned(self) -> np.ndarray:
        """G with fewer draws, where there are many, but at least one in each batch."""
        return self.g[:, :: min(-(-self.g.size // MAX_REWEIGHTED), self.g.shape[1] // self.batches)]
