"""Models with other numbers: derivatives by Parameters of any order and mode."""

from __future__ import annotations

import numpy as np
import pytest

import burtorch as bt

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(5, 3)), RNG.normal(size=(5, 2))


class Net(bt.nn.Module):
    """Layers, a tensor by parts, and a traced function."""

    def __init__(self, params):
        self.first = bt.nn.Linear(params, 3, 4, activation="tanh")
        self.last = bt.nn.Linear(params, 4, 2)
        self.scale = params.tensor((2, 2), init="normal")
        self.square = bt.function(lambda x: x * x * self.scale[1, 0])

    def __call__(self, x):
        y = self.last(self.first(x)) * self.scale[0]
        return y + self.square(y)


def made(dtype="float64"):
    return Net(bt.Parameters(dtype=dtype, seed=3))


def loss(net, tensors):
    return bt.sum((bt.vmap(lambda x: bt.nn.functional_call(net, tensors, x))(X) - Y) ** 2)


def flat(net, x):
    """Tensors by name from all numbers."""
    tensors, start = {}, 0
    for name, tensor in net.named_parameters():
        n = int(np.prod(tensor.shape))
        tensors[name] = x[start : start + n].reshape(tensor.shape)
        start += n
    return tensors


def numbers(net):
    return np.concatenate([np.asarray(tensor.values) for _, tensor in net.named_parameters()])


def called(net, x):
    return net(bt.array(x)).data


def by_values(net, x):
    """The loss at other values of the Parameters themselves."""
    before = list(net.params.values)
    for (_, tensor), part in zip(net.named_parameters(), flat(net, x).values(), strict=True):
        tensor.values[:] = part.ravel()
    found = np.sum([np.sum((called(net, x) - y) ** 2) for x, y in zip(X, Y, strict=True)])
    net.params.values[:] = before
    return found


def test_values_are_those_of_the_model():
    net = made()
    for tensors in ({}, dict(net.named_parameters())):
        np.testing.assert_allclose(bt.nn.functional_call(net, tensors, X[0]), called(net, X[0]), rtol=1e-14)
    other = {name: RNG.normal(size=t.shape) for name, t in net.named_parameters()}
    found = bt.nn.functional_call(net, other, X[0])
    assert not np.allclose(found, called(net, X[0]))
    with pytest.raises(TypeError, match="functions that"):
        bt.nn.functional_call(net, other, bt.array(X[0]))
    layer = {name.removeprefix("first."): x for name, x in other.items() if name.startswith("first.")}
    for x in (X[0], list(X[0]), tuple(X[0]), X):
        expected = np.tanh(np.asarray(x) @ layer["weight"].T + layer["bias"])
        np.testing.assert_allclose(bt.nn.functional_call(net.first, layer, x), expected, rtol=1e-13)
    for name, t in net.named_parameters():
        t.values[:] = other[name].ravel()
    np.testing.assert_allclose(found, called(net, X[0]), rtol=1e-14)


def test_gradients_are_those_of_the_parameters():
    net = made()
    gradient = bt.grad(lambda tensors: loss(net, tensors))(dict(net.named_parameters()))
    f = bt.function(lambda k: bt.sum((bt.vmap(net)(X) - Y) ** 2) * k)
    f.value_and_param_grad(1.0)
    for name, tensor in net.named_parameters():
        np.testing.assert_allclose(gradient[name].ravel(), tensor.grads, rtol=1e-12)


def test_second_derivatives():
    net = made()
    x, v = numbers(net), RNG.normal(size=len(numbers(net)))
    f = bt.function(lambda x: loss(net, flat(net, x)))
    hessian = f.hessian(x)
    np.testing.assert_allclose(hessian, hessian.T, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(f.hvp(x, v), hessian @ v, rtol=1e-10, atol=1e-10)
    step = 1e-4
    for k in range(0, len(x), 5):
        unit = np.zeros(len(x))
        unit[k] = step
        along = (by_values(net, x + unit) - 2 * by_values(net, x) + by_values(net, x - unit)) / step**2
        np.testing.assert_allclose(hessian[k, k], along, rtol=1e-4, atol=1e-4)


def test_a_differentiated_step_of_training():
    """The gradient of the loss after a step, by the rate of the step."""
    net = made()
    now = {name: np.reshape(t.values, t.shape) for name, t in net.named_parameters()}

    def after(rate):
        gradient = bt.grad(lambda tensors: loss(net, tensors))(now)
        return loss(net, {name: now[name] - rate * gradient[name] for name in now})

    slope = (bt.function(after)(0.01 + 1e-6) - bt.function(after)(0.01 - 1e-6)) / 2e-6
    np.testing.assert_allclose(bt.grad(after)(0.01), slope, rtol=1e-6)


def test_some_tensors_and_nested_calls():
    net = made()
    name = "last.bias"
    now = np.asarray(net.last.bias.values)
    found = bt.grad(lambda b: bt.sum(bt.nn.functional_call(net, {name: b}, X[0]) ** 2))(now)
    everything = bt.grad(lambda t: bt.sum(bt.nn.functional_call(net, t, X[0]) ** 2))(dict(net.named_parameters()))
    np.testing.assert_allclose(found, everything[name], rtol=1e-13)

    def inner(b, c):
        return bt.nn.functional_call(lambda: bt.nn.functional_call(net, {name: c}, X[0]) + net.last.bias, {}) * b

    np.testing.assert_allclose(bt.function(inner)(np.ones(2), now), called(net, X[0]) + now, rtol=1e-13)


def test_built_in_models_and_float32():
    for dtype in ("float64", "float32"):
        mlp = bt.nn.MLP(bt.Parameters(dtype=dtype, seed=1), [3, 4, 2])
        tensors = dict(mlp.named_parameters())
        gradient = bt.grad(lambda t, mlp=mlp: bt.sum(bt.nn.functional_call(mlp, t, bt.array(X)) ** 2))(tensors)
        assert {name: g.shape for name, g in gradient.items()} == {name: tuple(t.shape) for name, t in tensors.items()}
        assert all(g.dtype == dtype for g in gradient.values())


def test_wrong_tensors_are_named():
    net = made()
    with pytest.raises(ValueError, match=r"no tensors named \['middle'\]"):
        bt.nn.functional_call(net, {"middle": np.ones(2)}, X[0])
    with pytest.raises(ValueError, match=r"last.bias has the shape \(2,\), found \(3,\)"):
        bt.nn.functional_call(net, {"last.bias": np.ones(3)}, X[0])
    with pytest.raises(TypeError, match="functions that"):
        bt.nn.functional_call(net, {"last.bias": bt.array(np.ones(2))}, X[0])
    before = list(net.params.values)
    with pytest.raises(ZeroDivisionError):
        bt.function(lambda b: bt.nn.functional_call(lambda: 1 / 0, {}))(1.0)
    assert list(net.params.values) == before
    assert called(net, X[0]).shape == (2,)
