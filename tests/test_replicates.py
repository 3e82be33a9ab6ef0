"""The paper's figures, over replicates with fixed seeds. Slow: run with ``make test-slow``."""

import numpy as np
import pytest

from benchmarks.replicates import PIMA_FLOOR, log_bayes_factors
from thermint.paper import pima, radiata

pytestmark = pytest.mark.slow


def test_radiata_has_at_most_the_mean_squared_error_of_the_paper():
    models = radiata.model(1, benchmark=True), radiata.model(2, benchmark=True)
    truth = radiata.log_evidence(2, benchmark=True) - radiata.log_evidence(1, benchmark=True)
    results = log_bayes_factors(models, replicates=50, draws=1000, swap="even-odd")
    error = {setting: np.mean((values[:, 0] - truth) ** 2) for setting, values in results.items()}
    assert error[2, "second-order"] <= 1.3e-5
    assert error[0, "second-order"] > 100 * error[2, "second-order"]


def test_pima_has_at_most_the_spread_of_the_paper_and_the_right_mean():
    results = log_bayes_factors((pima.model(1), pima.model(2)), replicates=50, draws=1000, swap="even-odd")
    value = results[2, "second-order"][:, 0]
    assert value.std(ddof=1) <= 0.044
    expected = pima.log_evidence(2) - pima.log_evidence(1) + PIMA_FLOOR
    assert abs(value.mean() - expected) < 3 * value.std(ddof=1) / np.sqrt(len(value))
