"""The edge table of the semantics, from Python: values and gradients at kinks, poles, overflows and NaN."""

from __future__ import annotations

import math

import pytest

import burtorch as bt
from burtorch import Value

INF, NAN = math.inf, math.nan


def same(x, y):
    """Equality of IEEE numbers by representation: NaN equals NaN, and 0.0 differs from -0.0."""
    return (math.isnan(x) and math.isnan(y)) or (x == y and math.copysign(1, x) == math.copysign(1, y))


UNARY = [
    ("relu", 0.0, 0.0, 0.0),
    ("relu", -0.0, 0.0, 0.0),
    ("relu", 3.0, 3.0, 1.0),
    ("relu", -3.0, 0.0, 0.0),
    ("relu", NAN, NAN, NAN),
    ("abs", 0.0, 0.0, 0.0),
    ("abs", -2.0, 2.0, -1.0),
    ("abs", NAN, NAN, NAN),
    ("sqrt", 0.0, 0.0, INF),
    ("sqrt", -0.0, -0.0, -INF),
    ("sqrt", -1.0, NAN, NAN),
    ("inv_sqrt", 0.0, INF, -INF),
    ("inv_sqrt", -0.0, -INF, -INF),
    ("inv", 0.0, INF, -INF),
    ("log", 0.0, -INF, INF),
    ("log", -1.0, NAN, NAN),
    ("neg_log", 0.0, INF, -INF),
    ("log1p", -1.0, -INF, INF),
    ("exp", 1000.0, INF, INF),
    ("exp", -1000.0, 0.0, 0.0),
    ("sigmoid", -1000.0, 0.0, 0.0),
    ("sigmoid", 1000.0, 1.0, 0.0),
    ("softplus", 1000.0, 1000.0, 1.0),
    ("exp", 5e-324, 1.0, 1.0),
    ("neg", 0.0, -0.0, -1.0),
]


@pytest.mark.parametrize(("name", "x", "value", "gradient"), UNARY)
def test_unary_edges(name, x, value, gradient):
    v = Value(x)
    y = getattr(v, name)()
    y.backward()
    assert same(y.data, value), y.data
    assert same(v.grad, gradient) or (gradient == v.grad == 0.0), v.grad


BINARY = [
    ("max", 1.0, 1.0, 1.0, 0.5, 0.5),
    ("min", 1.0, 1.0, 1.0, 0.5, 0.5),
    ("max", 1.0, 2.0, 2.0, 0.0, 1.0),
    ("max", NAN, 2.0, NAN, NAN, NAN),
    ("div", 0.0, 0.0, NAN, INF, NAN),
    ("div", 1.0, 0.0, INF, INF, -INF),
    ("div", 1e-200, 1e-200, 1.0, 1e200, -1e200),
    ("mul", 0.0, INF, NAN, INF, 0.0),
    ("pow", 0.0, 0.0, 1.0, 0.0, 0.0),
    ("pow", 0.0, 1.0, 0.0, 1.0, 0.0),
    ("pow", 0.0, 2.0, 0.0, 0.0, 0.0),
    ("pow", 0.0, -1.0, INF, -INF, -INF),
    ("pow", -2.0, 2.0, 4.0, -4.0, NAN),
]


@pytest.mark.parametrize(("name", "x", "y", "value", "dx", "dy"), BINARY)
def test_binary_edges(name, x, y, value, dx, dy):
    a, b = Value(x), Value(y)
    z = getattr(bt, name)(a, b)
    z.backward()
    for found, expected in ((z.data, value), (a.grad, dx), (b.grad, dy)):
        assert same(found, expected) or found == expected == 0.0, (z.data, a.grad, b.grad)


def test_tanh_keeps_its_small_gradients():
    x = Value(20.0)
    x.tanh().backward()
    assert x.grad == pytest.approx(1.6993417021166355e-17, rel=1e-14)


def test_a_constant_power_of_zero():
    x = Value(0.0)
    (x**0).backward()
    assert x.grad == 0.0
    assert (x**0).data == 1.0
    assert (x**2).data == 0.0


def test_products_with_zeros_and_underflow():
    for factors, expected in [((0.0, 2.0, 3.0), (6.0, 0.0, 0.0)), ((1e-200, 1e-200, 3.0), (3e-200, 3e-200, 0.0))]:
        values = [Value(x) for x in factors]
        bt.reduce_mul(values).backward()
        assert tuple(v.grad for v in values) == pytest.approx(expected, rel=1e-14, abs=0)


def test_variances():
    one = Value(5.0)
    assert math.isnan(bt.variance([one]).data)
    equal = [Value(0.1) for _ in range(7)]
    y = bt.variance_biased(equal)
    y.backward()
    assert (y.data, [v.grad for v in equal]) == (0.0, [0.0] * 7)
    assert bt.variance_biased([Value(1e8), Value(1e8 + 1), Value(1e8 + 2)]).data == pytest.approx(2 / 3, rel=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 15, 16, 17, 31, 33])
def test_sums_of_any_length(n):
    values = [Value(float(k)) for k in range(n)]
    y = bt.reduce_sum(values)
    y.backward()
    assert (y.data, {v.grad for v in values}) == (n * (n - 1) / 2, {1.0})
    z = bt.reduce_negative_mean(values)
    z.backward(float(n))
    assert z.data == -(n - 1) / 2
    assert {v.grad for v in values} == {0.0}


def test_means_of_squares():
    values = [Value(1.0), Value(2.0), Value(4.0)]
    mean, squares = bt.reduce_mean_and_mean_squares(values)
    (mean + squares).backward()
    assert (mean.data, squares.data) == (pytest.approx(7 / 3), 7.0)
    assert [v.grad for v in values] == pytest.approx([1 / 3 + 2 * x / 3 for x in (1, 2, 4)])


def test_an_unused_branch_poisons_no_gradient():
    x = Value(0.0)
    _unused = x.log()
    z = 2 * x
    z.backward()
    assert x.grad == 2.0


def test_on_a_path_adjoints_are_plain_ieee_unless_zeros_are_skipped():
    graph = bt.Graph()
    x = Value(0.0, graph=graph)
    y = x.log() * 0.0
    y.backward()
    assert math.isnan(x.grad)
    graph.zero_grad()
    graph.backward(y, skip_zero_adjoints=True)
    assert x.grad == 0.0


def test_the_eighth_backward_is_as_right_as_the_first():
    x = Value(3.0)
    y = x * x + x
    for n in range(1, 301):
        y.backward()
        assert x.grad == 7.0 * n
        assert y.grad == 1.0


def test_two_roots_share_a_subgraph():
    x = Value(2.0)
    shared = x * x
    first, second = shared + 1, shared * 3
    first.backward()
    assert x.grad == 4.0
    second.backward()
    assert (x.grad, shared.grad, first.grad) == (16.0, 3.0, 0.0)


def test_writing_data_changes_one_node_and_recompute_the_rest():
    graph = bt.Graph()
    x = Value(2.0, graph=graph)
    y = x * x
    z = y + 1
    x.data = 5.0
    assert (y.data, z.data) == (4.0, 5.0)
    z.backward()
    assert x.grad == 10.0
    assert graph.recompute(z) == 26.0
    assert (y.data, z.data) == (25.0, 26.0)


def test_three_hundred_handles_of_one_node():
    x = Value(1.5)
    handles = [(x + 0.0).operands[0] for _ in range(300)]
    bt.reduce_sum(handles).backward()
    assert {h.grad for h in handles} == {300.0}


def test_subnormals_and_signed_zeros_are_kept():
    x = Value(5e-324)
    assert (x * 1.0).data == 5e-324
    assert same((Value(-0.0) + Value(-0.0)).data, -0.0)
    assert same((Value(0.0) * -1).data, -0.0)
    assert same((-Value(0.0)).data, -0.0)
