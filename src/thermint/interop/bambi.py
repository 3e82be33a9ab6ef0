"""Bambi models: regressions written as formulas, which PyMC computes."""

import bambi

from thermint.interop.pymc import from_pymc
from thermint.model.model import Model


def from_bambi(model: bambi.Model) -> Model:
    """Build a Model from a Bambi model, with the priors that it has.

    The priors that Bambi chooses itself are proper, but their widths follow the scale of the data, response included:
    evidences of models with different priors on the same coefficient are comparable, and depend on those priors. See
    `thermint.from_pymc` for what the Model can do, and what is refused.

    Args:
        model: a Bambi model; it is built if it has not been.

    Raises:
        ValueError: as `thermint.from_pymc` says, such as for a ``Flat`` prior.

    Example:
        >>> import bambi, pandas as pd, thermint
        >>> data = pd.DataFrame({"y": [1.2, 0.8, 1.9, 2.4], "x": [0.0, 1.0, 2.0, 3.0]})
        >>> thermint.from_bambi(bambi.Model("y ~ x", data)).parameter_names
        ('sigma', 'Intercept', 'x')
    """
    if not model.built:
        model.build()
    return from_pymc(model.backend.model)
