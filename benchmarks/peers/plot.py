"""The plot of all results: error against CPU seconds, a panel for each problem."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.methods import METHODS
from benchmarks.peers.scores import Score

MARKERS = "os^Dv<>PX*hp"  # with eight colours, no two methods look alike
LEAST = 1e-13  # an error below is rounding


def draw(problems: list[tuple[str, list[Score]]], path: Path) -> None:
    """Plot error against CPU seconds, efforts of a method joined by a line.

    Args:
        problems: title and scores of each; a panel for each that has any.
        path: where to.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    from thermint.report.style import CYCLE, PAGE

    problems = [problem for problem in problems if problem[1]]
    columns = min(3, max(1, len(problems)))
    rows = -(-len(problems) // columns) or 1
    figure, axes = plt.subplots(rows, columns, figsize=(PAGE, 2.1 * rows + 0.8), squeeze=False, layout="constrained")
    for ax, (title, scores) in zip(axes.flat, problems, strict=False):
        for i, name in enumerate(METHODS):
            mine = sorted((one for one in scores if one.method == name), key=lambda one: one.run)
            if not mine:
                continue
            ax.plot(
                [one.run for one in mine],
                [max(one.rmse, LEAST) for one in mine],
                marker=MARKERS[i % len(MARKERS)],
                color=CYCLE[(i + 1) % len(CYCLE)],
                markersize=6 if name == "thermint" else 4,
                linewidth=2 if name == "thermint" else 0.8,
                zorder=3 if name == "thermint" else 2,
                label=METHODS[name].title,
            )
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_title(title, fontsize="small")
        ax.tick_params(labelsize="x-small")
    for ax in axes.flat[len(problems) :]:
        ax.set_axis_off()
    named = {label: line for ax in axes.flat for line, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.supxlabel("CPU seconds of a run, compiled", fontsize="small")
    figure.supylabel("RMSE against the truth, nats", fontsize="small")
    figure.legend(named.values(), named.keys(), loc="outside upper center", ncols=4, fontsize="x-small", frameon=False)
    figure.savefig(path, dpi=150)
    plt.close(figure)
