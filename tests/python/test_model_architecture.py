"""Files and states of models with Tensors of equal length but different computations: each setting of each model."""

from __future__ import annotations

import copy
import pickle

import pytest

import burtorch as bt

nn = bt.nn


class Deep(nn.Module):
    """A user-defined class with layers in lists and dicts."""

    def __init__(self, params, heads=2, eps=1e-5, activation="relu"):
        self.blocks = [nn.Block(params, 8, heads, eps=eps)]
        self.more = {"last": nn.Linear(params, 8, 8, activation=activation)}
        self.model = nn.MLP(params, [8, 4, 2], activation=activation)
        self.unit = nn.Neuron(params, 3, activation=activation)


class Plain:
    def __init__(self, params, **settings):
        self.deep = Deep(params, **settings)


# A model, and settings that keep the shapes of its Tensors, with the words that the message must contain.
CASES = {
    "gpt heads": (lambda p, v: nn.GPT(p, 5, context=4, layers=1, heads=v, width=8), (2, 4), "heads"),
    "gpt eps": (lambda p, v: nn.GPT(p, 5, context=4, layers=1, heads=2, width=8, eps=v), (1e-5, 1e-3), "eps"),
    "mlp": (lambda p, v: nn.MLP(p, [3, 4, 2], activation=v), ("relu", "tanh"), "activation"),
    "mlp to none": (lambda p, v: nn.MLP(p, [3, 4, 2], activation=v), ("sigmoid", "identity"), "activation"),
    "linear": (lambda p, v: nn.Linear(p, 3, 4, activation=v), (None, "tanh"), "activation"),
    "linear relu": (lambda p, v: nn.Linear(p, 3, 4, activation=v), ("relu", "sigmoid"), "activation"),
    "norm": (lambda p, v: nn.LayerNorm(p, 3, eps=v), (1e-5, 1e-6), "eps"),
    "attention": (lambda p, v: nn.CausalSelfAttention(p, 8, v), (1, 8), "heads"),
    "block heads": (lambda p, v: nn.Block(p, 8, v), (2, 4), "attention.heads"),
    "block eps": (lambda p, v: nn.Block(p, 8, 2, eps=v), (1e-5, 1e-4), "norm1.eps"),
    "module heads": (lambda p, v: Deep(p, heads=v), (2, 4), "blocks.0.attention.heads"),
    "module eps": (lambda p, v: Deep(p, eps=v), (0.0, 1e-4), "blocks.0.norm1.eps"),
    "module activation": (lambda p, v: Deep(p, activation=v), ("relu", "tanh"), "more.last.activation"),
}


def made(name, which, seed=0):
    make, values, part = CASES[name]
    return make(bt.Parameters(dtype="float64", seed=seed), values[which]), part


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("name", CASES)
def test_a_file_of_another_architecture_is_refused_by_name(tmp_path, name, which):
    path = tmp_path / "m.safetensors"
    saved, part = made(name, which, seed=1)
    saved.save(path)
    other, _ = made(name, 1 - which, seed=2)
    before = list(other.params.values)
    with pytest.raises(bt.FormatError) as error:
        other.load(path)
    theirs, ours = ("identity" if v is None else v for v in (CASES[name][1][which], CASES[name][1][1 - which]))
    assert f"{part} is {theirs!r}, expected {ours!r}" in str(error.value)
    assert part in error.value.reason
    assert list(other.params.values) == before
    same, _ = made(name, which, seed=3)
    same.load(path)
    assert list(same.params.values) == list(saved.params.values)


@pytest.mark.parametrize("sent", [lambda s: s, copy.copy, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
@pytest.mark.parametrize("name", CASES)
def test_a_state_of_another_architecture_is_refused_by_name(name, sent):
    saved, part = made(name, 0, seed=1)
    state = sent(nn.state_dict(saved))
    other, _ = made(name, 1, seed=2)
    before = list(other.params.values)
    with pytest.raises(bt.FormatError, match=part):
        nn.load_state_dict(other, state)
    with pytest.raises(bt.FormatError, match=part):
        other.load_state_dict(state)
    assert list(other.params.values) == before
    same, _ = made(name, 0, seed=3)
    same.load_state_dict(state)
    assert same.state_dict() == saved.state_dict() == dict(state)


def test_states_of_plain_classes_are_compared_too():
    saved, other = Plain(bt.Parameters(), heads=2), Plain(bt.Parameters(), heads=4)
    with pytest.raises(bt.FormatError, match=r"deep.blocks.0.attention.heads is 2, expected 4"):
        nn.load_state_dict(other, nn.state_dict(saved))
    # A dict without a model description is matched by names and lengths.
    nn.load_state_dict(other, dict(nn.state_dict(saved)))
    assert nn.state_dict(other) == nn.state_dict(saved)


def test_models_of_different_kinds_are_refused_by_kind(tmp_path):
    path = tmp_path / "m.safetensors"
    nn.Linear(bt.Parameters(), 3, 2).save(path)
    with pytest.raises(bt.FormatError, match="'linear', expected 'mlp'"):
        nn.MLP(bt.Parameters(), [3, 2]).load(path)


def test_sizes_that_differ_are_named():
    params = bt.Parameters()
    saved = nn.CharMLP(params, vocab=5, context=2, embedding=6, hidden=4)
    other = nn.CharMLP(bt.Parameters(), vocab=5, context=3, embedding=4, hidden=4)
    with pytest.raises(bt.FormatError, match="context is 2, expected 3"):
        other.load_state_dict(saved.state_dict())
