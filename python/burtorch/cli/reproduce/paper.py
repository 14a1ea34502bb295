"""Figures of the paper, and of its C++ program on another machine, that a table is set beside.

Only what is checked stands here: the claims of the paper's abstract (arXiv 2503.13795v1), and the paper's C++ program
as it ran on one core of an AMD EPYC (Zen 4), built by gcc 12 -O3 -march=native with link-time optimisation, on
2026-11-20.
The cells of the paper's own tables are not copied: ``SEE`` says where they are.
"""

from __future__ import annotations

from burtorch.cli.reproduce.tables import Published

ABSTRACT = "abstract of arXiv 2503.13795v1"
CPP = "the paper's C++ program on an AMD EPYC (Zen 4), 2026-11-20"
SEE = "The cells that the paper printed are in arXiv 2503.13795v1; its computers differ from this one."

MLP_MS = {
    (4, 1): 0.034,
    (4, 64): 0.66,
    (64, 1): 0.23,
    (64, 64): 8.9,
    (512, 1): 2.25,
    (512, 64): 80.0,
    (1024, 1): 5.3,
    (1024, 64): 204.0,
}
MLP_MB = {4: 38.0, 1024: 107.0}
GPT_MS = {1: 0.67, 8: 5.25, 64: 40.9}
GPT_MB = 18.5
GRAPH_NS = {"tiny": {"preallocated": 99.0, "allocating": 216.0}, "small": {"allocating": 567.0}}
SMALL_MB = 3.4
SAVE_US, LOAD_US = 13.0, 8.0


def of_graph(graph: str, iterations: int) -> list[Published]:
    """Beside tables 2, 3, 11 and 15."""
    figures = [
        Published(f"C++, {way}", f"compute time of {iterations:,}", ns * iterations * 1e-9, "s", CPP)
        for way, ns in GRAPH_NS[graph].items()
    ]
    if graph == "small":
        figures.append(Published("C++", "peak resident", SMALL_MB, "MB", CPP))
    return [
        *figures,
        Published("small graphs", "speed-up over rivals, up to", 2000, "times", ABSTRACT),
        Published("small graphs", "less memory than rivals, up to", 3500, "times", ABSTRACT),
    ]


def of_mlp(batch: int) -> list[Published]:
    """Beside tables 5, 6, 12, 13, 16 and 17."""
    times = [Published(f"C++, e={e}", "compute time", ms, "ms", CPP) for (e, b), ms in MLP_MS.items() if b == batch]
    return times + [Published(f"C++, e={e}", "peak resident", mb, "MB", CPP) for e, mb in MLP_MB.items()]


def of_gpt() -> list[Published]:
    """Beside tables 7, 14 and 18."""
    return [
        *(Published(f"C++, b={b}", "compute time", ms, "ms", CPP) for b, ms in GPT_MS.items()),
        Published("C++, any b", "peak resident", GPT_MB, "MB", CPP),
        Published("GPT", "speed-up over PyTorch, up to", 20, "times", ABSTRACT),
        Published("GPT", "less memory than PyTorch, up to", 80, "times", ABSTRACT),
    ]


def of_files() -> list[Published]:
    """Beside table 4."""
    return [Published("C++", "save", SAVE_US, "us", CPP), Published("C++", "load", LOAD_US, "us", CPP)]
