"""Table 4: saving and loading the first seven activations of the small graph."""

from __future__ import annotations

import os
from tempfile import TemporaryDirectory
from typing import Any

from burtorch.cli.reproduce import paper
from burtorch.cli.reproduce.processes import in_rounds, mean_and_deviation
from burtorch.cli.reproduce.rivals import LABELS, RUST
from burtorch.cli.reproduce.settings import Settings
from burtorch.cli.reproduce.tables import Bars, Cell, Column, Row, Table, standing

CALLS, QUICK_CALLS = 5000, 400
TRIALS, QUICK_TRIALS = 5, 2
COLUMNS = [
    Column("save", "us"),
    Column("deviation", "us"),
    Column("load", "us"),
    Column("deviation", "us"),
    Column("file", "bytes"),
]
MEMORY = "/dev/shm"


def table(settings: Settings, name: str) -> Table:
    """On disk, and in a folder in memory if the system has one."""
    calls, trials = (QUICK_CALLS, QUICK_TRIALS) if settings.quick else (CALLS, TRIALS)
    found = Table(name, f"save and load 7 of 32 float64 numbers (56 bytes), mean of {calls:,} calls", COLUMNS)
    rivals = [rival for rival in ("numpy", "torch") if settings.versions.get(rival)]
    rivals += ["safetensors"] if rivals else []
    with TemporaryDirectory(dir=settings.out and os.path.abspath(settings.out)) as disk:
        folders = {"disk": disk, **({"memory": MEMORY} if os.access(MEMORY, os.W_OK) else {})}
        jobs = {
            place: {"family": "files", "folder": folder, "calls": calls, "rivals": rivals}
            for place, folder in folders.items()
        }
        if settings.rust is not None:
            for place, folder in folders.items():
                jobs[f"{place} {RUST}"] = settings.job(RUST, family="files", folder=folder, calls=calls)
        results, failures = in_rounds(settings, ("files",), jobs, trials)
    for place in folders:
        runs = _with_rust(results.get(place, []), results.get(f"{place} {RUST}", []))
        if not runs:
            continue
        found.notes.append(f"{place}: {runs[0]['folder']}.")
        found.rows += [Row(f"{place}: {which}", _cells(which, runs)) for which in runs[0]["contenders"]]
    found.notes += [*failures, standing(found, "save"), standing(found, "load")]
    if "memory" not in folders:
        found.notes.append("No rows in memory: the system has no /dev/shm.")
    found.notes.append(f"Mean and deviation over {trials} processes. The loaded numbers were checked.")
    found.published = paper.beside(name)
    found.bars = Bars(("save", "load"))
    return found


def _with_rust(runs: list[dict[str, Any]], others: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each trial with the raw format as saved by the Rust program."""
    if not runs or len(others) != len(runs):
        return runs
    rows = [{"save": {"mean": o["save"]}, "load": {"mean": o["load"]}, "bytes": o["bytes"]} for o in others]
    return [{**run, "contenders": {**run["contenders"], LABELS[RUST]: row}} for run, row in zip(runs, rows)]


def _cells(which: str, runs: list[dict[str, Any]]) -> list[Cell]:
    cells: list[Cell] = []
    for what in ("save", "load"):
        cells += mean_and_deviation(run["contenders"][which][what]["mean"] for run in runs)
    size: int = runs[0]["contenders"][which]["bytes"]
    return [*cells, size]
