"""Random operations of several threads on Arrays, oracles, optimisers and traced functions.

See `free_threaded.py`, which runs them.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import tempfile
import threading
import time
from functools import partial

from free_threaded_model import THREADS, expect, together

import burtorch as bt


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
                step = draw.randrange(5)
                # Another thread may be in a backward pass.
                with contextlib.suppress(bt.BusyError):
                    if step == 0:
                        y, expected = y + x, expected + start
                    elif step == 1:
                        y, expected = y * 0.5, expected * 0.5
                    elif step == 2:
                        y, expected = y.T, expected.T
                    elif step == 3:
                        y, expected = bt.tanh(x) + y, np.asarray(bt.tanh(start)) + expected
                    else:
                        # Parameters of this thread alone, whose place in the record of the graph others then take.
                        w = bt.Parameters(dtype="float64").tensor((2, 2), init=float(seed + 1))
                        z = (x * w).sum()
                        expect(float(z.data), start.sum() * (seed + 1))
                        z.backward()
                        expect(list(w.grads), start.ravel().tolist())
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


def callables(n: int) -> None:
    """Oracles of callables, shared and one for each thread, and optimisers that all step."""
    params = bt.Parameters(dtype="float64", seed=5)
    w = params.tensor(2, init=0.5)

    def loss(x: object, label: object) -> object:
        z = bt.inner_product(x, w)
        return bt.softplus(z) - label * z

    data = ([[1.0, 2.0], [-1.0, 0.5], [0.25, 4.0]], [1.0, 0.0, 1.0])
    shared = bt.Oracle(loss, params=params)
    value, gradient = shared(*data)
    first = (value, list(gradient))
    moved = bt.Parameters(dtype="float64")
    moved.tensor(3, init=0.0)
    sgd, steps = bt.optim.SGD(moved, lr=1.0), []
    moved.grads[:] = [-1.0] * 3

    def ask(oracle: bt.Oracle) -> None:
        value, gradient = oracle(*data)
        expect((value, list(gradient)), first)

    def one() -> None:
        own = bt.Oracle(loss, params=params)
        for _ in range(n // (THREADS * 40)):
            for oracle in (own, shared):
                with contextlib.suppress(bt.BusyError):
                    ask(oracle)
            with contextlib.suppress(bt.BusyError):
                sgd.step()
                steps.append(1)

    together(*[one] * THREADS)
    expect(list(moved.values), [float(len(steps))] * 3)


def transforms(n: int) -> None:
    """Transforms of functions of arrays, shared by all threads: gradients, batches, loops."""
    import numpy as np

    f = bt.function(lambda x: (bt.tanh(x) * x).sum())
    g = bt.grad(f)
    h = bt.vmap(lambda x: bt.scan(lambda c, y: (c + y, c), 0.0, x)[0])
    cases = [np.linspace(-1.0, 2.0, k) for k in range(1, 6)]
    expected = [(f(x), g(x).tolist(), np.asarray(h(np.stack([x, 2.0 * x]))).tolist()) for x in cases]
    f.forget()
    g.forget()
    h.forget()

    def one(seed: int) -> None:
        draw = random.Random(seed)
        for _ in range(n // (THREADS * 20)):
            k = draw.randrange(len(cases))
            x = cases[k]
            expect((f(x), g(x).tolist(), np.asarray(h(np.stack([x, 2.0 * x]))).tolist()), expected[k])
            if draw.randrange(200) == 0:
                draw.choice([f, g, h]).forget()

    together(*(partial(one, seed) for seed in range(THREADS)))


class Slotted:
    """An object whose number lies in a slot."""

    __slots__ = ("number",)


class Plain:
    """An object, and a class, with numbers as attributes."""

    number = 0.0


GLOBAL = 0.0


def sources(n: int) -> None:
    """Functions whose globals, cells, defaults, attributes, slots, lists and dicts another thread replaces.

    A result is that of numbers which were there during the call.
    """
    global GLOBAL
    cell, items, table, slotted, plain, kind = 0.0, [0.0], {"a": 0.0}, Slotted(), Plain(), Plain
    slotted.number, plain.number = 0.0, 0.0

    def of_default(x: float, c: float = 0.0) -> float:
        return x * c

    bodies = [
        lambda x: x * GLOBAL,
        lambda x: x * cell,
        lambda x: x * items[0],
        lambda x: x * table["a"],
        lambda x: x * slotted.number,
        lambda x: x * plain.number,
        lambda x: x * kind.number,
        lambda x: of_default(x),
    ]
    functions_ = [bt.function(body) for body in bodies]
    low, high, is_over = 0.0, 0.0, threading.Event()

    def change() -> None:
        global GLOBAL
        nonlocal cell, low, high
        k = 0.0
        while not is_over.is_set():
            k += 1.0
            high = k
            GLOBAL = k
            cell = k
            items[0] = k
            table["a"] = k
            slotted.number = k
            plain.number = k
            Plain.number = k
            of_default.__defaults__ = (k,)
            items[:] = [k, k]
            low = k
            time.sleep(0.0005)

    def one(seed: int) -> None:
        draw = random.Random(seed)
        try:
            for _ in range(n // (THREADS * 10)):
                least = low
                k = draw.randrange(len(functions_))
                y = functions_[k](2.0)
                if not 2.0 * least <= y <= 2.0 * high:
                    raise AssertionError(f"body {k}: {y} of a number between {least} and {high}")
        finally:
            is_over.set()

    together(*(partial(one, seed) for seed in range(THREADS - 1)), change)


def primitives(n: int) -> None:
    """Primitives that fail in some threads: each thread gets its own errors."""
    import numpy as np

    def checked(x: float) -> float:
        if x < 0.0:
            raise ValueError(str(x))
        return 2.0 * x

    double = bt.primitive(checked)
    double.defvjp(lambda g, y, x: 2.0 * g)
    f = bt.function(lambda x: double(x) + 1.0)
    f(1.0)

    def one(seed: int) -> None:
        draw = random.Random(seed)
        for _ in range(n // (THREADS * 10)):
            x = draw.uniform(-1.0, 1.0)
            if draw.randrange(20) == 0:
                rows = [abs(x)] * 300
                expect(f.map(np.array(rows), threads=2).tolist(), [2.0 * x + 1.0 for x in rows])
            if x >= 0.0:
                expect(f.value_and_grad(x), (2.0 * x + 1.0, 2.0))
                continue
            try:
                draw.choice([f, lambda x: f.map(np.array([0.5] * 200 + [x] * 3), threads=2)])(x)
            except ValueError as error:
                expect(str(error), str(x))
            else:
                raise AssertionError("no error")

    together(*(partial(one, seed) for seed in range(THREADS)))


def tools(n: int) -> None:
    """Programs, statistics, audits, files and copies of one function, and primitives of Arrays, while all call it."""
    import numpy as np

    scale = [3.0]
    f = bt.function(lambda x: (bt.tanh(x) * x * scale[0]).sum())
    square = bt.primitive(lambda x: x * x)
    square.defvjp(lambda g, y, x: 2.0 * x * g)
    g = bt.grad(lambda x: square(x).sum())
    x = np.array([0.5, -1.0, 2.0])
    expected = f(x), f.grad(x).tolist(), g(x).tolist()

    def one(seed: int) -> None:
        draw = random.Random(seed)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "f")
            for _ in range(n // (THREADS * 20)):
                expect((f(x), f.grad(x).tolist(), g(x).tolist()), expected)
                step = draw.randrange(8)
                if step < 2:
                    # Another thread may have just removed the traces.
                    with contextlib.suppress(bt.TraceError):
                        f.save(path)
                        expect(bt.load_function(path)(x), expected[0])
                        expect(pickle.loads(pickle.dumps(bt.load_function(path)))(x), expected[0])
                elif step == 2:
                    expect(f.audit(), True)
                elif step == 3:
                    expect(set(f.stats()) >= {"traced"}, True)
                elif step == 4:
                    with contextlib.suppress(bt.TraceError):
                        expect("tanh" in str(f.program), True)
                elif step == 5:
                    bt.config.audit = draw.random() < 0.5
                elif step == 6:
                    draw.choice([f, g]).forget()
                else:
                    expect(bt.cond(True, lambda a: a * 2.0, lambda a: a, 1.0), 2.0)

    together(*(partial(one, seed) for seed in range(THREADS)))
    bt.config.audit = True
