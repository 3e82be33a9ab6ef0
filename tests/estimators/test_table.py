"""The table of estimators: a new one is a function and an entry."""

from __future__ import annotations

import inspect
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from targets import NORMAL, SKEWED_2, exact_draws, z_of

import thermint
from thermint.estimators.base import Estimate, EstimatorInput
from thermint.estimators.stepping_stone import batch_means, log_mean_exp
from thermint.estimators.table import ESTIMATORS, Citation, Estimator, methods
from thermint.report.methods import methods as described

mpl.use("Agg")


def importance_sampling(given: EstimatorInput) -> Estimate:
    """Weight the draws of the first rung by their likelihood: log E_0[e^g]."""
    log_mean, share = log_mean_exp(given.g[..., :1])
    return Estimate(float(log_mean[0]), batch_means(share[..., 0], given.batches))


@pytest.fixture
def _toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        ESTIMATORS,
        "toy",
        Estimator(
            estimate=importance_sampling,
            label="importance sampling",
            method="toy",
            description="importance sampling from the prior",
            citation=Citation("Kloek and van Dijk 1978", "Kloek, T. and van Dijk, H. K. (1978).", "10.2307/1913641"),
            compared_with=("bridge",),
            log_weights=lambda given: given.g[..., 0],
        ),
    )


@pytest.mark.usefixtures("_toy")
def test_a_new_estimator_is_an_entry_of_the_table(tmp_path: Path) -> None:
    draws = exact_draws(SKEWED_2, 1)
    toy = thermint.estimate(draws, method="toy")
    assert abs(z_of(toy, SKEWED_2)) < 4
    assert 0.003 < toy.standard_error < 0.3
    assert toy.settings["method"] == "toy"
    assert list(toy.estimates.loc["toy"]) == [toy.log_evidence, toy.standard_error]
    assert not toy.warnings

    other = thermint.estimate(draws)
    assert other.estimates.loc["toy", "log_evidence"] == toy.log_evidence
    labels = [label.get_text() for label in toy.plot.estimators().get_yticklabels()]
    assert labels == [ESTIMATORS[name].label for name in reversed(toy.estimates.index)]
    assert "importance sampling" in labels
    assert "importance sampling from the prior (Kloek and van Dijk 1978)" in described(toy)
    page = toy.report(tmp_path / "toy.html").read_text()
    assert "Kloek, T. and van Dijk, H. K. (1978)." in page
    assert "Kloek" not in other.report(tmp_path / "other.html").read_text()


@pytest.mark.usefixtures("_toy")
def test_its_answer_is_checked_like_any_other() -> None:
    """One step from a prior that is far from the posterior: the mean weight is that of the luckiest draw."""
    draws = exact_draws(NORMAL, 2, np.array([0.0, 1.0]), draws=20)
    uneven, *_ = thermint.estimate(draws, method="toy").warnings
    assert "importance weights are worth" in uneven
    bridge = thermint.estimate(exact_draws(NORMAL, 3), method="bridge")
    shifted = ESTIMATORS["toy"].estimate

    def wrong(given: EstimatorInput) -> Estimate:
        found = shifted(given)
        return Estimate(bridge.log_evidence + 5.0, found.series)

    ESTIMATORS["toy"] = Estimator(wrong, "importance sampling", method="toy", compared_with=("bridge",))
    told = thermint.estimate(exact_draws(NORMAL, 3), method="toy").warnings
    assert any("importance sampling and bridge form, differ by 5" in warning for warning in told)


def test_the_table_is_complete() -> None:
    for name, one in ESTIMATORS.items():
        assert set(one.compared_with) <= set(ESTIMATORS) - {name}
        assert one.method is None or one.citation is not None, name


@pytest.mark.parametrize("text", ["estimate", "README.md"])
def test_every_method_is_described(text: str) -> None:
    root = Path(__file__).parents[2]
    words = inspect.getdoc(thermint.estimate) if text == "estimate" else (root / text).read_text()
    assert words is not None
    assert [method for method in methods() if f'"{method}"' not in words] == []
