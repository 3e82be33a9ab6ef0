"""Reproduce the paper: run the study, or what is missing of it, and write its tables and figures."""

from __future__ import annotations

import os
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from thermint.paper import figures, tables
from thermint.paper.study import Extent, Study, cost, tasks


def reproduce(extent: dict[str, Extent], output: Path, workers: int | None = None) -> str:
    """Run what the output folder lacks of the study, and write its tables and figures there.

    Returns the tables as Markdown. By default there is one worker process per core.
    """
    study = Study(output / "replicates.jsonl")
    wanted = tasks(extent)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        total, missing = sum(map(cost, wanted)), sum(map(cost, study.missing(wanted)))
        shown = bar.add_task("replicates", total=total)
        bar.update(shown, completed=total - missing)
        for task in study.run(wanted, workers or os.cpu_count() or 1):
            bar.update(shown, advance=cost(task), description=f"{task.application} {task.model}, N = {task.draws}")
        estimates, rungs = study.estimates(), study.rungs()
        (output / "figures").mkdir(exist_ok=True)
        for name, draw in figures.figures_for(estimates, rungs).items():
            bar.update(shown, description=f"figure {name}")
            figure = draw()
            for kind in ("pdf", "png"):
                figure.savefig(output / "figures" / f"{name}.{kind}", dpi=150)
    parts = []
    for number, applications in tables.TABLES.items():
        if not estimates["application"].isin(applications).any():
            continue
        table = tables.table(number, estimates)
        table.to_csv(output / f"table-{number}.csv", index=False)
        parts += [f"## Table {number}\n", tables.markdown(table)]
    text = "\n".join([*parts, tables.provenance(estimates)])
    (output / "tables.md").write_text(text)
    return text
