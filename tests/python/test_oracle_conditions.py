"""Python's decisions in the callable of an oracle: the answer is that of every sample alone, or an error."""

from __future__ import annotations

import operator

import numpy as np
import pytest

import burtorch as bt

X = np.random.default_rng(0).normal(size=(9, 3))
Y = np.array([0, 1, 2, 1, 0, 2, 2, 1, 1])
W = np.array([0.3, -0.2, 0.5])


def matched(y):
    match y:
        case 1:
            return 3.0
        case 0 | 2:
            return 1.0
        case _:
            return 7.0


CONDITIONS = {
    "==": lambda y: 3.0 if y == 1 else 1.0,
    "!=": lambda y: 3.0 if y != 1 else 1.0,
    "reflected ==": lambda y: 3.0 if operator.eq(1.0, y) else 1.0,
    "numpy's integer": lambda y: 3.0 if y == np.int64(1) else 1.0,
    "<": lambda y: 3.0 if y < 1 else 1.0,
    ">=": lambda y: 3.0 if y >= 1 else 1.0,
    "in a tuple": lambda y: 3.0 if y in (1, 2) else 1.0,
    "in a set": lambda y: 3.0 if y in {1, 2} else 1.0,
    "bool": lambda y: 3.0 if y else 1.0,
    "not": lambda y: 3.0 if not y else 1.0,
    "match": matched,
    "dict": lambda y: {0: 1.0, 1: 3.0, 2: 5.0}[y],
    "dict with a default": lambda y: {0: 1.0, 1: 3.0}.get(y, 2.0),
    "int": lambda y: 1.0 + int(y),
    "float": lambda y: 1.0 + float(y),
    "index": lambda y: [1.0, 3.0, 5.0][y],
    "hash": lambda y: 1.0 + hash(y) % 3,
    "count": lambda y: 1.0 + [1, 1, 2].count(y),
    "list": lambda y: 3.0 if [y] == [1] else 1.0,
    "any": lambda y: 3.0 if any(y == k for k in (1, 2)) else 1.0,
    "data": lambda y: 3.0 if getattr(y, "data", y) == 1 else 1.0,
    "numpy.equal": lambda y: 3.0 if np.equal(y, 1) else 1.0,
    "numpy.isclose": lambda y: 3.0 if np.isclose(y, 1) else 1.0,
    "one-hot": lambda y: 1.0 + np.eye(3)[int(y)] @ [1.0, 2.0, 3.0],
    "where": lambda y: bt.where(y == 1, 3.0, 1.0),
    "numpy.where": lambda y: np.where(y == 1, 3.0, 1.0),
    "format": lambda y: {"0": 1.0, "1": 3.0, "2": 5.0}[f"{y:.0f}"],
    "sorted": lambda y: 1.0 + float(sorted([y, 1])[0]),
}
ALONE = {"index"}
"""Conditions of integers only."""


def calls(oracle, labels, w):
    """Every way to call an oracle: its name, and an array for the result."""
    yield "loss", lambda: oracle.loss(X, labels)
    yield "losses", lambda: oracle.losses(X, labels)
    yield "grad", lambda: oracle.grad(X, labels)
    yield "call", lambda: oracle(X, labels)[1]
    yield "subset", lambda: oracle.grad(X, labels, wanted=[w])
    yield "per_sample_grads", lambda: oracle.per_sample_grads(X, labels)

    def streamed():
        gradient = np.zeros(3)
        oracle.stream(X, labels, lambda part, numbers: gradient.__setitem__(slice(part.start, part.stop), numbers))
        return gradient

    yield "stream", streamed


def expected(condition, labels):
    factor = np.array([condition(y) for y in labels.tolist()], float)
    z = X @ W
    losses, each = factor * z * z, (2 * factor * z)[:, None] * X
    mean = each.mean(axis=0)
    found = {"loss": losses.mean(), "losses": losses, "per_sample_grads": each}
    return {
        name: found.get(name, mean)
        for name in ("loss", "losses", "grad", "call", "subset", "per_sample_grads", "stream")
    }


@pytest.mark.parametrize("lanes", ["auto", 1, 4, 8])
@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("labels", [Y, Y.astype(float)], ids=["integers", "floats"])
def test_a_decision_is_that_of_each_sample_or_an_error(labels, condition, lanes):
    if labels.dtype == float and condition in ALONE:
        pytest.skip("floats are not indices")
    decide = CONDITIONS[condition]
    params = bt.Parameters(dtype="float64")
    w = params.tensor(3)
    w.values[:] = W.tolist()

    def loss(x, y):
        z = bt.inner_product(x, w)
        return decide(y) * z * z

    oracle = bt.Oracle(loss, params=params, lanes=lanes)
    n_right = 0
    for name, call in calls(oracle, labels, w):
        try:
            found = call()
        except (ValueError, TypeError):
            continue
        np.testing.assert_allclose(found, expected(decide, labels)[name], rtol=1e-12, err_msg=name)
        n_right += 1
    if lanes == 1 and condition not in {"int", "float", "format"}:
        assert n_right == 7
    # Gradients of single samples are computed sample by sample, whatever the lanes.
    if condition not in {"int", "float", "format", "where", "numpy.where"}:
        assert n_right >= 1


@pytest.mark.parametrize("labels", [Y, Y.astype(float)], ids=["integers", "floats"])
def test_the_error_says_what_to_do(labels):
    params = bt.Parameters(dtype="float64")
    w = params.tensor(3, init=0.5)
    for lanes in ("auto", 4):
        oracle = bt.Oracle(lambda x, y: (x @ w) * (3.0 if y == 1 else 1.0), params=params, lanes=lanes)
        with pytest.raises(ValueError, match=r"the samples of this group differ.*bt.where.*lanes=1"):
            oracle(X, labels)


@pytest.mark.parametrize("lanes", ["auto", 1, 4])
@pytest.mark.parametrize("label", [1, 1.0])
def test_samples_that_agree_take_one_way(label, lanes):
    params = bt.Parameters(dtype="float64")
    w = params.tensor(3, init=0.5)
    conditions = [c for name, c in CONDITIONS.items() if name not in ALONE]
    for decide in conditions:
        oracle = bt.Oracle(lambda x, y, decide=decide: (x @ w) * decide(y), params=params, lanes=lanes)
        found = oracle.grad(X, np.full(9, label))
        np.testing.assert_allclose(found, decide(label) * X.mean(axis=0), rtol=1e-12)


def test_ids_of_a_row_are_compared_one_by_one():
    params = bt.Parameters(dtype="float64")
    table = params.tensor((4, 2), init=1.0)

    def loss(ids, y):
        return bt.gather(table, ids).sum() * (2.0 if ids[0] == ids[1] else 1.0) + (1.0 if ids[0] != y else 0.0)

    x, y = np.array([[1, 1], [2, 3], [3, 3]]), np.array([1, 1, 3])
    assert list(bt.Oracle(loss, params=params, lanes=1).losses(x, y)) == [8.0, 5.0, 8.0]
    for wrong in (
        lambda ids, y: ids == 1,
        lambda ids, y: bool(ids),
        lambda ids, y: ids != [1, 1],
        lambda ids, y: int(ids),
    ):
        with pytest.raises(ValueError, match="one token id, found 2"):
            bt.Oracle(
                lambda ids, y, wrong=wrong: bt.gather(table, ids).sum() * wrong(ids, y), params=params, lanes=1
            ).loss(x, y)
    for same in (lambda ids: ids is None or ids == None, lambda ids: ids == "a"):  # noqa: E711
        assert (
            bt.Oracle(lambda ids, y, same=same: bt.gather(table, ids).sum() * (not same(ids)), params=params).loss(x, y)
            == 4.0
        )


def test_lanes_of_other_graphs_are_compared_as_data():
    x = bt.Graph(dtype="float64x4").value([1.0, 2.0, 3.0, 4.0])
    assert x != 1.0
    assert x.data == (1.0, 2.0, 3.0, 4.0)
    assert {x: 1}[x] == 1
    with pytest.raises(ValueError, match="lanes have no order"):
        _ = x < 1.0
    with pytest.raises(ValueError, match="holds 4 numbers"):
        bool(x)
