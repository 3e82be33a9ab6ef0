"""The paper's figures, each drawn by one function that returns a matplotlib Figure (`pip install "thermint[plot]"`).

`Study.estimates` and `Study.rungs` are the tables that they show, and `figures_for` lists the figures that these allow:

    for name, draw in figures_for(estimates, rungs).items():
        draw().savefig(f"{name}.pdf")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import integrate

from thermint.inference.sample import sample
from thermint.kernels import mmala
from thermint.model.model import Model
from thermint.paper import goodwin, linear, pima, radiata
from thermint.paper.plug_in import features, plug_in, plug_in_coefficients, posterior
from thermint.paper.study import APPLICATIONS, answers
from thermint.path import ladders
from thermint.path.quadrature import trapezoid
from thermint.runtime.programs import jit
from thermint.sampling.swaps import random_pair

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.contour import QuadContourSet
    from matplotlib.figure import Figure

WIDTH = 6.5  # inches: a page of text
TEXT, SMALL = 9, 8  # points
# Told apart in grey as well.
STYLES = (
    {"color": "black", "linestyle": "-", "marker": "o"},
    {"color": "tab:blue", "linestyle": "--", "marker": "s"},
    {"color": "tab:orange", "linestyle": ":", "marker": "^"},
)
QUADRATURE = {"trapezoid": "Q1", "second-order": "Q2", "": ""}
TITLES = {name: application.title for name, application in APPLICATIONS.items()}
GOODWIN_TRUE = (1.0, 3.0, 2.0, 1.0, 0.5)  # a1, a2, k1, k2, alpha of the simulated data
GOODWIN_ERROR = 0.0016  # standard error of the reference value of log B21: 0.0011 for each model
LEVELS = (-1024, -512, -256, -128, -64, -32, -8, -2, -0.5, 0)  # of log likelihood, against the maximum of a surface


def variance_ratio(rungs: pd.DataFrame, application: str, draws: int = 1000) -> Figure:
    """Draw the mean of R(t_i) over replicates, with its standard error, for degrees 1 and 2 (Fig. "lin ebar1" ff.)."""
    table = _of(rungs, application, draws)
    models = sorted(table["model"].unique())
    figure, axes = _panels(1, len(models), width=WIDTH / 2 * len(models), height=2.5, sharey=True)
    for ax, model in zip(axes[0], models, strict=True):
        for degree in (1, 2):
            ratio = table[(table["model"] == model) & (table["degree"] == degree)].groupby("rung")["ratio"]
            mean, error = ratio.mean(), ratio.sem()
            label = f"degree {degree} (average {_rounded(mean.mean())})"
            ax.errorbar(
                mean.index, mean, error, label=label, markersize=2, linewidth=0.8, capsize=1, **STYLES[degree - 1]
            )
        _titles(ax, x="rung $i$")
        title = f"Model {model}" if len(models) > 1 else None
        _legend(ax, title=title, title_fontsize=TEXT, loc="lower left", bbox_to_anchor=(0, 1))
    axes[0, 0].set_ylim(-0.02, max(1.02, axes[0, 0].get_ylim()[1]))
    _titles(axes[0, 0], y="variance ratio $R(t_i)$")
    return figure


def coefficients(seed: int = 0, draws: int = 1000) -> Figure:
    """Draw the plug-in coefficients of one run on the linear model against the rung (SFig. "coefficients")."""
    made = sample(
        linear.model(), ladders.power(51), draws=draws, populations=1, kernel=mmala, swap=random_pair, seed=seed
    )
    names = ["c_1", "c_2", "c_3", "d_1", "d_2", "d_3", "b_{21}", "b_{31}", "b_{32}"]
    figure, axes = _panels(1, 2, height=2.8, sharey=True)
    for degree, ax in enumerate(axes[0], start=1):
        phi = plug_in_coefficients(made, degree)  # [rung, feature]
        for k, values in enumerate(phi.T):
            style = STYLES[k // 3] | {"marker": "os^"[k % 3], "fillstyle": ("full", "none", "left")[k % 3]}
            ax.plot(values, label=f"${names[k]}$", markersize=3, markevery=(k, 9), linewidth=0.8, **style)
        _titles(ax, x="rung $i$", title=f"Degree {degree}")
        _legend(ax, loc="lower right", ncols=2 * degree - 1)
    _titles(axes[0, 0], y=r"coefficient $\phi^*(t_i)$")
    return figure


def integrands(rungs: pd.DataFrame, draws: int = 1000) -> Figure:
    """Draw all estimates of the linear model's E_t[g] for degrees 0, 1 and 2, and the truth (SFig. "integrands")."""
    table = _of(rungs, "linear", draws)
    figure, axes = _panels(1, 3, height=2.4, sharey=True)
    for degree, ax in enumerate(axes[0]):
        estimates = table[table["degree"] == degree].pivot(index="rung", columns="replicate", values="integrand")
        ax.plot(estimates.index, estimates, color="0.6", linewidth=0.5)
        ladder = table.groupby("rung")["t"].first()
        ax.plot(ladder.index, linear.integrand(ladder)[0], color="black", linestyle="--", linewidth=1, label="exact")
        _titles(ax, x="rung $i$", title=f"Degree {degree}")
    axes[0, 0].lines[0].set_label("estimates")
    _legend(axes[0, 0], loc="lower right")
    _titles(axes[0, 0], y="mean log likelihood")
    return figure


class _Surface(NamedTuple):
    model: Callable[[], Model]
    start: npt.ArrayLike  # for the search of the posterior's mode
    axes: tuple[int, int]  # the two parameters to vary
    labels: tuple[str, str]
    width: tuple[float, float]  # on either side, in standard deviations of the posterior


SURFACES = {
    "radiata": _Surface(
        partial(radiata.model, 1, benchmark=True), (3000, 185, -11), (1, 2), (r"$\beta$", r"$\log \tau$"), (5, 5)
    ),
    "pima": _Surface(partial(pima.model, 1), np.zeros(5), (2, 3), (r"$\beta_2$ (glucose)", r"$\beta_3$ (BMI)"), (5, 5)),
    # Alpha sets the frequency: a grid that is wide in it meets one mode after the other.
    "goodwin": _Surface(
        partial(goodwin.model, 3), np.log(GOODWIN_TRUE), (3, 4), (r"$\log k_2$", r"$\log \alpha$"), (6, 35)
    ),
}


def surfaces(
    seed: int = 0, applications: Sequence[str] = tuple(SURFACES), *, draws: int = 500, grid: int = 80
) -> Figure:
    """Draw log likelihoods around the posterior mean, and control variates of degree 2 against them (Fig. "surfs").

    Each application is a column; where diffrax is missing, Goodwin's oscillator is left out, and the figure says so.
    """
    models: dict[str, Model] = {}
    missing = ""
    for name in applications:
        try:
            models[name] = SURFACES[name].model()
        except ImportError:
            if len(applications) == 1:
                raise
            missing = f"{TITLES[name]} left out: diffrax is not installed"
    figure, axes = _panels(2, len(models), width=WIDTH / 3 * max(2, len(models)), height=4.3)
    for column, (name, model) in enumerate(models.items()):
        surface = SURFACES[name]
        state = posterior(model, surface.start, draws, seed)
        top, bottom = axes[:, column]
        filled = _contours(top, model, surface, np.asarray(state.position), grid)
        _titles(top, *surface.labels, title=TITLES[name])
        g = np.asarray(state.log_likelihood)
        w = features(np.asarray(state.position), np.asarray(state.grad_log_prior + state.grad_log_likelihood), 2)
        h = w @ plug_in(g, w)
        bottom.plot(h, g, ".", color="black", markersize=2)
        correlation = f"canonical\ncorrelation\n{abs(np.corrcoef(g, h)[0, 1]):.4f}"
        bottom.text(0.98, 0.98, correlation, fontsize=SMALL, ha="right", va="top", transform=bottom.transAxes)
        _titles(bottom, x=r"control variate $h(\theta)$")
    bar = figure.colorbar(filled, ax=axes, shrink=0.5, anchor=(0, 1), aspect=15)
    bar.set_ticks(LEVELS, labels=[f"{level:g}" for level in LEVELS], fontsize=SMALL)
    bar.set_label("relative log likelihood", fontsize=SMALL)
    _titles(axes[1, 0], y=r"log likelihood $g(\theta)$")
    if missing:
        figure.suptitle(missing, fontsize=SMALL)
    return figure


def _contours(ax: Axes, model: Model, surface: _Surface, position: np.ndarray, grid: int) -> QuadContourSet:
    """Draw the log likelihood where two parameters vary and the others are at their means over position[draw, d]."""
    chosen = list(surface.axes)
    centre = position.mean(axis=0)
    half = position.std(axis=0)[chosen] * surface.width
    x, y = np.linspace(centre[chosen] - half, centre[chosen] + half, grid).T
    points = np.tile(centre, (grid, grid, 1))  # [y, x, d]
    points[..., chosen] = np.stack(np.meshgrid(x, y), axis=-1)
    values = np.asarray(jit()(jax.vmap(model.log_likelihood))(jnp.asarray(points.reshape(grid**2, -1))))
    height = np.maximum(values - values.max(), -1e6).reshape(grid, grid)  # -inf where a solver fails
    shades = [str(grey) for grey in np.linspace(1.0, 0.2, len(LEVELS))]
    filled = ax.contourf(x, y, height, levels=LEVELS, colors=shades, extend="min")
    ax.contour(x, y, height, levels=LEVELS[:-1], colors="black", linewidths=0.3, linestyles="solid")
    ax.plot(*centre[chosen], "w+", markersize=5)
    ax.spines[:].set_visible(True)
    return filled


def goodwin_data() -> Figure:
    """Draw the data of Goodwin's oscillator, and the solution that they were made from (SFig. "oscill")."""
    times, data = goodwin._data()
    velocity, parameters = jit()(goodwin._velocity), np.array(GOODWIN_TRUE)

    def change(_: float, x: np.ndarray) -> np.ndarray:
        return np.asarray(velocity(x, parameters))

    s = np.linspace(0, times[-1], 801)
    solution = integrate.solve_ivp(change, (0, times[-1]), np.zeros(3), t_eval=s, rtol=1e-8, atol=1e-9)
    figure, axes = _panels(1, 1, height=2.4)
    ax = axes[0, 0]
    for i in (0, 1):
        style = STYLES[i]
        ax.plot(s, solution.y[i], color=style["color"], linestyle=style["linestyle"], linewidth=0.8)
        ax.plot(times, data[:, i], style["marker"], color=style["color"], fillstyle="none", markersize=4)
        ax.plot([], [], label=f"$x_{i + 1}$", fillstyle="none", markersize=4, linewidth=0.8, **style)
    _legend(ax, loc="upper right", ncols=2)
    _titles(ax, "time $s$", "concentration")
    return figure


def estimators(estimates: pd.DataFrame, application: str, draws: int = 1000) -> Figure:
    """Draw box plots of all estimators: what they say, and how far that is from the truth (SFig. "var reduce" ff.).

    D1 and D2 are degrees, Q1 and Q2 the trapezoid and the second-order rule. Replicates without a finite answer are
    counted below the name. The upper panel shows where all estimators but controlled annealing have their whiskers, of
    1.5 times the box; triangles count what lies beyond. In the lower panel whiskers hold 90 per cent.
    """
    found = labelled(estimates, application, draws)
    finite = [values[np.isfinite(values)] for values in found.values()]
    truth = APPLICATIONS[application].truth
    marks = {"truth": truth}
    if application == "linear":
        ladder = ladders.power(51)
        marks["truth with the error of the trapezoid rule"] = float(trapezoid(ladder)[0] @ linear.integrand(ladder)[0])
    figure, axes = _panels(2, 1, height=4.6, sharex=True)
    upper, lower = axes[:, 0]
    errors = [np.maximum(np.abs(values - truth), 1e-15) for values in finite]  # for the logarithm's sake
    whiskers: tuple[float, tuple[float, float]] = (1.5, (5, 95))  # the smallest errors are accidents
    for ax, boxes, reach in zip((upper, lower), (finite, errors), whiskers, strict=True):
        drawn = ax.boxplot(
            boxes,
            whis=reach,
            widths=0.6,
            patch_artist=True,
            medianprops={"color": "black", "linewidth": 1.2},
            flierprops={"marker": ".", "markersize": 3, "markerfacecolor": "black", "markeredgecolor": "none"},
        )
        for box, name in zip(drawn["boxes"], found, strict=True):
            box.set(facecolor="0.6" if name == "thermint" else "0.9", linewidth=0.8)
        for line in drawn["whiskers"] + drawn["caps"]:
            line.set(linewidth=0.8)
    for (name, value), style in zip(marks.items(), STYLES[1:], strict=False):
        line = {"color": style["color"], "linestyle": "-" if name == "truth" else "--", "linewidth": 0.8}
        upper.axhline(value, label=name, zorder=3, **line)
        if value != truth:
            lower.axhline(abs(value - truth), zorder=3, **line)
    if application == "goodwin":
        lower.axhline(GOODWIN_ERROR, color="black", linestyle=":", linewidth=0.8, label="standard error of the truth")
    _focus(upper, finite, [not name.startswith("CAIS") for name in found], list(marks.values()))
    lower.set_yscale("log")
    labels = [_tick(name, values) for name, values in found.items()]
    lower.set_xticks(range(1, len(found) + 1), labels, fontsize=SMALL)
    for ax in (upper, lower):
        ax.tick_params(axis="x", length=0)
    _titles(upper, y="log evidence" if application == "linear" else r"log Bayes factor, $\log B_{21}$")
    _titles(lower, y="absolute error")
    _legend(figure, loc="outside upper center", ncols=3)
    return figure


def labelled(estimates: pd.DataFrame, application: str, draws: int) -> dict[str, np.ndarray]:
    """Answers of every estimator, by what the axis says of it."""
    found = {}
    for (name, degree, rule), values in answers(estimates, application, draws).items():
        parts = [name, f"D{degree}" if name in ("CTI", "CAIS") else "", QUADRATURE[rule]]
        found[" ".join(filter(None, parts))] = np.where(np.isfinite(values), values, np.nan)
    return found


def _of(table: pd.DataFrame, application: str, draws: int) -> pd.DataFrame:
    """Take the rows of an application and a number of draws."""
    rows = table[(table["application"] == application) & (table["draws"] == draws)]
    if rows.empty:
        raise ValueError(f"the table has no rows of application {application!r} with {draws} draws.")
    return rows


def _tick(name: str, values: np.ndarray) -> str:
    """Name an estimator on the axis, one part a line, and count its failures."""
    name, _, rest = name.partition(" ")
    failures = np.count_nonzero(~np.isfinite(values))
    return "\n".join([name, rest, f"{failures} of {len(values)}\nfailed" if failures else ""]).rstrip()


def _focus(ax: Axes, boxes: list[np.ndarray], chosen: list[bool], marks: list[float]) -> None:
    """Limit the vertical axis to the whiskers of the chosen boxes and to the marks; count what lies beyond."""
    edges = [*marks]
    for values in (box for box, wanted in zip(boxes, chosen, strict=True) if wanted and len(box)):
        low, high = np.quantile(values, [0.25, 0.75])
        reach = values[np.abs(values - (low + high) / 2) <= 2 * (high - low)]  # 1.5 times that beyond the quartiles
        edges += [reach.min(), reach.max()] if len(reach) else []
    low, high = min(edges), max(edges)
    margin = 0.05 * (high - low)
    ax.set_ylim(low - margin, high + margin)
    for i, values in enumerate(boxes, start=1):
        above, below = np.sum(values > high + margin), np.sum(values < low - margin)
        style: dict[str, Any] = {"fontsize": SMALL, "ha": "center", "transform": ax.get_xaxis_transform()}
        if above:
            ax.text(i, 1.01, f"▲ {above}", va="bottom", **style)
        if below:
            ax.text(i, -0.01, f"▼ {below}", va="top", **style)


def _rounded(value: float) -> str:
    """Write a ratio with two digits, or as zero where it is one up to rounding."""
    return "0" if value < 1e-12 else f"{value:.2g}"


def _panels(
    rows: int, columns: int, *, height: float, width: float = WIDTH, **options: Any
) -> tuple[Figure, npt.NDArray[Any]]:
    """Make a figure and its axes, [row, column]."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        raise ImportError('the figures need matplotlib: pip install "thermint[plot]".') from error
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    for ax in axes.flat:
        ax.tick_params(labelsize=SMALL)
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _legend(where: Axes | Figure, **options: Any) -> None:
    where.legend(fontsize=SMALL, frameon=False, alignment="left", columnspacing=1, handlelength=1.8, **options)


def _titles(ax: Axes, x: str = "", y: str = "", title: str = "") -> None:
    """Label axes; what is empty stays as it is."""
    for text, write in ((x, ax.set_xlabel), (y, ax.set_ylabel), (title, ax.set_title)):
        if text:
            write(text, fontsize=TEXT)


def figures_for(estimates: pd.DataFrame, rungs: pd.DataFrame) -> dict[str, Callable[[], Figure]]:
    """Return the figures that the tables allow, by file stem; each is drawn when called."""
    estimated, integrated = ([name for name in TITLES if _has(table, name)] for table in (estimates, rungs))
    columns = [name for name in SURFACES if name in estimated]
    found: dict[str, Callable[[], Figure]] = {}
    for name in integrated:
        found[f"{name}-variance-ratio"] = partial(variance_ratio, rungs, name)
    if columns:
        found["surfaces"] = partial(surfaces, applications=columns)
    if "linear" in estimated:
        found["linear-coefficients"] = coefficients
    if "linear" in integrated:
        found["linear-integrands"] = partial(integrands, rungs)
    if "goodwin" in estimated:
        found["goodwin-data"] = goodwin_data
    for name in estimated:
        found[f"{name}-estimators"] = partial(estimators, estimates, name)
    return found


def _has(table: pd.DataFrame, application: str) -> bool:
    return bool(((table["application"] == application) & (table["draws"] == 1000)).any())
