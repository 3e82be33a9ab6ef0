"""PyMC models: observed variables are the likelihood, free ones the prior, and PyTensor compiles both to JAX."""

from thermint.interop.pymc.build import from_pymc

__all__ = ["from_pymc"]
