"""Predicted times of gradients of sets: their composition and use. No test depends on measured times."""

from __future__ import annotations

import numpy as np
import pytest

import burtorch as bt

PARTS = ("call", "loss", "sweep", "numbers", "ranges")


def model_and_batch(kind):
    params = bt.Parameters(seed=1)
    if kind == "gpt":
        model = bt.nn.GPT(params, vocab=7, context=4, layers=2, heads=2, width=8)
        return model, [[1, 2, 3, 4]] * 2, [[2, 3, 4, 5]] * 2
    if kind == "char":
        return bt.nn.CharMLP(params, vocab=7, context=3, embedding=8, hidden=64), [[1, 2, 3]] * 3, [4, 5, 6]
    return bt.nn.MLP(params, [3, 64, 64, 2]), [[0.1, 0.2, 0.3]], [1]


@pytest.mark.parametrize("kind", ["mlp", "char", "gpt"])
def test_a_cost_is_the_sum_of_its_parts(kind):
    model, x, y = model_and_batch(kind)
    params = model.params
    oracle = bt.Oracle(model)
    params.grads[:] = 3.0
    rng = np.random.default_rng(1)
    sets = [range(params.n), range(1), range(params.n - 1, params.n), np.flatnonzero(rng.random(params.n) < 0.3)]
    for wanted in [*sets, oracle.subset([0, params.n - 1])]:
        cost = oracle.cost(wanted, x, y)
        assert set(cost) == {"seconds", "bound", *PARTS}
        assert cost["seconds"] == pytest.approx(sum(cost[part] for part in PARTS), rel=1e-12)
        assert cost["bound"] == max(PARTS, key=lambda part: cost[part])
        assert all(cost[part] >= 0.0 for part in PARTS)
        assert cost["loss"] > 0.0
        assert cost["call"] > 0.0
    assert set(params.grads) == {3.0}


def test_more_costs_more():
    """Within one cost model: a lower tensor, more numbers, and more ranges cost more."""
    model, x, y = model_and_batch("mlp")
    oracle = bt.Oracle(model)
    oracle(x, y)
    # The most recent batch.
    low, high = oracle.cost(range(1)), oracle.cost(range(model.params.n - 1, model.params.n))
    assert low["loss"] == high["loss"]
    assert low["sweep"] >= 0.0
    some, many = oracle.cost(range(256, 300)), oracle.cost(range(256, 4000))
    assert some["numbers"] <= many["numbers"]
    fine = oracle.cost([300, 500, 700, 900])
    assert some["ranges"] <= fine["ranges"]
    # Measured once: the same results.
    assert oracle.cost(range(256, 300)) == some == oracle.cost(range(256, 300), x, y)


@pytest.mark.parametrize(
    ("kind", "targets"),
    [("mlp", "classes"), ("char", "classes"), ("gpt", "classes"), ("mlp", "numbers"), ("char", "numbers")],
)
def test_the_last_batch_is_measured_as_arrays(kind, targets):
    """A prediction without a batch leaves the last one, of any kind of inputs and targets, as it was."""
    model, x, y = model_and_batch(kind)
    if targets == "numbers":
        width = 2 if kind == "mlp" else 7
        y = [[0.25 * k for k in range(width)]] * len(x)
    oracle = bt.Oracle(model)
    loss, grad = oracle(x, y)
    full = np.array(grad)
    cost = oracle.cost(range(3))
    assert cost["call"] > 0.0
    assert cost == oracle.cost(range(3))
    assert list(model.params.grads) == list(full)
    assert oracle.loss(x, y) == loss


def test_costs_are_of_the_parameters_as_they_are():
    model, x, y = model_and_batch("mlp")
    oracle = bt.Oracle(model)
    stale = oracle.subset(range(3))
    assert oracle.cost(stale, x, y)["seconds"] > 0.0
    model.params.freeze((10, 200))
    with pytest.raises(ValueError, match="after the last change"):
        oracle.cost(stale, x, y)
    assert oracle.cost(range(3))["seconds"] > 0.0


def test_requests_without_a_cost_are_refused():
    model, _, y = model_and_batch("mlp")
    oracle = bt.Oracle(model)
    with pytest.raises(ValueError, match="no batch was given yet"):
        oracle.cost(range(3))
    with pytest.raises(ValueError, match="targets are for contexts"):
        oracle.cost(range(3), targets=y)
    with pytest.raises(ValueError, match="contexts must have shape"):
        oracle.cost(range(3), [[1.0]], y)
    w = model.params.tensor(2)
    with pytest.raises(ValueError, match=r"models of burtorch\.nn"):
        bt.Oracle(lambda row: (w * row).sum(), params=model.params).cost([1], [[1.0, 2.0]])
