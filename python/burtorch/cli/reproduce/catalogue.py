"""The names for ``burtorch reproduce``, their measurements, and the report of several."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

from burtorch.cli.errors import InputError, say
from burtorch.cli.reproduce import drawings, files, models, ops_tables, power, scalars, scaling, sizes, training
from burtorch.cli.reproduce import report as reports
from burtorch.cli.reproduce.processes import LaunchError
from burtorch.cli.reproduce.settings import Settings
from burtorch.cli.reproduce.tables import Table


@dataclass
class Entry:
    title: str
    measure: Callable[[Settings, str], Table]


def _graph(graph: str) -> Callable[[Settings, str], Table]:
    return lambda settings, name: scalars.table(settings, name, graph)


def _bars(graph: str) -> Callable[[Settings, str], Table]:
    return lambda settings, name: scalars.figure(settings, name, graph)


def _mlp(batch: int) -> Callable[[Settings, str], Table]:
    return lambda settings, name: models.mlp_table(settings, name, batch)


TINY = "tiny graph, 100,000 iterations"
MLP_1, MLP_64, GPT = "character model, one sample", "character model, 64 samples", "GPT, 1 to 64 samples"
ENTRIES: dict[str, Entry] = {
    "table1": Entry("character model: PyTorch over burtorch", models.summary),
    "table2": Entry(TINY, _graph("tiny")),
    "table3": Entry("small graph, 20,000 iterations: time and memory", _graph("small")),
    "table4": Entry("save and load 7 of 32 numbers", files.table),
    "table5": Entry(MLP_1, _mlp(1)),
    "table6": Entry(MLP_64, _mlp(64)),
    "table7": Entry(GPT, models.gpt_table),
    "table8": Entry("ops of one operand", ops_tables.table),
    "table9": Entry("ops of two operands", ops_tables.table),
    "table10": Entry("ops of many operands", ops_tables.table),
    "table11": Entry(f"{TINY} (another system in the paper)", _graph("tiny")),
    "table12": Entry(f"{MLP_1} (another system in the paper)", _mlp(1)),
    "table13": Entry(f"{MLP_64} (another system in the paper)", _mlp(64)),
    "table14": Entry(f"{GPT} (another system in the paper)", models.gpt_table),
    "table15": Entry(f"{TINY} (a third system in the paper)", _graph("tiny")),
    "table16": Entry(f"{MLP_1} (a third system in the paper)", _mlp(1)),
    "table17": Entry(f"{MLP_64} (a third system in the paper)", _mlp(64)),
    "table18": Entry(f"{GPT} (a third system in the paper)", models.gpt_table),
    "table19": Entry("energy of the tiny graph", power.table),
    "figure1": Entry("the tiny graph, drawn", drawings.graph),
    "figure2": Entry("the small graph, drawn", drawings.graph),
    "figure3": Entry("bars of table 2", _bars("tiny")),
    "figure4": Entry("figure 1 as a program, for several frameworks", drawings.listings),
    "figure5": Entry("bars of table 11", _bars("tiny")),
    "figure6": Entry("bars of table 15", _bars("tiny")),
    "figure7": Entry("bars of table 19", power.table),
    "sizes": Entry("installed size, import and compile time (appendix E)", sizes.table),
    "large-batches": Entry("1 to 65,536 samples (appendix K)", scaling.batches),
    "gpu": Entry("where a GPU starts to win, from published figures (appendix K)", scaling.gpu),
    "randomised": Entry("randomised backpropagation: time and variance (appendix K)", scaling.randomised),
    "training": Entry("training runs of both models, with loss curves", training.table),
    "large-graphs": Entry("10^4 to 10^8 nodes (appendix K)", scaling.graphs),
}


def expand(names: list[str]) -> list[str]:
    """The names to measure, each once; ``all`` means every name."""
    if not names:
        raise InputError("expected the name of a table or figure, or all (--list shows the names)")
    for name in names:
        if name != "all" and name not in ENTRIES:
            raise InputError(f"no table or figure {name!r} (--list shows the names)")
    return list(ENTRIES) if "all" in names else list(dict.fromkeys(names))


def report(names: list[str], settings: Settings, *, as_json: bool) -> int:
    """Measures, prints, and writes the files of ``--out``; exit code 1 if nothing could be measured.

    An interrupt ends it early, with a report of the finished tables.
    """
    began = perf_counter()
    tables: list[Table] = []
    interrupted = False
    try:
        for name in names:
            start = perf_counter()
            tables.append(_measured(name, settings))
            say(f"{name}: {perf_counter() - start:.0f} s")
    except KeyboardInterrupt:
        interrupted = True
    reports.write(tables, settings, perf_counter() - began, as_json=as_json)
    if interrupted:
        raise KeyboardInterrupt
    settings.kept.finish()
    return 0 if any(table.measured for table in tables) else 1


def _measured(name: str, settings: Settings) -> Table:
    """The table; if it cannot be measured, its notes give the reason."""
    try:
        return ENTRIES[name].measure(settings, name)
    except (LaunchError, RuntimeError) as error:
        return Table(name, ENTRIES[name].title, [], notes=[f"Not measured: {error}"], measured=False)
