"""Table 19 and figure 7: energy of whole processes that run the tiny graph. Measured, or absent: never estimated."""

from __future__ import annotations

import time
from typing import Any, Protocol

import burtorch
from burtorch.cli.errors import say
from burtorch.cli.reproduce import paper
from burtorch.cli.reproduce.processes import LaunchError, launch
from burtorch.cli.reproduce.rivals import LABELS
from burtorch.cli.reproduce.scalars import ITERATIONS
from burtorch.cli.reproduce.settings import Settings
from burtorch.cli.reproduce.tables import Bars, Cell, Column, Row, Table

SECONDS, QUICK_SECONDS = 10.0, 2.0
JOULES_PER_MWH = 3.6
COLUMNS = [
    Column("time with initialisation", "s"),
    Column("total", "mWh"),
    Column("task", "mWh"),
    Column("idle rate x time", "mWh"),
    Column("total", "J"),
    Column("task", "J"),
    Column("idle rate x time", "J"),
]


class Meter(Protocol):
    """The interface of ``burtorch.system.energy()`` used here."""

    source: str

    @property
    def joules(self) -> float: ...

    @property
    def seconds(self) -> float: ...

    def restart(self) -> None: ...


def table(settings: Settings, name: str) -> Table:
    """Energy of a process by contender, or the reason why it was not measured."""
    title = f"energy of a process of {ITERATIONS['tiny']:,} iterations of the tiny graph"
    found = Table(name, title, COLUMNS, published=paper.beside(name))
    try:
        meter = burtorch.system.energy()
    except OSError as error:
        found.measured = False
        found.notes.append(f"Not measured: {error.strerror}.")
        return found
    rows, notes = settings.once("energy", lambda: measure(settings, meter))
    found.rows, found.bars = [Row(*row) for row in rows], Bars(("total, J",))
    found.notes = [*notes, f"Meter: {meter.source}, of the whole machine."]
    return found


def measure(settings: Settings, meter: Meter) -> tuple[list[tuple[str, list[Cell]]], list[str]]:
    """Measures idle power, then each program, whose process is repeated for several seconds."""
    seconds = QUICK_SECONDS if settings.quick else SECONDS
    idle = idle_watts(meter, seconds)
    rows, notes = [], [f"Idle power, measured for {seconds:.0f} s beforehand: {idle:.2f} W. Task: total less idle."]
    for program in (*settings.own_programs("graph"), "python", *settings.programs("graph")):
        say(f"energy: {program}")
        try:
            rows.append(_row(settings, program, meter, idle, seconds))
        except LaunchError as error:
            notes.append(f"{program} failed: {error}")
    if any(label.endswith("*") for label, _ in rows):
        notes.append("* ran a tenth of the iterations: time and energy of these are scaled, initialisation is not.")
    return rows, notes


def idle_watts(meter: Meter, seconds: float) -> float:
    meter.restart()
    time.sleep(seconds)
    return meter.joules / meter.seconds


def _row(settings: Settings, program: str, meter: Meter, idle: float, seconds: float) -> tuple[str, list[Cell]]:
    job = settings.job(program, family="graph", graph="tiny", iterations=ITERATIONS["tiny"], budget=seconds)
    runs: list[dict[str, Any]] = [launch({**job, "iterations": ITERATIONS["tiny"] // 100})]
    slow = runs[0]["seconds"] * 100 > seconds
    n = job["iterations"] = ITERATIONS["tiny"] // (10 if slow else 1)
    runs.clear()
    meter.restart()
    while not runs or meter.seconds < seconds:
        runs.append(launch({**job, "budget": 10 * seconds}))
    share = _scale(runs, ITERATIONS["tiny"] / n) / len(runs)
    elapsed, joules = meter.seconds * share, meter.joules * share
    parts: list[Cell] = [joules, joules - idle * elapsed, idle * elapsed]
    in_mwh: list[Cell] = [part / JOULES_PER_MWH for part in parts]  # type: ignore[operator]
    return LABELS[program] + ("*" if slow else ""), [elapsed, *in_mwh, *parts]


def _scale(runs: list[dict[str, Any]], times: float) -> float:
    """The growth factor of a process whose iterations alone take ``times`` as long."""
    init = sum(run["init"] for run in runs)
    loop = sum(run["seconds"] for run in runs)
    return float((init + times * loop) / (init + loop))
