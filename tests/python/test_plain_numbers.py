"""Op functions of plain numbers and arrays return plain numbers and arrays, with the same numbers as Values and
Vectors."""

from __future__ import annotations

import numpy as np
import pytest

import burtorch as bt

OPS = bt.system.ops()
UNARY = [op["name"] for op in OPS if op["arity"] == "unary"]
BINARY = [op["name"] for op in OPS if op["arity"] in ("binary", "withconstant")]
REDUCTIONS = [name for name in bt.__all__ if name.startswith(("reduce_", "variance", "logsumexp", "norm2"))]
POINTS = [0.25, 0.5, 0.75]


def same(x, y):
    return np.array_equal(np.asarray(x), np.asarray(y), equal_nan=True)


def eager(f, *operands, dtype="float64"):
    """The results of Values and Vectors."""
    with bt.Graph(dtype=dtype) as graph:
        made = [graph.value(x) if isinstance(x, float) else graph.vector(np.ravel(x)) for x in operands]
        y = f(*made)
        return tuple(v.data for v in y) if isinstance(y, tuple) else np.array(y.data)


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    f = getattr(bt, name)
    before = len(bt.current_graph())
    assert type(f(0.5)) is float
    for x in (0.5, np.float32(0.5), np.float64(0.5), np.array(0.5)):
        assert same(f(x), eager(f, 0.5))
    assert same(f(1), eager(f, 1.0))
    for x in (POINTS, tuple(POINTS), np.array(POINTS)):
        assert isinstance(f(x), np.ndarray)
        assert same(f(x), eager(f, POINTS))
    matrix = np.array([POINTS, POINTS[::-1]])
    for x in (matrix, matrix.tolist(), np.asfortranarray(matrix), matrix[:, ::-1], matrix.astype(">f8")):
        assert f(x).shape == (2, 3)
        assert same(f(x), eager(f, np.asarray(x, float)).reshape(2, 3))
    single = matrix.astype(np.float32)
    assert f(single).dtype == np.float32
    assert same(f(single), eager(f, single, dtype="float32").reshape(2, 3))
    assert same(f(np.array([1, 2])), eager(f, [1.0, 2.0]))
    assert f(np.empty((0, 2))).shape == (0, 2)
    assert len(bt.current_graph()) == before
    for wrong in ("a", None, 1j, object(), ["a"], np.array(["a"]), np.array([1j]), np.ma.array([1.0], mask=[True])):
        with pytest.raises((TypeError, ValueError)):
            f(wrong)


@pytest.mark.parametrize("name", BINARY)
def test_binary(name):
    f = getattr(bt, name)
    if name.endswith("_constant") or name in ("elu", "leaky_relu"):
        assert type(f(0.5, 2.0)) is float
        assert same(f(0.5, 2.0), eager(lambda x: f(x, 2.0), 0.5))
        assert same(f(POINTS, 2.0), eager(lambda x: f(x, 2.0), POINTS))
        return
    assert type(f(0.5, 0.25)) is float
    assert same(f(0.5, 0.25), eager(f, 0.5, 0.25))
    assert same(f(POINTS, 0.25), eager(f, POINTS, 0.25))
    assert same(f(0.25, np.array(POINTS)), eager(f, 0.25, POINTS))
    assert same(f(POINTS, POINTS[::-1]), eager(f, POINTS, POINTS[::-1]))
    column, row = np.array(POINTS)[:, None], np.array(POINTS)[None, ::-1]
    wide = np.broadcast_arrays(column, row)
    assert f(column, row).shape == (3, 3)
    assert same(f(column, row), eager(f, *wide).reshape(3, 3))
    assert f(np.float32(POINTS), np.float32(POINTS)).dtype == np.float32
    assert f(np.float32(POINTS), np.float64(POINTS)).dtype == np.float64
    with pytest.raises(ValueError):
        f([1.0, 2.0], [1.0, 2.0, 3.0])


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name):
    f = getattr(bt, name)
    for x in (POINTS, np.array(POINTS), np.array([POINTS, POINTS])):
        assert same(f(x), eager(f, x))
    with pytest.raises(ValueError):
        f([])


def test_functions_of_many():
    assert same(bt.softmax([1.0, 2.0]), eager(bt.softmax, [1.0, 2.0]))
    assert bt.softmax(np.ones((2, 3))).shape == (2, 3)
    assert same(bt.log_softmax([1.0, 2.0]), eager(bt.log_softmax, [1.0, 2.0]))
    assert bt.inner_product([1.0, 2.0], [3.0, 4.0]) == 11.0
    assert bt.inner_product_with_bias([1.0, 2.0], [3.0, 4.0], 0.5) == 11.5
    assert same(bt.concat([1.0], [2.0, 3.0]), [1.0, 2.0, 3.0])
    assert same(bt.stack(1.0, 2.0), [1.0, 2.0])
    assert same(bt.stack([1.0, 2.0]), [1.0, 2.0])
    assert bt.max([1.0, 3.0]) == 3.0
    assert bt.mean([1.0, 3.0]) == 2.0


def test_choices():
    assert bt.where(True, 1.0, 2.0) == 1.0
    assert same(bt.where([True, False], [1.0, 2.0], 0.0), [1.0, 0.0])
    assert bt.where(np.eye(2) > 0, np.ones((2, 2)), 0.0).tolist() == np.eye(2).tolist()
    assert bt.clamp(3.0, -1.0, 1.0) == 1.0
    assert same(bt.clamp([3.0, -3.0], -1.0, 1.0), [1.0, -1.0])


def test_one_body_serves_numbers_and_values():
    def body(x, y):
        return bt.where(x > y, bt.tanh(x) * bt.hypot(x, y), bt.logsumexp([x, y]))

    assert body(0.5, 0.25) == body(bt.Value(0.5), bt.Value(0.25)).data
    assert body(0.25, 0.5) == bt.function(body)(0.25, 0.5)


def test_constants_of_a_traced_body():
    scale = np.array([1.0, 2.0])
    f = bt.function(lambda x: bt.inner_product(bt.concat(x, x), bt.exp(scale)))
    assert f(2.0) == bt.inner_product([2.0, 2.0], np.array([bt.exp(1.0), bt.exp(2.0)]))
