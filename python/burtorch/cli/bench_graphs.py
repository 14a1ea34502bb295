"""The contenders of ``burtorch bench eager``: the two graphs of ``reproduce.programs.graphs``, as loops."""

from __future__ import annotations

from burtorch import Value
from burtorch.cli.reproduce.programs.graphs import ANSWERS, FLOATS, FLOATS_BY_HAND, Loop, eager

__all__ = ["ANSWERS", "GRAPHS", "RATIOS", "Loop"]

RATIOS = [
    ("burtorch, value and gradient", "floats, value only"),
    ("burtorch, value and gradient", "floats, gradient by hand"),
    ("micrograd, value and gradient", "burtorch, value and gradient"),
]
"""The pairs of medians to compare: the first divided by the second, if both exist."""


def micrograd(graph: str) -> Loop:
    """Imports micrograd when it runs; an ImportError if it is not installed."""

    def loop(n: int) -> tuple[float, ...]:
        import importlib

        return eager(graph, importlib.import_module("micrograd.engine").Value)(n)

    return loop


GRAPHS: dict[str, dict[str, Loop]] = {
    graph: {
        "burtorch, value and gradient": eager(graph, Value),
        "floats, gradient by hand": FLOATS_BY_HAND[graph],
        "floats, value only": FLOATS[graph],
        "micrograd, value and gradient": micrograd(graph),
    }
    for graph in ANSWERS
}
