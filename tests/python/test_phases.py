"""The phase of a graph decides what it allows: building, frozen by branches, being a branch, being traced.

A seeded random driver enters, leaves, branches, joins, drops, operates, rewinds and traces, on several graphs and from
several threads, and compares each step with a model of plain Python. A step that the model forbids is a typed error and
changes nothing; any other step succeeds, and every number is right.

BURTORCH_STEPS sets the number of steps (30,000 in a usual run), BURTORCH_SEED the seed.
"""

from __future__ import annotations

import contextlib
import gc
import math
import os
import queue
import random
import threading

import numpy as np
import pytest

import burtorch as bt

STEPS = int(os.environ.get("BURTORCH_STEPS", "30000"))
SEED = int(os.environ.get("BURTORCH_SEED", "1"))
REFUSED = (bt.BurtorchError, ValueError, TypeError)


class Worker:
    """A thread that executes calls in sequence."""

    def __init__(self):
        self.calls, self.results = queue.SimpleQueue(), queue.SimpleQueue()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while (call := self.calls.get()) is not None:
            try:
                result = call(), None
            except BaseException as error:
                result = None, error.with_traceback(None)
            self.results.put(result)
            del call, result

    def __call__(self, call):
        self.calls.put(call)
        return self.results.get(timeout=60)

    def stop(self):
        self.calls.put(None)
        self.thread.join(60)
        assert not self.thread.is_alive()


class Here:
    """The thread of the test."""

    def __call__(self, call):
        try:
            return call(), None
        except REFUSED as error:
            return None, error.with_traceback(None)

    def stop(self):
        pass


class Model:
    """The known state of a graph."""

    def __init__(self, graph, trunk=None):
        self.graph, self.trunk = graph, trunk
        self.dtype, self.fixed = graph.dtype, graph.fixed
        self.open, self.entered, self.depth, self.ended = [], None, 0, False
        self.marks = []

    @property
    def frozen(self):
        return bool(self.open) or self.ended or (self.trunk is not None and self.entered is None)

    def grows_from(self, other):
        at = self
        while at is not None:
            if at is other:
                return True
            at = at.trunk
        return False


class Held:
    """A Value or a Vector, its expected content, and whether its nodes may be gone."""

    def __init__(self, object_, numbers, home):
        self.object, self.numbers, self.home, self.doubtful = object_, numbers, home, False


def f32(x):
    return float(np.float32(x))


traced_square = bt.function(lambda v: v * v + 1.0)
half = bt.primitive(lambda x: 0.5 * x)
half.defvjp(lambda g, y, x: 0.5 * g)

ONE = {
    "times": (lambda v: v * 2.0, lambda x: 2.0 * x),
    "left": (lambda v: 1.0 - v, lambda x: 1.0 - x),
    "int": (lambda v: v + 1, lambda x: x + 1.0),
    "negative": (lambda v: -v, lambda x: -x),
    "abs": (abs, abs),
    "method": (lambda v: v.relu(), lambda x: max(x, 0.0)),
    "function": (bt.relu, lambda x: max(x, 0.0)),
    "constant": (lambda v: bt.mul_by_constant(v, 4.0), lambda x: 4.0 * x),
    "constant method": (lambda v: v.mul_by_constant(4.0), lambda x: 4.0 * x),
    "square": (lambda v: v**2, lambda x: x * x),
    "detach": (lambda v: v.detach(), lambda x: x),
    "numpy left": (lambda v: np.float64(2.0) * v, lambda x: 2.0 * x),
    "numpy right": (lambda v: v + np.float32(0.5), lambda x: x + 0.5),
    "ufunc": (lambda v: np.multiply(v, 2.0), lambda x: 2.0 * x),
    "reduce": (lambda v: bt.reduce_sum([v, v, 1.0]), lambda x: x + x + 1.0),
    "reduce all": (lambda v: bt.reduce_max([v, v]), lambda x: x),
    "max": (lambda v: bt.max(v, 0.0), lambda x: max(x, 0.0)),
    "sqr": (bt.sqr, lambda x: x * x),
    "unevaluated": (lambda v: bt.mul(v, 2.0, evaluate=False), lambda x: 2.0 * x),
    "primitive": (half, lambda x: 0.5 * x),
    "traced": (traced_square, lambda x: x * x + 1.0),
    "concat": (lambda v: bt.concat(v, v)[1], lambda x: x),
    "affine": (lambda v: bt.inner_product([v, v], [1.0, 2.0]), lambda x: x + 2.0 * x),
    "product": (lambda v: bt.inner_product_with_bias([v], [2.0], v), lambda x: 2.0 * x + x),
}
TWO = {
    "add": (lambda v, w: v + w, lambda x, y: x + y),
    "mul": (lambda v, w: v * w, lambda x, y: x * y),
    "sub": (bt.sub, lambda x, y: x - y),
    "method": (lambda v, w: v.max(w), max),
    "reduce": (lambda v, w: bt.reduce_sum([v, w]), lambda x, y: x + y),
    "mixed": (lambda v, w: bt.reduce_sum([v, 1.0, w]), lambda x, y: x + 1.0 + y),
    "concat": (lambda v, w: bt.concat(v, w)[1], lambda x, y: y),
    "inner": (lambda v, w: bt.inner_product([v, 1.0], [w, 2.0]), lambda x, y: x * y + 2.0),
    "unevaluated": (lambda v, w: bt.add(v, w, evaluate=False), lambda x, y: x + y),
    "object array": (lambda v, w: (np.array([v, v], object) * w)[1], lambda x, y: x * y),
}
MANY = {
    "times": (lambda v: v * 2.0, lambda x: 2.0 * x),
    "relu": (bt.relu, lambda x: max(x, 0.0)),
    "method": (lambda v: v.relu(), lambda x: max(x, 0.0)),
    "self": (lambda v: v + v, lambda x: x + x),
    "negative": (lambda v: -v, lambda x: -x),
    "array": (lambda v: v * np.full(len(v), 2.0), lambda x: 2.0 * x),
    "concat": (lambda v: bt.concat(v, v), None),
}


class Machine:
    def __init__(self, seed, n_threads):
        self.random = random.Random(seed)
        self.threads = [Here()] + [Worker() for _ in range(n_threads - 1)]
        self.stacks = [[] for _ in self.threads]
        self.graphs, self.held = [], []
        self.counts = {"done": 0, "refused": 0}
        for graph in (
            bt.Graph(),
            bt.Graph(reclaim=False),
            bt.Graph(dtype="float32"),
            bt.Graph(capacity=4000, fixed=True),
        ):
            self.graphs.append(Model(graph))

    def run(self, steps):
        rules = [
            *[self.operate] * 8,
            *[self.operate_two] * 4,
            *[self.operate_many] * 3,
            *[self.build] * 3,
            *[self.enter] * 3,
            *[self.leave] * 3,
            *[self.branch] * 2,
            *[self.join] * 3,
            *[self.rewind, self.mark, self.backward, self.read, self.trace, self.forget, self.forget, self.discard],
        ]
        for _ in range(steps):
            self.random.choice(rules)(self.random.randrange(len(self.threads)))
            if len(self.held) > 60:
                del self.held[: self.random.randrange(30)]
            if len(self.graphs) > 24:
                self.renew()
        for thread, stack in zip(self.threads, self.stacks):
            while stack:
                model = stack.pop()
                thread(lambda model=model: model.graph.__exit__(None, None, None))
            thread.stop()

    def do(self, t, call, *, allowed, sure=True):
        """Makes a call that the model allows or forbids, if `sure`. Returns whether it succeeded, and its result."""
        result, error = self.threads[t](call)
        if error is not None and not isinstance(error, REFUSED):
            raise error
        if sure:
            assert (error is None) == allowed, (allowed, error)
        self.counts["done" if error is None else "refused"] += 1
        return error is None, result

    def pick(self, of_vectors=False):
        held = [h for h in self.held if isinstance(h.numbers, list) == of_vectors]
        return self.random.choice(held) if held else None

    def current(self, t):
        return self.stacks[t][-1] if self.stacks[t] else None

    def target(self, t, *homes):
        """The graph on which an operation on these operands builds, or None if it is refused."""
        target = homes[0]
        for home in homes:
            if home.grows_from(target):
                target = home
            elif not target.grows_from(home):
                return None
        if target.frozen:
            here = self.current(t)
            if here is None or not here.grows_from(target) or here.frozen or target.ended:
                return None
            target = here
        return target

    def hold(self, object_, numbers, home):
        """Keeps a result, unless its numbers grow too large. Returns the kept object."""
        if any(abs(x) > 1e6 for x in (numbers if isinstance(numbers, list) else [numbers])):
            return None
        self.held.append(Held(object_, numbers, home))
        return self.held[-1]

    def numbers(self, home, f, *xs):
        y = f(*xs)
        return f32(y) if home.dtype == "float32" else y

    def check(self, held):
        got = list(held.object.data) if isinstance(held.numbers, list) else held.object.data
        wanted = held.numbers
        close = (
            all(math.isclose(a, b, rel_tol=1e-5) for a, b in zip(got, wanted))
            if isinstance(got, list)
            else math.isclose(got, wanted, rel_tol=1e-5)
        )
        assert close, (got, wanted)

    def full(self, home):
        """Whether a fixed graph may be full."""
        return home.fixed

    def apply(self, t, call, sources, numbers):
        homes = [source.home for source in sources]
        target = self.target(t, *homes)
        sure = not any(source.doubtful for source in sources) and not any(self.full(home) for home in homes)
        done, result = self.do(t, call, allowed=target is not None, sure=sure or target is None)
        if done and not any(source.doubtful for source in sources):
            kept = self.hold(result, numbers, target)
            if kept is not None and self.random.random() < 0.2:
                self.check(kept)

    def operate(self, t):
        if (source := self.pick()) is not None:
            name = self.random.choice(list(ONE))
            call, f = ONE[name]
            if name in ("primitive", "traced") and source.home.dtype != "float64":
                return
            self.apply(t, lambda: call(source.object), [source], self.numbers(source.home, f, source.numbers))

    def operate_two(self, t):
        v, w = self.pick(), self.pick()
        if v is not None:
            call, f = TWO[self.random.choice(list(TWO))]
            self.apply(t, lambda: call(v.object, w.object), [v, w], self.numbers(v.home, f, v.numbers, w.numbers))

    def operate_many(self, t):
        if (v := self.pick(of_vectors=True)) is not None:
            name = self.random.choice(list(MANY))
            call, f = MANY[name]
            if name == "concat":
                call, numbers = (lambda x: bt.concat(x, x)), v.numbers * 2
                if len(numbers) > 8 or v.home.frozen:
                    return
            else:
                numbers = [self.numbers(v.home, f, x) for x in v.numbers]
            self.apply(t, lambda: call(v.object), [v], numbers)

    def build(self, t):
        here = self.current(t)
        model = self.random.choice(self.graphs)
        x = self.random.randrange(-8, 8) / 4
        how = self.random.randrange(6)
        if how == 0 and here is not None:
            home, call, numbers = here, lambda: bt.Value(x), x
        elif how == 1:
            home, call, numbers = model, lambda: bt.Value(x, label="w", graph=model.graph), x
        elif how == 2:
            home, call, numbers = model, lambda: model.graph.constant(x), x
        elif how == 3:
            home, call, numbers = model, lambda: model.graph.vector([x, 1.0, -x]), [x, 1.0, -x]
        elif how == 4 and here is not None:
            home, call, numbers = here, lambda: bt.Vector([x, 2.0]), [x, 2.0]
        else:
            home, call, numbers = model, lambda: model.graph.value(x), x
        done, result = self.do(t, call, allowed=not home.frozen, sure=home.frozen or not self.full(home))
        if done:
            self.hold(result, numbers, home)

    def enter(self, t):
        model = self.random.choice(self.graphs)
        if len(self.stacks[t]) > 6:
            return
        is_free = model.trunk is None or model.entered in (None, t)
        done, _ = self.do(t, model.graph.__enter__, allowed=is_free and not model.ended)
        if done:
            self.stacks[t].append(model)
            if model.trunk is not None:
                model.entered, model.depth = t, model.depth + 1

    def leave(self, t):
        failed = self.random.random() < 0.1
        wrong = self.random.random() < 0.1
        stack = self.stacks[t]
        model = self.random.choice(self.graphs) if wrong or not stack else stack[-1]
        is_innermost = bool(stack) and stack[-1] is model
        raised = (ValueError, ValueError("the block"), None) if failed else (None, None, None)
        done, _ = self.do(t, lambda: model.graph.__exit__(*raised), allowed=is_innermost)
        if done:
            stack.pop()
            if model.trunk is not None and model.depth:
                if failed and not model.open:
                    self.doubt(model)
                model.depth -= 1
                if model.depth == 0:
                    model.entered = None

    def branch(self, t):
        model, n = self.random.choice(self.graphs), self.random.randrange(1, 4)
        done, branches = self.do(t, lambda: model.graph.branches(n), allowed=not model.frozen)
        if done:
            model.open = [Model(branch, model) for branch in branches]
            self.graphs += model.open

    def ready(self, model):
        return bool(model.open) and not any(b.open or b.entered is not None for b in model.open)

    def join(self, t):
        model = self.random.choice([m for m in self.graphs if m.open] or self.graphs)
        done, _ = self.do(t, model.graph.join, allowed=self.ready(model), sure=not self.full(model))
        if done:
            for held in self.held:
                if held.home in model.open:
                    held.home = model
            self.end(model)

    def discard(self, t):
        model = self.random.choice(self.graphs)
        done, _ = self.do(t, model.graph.drop_branches, allowed=self.ready(model))
        if done:
            for branch in model.open:
                self.doubt(branch)
            self.end(model)

    def end(self, model):
        for branch in model.open:
            branch.ended, branch.trunk = True, None
            if self.random.random() < 0.7:
                self.graphs.remove(branch)
        model.open = []

    def doubt(self, model):
        for held in self.held:
            if held.home is model:
                held.doubtful = True

    def mark(self, t):
        model = self.random.choice(self.graphs)
        done, mark = self.do(t, model.graph.mark, allowed=not model.frozen)
        if done:
            model.marks = [*model.marks[-2:], mark]

    def rewind(self, t):
        model = self.random.choice(self.graphs)
        if model.marks and self.random.random() < 0.8:
            mark = self.random.choice(model.marks)
            done, _ = self.do(t, lambda: model.graph.rewind(mark), allowed=False, sure=model.frozen)
        else:
            done, _ = self.do(t, self.random.choice([model.graph.clear, model.graph.collect]), allowed=not model.frozen)
        if done:
            self.doubt(model)

    def backward(self, t):
        if (v := self.pick()) is not None:
            is_plain = not v.home.frozen and v.home.trunk is None
            self.do(t, v.object.backward, allowed=is_plain, sure=not v.doubtful or not is_plain)

    def read(self, t):
        v = self.pick(self.random.random() < 0.3)
        if v is not None and not v.doubtful:
            is_taken = v.home.ended
            done, _ = self.do(
                t, lambda: (repr(v.object), v.object.graph, len(v.home.graph)), allowed=not is_taken, sure=False
            )
            if done and not v.home.open:
                self.check(v)

    def trace(self, t):
        """Traces a body with allowed and forbidden operations."""
        v, model = self.pick(), self.random.choice(self.graphs)
        what = self.random.randrange(7)

        def body(x):
            y = x * 2.0
            if what == 1:
                y = y + v.object
            elif what == 2:
                x.graph.branches(1)
            elif what == 3:
                with model.graph:
                    y = y + 1.0
            elif what == 4:
                model.graph.__enter__()
            elif what == 5:
                x.graph.join()
            elif what == 6:
                x.graph.__exit__(None, None, None)
            return y

        if (v is None and what == 1) or (what == 4 and model.trunk is not None):
            return
        f = bt.function(body)
        done, result = self.do(t, lambda: f(1.5), allowed=True, sure=what == 0)
        assert not done or result == 3.0 + (what == 3), (what, result)
        here = self.current(t)
        _, current = self.do(t, bt.current_graph, allowed=True)
        assert here is None or current is here.graph, what

    def forget(self, t):
        if self.held:
            del self.held[self.random.randrange(len(self.held))]
        if self.random.random() < 0.05:
            gc.collect()

    def renew(self):
        """Drops everything that is not in a block, including graphs with open branches."""
        stacked = {id(model) for stack in self.stacks for model in stack}
        kept = []
        for model in self.graphs:
            at = model
            while at.trunk is not None:
                at = at.trunk
            family = [m for m in self.graphs if m.grows_from(at)]
            if any(id(m) in stacked for m in family) or (at is model and not model.open and not model.ended):
                kept.append(model)
        self.graphs = kept
        self.held = [held for held in self.held if held.home in kept]
        while len(self.graphs) < 4:
            self.graphs.append(Model(bt.Graph()))


@pytest.mark.parametrize("n_threads", [1, 3])
def test_random_phases(n_threads):
    for run in range(max(1, STEPS // 10_000)):
        machine = Machine(SEED + run, n_threads)
        machine.run(min(STEPS, 10_000))
        assert machine.counts["done"] > STEPS / 20 or STEPS < 10_000
        assert machine.counts["refused"] > 0
        del machine
        gc.collect()


SMALLEST = {
    "the graph itself is entered": lambda x, g, b: g,
    "inside a branch the graph is entered again": lambda x, g, b: (b, g),
    "nobody is in the branch": lambda x, g, b: (),
}


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "float128", "float32x4"])
@pytest.mark.parametrize("where", SMALLEST)
@pytest.mark.parametrize("name", [*ONE, *(f"{name} of two" for name in TWO)])
def test_an_operation_on_a_frozen_graph_is_a_busy_error(where, dtype, name):
    if dtype not in ("float64", "float32") and name in ("primitive", "traced"):
        pytest.skip("float64 and float32 only")
    graph = bt.Graph(dtype=dtype)
    x = graph.value(3.0)
    (branch,) = graph.branches(1)
    inside = SMALLEST[where](x, graph, branch)
    inside = inside if isinstance(inside, tuple) else (inside,)
    n = len(graph)
    for one in inside:
        one.__enter__()
    try:
        with pytest.raises(bt.BusyError, match=r"frozen while 1 branches"):
            TWO[name[: -len(" of two")]][0](x, x) if name.endswith(" of two") else ONE[name][0](x)
    finally:
        for one in reversed(inside):
            one.__exit__(None, None, None)
    assert len(graph) == n
    graph.join()
    assert len(graph) == n


def test_nested_branches_freeze_those_between():
    with bt.Graph() as graph:
        x = bt.Value(2.0)
    (outer,) = graph.branches(1)
    with outer:
        y = x * 3.0
        (inner,) = outer.branches(1)
        for value in (x, y):
            with pytest.raises(bt.BusyError):
                value * 2.0
            with pytest.raises(bt.BusyError):
                bt.reduce_sum([x, y])
        with inner:
            z = x * y
            assert z.data == 12.0
            with outer, pytest.raises(bt.BusyError):
                x * y
            assert (z + x).data == 14.0
    outer.join()
    graph.join()
    z.backward()
    assert x.grad == 12.0


def test_branches_are_nested_to_a_limit():
    graph = at = bt.Graph()
    chain = []
    with pytest.raises(ValueError, match="nested at most 100 deep"):
        for _ in range(1000):
            (at,) = at.branches(1)
            at.__enter__()
            chain.append(at)
    x = bt.Value(1.0)
    assert (x + 1.0).data == 2.0
    for branch in reversed(chain):
        branch.__exit__(None, None, None)
    for branch in [*reversed(chain[:-1]), graph]:
        branch.join()
    assert x.graph is graph


def test_a_branch_that_is_left_while_another_thread_works_on_it():
    """A long call makes a graph unavailable to others, including the thread that leaves the branch."""
    graph = bt.Graph()
    (branch,) = graph.branches(1)
    stop = threading.Event()
    with branch:
        v = branch.vector(np.arange(200_000.0))
    outcomes = []

    def work():
        while not stop.is_set():
            try:
                (v * 2.0).sum()
                outcomes.append("built")
            except REFUSED as error:
                outcomes.append(type(error).__name__)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(60):
            try:
                with branch:
                    bt.Value(1.0)
            except bt.BusyError:
                pass
    finally:
        stop.set()
        thread.join()
    while True:
        try:
            graph.join()
            break
        except bt.BusyError:
            pass
    assert list(v.data[:3]) == [0.0, 1.0, 2.0]
    assert set(outcomes) <= {"built", "BusyError"}


def test_blocks_entered_by_a_traced_body_are_left():
    before = bt.current_graph()
    other = bt.Graph()
    (branch,) = bt.Graph().branches(1)

    def body(x):
        other.__enter__()
        branch.__enter__()
        return x * 2.0

    f = bt.function(body)
    with contextlib.suppress(bt.BurtorchError):
        assert f(1.0) == 2.0
    assert bt.current_graph() is before
    with branch:
        assert bt.Value(1.0).graph is branch
