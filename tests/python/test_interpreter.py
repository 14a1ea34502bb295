"""Values and the interpreter: exit, fork, copying and pickling, subclasses, weak references, the collector."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import subprocess
import sys
import threading
import time
import tracemalloc
import weakref

import pytest

import burtorch as bt
from burtorch import Value


def run(code, *flags):
    done = subprocess.run([sys.executable, *flags, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


@pytest.mark.parametrize("flags", [(), ("-X", "dev"), ("-O", "-W", "error")], ids=" ".join)
def test_the_interpreter_exits_cleanly_with_live_values(flags):
    code = """
import atexit, sys, threading
import burtorch as bt
x = bt.Value(1.0)
y = x * 2
v = y.graph.vector([1.0, 2.0])
mark = y.graph.mark()
class Sub(bt.Value):
    def __del__(self):
        (x + 1).backward()
s = Sub(3.0)
s.me = s
sys.leak = [x, y, v, mark, bt.Graph(), s.graph.scope()]
bt.Graph().__enter__()
bt.no_grad().__enter__()
atexit.register(lambda: print(bt.Value(4.0).data, y.data))
def work():
    threading.local().x = bt.Value(1.0)
    bt.Graph().__enter__()
t = threading.Thread(target=work); t.start(); t.join()
"""
    assert run(code, *flags) == "4.0 2.0\n"


def test_the_module_can_be_imported_again():
    code = """
import sys
import burtorch._core as first
x = first.Value(2.0)
import burtorch
del sys.modules["burtorch._core"]
try:
    import burtorch._core as second
except ImportError:
    second = first
print((x * second.Value(3.0)).data)
"""
    assert run(code) == "6.0\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_fork():
    x = Value(3.0)
    y = x * x
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            y.backward()
            for _ in range(2000):
                y = y + 1
            os.write(write, repr((x.grad, y.data, bt.current_graph() is x.graph)).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        assert pipe.read() == repr((6.0, 2009.0, bt.current_graph() is x.graph))
    assert os.waitpid(child, 0)[1] == 0
    assert (x.grad, y.data) == (0.0, 9.0)


MAKERS = [
    lambda: Value(1.0),
    lambda: bt.Graph().vector([1.0]),
    lambda: bt.Graph().mark(),
]


@pytest.mark.parametrize("make", MAKERS)
def test_copying_and_pickling_are_refused(make):
    thing = make()
    calls = [copy.copy, copy.deepcopy, lambda x: copy.deepcopy([x])]
    for call in [*calls, *(lambda x, p=p: pickle.dumps(x, p) for p in range(pickle.HIGHEST_PROTOCOL + 1))]:
        with pytest.raises(TypeError):
            call(thing)


def test_a_lone_value_says_why_it_is_not_pickled():
    with pytest.raises(TypeError, match="without its graph"):
        pickle.dumps(Value(1.0))


class Named(Value):
    def __init__(self, data, name):
        super().__init__(data)
        self.name = name

    def __repr__(self):
        return self.name


class Plain(Value):
    pass


class Slotted(Value):
    __slots__ = ("extra",)


def test_subclasses():
    x, y, z = Named(2.0, "width"), Plain(3.0, "b", graph=None), Slotted(4.0)
    z.extra = 1
    assert (x.data, x.name, repr(x), f"{x}", y.label, z.extra) == (2.0, "width", "width", "width", "b", 1)
    w = x * y + z
    assert type(w) is Value
    w.backward()
    assert (x.grad, y.grad, z.grad) == (3.0, 2.0, 1.0)
    assert Named(data=1.0, name="a").data == 1.0
    for call in (lambda: Named("1", "a"), lambda: Plain(), lambda: Plain(1.0, "a", 3), lambda: Named(name="a")):
        with pytest.raises(TypeError):
            call()
    assert isinstance(bt.max(x, y), Value)
    graph = bt.Graph()
    assert Plain(1.0, graph=graph).graph is graph
    y.anything = [y]
    with pytest.raises(AttributeError):
        Value(1.0).anything = 1


def test_the_class_of_a_value_does_not_change():
    class Empty(Value):
        __slots__ = ()

    with pytest.raises(TypeError):
        Value(1.0).__class__ = Empty
    with pytest.raises(TypeError):
        Empty(1.0).__class__ = Value
    with pytest.raises(TypeError):
        object.__new__(Empty)


def test_weak_references():
    x = Value(1.0)
    seen = []
    r = weakref.ref(x, seen.append)
    proxy = weakref.proxy(x)
    assert r() is x
    assert (proxy + 1).data == 2.0
    table = weakref.WeakKeyDictionary({x: 1})
    del x, proxy
    assert (r(), seen, len(table)) == (None, [r], 0)
    graph = bt.Graph()
    v = graph.vector([1.0])
    refs = [weakref.ref(graph), weakref.ref(v)]
    del graph
    assert refs[0]() is v.graph
    del v
    assert [r() for r in refs] == [None, None]


def test_a_weak_reference_callback_may_use_the_graph():
    graph = bt.Graph()
    x = Value(2.0, graph=graph)
    log = []

    def callback(_):
        log.append((x * x).data)
        graph.collect()

    refs = []
    for k in range(2000):
        y = Value(float(k), graph=graph)
        refs.append(weakref.ref(y, callback))
        del y
    assert log == [4.0] * 2000


def test_cycles_through_subclasses_are_collected():
    gc.collect()
    graph = bt.Graph()
    for _ in range(1000):
        x = Plain(1.0, graph=graph)
        x.me = [x, graph]
    del x
    gc.collect()
    assert graph.memory()["handles"] == 0


def test_values_hold_their_graph_and_nothing_else():
    graph = bt.Graph()
    free = sys.getrefcount(graph)
    values = [Value(1.0, graph=graph) for _ in range(5000)]
    assert sys.getrefcount(graph) == free + 5000
    values = [v * 2 for v in values]
    assert sys.getrefcount(graph) == free + 5000
    types = sys.getrefcount(Value)
    values += [Value(1.0, graph=graph) for _ in range(3000)]
    del values
    assert sys.getrefcount(graph) == free
    assert abs(sys.getrefcount(Value) - types) < 10_000
    vector = graph.vector([1.0] * 100)
    parts = [vector[k:] for k in range(50)]
    marks = [graph.mark() for _ in range(10)]
    scopes = [graph.scope() for _ in range(10)]
    del vector, parts, marks, scopes
    assert sys.getrefcount(graph) == free


def test_nothing_leaks():
    """Blocks allocated by the interpreter, over all kinds of calls, valid and invalid."""
    graph = bt.Graph()
    x = Value(2.0, graph=graph)
    v = graph.vector([1.0, 2.0, 3.0])

    class Odd:
        def __iter__(self):
            yield 1.0
            raise LookupError

    def every_kind():
        y = ((x + 1) * x - 2.0 / x) ** 2
        y.backward()
        y.label = "y"
        hash(y), repr(y), f"{y:.1f}", y.operands, y.op, y.detach(), y == 1, y < 2, y == "a"
        w = (v * x + v[::-1]) @ v
        bt.concat(v, y, 1.0).sum().backward()
        bt.max([x, y, w]), bt.reduce_mean_and_mean_squares(v), bt.exp(v).data, Value(1.0, "z", graph=graph)
        Plain(1.0, graph=graph).me = y
        with graph.scope(), bt.no_grad():
            x + 1
        graph.find_nonfinite(), graph.memory(), graph.recompute(y)
        for wrong in (
            lambda: x + "a",
            lambda: Value("a"),
            lambda: Value(1.0, 2),
            lambda: bt.max(x, "a"),
            lambda: bt.max(),
            lambda: bt.reduce_sum(Odd()),
            lambda: v + [1.0, 2.0],
            lambda: v["a"],
            lambda: x + Value(1.0),
            lambda: x.backward("a"),
            lambda: pickle.dumps(x),
            lambda: 10**400 * x,
            lambda: graph.rewind(x),
        ):
            try:
                wrong()
            except (TypeError, ValueError, OverflowError, LookupError):
                pass
            else:
                raise AssertionError

    # The interpreter adapts code for some hundred calls; one without a lock frees with a delay.
    for _ in range(500):
        every_kind()
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(1000):
        every_kind()
    gc.collect()
    # Free lists may grow once; a leak would be one block per call.
    assert sys.getallocatedblocks() - before < 500


def test_tracemalloc_sees_no_growth():
    x = Value(2.0)
    tracemalloc.start()
    try:
        for n in (2000, 20_000):
            for _ in range(n):
                y = (x * 2 + 1).tanh()
                y.backward()
            if n == 2000:
                before = tracemalloc.get_traced_memory()[0]
        assert tracemalloc.get_traced_memory()[0] - before < 10_000
    finally:
        tracemalloc.stop()


def test_graphs_of_threads_that_ended_are_freed():
    refs = []

    def work():
        refs.append(weakref.ref(Value(1.0).graph))
        bt.Graph().__enter__()

    for _ in range(20):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    bt.current_graph()
    # `join` returns before the system has ended the thread, which then frees its graph.
    for _ in range(1000):
        bt.Graph()
        alive = sum(r() is not None for r in refs)
        if alive <= 1:
            break
        time.sleep(1e-3)
    assert alive <= 1


def test_help_is_useful():
    for thing in (Value, bt.Vector, bt.Graph, bt.Mark, bt.Scope, bt.no_grad, bt.tanh, bt.concat, bt.current_graph):
        assert len(thing.__doc__) > 40
        for name, member in vars(thing).items() if isinstance(thing, type) else ():
            if not name.startswith("_"):
                assert member.__doc__, (thing, name)
    assert (Value.__module__, Value.__name__, bt.tanh.__name__) == ("burtorch", "Value", "tanh")
