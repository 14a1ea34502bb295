"""Softmax, log-sum-exp, norms and similar ops: correct at the edges, one call each, without the lock if long;
methods and operators common to Vectors and Tensors."""

from __future__ import annotations

import math
import operator
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

import burtorch as bt
from burtorch import Value

INF, NAN = math.inf, math.nan
NUMBERS = st.lists(st.integers(-40_000, 40_000).map(lambda k: k / 1000), min_size=1, max_size=12)


def expanded(name, values):
    """The op by definition, with scalar nodes."""
    top = max(v.data for v in values)
    powers = [(v - top).exp() for v in values]
    total = sum(powers[1:], powers[0])
    log = total.log() + top
    return {
        "softmax": lambda: [p / total for p in powers],
        "log_softmax": lambda: [v - log for v in values],
        "logsumexp": lambda: [log],
        "norm2": lambda: [bt.reduce_sum_of_squares(values).sqrt()],
        "sum": lambda: [sum(values[1:], values[0])],
        "mean": lambda: [sum(values[1:], values[0]) / len(values)],
        "prod": lambda: [math.prod(values[1:], start=values[0])],
    }[name]()


OPS = ["softmax", "log_softmax", "logsumexp", "norm2", "sum", "mean", "prod"]


@pytest.mark.parametrize("name", OPS)
@given(numbers=NUMBERS)
def test_values_and_gradients_are_those_of_the_expansion(name, numbers):
    graph = bt.Graph()
    if name == "norm2" and not any(numbers):
        numbers = [1.0, *numbers]  # at the origin the expansion divides 0 by 0
    x = graph.vector(numbers)

    def gradient(outputs):
        graph.zero_grad()
        bt.reduce_sum([y * math.cos(k) for k, y in enumerate(outputs)]).backward()
        return [y.data for y in outputs], list(x.grad)

    made = getattr(x, name)()
    found = gradient(list(made) if isinstance(made, bt.Vector) else [made])
    wanted = gradient(expanded(name, list(x)))
    for f, w in zip(found, wanted):
        assert f == pytest.approx(w, rel=1e-11, abs=1e-11)


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp", "norm2"])
def test_all_forms_of_operands_agree(name):
    params = bt.Parameters(dtype="float64")
    w = params.tensor(2, init=0.5)
    graph = bt.Graph()
    x, v = graph.vector([1.0, -2.0]), Value(3.0, graph=graph)
    op = getattr(bt, name)
    graph_of = {"list": [*x, v, 0.5, 0.5], "mixed": [x, [v, 0.5], 0.5], "tensor": [x, v, w]}
    results = {}
    for form, operands in graph_of.items():
        graph.zero_grad()
        params.zero_grad()
        y = op(operands)
        y = y if isinstance(y, Value) else y[0]
        y.backward()
        results[form] = (y.data, *x.grad, v.grad)
    assert results["list"] == results["mixed"] == results["tensor"]
    assert all(g != 0 for g in params.grads)
    joined = bt.concat(x, v, 0.5, 0.5)
    again = getattr(joined, name)()
    assert (again if isinstance(again, Value) else again[0]).data == results["list"][0]


N_ARY = [op["name"] for op in bt.system.ops() if op["arity"] == "reduction"]
N_ARY += [
    "inner_product",
    "inner_product_with_bias",
    "reduce_mean_and_mean_squares",
    "mean",
    "negative_mean",
    "max",
    "min",
]


@pytest.mark.parametrize("dtype", ["float64", "float32x8", "float128"])
@pytest.mark.parametrize("name", N_ARY)
def test_every_op_of_many_operands_takes_a_vector_views_or_any_sequence(name, dtype):
    graph = bt.Graph(dtype=dtype)
    numbers = [1.0, -2.0, 3.5, 0.5, 2.0, -1.25]
    whole = graph.vector(numbers)
    other = graph.vector([3.0, 1.0, 0.5, -1.0, 2.0, 4.0])
    bias = graph.value(0.75)

    def call(x):
        arguments = {"inner_product": (x, other), "inner_product_with_bias": (x, other, bias)}.get(name, (x,))
        y = getattr(bt, name)(*arguments)
        return y if isinstance(y, tuple) else (y,)

    def results(x):
        graph.zero_grad()
        n_nodes = len(graph)
        made = call(x)
        n_made = len(graph) - n_nodes
        for weight, y in enumerate(made, 1):
            y.backward(weight)
        return [y.data for y in made], list(whole.grad), list(other.grad), n_made

    wanted = results(whole)
    forms = {
        "slice": whole[:],
        "view list": [whole[:2], whole[2:5], whole[5:]],
        "concat": bt.concat(whole[:2], whole[2:]),
        "nested": (whole[0], [whole[1], whole[2:4]], whole[4:]),
        "list": list(whole),
        "tuple": tuple(whole),
        "generator": (x for x in whole),
    }
    for form, x in forms.items():
        assert results(x)[:3] == wanted[:3], form
    assert wanted[3] == len(call(whole)), "nothing is copied: one node per result"
    assert results([whole[:2], whole[2:]])[3] == wanted[3], "views are joined without copying"
    with pytest.raises(ValueError):
        call([])
    with pytest.raises(TypeError):
        call("text")


def test_edges():
    graph = bt.Graph()

    def check(name, numbers, value, grads):
        x = graph.vector(numbers)
        y = getattr(x, name)()
        first = y if isinstance(y, Value) else y[0]
        first.backward()
        found = [y.data] if isinstance(y, Value) else list(y.data)
        assert found == pytest.approx(value, rel=1e-15, nan_ok=True), name
        assert list(x.grad) == pytest.approx(grads, rel=1e-15, nan_ok=True), name

    check("softmax", [1000.0, 1000.0], [0.5, 0.5], [0.25, -0.25])
    check("softmax", [-1000.0, 0.0], [0.0, 1.0], [0.0, 0.0])
    check("softmax", [INF, 0.0], [1.0, 0.0], [0.0, 0.0])
    check("softmax", [-INF, -INF], [0.5, 0.5], [0.25, -0.25])
    check("softmax", [NAN, 1.0], [NAN, NAN], [NAN, NAN])
    check("log_softmax", [0.0, -1000.0], [0.0, -1000.0], [0.0, 0.0])
    check("log_softmax", [0.0, -40.0], [-4.248354255291589e-18, -40.0], [4.248354255291589e-18, -4.248354255291589e-18])
    check("logsumexp", [1000.0, 1000.0], [1000.0 + math.log(2)], [0.5, 0.5])
    check("logsumexp", [-INF, 3.0], [3.0], [0.0, 1.0])
    check("logsumexp", [-INF], [-INF], [1.0])
    check("norm2", [0.0, 0.0], [0.0], [0.0, 0.0])
    check("norm2", [3e200, 4e200], [5e200], [0.6, 0.8])
    check("norm2", [3e-200, -4e-200], [5e-200], [0.6, -0.8])
    check("norm2", [INF, 1.0], [INF], [1.0, 0.0])
    check("max", [2.0, 2.0, 1.0], [2.0], [0.5, 0.5, 0.0])
    check("min", [2.0, 2.0, 1.0], [1.0], [0.0, 0.0, 1.0])
    check("prod", [0.0, 2.0, 3.0], [0.0], [6.0, 0.0, 0.0])
    check("sum", [-0.0], [-0.0], [1.0])


def test_three_way_ties_share_equally():
    values = [Value(2.0), Value(2.0), Value(2.0), Value(1.0)]
    bt.max(values).backward()
    assert [v.grad for v in values] == [1 / 3, 1 / 3, 1 / 3, 0.0]


def test_methods_are_those_of_the_op_table(root):
    x = bt.Graph().vector([0.25, 0.5, 2.0])
    unary = [name for name in dir(Value) if not name.startswith("_") and hasattr(bt.Vector, name)]
    assert {"tanh", "exp", "sqr", "gelu", "neg", "inv_sqrt"} <= set(unary)
    for name in unary:
        if name in {"max", "min", "mean", "data", "grad", "graph"}:
            continue
        wanted = pytest.approx([getattr(v, name)().data for v in x], rel=0, abs=0, nan_ok=True)
        assert list(getattr(x, name)().data) == wanted
        assert list(getattr(bt, name)(x).data) == wanted
        assert "element by element" in getattr(bt.Vector, name).__doc__
    with pytest.raises(TypeError):
        bt.Vector.tanh(3.0)
    with pytest.raises(TypeError):
        x.tanh(1)


def test_empty_and_wrong_operands():
    graph = bt.Graph()
    x = graph.vector([1.0, 2.0])
    for name in ("softmax", "log_softmax", "logsumexp", "norm2", "max", "min"):
        op = getattr(bt, name)
        with pytest.raises(ValueError, match="at least one"):
            getattr(x[:0], name)()
        with pytest.raises(ValueError, match="at least one"):
            op([])
        for wrong in (1.0, "abc", None, [None], Value(1.0)):
            with pytest.raises(TypeError):
                op(wrong)
        with pytest.raises(bt.GraphMismatchError):
            op([x, Value(1.0)])
    n = len(graph)
    full = bt.Graph(capacity=3, fixed=True)
    y = full.vector([1.0, 2.0])
    with pytest.raises(bt.GraphFullError):
        y.softmax()
    assert (len(full), len(graph)) == (2, n)


def test_stack_joins_values_as_views():
    graph = bt.Graph()
    a, b = Value(3.0, graph=graph), Value(4.0, graph=graph)
    n = len(graph)
    x = bt.stack(a, b)
    assert len(graph) == n
    assert list(x.data) == list(bt.stack([a, b]).data) == list(bt.stack(v for v in (a, b)).data) == [3.0, 4.0]
    assert x[1].same_node(b)
    a.data = 6.0
    assert list(bt.stack(a, 2.5, b).data) == [6.0, 2.5, 4.0]
    (x * x).sum().backward()
    assert (a.grad, b.grad) == (12.0, 8.0)
    for wrong in (lambda: bt.stack(), lambda: bt.stack("a", a), lambda: bt.stack([])):
        with pytest.raises(TypeError):
            wrong()
    rows = bt.stack(x, x)
    assert rows.data.tolist() == [[6.0, 4.0], [6.0, 4.0]]
    (rows[1] ** 2).sum().backward()
    assert (a.grad, b.grad) == (24.0, 16.0)
    with pytest.raises(bt.GraphMismatchError):
        bt.stack(a, Value(1.0))


@pytest.mark.parametrize(
    "op", [operator.add, operator.sub, operator.mul, operator.truediv, operator.pow], ids=lambda op: op.__name__
)
def test_tensors_have_the_operators_of_vectors(op):
    params = bt.Parameters(dtype="float64")
    w = params.tensor(3, init=1.5)
    graph = bt.Graph()
    x = graph.vector([1.0, 2.0, 0.5])
    with graph:
        for left, right in [(w, x), (x, w), (w, 2.0), (0.5, w), (w, [1.0, 2.0, 3.0]), (w, w)]:
            plain = [list(side.values) if side is w else side for side in (left, right)]
            plain = [side.data if side is x else side for side in plain]
            plain = [side if hasattr(side, "__len__") else [side] * 3 for side in plain]
            assert list(op(left, right).data) == [op(a, b) for a, b in zip(*plain)]
        assert list((-w).data) == [-1.5] * 3
        assert list(abs(-w).data) == list(bt.abs(w).data) == [1.5] * 3
        (w**2).sum().backward()
    assert list(params.grads) == [3.0] * 3


def test_a_matrix_times_a_vector_is_one_output_per_row():
    params = bt.Parameters(dtype="float64")
    w = params.tensor((2, 3))
    w.values[:] = range(6)
    graph = bt.Graph()
    x = graph.vector([1.0, 2.0, 3.0])
    y = w @ x
    assert list(y.data) == [8.0, 26.0]
    assert list((w @ [x[0], 2.0, x[2]]).data) == [8.0, 26.0]
    y[1].backward()
    assert list(x.grad) == [3.0, 4.0, 5.0]
    assert list(params.grads) == [0.0, 0.0, 0.0, 1.0, 2.0, 3.0]
    assert (w[0] @ x).data == 8.0
    for wrong in (lambda: w @ x[:2], lambda: x @ w, lambda: w @ w):
        with pytest.raises(ValueError):
            wrong()
    with pytest.raises(TypeError, match="dtype"):
        bt.Parameters().tensor((2, 3)) @ x


def test_long_work_lets_other_threads_run_and_refuses_them_the_graph():
    graph = bt.Graph()
    n = 300_000
    x = graph.vector([0.5])
    big = graph.vector(memoryview(bytes(8 * n)).cast("d"))
    seen, stop = {"ran": 0, "busy": 0}, threading.Event()

    def other():
        own = bt.Graph()
        while not stop.is_set():
            Value(1.0, graph=own)
            seen["ran"] += 1
            try:
                len(graph)
            except bt.BusyError:
                seen["busy"] += 1
            time.sleep(0)

    thread = threading.Thread(target=other)
    thread.start()
    try:
        for _ in range(50):
            handle = big[5]
            y = (big + 1.0).tanh().softmax().sum()
            y.backward()
            del handle
            assert y.data == pytest.approx(1.0)
            graph.collect()
            if seen["busy"] > 3:
                break
    finally:
        stop.set()
        thread.join()
    assert seen["busy"] > 3
    assert x.data[0] == 0.5
    del y
    graph.collect()
    assert len(graph) <= n + 3
