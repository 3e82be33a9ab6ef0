"""The answer: a log evidence, its error, and where the error comes from."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from thermint.model.settings import Settings
from thermint.runtime import store

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

    from thermint.model.draws import Draws
    from thermint.report.plots import Plots


@store.storable
class Posterior(NamedTuple):
    """Draws from the posterior, thinned."""

    values: dict[str, np.ndarray]  # what the user knows, by name, [population, draw, ...]
    log_likelihood: np.ndarray  # [population, draw]
    log_prior: np.ndarray  # likewise
    acceptance: np.ndarray | None = None  # likewise, if known


@store.storable
@dataclass(frozen=True)
class Evidence:
    """A log evidence with its error budget.

    Attributes:
        log_evidence: log p(y | model).
        standard_error: Monte Carlo and quadrature error, added in quadrature; never less than what rounding may do.
        mc_error: Monte Carlo error of the whole integral, correlation between draws and between rungs included.
        quadrature_error: estimated error of the rule along the ladder.
        degrees_of_freedom: behind the Monte Carlo error; `interval` takes its quantiles accordingly.
        evaluations: how often the likelihood (with its gradient) was evaluated, warm-up included.
        seconds: wall time, compilation included.
        warnings: what went wrong or may have, why it matters and what to do; empty if nothing was seen.
        rungs: one row for each rung: its t, the rule's weight, mean of the log likelihood with control variates and
            without (``plain_mean``), their errors, variance, diagnostics.
        estimates: log evidence and error by every method that the same draws allow, for comparison.
        diagnostics: numbers of the whole run: ``round_trips`` of states from one end of the ladder to the other and
            back, the communication ``barrier`` that they overcome, the share of the prior ``supported`` by a likelihood
            above zero, and shares of proposals ``outside`` the support and ``invalid`` (NaN or +inf).
        settings: what it takes to repeat the run, see `thermint.model.settings.Settings`.
        coefficients: of the control variates, one row for each rung; in standard deviations of the log likelihood for
            one of the feature, whose trial function is named in whitened coordinates z1, z2, ...
        trace: log likelihood (less the reference) of up to 4000 draws of each rung, [population, draw, rung].
        posterior: some draws from the posterior, which is where the path ends; None where no chain has gone there.
        draws: all draws of the last round, from all rungs of the path, where ``keep_draws`` asked for them.
    """

    log_evidence: float
    standard_error: float
    mc_error: float
    quadrature_error: float
    degrees_of_freedom: float
    evaluations: int
    seconds: float
    warnings: tuple[str, ...]
    rungs: pd.DataFrame = field(repr=False)
    estimates: pd.DataFrame = field(repr=False)
    diagnostics: dict[str, float] = field(repr=False)
    settings: Settings = field(repr=False)
    coefficients: pd.DataFrame | None = field(default=None, repr=False)
    trace: np.ndarray | None = field(default=None, repr=False)
    posterior: Posterior | None = field(default=None, repr=False)
    draws: Draws | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        settings: Any = self.settings
        if isinstance(settings, dict):  # as files of earlier versions have them
            object.__setattr__(self, "settings", Settings.of(settings))

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return the confidence interval of the log evidence at the given level."""
        from scipy import stats

        if not 0 < level < 1:
            raise ValueError(f"level = {level}: it must lie between 0 and 1, such as 0.95.")
        half = float(stats.t.isf((1 - level) / 2, self.degrees_of_freedom)) * self.standard_error
        return self.log_evidence - half, self.log_evidence + half

    def save(self, path: str | Path) -> None:
        """Write the whole result to a file that `load` reads; a ZIP of NumPy arrays, see `runtime.store`."""
        store.write(Path(path), self)

    @staticmethod
    def load(path: str | Path) -> Evidence:
        """Read a result that `save` wrote. Nothing in the file is run.

        Raises:
            ValueError: the file is damaged, or something else.
        """
        result = store.read(Path(path))
        if not isinstance(result, Evidence):
            raise store.DamagedError(f"{path} is a file of thermint's, but not a result.")
        return result

    @property
    def plot(self) -> Plots:
        """Plots with matplotlib: ``result.plot()`` for an overview, ``result.plot.integrand(ax)`` and others for one.

        See `thermint.plots`, whose functions these are.
        """
        from thermint.report.plots import Plots

        return Plots(self)

    def report(self, path: str | Path, name: str = "") -> Path:
        """Write one HTML page with all that there is to say about the answer, and return its path.

        See `thermint.report`, which also writes pages about several models that are compared.

        Args:
            path: of the file, in a folder that there is.
            name: of the model.
        """
        from thermint import report

        return report.write({name: self}, path)

    def to_datatree(self) -> xr.DataTree:
        """Return the posterior draws, their statistics and the evidence as a tree that ArviZ reads."""
        from thermint.interop.arviz import to_datatree

        return to_datatree(self)

    def __str__(self) -> str:
        low, high = self.interval()
        lines = [
            f"log evidence  {plus_minus(self.log_evidence, self.standard_error)}",
            f"  95 % interval {low:.{digits(self.standard_error)}f} to {high:.{digits(self.standard_error)}f}",
            f"  error: Monte Carlo {self.mc_error:.2g}, quadrature {self.quadrature_error:.2g}",
            f"  {self.evaluations:,} likelihood evaluations, {self.seconds:.1f} s",
        ]
        if not self.settings.gradients:
            lines.append("  without gradients: no control variates, so that the error is larger than it need be")
        return "\n".join(lines + [f"  warning: {warning}" for warning in self.warnings])

    def as_dict(self) -> dict[str, Any]:
        """Return all fields but the draws as plain Python values, for JSON; NaN becomes None."""

        def plain(value: Any) -> Any:
            if isinstance(value, dict):
                return {key: plain(item) for key, item in value.items()}
            if isinstance(value, list | tuple):
                return [plain(item) for item in value]
            if isinstance(value, np.generic):
                value = value.item()
            return None if isinstance(value, float) and not np.isfinite(value) else value

        large = ("coefficients", "trace", "posterior", "draws")
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in large}
        fields["settings"] = dict(self.settings)
        tables = {name: fields[name].reset_index().to_dict("list") for name in ("rungs", "estimates")}
        return plain(fields | tables)


def digits(error: float) -> int:
    """Return how many decimals to print, so that two digits of the error show (at most 10)."""
    if not np.isfinite(error):
        return 4
    return int(np.clip(1 - np.floor(np.log10(max(error, 1e-300))), 0, 10))


def plus_minus(value: float, error: float) -> str:
    """Print a value with its error to two digits.

    >>> plus_minus(-259.857612, 0.00041)
    '-259.85761 ± 0.00041'
    """
    return f"{value:.{digits(error)}f} ± {error:.{digits(error)}f}"
