"""Layers and models called with a batch: an array or a list with one row per sample."""

from __future__ import annotations

import numpy as np
import pytest

import burtorch as bt


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("activation", [None, "tanh", "relu", "sigmoid"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("n", [0, 1, 3, 100])
def test_rows_of_a_layer_are_calls_of_single_rows(dtype, activation, bias, n):
    layer = bt.nn.Linear(bt.Parameters(dtype=dtype, seed=1), 5, 3, bias=bias, activation=activation)
    x = np.random.default_rng(0).standard_normal((n, 5)).astype(dtype)
    found = layer(x)
    assert isinstance(found, np.ndarray)
    assert (found.shape, found.dtype) == ((n, 3), dtype)
    close = {"rtol": 1e-5, "atol": 1e-6} if dtype == "float32" else {"rtol": 1e-13, "atol": 1e-15}
    np.testing.assert_allclose(found, np.array([layer(row) for row in x]).reshape(n, 3), **close)


def test_rows_of_models_built_in_and_composed():
    params = bt.Parameters(dtype="float64", seed=2)
    model = bt.nn.MLP(params, [4, 8, 2])
    x = np.random.default_rng(1).standard_normal((50, 4))
    np.testing.assert_allclose(model(x), [model(row) for row in x], rtol=1e-12, atol=1e-14)
    first, last = model.layers
    np.testing.assert_array_equal(last(first(x)), model(x))
    # The current values of the parameters are used.
    before = model(x)
    params.values[:] = 0.5 * np.asarray(params.values)
    np.testing.assert_allclose(model(x), [model(row) for row in x], rtol=1e-12, atol=1e-14)
    assert not np.array_equal(before, model(x))


def test_a_layer_whose_tensors_are_replaced_uses_the_new_ones():
    params = bt.Parameters(dtype="float64", seed=3)
    layer, other = bt.nn.Linear(params, 3, 2), bt.nn.Linear(params, 3, 2)
    x = np.ones((2, 3))
    assert not np.array_equal(layer(x), other(x))
    layer.weight, layer.bias = other.weight, other.bias
    np.testing.assert_array_equal(layer(x), other(x))


@pytest.mark.parametrize("shape", [(2, 4), (0, 4), (2, 0), (2, 3, 4)])
def test_rows_of_another_length_are_refused(shape):
    layer = bt.nn.Linear(bt.Parameters(dtype="float64"), 3, 2)
    with pytest.raises(ValueError):
        layer(np.ones(shape))
    with pytest.raises(ValueError):
        bt.nn.MLP(bt.Parameters(dtype="float64"), [3, 2])(np.ones(shape))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("n", [1, 5, 70])
def test_token_models_of_a_batch_have_the_logits_of_each_sample(dtype, n):
    rng = np.random.default_rng(n)
    chars = bt.nn.CharMLP(bt.Parameters(dtype=dtype, seed=1), vocab=5, context=3, embedding=4, hidden=6)
    gpt = bt.nn.GPT(bt.Parameters(dtype=dtype, seed=1), vocab=5, context=4, layers=1, heads=2, width=8)
    rtol = 1e-12 if dtype == "float64" else 1e-5
    for ids in ("int64", "int32", "uint8"):
        tokens = rng.integers(0, 5, (n, 3)).astype(ids)
        found = chars(tokens)
        assert (found.shape, found.dtype) == ((n, 5), np.dtype(dtype))
        assert np.allclose(found, [chars.logits(row) for row in tokens], rtol=rtol, atol=rtol)
        found = gpt(tokens)
        assert (found.shape, found.dtype) == ((n, 3, 5), np.dtype(dtype))
        assert np.array_equal(found, np.array([gpt.logits(row) for row in tokens], dtype))
    for model in (chars, gpt):
        for wrong in (np.full((2, 3), 5), np.full((2, 3), -1)):
            with pytest.raises(IndexError, match="is out of range: expected 0 to 4"):
                model(wrong)
        with pytest.raises(TypeError, match="tokens must be integers, found float64"):
            model(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="a context holds 3 tokens, found 4"):
        chars(np.zeros((2, 4), int))
    assert chars(np.zeros((0, 3), int)).shape == (0, 5)
    chars.params.values[:] = 0.0
    assert not chars(np.zeros((2, 3), int)).any()


ROWS = {
    "lists": lambda x: x.tolist(),
    "tuples": lambda x: tuple(map(tuple, x.tolist())),
    "arrays": list,
    "a tuple of arrays": tuple,
    "lists of NumPy's numbers": lambda x: [list(row) for row in x],
}


@pytest.mark.parametrize("rows", ROWS)
def test_lists_of_rows_are_arrays(rows):
    def new():
        return bt.Parameters(dtype="float64", seed=4)

    x = np.random.default_rng(2).standard_normal((6, 3))
    dense = [bt.nn.MLP(new(), [3, 5, 2]), bt.nn.Linear(new(), 3, 2), bt.nn.Neuron(new(), 3, activation="tanh")]
    for model in (*dense, bt.nn.MLP(new(), [3, 2]).layers[0]):
        for x_of in (x, np.arange(6).reshape(2, 3)):
            found = model(ROWS[rows](x_of))
            assert isinstance(found, np.ndarray)
            np.testing.assert_array_equal(found, model(x_of))
    tokens = np.array([[0, 1, 4], [2, 2, 3]])
    for model in (
        bt.nn.CharMLP(new(), vocab=5, context=3, embedding=4, hidden=6),
        bt.nn.GPT(new(), vocab=5, context=4, layers=1, heads=1, width=8),
    ):
        np.testing.assert_array_equal(model(ROWS[rows](tokens)), model(tokens))


def test_other_lists_of_lists_are_refused_as_before():
    model = bt.nn.MLP(bt.Parameters(dtype="float64"), [3, 2])
    for wrong in ([[1.0, 2.0, 3.0], [1.0]], [[1.0, 2.0]], [[]], [[[1.0, 2.0, 3.0]]]):
        with pytest.raises(ValueError):
            model(wrong)
    with pytest.raises(TypeError):
        model([["a", "b", "c"]])
    assert isinstance(model([[bt.Value(1.0), 2.0, 3.0]]), bt.Vector)
