"""burtorch computes gradients of scalar functions on a CPU with the lowest latency and the least memory.

    >>> import burtorch as bt
    >>> a, b = bt.Value(-41.0), bt.Value(2.0)
    >>> g = ((a + b) - (a * b + b**3)) ** 2 / 2
    >>> g.backward()
    >>> g.data, a.grad, b.grad
    (612.5, -35.0, 1050.0)

Numbers are computed in Rust (``burtorch._core``); this package arranges the calls. The submodules ``nn``, ``optim``,
``text``, ``data`` and ``system`` are imported when they are first used, and NumPy only when an array is asked for.
"""

from burtorch._core import (
    BurtorchError,
    BusyError,
    FormatError,
    Graph,
    GraphFullError,
    GraphMismatchError,
    Oracle,
    Parameters,
    StaleValueError,
    TraceError,
    Value,
    __version__,
    current_graph,
)

TYPE_CHECKING = False  # what typing.TYPE_CHECKING is, without the 5 ms that importing typing costs
if TYPE_CHECKING:
    from types import ModuleType

    from burtorch import data, nn, optim, system, text

__all__ = [
    "BurtorchError",
    "BusyError",
    "FormatError",
    "Graph",
    "GraphFullError",
    "GraphMismatchError",
    "Oracle",
    "Parameters",
    "StaleValueError",
    "TraceError",
    "Value",
    "__version__",
    "current_graph",
    "data",
    "nn",
    "optim",
    "system",
    "text",
]

_SUBMODULES = frozenset({"data", "nn", "optim", "system", "text"})


def __getattr__(name: str) -> "ModuleType":
    if name in _SUBMODULES:
        import importlib

        return importlib.import_module(f"burtorch.{name}")
    raise AttributeError(f"module 'burtorch' has no attribute {name!r}")


def __dir__() -> "list[str]":
    return sorted(set(globals()) | _SUBMODULES)
