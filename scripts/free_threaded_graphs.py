"""Random operations of several threads on graphs: Values, Vectors, branches, layers, files.

See `free_threaded.py`, which runs them.
"""

from __future__ import annotations

import contextlib
import math
import os
import queue
import random
import tempfile
import threading
from collections.abc import Callable
from functools import partial

from free_threaded_model import THREADS, expect, together

import burtorch as bt

Step = Callable[[bt.Value, float, bt.Value, float], tuple[bt.Value, float]]
STEPS: list[Step] = [
    lambda y, expected, x, start: (y + 0.25, expected + 0.25),
    lambda y, expected, x, start: (y * x, expected * start),
    lambda y, expected, x, start: (y - x, expected - start),
    lambda y, expected, x, start: (-y, -expected),
    lambda y, expected, x, start: (bt.sqrt(abs(y)), math.sqrt(abs(expected))),
]


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


def of_branches(n: int) -> None:
    """Values and Vectors of branches that other threads read, slice and drop while they are joined."""

    def one_round(k: int) -> None:
        graph = bt.Graph()
        with graph:
            trunk = bt.Vector([1.0, 2.0, 3.0])
        open_branches = graph.branches(2)
        vectors, values = [], []
        for branch in open_branches:
            with branch:
                vectors.append(trunk * float(k % 5 + 1))
                values.append(vectors[-1][1] + 1.0)
        expected = [c * (k % 5 + 1) for c in (1.0, 2.0, 3.0)]
        begin = threading.Barrier(THREADS)

        def read() -> None:
            begin.wait()
            for _ in range(20):
                for vector, value in zip(vectors, values):
                    with contextlib.suppress(bt.BusyError):
                        expect(list(vector.data), expected)
                    with contextlib.suppress(bt.BusyError):
                        expect(list(vector[1:].data), expected[1:])
                    with contextlib.suppress(bt.BusyError):
                        expect(value.data, expected[1] + 1.0)

        def join() -> None:
            begin.wait()
            graph.join()

        together(*[read] * (THREADS - 1), join)
        bt.reduce_sum(bt.concat(*vectors)).backward()
        expect(list(trunk.grad), [2.0 * (k % 5 + 1)] * 3)

    for k in range(max(1, n // (THREADS * 60))):
        one_round(k)


def labels(n: int) -> None:
    """Labels of new Values of one graph, and Values found by their labels."""
    graph = bt.Graph()

    def one(seed: int) -> None:
        with graph:
            for k in range(n // (THREADS * 4)):
                text = f"{seed}/{k % 7}"
                value = bt.Value(float(k), text)
                expect((value.label, value.data), (text, float(k)))
                value.label = text + "!"
                expect(value.label, text + "!")
                other = graph.constant(2.0)
                expect((other.op, other.data), ("constant", 2.0))

    together(*(partial(one, seed) for seed in range(THREADS)))


def operands(n: int) -> None:
    """Operands of shared Values, which are always the same objects, beside building and collecting."""
    graph = bt.Graph()
    with graph:
        x, y = bt.Value(2.0), bt.Value(3.0)
        z = (x * y + x) * (x - 1.0)
    held = z.operands

    def one(seed: int) -> None:
        draw = random.Random(seed)
        with graph:
            for k in range(n // (THREADS * 4)):
                own = x * float(k)
                first, second = own.operands
                if first is not x:
                    raise AssertionError("another object for an operand")
                expect(second.data, float(k))
                expect([value.data for value in z.operands], [8.0, 1.0])
                if z.operands[0] is not held[0]:
                    raise AssertionError("another object for a held operand")
                if draw.randrange(50) == 0:
                    graph.collect()

    together(*(partial(one, seed) for seed in range(THREADS)))


def lists(n: int) -> None:
    """Lists as arguments, which another thread changes meanwhile."""
    graph = bt.Graph()
    with graph:
        ones = [bt.Value(1.0) for _ in range(12)]
    values, rows, numbers = ones[:6], [[1, 1], [1, 1]], [1.0] * 6
    params = bt.Parameters(dtype="float64", seed=1)
    table = bt.Parameters(dtype="float64").tensor((2, 3), init=1.0)
    model = bt.nn.CharMLP(params, vocab=5, context=2, embedding=3, hidden=4)
    first = bt.Oracle(model).loss(rows, [1, 1])
    is_over = threading.Event()
    f = bt.function(lambda x: x * sum(numbers))

    def change() -> None:
        draw = random.Random(0)
        while not is_over.is_set():
            values[:] = ones[draw.randrange(6) :][: draw.randrange(2, 7)]
            rows.append([1, 1])
            rows[0] = [1, 1]
            del rows[2:]
            numbers[:] = [1.0] * draw.randrange(2, 7)

    def one() -> None:
        oracle = bt.Oracle(model)
        try:
            with graph:
                for _ in range(n // (THREADS * 4)):
                    total = bt.reduce_sum(values)
                    if total.data not in range(2, 7):
                        raise AssertionError(total.data)
                    joined = bt.concat(values)
                    expect(set(joined.data), {1.0})
                    expect(set(bt.gather(table, rows[0]).data), {1.0})
                    # At some moments there is a row too many.
                    with contextlib.suppress(ValueError, bt.BusyError):
                        expect(oracle.loss(rows, [1, 1]), first)
                    if f(2.0) not in range(4, 13):
                        raise AssertionError("a sum of a list that never was")
        finally:
            is_over.set()

    together(*[one] * (THREADS - 1), change)


def numbers(n: int) -> None:
    """Numbers of nodes and of Parameters that all threads set, read, and iterate over, also with one iterator."""
    graph = bt.Graph()
    with graph:
        x, v = bt.Value(1.0), bt.Vector([1.0] * 5)
        y = x * 2.0
    params = bt.Parameters(dtype="float64")
    params.tensor(8, init=1.0)
    ones, iterators = {1.0, 3.0}, [iter(v), iter(params.values), iter(graph.values)]

    def one(seed: int) -> None:
        draw = random.Random(seed)
        for _ in range(n // (THREADS * 5)):
            step, number = draw.randrange(8), draw.choice([1.0, 3.0])
            with contextlib.suppress(bt.BusyError):
                if step == 0:
                    x.data = number
                elif step == 1:
                    graph.recompute(y)
                elif step == 2:
                    expect(y.data in (2.0, 6.0), True)
                elif step == 3:
                    params.values[draw.randrange(8)] = number
                elif step == 4:
                    expect(set(params.values) <= ones, True)
                elif step == 5:
                    x.grad = number
                    graph.zero_grad()
                elif step == 6:
                    graph.values[x.index] = number
                    expect(graph.values[x.index] in ones, True)
                else:
                    k = draw.randrange(3)
                    found = next(iterators[k], None)
                    if found is None:
                        iterators[k] = iter([v, params.values, graph.values][k])
                    elif k == 0:
                        expect(found.data, 1.0)

    together(*(partial(one, seed) for seed in range(THREADS)))


def layers(n: int) -> None:
    """Layers and models that many threads apply on one graph."""
    params = bt.Parameters(dtype="float64", seed=3)
    mlp = bt.nn.MLP(params, [3, 5, 2])
    chars = bt.nn.CharMLP(params, vocab=5, context=2, embedding=3, hidden=4)
    graph = bt.Graph()

    def numbers() -> tuple[list[float], list[float], float]:
        with graph:
            x = bt.Vector([0.5, -1.0, 2.0])
            y = mlp(x)
            z = chars([1, 3])
            return list(y.data), list(z.data), bt.softmax_cross_entropy(z, 2).data

    expected = numbers()

    def one() -> None:
        for _ in range(n // (THREADS * 20)):
            expect(numbers(), expected)

    together(*[one] * THREADS)


def files(n: int) -> None:
    """Files and pictures of a graph that other threads build on, and functions from files."""
    graph = bt.Graph(reclaim=False)
    with graph:
        x = bt.Value(1.5, "x")
        y = bt.tanh(x) * 2.0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "f")
        bt.trace(lambda a, b: a * b + 1.0, 1.0, 2.0).save(path)
        loaded = bt.load_function(path)
        params = bt.Parameters(dtype="float64", seed=2)
        params.tensor(5)
        held = list(params.values)

        def one(seed: int) -> None:
            draw, own = random.Random(seed), os.path.join(folder, str(seed))
            for _ in range(n // (THREADS * 40)):
                with contextlib.suppress(bt.BusyError), graph:
                    expect((y * x).data, math.tanh(1.5) * 2.0 * 1.5)
                with contextlib.suppress(bt.BusyError):
                    if "<svg" not in graph.to_svg(y):
                        raise AssertionError("no picture")
                with contextlib.suppress(bt.BusyError):
                    graph.save(own)
                    expect(bt.load_graph(own).labelled("x").data, 1.5)
                with contextlib.suppress(bt.BusyError):
                    expect(list(bt.load_parameters(params.to_bytes()).values), held)
                a, b = draw.random(), draw.random()
                expect(loaded.value_and_grad(a, b), (a * b + 1.0, (b, a)))

        together(*(partial(one, seed) for seed in range(THREADS)))
