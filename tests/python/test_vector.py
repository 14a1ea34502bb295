"""Vectors: building, indexing, views, elementwise ops with broadcasting, reductions, concatenation."""

from __future__ import annotations

import array
import math
import operator

import pytest

import burtorch as bt
from burtorch import Value


@pytest.fixture
def graph():
    return bt.Graph()


def test_building(graph):
    for data in ([1, 2.5, True], (1.0, 2.5, 1.0), array.array("d", [1, 2.5, 1]), array.array("f", [1, 2.5, 1])):
        assert list(graph.vector(data).data) == [1.0, 2.5, 1.0]
    assert list(graph.vector(float(k) for k in range(3)).data) == [0.0, 1.0, 2.0]
    assert list(graph.vector([[1, 2], [3, [4]]]).data) == [1.0, 2.0, 3.0, 4.0]
    assert list(graph.vector(range(3)).data) == [0.0, 1.0, 2.0]
    n = len(graph)
    for wrong in ("abc", None, [None], ["1"], [1j], [[1.0], "x"], b"ab", object(), [Value(1.0, graph=graph)]):
        with pytest.raises(TypeError):
            graph.vector(wrong)
    with pytest.raises(ValueError, match="at least one"):
        graph.vector([])
    endless = []
    endless.append(endless)
    with pytest.raises(TypeError):
        graph.vector(endless)
    with pytest.raises(OverflowError):
        graph.vector([10**400])
    with pytest.raises(TypeError):
        bt.Vector()
    graph.collect()
    assert len(graph) <= n


def test_indexing_and_slicing(graph):
    x = graph.vector([0.0, 1.0, 2.0, 3.0, 4.0])
    assert len(x) == 5
    assert [v.data for v in x] == [x[k].data for k in range(5)] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert (x[-1].data, x[True].data) == (4.0, 1.0)
    assert x[2].same_node(x[1:][1])
    for part in (
        slice(1, 3),
        slice(None, None, -1),
        slice(None, None, 2),
        slice(4, 0, -3),
        slice(9, 2),
        slice(-2, None),
    ):
        assert list(x[part].data) == list(range(5))[part]
    for k in (5, -6, 10**30, -(10**30)):
        with pytest.raises(IndexError):
            x[k]
    for wrong in ("a", 1.0, None, (1, 2)):
        with pytest.raises(TypeError):
            x[wrong]
    with pytest.raises(TypeError):
        x[0] = 1.0
    assert Value(2.0, graph=graph) in x
    y = x[::-2]
    y[0].backward()
    assert list(x.grad) == [0.0, 0.0, 0.0, 0.0, 1.0]


def test_data_and_grad(graph):
    x = graph.vector([1.0, 2.0, 3.0])
    (x * x).sum().backward()
    assert list(x.grad) == [2.0, 4.0, 6.0]
    x.grad = 0
    x.data = [4, 5, 6]
    assert (list(x.grad), list(x.data)) == ([0.0] * 3, [4.0, 5.0, 6.0])
    x[1:].data = 9.0
    assert list(x.data) == [4.0, 9.0, 9.0]
    copy = x.data
    copy[0] = 100.0
    assert x.data[0] == 4.0
    for wrong in ([1.0], [1.0] * 4, []):
        with pytest.raises(ValueError, match="expected 3 numbers"):
            x.data = wrong
    for wrong in ("abc", None, [None] * 3):
        with pytest.raises(TypeError):
            x.data = wrong
    assert list(x.data) == [4.0, 9.0, 9.0]


OPERATORS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.pow]


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.__name__)
def test_elementwise_operators_equal_those_of_values(op, graph):
    xs, ys = [1.5, 2.0, 3.25], [0.5, 3.0, 2.0]
    x, y, c = graph.vector(xs), graph.vector(ys), Value(1.25, graph=graph)
    for left, right in [(x, y), (x, ys), (xs, y), (x, c), (c, x), (x, 3), (2.5, x), (x, 2.0), (x, [c, 2.0, c])]:
        graph.zero_grad()
        z = op(left, right)
        z.sum().backward()
        grads = [*x.grad, *y.grad, c.grad]
        graph.zero_grad()
        pairs = [[p] * 3 if isinstance(p, (Value, float, int)) else list(p) for p in (left, right)]
        values = [op(a, b) for a, b in zip(*pairs)]
        assert list(z.data) == [v.data for v in values]
        sum(values).backward()
        assert grads == [*x.grad, *y.grad, c.grad]


def test_lengths_must_agree(graph):
    x = graph.vector([1.0, 2.0, 3.0])
    n = len(graph)
    for wrong in (x[:2], [1.0, 2.0], x[:0], []):
        with pytest.raises(ValueError, match="equal length"):
            x + wrong
        with pytest.raises(ValueError, match="equal length"):
            bt.max(x, wrong)
    for wrong in ("abc", None, object(), 1j):
        with pytest.raises(TypeError):
            x + wrong
        with pytest.raises(TypeError):
            wrong * x
    with pytest.raises(OverflowError):
        x + 10**400
    graph.collect()
    assert len(graph) == n


def test_unary_ops_and_functions(graph):
    xs = [0.25, 0.5, 2.0]
    x = graph.vector(xs)
    for name in ("exp", "tanh", "relu", "log", "sigmoid", "sqr", "inv", "neg", "softplus", "sin"):
        graph.zero_grad()
        y = getattr(bt, name)(x)
        y.sum().backward()
        grads = list(x.grad)
        graph.zero_grad()
        values = [getattr(v, name)() for v in x]
        for v in values:
            v.backward()
        assert (list(y.data), grads) == ([v.data for v in values], list(x.grad)), name
    assert (list((-x).data), list(abs(-x).data), (+x) is x) == ([-0.25, -0.5, -2.0], xs, True)
    assert (x**2)[0].operands[0].same_node(x[0]) or (x**2)[0].data == 0.0625
    assert list(bt.mul_by_constant(x, 2).data) == [0.5, 1.0, 4.0]
    assert list(bt.pow_constant(x, 3).data) == [v**3 for v in xs]
    assert list(bt.add_constant(x, 1).data) == [1.25, 1.5, 3.0]
    assert list(bt.div_by_constant(x, 3).data) == [v / 3 for v in xs]
    for wrong in ("2", None, x, Value(1.0, graph=graph)):
        with pytest.raises(TypeError):
            bt.mul_by_constant(x, wrong)
    assert list(bt.add(Value(1.0, graph=graph), x).data) == [1.25, 1.5, 3.0]
    assert list(Value(1.0, graph=graph).add(x).data) == [1.25, 1.5, 3.0]
    for wrong in ("x", None, ["x"]):
        with pytest.raises(TypeError, match="expects a Value, a Vector or real numbers"):
            bt.exp(wrong)


def test_reductions(graph):
    x = graph.vector([1.0, 2.0, 4.0])
    assert (x.sum().data, x.mean().data, x.prod().data) == (7.0, pytest.approx(7 / 3), 8.0)
    assert x.norm2().data == math.sqrt(21)
    assert (x.dot([1, 2, 3]).data, (x @ x).data, ([1, 2, 3] @ x).data) == (17.0, 21.0, 17.0)
    assert bt.inner_product_with_bias(x, x, 0.5).data == 21.5
    assert bt.reduce_sub(x).data == -5.0
    for name in ("max", "min", "mean", "negative_mean"):
        expected = {"max": 4.0, "min": 1.0, "mean": 7 / 3, "negative_mean": -7 / 3}[name]
        op = getattr(bt, name)
        for many in (x, list(x), iter(x), [x[:1], 2, x[2]], [[x[0], 2.0], (4,)], (v for v in x)):
            assert op(many).data == pytest.approx(expected), (name, many)
        assert op(x, None).data == pytest.approx(expected)
    n = len(graph)
    for op in (bt.max, bt.mean, bt.reduce_sum, bt.variance, bt.reduce_mean_and_mean_squares):
        for wrong in (1.0, Value(1.0), "abc", ["a"], [x, "a"], None, [x, None]):
            with pytest.raises(TypeError):
                op(wrong)
        for empty in ([], x[:0], (), iter(())):
            with pytest.raises(ValueError, match="at least one"):
                op(empty)
    graph.collect()
    assert len(graph) <= n


def test_inner_products_read_iterators_once_and_agree(graph):
    values = [Value(float(k), graph=graph) for k in range(1, 5)]
    x = graph.vector([2.0, 3.0, 5.0, 7.0])
    y = bt.inner_product((v for v in values), x)
    y.backward()
    assert y.data == 2 + 6 + 15 + 28
    assert [v.grad for v in values] == [2.0, 3.0, 5.0, 7.0]
    assert list(x.grad) == [1.0, 2.0, 3.0, 4.0]
    for wrong in (x[:3], [1.0], []):
        with pytest.raises(ValueError, match="equal length"):
            bt.inner_product(values, wrong)
    with pytest.raises(ValueError, match="at least one"):
        bt.inner_product(x[:0], [])
    with pytest.raises(ValueError, match="bias"):
        bt.inner_product_with_bias(x, x, [1.0, 2.0])
    with pytest.raises(bt.GraphMismatchError):
        bt.inner_product(x, [Value(1.0)] * 4)


def test_concat(graph):
    x, v = graph.vector([1.0, 2.0, 3.0]), Value(4.0, graph=graph)
    n = len(graph)
    z = bt.concat(x, v)
    assert len(graph) == n
    assert list(z.data) == list(bt.concat([x, v]).data) == list(bt.concat([x, [v]]).data) == [1.0, 2.0, 3.0, 4.0]
    assert list(bt.concat(x[2:], 7, v, x[:1], [8.0, 9.0]).data) == [3.0, 7.0, 4.0, 1.0, 8.0, 9.0]
    assert list(bt.concat(x, x[:0], []).data) == [1.0, 2.0, 3.0]
    assert len(bt.concat(x[:0])) == 0
    y = bt.concat(x, v, x)
    assert list(y[2:5].data) == [3.0, 4.0, 1.0]
    assert list(y[::-2].data) == list(y.data)[::-2]
    assert [e.data for e in y] == list(y.data)
    (y[2:6] * y[2:6]).sum().backward()
    assert (list(x.grad), v.grad) == ([2.0, 4.0, 6.0], 8.0)
    y.data = range(7)
    assert (list(x.data), v.data) == ([4.0, 5.0, 6.0], 3.0)
    assert list(bt.exp(y * 0).data) == [1.0] * 7
    with pytest.raises(TypeError):
        bt.concat()
    with pytest.raises(bt.GraphMismatchError):
        bt.concat(x, Value(1.0))


def test_empty_vectors(graph):
    x = graph.vector([1.0])[:0]
    for y in (x + 1, x * x, -x, bt.exp(x), 2 / x, x**2, x[::-1], bt.add(x, x)):
        assert (len(y), list(y.data), list(y.grad), list(y)) == (0, [], [], [])
    with pytest.raises(IndexError):
        x[0]
    with pytest.raises(ValueError, match="at least one"):
        x.sum()
    assert repr(x) == "Vector([])"


def test_text(graph):
    assert repr(graph.vector([1, 2.5])) == "Vector([1.0, 2.5])"
    assert repr(graph.vector([math.nan, -math.inf])) == "Vector([nan, -inf])"
    assert repr(graph.vector(range(100))).endswith("7.0, ... 100 in all])")


def test_vectors_follow_reclaim():
    graph = bt.Graph()
    x = graph.vector([1.0, 2.0, 3.0])
    garbage = [Value(0.0, graph=graph) for _ in range(2000)]
    v = Value(9.0, graph=graph)
    y = bt.concat(x[1:], v, bt.tanh(x)[:2])
    part = bt.exp(x)[1:2]
    before = (list(y.data), list(part.data))
    del garbage
    graph.collect()
    assert (list(y.data), list(part.data)) == before
    bt.concat(y, part).sum().backward()
    assert v.grad == 1.0
    assert list(x.grad) == pytest.approx([1 - math.tanh(1) ** 2, 2 - math.tanh(2) ** 2 + math.exp(2), 1.0])


def test_strided_views_are_walked_in_linear_time():
    graph = bt.Graph()
    x = bt.concat([Value(float(k), graph=graph) for k in range(3000)])[::-1]
    assert sum(v.data for v in x) == 3000 * 2999 / 2
