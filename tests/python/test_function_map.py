"""Traced functions over rows: types, strides, shapes, threads, results in given arrays."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import burtorch as bt


def body(x, y):
    return (x * y).tanh() + (x - y).exp() / (1.0 + y * y)


def test_rows_have_the_bits_of_single_calls():
    f = bt.function(body)
    x = np.random.default_rng(0).normal(size=(1000, 2))
    values, grads = f.map_value_and_grad(x)
    for k in range(1000):
        value, grad = f.value_and_grad(*x[k].tolist())
        assert values[k] == value
        assert tuple(grads[k]) == grad
    assert (f.map(x) == values).all()


@pytest.mark.parametrize("threads", [1, 2, 3, 64])
def test_threads_change_no_bit(threads):
    f = bt.function(body)
    x = np.random.default_rng(1).normal(size=(1001, 2))
    values, grads = f.map_value_and_grad(x, threads=threads)
    expected = f.map_value_and_grad(x)
    assert (values == expected[0]).all()
    assert (grads == expected[1]).all()


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "int8", "uint16", ">f8"])
def test_any_number_type(dtype):
    f = bt.function(lambda x, y: x * 2.0 + y)
    x = np.arange(20).reshape(10, 2).astype(dtype)
    result = f.map(x)
    assert result.dtype == (dtype if dtype.startswith("float") else np.float64)
    np.testing.assert_array_equal(result.astype(float), x[:, 0].astype(float) * 2 + x[:, 1])


def test_half_numbers_round_as_numpy_rounds():
    f = bt.function(lambda x: x * 1.0)
    x = np.concatenate([np.linspace(-70000, 70000, 999), np.logspace(-9, 4, 999), [np.nan, np.inf, -0.0]])
    out = np.zeros(len(x), dtype=np.float16)
    f.map(x, out=out)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(out, x.astype(np.float16))
    every = np.arange(65536, dtype=np.uint16).view(np.float16)
    back = f.map(every)
    np.testing.assert_array_equal(back, every)


def test_strides_and_given_arrays():
    f = bt.function(body)
    wide = np.random.default_rng(2).normal(size=(50, 7))
    view = wide[::-2, 1:6:4]
    expected = f.map(np.ascontiguousarray(view))
    assert (f.map(view) == expected).all()
    assert (f.map(np.asfortranarray(view)) == expected).all()
    out = np.zeros((25, 3))
    grads = np.zeros((2, 25)).T
    result = f.map_value_and_grad(view, out=(out[:, 1], grads))
    assert result[1] is grads
    assert (out[:, 1] == expected).all()
    assert not out[:, 0].any()
    for bad in (np.zeros(3), np.zeros(25, dtype=int), [0.0] * 25):
        with pytest.raises((TypeError, ValueError)):
            f.map(view, out=bad)
    frozen = np.zeros(25)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        f.map(view, out=frozen)


def test_arguments_by_column_and_arrays_as_rows():
    f = bt.function(body)
    x = np.random.default_rng(3).normal(size=(70, 2))
    assert (f.map(x[:, 0], x[:, 1]) == f.map(x)).all()
    values, (dx, dy) = f.map_value_and_grad(x[:, 0], x[:, 1])
    assert values.shape == dx.shape == dy.shape == (70,)
    g = bt.function(lambda v: (v * v).sum())
    rows = np.random.default_rng(4).normal(size=(70, 5))
    np.testing.assert_allclose(g.map(rows), (rows**2).sum(axis=1), rtol=1e-14)
    assert (g.map_value_and_grad(rows)[1] == 2 * rows).all()
    h = bt.function(lambda x, y: [x + y, x * y])
    assert h.map(np.array([[1.0, 2.0], [3.0, 4.0]])).tolist() == [[3.0, 2.0], [7.0, 12.0]]


def test_misuse():
    f = bt.function(body)
    assert f.map(np.zeros((0, 2))).shape == (0,)
    values, grads = f.map_value_and_grad(np.zeros((0, 2)))
    assert (values.shape, grads.shape) == ((0,), (0, 2))
    for bad in ((), (np.float64(1.0),), (np.zeros(3), np.zeros(4)), ("text",)):
        with pytest.raises((TypeError, ValueError)):
            f.map(*bad)
    with pytest.raises(ValueError, match="threads"):
        f.map(np.zeros((3, 2)), threads=0)
    with pytest.raises(bt.TraceError, match="returns one Value"):
        bt.function(lambda x: [x, x]).map_value_and_grad(np.zeros(3))


class Model:
    def of_a_row(self, x):
        return x[0] * x[1]

    def of_numbers(self, a, b):
        return a * b

    def by_steps(self, a, b):
        return bt.scan(lambda c, _: (c * b, None), a, None, length=1)[0]


@pytest.mark.parametrize(
    "function",
    [
        Model().of_a_row,
        Model().of_numbers,
        Model().by_steps,
        lambda a, b: bt.cond(a > 0, lambda: a * b, lambda: a * b),
        lambda a, b=7.0: bt.checkpoint(lambda x, y: x * y)(a, b),
        lambda x, k: x[0] * x[1] * k,
        lambda a, b, *, k: a * b * k,
    ],
    ids=["method of a row", "method", "scan", "cond", "default", "static", "keyword"],
)
def test_rows_with_all_arguments(function):
    x = np.array([[3.0, 2.0], [1.0, 5.0], [-2.0, 0.5]])
    named = {"k": 1} if "k" in inspect.signature(function).parameters else {}
    f = bt.function(function)
    assert f.map(x, **named).tolist() == [6.0, 5.0, -1.0]
    values, grads = f.map_value_and_grad(x, **named)
    assert values.tolist() == [6.0, 5.0, -1.0]
    assert grads.tolist() == x[:, ::-1].tolist()
    out = np.empty(3), np.empty((3, 2))
    found = f.map_value_and_grad(x, out=out, **named)
    assert found[0] is out[0]
    assert found[1] is out[1]
    assert out[1].tolist() == x[:, ::-1].tolist()
    to = np.empty(3)
    assert f.map(x, out=to, **named) is to
    assert to.tolist() == [6.0, 5.0, -1.0]


@pytest.mark.parametrize("method", ["map", "map_value_and_grad"])
@pytest.mark.parametrize("function", [Model().of_numbers, Model().by_steps], ids=["numbers", "scan"])
def test_rows_of_another_length_than_the_arguments(method, function):
    call = getattr(bt.function(function), method)
    for wrong in (np.ones((3, 3)), np.ones((3, 1))):
        with pytest.raises(ValueError, match=r"a number for each of the 2 arguments.*rows of"):
            call(wrong)
    for wrong in (np.ones(4), np.ones((2, 2, 2))):
        with pytest.raises(TypeError, match="an array for each of the 2 arguments"):
            call(wrong)


def test_sparse_rows_are_mapped():
    scipy_sparse = pytest.importorskip("scipy.sparse")
    rows = scipy_sparse.csr_matrix(np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]]))
    f = bt.function(lambda x: x @ np.array([1.0, 2.0, 3.0]))
    assert f.map(rows).tolist() == [7.0, 6.0]


def test_large_programs_run_on_small_blocks():
    def long(x, y):
        for k in range(700):
            x = (x * 0.5 + y).sin() if k % 2 else x * y + 0.01
        return x

    f = bt.function(long)
    rows = np.random.default_rng(5).normal(size=(40, 2))
    values, grads = f.map_value_and_grad(rows)
    for k in range(40):
        value, grad = f.value_and_grad(*rows[k].tolist())
        assert (values[k], *grads[k]) == (value, *grad)


@pytest.mark.parametrize("axes", [1, 2])
def test_rows_and_memory_of_parameters(axes):
    params = bt.Parameters(dtype="float64")
    w = params.tensor((4, 3)[:axes])
    params.values[:] = np.arange(1.0, len(params.values) + 1)
    numbers = np.array(params.values).reshape(w.shape)
    f = bt.function(lambda x: (x * x).sum() if axes == 2 else x * x)
    np.testing.assert_array_equal(f.map(w), f.map(numbers))
    for found, expected in zip(f.map_value_and_grad(w), f.map_value_and_grad(numbers)):
        np.testing.assert_array_equal(found, expected)


def test_a_bound_call_reads_parameters_in_place():
    params = bt.Parameters(dtype="float64")
    other, w = params.tensor(2, init=9.0), params.tensor(3, init=2.0)
    bound = bt.function(lambda x: (x * x).sum()).bind(w, w)
    assert bound() == 12.0
    assert (list(w.grads), list(other.grads)) == ([4.0] * 3, [0.0] * 2)
    w.values[0] = 3.0
    assert bound() == 17.0
    assert repr(bound).endswith(", 3 numbers and a gradient>")
    assert "lambda" in repr(bound)
    for bad in (params.tensor((2, 2)), bt.Parameters(dtype="float32").tensor(2)):
        with pytest.raises(TypeError, match="one-dimensional float64 array"):
            bt.function(lambda x: x.sum()).bind(bad)
