"""The table of estimators: a new one is a file of its own and an entry here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from thermint.estimators import ais, bridge, mbar, stepping_stone, thermodynamic
from thermint.estimators.base import CannotEstimateError, Estimate, EstimatorInput


class Citation(NamedTuple):
    """A publication that a report lists."""

    key: str  # as the text has it: author and year
    text: str
    doi: str


@dataclass(frozen=True)
class Estimator:
    """An estimator, and what plots and reports say of it.

    Attributes:
        estimate: computes it; raises `CannotEstimateError` where the draws do not allow it.
        label: names it in plots and warnings.
        method: names it for `thermint.estimate`; None where users cannot choose it.
        description: completes "The log evidence was estimated by ..." in a report; by default its label.
        citation: of the paper that a report lists.
        compared_with: names of estimators that must agree with it when it is the answer.
        uses_control: its estimate rests on the control variates of the rungs.
        on_request: it is computed only where it is the answer.
        log_weights: logarithms of the importance weights that it averages, if any; uneven ones raise a warning.
    """

    estimate: Callable[[EstimatorInput], Estimate]
    label: str
    method: str | None = None
    description: str = ""
    citation: Citation | None = None
    compared_with: tuple[str, ...] = ()
    uses_control: bool = False
    on_request: bool = False
    log_weights: Callable[[EstimatorInput], np.ndarray] | None = None


CONTROLLED = Citation(
    "Oates, Papamarkou and Girolami 2016",
    "Oates, C. J., Papamarkou, T. and Girolami, M. (2016). The controlled thermodynamic integral for Bayesian model "
    "evidence evaluation. Journal of the American Statistical Association 111(514), 634-645.",
    "10.1080/01621459.2015.1021006",
)
ESTIMATORS: dict[str, Estimator] = {
    "cti": Estimator(
        estimate=thermodynamic.estimate,
        label="thermodynamic integral",
        method="cti",
        citation=Citation(
            "Friel and Pettitt 2008",
            "Friel, N. and Pettitt, A. N. (2008). Marginal likelihood estimation via power posteriors. "
            "Journal of the Royal Statistical Society B 70(3), 589-607.",
            "10.1111/j.1467-9868.2007.00650.x",
        ),
        compared_with=("bridge", "mbar"),
        uses_control=True,
    ),
    "bridge": Estimator(
        estimate=bridge.estimate,
        label="bridge form",
        method="bridge",
        citation=CONTROLLED,
        compared_with=("cti", "mbar"),
        uses_control=True,
    ),
    "forward": Estimator(
        estimate=lambda given: stepping_stone.forward(given.g, given.ladder, given.batches),
        label="stepping stones, forward",
        method="stepping-stone",
        description="stepping stones",
        citation=Citation(
            "Xie and others 2011",
            "Xie, W., Lewis, P. O., Fan, Y., Kuo, L. and Chen, M.-H. (2011). Improving marginal likelihood estimation "
            "for Bayesian phylogenetic model selection. Systematic Biology 60(2), 150-160.",
            "10.1093/sysbio/syq085",
        ),
    ),
    "backward": Estimator(
        estimate=lambda given: stepping_stone.backward(given.g, given.ladder, given.batches),
        label="stepping stones, backward",
    ),
    "mbar": Estimator(
        # For the quadrature error some draws will do; the answer takes all that there are.
        estimate=lambda given: mbar.mbar(given.g if given.chosen else given.thinned(), given.ladder, given.batches),
        label="MBAR",
        method="mbar",
        description="the multistate Bennett acceptance ratio, MBAR",
        citation=Citation(
            "Shirts and Chodera 2008",
            "Shirts, M. R. and Chodera, J. D. (2008). Statistically optimal analysis of samples from multiple "
            "equilibrium states. Journal of Chemical Physics 129, 124105.",
            "10.1063/1.2978177",
        ),
    ),
    "ais": Estimator(
        estimate=lambda given: ais.ais(given.g, given.ladder, given.batches),
        label="annealed importance sampling",
        method="ais",
        description="annealed importance weights of draws in equilibrium",
        citation=Citation(
            "Neal 2001",
            "Neal, R. M. (2001). Annealed importance sampling. Statistics and Computing 11, 125-139.",
            "10.1023/A:1008923215028",
        ),
        log_weights=lambda given: ais.log_weights(given.g[..., :-1], given.ladder)[..., -1],
    ),
}


def methods() -> dict[str, str]:
    """Return the methods that users can choose, each with the name of its estimator."""
    return {one.method: name for name, one in ESTIMATORS.items() if one.method}


def label_of(name: str) -> str:
    """Return how plots call an estimator; `thermint.anneal` is one that needs particles instead of draws."""
    return ESTIMATORS["ais" if name == "anneal" else name].label


def evaluate(given: EstimatorInput, method: str) -> dict[str, Estimate]:
    """Estimate the log evidence in every way that the draws allow.

    Args:
        given: what the estimators read.
        method: the one that is the answer; "auto" where that is decided later.

    Raises:
        CannotEstimateError: the draws do not allow the answer.
    """
    found = {}
    for name, estimator in ESTIMATORS.items():
        chosen = estimator.method == method
        if estimator.on_request and not chosen:
            continue
        try:
            found[name] = estimator.estimate(given._replace(chosen=chosen))
        except CannotEstimateError:
            if chosen:
                raise
    return found
