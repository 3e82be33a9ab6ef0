"""Moves within a rung: ``kernel(noise, state, t, params, evaluate) -> (state, Info)``.

A kernel leaves the power posterior at inverse temperature t invariant. ``evaluate`` maps a position to its
`thermint.model.Evaluation`; it is the only way to the model. A kernel of your own is a function of this signature,
with `target_acceptance` to tell the warm-up which acceptance rate suits it, and how often it evaluates the model.

>>> import thermint
>>> options = {"reference": "prior", "ladder": 5, "draws": 50}
>>> result = thermint.evidence(thermint.paper.linear.model(), kernel=thermint.kernels.mmala, **options)
>>> result.settings["kernel"]
'mmala'
"""

from thermint.kernels.barker import barker
from thermint.kernels.base import Info, Kernel, Noise, Params, target_acceptance
from thermint.kernels.hmc import hamiltonian, hmc
from thermint.kernels.mala import mala
from thermint.kernels.mmala import mmala
from thermint.kernels.rwm import random_walk

__all__ = [
    "Info",
    "Kernel",
    "Noise",
    "Params",
    "barker",
    "hamiltonian",
    "hmc",
    "mala",
    "mmala",
    "random_walk",
    "target_acceptance",
]
