"""Several threads on one graph, on a free-threaded CPython.

    python scripts/free_threaded.py
    PYTHON_GIL=0 python scripts/free_threaded.py

The test run has no such interpreter: build the module for one, `maturin build --release -i python3.14t`, and install it
there. Every number is compared with the one that plain floats give.
"""

from __future__ import annotations

import math
import queue
import random
import sys
import threading
from collections.abc import Callable
from functools import partial

import burtorch as bt

THREADS = 16
ROUNDS = 20

Step = Callable[[bt.Value, float, bt.Value, float], tuple[bt.Value, float]]
STEPS: list[Step] = [
    lambda y, expected, x, start: (y + 0.25, expected + 0.25),
    lambda y, expected, x, start: (y * x, expected * start),
    lambda y, expected, x, start: (y - x, expected - start),
    lambda y, expected, x, start: (-y, -expected),
    lambda y, expected, x, start: (bt.sqrt(abs(y)), math.sqrt(abs(expected))),
]


def together(*jobs: Callable[[], None]) -> None:
    """Run jobs in a thread each; the first error of any is raised."""
    errors: list[BaseException] = []

    def run(job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def chain(graph: bt.Graph, x: bt.Value, start: float, seed: int) -> None:
    """Random operators beside the same on floats; some Values live longer than others."""
    draw = random.Random(seed)
    with graph:
        y, expected, kept = x, start, [x]
        for _ in range(400):
            y, expected = STEPS[draw.randrange(len(STEPS))](y, expected, x, start)
            if y.data != expected:
                raise AssertionError(f"{y.data} instead of {expected}")
            kept.append(y)
            del kept[: draw.randrange(2)]


def operators(reclaim: bool) -> None:
    """Operators of many threads on one graph."""
    graph = bt.Graph(reclaim=reclaim)
    with graph:
        x = bt.Value(0.75)
    together(*(partial(chain, graph, x, 0.75, seed) for seed in range(THREADS)))


def values_that_die_elsewhere() -> None:
    """Values made in some threads and read, and dropped, in another."""
    graph = bt.Graph()
    with graph:
        x = bt.Value(0.5)
    made: queue.Queue[bt.Value | None] = queue.Queue(64)

    def make() -> None:
        with graph:
            for k in range(5000):
                made.put(x * float(k % 7))
        made.put(None)

    def take() -> None:
        ends = 0
        while ends < 3:
            value = made.get()
            ends += value is None
            if value is not None and value.data not in {0.5 * k for k in range(7)}:
                raise AssertionError(value.data)

    together(make, make, make, take)


def branches() -> None:
    """Branches of one graph, joined, and what flows back from them."""
    graph = bt.Graph()
    with graph:
        x = bt.Value(2.0)

    def one(k: int) -> bt.Value:
        y = x
        for j in range(50):
            y = y + x * float(j)
        return y * float(k)

    found = bt.parallel(one, range(THREADS), graph=graph, threads=8)
    total = bt.reduce_sum(found)
    total.backward()
    if [y.data for y in found] != [2452.0 * k for k in range(THREADS)] or x.grad != 1226.0 * sum(range(THREADS)):
        raise AssertionError(f"{found}, {x.grad}")


def main() -> None:
    """Run everything some times."""
    is_on = getattr(sys, "_is_gil_enabled", lambda: True)()
    print(f"CPython {sys.version.split()[0]}, the interpreter's lock is {'on' if is_on else 'off'}")
    for job in (lambda: operators(True), lambda: operators(False), values_that_die_elsewhere, branches):
        for _ in range(ROUNDS):
            job()
    print(f"{ROUNDS} rounds of operators, of Values between threads and of branches: all numbers are those of floats")


if __name__ == "__main__":
    main()
