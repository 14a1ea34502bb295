"""Curves of runs: the loss and the norm of the gradient against epochs, bits and seconds, on logarithmic axes."""

from __future__ import annotations

import importlib
from typing import Any

ALONG = {"epochs": "epochs (oracle calls by n)", "bits_up": "bits that clients sent", "seconds": "seconds of steps"}
WHAT = {"loss": "loss - least loss of all runs", "grad_norm": "|grad f(x)|"}


def draw(runs: dict[str, list[dict[str, Any]]], path: str) -> str | None:
    """Writes a PNG: for each method the median over its seeds, and the band from the smallest to the largest.

    Returns None, or the reason why it could not be drawn.
    """
    try:
        figures: Any = importlib.import_module("matplotlib.figure")
    except ImportError:
        return "Matplotlib is not installed (pip install 'burtorch[viz]')"
    # Without pyplot, which keeps figures and selects a window system for the process.
    figure = figures.Figure(figsize=(13, 7.4), layout="constrained")
    grid = figure.subplots(len(WHAT), len(ALONG), sharey="row")
    best = min(record["loss"] for found in runs.values() for one in found for record in one["records"])
    for row, what in zip(grid, WHAT):
        for axes, along in zip(row, ALONG):
            for k, (name, found) in enumerate(runs.items()):
                _curve(axes, f"C{k}", name, found, along, what, best if what == "loss" else 0.0)
            axes.set_yscale("log")
            axes.grid(alpha=0.25)
            axes.spines[["top", "right"]].set_visible(False)
            if along == "bits_up":
                _without_bits(axes)
            if what == "grad_norm":
                axes.set_xlabel(ALONG[along], fontsize=9)
        row[0].set_ylabel(WHAT[what], fontsize=9)
    handles, names = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=min(len(runs), 8), fontsize=9, frameon=False)
    figure.savefig(path, dpi=100)
    return None


def _curve(axes: Any, colour: str, name: str, found: list[dict[str, Any]], along: str, what: str, least: float) -> None:
    """The curve of a method; runs are cut to the shortest, because a diverged run is short."""
    import numpy as np

    n = min(len(one["records"]) for one in found)
    x, y = (np.array([[record[key] for record in one["records"][:n]] for one in found]) for key in (along, what))
    if along == "bits_up" and not x.any():
        return
    x = np.median(x, axis=0)
    # The distance of the smallest loss from itself is 0 and has no logarithm: the curve ends before it.
    y = np.where(y - least > 0.0, y - least, np.nan)
    shown = ~np.isnan(y).any(axis=0)
    middle = np.median(y[:, shown], axis=0)
    axes.plot(x[shown], middle, color=colour, label=name, linewidth=1.6)
    if len(found) > 1:
        axes.fill_between(
            x[shown], y[:, shown].min(axis=0), y[:, shown].max(axis=0), color=colour, alpha=0.2, linewidth=0
        )


def _without_bits(axes: Any) -> None:
    if not axes.lines:
        axes.text(0.5, 0.5, "no method of clients", ha="center", va="center", transform=axes.transAxes, fontsize=9)
