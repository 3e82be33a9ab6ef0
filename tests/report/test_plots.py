"""Plots draw the numbers of the result, on the axes they are given, and say so where there is nothing to draw."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

import thermint
from thermint import Evidence
from thermint.control import basis
from thermint.report import plots, style

mpl.use("Agg")
import itertools

from matplotlib import pyplot as plt

MODEL = thermint.paper.radiata.model(1)


@pytest.fixture(scope="module")
def fitted() -> Evidence:
    return thermint.evidence(MODEL, draws=60, seed=1, progress=False)


@pytest.fixture(scope="module")
def prior() -> Evidence:
    return thermint.evidence(MODEL, draws=60, seed=1, reference="prior", ladder=12, progress=False)


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


def points(ax: Any, label: str) -> tuple[np.ndarray, np.ndarray]:
    """Find what was drawn under a label of the legend."""
    found = dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    container = next(found[name] for name in found if label in name)
    return container[0].get_data()


def test_the_integrand_is_that_of_the_table(fitted):
    ax = fitted.plot.integrand()
    t, mean = points(ax, "control")
    np.testing.assert_array_equal(t, fitted.rungs["t"])
    np.testing.assert_array_equal(mean, fitted.rungs["mean"])
    np.testing.assert_array_equal(points(ax, "plain")[1], fitted.rungs["plain_mean"])


@pytest.mark.parametrize("kind", ["fitted", "prior"])
def test_the_area_under_the_curve_is_the_integral(kind, request):
    """The curve between the nodes is the one that the rule integrates."""
    result = request.getfixturevalue(kind)
    ax = result.plot.integrand()
    fine, curve = max((line.get_data() for line in ax.lines), key=lambda data: len(data[0]))
    # Between nodes far apart the curve is drawn by few points; so many more make the trapezoid exact enough.
    t, mean = result.rungs["t"].to_numpy(), result.rungs["mean"].to_numpy()
    assert np.isin(t, fine).all()
    np.testing.assert_allclose(curve[np.isin(fine, t)], mean, rtol=1e-9)
    area = np.trapezoid(curve, fine)
    plain = np.trapezoid(mean, t)
    value = result.estimates.log_evidence["cti"]
    assert abs(area - value) < 0.02 * abs(plain - value) + 1e-4


def test_plain_averages_are_those_of_the_trace(prior):
    """At degree 0 nothing is controlled."""
    plain = thermint.evidence(MODEL, draws=60, seed=1, reference="prior", ladder=12, degree=0, progress=False)
    np.testing.assert_allclose(prior.rungs["plain_mean"], plain.rungs["mean"], rtol=1e-12)
    np.testing.assert_allclose(prior.rungs["plain_error"], plain.rungs["error"], rtol=1e-9)
    np.testing.assert_allclose(prior.trace.mean(axis=(0, 1)), plain.rungs["mean"], rtol=1e-9)
    assert np.all(prior.rungs["error"] < prior.rungs["plain_error"])


def test_weights_are_those_of_the_rule(fitted):
    rungs = fitted.rungs
    assert rungs["weight"].sum() == pytest.approx(1.0)
    assert rungs["weight"] @ rungs["mean"] == pytest.approx(fitted.estimates.log_evidence["cti"], abs=1e-9)


def test_coefficients_predict_g(fitted):
    """Squares of coefficients add up to about the share of the variance that is explained."""
    explained = 1 - fitted.rungs["ratio"]
    shares = (fitted.coefficients.to_numpy() ** 2).sum(axis=1)
    assert np.all((shares > 0.3 * explained) & (shares < 3 * explained))
    assert list(fitted.coefficients)[:3] == ["z1", "z2", "z3"]
    used = fitted.rungs["degree"].max()
    above = [name for name in fitted.coefficients if plots._degree(name) > used]
    assert not fitted.coefficients[above].to_numpy().any()


@pytest.mark.parametrize(("d", "degree", "cross", "components"), [(3, 4, True, 1), (2, 3, False, 1), (2, 3, True, 3)])
def test_names_are_in_the_order_of_the_features(d, degree, cross, components):
    names = basis.names(d, degree, cross, components)
    assert len(set(names)) == len(names) == basis.size(d, degree, cross, components)
    degrees = [plots._degree(name) for name in names]
    assert degrees == sorted(degrees)
    for k in range(1, degree + 1):
        assert sum(one <= k for one in degrees) == basis.size(d, k, cross, components)


@pytest.mark.parametrize("name", ["integrand", "ratio", "coefficients", "swaps", "estimators"])
@pytest.mark.parametrize("kind", ["fitted", "prior"])
def test_axes_go_in_and_out(name, kind, request):
    result = request.getfixturevalue(kind)
    figure, ax = plt.subplots()
    assert getattr(result.plot, name)(ax) is ax
    assert ax.get_xlabel()
    own = getattr(plots, name)(result)
    assert own.figure is not figure
    assert own.figure.get_figwidth() == style.COLUMN
    own.figure.canvas.draw()


def test_swap_rates_and_barrier(prior):
    ax = prior.plot.swaps()
    heights = [bar.get_height() for bar in ax.patches]
    np.testing.assert_allclose(heights, prior.rungs["swap_rate"].dropna())
    (barrier,) = ax.figure.axes[1].lines
    np.testing.assert_array_equal(barrier.get_ydata(), prior.rungs["barrier"])


def test_traces_and_ranks(fitted):
    axes = fitted.plot.traces(rungs=[0, -1])
    assert axes.shape == (2, 2)
    np.testing.assert_array_equal(axes[1, 0].lines[2].get_ydata(), fitted.trace[2, :, -1])
    counts = np.array([patch.get_data().values for patch in axes[0, 1].patches])
    draws = fitted.trace.shape[1]
    np.testing.assert_array_equal(counts.sum(axis=1), draws)  # each population has all its ranks
    np.testing.assert_allclose(counts.sum(axis=0), len(fitted.trace) * draws / counts.shape[1], atol=1)  # all are level
    with pytest.raises(ValueError, match="there is no rung 99"):
        fitted.plot.traces(rungs=[99])


def test_a_population_that_does_not_mix_shows_in_its_ranks(fitted):
    stuck = fitted.trace.copy()
    stuck[0] += 100.0
    axes = replace(fitted, trace=stuck).plot.traces(rungs=[1])
    counts = axes[0, 1].patches[0].get_data().values
    assert counts[: len(counts) // 2].sum() == 0


def test_the_overview_has_a_title_with_the_answer(fitted):
    axes = fitted.plot()
    assert len(axes) == 4
    figure = axes[0].figure.figure
    assert f"{fitted.log_evidence:.3f}"[:6] in figure.get_suptitle()
    figure.canvas.draw()


def test_estimators_are_shown_against_the_answer(fitted):
    ax = fitted.plot.estimators()
    centres = [line.get_xdata()[0] for line in ax.lines if len(line.get_xdata()) == 1]
    expected = fitted.estimates["log_evidence"].to_numpy()[::-1] - fitted.log_evidence
    assert set(np.round(expected, 12)) <= set(np.round(centres, 12))
    assert [label.get_text() for label in ax.get_yticklabels()][-1] == "thermodynamic integral"


def test_comparison(fitted, prior):
    table = thermint.compare({"one": fitted, "two": replace(prior, log_evidence=prior.log_evidence - 2)})
    left, right = plots.comparison(table)
    assert [label.get_text() for label in left.get_yticklabels()] == ["one", "two"]
    widths = [bar.get_width() for bar in right.patches]
    np.testing.assert_allclose(widths, table["probability"])
    assert table.results["two"].rungs is prior.rungs


def test_what_cannot_be_drawn_is_said(fitted):
    with pytest.raises(ValueError, match="no coefficients"):
        replace(fitted, coefficients=pd.DataFrame()).plot.coefficients()
    with pytest.raises(ValueError, match="no traces"):
        replace(fitted, trace=None).plot.traces()
    annealed = thermint.anneal(MODEL, particles=50)
    with pytest.raises(ValueError, match="swap_rate"):
        annealed.plot.swaps()
    assert len(annealed.plot()) < 4


def test_saved_results_keep_what_plots_need(fitted, tmp_path):
    fitted.save(tmp_path / "one.npz")
    loaded = Evidence.load(tmp_path / "one.npz")
    np.testing.assert_array_equal(loaded.trace, fitted.trace)
    assert loaded.coefficients is not None
    pd.testing.assert_frame_equal(loaded.coefficients, fitted.coefficients)


def boxes(texts: Any) -> list[Any]:
    """Return where texts are drawn, in inches."""
    figure = texts[0].figure.figure
    figure.canvas.draw()
    return [text.get_window_extent().transformed(figure.dpi_scale_trans.inverted()) for text in texts]


@pytest.mark.parametrize(("features", "named"), [(9, True), (20, False)])
def test_features_are_named_one_by_one_where_their_names_stand_apart(fitted, features, named):
    names = [f"z{i}" for i in range(features - 1)] + ["z1²"]
    table = pd.DataFrame(np.ones((len(fitted.rungs), features)), columns=names)
    ax = replace(fitted, coefficients=table).plot.coefficients()
    labels = ax.get_yticklabels()
    assert [label.get_text() for label in labels] == (names if named else ["degree 1", "degree 2"])
    drawn = sorted(boxes(labels), key=lambda box: box.y0)
    if named:
        assert all(below.y1 <= above.y0 for below, above in itertools.pairwise(drawn))


def test_default_traces_go_from_end_to_end_on_no_more_than_a_page(prior):
    figure = prior.plot.traces()[0, 0].figure
    labels = [ax.get_ylabel() for ax in figure.axes if ax.get_ylabel()]
    assert labels[0] == "g at t = 0"
    assert labels[-1] == "g at t = 1"
    assert len(labels) > 2  # one between them at the least
    assert figure.get_figheight() < 9  # letter paper without margins


def test_a_page_takes_the_overview_and_its_labels_stand_apart(prior):
    axes = prior.plot()
    figure = axes[0].figure.figure
    assert figure.get_figwidth() < 8.27  # A4
    for ax in axes:
        ticks = sorted(boxes([text for text in ax.get_xticklabels() if text.get_text()]), key=lambda box: box.x0)
        assert all(left.x1 <= right.x0 for left, right in itertools.pairwise(ticks))
