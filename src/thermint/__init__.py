"""thermint: Bayesian model evidence with an error bar you can bet on.

>>> import thermint
>>> result = thermint.evidence(thermint.paper.pima.model(1), draws=100)
>>> print(round(result.log_evidence))
-257
"""

from thermint import _runtime as _runtime  # float64 and the compilation cache, before anything is traced

# isort: split
from thermint import kernels, ladders, paper, swaps
from thermint.annealing import anneal
from thermint.draws import Draws
from thermint.evidence import estimate, evidence, sample
from thermint.model import Model
from thermint.reference import fitted_reference
from thermint.result import Evidence

__version__ = "0.1.0"
__all__ = [
    "Draws",
    "Evidence",
    "Model",
    "anneal",
    "estimate",
    "evidence",
    "fitted_reference",
    "kernels",
    "ladders",
    "paper",
    "sample",
    "swaps",
]
