"""Arrays have a method for each unary op, as Values and Vectors do."""

import numpy as np
import pytest

import burtorch as bt

# The inverse of a matrix is not 1 / x.
UNARY = [
    name for name in dir(bt.Vector) if hasattr(bt.Value, name) and callable(getattr(bt, name, None)) and name != "inv"
]
METHODS = [
    name
    for name in UNARY
    if hasattr(bt.Array, name) and "element by element" in (getattr(bt.Array, name).__doc__ or "")
]


def test_only_inv_is_missing():
    ops = {op["name"] for op in bt.system.ops() if op["arity"] == "unary"}
    assert len(METHODS) > 40
    assert ops <= set(METHODS) | {"inv", "round"}
    assert not hasattr(bt.Array, "inv")


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_method_is_its_function(name, dtype):
    x = np.array([[0.25, 0.5], [0.75, 1.0]]) + (name == "acosh")
    function = getattr(bt, name)
    graph = bt.Graph(dtype=dtype)
    a, b = graph.array(x), graph.array(x)
    by_method, by_function = getattr(a, name)(), function(b)
    assert by_method.data.tobytes() == by_function.data.tobytes()
    for made, of in ((by_method, a), (by_function, b)):
        made.sum().backward()
        assert of.grad.shape == x.shape
    assert a.grad.tobytes() == b.grad.tobytes()
    traced = bt.value_and_grad(lambda x: getattr(x, name)().sum())(x)
    wanted = bt.value_and_grad(lambda x: function(x).sum())(x)
    assert traced[0] == wanted[0]
    assert traced[1].tobytes() == wanted[1].tobytes()
    assert bt.function(lambda x: getattr(x, name)())(x).tobytes() == bt.function(function)(x).tobytes()


def test_an_oracle_of_a_callable_with_methods_is_traced_with_arrays():
    params = bt.Parameters(dtype="float64", seed=1)
    w, v = params.tensor((4, 3), init="normal"), params.tensor(4, init="normal")
    kinds = set()

    def loss(row):
        kinds.add(type(row))
        return ((v * (w @ row).tanh()).sum()) ** 2

    x = np.arange(12.0).reshape(4, 3) / 10
    value, gradient = bt.Oracle(loss, params=params)(x)
    found = np.array(gradient)
    assert kinds == {bt.Array}
    of_ops = bt.Oracle(lambda row: ((v * bt.tanh(w @ row)).sum()) ** 2, params=params)
    other, wanted = of_ops(x)
    assert value == other
    assert found.tobytes() == np.array(wanted).tobytes()
