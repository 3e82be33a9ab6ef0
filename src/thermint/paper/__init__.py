"""The models of the paper (Oates, Papamarkou and Girolami), each with its data and its true log evidence.

`linear`: Bayesian linear regression with known precision. `radiata`: with unknown precision (Radiata pine).
`pima`: Bayesian logistic regression (Pima Indians). `goodwin`: an oscillator of 3 or 4 species (needs diffrax).
"""

from thermint.paper import cais as _cais  # noqa: F401 (registers its estimator)
from thermint.paper import goodwin, linear, pima, radiata

__all__ = ["goodwin", "linear", "pima", "radiata"]
