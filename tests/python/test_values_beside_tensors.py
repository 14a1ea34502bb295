"""Values and Vectors beside Tensors and Arrays: NumPy's functions and operators treat them as Arrays of their graph."""

from __future__ import annotations

import numpy as np
import pytest

import burtorch as bt

MATRIX = np.array([[0.5, 1.0, 2.0], [1.5, 0.25, 3.0]])
ROW = np.array([0.5, 1.5, 2.5])
BINARY = ["add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "arctan2", "hypot", "logaddexp"]
BINARY += ["copysign", "fmax", "fmin", "fmod", "remainder", "floor_divide", "logaddexp2", "float_power", "heaviside"]
PRODUCTS = {
    "dot": np.dot,
    "inner": np.inner,
    "kron": np.kron,
    "outer": np.outer,
    "bt.outer": bt.outer,
    "tensordot": lambda x, y: np.tensordot(x, y, 0),
    "append": np.append,
    "polyval": np.polyval,
    "hstack": lambda x, y: np.hstack([x, y]),
    "multiply": lambda x, y: np.multiply.outer(x, y),
}


def kinds(numbers):
    """The numbers as each kind of operand, and how to read its gradient."""
    params = bt.Parameters(dtype="float64")
    tensor = params.tensor(numbers.shape or 1)
    params.values[:] = numbers.ravel()
    x = bt.array(numbers)
    yield x, lambda: x.grad
    if numbers.ndim:
        yield tensor, lambda: np.array(params.grads).reshape(numbers.shape)
    if numbers.ndim == 0:
        value = bt.Value(float(numbers))
        yield value, lambda: value.grad
    if numbers.ndim == 1:
        vector = bt.Vector(numbers)
        yield vector, lambda: np.array(vector.grad)


def check(function, left, right):
    """The values and gradients of a function of all kinds of operands are those of Arrays, or the sums of them."""
    expected = function(left, right)
    by = bt.grad(lambda x, y: (function(x, y) ** 2).sum(), argnums=(0, 1))(left, right)
    for k in range(len(list(kinds(left)))):
        for j in range(len(list(kinds(right)))):
            (x, of_x), (y, of_y) = list(kinds(left))[k], list(kinds(right))[j]
            if not any(isinstance(one, (bt.Array, type(TENSOR))) for one in (x, y)):
                continue
            found = function(x, y)
            np.testing.assert_allclose(bt.array(found).data, expected, rtol=1e-14)
            (bt.array(found) ** 2).sum().backward()
            np.testing.assert_allclose(of_x(), by[0], rtol=1e-12)
            np.testing.assert_allclose(of_y(), by[1], rtol=1e-12)


TENSOR = bt.Parameters().tensor(1)


@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_operands(name):
    function = getattr(np, name)
    check(function, np.array(1.75), MATRIX)
    check(function, MATRIX, np.array(1.75))
    check(function, ROW, MATRIX)
    check(function, MATRIX, ROW)
    check(function, np.array(0.75), ROW)


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_and_joins(name):
    function, number = PRODUCTS[name], np.array(1.75)
    takes_matrices, takes_number_first = name not in {"polyval", "hstack"}, name != "polyval"
    check(function, ROW, number)
    check(function, ROW, ROW)
    if takes_number_first:
        check(function, number, ROW)
    if takes_matrices:
        check(function, number, MATRIX)
        check(function, MATRIX, ROW)


def test_a_vector_times_a_matrix():
    for function in (np.dot, np.matmul, lambda x, y: x @ y, bt.inner_product, np.inner):
        check(function, MATRIX, ROW)
    for function in (np.dot, np.matmul, lambda x, y: x @ y, bt.inner_product):
        check(function, np.array([2.0, -1.0]), MATRIX)
        check(function, MATRIX, MATRIX.T.copy())
    check(lambda x, y: np.vstack([x, y]), MATRIX, ROW)


def test_both_inner_products_of_a_matrix_agree():
    params = bt.Parameters(dtype="float64")
    w = params.tensor((2, 2), init=1.5)
    traced = bt.function(lambda x: bt.inner_product(w, w).sum() * x)
    assert bt.inner_product(w, w).shape == (2, 2)
    assert traced(1.0) == bt.inner_product(w, w).sum().data == 18.0


def test_rms_norm_of_any_rows():
    check(bt.rms_norm, ROW, ROW)
    check(bt.rms_norm, MATRIX, ROW)
    expected = bt.rms_norm(ROW, ROW[::-1])
    values = [bt.Value(x) for x in ROW]
    for x in (ROW.tolist(), values, bt.Vector(ROW)):
        for weight in (ROW[::-1].tolist(), values[::-1], bt.Vector(ROW[::-1])):
            found = bt.rms_norm(x, weight)
            np.testing.assert_allclose(getattr(found, "data", found), expected, rtol=1e-14)
    with pytest.raises(TypeError, match="found ndarray and int"):
        bt.rms_norm(ROW, 3)
    for x in (ROW, bt.array(ROW)):
        with pytest.raises(ValueError, match="eps must be finite and at least 0, found -1"):
            bt.rms_norm(x, ROW, eps=-1.0)


def test_divmod_of_a_parameter():
    rate = bt.parameter(3.0)
    x = bt.Value(7.5)
    for found in (divmod(x, rate), divmod(x, 3.0)):
        assert [v.data for v in found] == [2.0, 1.5]
    assert [v.data for v in divmod(rate, x)] == [0.0, 3.0]
    assert divmod(rate, 2.0) == (1.0, 1.0)
    assert divmod(7.0, rate) == (2.0, 1.0)
    assert +rate == 3.0
    traced = bt.function(lambda x: divmod(x, rate)[1] + divmod(rate, x)[0])
    assert traced(7.5) == 1.5
    rate.value = 15.5
    assert traced(7.5) == 7.5 + 2.0


def test_lists_beside_tensors_of_several_axes():
    params = bt.Parameters(dtype="float64")
    w = params.tensor((2, 3))
    params.values[:] = MATRIX.ravel()
    x = bt.Value(2.0)
    for function in (np.add, np.subtract, np.multiply, np.divide, np.power):
        operator = {np.add: "__add__", np.subtract: "__sub__", np.multiply: "__mul__"}.get(function)
        for other in ([1.0, 2.0, 3.0], (1, 2, 3)):
            np.testing.assert_array_equal(function(w, other).data, function(MATRIX, other))
            if operator:
                np.testing.assert_array_equal(getattr(w, operator)(other).data, function(MATRIX, other))
    (w * [x, 1.0, 2.0]).sum().backward()
    assert x.grad == MATRIX[:, 0].sum()
    assert ([1, 2, 3] * w).sum().data == (MATRIX * [1, 2, 3]).sum()
    with pytest.raises(ValueError, match="do not broadcast"):
        w * [1, 2]


TRANSFORMS = {
    "grad": lambda f: bt.grad(f),
    "value_and_grad": lambda f: lambda x: bt.value_and_grad(f)(x)[1],
    "jacobian": lambda f: bt.jacobian(f),
    "hessian": lambda f: bt.hessian(f),
    "jvp": lambda f: lambda x: bt.jvp(f, (x,), (ROW,))[1],
    "vjp": lambda f: lambda x: bt.vjp(f, x)[1](1.0)[0],
    "vmap": lambda f: bt.vmap(lambda x: f(x * ROW)),
    "checkpoint": lambda f: bt.checkpoint(f),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_take_vectors(name):
    function = TRANSFORMS[name](lambda x: (x * x * x).sum())
    by = bt.grad(lambda x: (function(x) ** 2).sum())(ROW)
    vector, array = bt.Vector(ROW), bt.array(ROW)
    for x in (vector, array):
        found = function(x)
        np.testing.assert_array_equal(found.data, function(ROW))
        found = bt.array(found)
        (found * found).sum().backward()
        np.testing.assert_allclose(np.array(x.grad), by, rtol=1e-14)


def test_results_of_tensors_as_weights_of_a_batch():
    params = bt.Parameters(dtype="float64")
    w = params.tensor(3, init=0.5)
    loss = bt.vmap(lambda w, x: (w * x).sum(), in_axes=(None, 0))(2 * w, MATRIX).sum()
    loss.backward()
    assert loss.data == MATRIX.sum()
    np.testing.assert_allclose(np.array(params.grads), 2 * MATRIX.sum(0))
    inner = bt.function(lambda x: bt.grad(lambda z: z**3)(x) + x)
    x = bt.Value(2.0)
    y = inner(x)
    y.backward()
    assert (y.data, x.grad) == (14.0, 13.0)


def test_a_captured_vector_is_refused_with_advice():
    v = bt.Vector(ROW)
    for transformed in (bt.vmap(lambda x: (v * x).sum()), bt.grad(lambda x: (v * x[0]).sum())):
        with pytest.raises(TypeError, match=r"use bt.array\(v\), an Array with its gradient"):
            transformed(bt.array(MATRIX))
    a = bt.array(v)
    bt.vmap(lambda x: (a * x).sum())(bt.array(MATRIX)).sum().backward()
    np.testing.assert_allclose(np.array(v.grad), MATRIX.sum(0))
