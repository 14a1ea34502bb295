"""Copies and pickles of Tensors, layers, models and optimisers, with a copy of their Parameters or over the same."""

import copy
import pickle

import pytest

import burtorch as bt


class Net(bt.nn.Module):
    def __init__(self, params):
        self.first = bt.nn.Linear(params, 3, 4, activation="relu", name="first")
        self.rest = [bt.nn.Linear(params, 4, 4, bias=False), bt.nn.Neuron(params, 4)]
        self.note = {"kind": "test"}


class OwnMLP(bt.nn.MLP):
    """A built-in model with arguments and attributes of its own."""

    def __new__(cls, *args, **keywords):
        return super().__new__(cls, *args, **keywords)

    def __init__(self, *args, **keywords):
        self.rounds = 3


MODELS = {
    "tensor": lambda p: p.tensor((2, 3), name="w", init="normal"),
    "unnamed tensor": lambda p: p.tensor(4, init="normal"),
    "core linear": lambda p: bt._core.Linear(p, 3, 2, False, "sigmoid"),
    "linear": lambda p: bt.nn.Linear(p, 3, 4, activation="tanh", name="layer"),
    "neuron": lambda p: bt.nn.Neuron(p, 3),
    "mlp": lambda p: bt.nn.MLP(p, [3, 4, 4, 2], "relu", name="m"),
    "mlp of one layer": lambda p: bt.nn.MLP(p, [3, 2], bias=False),
    "own mlp": lambda p: OwnMLP(p, [3, 4, 2], activation="sigmoid"),
    "characters": lambda p: bt.nn.CharMLP(p, 5, 3, 4, 6, name="c"),
    "gpt": lambda p: bt.nn.GPT(p, 7, 4, 2, 2, 8, expansion=2, eps=1e-3, final_norm=True, name="g"),
    "embedding": lambda p: bt.nn.Embedding(p, 5, 4, positions=3),
    "layer norm": lambda p: bt.nn.LayerNorm(p, 4),
    "rms norm": lambda p: bt.nn.RMSNorm(p, 4),
    "block": lambda p: bt.nn.Block(p, 8, 2),
    "attention": lambda p: bt.nn.CausalSelfAttention(p, 8, 2),
    "module": Net,
    "list": lambda p: [bt.nn.Linear(p, 2, 2), p.tensor(3, init="normal")],
}
COPIES = {
    "deepcopy": copy.deepcopy,
    **{f"pickle {k}": lambda x, k=k: pickle.loads(pickle.dumps(x, protocol=k)) for k in range(6)},
}


def tensors(model):
    if isinstance(model, bt._core.Tensor):
        return [("", model)]
    if isinstance(model, bt._core.Linear):
        return model.named_tensors()
    return list(bt.nn.named_parameters(model))


def made(kind, dtype):
    """A model behind other numbers, a part of it frozen, with gradients."""
    params = bt.Parameters(dtype=dtype, seed=3)
    params.tensor(5, name="before")
    model = MODELS[kind](params)
    params.tensor(2, name="after")
    params.grads[:] = list(range(len(params)))
    tensors(model)[0][1].freeze()
    return params, model


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("kind", MODELS)
def test_a_copy_has_its_own_numbers_at_the_same_places(kind, how, dtype):
    params, model = made(kind, dtype)
    again = COPIES[how](model)
    assert type(again) is type(model)
    assert repr(again).split(" at 0x")[0] == repr(model).split(" at 0x")[0]
    ours, theirs = tensors(model), tensors(again)
    assert [(name, t.span, t.shape, t.name) for name, t in theirs] == [(n, t.span, t.shape, t.name) for n, t in ours]
    copied = theirs[0][1].params
    assert copied is not params
    assert all(t.params is copied for _, t in theirs)
    assert list(copied.values) == list(params.values)
    assert list(copied.grads) == list(params.grads)
    assert (copied.names, copied.n_trainable, copied.dtype) == (params.names, params.n_trainable, params.dtype)
    before = list(params.values)
    copied.values[:] = [0.25] * len(copied)
    assert list(params.values) == before


@pytest.mark.parametrize("kind", set(MODELS) - {"tensor", "unnamed tensor", "list"})
def test_a_shallow_copy_has_the_same_numbers(kind):
    params, model = made(kind, "float64")
    again = copy.copy(model)
    assert [t.span for _, t in tensors(again)] == [t.span for _, t in tensors(model)]
    assert all(t.params is params for _, t in tensors(again))
    assert len(params) == tensors(model)[-1][1].span[1] + 2


def test_a_copied_model_computes_the_same():
    params = bt.Parameters(dtype="float64", seed=0)
    mlp, chars, gpt = bt.nn.MLP(params, [3, 4, 2], "relu"), bt.nn.CharMLP(params, 5, 3, 4, 6), bt.nn.GPT(params, 7, 4)
    params.values[:] = [0.01 * k % 0.7 for k in range(len(params))]
    again = copy.deepcopy({"mlp": mlp, "chars": chars, "gpt": gpt, "params": params})
    assert again["mlp"].params is again["chars"].params is again["gpt"].params is again["params"]
    assert again["mlp"]([1.0, -2.0, 0.5]) == mlp([1.0, -2.0, 0.5])
    assert again["chars"].logits([0, 4, 2]) == chars.logits([0, 4, 2])
    assert again["gpt"].logits([6, 1]) == gpt.logits([6, 1])
    batch = [[0, 4, 2], [1, 1, 3]], [2, 0]
    loss, grad = bt.Oracle(chars)(*batch)
    loss_again, grad_again = bt.Oracle(again["chars"])(*batch)
    assert (loss_again, list(grad_again)) == (loss, list(grad))


def test_attributes_of_subclasses_are_copied():
    params = bt.Parameters(seed=0)
    model = OwnMLP(params, [3, 4, 2], "sigmoid")
    model.note = ["first"]
    for how in COPIES.values():
        again = how(model)
        assert (again.rounds, again.note, again.layers[0]._activation) == (3, ["first"], "sigmoid")
        assert again.note is not model.note
    assert copy.deepcopy(Net(params)).note == {"kind": "test"}


OPTIMISERS = {
    "sgd": lambda of: bt.optim.SGD(of, lr=0.2),
    "momentum": lambda of: bt.optim.SGD(of, lr=0.2, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda of: bt.optim.Adam(of, lr=0.2, betas=(0.8, 0.9), eps=1e-6, weight_decay=0.1),
    "adamw": lambda of: bt.optim.AdamW(of, lr=0.2, weight_decay=0.3),
    "own": lambda of: OwnAdam(of, lr=0.2),
}


class OwnAdam(bt.optim.Adam):
    pass


@pytest.mark.parametrize("part", ["all", "tensor", "tensors"])
@pytest.mark.parametrize("steps", [0, 3])
@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("kind", OPTIMISERS)
def test_a_copied_optimiser_goes_on_as_the_first(kind, how, steps, part):
    params = bt.Parameters(dtype="float64", seed=1)
    a, _, c = params.tensor(3, init="normal"), params.tensor(2, init="normal"), params.tensor((2, 2), init="normal")
    optimiser = OPTIMISERS[kind]({"all": params, "tensor": c, "tensors": [c, a]}[part])
    if kind == "own":
        optimiser.note = [kind]

    def step(optimiser, k):
        optimiser.params.grads[:] = [0.1 * (k + j) - 0.3 for j in range(9)]
        optimiser.step()

    for k in range(steps):
        step(optimiser, k)
    again = COPIES[how](optimiser)
    assert type(again) is type(optimiser)
    assert again.params is not params
    assert (again.lr, again.weight_decay, again.state_bytes) == (
        optimiser.lr,
        optimiser.weight_decay,
        optimiser.state_bytes,
    )
    for k in range(3):
        step(optimiser, k)
        step(again, k)
        assert list(again.params.values) == list(params.values)
    assert getattr(again, "note", None) == (["own"] if kind == "own" else None)


def test_model_and_optimiser_are_copied_together():
    model = bt.nn.MLP(bt.Parameters(dtype="float64", seed=0), [2, 3, 1])
    sgd = bt.optim.SGD(model, momentum=0.5)
    both = copy.deepcopy((model, sgd))
    assert both[0].params is both[1].params is not model.params
    assert copy.copy(sgd).params is model.params


def test_what_cannot_be_copied_says_so():
    with bt.Graph():
        x = bt.Value(1.0)
        sgd = bt.optim.SGD([x])
        for how in (copy.deepcopy, copy.copy, pickle.dumps):
            with pytest.raises(
                TypeError, match="an optimiser of Values cannot be copied or pickled without their graph"
            ):
                how(sgd)


@pytest.mark.parametrize("start", [1, 10**6, 2**40])
def test_a_damaged_pickle_changes_nothing(start):
    params = bt.Parameters(seed=0)
    layer = bt._core.Linear(params, 3, 2)
    for make in (
        lambda: bt._core.Linear(params, 3, 2, _start=start),
        lambda: bt.nn.MLP(params, [3, 2], _start=start),
        lambda: bt.nn.CharMLP(params, 2, 1, 1, 1, _start=start),
        lambda: bt.nn.GPT(params, 2, 1, 1, 1, 1, _start=start),
        lambda: bt._core._unpickle_tensor(params, start, [8], None),
    ):
        with pytest.raises(ValueError, match="range of parameters"):
            make()
        assert len(params) == layer.n_parameters == 8
        # The next tensor is a new one.
    assert params.tensor(2).span == (8, 10)
