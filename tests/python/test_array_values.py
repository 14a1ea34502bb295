"""Values and Vectors beside Arrays of their graph: numbers, gradients, and what is refused."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import burtorch as bt

X = np.arange(12.0).reshape(4, 3) / 10
OPERATIONS = {
    "add": lambda a, v: a + v,
    "radd": lambda a, v: v + a,
    "sub": lambda a, v: a - v,
    "rsub": lambda a, v: v - a,
    "mul": lambda a, v: a * v,
    "rmul": lambda a, v: v * a,
    "div": lambda a, v: a / v,
    "rdiv": lambda a, v: v / (a + 3),
    "power": lambda a, v: (a + 3) ** v,
    "rpower": lambda a, v: v**a,
    "maximum": lambda a, v: np.maximum(a, v),
    "bt.maximum": lambda a, v: bt.maximum(v, a),
    "np.add": lambda a, v: np.add(v, a),
    "np.hypot": lambda a, v: np.hypot(a, v),
    "where": lambda a, v: bt.where(a > 0.5, a, v),
    "np.where": lambda a, v: np.where(a > 0.5, v, a),
}
VECTORS = {
    "matmul": lambda a, v: a @ v,
    "rmatmul": lambda a, v: v @ a.T,
    "dot": lambda a, v: np.dot(a, v),
    "outer": lambda a, v: np.outer(v, a[0]),
    "concatenate": lambda a, v: np.concatenate([a[0], v]),
    "stack": lambda a, v: bt.stack([a[1], v]),
    "solve": lambda a, v: np.linalg.solve(a[:3] + 2 * np.eye(3), v),
    "einsum": lambda a, v: np.einsum("ij,j->i", a, v),
    "made": lambda a, v: bt.array(v) * a,
}


def of_arrays(operation, numbers):
    """Gradients by a and v of an operation on Arrays alone."""
    a, v = bt.array(X), bt.array(numbers)
    (operation(a, v) ** 2).sum().backward()
    return a.grad, v.grad


@pytest.mark.parametrize("name", OPERATIONS)
def test_values(name):
    operation = OPERATIONS[name]
    with bt.Graph():
        a, v = bt.array(X), bt.Value(0.7)
        found = operation(a, v * 1.0)
        assert isinstance(found, bt.Array)
        (found**2).sum().backward()
        by_a, by_v = of_arrays(operation, 0.7)
        np.testing.assert_array_equal(a.grad, by_a)
        np.testing.assert_allclose(v.grad, by_v, rtol=1e-15)


@pytest.mark.parametrize("name", OPERATIONS | VECTORS)
def test_vectors(name):
    operation = (OPERATIONS | VECTORS)[name]
    with bt.Graph():
        numbers = [0.7, 1.3, 0.2]
        a, v = bt.array(X), bt.Vector(numbers)
        found = operation(a, v * 1.0)
        assert isinstance(found, bt.Array)
        (found**2).sum().backward()
        by_a, by_v = of_arrays(operation, np.array(numbers))
        np.testing.assert_array_equal(a.grad, by_a)
        np.testing.assert_allclose(list(v.grad), by_v, rtol=1e-15)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_parameters_through_both(dtype):
    params = bt.Parameters(dtype=dtype)
    w = params.tensor(3, init=0.5)
    with bt.Graph(dtype=dtype):
        for _ in range(2):
            params.zero_grad()
            loss = ((X @ w - 1.0) ** 2).mean() + 0.1 * (w @ w) + bt.tanh(w) @ bt.array(X[1]) + w[0] * bt.sum(X @ w)
            loss.backward()
            W = np.full(3, 0.5)  # noqa: N806
            expected = 2 * X.T @ (X @ W - 1) / 4 + 0.2 * W + (1 - np.tanh(W) ** 2) * X[1]
            expected += W[0] * X.sum(axis=0) + np.array([np.sum(X @ W), 0, 0])
            np.testing.assert_allclose(params.grads, expected, rtol=1e-5 if dtype == "float32" else 1e-13)


def test_gradients_add_up_over_passes_and_uses():
    with bt.Graph():
        x = bt.Value(3.0)
        y = x * x
        a = bt.array([1.0, 2.0])
        loss = (a * y).sum() * y + y
        loss.backward()
        assert x.grad == 6 * (2 * 3 * 9 + 1)
        loss.backward()
        assert x.grad == 2 * 6 * (2 * 3 * 9 + 1)
        assert a.grad.tolist() == [2 * 81.0, 2 * 81.0]
        assert y.grad == 2 * 3 * 9 + 1


def test_what_is_not_chosen_is_not_reached():
    with bt.Graph():
        x = bt.Vector([0.0, 4.0])
        root = x.sqrt()
        bt.where(bt.array([0.0, 1.0]) > 0, root, 0.0).sum().backward()
        assert list(x.grad) == [0.0, 0.25]
        v = bt.Value(0.0)
        np.where(bt.array([0.0]) > 0, v.sqrt(), bt.array([1.0])).sum().backward()
        assert v.grad == 0.0


def test_the_graph_keeps_its_length_and_nothing_is_leaked():
    with bt.Graph(reclaim=False) as graph:
        x, a = bt.Value(2.0), bt.array(X)
        y = x * x
        n = len(graph)
        for _ in range(3):
            (a * y).sum().backward()
            assert len(graph) == n
    with bt.Graph() as graph:
        for _ in range(5000):
            ((bt.Value(1.0) + 1.0) * bt.array([1.0, 2.0])).sum().backward()
        gc.collect()
        graph.collect()
        assert len(graph) < 100


def test_values_live_as_long_as_the_arrays_that_read_them():
    with bt.Graph() as graph:
        x = bt.Value(2.0)
        product = bt.array([1.0, 2.0]) * bt.exp(x)
        for _ in range(5000):
            bt.Value(1.0)
        graph.collect()
        product.sum().backward()
        np.testing.assert_allclose(x.grad, 3 * np.exp(2.0))


def test_no_gradient_is_recorded_in_no_grad():
    with bt.Graph():
        x = bt.Value(2.0)
        with bt.no_grad():
            y = bt.array([1.0, 2.0]) * x
        y.sum().backward()
        assert x.grad == 0.0
        assert y.data.tolist() == [2.0, 4.0]


def test_removed_values_are_stale_and_nothing_is_added():
    with bt.Graph() as graph:
        a = bt.array([1.0, 2.0])
        mark = graph.mark()
        x = bt.Value(2.0)
        y = a * x
        graph.rewind(mark)
        with pytest.raises(bt.StaleValueError):
            y.sum().backward()
        with pytest.raises(bt.StaleValueError):
            _ = a * x
        assert a.grad.tolist() == [0.0, 0.0]


def test_values_of_another_graph_and_of_a_trace_are_refused():
    other = bt.Graph()
    v = bt.Value(1.0, graph=other)
    with bt.Graph():
        a = bt.array([1.0, 2.0])
        for call in (lambda: a * v, lambda: v * a, lambda: bt.array(v), lambda: np.maximum(a, v)):
            with pytest.raises((TypeError, bt.GraphMismatchError), match=r"Array|graph"):
                call()
    with pytest.raises((bt.TraceError, TypeError), match="Arrays"):
        bt.function(lambda x: (a * x).sum())(1.0)
    wide = bt.Graph(dtype="float128")
    with pytest.raises((TypeError, bt.GraphMismatchError)):
        _ = a * wide.value(1.0)


def test_shapes_must_fit():
    with bt.Graph():
        with pytest.raises(ValueError, match="shape"):
            _ = bt.array(X) * bt.Vector([1.0, 2.0])
        column = bt.array(bt.Vector([1.0, 2.0, 3.0, 4.0]))[:, None]
        assert (bt.array(X) * column).shape == (4, 3)
        assert bt.array(bt.Value(2.0)).shape == ()
