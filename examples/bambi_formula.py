"""Which covariates predict diabetes? Bambi formulas on the Pima data, compared by their evidence.

Run it with ``python examples/bambi_formula.py``.
"""

from importlib import resources

import bambi
import pandas as pd

import thermint

FORMULAS = ["type ~ glu + bmi", "type ~ glu + bmi + ped", "type ~ glu + bmi + ped * age"]


def _standardised() -> pd.DataFrame:
    with resources.files(thermint.paper).joinpath("data/pima.csv").open() as file:
        table = pd.read_csv(file)
    covariates = table.drop(columns="type")
    return ((covariates - covariates.mean()) / covariates.std()).assign(type=table["type"].astype(int))


def _model(formula: str, data: pd.DataFrame) -> bambi.Model:
    """Give all coefficients one prior: Bambi's own widens with the data, and the evidence depends on it."""
    common = bambi.Prior("Normal", mu=0, sigma=2.5)
    return bambi.Model(formula, data, family="bernoulli", priors={"Intercept": common, "common": common})


if __name__ == "__main__":
    pima = _standardised()
    print(thermint.compare({formula: _model(formula, pima) for formula in FORMULAS}))
