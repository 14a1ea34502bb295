"""Classes and token ids count from 0: a negative or too large one is an error, and never counted from the end."""

from __future__ import annotations

import numpy as np
import pytest

import burtorch as bt

LOGITS = np.array([[0.1, 0.2, 0.7], [0.5, 0.2, 0.3]])
TABLE = LOGITS.T
WRONG = [-1, -3, -4, 3, 10**12, -(10**12)]


def params_and_table():
    params = bt.Parameters(dtype="float64")
    return params, params.tensor((3, 2), init=0.5)


def models():
    params = bt.Parameters(dtype="float64")
    chars = bt.nn.CharMLP(params, vocab=3, context=2, embedding=2, hidden=3)
    gpt = bt.nn.GPT(params, vocab=3, context=2, width=8, heads=2, layers=1)
    return chars, gpt, bt.nn.MLP(params, [2, 3]), bt.nn.Embedding(params, 3, 2)


def of_models(k):
    chars, gpt, mlp, embedding = models()
    return {
        "embedding": lambda: embedding([0, k]),
        "rows of an embedding": lambda: embedding.rows([0, k]),
        "CharMLP": lambda: chars([0, k]),
        "logits of CharMLP": lambda: chars.logits([0, k]),
        "GPT": lambda: gpt([0, k]),
        "logits of GPT": lambda: gpt.logits([0, k]),
        "tokens": lambda: gpt([0, 1]).cross_entropy([0, k]),
        "oracle of CharMLP": lambda: bt.Oracle(chars).loss([[0, 1]], [k]),
        "contexts": lambda: bt.Oracle(chars).loss([[0, k]], [0]),
        "oracle of GPT": lambda: bt.Oracle(gpt).loss([[0, 1]], [[0, k]]),
        "oracle of MLP": lambda: bt.Oracle(mlp, loss="cross_entropy").loss([[0.0, 1.0]], [k]),
    }


def of_arrays(k):
    both, z = np.array([0, k]), LOGITS[0]
    loss = bt.softmax_cross_entropy
    return {
        "numbers": lambda: loss(z, k),
        "rows of numbers": lambda: loss(LOGITS, both),
        "Array": lambda: loss(bt.array(z), k),
        "Array of rows": lambda: loss(bt.array(LOGITS), both),
        "Array of classes": lambda: loss(bt.array(LOGITS), bt.array(both)),
        "Vector": lambda: loss(bt.Vector(z), k),
        "Vector and array": lambda: loss(bt.Vector(z), np.array([k])),
        "captured class": lambda: bt.grad(lambda z: loss(z, k))(z),
        "class as an argument": lambda: bt.grad(lambda z, y: loss(z, y))(z, np.int64(k)),
        "classes as an argument": lambda: bt.grad(lambda z, y: loss(z, y).sum())(LOGITS, both),
        "vmap": lambda: bt.vmap(bt.grad(loss))(LOGITS, both),
        "vmap with a total": lambda: bt.vmap(loss, reduce="mean")(LOGITS, both),
        "function": lambda: bt.function(lambda z, y: loss(z, y).sum())(LOGITS, both),
        "gather of numbers": lambda: bt.gather(bt.array(TABLE), np.array([0, k])),
        "gather of a number": lambda: bt.gather(bt.array(TABLE), k),
        "gather in a trace": lambda: bt.grad(lambda x, i: bt.gather(x, i).sum())(TABLE, both),
    }


def of_tables(k):
    _, table = params_and_table()
    return {
        "gather": lambda: bt.gather(table, [0, k]),
        "gather of one": lambda: bt.gather(table, k),
        "gather in a trace": lambda: bt.grad(lambda x, i: (bt.gather(table, i) * x).sum())(np.ones(2), np.array([k])),
    }


def of_oracles(k):
    params, table = params_and_table()
    layer = bt.nn.Linear(params, 2, 3)
    found = {}
    for lanes in ("auto", 1, 4):
        for name, model in {
            "cross-entropy": lambda x, y: bt.softmax_cross_entropy(layer(x), y),
            "gather": lambda x, y: (bt.gather(table, y) * x).sum(),
        }.items():
            oracle = bt.Oracle(model, params=params, lanes=lanes)
            for call in (oracle.loss, oracle, oracle.losses, oracle.grad, oracle.per_sample_grads):
                found[name, lanes, call] = lambda call=call: call(np.ones((2, 2)), np.array([0, k]))
    return found


@pytest.mark.parametrize("k", WRONG)
@pytest.mark.parametrize("calls", [of_models, of_arrays, of_tables, of_oracles])
def test_a_class_out_of_range_is_an_error(calls, k):
    for name, call in calls(k).items():
        # Labels below 0 are numbers of an oracle, and not classes.
        expected = TypeError if calls is of_oracles and k < 0 else (IndexError, ValueError)
        try:
            found = call()
        except expected:
            continue
        raise AssertionError(f"{name}: {k} gave {found}")


@pytest.mark.parametrize("k", [0, 1, 2])
@pytest.mark.parametrize("calls", [of_models, of_arrays, of_tables, of_oracles])
def test_a_class_in_range_is_not(calls, k):
    for call in calls(k).values():
        call()


def test_the_error_names_the_class():
    for call in (bt.grad(lambda z, y: bt.softmax_cross_entropy(z, y)), bt.softmax_cross_entropy):
        with pytest.raises(IndexError, match="index must be from 0 to 2, found -1"):
            call(LOGITS[0], np.int64(-1))


def test_indices_of_numpy_may_be_negative():
    x = bt.array(LOGITS)
    assert x[-1].data.tolist() == x[1].data.tolist()
    assert np.take(x, np.array([-1]), axis=0).data.tolist() == [LOGITS[1].tolist()]
    assert bt.grad(lambda x, i: x[i].sum())(LOGITS, np.array([-1])).tolist() == [[0.0] * 3, [1.0] * 3]
    assert np.take_along_axis(x, np.array([[-1], [0]]), 1).data.tolist() == [[0.7], [0.5]]
