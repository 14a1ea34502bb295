"""NumPy with Values and Vectors: scalars on both sides, arrays of any dimension, object arrays, ufuncs by name."""

from __future__ import annotations

import operator
import subprocess
import sys

import pytest

import burtorch as bt
from burtorch import Value

np = pytest.importorskip("numpy")

OPERATORS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.pow]
SCALARS = [
    np.float64(2.5),
    np.float32(2.5),
    np.float16(2.5),
    np.int64(3),
    np.uint8(3),
    np.bool_(True),
    np.longdouble(2),
]


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.__name__)
@pytest.mark.parametrize(
    "scalar", [*SCALARS, np.array(2.5), np.array(3)], ids=lambda s: f"{type(s).__name__}-{s.dtype}"
)
def test_numpy_scalars_on_both_sides(op, scalar):
    x = Value(1.5)
    for result, expected in [(op(x, scalar), op(x, float(scalar))), (op(scalar, x), op(float(scalar), x))]:
        assert type(result) is Value
        assert result.data == expected.data
        x.grad = 0
        result.backward()
        grad, x.grad = x.grad, 0
        expected.backward()
        assert x.grad == grad


def test_numpy_scalars_elsewhere():
    x = Value(np.float32(0.5))
    x.data = np.int64(3)
    x.grad = np.float64(1.0)
    (x * 1).backward(np.float32(2.0))
    assert (x.data, x.grad) == (3.0, 3.0)
    assert x == np.float64(3.0)
    assert np.float64(3.0) == x
    assert np.int64(4) > x
    assert x <= np.array(3.0)
    assert x.max(np.float64(7.0)).data == 7.0
    assert bt.pow(np.float64(2.0), x).data == 8.0
    assert x.pow_constant(np.int32(2)).data == 9.0


@pytest.mark.parametrize(
    "other",
    [
        np.complex128(1),
        np.str_("a"),
        np.bytes_(b"a"),
        np.datetime64("2020"),
        np.array("a"),
        np.array(1j),
        np.array(None),
    ],
    ids=lambda x: str(getattr(x, "dtype", x)),
)
def test_other_numpy_scalars_are_refused(other):
    x = Value(1.0)
    v = x.graph.vector([1.0, 2.0])
    for op in OPERATORS:
        for operand in (x, v):
            with pytest.raises(TypeError):
                op(operand, other)
            with pytest.raises(TypeError):
                op(other, operand)
    for call in (lambda: Value(other), lambda: bt.max(x, other), lambda: setattr(x, "data", other)):
        with pytest.raises(TypeError):
            call()


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.__name__)
@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "u1", "?", ">f8"])
def test_an_array_with_a_value_gives_a_vector(op, dtype):
    array = np.array([1, 2, 1], dtype=dtype)
    x = Value(1.5)
    for result, expected in [
        (op(x, array), [op(x, float(a)) for a in array]),
        (op(array, x), [op(float(a), x) for a in array]),
    ]:
        assert type(result) is bt.Vector
        assert list(result.data) == [v.data for v in expected]
        x.grad = 0
        result.sum().backward()
        grad, x.grad = x.grad, 0
        bt.reduce_sum(expected).backward()
        assert x.grad == grad


def test_arrays_of_more_dimensions():
    x = Value(2.0)
    array = np.arange(6.0).reshape(2, 3)
    for op in OPERATORS:
        for pair in ((x, array), (array, x), (x, np.zeros((0, 3))), (x, array[:, ::2])):
            with pytest.raises(ValueError, match="a Value has no dimensions, the array has 2"):
                op(*pair)
    v = x.graph.vector(array)
    assert list(v.data) == list(range(6))
    for op in OPERATORS:
        for pair in ((v, array), (array, v)):
            with pytest.raises(ValueError, match="ravel"):
                op(*pair)
    for pair in ((v, array), (array, v), (np.eye(6), v)):
        with pytest.raises(ValueError, match="one dimension"):
            operator.matmul(*pair)
    with pytest.raises(ValueError, match="one dimension"):
        v.dot(np.eye(6))
    with pytest.raises(ValueError, match="ravel"):
        bt.add(v, array)


def test_arrays_with_vectors():
    v = bt.current_graph().vector(np.array([1, 2, 3], dtype="f4"))
    array = np.array([3.0, 2.0, 1.0])
    assert list((v + array).data) == list((array + v).data) == [4.0] * 3
    assert list((array - v[::-1]).data) == [0.0] * 3
    assert (v @ array).data == (array @ v).data == v.dot(array).data == bt.inner_product(array, v).data == 10.0
    assert list(bt.max(v, array).data) == list(bt.max(array, v).data) == [3.0, 2.0, 3.0]
    assert list(bt.concat(v, array).data) == [1.0, 2.0, 3.0, 3.0, 2.0, 1.0]
    v.data = array * 2
    v.grad = np.float64(1.0)
    assert (list(np.asarray(v.data)), list(v.grad)) == ([6.0, 4.0, 2.0], [1.0] * 3)
    assert np.asarray(v.data).dtype == np.float64
    assert v[np.int64(1)].data == 4.0
    with pytest.raises(ValueError, match="equal length"):
        v + np.zeros(2)


def test_object_arrays_are_elementwise():
    a, b = Value(1.0), Value(2.0)
    array = np.array([[a, b], [b, a]])
    assert array.dtype == object
    for result in (array * a, a * array, array + array, array**2, 1 + array, array - np.float64(1)):
        assert isinstance(result, np.ndarray)
        assert (result.shape, result.dtype) == ((2, 2), object)
        assert all(type(v) is Value for v in result.flat)
    (b * array).sum().backward()
    assert (a.grad, b.grad) == (4.0, 2 * 4.0 + 2 * 1.0)
    row = np.array([a, b])
    assert np.dot(row, row).data == (row @ row).data == 5.0
    v = a.graph.vector([1.0, 2.0])
    assert type(row + v) is type(v * row) is bt.Vector
    assert list((row - v).data) == [0.0, 0.0]
    assert np.array(a) + b == 3.0
    assert (a - np.array(b)).data == -1.0
    row += a
    assert [x.data for x in row] == [2.0, 3.0]
    assert bt.reduce_sum(array).data == 6.0
    assert bt.concat(row).data[1] == 3.0
    with pytest.raises(TypeError):
        np.array([a, "x"], dtype=object) * b


def test_comparison_with_arrays_is_elementwise_by_data():
    x = Value(2.0)
    array = np.array([1.0, 2.0, 3.0])
    assert list(array == x) == list(x == array) == [False, True, False]
    assert list(array < x) == list(x > array) == [True, False, False]
    assert list(np.array([x, x * 2]) >= x * 2) == [False, True]
    v = x.graph.vector([3.0, 2.0, 1.0])
    assert list(array <= v) == [True, True, False]
    assert np.less(x, 3.0)


@pytest.mark.parametrize(
    ("ufunc", "ours"),
    [("exp", "exp"), ("tanh", "tanh"), ("sqrt", "sqrt"), ("sin", "sin"), ("log1p", "log1p")]
    + [("maximum", "max"), ("minimum", "min"), ("square", "sqr"), ("reciprocal", "inv")]
    + [("floor", "floor"), ("arccosh", "acosh"), ("rint", "round"), ("hypot", "hypot")],
)
def test_ufuncs_are_ops_and_keep_the_gradient(ufunc, ours):
    function = getattr(np, ufunc)
    for operand in (Value(1.25), Value(1.25).graph.vector([1.25])):
        found = function(*[operand] * function.nin)
        expected = getattr(bt, ours)(*[operand] * function.nin)
        assert type(found) is type(expected)
        same = found if isinstance(found, Value) else found[0]
        other = expected if isinstance(expected, Value) else expected[0]
        assert (same.op, same.data) == (other.op, other.data)
    x = Value(2.0)
    y = np.exp(x) * np.maximum(np.float64(1.0), x)
    y.backward()
    assert x.grad == pytest.approx(3 * np.exp(2.0))


def test_functions_of_numpy_take_vectors():
    x = Value(0.0).graph.vector([3.0, -4.0])
    for call in (np.sum, np.mean, np.prod, np.max, np.min, np.linalg.norm, np.var, lambda x: np.sum(x, axis=0)):
        assert call(x).data == pytest.approx(call(np.array([3.0, -4.0])))
    assert np.dot(x, x).data == np.inner(x, [3.0, -4.0]).data == 25.0
    assert list(np.concatenate([x, x]).data) == [3.0, -4.0, 3.0, -4.0]
    assert list(np.where([True, False], x, 0.0).data) == [3.0, 0.0]
    assert list(np.clip(x, -1.0, 1.0).data) == [1.0, -1.0]
    assert (np.shape(x), np.size(x), np.ndim(x)) == ((2,), 2, 1)
    for call in (np.median, np.cumsum, lambda x: np.sum(x, keepdims=True), np.ravel, lambda x: np.outer(x, x)):
        found = call(x)
        assert isinstance(found, bt.Array)
        np.testing.assert_array_equal(found.data, call(np.array([3.0, -4.0])))
    with pytest.raises((TypeError, ValueError), match="axis"):
        np.sum(x, axis=1)


FUNCTIONS_OF_ARRAYS = ["cumsum", "sort", "argmax", "std", "any", "flip", "median", "roll", "tril"]


@pytest.mark.parametrize("name", FUNCTIONS_OF_ARRAYS)
def test_functions_of_arrays_take_vectors(name):
    v = bt.Vector([3.0, 4.0, 1.0])
    call = (lambda v: bt.roll(v, 1)) if name == "roll" else getattr(bt, name)
    found = call(v)
    assert isinstance(found, bt.Array)
    np.testing.assert_allclose(found.data, call(np.array(v.data)))
    if np.asarray(found.data).dtype.kind == "f":
        weights = np.arange(1.0, 1 + found.size).reshape(found.shape)
        (found * weights).sum().backward()
        expected = bt.grad(lambda x: (call(x) * weights).sum())(np.array(v.data))
        np.testing.assert_allclose(list(v.grad), expected)


@pytest.mark.parametrize("name", ["norm", "layer_norm"])
def test_functions_of_arrays_say_what_vectors_need(name):
    v = bt.Vector([3.0, 4.0, 1.0])
    call = (lambda v: bt.roll(v, 1)) if name == "roll" else getattr(bt, name)
    with pytest.raises(
        TypeError, match=rf"{name}.* does not take .*Vectors.*; use an Array of bt.array or graph.array"
    ):
        call(v)
    assert np.allclose(bt.function(call)(np.array(v.data)), call(np.array(v.data)))
    assert np.shape(call(bt.array(v.data)).data) == np.shape(call(np.array(v.data)))


def test_layer_norm_has_no_weights():
    for x in (np.ones((3, 2)), bt.array(np.ones((3, 2)))):
        with pytest.raises(TypeError, match=r"takes an axis, .* found ndarray"):
            bt.layer_norm(x, np.ones(2), np.ones(2))
        for axis in (0, -1, (0, 1), None, np.int64(1)):
            assert bt.layer_norm(x, axis).shape == (3, 2)


def test_other_ufuncs_and_keywords_are_refused():
    x = Value(1.0)
    for call in (lambda: np.spacing(x), lambda: np.isnan(x), lambda: np.signbit(x), lambda: np.divmod(x, 2)):
        with pytest.raises(TypeError, match="no op of that name"):
            call()
    array = np.zeros(2)
    for call in (
        lambda: np.add(x, 1.0, out=array),
        lambda: np.add(x, array, where=[True, False]),
        lambda: np.add.outer(x, array),
        lambda: np.add.at(array, 0, x),
        lambda: x.__array_ufunc__(),
        lambda: x.__array_ufunc__(np.add),
        lambda: x.__array_ufunc__(1, 2, 3),
        lambda: x.graph.vector([1.0]).__array_ufunc__(),
    ):
        with pytest.raises((TypeError, AttributeError)):
            call()
    with pytest.raises(TypeError, match="x = x \\+ v"):
        array += x
    assert list(array) == [0.0, 0.0]


def test_conversion_to_arrays_of_numbers_drops_the_gradient():
    x = Value(1.5)
    assert np.array([x, x * 2], dtype=float).tolist() == [1.5, 3.0]
    assert np.float64(x) == 1.5
    assert np.array(x.graph.vector([1.0, 2.0])).dtype == object


def test_numpy_is_not_imported_for_values():
    code = (
        "import sys; import burtorch as bt; x = bt.Value(1.0); v = x.graph.vector([1.0, 2.0]); y = (v * x).sum() + 2;"
        " y.backward(); list(v.data); bt.concat(v, x); print('numpy' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"
