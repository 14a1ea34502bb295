"""Layers take numbers, Values, Vectors and Arrays, alone and in lists, with equal results and gradients.

In traces they read their weights at every call.
"""

from __future__ import annotations

import numpy as np
import pytest

import burtorch as bt

XS = [0.5, -1.25]
LAYERS = {
    "Linear": lambda p: bt.nn.Linear(p, 2, 3),
    "tanh": lambda p: bt.nn.Linear(p, 2, 3, activation="tanh"),
    "no bias": lambda p: bt.nn.Linear(p, 2, 3, bias=False),
    "MLP": lambda p: bt.nn.MLP(p, [2, 4, 3]),
    "layer of an MLP": lambda p: bt.nn.MLP(p, [2, 3]).layers[0],
    "Neuron": lambda p: bt.nn.Neuron(p, 2, activation="tanh"),
    "RMSNorm": lambda p: bt.nn.RMSNorm(p, 2),
}
NUMBERS = {
    "list": list,
    "tuple": tuple,
    "array": np.array,
    "iterator": iter,
    "buffer": lambda xs: memoryview(np.array(xs)),
}
OF_GRAPH = {
    "Vector": lambda g, xs: g.vector(xs),
    "Values": lambda g, xs: [g.value(x) for x in xs],
    "Value and number": lambda g, xs: [g.value(xs[0]), xs[1]],
    "object array": lambda g, xs: np.array([g.value(x) for x in xs], dtype=object),
    "Array": lambda g, xs: g.array(xs),
    "computed Array": lambda g, xs: g.array(xs) * 1.0,
    "Arrays": lambda g, xs: [g.array(x) for x in xs],
    "Array and number": lambda g, xs: (g.array(xs)[0], xs[1]),
}


def made(kind):
    params = bt.Parameters(dtype="float64", seed=3)
    return params, LAYERS[kind](params)


def total(y):
    return y if isinstance(y, (float, bt.Value)) or getattr(y, "ndim", 1) == 0 else sum(y)


def reference(kind):
    params, layer = made(kind)
    with bt.Graph() as graph:
        x = graph.vector(XS)
        y = total(layer(x))
        y.backward()
        return y.data, list(x.grad), list(params.grads)


@pytest.mark.parametrize("kind", LAYERS)
def test_every_input_gives_the_same_numbers_and_gradients(kind):
    value, by_x, by_params = reference(kind)
    for name, make in NUMBERS.items():
        _, layer = made(kind)
        if kind == "RMSNorm" and name in ("iterator", "buffer"):
            continue
        assert total(layer(make(XS))) == pytest.approx(value, rel=1e-14), name
    for name, make in OF_GRAPH.items():
        params, layer = made(kind)
        if kind == "RMSNorm" and name in ("Values", "Value and number", "object array"):
            with bt.Graph() as graph, pytest.raises((TypeError, ValueError)):
                layer(make(graph, XS))
            continue
        with bt.Graph() as graph:
            x = make(graph, XS)
            y = total(layer(x))
            y.backward()
            assert float(y) == pytest.approx(value, rel=1e-14), name
            np.testing.assert_allclose(list(params.grads), by_params, rtol=1e-12, err_msg=name)
            if name in ("Vector", "Array", "Values"):
                grads = [v.grad for v in x] if name == "Values" else list(x.grad)
                np.testing.assert_allclose(grads, by_x, rtol=1e-12, err_msg=name)


@pytest.mark.parametrize("kind", LAYERS)
def test_traced_inputs_give_the_same_gradients(kind):
    _, by_x, _ = reference(kind)
    _, layer = made(kind)
    whole, listed = (lambda x: total(layer(x))), (lambda x: total(layer([x[0], x[1]])))
    for f in (whole, listed):
        np.testing.assert_allclose(bt.grad(f)(np.array(XS)), by_x, rtol=1e-12)
        np.testing.assert_allclose(bt.function(f).grad(np.array(XS)), by_x, rtol=1e-12)
    two = bt.function(lambda a, b: total(layer([a, b])))
    np.testing.assert_allclose(two.grad(*XS), by_x, rtol=1e-12)


@pytest.mark.parametrize("kind", LAYERS)
def test_rows_are_mapped(kind):
    value, _, _ = reference(kind)
    rows = np.array([XS, XS, XS])
    for x in (rows, bt.array(rows)):
        _, layer = made(kind)
        y = layer(x)
        y = y.data if isinstance(y, bt.Array) else y
        assert y.shape[0] == 3
        np.testing.assert_allclose(np.reshape(y, (3, -1)).sum(axis=1), [value] * 3, rtol=1e-12)


@pytest.mark.parametrize("kind", ["Linear", "tanh", "no bias", "MLP", "layer of an MLP"])
@pytest.mark.parametrize("shape", [(2, 3), (2, 0), (1, 2, 3)], ids=str)
def test_all_axes_but_the_last_are_rows(kind, shape):
    _, layer = made(kind)
    x = np.random.default_rng(5).normal(size=(*shape, 2))
    y = layer(x)
    assert y.shape == (*shape, 3)
    np.testing.assert_array_equal(y.reshape(-1, 3), layer(x.reshape(-1, 2)))
    np.testing.assert_array_equal(y, layer(bt.array(x)).data)


@pytest.mark.parametrize(
    "call",
    [
        lambda layer: layer(XS),
        lambda layer: layer(np.array(XS)),
        lambda layer: layer(np.array([XS, XS]))[0],
    ],
    ids=["list", "array", "rows"],
)
@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_layer_of_numbers_in_a_trace_reads_its_weights_at_every_call(kind, call, dtype):
    def first(y):
        return y if np.ndim(y) == 0 else y[0]

    for trace in (
        lambda f: bt.function(f, dtype=dtype),
        lambda f: bt.function(f, dtype=dtype).grad,
        bt.grad,
        bt.value_and_grad,
        lambda f: lambda x: bt.vmap(f)(np.array([x])),
        lambda f: lambda x: bt.function(lambda v: f(v[0]), dtype=dtype)(np.array([x])),
    ):
        params = bt.Parameters(dtype=dtype, seed=1)
        layer = LAYERS[kind](params)

        def body(x, layer=layer):
            return x * first(call(layer))

        traced = trace(body)
        before = traced(1.5)
        params.values[:] = [2.0 * w + 0.1 for w in params.values]
        after, again = traced(1.5), trace(body)(1.5)
        assert np.all(np.not_equal(np.asarray(before, object), np.asarray(after, object))), "not frozen"
        np.testing.assert_array_equal(np.asarray(after, float), np.asarray(again, float))


def test_numbers_that_models_compute_are_refused_in_a_trace():
    params = bt.Parameters(dtype="float64")
    chars = bt.nn.CharMLP(params, vocab=3, context=2, embedding=2, hidden=3)
    gpt = bt.nn.GPT(params, vocab=3, context=2, width=8, heads=2, layers=1)
    for read in (
        lambda: chars.logits([0, 1])[0],
        lambda: gpt.logits([0, 1])[0][0],
        lambda: bt.optim.clip_grad_norm(params, 1.0),
    ):
        for trace in (bt.function, bt.grad):
            with pytest.raises(bt.TraceError, match="would be fixed at its current number"):
                trace(lambda x, read=read: x * read())(1.0)


def test_a_function_that_reads_parameters_is_not_frozen_in_another_one():
    params = bt.Parameters(dtype="float64")
    w = params.tensor(2, init=1.0)
    rate = bt.parameter(1.0)
    inner = bt.function(lambda x: ((x @ w) * rate).sum())
    rows = np.ones((1, 2))
    outer = bt.function(lambda x: x * inner(rows))
    assert outer(1.5) == 3.0
    params.values[:] = [2.0, 2.0]
    assert outer(1.5) == 6.0
    rate.value = 3.0
    assert outer(1.5) == 18.0
