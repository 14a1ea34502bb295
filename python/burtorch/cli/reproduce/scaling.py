"""Open questions of the paper's appendix K: large batches and large graphs."""

from __future__ import annotations

from tempfile import TemporaryDirectory

from burtorch.cli.reproduce import problems
from burtorch.cli.reproduce.processes import LaunchError, launch
from burtorch.cli.reproduce.settings import Settings
from burtorch.cli.reproduce.tables import Bars, Column, Row, Table

BATCHES, QUICK_BATCHES = (1, 16, 64, 256, 1024, 4096, 16384, 65536), (64, 1024)
NODES, QUICK_NODES = (10**4, 10**5, 10**6, 10**7, 10**8), (10**4, 10**6)
SYMBOLS = 2**20


def batches(settings: Settings, name: str) -> Table:
    """Time of a sample as the batch grows; memory should not grow with it."""
    columns = [
        Column("step, median", "ms"),
        Column("of a sample", "us"),
        Column("peak resident", "MB"),
        Column("private at the end", "MB"),
    ]
    found = Table(name, "large batches: burtorch, loss and gradient (GPT) or SGD step (character model)", columns)
    for model in ("mlp", "gpt"):
        for batch in QUICK_BATCHES if settings.quick else BATCHES:
            label = f"{'character model, e=64' if model == 'mlp' else 'GPT'}, b={batch:,}"
            with TemporaryDirectory() as folder:
                n = max(1, min(problems.N_BATCHES, SYMBOLS // batch // 17))
                if model == "mlp":
                    problem = problems.mlp(settings, folder, 64, batch, n)
                else:
                    problem = problems.gpt(settings, folder, batch, n)
                job = {"family": "model", "program": "burtorch", "problem": problem, "iterations": 200}
                run = launch({**job, "budget": min(5.0, settings.budget("model"))})
            memory = [run["memory"][which] for which in ("resident", "private")]
            megabytes = [size / 1e6 if size else None for size in memory]
            found.rows.append(Row(label, [1e3 * run["median"], 1e6 * run["median"] / batch, *megabytes]))
    found.notes = [
        "Where a GPU starts to win is not measured: that needs a GPU and a rival that uses it.",
        "Memory includes the batches themselves, 68 bytes a sample of the character model and 64 of the GPT.",
    ]
    found.bars = Bars(("of a sample",), log=False)
    return found


def graphs(settings: Settings, name: str) -> Table:
    """A chain of additions: time and memory of a node should not grow with their number."""
    columns = [
        Column("build", "s"),
        Column("backward", "s"),
        Column("build a node", "ns"),
        Column("backward a node", "ns"),
        Column("resident a node", "bytes"),
    ]
    found = Table(name, "large graphs: a chain of additions, built from Python and differentiated", columns)
    bare = launch({"family": "chain", "nodes": 1})["memory"]["resident"]
    for n in QUICK_NODES if settings.quick else NODES:
        try:
            run = launch({"family": "chain", "nodes": n})
        except LaunchError as error:
            found.notes.append(f"{n:,} nodes: {error}")
            continue
        size, (built, swept) = run["memory"]["resident"], (run["build"], run["backward"])
        grown = (size - bare) / n if bare and size else None
        found.rows.append(Row(f"{n:,} nodes", [built, swept, 1e9 * built / n, 1e9 * swept / n, grown]))
    found.notes.append("The derivative was checked: it is the number of operands.")
    found.bars = Bars(("build a node", "backward a node"), log=False)
    return found
