"""Random operations of several threads on shared objects, beside a sequential model, on a free-threaded CPython.

    python scripts/free_threaded.py
    PYTHON_GIL=0 python scripts/free_threaded.py
    python scripts/free_threaded.py values branches --operations 1000000
    PYTHON_GIL=0 python scripts/free_threaded.py --scaling

The test run has no such interpreter: build the module for one, `maturin build --release -i python3.14t`, and install it
there. Every number is compared with the one that one thread with plain floats has. Each subject runs in a process of
its own, so that a crash is a line of the table. What docs/threads.md does not promise without the lock is in `UNSAFE`.
"""

from __future__ import annotations

import argparse
import math
import queue
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial

import burtorch as bt

THREADS = 8
# Subjects that count on the interpreter's lock.
UNSAFE = ("vectors", "functions")

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


def expect(found: object, expected: object) -> None:
    """Raise where a result is not the model's."""
    if found != expected:
        raise AssertionError(f"{found} instead of {expected}")


def chain(graph: bt.Graph, x: bt.Value, start: float, n: int, seed: int) -> None:
    """Random operators beside the same on floats; some Values live longer than others."""
    draw = random.Random(seed)
    with graph:
        y, expected, kept = x, start, [x]
        for _ in range(n):
            y, expected = STEPS[draw.randrange(len(STEPS))](y, expected, x, start)
            expect(y.data, expected)
            kept.append(y)
            del kept[: draw.randrange(3)]


def values(n: int, reclaim: bool = True) -> None:
    """Operators of many threads on one graph."""
    graph = bt.Graph(reclaim=reclaim)
    with graph:
        x = bt.Value(0.75)
    together(*(partial(chain, graph, x, 0.75, n // THREADS, seed) for seed in range(THREADS)))


def dying_values(n: int) -> None:
    """Values made in some threads and read, and dropped, in another."""
    graph = bt.Graph()
    with graph:
        x = bt.Value(0.5)
    made: queue.Queue[bt.Value | None] = queue.Queue(64)

    def make() -> None:
        with graph:
            for k in range(n // (THREADS - 1)):
                made.put(x * float(k % 7))
        made.put(None)

    def take() -> None:
        ends = 0
        while ends < THREADS - 1:
            value = made.get()
            ends += value is None
            if value is not None and value.data not in {0.5 * k for k in range(7)}:
                raise AssertionError(value.data)

    together(*[make] * (THREADS - 1), take)


def branches(n: int) -> None:
    """Branches of one graph, joined, and what flows back from them."""
    for _ in range(n // (THREADS * 100)):
        graph = bt.Graph()
        with graph:
            x = bt.Value(2.0)

        def one(k: int, x: bt.Value = x) -> bt.Value:
            y = x
            for j in range(50):
                y = y + x * float(j)
            return y * float(k)

        found = bt.parallel(one, range(THREADS), graph=graph, threads=THREADS)
        bt.reduce_sum(found).backward()
        expect([y.data for y in found], [2452.0 * k for k in range(THREADS)])
        expect(x.grad, 1226.0 * sum(range(THREADS)))


def graphs(n: int) -> None:
    """A graph for each thread, with its gradients."""

    def one(seed: int) -> None:
        draw, graph = random.Random(seed), bt.Graph()
        for _ in range(n // (THREADS * 4)):
            a, b = draw.random(), draw.random()
            with graph:
                x, y = bt.Value(a), bt.Value(b)
                z = x * y + x
                z.backward()
                expect((z.data, x.grad, y.grad), (a * b + a, b + 1.0, a))

    together(*(partial(one, seed) for seed in range(THREADS)))


def vectors(n: int) -> None:
    """Operators of many threads on Vectors of one graph."""
    graph = bt.Graph()
    start = [0.5, -1.25, 2.0]
    x = graph.vector(start)

    def one(seed: int) -> None:
        draw = random.Random(seed)
        with graph:
            y, expected = x, start
            for _ in range(n // THREADS):
                step = draw.randrange(4)
                if step == 0:
                    y, expected = y + x, [a + b for a, b in zip(expected, start)]
                elif step == 1:
                    y, expected = y * 0.5, [a * 0.5 for a in expected]
                elif step == 2:
                    y, expected = bt.concat(y[1:], y[:1]), [*expected[1:], *expected[:1]]
                else:
                    expect(bt.reduce_max(y).data, max(expected))
                expect(list(y.data), expected)

    together(*(partial(one, seed) for seed in range(THREADS)))


def arrays(n: int) -> None:
    """Operators of many threads on Arrays of one graph."""
    import numpy as np

    graph = bt.Graph()
    start = np.array([[0.5, -1.25], [2.0, 4.0]])
    x = graph.array(start)

    def one(seed: int) -> None:
        draw = random.Random(seed)
        with graph:
            y, expected = x, start
            for _ in range(n // (THREADS * 10)):
                step = draw.randrange(4)
                if step == 0:
                    y, expected = y + x, expected + start
                elif step == 1:
                    y, expected = y * 0.5, expected * 0.5
                elif step == 2:
                    y, expected = y.T, expected.T
                else:
                    y, expected = bt.tanh(x) + y, np.asarray(bt.tanh(start)) + expected
                expect(np.asarray(y.data).tolist(), expected.tolist())

    together(*(partial(one, seed) for seed in range(THREADS)))


def functions(n: int) -> None:
    """Calls of one traced function by many threads, for numbers and for lists of several lengths."""
    scale = 3.0
    f = bt.function(lambda x, y: x * y + scale * x)
    g = bt.function(lambda items: sum(x * x for x in items))

    def one(seed: int) -> None:
        draw = random.Random(seed)
        for _ in range(n // (THREADS * 3)):
            x, y = draw.random(), draw.random()
            expect(f(x, y), x * y + 3.0 * x)
            expect(f.value_and_grad(x, y), (x * y + 3.0 * x, (y + 3.0, x)))
            items = [draw.random() for _ in range(draw.randrange(1, 5))]
            expect(g.grad(items), [2.0 * x for x in items])

    together(*(partial(one, seed) for seed in range(THREADS)))


def oracles(n: int) -> None:
    """An oracle that all threads ask at once, and one for each, over Parameters that all read."""
    params = bt.Parameters(dtype="float64", seed=1)
    model = bt.nn.CharMLP(params, vocab=5, context=2, embedding=3, hidden=4)
    shared = bt.Oracle(model)
    contexts, targets = [[0, 1], [2, 3], [4, 0]], [2, 4, 1]
    expected = shared(contexts, targets)
    first = (expected[0], list(expected[1]))

    def ask(oracle: bt.Oracle) -> None:
        value, gradient = oracle(contexts, targets)
        expect((value, list(gradient)), first)

    def one() -> None:
        own = bt.Oracle(model)
        for _ in range(n // (THREADS * 20)):
            for oracle in (own, shared):
                try:
                    ask(oracle)
                except bt.BusyError:
                    continue

    together(*[one] * THREADS)


SUBJECTS: dict[str, Callable[[int], None]] = {
    "values": values,
    "values, no reclaim": partial(values, reclaim=False),
    "dying values": dying_values,
    "graphs": graphs,
    "branches": branches,
    "arrays": arrays,
    "oracles": oracles,
    "vectors": vectors,
    "functions": functions,
}


def count(n: int) -> None:
    """A loop without burtorch, for what a second core gives at this moment."""
    x = 0.5
    for k in range(n):
        x = x * 0.5 + float(k % 7)


def build(n: int) -> None:
    """Scalars on a graph of one's own."""
    with bt.Graph():
        x = bt.Value(0.5)
        for _ in range(n // 1000):
            y = x
            for _ in range(500):
                y = y * x + 1.0


def speed_up(work: Callable[[int], None], n: int) -> float:
    """How many times the work of one thread two threads do in the same time."""
    ratios = []
    for _ in range(7):
        begin = time.perf_counter()
        together(partial(work, n))
        alone = time.perf_counter() - begin
        begin = time.perf_counter()
        together(*[partial(work, n)] * 2)
        ratios.append(2 * alone / (time.perf_counter() - begin))
    return sorted(ratios)[3]


def scaling() -> None:
    """What a second core gives: to a counting loop, to independent graphs, to branches of one."""

    def on_branches(n: int) -> None:
        with branch_of[threading.current_thread().name]:
            x = bt.Value(0.5)
            for _ in range(n // 2):
                x = x * 0.5 + 1.0

    branch_of: dict[str, bt.Graph] = {}
    loop, own = speed_up(count, 4_000_000), speed_up(build, 1_000_000)
    print(f"a second core gives a counting loop {loop:.2f}, independent graphs {own:.2f} ({own / loop:.2f} of it)")
    alone, both = [], []
    for _ in range(7):
        for n_threads, into in ((1, alone), (2, both)):
            graph = bt.Graph()
            with graph:
                bt.Value(1.0)
            branch_of = {f"branch {k}": branch for k, branch in enumerate(graph.branches(n_threads))}
            threads = [threading.Thread(target=on_branches, args=(400_000,), name=name) for name in branch_of]
            begin = time.perf_counter()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            into.append(time.perf_counter() - begin)
            graph.drop_branches()
    gain = 2 * sorted(alone)[3] / sorted(both)[3]
    print(f"branches of one graph {gain:.2f} ({gain / loop:.2f} of it)")


def main() -> int:
    """Print a line for each subject; return 1 if a subject that must be safe failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help=", ".join(SUBJECTS))
    parser.add_argument("--operations", type=int, default=100_000, help="of all threads together, for each subject")
    parser.add_argument("--scaling", action="store_true", help="measure what a second core gives instead")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if unknown := set(arguments.subjects) - set(SUBJECTS):
        parser.error(f"no such subject: {', '.join(sorted(unknown))}")
    if arguments.here:
        for name in arguments.subjects:
            SUBJECTS[name](arguments.operations)
        return 0
    is_on = getattr(sys, "_is_gil_enabled", lambda: True)()
    print(f"CPython {sys.version.split()[0]}, the interpreter's lock is {'on' if is_on else 'off'}, {THREADS} threads")
    if arguments.scaling:
        scaling()
        return 0
    failed = False
    for name in arguments.subjects or SUBJECTS:
        command = [sys.executable, __file__, name, "--here", "--operations", str(arguments.operations)]
        begin = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True)
        took = time.perf_counter() - begin
        said = "as one thread" if done.returncode == 0 else f"{done.returncode}: {done.stderr.strip()[-200:]}"
        if done.returncode and name in UNSAFE and not is_on:
            said += " (not promised without the lock)"
        else:
            failed |= done.returncode != 0
        print(f"{name:20} {arguments.operations:>9,} operations {took:6.1f} s  {said}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
