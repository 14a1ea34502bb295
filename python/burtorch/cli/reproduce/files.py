"""Table 4: saving and loading the first seven activations of the small graph."""

from __future__ import annotations

import os
from tempfile import TemporaryDirectory
from typing import Any

from burtorch.cli.reproduce import paper
from burtorch.cli.reproduce.processes import in_turn, mean_and_deviation
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
    """On disk, and in a folder that is memory where the system has one."""
    calls, trials = (QUICK_CALLS, QUICK_TRIALS) if settings.quick else (CALLS, TRIALS)
    found = Table(name, f"save and load 7 of 32 float64 numbers (56 bytes), mean of {calls:,} calls", COLUMNS)
    rivals = [rival for rival in ("numpy", "torch") if settings.versions.get(rival)]
    rivals += ["safetensors"] if rivals else []
    with TemporaryDirectory(dir=settings.out) as disk:
        folders = {"disk": disk, **({"memory": MEMORY} if os.access(MEMORY, os.W_OK) else {})}
        jobs = {
            place: {"family": "files", "folder": folder, "calls": calls, "rivals": rivals}
            for place, folder in folders.items()
        }
        results, failures = in_turn(jobs, trials)
    for place, runs in results.items():
        found.notes.append(f"{place}: {runs[0]['folder']}.")
        found.rows += [Row(f"{place}: {which}", _cells(which, runs)) for which in runs[0]["contenders"]]
    found.notes += [*failures, standing(found, "save"), standing(found, "load")]
    if "memory" not in folders:
        found.notes.append("No rows in memory: the system has no /dev/shm.")
    found.notes += [f"Mean and deviation over {trials} processes. What was loaded was checked.", paper.SEE]
    found.published = paper.of_files()
    found.bars = Bars(("save", "load"))
    return found


def _cells(which: str, runs: list[dict[str, Any]]) -> list[Cell]:
    cells: list[Cell] = []
    for what in ("save", "load"):
        cells += mean_and_deviation(run["contenders"][which][what]["mean"] for run in runs)
    size: int = runs[0]["contenders"][which]["bytes"]
    return [*cells, size]
