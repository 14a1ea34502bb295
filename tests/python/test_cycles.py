"""Every type takes part in garbage collection: one of each, in a cycle with an object that reports its deletion.

The types are found by walking the modules; a new type without an entry here fails the test.
"""

from __future__ import annotations

import dataclasses
import gc
import importlib
import pkgutil
import sys
import weakref

import numpy as np
import pytest

import burtorch as bt
from burtorch import _core


class Companion:
    """An object held by the object under test, which it references in turn."""

    def __call__(self, *args):
        return args[0] if args else 0.0

    def bytes(self, n):
        """Memory with a reference to the companion."""
        memory = Memory(n)
        memory.companion = self
        return memory

    def floats(self, n):
        """Numbers with a reference to the companion."""
        numbers = np.zeros(n).view(Numbers)
        numbers.companion = self
        return numbers

    def graph(self):
        return bt.Graph(buffer=self.bytes(20_000))

    def parameters(self):
        return bt.Parameters(dtype="float64", values=self.floats(20_000), grads=np.zeros(20_000))


class Memory(bytearray):
    """Memory with attributes."""


class Numbers(np.ndarray):
    """Numbers with attributes."""


def rule(primitive, companion):
    primitive.defvjp(lambda g, y, x: companion)
    return primitive


def traced(companion):
    f = bt.function(lambda x: x * 2.0 if companion is not None else x)
    f(1.0)
    return f


def calls_primitive(companion):
    primitive = rule(bt.primitive(lambda x: companion and 2.0 * x), companion)
    primitive.defvjp(lambda g, y, x: 2.0 * g if companion is not None else g)
    f = bt.function(lambda x: primitive(x))
    f(1.0)
    return f


def entered(block):
    block.__enter__()
    block.__exit__(None, None, None)
    return block


def with_branches(companion):
    graph = companion.graph()
    graph.branches(2)
    return graph


def joined_branch(companion):
    graph = companion.graph()
    branches = graph.branches(2)
    graph.join()
    return branches[0]


def reads_parameters(companion):
    graph = bt.Graph()
    w = companion.parameters().tensor(3)
    with graph:
        bt.inner_product([1.0, 2.0, 3.0], w)
    return graph


def of_values(companion):
    class Mine(bt.Value):
        pass

    value = Mine(1.0)
    value.companion = companion
    return value


def called(layer):
    layer(bt.Graph().vector(np.zeros(2)))
    return layer


def statics(companion):
    class Static:
        def __init__(self):
            self.companion = companion

    f = bt.function(lambda x, *, how: x * 2.0)
    f(1.0, how=Static())
    companion.f = f
    return f


def derived(companion):
    f = bt.function(lambda x, *, how: x)
    f.vjp(np.ones((1, 2)), np.ones((1, 2)), how=companion)
    return f


def schedule_of(companion):
    return bt.optim.Schedule(bt.optim.SGD(companion.parameters(), lr=0.1), "cosine", total=2)


def subset_of(params):
    params.tensor(2)
    return params.subset(range(2))


def finite_sum(companion):
    return bt.opt.FiniteSum(companion, n=1, d=1)


def runner(problem):
    full, zero = ("full",), ("zero",)
    return _core.Runner(problem, "sgd", [0.0], sampling=full, prox=zero, seed=0, threads=1)


def kept_array(companion):
    w = companion.parameters().tensor(2)
    kept = []
    bt.jacobian(lambda x: [kept.append(x), x, w])(np.ones((1, 2)))
    return kept[0]


HOLD = {
    "At": [lambda c: kept_array(c).at],
    "Place": [lambda c: kept_array(c).at[0]],
    "Array": [kept_array],
    "BoundFunction": [
        lambda c: traced(c).bind(np.ones(1)),
        lambda c: bt.function(lambda x: x.sum()).bind(c.floats(2)),
        lambda c: bt.function(lambda x: x.sum()).bind(np.ones(2), c.floats(2)),
    ],
    "FlatArray": [lambda c: c.parameters().values, lambda c: c.graph().vector([1.0]).data],
    "Function": [
        bt.function,
        traced,
        calls_primitive,
        statics,
        bt.grad,
        bt.hessian,
        lambda c: bt.vmap(traced(c)),
        derived,
    ],
    "Graph": [Companion.graph, with_branches, joined_branch, reads_parameters],
    "Mark": [lambda c: c.graph().mark()],
    "NodeValues": [lambda c: c.graph().values],
    "Oracle": [
        lambda c: bt.Oracle(c, params=bt.Parameters()),
        lambda c: bt.Oracle(bt.nn.MLP(c.parameters(), [2, 2])),
    ],
    "Parameters": [Companion.parameters],
    "Program": [lambda c: calls_primitive(c).program],
    "Scope": [lambda c: c.graph().scope(), lambda c: entered(c.graph().scope())],
    "Subset": [lambda c: subset_of(c.parameters())],
    "Tensor": [lambda c: c.parameters().tensor(2)],
    "Value": [of_values],
    "Vector": [lambda c: c.graph().vector([1.0]), lambda c: c.graph().vector([1.0, 2.0])[1:]],
    "no_grad": [lambda c: bt.no_grad(c.graph())],
    "primitive": [bt.primitive, lambda c: rule(bt.primitive(abs), c)],
    "DenseCall": [lambda c: called(bt.nn.Linear(c.parameters(), 2, 2))],
    "CharMLP": [lambda c: bt.nn.CharMLP(c.parameters(), vocab=3, context=2, embedding=2, hidden=2)],
    "GPT": [lambda c: bt.nn.GPT(c.parameters(), vocab=3, context=2, layers=1, heads=1, width=2)],
    "Linear": [lambda c: bt.nn.Linear(c.parameters(), 2, 2), lambda c: _core.Linear(c.parameters(), 2, 2)],
    "MLP": [lambda c: bt.nn.MLP(c.parameters(), [2, 2])],
    "SGD": [lambda c: bt.optim.SGD(c.parameters(), lr=0.1), lambda c: bt.optim.SGD([of_values(c)], lr=0.1)],
    "Adam": [lambda c: bt.optim.Adam(c.parameters())],
    "AdamW": [lambda c: bt.optim.AdamW(c.parameters())],
    "Schedule": [schedule_of],
    "FiniteSum": [finite_sum],
    "Record": [lambda c: slotted(bt.opt.Record, c)],
    "Predicted": [lambda c: slotted(sys.modules["burtorch.mpi"].Predicted, c)],
    "Rows": [lambda c: bt.opt.Rows(c, c, c, (1, 1))],
    "Smoothness": [lambda c: slotted(bt.opt.Smoothness, c)],
    "Runner": [lambda c: runner(finite_sum(c))],
    "Tokens": [lambda c: slotted(sys.modules["burtorch._layers"].Tokens, c)],
    "MemoryUse": [lambda c: slotted(sys.modules["burtorch._memory"].MemoryUse, c)],
    "Contender": [lambda c: importlib.import_module("burtorch.cli.bench_io").Contender(c, c, c)],
}
"""For each type, ways to make an instance hold a companion, one per field that can."""

EMPTY = {
    "Config": lambda: bt.config,
    "KeptDraws": _core.KeptDraws,
    "RowsCall": lambda: _core.RowsCall(),
    "TokenIdArray": lambda: bt.text.WordContexts(["ab", "ba"], context=2, holdout=0.0).train(0, 1)[0],
    "TokenIds": lambda: symbols(),
    "TextWindows": lambda: bt.text.TextWindows("to be or not to be", context=4, holdout=0.0),
    "WordContexts": lambda: bt.text.WordContexts(["ab", "ba"], context=2, holdout=0.0),
    "parameter": lambda: bt.parameter(1.0),
    "Draw": lambda: bt.compress.Draw(0),
    "Stop": bt.Stop,
    "Message": lambda: bt.compress.Identity().compress([1.0]),
    **{name: lambda: bt.compress.TopK(1) for name in bt.compress.__all__ if name not in ("Draw", "Message")},
    "FlatArray": lambda: bt.Graph().vector([1.0]).data,
}
"""Types, or kinds of types, that hold only numbers and text."""


def slotted(cls, companion):
    made = object.__new__(cls)
    names = [f.name for f in dataclasses.fields(cls)] if dataclasses.is_dataclass(cls) else list(cls.__slots__)
    for name in names:
        object.__setattr__(made, name, companion)
    return made


def symbols():
    found = []
    params = bt.Parameters()
    table = params.tensor((3, 2), init=1.0)

    def model(given, label):
        found.append(given)
        return bt.gather(table, given).sum()

    bt.Oracle(model, params=params, lanes=1).loss([[0, 1, 2]], [0])
    return found[0]


def all_types():
    modules = [bt, _core]
    for module in pkgutil.walk_packages(bt.__path__, "burtorch."):
        if not module.name.endswith("__main__") and ".programs." not in module.name:  # rivals may be absent
            modules.append(importlib.import_module(module.name))
    found = {type(traced(None).program), type(traced(None).bind(np.ones(1))), type(symbols())}
    for module in modules:
        for object_ in vars(module).values():
            if isinstance(object_, type) and object_.__module__.split(".")[0] == "burtorch":
                found.add(object_)
    return sorted(found, key=lambda cls: (cls.__module__, cls.__qualname__))


TYPES = all_types()


def collects(make):
    """Whether a cycle of a companion and an object from `make` is collected."""
    companion = Companion()
    gone = weakref.ref(companion)
    made = make(companion)
    companion.made = made
    del companion, made
    gc.collect()
    return gone() is None


@pytest.mark.parametrize("cls", TYPES, ids=lambda cls: f"{cls.__module__}.{cls.__qualname__}")
def test_every_type_is_collected(cls):
    if cls.__name__ in HOLD and cls.__dictoffset__ == 0:
        for make in HOLD[cls.__name__]:
            assert collects(make)
        return
    if cls.__name__ in EMPTY:
        return

    if cls.__dictoffset__ == 0:
        pytest.fail(f"{cls} has no attributes: say how one holds something, or that it is empty")

    def make(companion):
        # A new attribute holds the instances' references, whatever the constructor does.
        made = bare(cls)
        if made is None:
            return HOLD[cls.__name__][0](companion)
        made.companion = companion
        return made

    assert collects(make)


def bare(cls):
    """An instance created without arguments, or None if this is impossible."""
    for new in (
        lambda: cls("text") if issubclass(cls, BaseException) else object.__new__(cls),
        lambda: cls.__new__(cls),
    ):
        try:
            return new()
        except TypeError:
            pass
    return None


@pytest.mark.parametrize("name", HOLD)
def test_every_way_of_holding_something(name):
    for k, make in enumerate(HOLD[name]):
        assert collects(make), k


@pytest.mark.parametrize("name", EMPTY)
def test_empty_types_hold_nothing(name):
    made = EMPTY[name]()
    assert [held for held in gc.get_referents(made) if held is not type(made)] == []
    with pytest.raises(AttributeError):
        made.companion = 1


def test_a_value_holds_its_graph_and_nothing_else():
    """Not tracked: a Value is cheap because it is not a container. Its only reference, to its graph, is fixed."""
    graph = bt.Graph()
    before = sys.getrefcount(graph)
    values = [bt.Value(float(k), graph=graph) for k in range(100)]
    assert sys.getrefcount(graph) == before + 100
    assert not any(gc.is_tracked(value) for value in values)
    with pytest.raises(AttributeError):
        values[0].companion = 1
    value, gone = values.pop(), []
    weakref.finalize(value, gone.append, "value")
    del values, value
    assert gone == ["value"]
    assert sys.getrefcount(graph) == before


def test_a_model_that_keeps_its_own_oracle_is_collected():
    class Model:
        def __init__(self):
            self.params = bt.Parameters(dtype="float64")
            self.w = self.params.tensor(2, init=1.0)
            self.oracle = bt.Oracle(self, params=self.params)
            self.f = bt.function(lambda x: self.body(x))
            self.bound = self.f.bind(np.ones(2))
            self.schedule = bt.optim.Schedule(bt.optim.SGD(self.params, lr=0.1), "constant")

        def __call__(self, x, y):
            return bt.inner_product(self.w, x) - y

        def body(self, x):
            return (x * x).sum()

    model = Model()
    model.oracle([[1.0, 2.0]], [3.0])
    model.bound()
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_a_graph_with_open_branches_is_collected():
    graph = bt.Graph()
    gone = weakref.ref(graph)
    branches = graph.branches(3)
    with branches[0]:
        bt.Value(1.0)
    del graph, branches
    gc.collect()
    assert gone() is None


def test_a_primitive_outlives_the_function_that_calls_it_and_not_longer():
    def make():
        primitive = bt.primitive(lambda x: 2.0 * x)
        primitive.defvjp(lambda g, y, x: 2.0 * g)
        return bt.function(lambda x: primitive(x) + 1.0), weakref.ref(primitive)

    f, gone = make()
    assert f.value_and_grad(3.0) == (7.0, 2.0)
    program = f.program
    gc.collect()
    assert f.value_and_grad(4.0) == (9.0, 2.0)
    assert list(f.map(np.array([1.0, 2.0]))) == [3.0, 5.0]
    del f
    gc.collect()
    assert gone() is not None
    del program
    gc.collect()
    assert gone() is None


def test_a_traced_body_may_make_its_primitive():
    def body(x):
        primitive = bt.primitive(lambda a: 3.0 * a)
        primitive.defvjp(lambda g, y, a: 3.0 * g)
        return primitive(x)

    f = bt.function(body)
    assert f(1.0) == 3.0
    gc.collect()
    assert f.value_and_grad(2.0) == (6.0, 3.0)
