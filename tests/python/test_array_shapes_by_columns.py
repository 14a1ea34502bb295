"""``order=`` of reshape, ravel and flatten, and formats of Arrays."""

from __future__ import annotations

import pytest

import burtorch as bt

np = pytest.importorskip("numpy")

A = np.arange(24.0).reshape(2, 3, 4)
CALLS = {
    "function": lambda x, shape, order: np.reshape(x, shape, order=order),
    "of burtorch": lambda x, shape, order: bt.reshape(x, shape, order=order),
    "method": lambda x, shape, order: x.reshape(shape, order=order),
    "extents": lambda x, shape, order: x.reshape(*shape, order=order),
}
ROWS = {
    "function": lambda x, order: np.ravel(x, order=order),
    "of burtorch": lambda x, order: bt.ravel(x, order),
    "ravel": lambda x, order: x.ravel(order),
    "flatten": lambda x, order: x.flatten(order=order),
}


@pytest.mark.parametrize("order", "CFA")
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("shape", [(24,), (4, 3, 2), (6, -1), (1, 24), (2, 2, 3, 2)])
def test_reshape(call, shape, order):
    f = CALLS[call]
    expected = f(A, shape, order)
    assert np.array_equal(f(bt.array(A), shape, order).data, expected)
    assert np.array_equal(bt.function(lambda x: f(x, shape, order) * 1.0)(A), expected)
    weights = np.sin(np.arange(24.0)).reshape(expected.shape)
    gradient = bt.grad(lambda x: np.sum(f(x, shape, order) * weights))(A)
    # An adjoint goes back where its number came from.
    back = np.empty(24)
    back[f(A, shape, order).ravel().astype(int)] = weights.ravel()
    assert np.array_equal(gradient.ravel(), back)


@pytest.mark.parametrize("order", "CFAK")
@pytest.mark.parametrize("call", ROWS)
def test_one_row(call, order):
    for x in (A, np.ones(()), np.ones((0, 3)), A[0, 0]):
        assert np.array_equal(ROWS[call](bt.array(x), order).data, ROWS[call](x, order))


def test_a_long_vector_of_a_function_by_columns():
    x = np.arange(6.0)
    for f in (lambda x: np.reshape(x, (2, 3), order="F") * 2, lambda x: x.reshape((3, 2), order="F") * 2):
        assert np.array_equal(bt.function(f)(x), f(x))


def test_orders_that_do_not_exist():
    message = "order must be one of 'C', 'F', 'A', or 'K'"
    for f in CALLS.values():
        with pytest.raises(ValueError, match=message):
            f(bt.array(A), (24,), "Q")
    for f in ROWS.values():
        with pytest.raises(ValueError, match=message):
            f(bt.array(A), "Q")
    with pytest.raises(ValueError, match="not permitted for reshaping"):
        bt.array(A).reshape(24, order="K")


def test_formats():
    x = bt.array(A)
    assert f"{x[1, 2, 3]:.2f}" == "23.00"
    assert f"{x.sum():8.1e}" == " 2.8e+02"
    assert f"{x}" == repr(x)
    with pytest.raises(TypeError, match=r"one number, found an Array of shape \(2, 3, 4\)"):
        f"{x:.2f}"
    with pytest.raises(bt.TraceError, match="no numbers"):
        bt.grad(lambda x: x.sum() * len(f"{x.sum():.2f}"))(A)
