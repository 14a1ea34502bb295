"""Dense models and optimisers on Values: Values in, Values out, with the numbers of the block path; and the
guarantees of ``graph.memory()`` for a fixed graph."""

from __future__ import annotations

import random

import pytest

import burtorch as bt
from burtorch import Value


def mlp(dtype="float64", activation="tanh"):
    return bt.nn.MLP(bt.Parameters(dtype=dtype, seed=5), [3, 17, 4, 2], activation=activation)


@pytest.mark.parametrize("activation", ["tanh", "relu", "sigmoid", "identity"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_values_give_the_numbers_of_the_block_path(dtype, activation):
    model, graph = mlp(dtype, activation), bt.Graph(dtype)
    rng = random.Random(0)
    for _ in range(20):
        numbers = [rng.gauss(0, 1) for _ in range(3)]
        values = [Value(x, graph=graph) for x in numbers]
        wanted = model(numbers)
        for x in (values, tuple(values), graph.vector(numbers), (v for v in values), [values[0], *numbers[1:]]):
            y = model(x)
            assert (type(y), list(y.data)) == (bt.Vector, wanted)
        assert list(model.layers[0](values).data) == model.layers[0](numbers)
        assert isinstance(model(numbers), list)


def test_gradients_are_those_of_the_oracle():
    model = mlp(activation="tanh")
    x, target = [0.5, -1.0, 2.0], [0.3, -0.2]
    _, wanted = bt.Oracle(model)([x], [target])
    wanted = list(wanted)
    model.params.zero_grad()
    values = [Value(number) for number in x]
    y = model(values)
    loss = ((y - target) ** 2).mean()
    loss.backward()
    assert list(model.params.grads) == pytest.approx(wanted, rel=1e-12)
    step = 1e-6
    for k, value in enumerate(values):
        moved = [[number + d * (j == k) for j, number in enumerate(x)] for d in (-step, step)]
        low, high = (bt.Oracle(model).loss([m], [target]) for m in moved)
        assert value.grad == pytest.approx((high - low) / (2 * step), rel=1e-6)


def test_misuse_of_models_changes_nothing():
    model, graph = mlp(), bt.Graph()
    x = graph.vector([1.0, 2.0, 3.0])
    n = len(graph)
    with pytest.raises(ValueError, match="takes 3 inputs, found 2"):
        model(x[:2])
    with pytest.raises(TypeError, match="dtype"):
        mlp("float32")(x)
    with pytest.raises(bt.GraphMismatchError):
        model([x[0], 1.0, Value(2.0)])
    for wrong in (["a", x[0], 1.0], "abc", None, [None] * 3):
        with pytest.raises(TypeError):
            model(wrong)
    assert len(graph) == n
    full = bt.Graph(capacity=10, fixed=True)
    with pytest.raises(bt.GraphFullError):
        model(full.vector([1.0, 2.0, 3.0]))
    assert len(full) == 3


RULES = [
    (bt.optim.SGD, {}),
    (bt.optim.SGD, {"momentum": 0.9}),
    (bt.optim.SGD, {"momentum": 0.5, "nesterov": True, "weight_decay": 0.1}),
    (bt.optim.Adam, {}),
    (bt.optim.Adam, {"betas": (0.5, 0.75), "weight_decay": 0.25}),
    (bt.optim.AdamW, {"weight_decay": 0.5}),
]


@pytest.mark.parametrize(("optimiser", "rule"), RULES)
def test_an_optimiser_of_values_moves_as_one_of_parameters(optimiser, rule):
    params = bt.Parameters(dtype="float64")
    w = params.tensor(3)
    start = [1.0, -2.0, 0.5]
    w.values[:] = start
    values = [Value(x) for x in start]
    of_values, of_params = optimiser(values, lr=0.1, **rule), optimiser(params, lr=0.1, **rule)
    for step in range(10):
        if step == 5:
            state = of_values.save_state()
            assert state == of_params.save_state()
            of_values = optimiser(iter(values), lr=0.5)
            of_values.load_state(state)
        of_values.zero_grad()
        of_params.zero_grad()
        (bt.reduce_sum_of_squares(values) + values[0] * values[1]).backward()
        (bt.reduce_sum_of_squares(w) + w[0] * w[1]).backward()
        of_values.step()
        of_params.step()
        assert [v.data for v in values] == list(w.values)
    of_values.lr = 0.0
    before = [v.data for v in values]
    of_values.step()
    assert [v.data for v in values] == before


def test_misuse_of_optimisers_changes_nothing():
    graph, other = bt.Graph(), bt.Graph("float32")
    a, b = Value(1.0, graph=graph), Value(2.0, graph=other)
    sgd = bt.optim.SGD((v for v in (a, b)), lr=0.5)
    a.grad, b.grad = 1.0, 2.0
    sgd.step()
    assert (a.data, b.data) == (0.5, 1.0)
    sgd.zero_grad()
    assert (a.grad, b.grad) == (0.0, 0.0)
    for wrong in ([a, 1.0], [None], 1.0, "a", [Value([1.0, 2.0], graph=bt.Graph("float64x2"))]):
        with pytest.raises(TypeError):
            bt.optim.SGD(wrong)
    with pytest.raises(ValueError, match="at least one"):
        bt.optim.SGD([])
    with pytest.raises(ValueError, match="leaves"):
        bt.optim.SGD([a, a * 2])
    a.grad = b.grad = 1.0
    other.clear()
    for call in (sgd.step, sgd.zero_grad):
        with pytest.raises(bt.StaleValueError):
            call()
    assert (a.data, a.grad) == (0.5, 1.0)


def test_micrograd_parameters_are_optimised():
    random.seed(1)
    model = bt.micrograd.MLP(2, [8, 1])
    sgd = bt.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for _ in range(30):
        loss = sum((model([x, y]) - x * y) ** 2 for x in (-1.0, 1.0) for y in (-1.0, 1.0))
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        losses.append(loss.data)
    assert losses[-1] < 0.3 * losses[0]


def test_memory_of_a_fixed_graph_is_bounded_exactly():
    graph = bt.Graph(capacity=1000, fixed=True)
    bound = graph.memory()["bound"]
    assert bound == graph.memory()["reserved"] >= 1000 * 25
    assert bt.Graph().memory()["bound"] is None
    with pytest.raises(bt.GraphFullError):
        x = Value(1.0, graph=graph)
        while True:
            x = x * 1.5
    x.backward()
    memory = graph.memory()
    assert (memory["reserved"], memory["nodes"] <= 1000, memory["reclaimed"]) == (bound, True, 0)
    assert sum(memory[column] for column in ("opcodes", "operands", "values", "adjoints", "leaves")) <= bound
