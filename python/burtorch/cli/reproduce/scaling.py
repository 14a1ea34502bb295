"""Open questions of the paper's appendix K: large batches, large graphs, GPUs, randomised backward passes."""

from __future__ import annotations

from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

from burtorch.cli.reproduce import problems
from burtorch.cli.reproduce.processes import LaunchError, launch
from burtorch.cli.reproduce.programs.burtorch_programs import GPT
from burtorch.cli.reproduce.settings import Settings
from burtorch.cli.reproduce.tables import MEMORY, Bars, Cell, Column, Row, Table

BATCHES, QUICK_BATCHES = (1, 16, 64, 256, 1024, 4096, 16384, 65536), (64, 1024)
NODES, QUICK_NODES = (10**4, 10**5, 10**6, 10**7, 10**8), (10**4, 10**6)
SYMBOLS = 2**20
HIDDEN = 64
NAMES = {"mlp": f"character model, e={HIDDEN}", "gpt": "GPT"}
PAPERS = {"mlp": (1, 64), "gpt": (1, 2, 4, 8, 16, 32, 64)}
"""The batch sizes of the paper's rows."""
SHARES, QUICK_SHARES = (1.0, 0.5, 0.25, 0.1, 0.01), (0.5, 0.1)
GPU_FLOPS, GPU_BYTES, LAUNCH = 19.5e12, 2.039e12, 1e-6
PRODUCTS = {"mlp": 4, "gpt": 2 * (6 * GPT["layers"] + 1)}
"""Sequential matrix products: two layers forward and back; six in a layer of the GPT, and its head."""


def batches(settings: Settings, name: str) -> Table:
    """Time of a sample as the batch grows; memory should not grow with it."""
    columns = [
        Column("step, median", "ms"),
        Column("of a sample", "us"),
        *MEMORY[:2],
    ]
    found = Table(name, "large batches: burtorch, loss and gradient (GPT) or SGD step (character model)", columns)
    for model in ("mlp", "gpt"):
        for batch in QUICK_BATCHES if settings.quick else BATCHES:
            label = f"{NAMES[model]}, b={batch:,}{'' if batch in PAPERS[model] else ' (extra)'}"
            run = _cell(settings, model, batch)
            memory = [run["memory"][which] for which in ("resident", "private")]
            megabytes = [size / 1e6 if size else None for size in memory]
            found.rows.append(Row(label, [1e3 * run["median"], 1e6 * run["median"] / batch, *megabytes]))
    found.notes = [
        "Extra: a number of samples that the paper has no row of.",
        "Memory includes the batches themselves, 68 bytes a sample of the character model and 64 of the GPT.",
    ]
    found.bars = Bars(("of a sample",), log=False)
    return found


def _cell(settings: Settings, model: str, batch: int) -> dict[str, Any]:
    def measure() -> dict[str, Any]:
        with TemporaryDirectory() as folder:
            n = max(1, min(problems.N_BATCHES, SYMBOLS // batch // 17))
            if model == "mlp":
                problem = problems.mlp(settings, folder, HIDDEN, batch, n)
            else:
                problem = problems.gpt(settings, folder, batch, n)
            job = settings.job("burtorch", family="model", problem=problem, iterations=200)
            return launch({**job, "budget": min(5.0, settings.budget("model"))})

    run: dict[str, Any] = settings.once(("large batch", model, batch), measure)
    return run


def gpu(settings: Settings, name: str) -> Table:
    """burtorch's measured time and the lower bounds of a GPU: arithmetic, memory, launches."""
    columns = [
        Column("burtorch, one core", "ms"),
        Column("operations", "MFLOP"),
        Column("operations a byte"),
        Column("GPU, one launch", "ms"),
        Column("GPU, a launch a product", "ms"),
        Column("burtorch over GPU, a launch a product"),
    ]
    found = Table(name, "where a GPU starts to win: measured on this CPU, by arithmetic intensity on an A100", columns)
    for model in ("mlp", "gpt"):
        ahead: list[int] = []
        for batch in QUICK_BATCHES if settings.quick else BATCHES:
            own, operations, moved = (
                _cell(settings, model, batch)["median"],
                _operations(model, batch),
                _bytes(model, batch),
            )
            work = max(operations / GPU_FLOPS, moved / GPU_BYTES)
            one, each = LAUNCH + work, PRODUCTS[model] * LAUNCH + work
            cells: list[Cell] = [1e3 * own, operations / 1e6, operations / moved, 1e3 * one, 1e3 * each, own / each]
            found.rows.append(Row(f"{NAMES[model]}, b={batch:,}", cells))
            ahead += [batch] if own <= each else []
        upto = f"up to b={max(ahead):,}" if ahead else "at no size"
        found.notes.append(f"{NAMES[model]}: one core is faster than the bound with one launch per product {upto}.")
    found.notes += [
        "No GPU was used: its columns are bounds from published figures, that no program on it can beat: 19.5 TFLOP/s "
        "in float32 and 2.039 TB/s (NVIDIA, A100 80 GB datasheet), all operations at the peak rate, weights read once "
        "and written once. Transfers of the batch and the result to and from the GPU are left out.",
        f"A launch counts {1e6 * LAUNCH:.0f} us: launches take microseconds (GPU Glossary, modal.com), and products "
        "that wait for each other need one each unless they are fused by hand: "
        f"{PRODUCTS['mlp']} for the character model, {PRODUCTS['gpt']} for the GPT.",
        "Eager frameworks launch several kernels for each product: tables 5 to 7 have their overhead on a CPU.",
    ]
    found.bars = Bars(("burtorch over GPU, a launch a product",))
    return found


def _operations(model: str, batch: int) -> float:
    """Operations of the matrix products, forward and twice backward: an addition and a multiplication per weight."""
    if model == "mlp":
        return 6.0 * batch * HIDDEN * (problems.CONTEXT * 64 + problems.MLP_SYMBOLS)
    d, tokens, layers = GPT["width"], GPT["context"], GPT["layers"]
    attention = 2 * tokens * d
    return 6.0 * batch * tokens * (layers * (12 * d * d + attention) + d * GPT["vocab"])


def _bytes(model: str, batch: int) -> float:
    """Bytes of the weights, read and written once, and of the batch."""
    weights, symbols = (69_083, 17) if model == "mlp" else (46_289, 16)
    return 8.0 * weights + 4.0 * symbols * batch


def randomised(settings: Settings, name: str) -> Table:
    """Backward passes that sample each input of a dense layer with probability p (section 4 of the paper)."""
    columns = [
        Column("full gradient", "ms"),
        Column("random gradient", "ms"),
        Column("random over full"),
        Column("variance over the square of the gradient"),
    ]
    found = Table(name, "randomised backpropagation: oracle(x, y, random_backward=p, draw=draw), 64 samples", columns)
    for model in NAMES:
        for p in QUICK_SHARES if settings.quick else SHARES:
            run = settings.once(("random", model, p), partial(_random, settings, model, p))
            full, random = 1e3 * run["plain"], 1e3 * run["random"]
            found.rows.append(Row(f"{NAMES[model]}, p={p}", [full, random, random / full, run["variance"]]))
    found.notes = [
        "The mean of the random gradient is the gradient; its variance is what the method's theory asks for. It saves "
        "neither time nor memory here, where inputs lie in the graph anyway: docs/backward.md.",
        "The variance is the mean over 20 calls at the first weights.",
    ]
    found.bars = Bars(("variance over the square of the gradient",))
    return found


def _random(settings: Settings, model: str, p: float) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        if model == "mlp":
            problem = problems.mlp(settings, folder, HIDDEN, 64, 1)
        else:
            problem = problems.gpt(settings, folder, 64, 1)
        job = {"family": "random", "problem": problem, "p": p, "iterations": 200}
        return launch({**job, "budget": min(5.0, settings.budget("model"))})


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
    bare = settings.once(("chain", 1), lambda: launch({"family": "chain", "nodes": 1}))["memory"]["resident"]
    for n in QUICK_NODES if settings.quick else NODES:
        try:
            run = settings.once(("chain", n), partial(launch, {"family": "chain", "nodes": n}))
        except LaunchError as error:
            found.notes.append(f"{n:,} nodes: {error}")
            continue
        size, (built, swept) = run["memory"]["resident"], (run["build"], run["backward"])
        grown = (size - bare) / n if bare and size else None
        found.rows.append(Row(f"{n:,} nodes", [built, swept, 1e9 * built / n, 1e9 * swept / n, grown]))
    found.notes.append("The derivative was checked: it is the number of operands.")
    found.bars = Bars(("build a node", "backward a node"), log=False)
    return found
