"""Tables 2, 3, 11, 15 and figures 3, 5, 6: one small graph, built and differentiated many times."""

from __future__ import annotations

from typing import Any

from burtorch.cli.reproduce import machine, paper
from burtorch.cli.reproduce.processes import in_rounds, mean_and_deviation
from burtorch.cli.reproduce.programs.graphs import BY_HAND, POINTS
from burtorch.cli.reproduce.rivals import LABELS
from burtorch.cli.reproduce.settings import Settings
from burtorch.cli.reproduce.tables import COMPARED, MEMORY, MEMORY_NOTE, Bars, Cell, Column, Row, Table, standing

ITERATIONS = {"tiny": 100_000, "small": 20_000}
COLUMNS = [
    Column("compute time", "s"),
    Column("deviation", "s"),
    Column("minimum", "s"),
    Column("clocks of an iteration"),
    Column("time over burtorch"),
    Column("initialisation", "ms"),
    *MEMORY,
]


def table(settings: Settings, name: str, graph: str) -> Table:
    """Time of all iterations by contender."""
    n = ITERATIONS[graph]
    results, failures = measure(settings, graph)
    found = Table(name, f"{graph} graph, {n:,} iterations of building and differentiating, float64", COLUMNS)
    own = mean_and_deviation(run["seconds"] for run in results["burtorch"])[0]
    for program, runs in results.items():
        scaled = "*" if any(run["iterations"] < n for run in runs) else ""
        found.rows.append(Row(LABELS[program] + scaled, _cells(runs, n, own)))
    found.notes += [*failures, *(standing(found, column) for column in COMPARED)]
    if any(row.label.endswith("*") for row in found.rows):
        found.notes.append("* ran fewer iterations, and its time is scaled to all of them.")
    clock = machine.clock_hz()
    if clock is None:
        found.notes.append("No row in theory and no clocks: the system does not state the clock rate.")
    else:
        operations = count_operations(graph)
        seconds = operations * n / clock
        in_theory: list[Cell] = [seconds, None, None, operations, seconds / own]
        found.rows.append(Row("in theory, registers only", [*in_theory, *[None] * 4]))
        found.notes.append(
            f"In theory: the {operations} operations of the value and the gradient by hand, one a clock of "
            f"{clock / 1e6:,.0f} MHz. Clocks are minimum time times that rate."
        )
    found.notes += [
        f"Mean and deviation over {settings.launches} processes, contenders in turn, each kept to one core; minimum of "
        "20 slices of each. Initialisation: imports to the first answer. Every answer was checked.",
        MEMORY_NOTE,
    ]
    found.published = paper.beside(name)
    found.bars = Bars(("compute time",))
    return found


def figure(settings: Settings, name: str, graph: str) -> Table:
    """The bars of a table of this run."""
    whole = table(settings, name, graph)
    whole.notes = [note for note in whole.notes if "best way from Python" not in note]
    whole.title = f"compute time of the {graph} graph"
    keep = [0, 4]
    whole.columns = [whole.columns[k] for k in keep]
    whole.rows = [Row(row.label, [row.values[k] for k in keep]) for row in whole.rows]
    return whole


def measure(settings: Settings, graph: str) -> Any:
    """All launches."""
    jobs = {
        program: settings.job(
            program, family="graph", graph=graph, iterations=ITERATIONS[graph], budget=settings.budget("graph")
        )
        for program in (*settings.own_programs("graph"), "python", *settings.programs("graph"))
    }
    return in_rounds(settings, ("graph", graph), jobs, settings.launches)


def _cells(runs: list[dict[str, Any]], n: int, own: float) -> list[Cell]:
    mean, deviation = mean_and_deviation(run["seconds"] for run in runs)
    least = min(run["minimum"] for run in runs)
    clock = machine.clock_hz()
    memory = [_megabytes(runs, which) for which in ("resident", "private", "virtual")]
    init = 1e3 * mean_and_deviation(run["init"] for run in runs)[0]
    return [mean, deviation, least, least / n * clock if clock else None, mean / own, init, *memory]


def _megabytes(runs: list[dict[str, Any]], which: str) -> float | None:
    found = [run["memory"][which] for run in runs]
    return None if None in found else max(found) / 1e6


class _Counted(float):
    """A float that counts the operations on it."""

    operations = 0


def count_operations(graph: str) -> int:
    """Operations of the value and both partials, written by hand."""
    names = ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "neg", "gt")

    def counting(name: str) -> Any:
        plain = getattr(float, f"__{name}__")

        def operation(self: float, *other: float) -> Any:
            _Counted.operations += 1
            answer = plain(self, *other)
            return answer if name == "gt" else _Counted(answer)

        return operation

    for name in names:
        setattr(_Counted, f"__{name}__", counting(name))
    _Counted.operations = 0
    BY_HAND[graph](*map(_Counted, POINTS[graph]))
    return _Counted.operations
