"""The options of one call of `evidence`, as frozen dataclasses."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np
import numpy.typing as npt

from thermint.control.plan import FOLDS, Plan, batched, chunk_length, make_plan
from thermint.kernels import Kernel
from thermint.kernels.base import traits_of
from thermint.model.closure_constants import cheap_to_run
from thermint.model.model import Model
from thermint.model.options import require_kernel, require_positive, require_whole
from thermint.path import ladders
from thermint.path.ladders import Ladder, as_ladder
from thermint.path.quadrature import rule_of
from thermint.runtime import keys
from thermint.runtime.session import Session
from thermint.sampling.options import SamplerOptions
from thermint.sampling.population import Swap


class OutOfBudgetError(ValueError):
    """More evaluations are needed than allowed."""


@dataclass(frozen=True)
class Options:
    """What the answer depends on; see `thermint.evidence`.

    Raises:
        ValueError, TypeError: an option that cannot work.
    """

    reference: str
    ladder: Ladder | None
    kernel: Kernel | None
    swap: Swap
    degree: int | str
    rule: str | None
    crossfit: bool
    draws: int
    populations: int
    keep_draws: bool
    seed: int

    def __post_init__(self) -> None:
        if self.reference not in ("auto", "prior", "fitted"):
            raise ValueError(f'reference = {self.reference!r}: it must be "auto", "prior" or "fitted".')
        require_kernel(self.kernel)
        require_whole("seed", self.seed, at_least=0)
        require_whole("draws", self.draws, at_least=2 * FOLDS)
        require_whole("populations", self.populations, at_least=1)
        if self.ladder is None and self.reference == "prior" and self.rule == "lobatto":
            raise ValueError('rule = "lobatto" with reference = "prior" needs ladder = thermint.ladders.lobatto(...).')

    @property
    def sampling(self) -> SamplerOptions:
        """The options of samplers."""
        return SamplerOptions(self.populations, self.kernel, self.swap)

    def key(self, stage: int) -> jax.Array:
        """Return the random key of a stage: 0 for the scout, then one for each round."""
        return keys.fold_in(keys.key(self.seed), stage)


@dataclass(frozen=True)
class Budget:
    """When to stop; see `thermint.evidence`."""

    target_error: float | None = None
    max_evaluations: int | None = None
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            require_positive(name, value)

    def room(self, spent: int, cost: int) -> float:
        """Return how many draws, of so many evaluations each, are left after ``spent`` evaluations."""
        return np.inf if self.max_evaluations is None else (self.max_evaluations - spent) // cost


@dataclass(frozen=True)
class Call:
    """One call of `evidence`."""

    model: Model
    options: Options
    budget: Budget
    session: Session

    def plan(self, ladder: Ladder | None, draws: int, components: int = 1, length: int | None = None) -> Plan:
        """Plan a round; without a ladder, for two rungs, which refuses what no number of them could do."""
        options = self.options
        return make_plan(
            draws=draws,
            populations=options.populations,
            rungs=2 if ladder is None else len(ladder),
            dimension=self.model.dimension,
            degree=options.degree,
            rule=rule_of(options.rule, ladder),
            crossfit=options.crossfit,
            components=components,
            length=length,
        )

    def chunk_length(self, draws: int, rungs: int) -> int:
        """Choose the length of a chunk."""
        populations = self.options.populations
        per_batch = batched(draws, populations)[1]
        return chunk_length(per_batch, populations=populations, rungs=rungs, dimension=self.model.dimension)

    def cost(self, rungs: int, kernel: Kernel | None) -> int:
        """Return the number of evaluations of one draw of every rung and population."""
        return self.options.populations * rungs * (traits_of(kernel).evaluations if kernel else 1)

    def affordable(self, spent: int, rungs: int, kernel: Kernel | None) -> int:
        """Return the number of draws of the first round: those asked for, or as many as the budget allows.

        Raises:
            OutOfBudgetError: too few for an error bar.
        """
        draws = self.budget.room(spent, self.cost(rungs, kernel))
        if draws < 2 * FOLDS:
            raise OutOfBudgetError(
                f"max_evaluations = {self.budget.max_evaluations} is too few: finding the posterior took {spent}, and "
                f"{rungs} rungs of {self.options.populations} populations leave {max(draws, 0):.0f} draws each. Give "
                "more, or fewer populations."
            )
        return int(min(self.options.draws, draws))

    def cheap_to_run(self, draws: int, rungs: int, kernel: Kernel) -> bool:
        """Whether a round of so many draws computes so little that its program need not be fast.

        Programs round differently, and a run that goes on must choose as it did: so no budget plays a part in this.
        """
        return cheap_to_run(self.model, draws * self.cost(rungs, kernel))


def read_ladder(ladder: int | npt.ArrayLike | None, reference: str) -> Ladder | None:
    """Return the ladder that a user means; a number of rungs is one that suits the path."""
    if ladder is None:
        return None
    given = as_ladder(ladder)
    return ladders.lobatto(len(given)) if np.ndim(ladder) == 0 and reference != "prior" else given
