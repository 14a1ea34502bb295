"""Bar charts of tables, drawn by Matplotlib if it is installed (``pip install burtorch[peers]``)."""

from __future__ import annotations

import importlib
from typing import Any

from burtorch.cli.reproduce.tables import Table, show

OURS, THEIRS, THEORY = "#1f6fb4", "#9aa3ad", "#d9a441"


def draw(table: Table, path: str) -> str | None:
    """Writes a PNG of the bars of a table; returns ``None``, or the reason of a failure."""
    if table.bars is None:
        return "the table has no bars"
    try:
        figures: Any = importlib.import_module("matplotlib.figure")
    except ImportError:
        return "Matplotlib is not installed"
    indices = [k for k, column in enumerate(table.columns) if {column.name, column.head()} & {*table.bars.columns}]
    rows = [row for row in table.rows if any(isinstance(row.values[k], (int, float)) for k in indices)]
    alone = not any("burtorch" in row.label for row in rows)
    colours = [OURS if alone else _colour(row.label) for row in rows]
    # Without pyplot, which keeps figures and selects a window system for the process.
    figure = figures.Figure(figsize=(5 + 4.5 * len(indices), 1.1 + 0.3 * len(rows)), layout="constrained")
    axes = figure.subplots(1, len(indices), squeeze=False, sharey=True)
    for at, (k, axis) in enumerate(zip(indices, axes[0])):
        numbers = [_number(row.values[k]) for row in rows]
        bars = axis.barh(range(len(rows)), numbers, color=colours)
        axis.bar_label(bars, [show(row.values[k]) for row in rows], padding=3, fontsize=8)
        axis.set_yticks(range(len(rows)), [row.label for row in rows], fontsize=8)
        if at == 0:
            axis.set_ylim(len(rows) - 0.4, -0.6)  # the first row on top
        if table.bars.log:
            axis.set_xscale("log")
            axis.set_xlim(min(number for number in numbers if number > 0) / 3, max(numbers) * 6)
        else:
            axis.set_xlim(right=max(numbers) * 1.15)
        axis.set_xlabel(table.columns[k].head(), fontsize=8)
        axis.tick_params(axis="x", which="both", labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{table.name}: {table.title}", fontsize=9)
    figure.savefig(path, dpi=130)
    return None


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def _colour(label: str) -> str:
    return OURS if "burtorch" in label else THEORY if "theory" in label else THEIRS
