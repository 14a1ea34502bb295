"""Guarantees of replays about changing numbers: burtorch's state, limits, static arguments, files, audits,
profilers."""

from __future__ import annotations

import cProfile
import os
import pickle
import pstats
import sys
import types
import warnings
from pathlib import PurePath

import numpy as np
import pytest

import burtorch as bt


class Hidden:
    """Reads a number in a way that a replay cannot watch."""

    def __init__(self, k):
        self.limit = sys.getrecursionlimit
        self.k = k


def unwatched(before):
    """A function that reads the interpreter's recursion limit and subtracts a number."""
    return bt.function(lambda x: x * (sys.getrecursionlimit() - before))


@pytest.fixture
def limit():
    before = sys.getrecursionlimit()
    yield before
    sys.setrecursionlimit(before)


def silenced(f, *arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bt.StaleRiskWarning)
        return f(*arguments)


def reads():
    """Bodies that read numbers of burtorch's state, by name."""
    graph = bt.Graph()
    with graph:
        other, row = bt.Value(2.0), graph.vector([1.0, 2.0])
    params = bt.Parameters(dtype="float64")
    w = params.tensor((3,), name="w", init="zeros")
    sgd, adam, parameter = bt.optim.SGD(params, lr=0.5), bt.optim.Adam(params), bt.parameter(2.0)
    values = graph.values
    return {
        "tensor values": lambda x: x * w.values[0],
        "tensor grads": lambda x: x * w.grads[0],
        "parameters values": lambda x: x * params.values[0],
        "parameters grads": lambda x: x * params.grads[0],
        "sgd lr": lambda x: x * sgd.lr,
        "sgd momentum": lambda x: x * sgd.momentum,
        "sgd weight decay": lambda x: x * sgd.weight_decay,
        "adam lr": lambda x: x * adam.lr,
        "adam betas": lambda x: x * adam.betas[0],
        "adam eps": lambda x: x * adam.eps,
        "adam steps": lambda x: x * adam.n_steps,
        "parameter value": lambda x: x * parameter.value,
        "data of another graph": lambda x: x * other.data,
        "grad of another graph": lambda x: x * other.grad,
        "float of another graph": lambda x: x * float(other),
        "int of another graph": lambda x: x * int(other),
        "bool of another graph": lambda x: x if other else x * 2.0,
        "greater of another graph": lambda x: x if other > 1.0 else x * 2.0,
        "equal of another graph": lambda x: x if other == 2.0 else x * 2.0,
        "less of another graph with an int": lambda x: x if other < 10**30 else x * 2.0,
        "format of another graph": lambda x: x * float(f"{other:.3f}"),
        "data of a vector": lambda x: x * row.data[0],
        "grad of a vector": lambda x: x * row.grad[0],
        "values of the traced graph": lambda x: x * x.graph.values[0],
        "values of a graph": lambda x: x * graph.values[0],
        "values taken before": lambda x: x * values[0],
        "format of a traced Value": lambda x: x * float(f"{x:.3f}"),
        "text of a traced Value": lambda x: x * float(str(x).split("=")[1].rstrip(")").split(",")[0]),
    }


@pytest.mark.parametrize("name", list(reads()))
def test_numbers_of_its_own_are_refused(name):
    body = reads()[name]
    with pytest.raises((bt.TraceError, IndexError)) as caught:
        bt.function(body)(1.5)
    if caught.type is bt.TraceError:
        assert "test_function_stale.py:" in str(caught.value)


def test_a_traced_value_shows_no_number():
    seen = []
    f = bt.function(lambda x: seen.append(repr(x)) or x * 2.0)
    f(1.25)
    assert seen == ["Value(traced)"]


def test_arrays_of_parameters_that_are_held_are_watched():
    params = bt.Parameters(dtype="float64")
    w = params.tensor((3,), name="w", init="zeros")
    held = w.values
    f = bt.function(lambda x: x + held[1])
    assert f(1.0) == 1.0
    held[1] = 5.0
    assert f(1.0) == 6.0


class Neuron:
    def __init__(self, n, seed):
        self.w = [0.01 * (seed + k) for k in range(n)]
        self.b = 0.1

    def __call__(self, x):
        return (sum(w * v for w, v in zip(self.w, x)) + self.b).tanh()


def test_more_neurons_than_any_limit():
    layers = [[Neuron(3, k) for k in range(300)], [Neuron(300, 1)]]

    def body(x):
        for layer in layers:
            x = [neuron(x) for neuron in layer]
        return x[0]

    f, x = bt.function(body), [0.5, -0.25, 1.0]
    for change in (
        lambda: setattr(layers[0][299], "b", 2.0),
        lambda: layers[0][299].w.__setitem__(2, 3.0),
        lambda: layers[1][0].w.__setitem__(299, 3.0),
        lambda: setattr(Neuron, "__call__", lambda self, x: (sum(w * v for w, v in zip(self.w, x)) * self.b).tanh()),
    ):
        f(x)
        change()
        assert f(x) == body([bt.Value(v) for v in x]).data
    assert f.stats()["unwatched"] == []


def test_more_functions_and_objects_than_before():
    fs = [lambda x, k=[float(k)]: x * k[0] for k in range(2000)]
    objects = [types.SimpleNamespace(k=float(k)) for k in range(3000)]
    f = bt.function(lambda x: sum(g(x) for g in fs) + sum(o.k for o in objects))
    f(1.0)
    fs[1999].__defaults__[0][0] = 1.5
    objects[2999].k = 0.5
    assert f(1.0) == sum(g(1.0) for g in fs) + sum(o.k for o in objects)


class Equal:
    """All of them are equal, and have one hash."""

    def __init__(self, k):
        self.k = k

    def __eq__(self, other):
        return isinstance(other, Equal)

    def __hash__(self):
        return 1


def closure(k):
    return lambda x: x * k


@pytest.mark.parametrize(
    ("a", "b", "result"),
    [
        (0.0, -0.0, lambda m: 1.0 if str(m) == "0.0" else 2.0),
        (1, 1.0, lambda m: 1.0 if isinstance(m, int) else 2.0),
        (1, True, lambda m: 1.0 if m is True else 2.0),
        ((1,), (1.0,), lambda m: 1.0 if isinstance(m[0], int) else 2.0),
        ((0.0,), (-0.0,), lambda m: 1.0 if str(m[0]) == "0.0" else 2.0),
        (((1,),), ((True,),), lambda m: 1.0 if m[0][0] is True else 2.0),
        (frozenset([1]), frozenset([1.0]), lambda m: 1.0 if isinstance(next(iter(m)), int) else 2.0),
        (complex(0.0, 0.0), complex(0.0, -0.0), lambda m: 1.0 if str(m.imag) == "0.0" else 2.0),
        (closure(2.0), closure(3.0), lambda m: m(1.0)),
        (np.float64(0.0), np.float64(-0.0), lambda m: 1.0 if str(float(m)) == "0.0" else 2.0),
        (Equal(2.0), Equal(3.0), lambda m: m.k),
    ],
)
def test_static_arguments_that_are_equal_and_not_the_same(a, b, result):
    f = bt.function(lambda x, m=None: x * result(m))
    for m in (a, b, a, b):
        assert f(1.0, m=m) == result(m)


def test_static_arguments_that_change():
    o = Equal(2.0)
    f = bt.function(lambda x, m=None: x * m.k)
    assert f(1.0, m=o) == 2.0
    o.k = 3.0
    assert f(1.0, m=o) == 3.0
    cell = [2.0]
    g = bt.function(lambda x, m=None: m(x))
    m = lambda x: x * cell[0]  # noqa: E731
    assert g(1.0, m=m) == 2.0
    assert g(1.0, m=abs) == 1.0
    cell[0] = 3.0
    assert g(1.0, m=m) == 3.0


def test_functions_of_two_paths_are_both_watched():
    a, b = [2.0], [3.0]
    left, right = (lambda x: x * a[0]), (lambda x: x * b[0])
    f = bt.function(lambda x: left(x) if x > 0.0 else right(x))
    assert (f(1.0), f(-1.0)) == (2.0, -3.0)
    a[0] = 5.0
    assert (f(1.0), f(-1.0)) == (5.0, -3.0)
    b[0] = 7.0
    assert (f(1.0), f(-1.0)) == (5.0, -7.0)


def test_files_have_the_constants_at_the_time_of_writing(tmp_path, limit):
    rate = [2.0]
    f = bt.function(lambda x: x * rate[0] if x > 0.0 else -x * rate[0])
    assert (f(1.0), f(-1.0)) == (2.0, 2.0)
    rate[0] = 3.0
    f.save(tmp_path / "f.bt")
    again, pickled = bt.load_function(tmp_path / "f.bt"), pickle.loads(pickle.dumps(f))
    assert (again(1.0), again(-1.0), pickled(2.0), pickled(-2.0)) == (3.0, 3.0, 6.0, 6.0)
    g = unwatched(limit)
    assert silenced(g, 1.0) == 0.0
    sys.setrecursionlimit(limit + 4)
    with pytest.warns(bt.StaleFunctionWarning):
        g.save(tmp_path / "g.bt")
    assert bt.load_function(tmp_path / "g.bt")(1.0) == 4.0


def test_unwatched_reads_warn_once_with_their_line(limit):
    f = unwatched(limit)
    with pytest.warns(
        bt.StaleRiskWarning, match=r"reads sys.getrecursionlimit\(\).*test_function_stale.py:\d+\)"
    ) as told:
        f(1.0)
    assert len(told) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f.forget()
        f(1.0)
    (text,) = f.stats()["unwatched"]
    assert "sys.getrecursionlimit()" in text
    assert issubclass(bt.StaleRiskWarning, RuntimeWarning)


def test_paths_that_are_put_together_are_no_files():
    """A warning would be an error here: ``os.path`` computes with strings in C."""
    f = bt.function(lambda x: x * len(os.path.normpath("a//b") + str(PurePath("a", "b").with_suffix(".py"))))
    assert f(2.0) == 2.0 * len("a/b" + "a/b.py")


ANNOTATED = """
class Annotated:
    scale: float = 2.0

    def scaled(self, x: float) -> float:
        return x * self.scale * type(self).scale
"""


def test_reading_annotations_is_no_change():
    """CPython 3.14 creates them at that moment, and caches them in the class."""
    names = {"__name__": "annotated"}
    exec(compile(ANNOTATED, "annotated.py", "exec", dont_inherit=True), names)
    kind = names["Annotated"]
    point = kind()
    f = bt.function(lambda x: point.scaled(x))
    assert f(3.0) == 12.0
    assert "scale" in kind.__annotations__
    assert "x" in kind.scaled.__annotations__
    assert f(4.0) == 16.0
    assert f.stats()["traced"] == 1
    kind.scale = 3.0
    assert f(4.0) == 36.0


@pytest.mark.alone  # audits end when they would exceed their share of the time
@pytest.mark.parametrize("after", [1, 3, 6, 20])
def test_an_audit_finds_a_change_within_the_next_doublings(limit, after):
    f = unwatched(limit)
    for _ in range(after):
        silenced(f, 1.0)
    sys.setrecursionlimit(limit + 3)
    told = []
    for _ in range(3 * after + 4):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            result = f(1.0)
        told.extend(str(w.message) for w in said)
        if said:
            break
    (message,) = told
    assert "a constant is 3.0 instead of 0.0" in message
    assert "results since call" in message
    assert result == f(1.0) == 3.0


def test_audits_of_bound_buffers_and_rows(limit):
    f = bt.function(lambda x: x[0] * (sys.getrecursionlimit() - limit))
    x = np.array([1.0])
    bound = f.bind(x)
    assert silenced(bound) == 0.0
    sys.setrecursionlimit(limit + 3)
    with pytest.warns(bt.StaleFunctionWarning):
        [bound() for _ in range(8)]
    assert bound() == 3.0
    g = unwatched(limit + 3)
    rows = np.ones(2)
    assert silenced(g.map, rows).tolist() == [0.0, 0.0]
    sys.setrecursionlimit(limit + 7)
    with pytest.warns(bt.StaleFunctionWarning):
        [g.map(rows) for _ in range(8)]
    assert g.map(rows).tolist() == [4.0, 4.0]


def test_no_audit_where_none_is_wanted(limit):
    f = bt.function(lambda x: x * (sys.getrecursionlimit() - limit), audit=False)
    g = unwatched(limit)
    assert silenced(f, 1.0) == silenced(g, 1.0) == 0.0
    sys.setrecursionlimit(limit + 3)
    assert [f(1.0) for _ in range(20)] == [0.0] * 20
    assert bt.config.audit is True
    bt.config.audit = False
    try:
        assert [g(1.0) for _ in range(20)] == [0.0] * 20
    finally:
        bt.config.audit = True
    with pytest.warns(bt.StaleFunctionWarning):
        assert f.audit() is False
    assert f.audit() is True
    assert f(1.0) == 3.0


def test_a_body_that_draws_or_writes_is_never_audited(capsys):
    import random

    runs = []

    def body(x):
        runs.append("run")
        return x * random.random()

    f = bt.function(body)
    with pytest.warns(bt.StaleRiskWarning, match=r"draws random numbers by Random.random\(\)"):
        f(1.0)
    for _ in range(40):
        f(1.0)
    assert runs == ["run"]
    with pytest.raises(bt.TraceError, match="cannot be audited"):
        f.audit()
    limit = sys.getrecursionlimit()
    g = bt.function(lambda x: print("once") or x * (sys.getrecursionlimit() - limit))
    silenced(g, 1.0)
    for _ in range(40):
        g(1.0)
    assert capsys.readouterr().out == "once\n"


def test_a_body_whose_reads_are_all_watched_is_never_audited():
    runs, rate = [], [2.0]
    f = bt.function(lambda x: runs.append("run") or x * rate[0])
    for _ in range(200):
        f(1.0)
    assert runs == ["run"]
    assert f.audit() is True


def test_audits_take_little_of_the_time(limit):
    import time

    def slow(x):
        until = time.perf_counter_ns() + 20_000_000
        while time.perf_counter_ns() < until:
            pass
        return x * (sys.getrecursionlimit() - limit)

    runs = []

    def long(x):
        runs.append("run")
        for _ in range(40_000):
            x = x + 1.0
        return x * (sys.getrecursionlimit() - limit)

    f = bt.function(long)
    for _ in range(100):
        silenced(f, 1.0)
    # Tracing takes more than 5 ms, so a hundred short calls leave no time for one.
    assert len(runs) <= 2


def test_a_profiler_sees_the_same_calls_and_stays(limit):
    events = []

    def profiler(frame, event, argument):
        if frame.f_code.co_name == "marked":
            events.append(event)

    def marked(x):
        return x * 2.0

    sys.setprofile(profiler)
    try:
        f = bt.function(marked)
        f(1.0)
        assert sys.getprofile() is profiler
    finally:
        sys.setprofile(None)
    assert events == ["call", "return"]
    with cProfile.Profile() as profile:
        bt.function(marked)(1.0)
        sorted([3, 1, 2])
    names = {name for _, _, name in pstats.Stats(profile).stats}
    assert "marked" in names
    assert "<built-in method builtins.sorted>" in names


def test_a_body_that_sets_a_profiler_keeps_it():
    def other(frame, event, argument):
        pass

    f = bt.function(lambda x: sys.setprofile(other) or x * 2.0)
    try:
        f(1.0)
        assert sys.getprofile() is other
    finally:
        sys.setprofile(None)


def test_a_failing_body_leaves_no_profiler():
    f = bt.function(lambda x: x * {}["missing"])
    with pytest.raises(KeyError):
        f(1.0)
    assert sys.getprofile() is None


def test_recording_within_a_recording():
    k = [2.0]
    inner = bt.function(lambda x: x * k[0])
    f = bt.function(lambda x: x * inner(1.0) + inner(x))
    assert f(1.0) == 4.0
    k[0] = 3.0
    assert f(1.0) == 6.0


def test_no_python_code_runs_in_a_look():
    class Loud:
        k = 2.0

        def __getattr__(self, name):
            raise AssertionError(name)

        def __eq__(self, other):
            raise AssertionError

        __hash__ = None

    loud = Loud()
    f = bt.function(lambda x: x * loud.k)
    assert [f(1.0), f(2.0)] == [2.0, 4.0]
    loud.k = 3.0
    assert f(1.0) == 3.0


def test_a_recording_keeps_no_more_alive_than_it_watches():
    import gc
    import weakref

    class Model:
        def __init__(self):
            self.rate = 2.0
            self.f = bt.function(self.loss)

        def loss(self, x):
            return self.rate * x

    model = Model()
    assert model.f(1.0) == 2.0
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None
