"""Misuse of traced functions: a typed error says what is wrong, where, and how to correct it."""

from __future__ import annotations

import re

import numpy as np
import pytest

import burtorch as bt

HERE = r"test_function_errors\.py:\d+"


def line(text: str) -> int:
    """The number of the first line of this file that contains a text."""
    with open(__file__) as file:
        return next(k for k, found in enumerate(file, 1) if text in found)


def caught(call, *arguments, kind=bt.TraceError, **named) -> str:
    with pytest.raises(kind) as info:
        call(*arguments, **named)
    assert isinstance(info.value, bt.BurtorchError)
    return str(info.value)


def test_numpy_functions_of_traced_values_are_ops_or_are_named_with_the_line():
    f = bt.function(lambda x: np.exp(x[0]) + np.arctan2(x[0], x[1]) + np.log(x).sum())
    assert f(np.ones(2)) == np.exp(1.0) + np.arctan2(1.0, 1.0)
    text = caught(bt.function(lambda x: np.spacing(x[0]) + x[1]), np.ones(2))  # np.spacing of a Value
    assert "numpy.spacing" in text
    assert text.endswith(f":{line('# np.spacing of a Value')})")
    assert "float(" not in text  # refused in a traced function


def test_an_array_of_one_value_without_dimensions_is_that_value():
    f = bt.function(lambda x: np.where(x[0] > 0, x[0] * 2.0, x[1]))
    assert f(np.array([3.0, 4.0])) == 6.0
    assert f(np.array([-3.0, 4.0])) == 4.0


@pytest.mark.parametrize(
    "result",
    [
        np.array("a"), np.array(["a", "b"]), np.array([1j]), np.complex64(1j), np.datetime64(1, "s"), np.void(b"1"),
        np.array([np.timedelta64(1, "s")]), np.zeros(1, [("a", float)]), np.array([None, 1.0], object),
        np.array([[1.0], "a"], object), np.ma.array([1.0, 2.0], mask=[False, True]), np.str_("a"), np.bytes_(b"a"),
    ],
    ids=repr,
)  # fmt: skip
@pytest.mark.parametrize("place", [lambda x: x, lambda x: [x], lambda x: {"a": (1.0, x)}])
def test_results_that_hold_no_real_numbers_are_named(result, place):
    expected = "must return Values, or lists, tuples and dicts of them, found"
    assert expected in caught(bt.function(lambda x: place(result)), 0.5)
    assert expected in caught(bt.function(lambda x: place(result)), [0.5, 1.0])


def test_values_that_were_kept_from_a_recording():
    kept = []

    def body(x):
        kept.append(x * 2.0)
        return x

    bt.function(body)(1.0)
    for use in (
        lambda: kept[0] + 1.0,  # a kept Value is used
        lambda: kept[0].data,
        lambda: kept[0].backward(),
        lambda: float(kept[0]),
        lambda: kept[0] > 1.0,
        lambda: bt.reduce_sum([kept[0], kept[0]]),
    ):
        text = caught(use)
        assert "body" in text
        assert "is over" in text
    assert caught(lambda: kept[0] - 1.0).endswith(f":{line('kept[0] - 1.0')})")
    f = bt.function(lambda y: y * kept[0])  # a kept Value in another function
    text = caught(f, 2.0, kind=bt.GraphMismatchError)
    assert text.endswith(f":{line('# a kept Value in another function')})")


def nested(x):  # definition of nested
    return x["a"][0] * x["b"]


@pytest.mark.parametrize(
    ("argument", "place", "found"),
    [
        ({"a": [1.0, "2"], "b": 3.0}, "argument x['a'][1]", "found str"),
        ({"a": [1.0, len], "b": 3.0}, "argument x['a'][1]", "found builtin_function_or_method"),
        ({"a": (1.0, {2.0}), "b": 3.0}, "argument x['a'][1]", "found set"),
        ({"a": [1.0], "b": {1: 2.0}}, "argument x['b']", "found a key of type int"),
        ({"a": [1.0], "b": np.ones(2, complex)}, "argument x['b']", "of complex128"),
        ({"a": [1.0], "b": np.array(["1", "2"])}, "argument x['b']", "of <U1"),
    ],
)
def test_arguments_that_are_no_numbers_are_named_with_their_place(argument, place, found):
    f = bt.function(nested)
    f({"a": [1.0, 2.0], "b": 3.0})
    for method in (f, f.grad, f.value_and_grad, f.hessian):
        text = caught(method, argument)
        assert place in text
        assert found in text
        assert "expected" in text
        assert f"{line('# definition of nested')})" in text
    assert f.stats()["traced"] == 1
    assert f({"a": [1.0, 2.0], "b": 3.0}) == 3.0


def test_nesting_without_end_is_refused():
    x = [1.0]
    for _ in range(40):
        x = [x]
    assert "deep" in caught(bt.function(lambda x: x[0]), x)


def test_directions_have_the_structure_of_the_arguments():
    f = bt.function(nested)
    x = {"a": [1.0, 2.0], "b": 3.0}
    text = caught(f.jvp, x, [1.0, 2.0, 3.0])
    assert "structure" in text
    assert "argument [0]" in text
    text = caught(f.hvp, x, {"a": [1.0, 2.0], "c": 3.0})
    assert "structure" in text
    assert f.jvp(x, {"a": np.array([1.0, 0.0]), "b": 0.0}) == (3.0, 3.0)
    with pytest.raises(ValueError, match="2 numbers for arguments of 3"):
        f.jvp(x, {"a": [1.0], "b": 3.0})


def test_gradients_need_one_value():
    f = bt.function(lambda x: [x, x * 2.0])  # returns two
    for call in (lambda: f.grad(1.0), lambda: f.value_and_grad(1.0), lambda: f.hvp(1.0, 1.0), lambda: f.hessian(1.0)):
        text = caught(call)
        assert "one Value" in text
        assert f":{line('# returns two')})" in text
    assert "one Value" in caught(lambda: f.map_value_and_grad(np.ones((3, 1))))
    assert "one Value" in caught(f.bind(np.ones(1), np.ones(1)))


def test_programs_that_are_too_large_name_the_line():
    def squares(x):
        for _ in range(1000):
            x = x * x  # one too many
        return x

    def rows(x):
        return bt.reduce_sum([v * v for v in x])

    found = caught(bt.function(squares, max_nodes=100), 1.0)
    assert "max_nodes=" in found
    assert found.endswith(f":{line('# one too many')})")
    for body, x in ((rows, np.ones(1000)), (squares, np.ones((2, 2))), (squares, np.ones(5000))):
        f = bt.function(body, max_nodes=100)
        for _ in range(2):
            assert "max_nodes= of bt.function" in caught(f, x)
        assert bt.function(body)(x / x) is not None


def test_argnums_that_are_no_numbers():
    f = bt.function(lambda a, b: a * b)
    with pytest.raises(TypeError, match="argnums must be the number of an argument"):
        f.grad(1.0, 2.0, argnums="x")
    with pytest.raises(IndexError, match="argnums 5"):
        f.grad(1.0, 2.0, argnums=5)


@pytest.mark.parametrize("call", [bt.function, bt.grad, bt.vmap], ids=["function", "grad", "vmap"])
def test_arrays_of_other_elements_are_named_with_their_dtype(call):
    f = call(lambda x: bt.cond(x[0] > 0, lambda: x.sum(), lambda: x.sum()))
    for wrong in (
        np.array([None, 1.0]),
        np.array([1j, 2.0]),
        np.array(["a"]),
        np.array(["2020-01-01"], "datetime64[D]"),
    ):
        with pytest.raises((TypeError, bt.TraceError), match=rf"found ndarray of {re.escape(str(wrong.dtype))}"):
            f(wrong)


def test_arrays_by_keyword_are_told_to_come_by_position():
    with pytest.raises(TypeError, match=r"static argument x must be hashable.*pass arrays by position"):
        bt.grad(lambda w, x=None: (w * x).sum())(np.ones(2), x=np.ones(2))


def test_dtypes_of_numpy_are_those_of_functions():
    for dtype in ("float32", np.float32, np.dtype("float32")):
        assert bt.function(lambda x: x / 3, dtype=dtype)(1.0) == np.float32(1.0) / np.float32(3.0)
    with pytest.raises(ValueError, match='"float64" or "float32"'):
        bt.function(lambda x: x, dtype=np.float16)
    with pytest.raises(TypeError):
        bt.function(lambda x: x, dtype=3)


def test_argnums_of_no_argument():
    def product(a, b):
        return a * b

    assert bt.value_and_grad(product, argnums=())(3.0, 2.0) == (6.0, ())
    assert bt.function(product).grad(1.0, 2.0, argnums=()) == ()
    for call in (
        lambda argnums: bt.grad(product, argnums=argnums),
        lambda argnums: bt.function(product).grad(1.0, 2.0, argnums=argnums),
        lambda argnums: bt.jacobian(product, argnums=argnums),
    ):
        with pytest.raises(TypeError, match=r"argnums must be the number of an argument.*bool"):
            call(True)
