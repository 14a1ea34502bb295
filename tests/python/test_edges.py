"""The table of edge cases, one test per row and dtype, and mistakes of earlier scalar engines, by name."""

from __future__ import annotations

import math

import pytest

import burtorch as bt
from burtorch._edges import EDGES

DTYPES = ["float64", "float32", "float128", "float16", "bfloat16", "float32x16", "float64x8"]
TOLERANCE = {"float64": 1e-15, "float32": 5e-7, "float128": 1e-15, "float16": 1e-3, "bfloat16": 8e-3}


def in_dtype(x, graph):
    """A number in the graph's precision, in its first lane, as a float."""
    data = graph.value(x).data
    return float(data[0] if isinstance(data, tuple) else data)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("row", EDGES, ids=lambda row: f"{row[0]}{row[1]}")
def test_edge(row, dtype):
    name, at, value, grads = row
    graph = bt.Graph(dtype=dtype)
    leaves = [graph.value(x) for x in at]
    plain = [in_dtype(x, graph) for x in at]
    if dtype == "float128" and 1000.0 in map(abs, at):
        pytest.skip("e^1000 is a float128")
    if dtype in ("float16", "bfloat16") and any(x not in plain for x in at if x == x):
        pytest.skip("the row needs more digits or range")
    function = getattr(bt, name)
    y = function(leaves) if name.startswith(("reduce_", "variance")) else function(*leaves)
    y.backward()
    results = [y.data, *(leaf.grad for leaf in leaves)]
    for k, (found, expected) in enumerate(zip(results, (value, *grads))):
        found = float(found[0] if isinstance(found, tuple) else found)
        expected = expected if dtype == "float128" and name != "reduce_mul" else in_dtype(expected, graph)
        if dtype == "float128" and name in ("tanh", "sigmoid", "reduce_mul"):
            assert found == pytest.approx(expected, rel=1e-15, abs=1e-50)
        elif math.isnan(expected):
            assert math.isnan(found), (k, found)
        else:
            tolerance = TOLERANCE[dtype.split("x")[0]]
            assert found == pytest.approx(expected, rel=tolerance, abs=0.0), (k, found)
            if k == 0 and expected == 0:
                assert math.copysign(1.0, found) == math.copysign(1.0, expected)


def test_mistake_an_unused_branch_poisons_a_gradient_with_nan():
    x = bt.Value(0.0)
    unused = bt.log(x)
    y = 2 * x
    y.backward()
    assert (x.grad, unused.grad) == (2.0, 0.0)


def test_mistake_a_relu_derivative_that_multiplies_by_the_output():
    x = bt.Value(3.0)
    bt.relu(x).backward()
    assert x.grad == 1.0


def test_mistake_a_marker_that_overflows_on_the_eighth_backward():
    x = bt.Value(2.0)
    y = x * x
    for n in range(1, 600):
        y.backward()
        assert x.grad == 4.0 * n


def test_mistake_a_second_root_that_skips_shared_nodes():
    x = bt.Value(3.0)
    shared = x * x
    first, second = shared + 1.0, shared * 2.0
    first.backward()
    second.backward()
    assert x.grad == 6.0 + 12.0


def test_mistake_negative_mean_and_mean_with_mean_squares_gradients():
    xs = [bt.Value(x) for x in (1.0, 2.0, 6.0)]
    bt.reduce_negative_mean(xs).backward()
    assert [x.grad for x in xs] == [-1 / 3] * 3
    v = bt.current_graph().vector([1.0, 2.0, 6.0])
    mean, squares = bt.reduce_mean_and_mean_squares(v)
    (mean + squares).backward()
    assert list(v.grad) == pytest.approx([1 / 3 + 2 * x / 3 for x in (1.0, 2.0, 6.0)], rel=1e-15)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 65])
def test_mistake_sums_of_odd_length(n):
    v = bt.current_graph().vector([float(k) for k in range(1, n + 1)])
    y = bt.reduce_sum(v) + bt.inner_product(v, v)
    y.backward()
    assert y.data == n * (n + 1) / 2 + n * (n + 1) * (2 * n + 1) / 6
    assert list(v.grad) == [1.0 + 2.0 * k for k in range(1, n + 1)]


def test_mistake_a_counter_that_overflows_at_256_handles_to_one_node():
    x = bt.Value(1.0)
    handles = [x.graph.vector([0.0])[0] + x for _ in range(10)] + [+x for _ in range(1000)]
    total = bt.reduce_sum([x] * 300)
    del handles
    total.backward()
    assert (total.data, x.grad, x.data) == (300.0, 300.0, 1.0)


def test_mistake_a_handle_read_across_growth():
    graph = bt.Graph()
    x = graph.value(1.5)
    kept = [graph.value(float(k)) for k in range(100_000)]
    assert (x.data, kept[0].data, kept[-1].data) == (1.5, 0.0, 99_999.0)


def test_mistake_a_handle_that_aliases_a_new_node_after_rewind():
    graph = bt.Graph()
    mark = graph.mark()
    old = graph.value(1.0)
    graph.rewind(mark)
    new = graph.value(2.0)
    assert new.data == 2.0
    with pytest.raises(bt.StaleValueError):
        old.data  # noqa: B018
    with pytest.raises(bt.StaleValueError):
        old + new


def test_mistake_loading_a_missing_or_short_file_successfully(tmp_path):
    graph = bt.Graph()
    x = graph.value(3.0)
    y = x * x
    graph.save(tmp_path / "whole")
    content = (tmp_path / "whole").read_bytes()
    with pytest.raises(FileNotFoundError):
        graph.load(tmp_path / "missing")
    for n in range(len(content)):
        (tmp_path / "short").write_bytes(content[:n])
        with pytest.raises(bt.FormatError):
            graph.load(tmp_path / "short")
        with pytest.raises(bt.FormatError):
            bt.load_graph(tmp_path / "short")
    assert (x.data, y.data) == (3.0, 9.0)


def test_mistake_backward_that_is_quadratic_or_recursive_in_the_length_of_a_chain():
    x = bt.Value(1.0)
    y = x
    for _ in range(300_000):
        y = y + 1.0
    y.backward()
    assert (y.data, x.grad) == (300_001.0, 1.0)


@pytest.mark.parametrize("operator", ["+=", "-=", "*=", "/="])
def test_in_place_operators_bind_the_name_to_a_new_node(operator):
    a, b = bt.Value(3.0), bt.Value(4.0)
    names = {"a": a, "b": b}
    exec(f"a {operator} b; a {operator} 2.0", names)
    assert names["a"] is not a
    assert (a.data, b.data, a.op, b.op) == (3.0, 4.0, "leaf", "leaf")
    names["a"].backward()
    expected = {"+=": (1.0, 1.0), "-=": (1.0, -1.0), "*=": (8.0, 6.0), "/=": (0.125, -3 / 32)}[operator]
    assert (a.grad, b.grad) == expected
    total = bt.Value(0.0)
    kept = total
    for x in (a, b, 1.0):
        total += x
    assert (total.data, kept.data) == (8.0, 0.0)


def test_clamp():
    x = bt.current_graph().vector([-2.0, -1.0, 0.5, 1.0, 3.0, math.nan])
    y = bt.clamp(x, -1.0, 1.0)
    y.sum().backward()
    assert list(y.data)[:5] == [-1.0, -1.0, 0.5, 1.0, 1.0]
    assert math.isnan(y.data[5])
    assert list(x.grad)[:5] == [0.0, 0.5, 1.0, 0.5, 0.0]
    low = bt.Value(2.0)
    v = bt.Value(1.0)
    bt.clamp(v, low=low).backward()
    assert (v.grad, low.grad) == (0.0, 1.0)
    assert bt.clamp(v, high=0.5).data == 0.5
    for call, error in (
        (lambda: bt.clamp(v), TypeError),
        (lambda: bt.clamp("1.0", 0.0, 2.0), TypeError),
        (lambda: bt.clamp(v, 2.0, 1.0), ValueError),
        (lambda: bt.clamp(v, math.nan), ValueError),
    ):
        with pytest.raises(error):
            call()


def test_check_grads():
    bt.check_grads(lambda x: bt.exp(x) * bt.sin(x), 0.7)
    bt.check_grads(lambda x, w: (x * w).tanh().sum() + x[0], ([0.1, 0.2], (0.3, 0.4)))
    bt.check_grads(lambda x: bt.Value(2.0) * 3.0, 1.0)
    with pytest.raises(AssertionError, match=r"argument 0, number 1: the gradient is 0\.0"):
        bt.check_grads(lambda x: (x[0] * bt.Value(x[1].data)).exp(), [0.5, 2.0])
    with pytest.raises(AssertionError, match=r"argument 0: the gradient is 1\.0"):
        bt.check_grads(lambda x: x * x.detach(), 1.0)
    with pytest.raises(TypeError, match="returns a Value"):
        bt.check_grads(lambda x: 1.0, 1.0)
