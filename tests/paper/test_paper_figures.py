"""The paper's figures: what is drawn, from tables made by hand and from tiny runs."""

from __future__ import annotations

import sys
from functools import cache
from itertools import combinations, product

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("matplotlib")

from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.text import Text

import thermint
from thermint import ladders
from thermint.kernels import mmala
from thermint.paper import figures, goodwin, linear, pima, plug_in, radiata
from thermint.path.quadrature import trapezoid
from thermint.swaps import random_pair

REPLICATES = 8
KINDS = [
    *product(["TI"], [0], ["trapezoid", "second-order"]),
    *product(["CTI"], [1, 2], ["trapezoid", "second-order"]),
    ("AIS", 0, ""),
    ("CAIS", 1, ""),
    ("CAIS", 2, ""),
    ("thermint", -1, ""),
]
LABELS = [
    *("TI Q1", "TI Q2", "CTI D1 Q1", "CTI D1 Q2", "CTI D2 Q1", "CTI D2 Q2"),
    *("AIS", "CAIS D1", "CAIS D2", "thermint"),
]


@cache
def estimates() -> pd.DataFrame:
    """In an order that the axis does not have."""
    rng = np.random.default_rng(0)
    truths = {name: figures.APPLICATIONS[name].truth for name in figures.TITLES}
    rows = []
    for application, draws, (estimator, degree, rule) in product(figures.TITLES, (5000, 1000), KINDS[::-1]):
        for model, replicate in product([1] if application == "linear" else [2, 1], range(REPLICATES)):
            value = truths[application] * (model - 1 if application != "linear" else 1)
            value += rng.standard_normal() * (1e-4 if estimator == "thermint" else 0.2) + draws / 1000 - 1
            rows.append((application, model, draws, replicate, estimator, degree, rule, value, 0.1))
    names = ["application", "model", "draws", "replicate", "estimator", "degree", "rule", "log_evidence"]
    return pd.DataFrame(rows, columns=[*names, "standard_error"])


@cache
def rungs() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    names = ["application", "model", "draws", "replicate", "degree", "rung"]
    rows = [
        (application, model, *rest)
        for application, models in {"linear": [1], "pima": [1, 2]}.items()
        for model, *rest in product(models, (1000, 5000), range(REPLICATES), range(3), range(6))
    ]
    table = pd.DataFrame(rows, columns=names)
    ratio, integrand = rng.uniform(size=len(rows)), rng.standard_normal(len(rows))
    return table.assign(t=ladders.power(6)[table["rung"]], ratio=ratio, integrand=integrand)


@cache
def run() -> thermint.Draws:
    """A run on the linear model as `figures.coefficients` makes it, but short."""
    return thermint.sample(
        linear.model(), ladders.power(51), draws=100, populations=1, kernel=mmala, swap=random_pair, seed=3
    )


def check_print(figure: Figure) -> None:
    """Everything fits on the page, and nothing is too small to read."""
    width, height = figure.get_size_inches()
    assert width <= 6.5
    figure.draw_without_rendering()
    box = figure.get_tightbbox()
    assert box.x0 > -0.01
    assert box.y0 > -0.01
    assert box.x1 < width + 0.01
    assert box.y1 < height + 0.01
    sizes = [float(text.get_fontsize()) for text in figure.findobj(Text) if text.get_visible() and text.get_text()]
    assert min(sizes) >= 8


def legend(owner: Axes | Figure) -> list[str]:
    [box] = owner.legends if isinstance(owner, Figure) else [owner.get_legend()]
    assert box is not None
    return [text.get_text() for text in box.get_texts()]


def line(ax: Axes, label: str) -> np.ndarray:
    """The ordinates of the line with this label."""
    [found] = [artist for artist in ax.lines if artist.get_label() == label]
    return np.asarray(found.get_ydata())


# --- Variance ratios ---


@pytest.mark.parametrize(("application", "models"), [("linear", [1]), ("pima", [1, 2])])
def test_variance_ratio_is_the_mean_over_replicates(application: str, models: list[int]) -> None:
    figure = figures.variance_ratio(rungs(), application)
    check_print(figure)
    assert len(figure.axes) == len(models)
    for ax, model in zip(figure.axes, models, strict=True):
        for degree, bars in zip((1, 2), ax.containers, strict=True):
            assert isinstance(bars, ErrorbarContainer)
            rows = rungs().query(
                "application == @application and model == @model and draws == 1000 and degree == @degree"
            )
            values = rows.sort_values(["replicate", "rung"])["ratio"].to_numpy().reshape(REPLICATES, 6)
            mean, error = values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(REPLICATES)
            data, _, [segments] = bars.lines
            np.testing.assert_allclose(np.asarray(data.get_xydata()), np.column_stack([np.arange(6), mean]))
            ends = np.array([segment[:, 1] for segment in segments.get_segments()])
            np.testing.assert_allclose(ends, np.column_stack([mean - error, mean + error]))
            assert bars.get_label() == f"degree {degree} (average {mean.mean():.2g})"
        box = ax.get_legend()
        assert box is not None
        assert box.get_title().get_text() == (f"Model {model}" if len(models) > 1 else "")
        assert ax.get_ylim()[0] < 0 < 1 < ax.get_ylim()[1]


def test_a_ratio_of_zero_is_called_zero() -> None:
    exact = rungs().assign(ratio=lambda table: np.where(table["degree"] == 2, 1e-27, 0.5))
    [ax] = figures.variance_ratio(exact, "linear").axes
    assert legend(ax) == ["degree 1 (average 0.5)", "degree 2 (average 0)"]


def test_applications_without_rows_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="no rows of application 'goodwin' with 1000 draws"):
        figures.variance_ratio(rungs(), "goodwin")


# --- Coefficients ---


@pytest.mark.parametrize("d", [1, 3])
def test_features_are_the_papers(d: int) -> None:
    """w' phi is h = -Laplacian(P) / 2 + grad(P) . z for P = c' theta + theta' B theta / 2."""
    rng = np.random.default_rng(0)
    theta, score = rng.standard_normal((2, 5, d))
    phi = rng.standard_normal(d * (d + 3) // 2)
    B = np.diag(phi[d : 2 * d])
    for value, (i, j) in zip(phi[2 * d :], combinations(range(d), 2), strict=True):
        B[i, j] = B[j, i] = value

    h = -np.trace(B) / 2 + np.sum((phi[:d] + theta @ B) * (-score / 2), axis=1)
    np.testing.assert_allclose(figures.features(theta, score, 2) @ phi, h)
    np.testing.assert_array_equal(figures.features(theta, score, 1), -score / 2)


def controlled(degree: int) -> np.ndarray:
    """The controlled log likelihoods of `run`, [draw, rung], by the paper's regression."""
    draws = run()
    phi = figures.plug_in_coefficients(draws, degree)
    scores = draws.grad_log_prior + np.asarray(draws.ladder)[:, None] * draws.grad_log_likelihood
    at = [(np.asarray(draws.position[0, :, i]), np.asarray(scores[0, :, i])) for i in range(51)]
    w = np.stack([figures.features(position, score, degree) for position, score in at])  # [rung, draw, feature]
    return np.asarray(draws.log_likelihood)[0] + np.einsum("rnf,rf->nr", w, phi)


def test_degree_1_controls_as_thermint_does() -> None:
    result = thermint.estimate(run(), degree=1, crossfit=False, rule="trapezoid")
    np.testing.assert_allclose(controlled(1).mean(axis=0), result.rungs["mean"], rtol=1e-10)


def test_degree_2_is_exact() -> None:
    mean, _ = linear.integrand(run().ladder)
    np.testing.assert_allclose(controlled(2), np.broadcast_to(mean, (100, 51)), rtol=1e-10)


def test_coefficients_are_drawn() -> None:
    figure = figures.coefficients(seed=3, draws=100)
    check_print(figure)
    for degree, ax in enumerate(figure.axes, start=1):
        drawn = np.array([artist.get_ydata() for artist in ax.lines])
        np.testing.assert_array_equal(drawn, figures.plug_in_coefficients(run(), degree).T)
        assert ax.get_title() == f"Degree {degree}"

    # With Sigma = (t X'X + I)^-1, g + h is constant for B = X'X Sigma and c = Sigma (t B - 2 I) X'y.
    X, y = linear._data(0)
    t = np.asarray(run().ladder)[:, None, None]
    Sigma = np.linalg.inv(t * (X.T @ X) + np.eye(3))
    B = X.T @ X @ Sigma
    c = Sigma @ (t * B - 2 * np.eye(3)) @ X.T @ y
    exact = {f"$c_{i + 1}$": c[:, i] for i in range(3)} | {f"$d_{i + 1}$": B[:, i, i] for i in range(3)}
    exact |= {f"$b_{{{i + 1}{j + 1}}}$": B[:, i, j] for i, j in ((1, 0), (2, 0), (2, 1))}
    assert legend(figure.axes[1]) == list(exact)
    assert legend(figure.axes[0]) == list(exact)[:3]
    for label, values in exact.items():
        np.testing.assert_allclose(line(figure.axes[1], label), values, rtol=1e-7, atol=1e-7)


# --- Integrands ---


def test_integrands_of_all_replicates_are_drawn() -> None:
    figure = figures.integrands(rungs())
    check_print(figure)
    assert len(figure.axes) == 3
    for degree, ax in enumerate(figure.axes):
        rows = rungs().query("application == 'linear' and draws == 1000 and degree == @degree")
        values = rows.sort_values(["replicate", "rung"])["integrand"].to_numpy().reshape(REPLICATES, 6)
        np.testing.assert_array_equal([artist.get_ydata() for artist in ax.lines[:-1]], values)
        np.testing.assert_allclose(line(ax, "exact"), linear.integrand(ladders.power(6))[0])
        assert ax.get_title() == f"Degree {degree}"
    assert legend(figure.axes[0]) == ["estimates", "exact"]


# --- Surfaces ---


@pytest.mark.parametrize("name", ["radiata", "pima"])
def test_importance_weights_have_the_evidence_for_a_mean(name: str) -> None:
    truth = {"radiata": radiata.log_evidence(1, benchmark=True), "pima": pima.log_evidence(1)}[name]
    surface = figures.SURFACES[name]
    _, log_weight = plug_in.weighted(surface.model(), surface.start, 2000, np.random.default_rng(0))
    weight = np.exp(log_weight - truth)
    error = weight.std() / np.sqrt(len(weight))
    assert error < 0.03
    assert abs(weight.mean() - 1) < 5 * error


def test_posterior_draws_have_the_posteriors_mean() -> None:
    X, y = linear._data(0)
    covariance = np.linalg.inv(X.T @ X + np.eye(3))
    draws = np.asarray(figures.posterior(linear.model(), np.zeros(3), 1000, seed=0).position)
    z = (draws.mean(axis=0) - covariance @ X.T @ y) / np.sqrt(np.diag(covariance) / 1000)
    assert np.abs(z).max() < 5
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=0.2 * covariance.max())


def test_surfaces_show_contours_and_correlation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "diffrax", None)
    figure = figures.surfaces(seed=1, draws=200, grid=21)
    check_print(figure)
    tops, bottoms = figure.axes[:2], figure.axes[2:4]  # then the colour bar
    for name, top, bottom in zip(("radiata", "pima"), tops, bottoms, strict=True):
        surface = figures.SURFACES[name]
        state = figures.posterior(surface.model(), surface.start, 200, seed=1)
        assert top.get_title() == figures.TITLES[name]
        assert (top.get_xlabel(), top.get_ylabel()) == surface.labels
        mean, spread = np.asarray(state.position).mean(axis=0), np.asarray(state.position).std(axis=0)
        for limits, i, width in zip((top.get_xlim(), top.get_ylim()), surface.axes, surface.width, strict=True):
            np.testing.assert_allclose(limits, mean[i] + np.array([-1, 1]) * width * spread[i])

        h, g = np.asarray(bottom.lines[0].get_data())
        np.testing.assert_array_equal(g, state.log_likelihood)
        # Least squares by other means: the correlation of g with its projection.
        w = figures.features(
            np.asarray(state.position), np.asarray(state.grad_log_prior + state.grad_log_likelihood), 2
        )
        Q, _ = np.linalg.qr((w - w.mean(axis=0)) / w.std(axis=0))
        correlation = np.linalg.norm(Q.T @ (g - g.mean())) / np.linalg.norm(g - g.mean())
        assert np.corrcoef(h, g)[0, 1] == pytest.approx(-correlation, abs=1e-9)
        assert [text.get_text() for text in bottom.texts] == [f"canonical\ncorrelation\n{correlation:.4f}"]
        assert correlation > 0.99
    assert figure.get_suptitle() == "Goodwin oscillator left out: diffrax is not installed"
    with pytest.raises(ImportError, match=r"thermint\[diffrax\]"):
        figures.surfaces(applications=["goodwin"])


@pytest.mark.slow
def test_goodwin_has_a_surface() -> None:
    pytest.importorskip("diffrax")
    figure = figures.surfaces(applications=["goodwin"], draws=25, grid=8)
    check_print(figure)
    top, bottom, _ = figure.axes
    assert (top.get_title(), top.get_xlabel()) == ("Goodwin oscillator", r"$\log k_2$")
    assert np.shape(bottom.lines[0].get_xydata()) == (25, 2)
    assert figure.get_suptitle() == ""
    # The same compiled program again: the mode has the whole evidence.
    surface = figures.SURFACES["goodwin"]
    _, log_weight = plug_in.weighted(surface.model(), surface.start, 100, np.random.default_rng(2))
    weight = np.exp(log_weight - goodwin.log_evidence(3))
    assert weight.std() < 1.5
    assert abs(weight.mean() - 1) < 5 * weight.std() / 10


def test_goodwin_data_lie_around_the_solution() -> None:
    figure = figures.goodwin_data()
    check_print(figure)
    [ax] = figure.axes
    noise = 0.1 * np.random.default_rng(0).standard_normal((40, 2))
    for i in (0, 1):
        solution, data, _ = (np.asarray(artist.get_xydata()) for artist in ax.lines[3 * i : 3 * i + 3])
        assert solution[0].tolist() == [0, 0]
        assert data[:, 0].tolist() == list(range(41, 81))
        at_data = np.interp(data[:, 0], solution[:, 0], solution[:, 1])
        np.testing.assert_allclose(data[:, 1], at_data + noise[:, i], atol=1e-6)
    assert legend(ax) == ["$x_1$", "$x_2$"]


# --- Estimators ---


def medians(ax: Axes) -> np.ndarray:
    """Of the boxes, from left to right: each box is a line of two points there, the only one as wide as the box."""
    lines = [np.asarray(artist.get_xydata()) for artist in ax.lines]
    wide = [xy for xy in lines if len(xy) == 2 and np.isclose(np.ptp(xy[:, 0]), 0.6)]
    return np.array([xy[0, 1] for xy in sorted(wide, key=lambda xy: xy[0, 0])])


def ticks(ax: Axes) -> list[str]:
    return [text.get_text().replace("\n", " ") for text in ax.get_xticklabels()]


@pytest.mark.parametrize("application", figures.TITLES)
def test_boxes_truth_and_labels(application: str) -> None:
    figure = figures.estimators(estimates(), application)
    check_print(figure)
    upper, lower = figure.axes
    truth = {
        "linear": linear.log_evidence(),
        "radiata": 8.7086007043,
        "pima": -2.6250126,
        "goodwin": -15.4022,
    }[application]
    values = []
    table = estimates()
    for kind in KINDS:
        chosen = (table[["estimator", "degree", "rule"]] == list(kind)).all(axis=1)
        rows = table[chosen & (table["application"] == application) & (table["draws"] == 1000)]
        wide = rows.pivot(index="replicate", columns="model", values="log_evidence")
        values.append(wide[1] if application == "linear" else wide[2] - wide[1])
    np.testing.assert_allclose(medians(upper), [np.median(v) for v in values])
    np.testing.assert_allclose(medians(lower), [np.median(np.abs(v - truth)) for v in values], rtol=1e-3, atol=1e-7)
    assert ticks(lower) == LABELS
    assert lower.get_yscale() == "log"
    np.testing.assert_allclose(line(upper, "truth"), truth, rtol=1e-9)
    assert upper.get_ylabel() == ("log evidence" if application == "linear" else r"log Bayes factor, $\log B_{21}$")
    extra = {"linear": "truth with the error of the trapezoid rule", "goodwin": "standard error of the truth"}
    assert legend(figure) == ["truth", *([extra[application]] if application in extra else [])]


def test_linear_shows_the_error_of_the_trapezoid_rule() -> None:
    upper, lower = figures.estimators(estimates(), "linear").axes
    ladder = ladders.power(51)
    biased = trapezoid(ladder)[0] @ linear.integrand(ladder)[0]
    bias = biased - linear.log_evidence()
    assert -0.037 < bias < -0.03
    np.testing.assert_allclose(line(upper, "truth with the error of the trapezoid rule"), biased)
    heights = [np.asarray(artist.get_ydata()) for artist in lower.lines]
    assert any(np.allclose(y, -bias, rtol=1e-9) for y in heights)


def test_failures_are_counted_and_left_out() -> None:
    table = estimates().copy()
    pima_cais = (table["application"] == "pima") & (table["estimator"] == "CAIS") & (table["draws"] == 1000)
    failed = (
        pima_cais
        & (table["degree"] == 1)
        & (
            ((table["model"] == 1) & table["replicate"].isin([0, 1]))
            | ((table["model"] == 2) & (table["replicate"] == 1))
        )
    )
    table.loc[failed, "log_evidence"] = [np.nan, np.inf, -np.inf]
    table.loc[pima_cais & (table["degree"] == 2), "log_evidence"] = np.nan
    figure = figures.estimators(table, "pima")
    check_print(figure)
    assert ticks(figure.axes[1])[6:] == ["AIS", "CAIS D1 2 of 8 failed", "CAIS D2 8 of 8 failed", "thermint"]
    found = figures.labelled(table, "pima", 1000)
    assert np.flatnonzero(np.isnan(found["CAIS D1"])).tolist() == [0, 1]
    np.testing.assert_allclose(medians(figure.axes[0])[7], np.nanmedian(found["CAIS D1"]))


def test_what_lies_beyond_the_axis_is_counted() -> None:
    table = estimates().copy()
    chosen = (table["application"] == "linear") & (table["draws"] == 1000)
    wild = chosen & (table["estimator"] == "CAIS") & (table["degree"] == 2)
    table.loc[wild & (table["replicate"] < 3), "log_evidence"] += 50
    table.loc[wild & (table["replicate"] == 3), "log_evidence"] -= 50
    table.loc[chosen & (table["estimator"] == "AIS") & (table["replicate"] == 5), "log_evidence"] -= 40  # an outlier
    figure = figures.estimators(table, "linear")
    check_print(figure)
    upper, lower = figure.axes
    assert {(text.get_text(), text.get_position()[0]) for text in upper.texts} == {("▲ 3", 9), ("▼ 1", 9), ("▼ 1", 7)}
    low, high = upper.get_ylim()
    assert linear.log_evidence() - 2 < low < high < linear.log_evidence() + 2
    assert lower.get_ylim()[1] > 50


def test_replicates_of_one_model_only_are_no_failures() -> None:
    table = estimates()
    found = figures.labelled(table[(table["model"] == 1) | (table["replicate"] > 4)], "pima", 1000)
    assert {len(values) for values in found.values()} == {3}
    with pytest.raises(ValueError, match="both models"):
        figures.labelled(table[table["model"] == 1], "pima", 1000)


def test_tables_survive_a_file() -> None:
    """CSV files do not tell an empty rule from a missing one."""
    table = estimates().replace({"rule": {"": np.nan}})
    assert list(figures.labelled(table, "radiata", 1000)) == LABELS


# --- All together ---


def test_figures_for_what_there_is() -> None:
    stems = list(figures.figures_for(estimates(), rungs()))
    assert stems == [
        *("linear-variance-ratio", "pima-variance-ratio", "surfaces"),
        *("linear-coefficients", "linear-integrands", "goodwin-data"),
        *(f"{name}-estimators" for name in figures.TITLES),
    ]
    some = estimates().query("application == 'pima' or draws == 5000")
    assert list(figures.figures_for(some, rungs()[:0])) == ["surfaces", "pima-estimators"]
    assert list(figures.figures_for(some[:0], rungs().query("application == 'linear'"))) == [
        "linear-variance-ratio",
        "linear-integrands",
    ]


def test_figures_are_drawn_when_called(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def surfaces(applications: list[str]) -> Figure:
        asked.append(applications)
        return Figure()

    monkeypatch.setattr(figures, "surfaces", surfaces)
    drawn = figures.figures_for(estimates().query("application in ['pima', 'goodwin']"), rungs())
    assert not asked
    drawn["surfaces"]()
    assert asked == [["pima", "goodwin"]]
    figure = drawn["pima-estimators"]()
    assert figure.axes[0].get_ylabel() == r"log Bayes factor, $\log B_{21}$"
    assert legend(drawn["pima-variance-ratio"]().axes[1])[0].startswith("degree 1")


def test_a_missing_matplotlib_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(ImportError, match=r'pip install "thermint\[plot\]"'):
        figures.integrands(rungs())
