"""Models in Python: shapes, parameters, values against plain arithmetic, refusals without changes."""

from __future__ import annotations

import copy
import math
from array import array

import pytest

import burtorch as bt
from burtorch.nn import MLP, Linear

ACTIVATIONS = {
    "identity": lambda x: x,
    "tanh": math.tanh,
    "relu": lambda x: max(x, 0.0),
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
}


def dense(layer, x):
    w, b = list(layer.weight.values), list(layer.bias.values) if layer.bias else [0.0] * layer.n_out
    sums = (sum(w[o * len(x) + k] * x[k] for k in range(len(x))) + b[o] for o in range(layer.n_out))
    return [ACTIVATIONS[layer.activation](y) for y in sums]


@pytest.mark.parametrize("hidden", [4, 64])
def test_char_mlp_has_the_parameters_of_the_paper(hidden):
    params = bt.Parameters()
    model = bt.nn.CharMLP(params, hidden=hidden, name="m")
    n = 27 * 64 + hidden * 1024 + hidden + 27 * hidden + 27
    assert model.n_parameters == params.n == n
    assert params.names == ["m.embedding", "m.hidden.weight", "m.hidden.bias", "m.output.weight", "m.output.bias"]
    assert (model.embedding.shape, model.hidden.weight.shape) == ((27, 64), (hidden, 1024))
    assert (model.output.weight.shape, model.output.bias.shape) == ((27, hidden), (27,))
    assert (model.vocab, model.context, model.params is params) == (27, 16, True)
    if hidden == 64:
        assert n == 69_083


def test_logits_are_the_formula():
    params = bt.Parameters(dtype="float64", seed=2)
    model = bt.nn.CharMLP(params, vocab=5, context=3, embedding=2, hidden=4)
    params.values[:] = [math.sin(k) for k in range(params.n)]
    rows = list(model.embedding.values)
    tokens = [4, 0, 4]
    x = [number for t in tokens for number in rows[2 * t : 2 * t + 2]]
    expected = dense(model.output, dense(model.hidden, x))
    for given in (tokens, tuple(tokens), array("B", tokens), memoryview(array("q", tokens))):
        assert model.logits(given) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
@pytest.mark.parametrize("bias", [True, False])
def test_linear_is_the_formula(activation, bias):
    params = bt.Parameters(dtype="float64", seed=1)
    layer = Linear(params, 3, 2, bias=bias, activation=activation, name="l")
    assert params.names == (["l.weight", "l.bias"] if bias else ["l.weight"])
    assert layer.n_parameters == params.n == 6 + 2 * bias
    params.values[:] = [math.cos(3 * k) for k in range(params.n)]
    x = [0.5, -2.0, 1.5]
    assert layer(x) == pytest.approx(dense(layer, x), rel=1e-12)
    assert layer(array("f", x)) == layer(x)


def test_mlp_is_its_layers():
    params = bt.Parameters(dtype="float64", seed=1)
    model = MLP(params, [3, 4, 4, 2], activation="relu")
    assert [layer.activation for layer in model.layers] == ["relu", "relu", "identity"]
    assert (model.n_in, model.n_out, model.n_parameters) == (3, 2, params.n)
    x = [0.5, -2.0, 1.5]
    expected = x
    for layer in model.layers:
        expected = dense(layer, expected)
    assert model(x) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda p: bt.nn.CharMLP(p, vocab=0), ValueError),
        (lambda p: bt.nn.CharMLP(p, hidden=0), ValueError),
        (lambda p: bt.nn.CharMLP(p, hidden=-1), ValueError),
        (lambda p: bt.nn.CharMLP(p, context=2**40, embedding=2**40), (ValueError, MemoryError)),
        (lambda p: bt.nn.CharMLP(p, name="taken"), ValueError),
        (lambda p: bt.nn.CharMLP(None), TypeError),
        (lambda p: Linear(p, 0, 2), ValueError),
        (lambda p: Linear(p, 2, 2, activation="swish"), ValueError),
        (lambda p: MLP(p, [3]), ValueError),
        (lambda p: MLP(p, [3, 0]), ValueError),
        (lambda p: MLP(p, "ab"), TypeError),
        (lambda p: MLP(p, [3, 2], activation="swish"), ValueError),
    ],
)
def test_a_model_that_cannot_be_made_appends_nothing(make, error):
    params = bt.Parameters()
    params.tensor(2, name="taken.output.bias")
    before = list(params.values)
    with pytest.raises(error):
        make(params)
    assert (list(params.values), params.names) == (before, ["taken.output.bias"])


@pytest.mark.parametrize(
    ("model", "name"),
    [
        *((bt.nn.CharMLP, name) for name in ("vocab", "context", "embedding", "hidden")),
        *((bt.nn.GPT, name) for name in ("vocab", "context", "layers", "heads", "width", "expansion")),
    ],
)
@pytest.mark.parametrize("size", [0, -1, -(2**70)])
def test_a_size_that_is_none_is_named(model, name, size):
    with pytest.raises(ValueError, match=rf"{name} must be at least 1, found {size}"):
        model(bt.Parameters(), **{name: size})
    with pytest.raises(TypeError, match="'float' object cannot be interpreted as an integer"):
        model(bt.Parameters(), **{name: 1.5})


def test_bad_inputs_are_refused():
    model = bt.nn.CharMLP(bt.Parameters(), vocab=5, context=3, embedding=2, hidden=4)
    for tokens, error in [
        ([0, 1], ValueError),
        ([0, 1, 5], IndexError),
        ([0, 1, -1], IndexError),
        ([0, 1, 2**70], IndexError),
        ([0, 1, 2.0], TypeError),
        (["a", 1, 2], TypeError),
        ("abc", TypeError),
        ([[0, 1, 2]], ValueError),
        (array("d", [0, 1, 2]), TypeError),
        (None, TypeError),
    ]:
        with pytest.raises(error):
            model.logits(tokens)
    mlp = MLP(bt.Parameters(), [2, 1])
    for x, error in [([1.0], ValueError), ([1.0, "a"], TypeError), ([[1.0], [2.0]], ValueError), (3.0, TypeError)]:
        with pytest.raises(error):
            mlp(x)


def test_a_sample_of_another_length_is_refused_with_both_lengths():
    params = bt.Parameters(dtype="float64", seed=1)
    for model in (bt.nn.Linear(params, 2, 2), bt.nn.MLP(params, [2, 3, 1])):
        with pytest.raises(ValueError, match="the number of inputs of a sample must be 2, found 3"):
            model([1.0, 2.0, 3.0])


def test_every_layer_shows_its_class_and_sizes():
    params = bt.Parameters()
    layers = {
        "Linear(2, 1": bt.nn.Linear(params, 2, 1),
        "MLP([2, 3, 1])": bt.nn.MLP(params, [2, 3, 1]),
        "Embedding(5, 3)": bt.nn.Embedding(params, 5, 3),
        "Embedding(5, 3, positions=7)": bt.nn.Embedding(params, 5, 3, positions=7),
        "LayerNorm(4, eps=1e-05)": bt.nn.LayerNorm(params, 4),
        "RMSNorm(4, eps=0.5)": bt.nn.RMSNorm(params, 4, eps=0.5),
        "CausalSelfAttention(6, heads=3)": bt.nn.CausalSelfAttention(params, 6, 3),
        "Block(6, heads=2, expansion=3, eps=1e-05)": bt.nn.Block(params, 6, 2, expansion=3),
        'Neuron(2, bias=False, activation="tanh")': bt.nn.Neuron(params, 2, bias=False, activation="tanh"),
        "CharMLP(": bt.nn.CharMLP(params),
        "GPT(": bt.nn.GPT(params),
    }
    kinds = {name for name in bt.nn.__all__ if isinstance(getattr(bt.nn, name), type)} - {"Module", "Tokens"}
    assert {type(layer).__name__ for layer in layers.values()} == kinds
    for shown, layer in layers.items():
        assert repr(layer).startswith(shown)
        assert repr(copy.deepcopy(layer)) == repr(layer)
