"""burtorch scalars in operations with arrays of several dimensions, and in NumPy functions."""

from __future__ import annotations

import operator

import numpy as np
import pytest

import burtorch as bt

A = np.arange(1.0, 7.0).reshape(2, 3)
OPERATORS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.pow, operator.mod]
CALLS = [bt.max, bt.min, np.multiply, np.add, np.hypot, np.maximum, np.arctan2]


@pytest.mark.parametrize("op", OPERATORS + CALLS, ids=lambda op: op.__name__)
@pytest.mark.parametrize("a", [A, A.astype("float32"), A.astype(int), A[None], A[:, :0], A > 2], ids=str)
def test_a_number_beside_a_matrix_keeps_its_shape_in_a_trace(op, a):
    if a.dtype == bool and op in (operator.mod, operator.sub, operator.truediv):
        a = a + 1.0
    of_numpy = {bt.max: np.maximum, bt.min: np.minimum}.get(op, op)
    for f, expected in [(lambda x: op(x, a), of_numpy(1.5, a)), (lambda x: op(a, x), of_numpy(a, 1.5))]:
        for found in (bt.function(f)(1.5), bt.function(f)(1.5)):
            assert found.shape == a.shape
            np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_axes_of_a_product_are_those_of_the_matrix():
    f = bt.function(lambda x: np.sum(x * A, axis=0))
    np.testing.assert_array_equal(f(2.0), 2 * A.sum(0))
    g = bt.function(lambda x, y: ((x * A) @ (y - A).T).sum())
    value, grads = g.value_and_grad(2.0, 0.5)
    h = 1e-6
    assert value == (2 * A @ (0.5 - A).T).sum()
    np.testing.assert_allclose(grads[0], (A @ (0.5 - A).T).sum(), rtol=1e-12)
    np.testing.assert_allclose(grads[1], (g(2.0, 0.5 + h) - g(2.0, 0.5 - h)) / (2 * h), rtol=1e-6)


def test_a_value_of_a_graph_does_not_flatten_a_matrix():
    x = bt.Value(2.0)
    for wrong in (lambda: x * A, lambda: A - x, lambda: bt.max(x, A), lambda: np.multiply(A, x)):
        with pytest.raises(ValueError, match=r"a Value has no dimensions, the array has 2; .*ravel"):
            wrong()
    assert list((x * A.ravel()).data) == list(2 * A.ravel())
    with pytest.raises(ValueError, match="a Vector has one dimension, the array has 2"):
        bt.Vector([1.0, 2.0, 3.0]) * A


SAME = ["sum", "prod", "mean", "average", "median", "max", "min", "amax", "amin", "nansum", "nanmean", "squeeze"]


@pytest.mark.parametrize("name", SAME + ["var", "std", "ptp"])
def test_reductions_of_a_number(name):
    f = getattr(np, name)
    expected = 2.5 if name in SAME else 0.0
    x = bt.Value(2.5)
    y = f(x) * 3.0
    y.backward()
    assert (y.data, x.grad) == (3 * expected, 3.0 if name in SAME else 0.0)
    assert f(x, axis=None).data == expected
    traced = bt.function(lambda x: f(x) * 3.0)
    assert traced.value_and_grad(2.5) == (3 * expected, 3.0 if name in SAME else 0.0)
    assert f(bt.Value(np.inf)).data == np.inf if name in SAME else np.isnan(f(bt.Value(np.inf)).data)
    for wrong in ({"axis": 1}, {"out": np.zeros(1)})[: 1 if name in ("average", "squeeze") else 2]:
        with pytest.raises(TypeError, match=f"numpy.{name} of a Value takes no"):
            f(x, **wrong)


def test_rounding_of_a_number():
    assert np.round(bt.Value(2.567)).data == 3.0
    assert np.round(bt.Value(2.567), 1).data == pytest.approx(2.6)
    assert np.around(bt.Value(-1234.0), -2).data == -1200.0


def test_other_functions_take_values_as_objects():
    x, y = bt.Value(2.0), bt.Value(3.0)
    assert [v.data for v in np.stack([x, y])] == [2.0, 3.0]
    assert np.sum([x, y]).data == 5.0
    assert np.where(True, x, 0.0).item() is x
    assert np.shape(x) == ()
    assert np.ndim(x) == 0
    assert np.size(x) == 1


@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.interp(x, [0.0, 1.0, 4.0], [1.0, 3.0, 9.0]),
        lambda x: np.fmax(x, 1.0) + np.copysign(2.0, -x),
        lambda x: np.quantile(np.stack([x, 2.0 * x, x * x]), 0.3),
        lambda x: np.nan_to_num(x) * np.heaviside(x, 0.5),
        lambda x: np.polyval(np.array([1.0, 2.0]), x),
        lambda x: 2 * np.round(x, 1),
    ],
)
def test_functions_that_values_have_not_trace_with_arrays(f):
    traced = bt.function(f)
    for x in (2.5, 2.5, 0.71):
        np.testing.assert_allclose(traced(x), f(np.float64(x)), rtol=1e-14)


def test_a_body_that_fails_with_arrays_too_says_the_first_error():
    with pytest.raises(TypeError, match=r"numpy.unique|does not take"):
        bt.function(lambda x: np.cross(x, x))(2.5)
    with pytest.raises(TypeError, match=r"numpy.cross does not take Values with these arguments"):
        np.cross(bt.Value(1.0), bt.Value(2.0))
