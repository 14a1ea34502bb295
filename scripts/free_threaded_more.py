"""Random operations of several threads on methods, messages, words, copies, parts, and on what is used first.

See `free_threaded.py`, which runs them.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import pickle
import random
import subprocess
import sys
import threading
from functools import partial

import numpy as np
from free_threaded_model import THREADS, expect, together

import burtorch as bt


def methods(n: int) -> None:
    """Methods on shared problems: of each thread its own, and one that all step."""
    features, labels = bt.opt.make_logistic(60, 5, condition=10.0, seed=0)
    f = bt.opt.logistic_regression(features, labels, l2=0.1)

    def mean(x: np.ndarray, samples: np.ndarray) -> tuple[float, np.ndarray]:
        return f.loss(x, samples), f.grad(x, samples)

    called = bt.opt.FiniteSum(mean, 60, 5)
    cases = [
        lambda: bt.opt.GD(f, step=0.1),
        lambda: bt.opt.SGD(f, step=0.1, sampling=bt.opt.Nice(7), seed=3),
        lambda: bt.opt.SGD(called, step=0.1, sampling=bt.opt.Nice(7), seed=3),
        lambda: bt.opt.PAGE(f, step=0.05, sampling=bt.opt.Nice(5), seed=1),
        lambda: bt.opt.SAGA(f, step=0.05, seed=2),
    ]

    def end(make: object) -> bytes:
        method = make()
        method.run(steps=20)
        return np.asarray(method.x).tobytes()

    expected = [end(make) for make in cases]
    shared, n_steps = bt.opt.GD(f, step=0.1), []

    def one(seed: int) -> None:
        draw = random.Random(seed)
        for _ in range(n // (THREADS * 40)):
            k = draw.randrange(len(cases))
            expect(end(cases[k]), expected[k])
            with contextlib.suppress(bt.BusyError):
                shared.step()
                n_steps.append(1)

    together(*(partial(one, seed) for seed in range(THREADS)))
    alone = bt.opt.GD(f, step=0.1)
    for _ in n_steps:
        alone.step()
    expect(shared.x.tobytes(), alone.x.tobytes())


def messages(n: int) -> None:
    """Compressors that all threads use, and messages that all read or write."""
    x = np.linspace(-1.0, 2.0, 40)
    rules = [
        bt.compress.TopK(7),
        bt.compress.RandK(5),
        bt.compress.Natural(),
        bt.compress.QSGD(4),
        bt.compress.Compose(bt.compress.TopK(3), bt.compress.Natural()),
    ]
    draws = [bt.compress.Draw(1, k, 0) for k in range(4)]
    expected = {
        (i, k): rule.compress(x, draw).to_bytes() for i, rule in enumerate(rules) for k, draw in enumerate(draws)
    }
    shared = rules[0].compress(x)
    whole = [rule.compress(x, draws[0]).decompress().tolist() for rule in rules]

    def one(seed: int) -> None:
        draw = random.Random(seed)
        for _ in range(n // (THREADS * 4)):
            i, k = draw.randrange(len(rules)), draw.randrange(len(draws))
            expect(rules[i].compress(x, draws[k]).to_bytes(), expected[i, k])
            with contextlib.suppress(bt.BusyError):
                rules[i].compress(x, draws[0], out=shared)
            with contextlib.suppress(bt.BusyError):
                if shared.decompress().tolist() not in whole:
                    raise AssertionError("numbers of no message")
            with contextlib.suppress(bt.BusyError):
                if len(shared.indices) > 40 or not shared.to_bytes():
                    raise AssertionError("not a message")

    together(*(partial(one, seed) for seed in range(THREADS)))


def streams(n: int) -> None:
    """Gradients in parts, of one oracle and of one for each thread, on this thread and on another, and stopped ones."""
    model = bt.nn.MLP(bt.Parameters(dtype="float64", seed=2), [3, 4, 2])
    x, y = [[1.0, 2.0, 3.0], [0.5, -1.0, 2.0]], [1, 0]
    loss, gradient = bt.Oracle(model)(x, y)
    expected = list(gradient)
    shared, stop = bt.Oracle(model, threads=2), bt.Stop()

    def one(seed: int) -> None:
        draw, own = random.Random(seed), bt.Oracle(model)
        for _ in range(n // (THREADS * 20)):
            oracle = draw.choice([own, shared])
            found = [0.0] * len(expected)

            def emit(at: range, part: memoryview, found: list[float] = found) -> None:
                found[at.start : at.stop] = part.tolist()

            with contextlib.suppress(bt.BusyError):
                expect(oracle.stream(x, y, emit, keep=False, on_thread=draw.random() < 0.3), loss)
                expect(found, expected)
            with contextlib.suppress(bt.BusyError, bt.StoppedError):
                expect(own.loss(x, y, stop=stop), loss)
            draw.choice([stop.set, stop.clear, stop.is_set])()

    together(*(partial(one, seed) for seed in range(THREADS)))


def texts(n: int) -> None:
    """Batches of words and of a text, by a rule and the next ones, while states are loaded."""
    words = bt.text.WordContexts(["anna", "bob", "carla", "dora", "emil"] * 4, context=3, seed=1)
    text = bt.text.TextWindows("the cat sat on the mat. " * 9, context=5, seed=2)

    rule = bt.opt.Reshuffle(4)

    def batch(source: object, k: int) -> list[list[object]]:
        return [part.tolist() for part in source.batch(rule, seed=1, round=k)]

    expected = [(batch(words, k), batch(text, k)) for k in range(6)]
    states = words.save_state(), text.save_state()
    model = bt.nn.CharMLP(bt.Parameters(seed=1), vocab=len(words.vocabulary), context=3, embedding=2, hidden=3)
    sample = bt.text.sample(model, words.vocabulary, 2, seed=4)

    def one(seed: int) -> None:
        draw = random.Random(seed)
        for _ in range(n // (THREADS * 8)):
            k = draw.randrange(6)
            with contextlib.suppress(bt.BusyError):
                expect((batch(words, k), batch(text, k)), expected[k])
            with contextlib.suppress(bt.BusyError):
                if min(words.batch(3)[0][0]) < 0:
                    raise AssertionError("not a symbol")
                words.load_state(states[0])
                text.load_state(states[1])
            if draw.randrange(20) == 0:
                with contextlib.suppress(bt.BusyError):
                    expect(bt.text.sample(model, words.vocabulary, 2, seed=4), sample)

    together(*(partial(one, seed) for seed in range(THREADS)))


class Net(bt.nn.Module):
    """Two layers."""

    def __init__(self, params: bt.Parameters) -> None:
        self.first = bt.nn.Linear(params, 2, 3)
        self.last = bt.nn.Linear(params, 3, 1)

    def __call__(self, x: object) -> object:
        return self.last(bt.tanh(self.first(x)))


def copies(n: int) -> None:
    """Pickles and copies of models, graphs and optimisers, and results of rows, while others use the same."""
    params = bt.Parameters(dtype="float64", seed=2)
    net, mlp = Net(params), bt.nn.MLP(params, [2, 3, 1])
    rows = np.array([[0.5, 1.0], [2.0, -1.0]])
    sgd = bt.optim.SGD(params, lr=0.0, momentum=0.9)
    graph = bt.Graph()
    with graph:
        y = bt.tanh(bt.Value(1.5, "x")) * 2.0
    row, of_rows = [1.0, 0.5], (np.asarray(mlp(rows[0])).tolist(), np.asarray(net.first(rows)).tolist())

    def numbers(of: Net) -> list[float]:
        with bt.Graph():
            return list(of(bt.Vector(row)).data)

    expected = numbers(net)

    def one(seed: int) -> None:
        draw = random.Random(seed)
        for _ in range(n // (THREADS * 40)):
            with contextlib.suppress(bt.BusyError):
                other = pickle.loads(pickle.dumps(net)) if draw.random() < 0.5 else copy.deepcopy(net)
                expect(numbers(other), expected)
                expect(np.asarray(other.first(rows)).tolist(), of_rows[1])
            with contextlib.suppress(bt.BusyError):
                expect(numbers(net), expected)
            with contextlib.suppress(bt.BusyError):
                expect((np.asarray(mlp(rows[0])).tolist(), np.asarray(net.first(rows)).tolist()), of_rows)
            with contextlib.suppress(bt.BusyError):
                expect(pickle.loads(pickle.dumps(graph)).labelled("x").data, 1.5)
            with contextlib.suppress(bt.BusyError), graph:
                expect((y * 1.0).data, y.data)
            with contextlib.suppress(bt.BusyError):
                sgd.step()
                pickle.loads(pickle.dumps(sgd)).step()

    together(*(partial(one, seed) for seed in range(THREADS)))


def parameters(n: int) -> None:
    """Parameters that grow, are frozen, divided, read and zeroed."""
    params = bt.Parameters(dtype="float64", seed=1)
    first = params.tensor(4, init=1.0, name="first")
    made: list[int] = []

    def one(seed: int) -> None:
        draw = random.Random(seed)
        for k in range(n // (THREADS * 5)):
            step = draw.randrange(6)
            with contextlib.suppress(bt.BusyError, BufferError):
                if step == 0 and len(made) < 3000:
                    made.append(params.tensor(3, init=2.0, name=f"{seed}/{k}").span[0])
                elif step == 1:
                    draw.choice([first.freeze, first.unfreeze])()
                elif step == 2:
                    expect(len(params.subset(first)), 4)
                elif step == 3:
                    params.zero_grad()
                    expect(params.find_nonfinite(), None)
                elif step == 4:
                    expect(list(params.named("first").values), [1.0] * 4)
                else:
                    values = list(params.values)
                    if len(values) % 3 != 1 or set(values[4:]) - {2.0}:
                        raise AssertionError("other numbers")

    together(*(partial(one, seed) for seed in range(THREADS)))
    expect(sorted(made), list(range(4, params.n, 3)))


def scopes(n: int) -> None:
    """Marks, scopes and rewinds of one graph, and constants of the threads that want no gradients."""
    graph = bt.Graph()
    with graph:
        x = bt.Value(3.0)

    def one(seed: int) -> None:
        draw = random.Random(seed)
        for _ in range(n // (THREADS * 5)):
            with contextlib.suppress(bt.StaleValueError, bt.BusyError), graph.scope():
                y = x * 2.0
                expect(y.data, 6.0)
            with contextlib.suppress(bt.StaleValueError, bt.BusyError):
                mark = graph.mark()
                with graph:
                    y = x + 1.0
                    expect((y * y).data, 16.0)
                if draw.random() < 0.5:
                    graph.rewind(mark)
            with bt.Graph():
                a = bt.Value(1.0)
                if draw.random() < 0.5:
                    with bt.no_grad():
                        expect((a * 2.0).op, "constant")
                else:
                    expect((a * 2.0).op, "mul_by_constant")

    together(*(partial(one, seed) for seed in range(THREADS)))
    expect(x.data, 3.0)


def pools(n: int) -> None:
    """Calls that share work among the threads of burtorch, from many threads at once."""
    f = bt.function(lambda a, b: a * b + bt.tanh(a))
    a, b = np.linspace(-1.0, 1.0, 300), np.linspace(0.0, 3.0, 300)
    expected = f.map(a, b).tolist()

    def of_two(x: np.ndarray) -> object:
        return x[0] * x[1]

    bound = bt.function(of_two)

    def one(seed: int) -> None:
        draw, point = random.Random(seed), np.zeros(2)
        call = bound.bind(point)
        for _ in range(n // (THREADS * 20)):
            expect(f.map(a, b, threads=draw.randrange(1, 4)).tolist(), expected)
            point[:] = draw.random(), 2.0
            expect(call(), point[0] * 2.0)
            with bt.Graph():
                x = bt.Value(2.0)
                got = bt.parallel(lambda k, x=x: (x * k) ** 2, range(3), threads=2)
                expect([y.data for y in got], [0.0, 4.0, 16.0])

    together(*(partial(one, seed) for seed in range(THREADS)))


def gradients(n: int) -> None:
    """Functions of `burtorch.autograd`, nested transforms, loops with checkpoints, and a parameter that changes."""
    import burtorch.autograd.numpy as anp
    from burtorch.autograd import elementwise_grad, grad

    g = grad(lambda x: anp.sum(anp.tanh(x) ** 2))
    second = elementwise_grad(elementwise_grad(anp.sin))
    loop = bt.grad(lambda x: bt.scan(lambda c, _: (c * x, None), 1.0, length=4, checkpoint=2)[0])
    number = bt.parameter(2.0)
    f = bt.function(lambda x: x * number)
    x = np.array([0.0, 0.5, 1.0])
    expected = g(x).tolist(), second(x).tolist(), float(loop(1.5))

    def one(seed: int) -> None:
        draw = random.Random(seed)
        for _ in range(n // (THREADS * 20)):
            expect((g(x).tolist(), second(x).tolist(), float(loop(1.5))), expected)
            number.value = draw.choice([1.0, 2.0, 3.0])
            if f(2.0) not in (2.0, 4.0, 6.0):
                raise AssertionError("another number")

    together(*(partial(one, seed) for seed in range(THREADS)))


def collections(n: int) -> None:
    """Cycles of every kind of object, which one thread collects while others make and drop them."""
    is_over = threading.Event()

    def collect() -> None:
        while not is_over.is_set():
            gc.collect()

    def one(seed: int) -> None:
        draw = random.Random(seed)
        try:
            for _ in range(n // (THREADS * 40)):
                graph = bt.Graph(reclaim=draw.random() < 0.5)
                with graph:
                    x = bt.Value(2.0)
                    held = [graph, x, bt.Vector([1.0, 2.0]), graph.array([1.0, 2.0]), x * x]
                params = bt.Parameters(dtype="float64")
                w = params.tensor(2, init=1.0)
                held += [params, w, bt.Oracle(lambda a, w=w: bt.inner_product(a, w), params=params)]
                f = bt.function(lambda a, held=held: a * len(held))
                held.append(f)
                expect(f(2.0), 2.0 * len(held))
                expect(held[1].data, 2.0)
                expect(held[4].data, 4.0)
                expect(held[2].data.tolist() if hasattr(held[2].data, "tolist") else list(held[2].data), [1.0, 2.0])
        finally:
            is_over.set()

    together(*(partial(one, seed) for seed in range(THREADS - 1)), collect)


FIRST = """
import random, sys, threading
barrier, errors = threading.Barrier(8), []
def use(k):
    barrier.wait()
    import burtorch as bt
    import numpy as np
    draw = random.Random(int(sys.argv[1]) * 8 + k)
    uses = [
        lambda: bt.Value(2.0) * 3.0,
        lambda: bt.function(lambda x: x * 2.0).grad(3.0),
        lambda: bt.grad(lambda x: (x * x).sum())(np.ones(3)),
        lambda: bt.nn.MLP(bt.Parameters(), [2, 2])(np.ones(2)),
        lambda: bt.Graph().array([1.0, 2.0]) + np.ones(2),
        lambda: bt.compress.TopK(1).compress(np.ones(3)).to_bytes(),
        lambda: bt.opt.GD(bt.opt.least_squares(np.eye(2), np.ones(2)), step=0.1).step(),
        lambda: bt.Vector([1.0, 2.0]).data,
        lambda: bt.text.WordContexts(["ab", "ba"] * 9).batch(2),
        lambda: bt.Graph().to_svg(),
        lambda: bt.parallel(lambda k: bt.Value(2.0) * k, range(3), threads=2),
    ]
    draw.shuffle(uses)
    try:
        for each in uses:
            each()
    except BaseException as error:
        errors.append(repr(error))
threads = [threading.Thread(target=use, args=(k,)) for k in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
sys.exit("; ".join(errors) or 0)
"""


def first(n: int) -> None:
    """The import and the first use of everything, by all threads of a new process at once."""
    for k in range(max(2, n // 2000)):
        done = subprocess.run([sys.executable, "-c", FIRST, str(k)], capture_output=True, text=True, timeout=300)
        expect((done.returncode, done.stderr), (0, ""))
