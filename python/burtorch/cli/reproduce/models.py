"""Tables 1, 5 to 7, 12 to 14 and 16 to 18: the character model and the GPT."""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import Any

from burtorch.cli.reproduce import paper, problems
from burtorch.cli.reproduce.processes import in_turn
from burtorch.cli.reproduce.rivals import LABELS
from burtorch.cli.reproduce.settings import Settings
from burtorch.cli.reproduce.tables import COMPARED, MEMORY, MEMORY_NOTE, Bars, Cell, Column, Row, Table, standing

HIDDEN = (4, 16, 32, 64, 128, 512, 1024)
BATCHES = (1, 2, 4, 8, 16, 32, 64)
QUICK_HIDDEN, QUICK_BATCHES = (16, 64), (1, 64)
MLP_STEPS, GPT_STEPS, QUICK_STEPS = 4000, 3000, 100
COLUMNS = [
    Column("compute time", "ms"),
    Column("deviation", "ms"),
    Column("median", "ms"),
    Column("minimum", "ms"),
    Column("time over burtorch"),
    Column("initialisation", "ms"),
    *MEMORY,
]
Results = "dict[str, list[dict[str, Any]]]"


def mlp_table(settings: Settings, name: str, batch: int) -> Table:
    """Every hidden size at one batch size."""
    title = f"character model (context 16, embedding 64, hidden e, tanh), one SGD step, b = {batch}, float32"
    found = Table(name, title, COLUMNS)
    for e in _hidden(settings):
        _add(found, f"e={e}", MLP_STEPS, settings, *mlp_cell(settings, e, batch))
    _notes(found, settings, MLP_STEPS)
    found.notes.append(f"Batches are drawn from {len(settings.words):,} words beforehand, and not timed.")
    if name in ("table6", "table13"):
        found.notes.append("In the paper, PyTorch's initialisation in table 13 repeats the column of table 6.")
    found.published = paper.beside(name)
    return found


def gpt_table(settings: Settings, name: str) -> Table:
    """Every batch size."""
    title = "GPT of 46,289 parameters (6 layers, 6 heads, width 24, context 8), loss and gradient, float32"
    found = Table(name, title, COLUMNS)
    for batch in QUICK_BATCHES if settings.quick else BATCHES:
        _add(found, f"b={batch}", GPT_STEPS, settings, *gpt_cell(settings, batch))
    _notes(found, settings, GPT_STEPS)
    symbols = "random symbols, as no --text was given" if settings.text is None else "the text of --text"
    found.notes.append(f"Windows are drawn from {symbols}, beforehand, and not timed.")
    found.published = paper.beside(name)
    return found


def summary(settings: Settings, name: str) -> Table:
    """Table 1, which the paper derives from table 5: PyTorch over burtorch at one sample."""
    rivals = [program for program in settings.programs("model") if program.startswith("torch")]
    columns = [Column(f"{LABELS[program]}: {what}") for program in rivals for what in ("time", "memory")]
    found = Table(name, "character model at b = 1: rival over burtorch, mean time and peak resident memory", columns)
    if not rivals:
        found.measured = False
        found.notes.append("Not measured: PyTorch is not installed.")
        return found
    for e in _hidden(settings):
        results, failures = mlp_cell(settings, e, 1)
        own = results["burtorch"][0]
        values: list[Cell] = []
        for program in rivals:
            runs = results.get(program)
            values.append(runs[0]["mean"] / own["mean"] if runs else None)
            values.append(_over(runs[0], own) if runs else None)
        found.rows.append(Row(f"e={e}", values))
        found.notes += failures
    found.notes.append("The paper's x340 is the row e = 16 of its table 5; its row e = 64 gives x292.")
    found.published = paper.beside(name)
    found.bars = Bars(tuple(column.name for column in columns if column.name.endswith("time")), log=False)
    return found


def mlp_cell(settings: Settings, hidden: int, batch: int) -> Any:
    """The results of one cell, and lines about failures."""
    return settings.once(("mlp", hidden, batch), lambda: _measured(settings, hidden, batch))


def gpt_cell(settings: Settings, batch: int) -> Any:
    return settings.once(("gpt", batch), lambda: _measured(settings, None, batch))


def _measured(settings: Settings, hidden: int | None, batch: int) -> Any:
    with TemporaryDirectory() as folder:
        if hidden is None:
            problem, steps = problems.gpt(settings, folder, batch), GPT_STEPS
        else:
            problem, steps = problems.mlp(settings, folder, hidden, batch), MLP_STEPS
        programs = [*settings.own_programs("model"), *settings.programs("model")]
        if hidden is None:
            programs = [program for program in programs if program != "numpy"]  # has no GPT
        job = {"family": "model", "problem": problem, "iterations": _steps(settings, steps)}
        jobs = {program: settings.job(program, **job, budget=settings.budget("model")) for program in programs}
        return in_turn(jobs, 1)


def _steps(settings: Settings, steps: int) -> int:
    return QUICK_STEPS if settings.quick else steps


def _hidden(settings: Settings) -> tuple[int, ...]:
    return QUICK_HIDDEN if settings.quick else HIDDEN


def _add(
    found: Table,
    cell: str,
    steps: int,
    settings: Settings,
    results: dict[str, list[dict[str, Any]]],
    failures: list[str],
) -> None:
    own = results["burtorch"][0]["mean"]
    for program, (run,) in results.items():
        times: list[Cell] = [1e3 * run[which] for which in ("mean", "deviation", "median", "minimum")]
        memory: list[Cell] = [run["memory"][which] for which in ("resident", "private", "virtual")]
        megabytes = [None if size is None else size / 1e6 for size in memory]  # type: ignore[operator]
        label = "burtorch" if program == "burtorch" else LABELS[program]
        label += "*" if run["iterations"] < _steps(settings, steps) else ""
        found.rows.append(Row(f"{cell}: {label}", [*times, run["mean"] / own, 1e3 * run["init"], *megabytes]))
    found.notes += [f"{cell}: {line}" for line in failures]


def _over(run: dict[str, Any], own: dict[str, Any]) -> float | None:
    mine, theirs = own["memory"]["resident"], run["memory"]["resident"]
    return theirs / mine if mine and theirs else None


def _notes(found: Table, settings: Settings, steps: int) -> None:
    found.notes += [
        *(standing(found, column) for column in COMPARED),
        f"Mean and deviation over {_steps(settings, steps):,} iterations of one process, kept to one core. Losses and "
        "gradients of all contenders agreed with float64 within 1e-5.",
        "Initialisation: imports, reading the problem, compiling, the first step.",
        MEMORY_NOTE,
    ]
    if any(row.label.endswith("*") for row in found.rows):
        found.notes.append(f"* stopped after {settings.budget('model'):.0f} s: its figures are from fewer iterations.")
    found.bars = Bars(("compute time",))
