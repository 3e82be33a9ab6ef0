"""The models of the paper (Oates, Papamarkou and Girolami), each with its data and its true log evidence.

`linear`: Bayesian linear regression with known precision. `radiata`: with unknown precision (Radiata pine).
`pima`: Bayesian logistic regression (Pima Indians).
"""

from thermint.paper import linear, pima, radiata

__all__ = ["linear", "pima", "radiata"]
