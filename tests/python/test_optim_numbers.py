"""Optimisers, clipping and freezing act on exactly the given numbers, in every form of argument."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

import burtorch as bt

OPTIMIZERS = {
    "SGD": lambda given: bt.optim.SGD(given, lr=0.05),
    "SGD with decay": lambda given: bt.optim.SGD(given, lr=0.05, weight_decay=0.1),
    "SGD with momentum": lambda given: bt.optim.SGD(given, lr=0.05, momentum=0.9, weight_decay=0.1),
    "SGD with Nesterov's": lambda given: bt.optim.SGD(given, lr=0.05, momentum=0.9, nesterov=True),
    "Adam": lambda given: bt.optim.Adam(given, lr=0.05, weight_decay=0.1),
    "AdamW": lambda given: bt.optim.AdamW(given, lr=0.05, weight_decay=0.1),
}
DTYPES = ("float32", "float64")


class Net(bt.nn.Module):
    def __init__(self, params):
        self.body = bt.nn.Linear(params, 5, 7)
        self.norm = bt.nn.LayerNorm(params, 9)
        self.head = bt.nn.Linear(params, 7, 3)
        self.tied = self.head.weight


class PlainNet:
    """Also stores its Parameters, which hold other numbers too."""

    def __init__(self, params):
        self.params = params
        self.layers = [bt.nn.Linear(params, 3, 2), {"last": bt.nn.Linear(params, 2, 9)}]


def everything(dtype):
    """Parameters with an object of each kind, and numbers in between."""
    params = bt.Parameters(dtype=dtype, seed=3)
    made = {"first": params.tensor((3, 11), name="first")}
    for name, make in {
        "net": Net,
        "plain": PlainNet,
        "mlp": lambda p: bt.nn.MLP(p, [3, 6, 2], activation="tanh"),
        "char": lambda p: bt.nn.CharMLP(p, vocab=5, context=3, embedding=4, hidden=6),
        "gpt": lambda p: bt.nn.GPT(p, vocab=6, context=4, layers=1, heads=2, width=8),
        "neuron": lambda p: bt.nn.Neuron(p, 4, activation="tanh"),
        "embedding": lambda p: bt.nn.Embedding(p, 6, 3, positions=4),
        "attention": lambda p: bt.nn.CausalSelfAttention(p, 8, 2),
        "block": lambda p: bt.nn.Block(p, 8, 2),
        "odd": lambda p: p.tensor(13),
    }.items():
        made[name] = make(params)
        params.tensor(5, name=f"after {name}")
    return params, SimpleNamespace(**made)


def places(*tensors):
    return sorted({k for tensor in tensors for k in range(*tensor.span)})


def of(model):
    return list(bt.nn.parameters(model))


# Arguments, and the Tensors they denote. A function, because a generator can be used once.
GIVEN = {
    "tensor": lambda m: (m.odd, [m.odd]),
    "row": lambda m: (m.first[1], [m.first[1]]),
    "rows": lambda m: (m.first[1:3], [m.first[1], m.first[2]]),
    "list of tensors": lambda m: ([m.odd, m.first[2]], [m.odd, m.first[2]]),
    "tensors that overlap": lambda m: ([m.first, m.first[1], m.first], [m.first]),
    "tuple": lambda m: ((m.odd,), [m.odd]),
    "set": lambda m: ({m.odd, m.net.head.bias}, [m.odd, m.net.head.bias]),
    "dict": lambda m: ({"a": m.odd, "b": m.net.head}, [m.odd, *of(m.net.head)]),
    "generator": lambda m: ((t for t in [m.odd, m.first]), [m.odd, m.first]),
    "nested": lambda m: (
        [m.odd, [m.net.head, (m.mlp, [m.first[0]])]],
        [m.odd, *of(m.net.head), *of(m.mlp), m.first[0]],
    ),
    "parameters()": lambda m: (m.net.parameters(), of(m.net)),
    "nn.parameters": lambda m: (bt.nn.parameters(m.plain), of(m.plain)),
    "values of a dict": lambda m: (dict(m.gpt.named_parameters()).values(), of(m.gpt)),
    "module": lambda m: (m.net, of(m.net)),
    "layer": lambda m: (m.net.head, of(m.net.head)),
    "norm": lambda m: (m.net.norm, of(m.net.norm)),
    "layer of a built-in model": lambda m: (m.char.hidden, of(m.char.hidden)),
    "plain class": lambda m: (m.plain, of(m.plain)),
    "list of layers": lambda m: (m.plain.layers, of(m.plain)),
    "mlp": lambda m: (m.mlp, of(m.mlp)),
    "char mlp": lambda m: (m.char, of(m.char)),
    "gpt": lambda m: (m.gpt, of(m.gpt)),
    "neuron": lambda m: (m.neuron, [m.neuron.weight, m.neuron.bias]),
    "neurons": lambda m: ([m.neuron], [m.neuron.weight, m.neuron.bias]),
    "embedding": lambda m: (m.embedding, of(m.embedding)),
    "attention": lambda m: (m.attention, of(m.attention)),
    "block": lambda m: (m.block, of(m.block)),
    "with frozen parts": lambda m: (m.block.up.weight.freeze() or m.block, of(m.block)),
}


def draw_gradients(params, t, inside=None):
    """Numbers that depend on the position and the step; zeros outside ``inside``, if given."""
    draw = random.Random(t)
    grads = [draw.uniform(-1.0, 1.0) for _ in range(len(params))]
    if inside is not None:
        grads = [g if k in inside else 0.0 for k, g in enumerate(grads)]
    for k, g in enumerate(grads):
        params.grads[k] = g


def bits(numbers):
    return [float(x).hex() for x in numbers]


def frozen_places(tensors):
    return {k for tensor in tensors if not tensor.trainable for k in range(*tensor.span)}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", GIVEN)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_change_only_the_given_numbers(name, kind, dtype):
    params, made = everything(dtype)
    given, tensors = GIVEN[kind](made)
    inside = set(places(*tensors))
    fixed = frozen_places(tensors)
    whole, _ = everything(dtype)
    for place in sorted(fixed):
        whole.freeze((place, place + 1))
    part, all_of_it = OPTIMIZERS[name](given), OPTIMIZERS[name](whole)
    assert part.params is params
    start = bits(params.values)
    for t in range(4):
        draw_gradients(params, t)
        draw_gradients(whole, t, inside)
        part.step()
        all_of_it.step()
    after, wanted = bits(params.values), bits(whole.values)
    outside = [k for k in range(len(params)) if k not in inside]
    assert outside
    assert [after[k] for k in outside] == [start[k] for k in outside]
    assert [after[k] for k in sorted(inside)] == [wanted[k] for k in sorted(inside)]
    assert all((after[k] != start[k]) == (k not in fixed) for k in inside)
    # Its state covers these numbers only.
    assert part.state_bytes * len(params) == all_of_it.state_bytes * len(inside)
    # And so does zeroing gradients.
    before = bits(params.grads)
    part.zero_grad()
    zeroed = bits(params.grads)
    assert all(zeroed[k] == (bits([0.0])[0] if k in inside - fixed else before[k]) for k in range(len(params)))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_state_is_of_the_numbers_given(name):
    def run(again):
        params, made = everything("float64")
        optimizer = OPTIMIZERS[name](made.net)
        for t in range(6):
            if t == 3 and again:
                state = optimizer.save_state()
                with pytest.raises(ValueError) if optimizer.state_bytes else pytest.MonkeyPatch.context():
                    OPTIMIZERS[name](made.mlp).load_state(state)
                optimizer = OPTIMIZERS[name](made.net)
                optimizer.load_state(state)
            draw_gradients(params, t)
            optimizer.step()
        return bits(params.values)

    assert run(again=True) == run(again=False)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", GIVEN)
def test_a_clip_scales_only_the_given_numbers(kind, dtype):
    params, made = everything(dtype)
    given, tensors = GIVEN[kind](made)
    inside = sorted(set(places(*tensors)) - frozen_places(tensors))
    draw_gradients(params, 1)
    for tensor in tensors:
        if not tensor.trainable:
            tensor.freeze()  # which zeroes its gradients again
    before = list(params.grads)
    norm = sum(before[k] ** 2 for k in inside) ** 0.5
    assert bt.optim.clip_grad_norm(given, 0.25) == pytest.approx(norm, rel=1e-5)
    after = list(params.grads)
    assert sum(after[k] ** 2 for k in inside) ** 0.5 == pytest.approx(0.25, rel=1e-4)
    outside = set(range(len(params))) - set(inside)
    assert all(after[k] == before[k] for k in outside)


@pytest.mark.parametrize("kind", GIVEN)
def test_a_freeze_freezes_only_the_given_numbers(kind):
    params, made = everything("float64")
    given, tensors = GIVEN[kind](made)
    inside = places(*tensors)
    for tensor in tensors:
        tensor.unfreeze()

    def trainable():
        return {k for k in range(len(params)) if not is_frozen(params, k)}

    everywhere = trainable()
    params.freeze(given)
    assert trainable() == everywhere - set(inside)
    given, _ = GIVEN[kind](made)
    for tensor in tensors:
        tensor.freeze()
    params.unfreeze(given)
    assert params.n_trainable == len(params)


def is_frozen(params, k):
    """Freezing again changes nothing."""
    before = params.n_trainable
    params.freeze((k, k + 1))
    if params.n_trainable == before:
        return True
    params.unfreeze((k, k + 1))
    return False


def test_names_pairs_and_mixtures_are_frozen_together_or_not_at_all():
    params, made = everything("float32")
    params.freeze(["first", (33, 35), made.odd])
    assert len(params) - params.n_trainable == 33 + 2 + 13
    before = params.n_trainable
    others = bt.Parameters().tensor(2)
    for wrong, error in [
        (["after net", "no such name"], KeyError),
        ([made.mlp, others], ValueError),
        (others, bt.GraphMismatchError),
        ([made.mlp, 3], TypeError),
        ([made.mlp, (0, 10**9)], ValueError),
        ([], ValueError),
        (3.5, TypeError),
        (bt.Value(1.0), TypeError),
    ]:
        with pytest.raises(error):
            params.freeze(wrong)
        assert params.n_trainable == before
    made.net.freeze()
    assert before - params.n_trainable == made.net.n_parameters - 2  # two were frozen above
    made.net.unfreeze()
    assert params.n_trainable == before + 2


def test_a_module_sets_its_own_gradients_to_zero():
    params, made = everything("float64")
    draw_gradients(params, 0)
    before = list(params.grads)
    made.net.zero_grad()
    inside = set(places(*of(made.net)))
    assert all(g == (0.0 if k in inside else before[k]) for k, g in enumerate(params.grads))


def test_parameters_mean_later_tensors_too_and_a_list_does_not():
    params = bt.Parameters(dtype="float64")
    first = params.tensor(2, init=1.0)
    whole, part = bt.optim.SGD(params, lr=0.5, momentum=0.5), bt.optim.SGD([first], lr=0.5, momentum=0.5)
    params.tensor(2, init=1.0)
    params.grads[:] = [1.0] * 4
    part.step()
    assert list(params.values) == [0.5, 0.5, 1.0, 1.0]
    whole.step()
    assert list(params.values) == [0.0, 0.0, 0.5, 0.5]


VALUES = {
    "value": lambda values: (values[1], [1]),
    "list": lambda values: ([values[0], values[2]], [0, 2]),
    "generator": lambda values: ((v for v in values[:2]), [0, 1]),
    "twice": lambda values: ([values[0], values[0]], [0]),
    "nested": lambda values: ([values[0], (values[3], [values[1]])], [0, 1, 3]),
    "model": lambda values: (SimpleNamespace(parameters=lambda: values[2:]), [2, 3]),
}


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_values_are_moved_one_by_one(name, kind):
    values, alone = ([bt.Value(0.5 * k - 1.0) for k in range(4)] for _ in range(2))
    given, chosen = VALUES[kind](values)
    part, whole = OPTIMIZERS[name](given), OPTIMIZERS[name](alone)
    start = [v.data for v in values]
    for t in range(3):
        for k in range(4):
            values[k].grad = alone[k].grad = 0.3 * k - 0.5 + t
        part.step()
        whole.step()
    assert [v.data for v in values] == [alone[k].data if k in chosen else start[k] for k in range(4)]
    part.zero_grad()
    assert [v.grad == 0.0 for v in values] == [k in chosen for k in range(4)]


def test_gradients_of_values_are_clipped():
    values = [bt.Value(1.0) for _ in range(3)]
    for v, g in zip(values, (3.0, 4.0, 12.0)):
        v.grad = g
    assert bt.optim.clip_grad_norm(values[:2], 1.0) == 5.0
    assert [round(v.grad, 5) for v in values] == [0.6, 0.8, 12.0]


def test_invalid_arguments_are_refused_by_name():
    first, second = bt.Parameters().tensor(2), bt.Parameters().tensor(2)
    endless: list[object] = []
    endless.append(endless)
    for make in [*OPTIMIZERS.values(), lambda given: bt.optim.clip_grad_norm(given, 1.0)]:
        for wrong, error, message in [
            ([first, second], ValueError, "two Parameters"),
            ([first, bt.Value(1.0)], TypeError, "beside Values"),
            ([first, 3.0], TypeError, "found float"),
            ("first", TypeError, "found str"),
            (None, TypeError, "found NoneType"),
            ([], ValueError, "no numbers"),
            (iter([]), ValueError, "no numbers"),
            (endless, TypeError, "deeper"),
            (object(), TypeError, "found object"),
        ]:
            with pytest.raises(error, match=message):
                make(wrong)


def test_an_error_of_a_generator_comes_through():
    def broken():
        yield bt.Parameters().tensor(1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bt.optim.Adam(broken())
