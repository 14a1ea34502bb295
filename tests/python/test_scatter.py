"""Sums of segments, and copies of Arrays with other numbers at some places."""

from __future__ import annotations

import numpy as np
import pytest

import burtorch as bt

X = np.arange(12.0).reshape(4, 3) + 1.0
INDICES = {
    "integer": 1,
    "negative": -1,
    "element": (2, 1),
    "slice": slice(1, None, 2),
    "reversed": slice(None, None, -1),
    "column": (slice(None), 2),
    "rows": np.array([2, 0]),
    "list": [3, 1],
    "pairs": (np.array([0, 3]), np.array([2, 0])),
    "mask": X % 3 == 1,
    "rows by a mask": np.array([True, False, True, False]),
    "None": (None, 1),
    "ellipsis": (..., 0),
    "all": ...,
    "nothing": slice(2, 2),
    "grid": (np.array([[0], [2]]), np.array([0, 1])),
}
METHODS = {
    "set": lambda old, new: new + 0 * old,
    "add": lambda old, new: old + new,
    "subtract": lambda old, new: old - new,
    "multiply": lambda old, new: old * new,
    "divide": lambda old, new: old / new,
    "min": np.minimum,
    "max": np.maximum,
}


def changed(x, index, method, values):
    x = x.copy()
    x[index] = METHODS[method](x[index], values)
    return x


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", INDICES)
def test_other_numbers_at_some_places(name, method):
    index = INDICES[name]
    rng = np.random.default_rng(0)
    for values in (2.5, rng.normal(size=X[index].shape) * 6.0 + 0.1):
        expected = changed(X, index, method, values)
        change = f"at[index].{method}"
        eager = bt.array(X)
        found = getattr(eager.at[index], method)(values)
        assert found.shape == X.shape, change
        np.testing.assert_array_equal(found.data, expected)
        traced = bt.function(lambda x, v: getattr(x.at[index], method)(v))
        np.testing.assert_array_equal(traced(X, values), expected)
        weights = np.cos(np.arange(12.0)).reshape(4, 3)

        def loss(x, v, weights=weights):
            return ((getattr(x.at[index], method)(v) * weights) ** 2).sum()

        by_x, by_v = bt.grad(loss, argnums=(0, 1))(X, values)
        step = 1e-6

        def at(x, v, weights=weights):
            return ((changed(x, index, method, v) * weights) ** 2).sum()

        for k in np.ndindex(X.shape):
            unit = np.zeros(X.shape)
            unit[k] = step
            slope = (at(X + unit, values) - at(X - unit, values)) / (2 * step)
            np.testing.assert_allclose(by_x[k], slope, rtol=1e-5, atol=1e-5)
        slope = (at(X, values + step) - at(X, values - step)) / (2 * step)
        np.testing.assert_allclose(np.sum(by_v), slope, rtol=1e-5, atol=1e-5)


def test_several_numbers_for_one_place():
    index = np.array([1, 1, 0, 1])
    assert bt.function(lambda x: x.at[index].add(1.0))(np.zeros(3)).tolist() == [1.0, 3.0, 0.0]
    assert bt.function(lambda x: x.at[index].subtract([1.0, 2.0, 4.0, 8.0]))(np.zeros(3)).tolist() == [-4.0, -11.0, 0.0]
    for method in ("set", "multiply", "divide", "min", "max"):
        with pytest.raises(ValueError, match="several numbers for one place"):
            bt.function(lambda x, method=method: getattr(x.at[index], method)(1.0))(np.zeros(3))


def test_indices_that_are_arguments():
    f = bt.function(lambda x, k: x.at[k].set(7.0).at[k].add(1.0))
    assert f(np.zeros(4), np.array([2, 0])).tolist() == [8.0, 0.0, 8.0, 0.0]
    assert f(np.zeros(4), np.array([1, 3])).tolist() == [0.0, 8.0, 0.0, 8.0]
    assert f(np.zeros(4), np.array(-1)).tolist() == [0.0, 0.0, 0.0, 8.0]
    with pytest.raises(IndexError):
        f(np.zeros(4), np.array([4]))
    with pytest.raises(IndexError):
        bt.array(np.zeros(3)).at[5].set(1.0)
    with pytest.raises(ValueError, match="broadcast"):
        bt.array(np.zeros(3)).at[:2].set([1.0, 2.0, 3.0])


def test_a_tensor_and_its_gradient():
    w = bt.Parameters(dtype="float64").tensor(3, init=2.0)
    (w.at[1].multiply(3.0) ** 2).sum().backward()
    assert list(w.grads) == [4.0, 36.0, 4.0]


def test_placed_numbers_in_loops_and_batches():
    squares = bt.function(lambda x: bt.fori_loop(0, 4, lambda i, c: c.at[i].set(x[i] ** 2), bt.array(np.zeros(4))))
    assert squares(np.arange(4.0)).tolist() == [0.0, 1.0, 4.0, 9.0]
    assert bt.jacobian(squares)(np.arange(4.0)).tolist() == np.diag(2 * np.arange(4.0)).tolist()
    rows = bt.vmap(lambda x, k: x.at[k].add(1.0))(np.zeros((3, 2)), np.array([0, 1, 0]))
    assert rows.tolist() == [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]


SEGMENTS = {
    "one axis": ((6,), np.array([0, 2, 2, 1, 0, 2])),
    "rows": ((4, 3), np.array([3, 3, 0, 1])),
    "two axes of ids": ((2, 3, 2), np.array([[0, 1, 1], [2, 0, 4]])),
    "none": ((0, 2), np.array([], int)),
}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", SEGMENTS)
def test_sums_of_segments(name, dtype):
    shape, ids = SEGMENTS[name]
    x = np.random.default_rng(1).normal(size=shape).astype(dtype)
    for n in (None, 5, 7):
        rows = n if n is not None else (int(ids.max()) + 1 if ids.size else 0)
        expected = np.zeros((rows, *shape[ids.ndim :]), dtype)
        np.add.at(expected, ids, x)
        for found in (
            bt.segment_sum(x, ids, n),
            bt.function(lambda x, n=n: bt.segment_sum(x, ids, n), dtype=dtype)(x),
            bt.function(lambda x, k, rows=rows: bt.segment_sum(x, k, rows), dtype=dtype)(x, ids),
        ):
            assert found.shape == expected.shape
            np.testing.assert_allclose(found, expected, rtol=1e-6 if dtype == "float32" else 1e-15)
        gradient = bt.grad(lambda x, n=n: (bt.segment_sum(x, ids, n) ** 2).sum())(x)
        np.testing.assert_allclose(gradient, 2 * expected[ids], rtol=1e-5 if dtype == "float32" else 1e-14)


def test_second_derivatives_of_sums_of_segments():
    ids = np.array([0, 1, 0, 1, 1])
    u = np.linspace(0.5, 1.5, 5)
    dense = bt.hessian(lambda x: bt.sum(bt.exp(bt.segment_sum(x, ids, 2))))(u)
    sums = np.array([u[ids == k].sum() for k in range(2)])
    np.testing.assert_allclose(dense, np.exp(sums)[ids] * (ids[:, None] == ids), rtol=1e-13)
    f = bt.function(lambda x: bt.segment_sum(x**2, ids, 2))
    assert f.jacobian_sparsity(u).nnz == 5


def test_counts_with_weights():
    ids, w = np.array([0, 3, 3, 1]), np.array([1.0, 2.0, 4.0, 8.0])
    for minlength in (0, 2, 6):
        expected = np.bincount(ids, w, minlength)
        np.testing.assert_array_equal(bt.function(lambda w, m=minlength: np.bincount(ids, w, m))(w), expected)
    np.testing.assert_array_equal(np.bincount(ids, weights=bt.array(w)).data, np.bincount(ids, w))
    assert bt.grad(lambda w: np.bincount(ids, weights=w)[3] ** 2)(w).tolist() == [0.0, 12.0, 12.0, 0.0]
    with pytest.raises(TypeError, match="must be known"):
        bt.function(lambda k, w: np.bincount(k, w))(ids, w)


@pytest.mark.parametrize(
    ("error", "call"),
    [
        (IndexError, lambda: bt.segment_sum(X, [0, 1, 2, 3], 3)),
        (IndexError, lambda: bt.segment_sum(X, [0, 1, -1, 3], 4)),
        (ValueError, lambda: bt.segment_sum(X, [0, 1], 3)),
        (TypeError, lambda: bt.segment_sum(X, [0.0, 1.0, 2.0, 3.0], 4)),
        (TypeError, lambda: bt.segment_sum(X, [0, 1, 2, 3], 4.5)),
        (TypeError, lambda: bt.function(lambda x, k: bt.segment_sum(x, k))(X, np.arange(4))),
        (ValueError, lambda: bt.segment_sum(X, [0, 1, 2, 3], -1)),
    ],
)
def test_wrong_segments(error, call):
    with pytest.raises(error):
        call()
