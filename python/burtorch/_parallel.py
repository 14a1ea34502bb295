"""Building one graph with several threads: ``bt.parallel``."""

from __future__ import annotations

import os

from burtorch._core import BusyError, Graph, call_in_branches, current_graph

TYPE_CHECKING = False  # as in the package: importing typing costs several milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypeVar

    Item = TypeVar("Item")
    Result = TypeVar("Result")


def parallel(
    fn: Callable[[Item], Result],
    items: Iterable[Item],
    graph: Graph | None = None,
    threads: int | None = None,
) -> list[Result]:
    """Call ``fn`` with each item in a pool of threads, each call in a branch of the graph, and join them in order.

    The result has the bits of ``[fn(item) for item in items]`` for any number of threads.
    Models and block ops release the GIL while they build, so they scale with cores; scalar operators
    hold it, so they scale only on a free-threaded interpreter.

    Args:
        fn: builds on the current graph, which is a branch, and may read existing nodes of the graph. It must not read
            nodes that its other calls build.
        items: the arguments of the calls.
        graph: the graph to build on; by default the current one. It is read-only until all calls have returned.
        threads: the number of concurrent calls; by default the number of cores.

    Returns:
        The results of the calls, in the order of the items. Values and Vectors belong to the graph.

    Raises:
        TypeError: ``fn`` is not callable, ``graph`` is not a Graph, or ``threads`` is not an int.
        ValueError: ``threads`` is below 1.
        BusyError: the graph has open branches already.
        Exception: that of the first failed call, by item order; nothing is appended then.

    Cost: that of the calls, and linear in the nodes appended.

    Example:
        >>> import burtorch as bt
        >>> x = bt.Value(2.0)
        >>> squares = bt.parallel(lambda k: (x * k) ** 2, range(4), threads=2)
        >>> [y.data for y in squares]
        [0.0, 4.0, 16.0, 36.0]
        >>> squares[3].backward()
        >>> x.grad
        36.0
    """
    if not callable(fn):
        raise TypeError(f"fn must be callable, found {type(fn).__name__}")
    items = list(items)
    graph = current_graph() if graph is None else graph
    threads = _cores() if threads is None else threads
    if not isinstance(graph, Graph):
        raise TypeError(f"graph must be a Graph, found {type(graph).__name__}")
    if not hasattr(threads, "__index__"):
        raise TypeError(f"threads must be an int, found {type(threads).__name__}")
    if threads < 1:
        raise ValueError(f"threads must be at least 1, found {threads}")
    if not items:
        return []
    before = graph.mark()
    branches: list[Graph] = []
    try:
        branches = graph.branches(len(items))
        results: list[Result] = call_in_branches(fn, branches, items, min(threads, len(items)))
        graph.join(threads)
    except BaseException as error:
        # Ctrl-C may arrive right after branches() has returned, before its result is stored.
        if branches or isinstance(error, KeyboardInterrupt):
            _drop(graph)
            graph.rewind(before)
        raise
    return results


def _drop(graph: Graph) -> None:
    """Wait until other threads have left the branches, and drop the branches."""
    from time import sleep

    while True:
        try:
            graph.drop_branches()
        except BusyError:
            sleep(0.0005)
        except ValueError:  # none are open
            return
        else:
            return


def _cores() -> int:
    """The number of cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1
