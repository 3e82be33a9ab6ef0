"""thermint: Bayesian model evidence with an error bar you can bet on.

>>> import thermint
>>> result = thermint.evidence(thermint.paper.pima.model(1), draws=100)
>>> print(round(result.log_evidence))
-257
"""

from typing import TYPE_CHECKING

from thermint.runtime import setup as _setup  # noqa: F401 (sets up JAX before anything is traced)

# isort: split
from thermint import kernels, ladders, paper, swaps
from thermint.inference.annealing import anneal
from thermint.inference.compare import compare
from thermint.inference.estimate import estimate
from thermint.inference.evidence import evidence
from thermint.inference.replicate import replicate
from thermint.inference.sample import sample
from thermint.interop.callback import from_numpy
from thermint.interop.numpyro import from_numpyro
from thermint.model import Model
from thermint.model.draws import Draws
from thermint.model.result import Evidence
from thermint.path.fitted_model import fitted_reference
from thermint.runtime.tasks import RunsFailedError

if TYPE_CHECKING:
    from thermint.interop.bambi import from_bambi as from_bambi
    from thermint.interop.pymc import from_pymc as from_pymc
else:

    def __getattr__(name):
        """Import a front end's library, which takes seconds, only when it is asked for."""
        from thermint.interop import FRONT_ENDS, optional

        if name.startswith("from_") and name.removeprefix("from_") in FRONT_ENDS:
            return getattr(optional(name.removeprefix("from_")), name)
        raise AttributeError(f"module 'thermint' has no attribute {name!r}")


__version__ = "0.1.0"
__all__ = [
    "Draws",
    "Evidence",
    "Model",
    "RunsFailedError",
    "anneal",
    "compare",
    "estimate",
    "evidence",
    "fitted_reference",
    "from_numpy",
    "from_numpyro",
    "kernels",
    "ladders",
    "paper",
    "replicate",
    "sample",
    "swaps",
]
