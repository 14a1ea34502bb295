"""Gradients of some parameters: the bits of the whole gradient, the ways to denote a set, and refusals."""

from __future__ import annotations

import random
from array import array

import numpy as np
import pytest

import burtorch as bt


def char_model(dtype):
    return bt.nn.CharMLP(bt.Parameters(dtype=dtype, seed=2), vocab=7, context=3, embedding=5, hidden=9)


def gpt_model(dtype):
    return bt.nn.GPT(bt.Parameters(dtype=dtype, seed=2), vocab=7, context=3, layers=2, heads=2, width=6)


def mlp_model(dtype):
    return bt.nn.MLP(bt.Parameters(dtype=dtype, seed=2), [3, 8, 6, 7])


def batch_of(model, n, draw):
    if isinstance(model, bt.nn.MLP):
        return [[draw.uniform(-1, 1) for _ in range(3)] for _ in range(n)], [draw.randrange(7) for _ in range(n)]
    tokens = [[draw.randrange(7) for _ in range(3)] for _ in range(n)]
    if isinstance(model, bt.nn.GPT):
        return tokens, [[draw.randrange(7) for _ in range(3)] for _ in range(n)]
    return tokens, [draw.randrange(7) for _ in range(n)]


def any_set(d, draw):
    """Indices, ascending, and an argument that denotes them."""
    kind = draw.randrange(4)
    if kind == 0:
        start = draw.randrange(d)
        stop = draw.randrange(start + 1, d + 1)
        return np.arange(start, stop), range(start, stop)
    share = draw.choice([0.01, 0.1, 0.5, 0.95])
    mask = np.array([draw.random() < share for _ in range(d)])
    mask[draw.randrange(d)] = True
    indices = np.flatnonzero(mask)
    return indices, [mask, indices, indices.tolist()][kind - 1]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("make", [char_model, gpt_model, mlp_model])
@pytest.mark.parametrize("threads", [1, 2, 8])
def test_some_gradients_have_the_bits_of_all(make, dtype, threads):
    model = make(dtype)
    params, draw = model.params, random.Random(threads)
    oracle = bt.Oracle(model, threads=threads)
    for n in (1, 5, 16, 70):
        x, y = batch_of(model, n, draw)
        loss, grad = oracle(x, y)
        full = np.array(grad)
        params.grads[:] = 3.0
        for _ in range(6):
            indices, wanted = any_set(params.n, draw)
            found, some = oracle(x, y, wanted=wanted)
            assert found == loss
            assert np.array(some).tobytes() == full[indices].tobytes()
            prepared = oracle.subset(wanted)
            assert np.array(oracle.grad(x, y, wanted=prepared)).tobytes() == full[indices].tobytes()
            whole = np.full(params.n, 9.0, dtype)
            assert oracle.grad(x, y, wanted=prepared, out=whole) is whole
            assert whole[indices].tobytes() == full[indices].tobytes()
            outside = np.delete(whole, indices)
            assert ((outside == 0) | (outside == np.delete(full, indices))).all()
        assert set(params.grads) == {3.0}


@pytest.mark.parametrize(("dtype", "lanes"), [("float64", 2), ("float64", None), ("float32", 4), ("float32", None)])
def test_many_layers_and_groups_of_samples_have_the_bits_of_all(dtype, lanes):
    """The order in which groups of samples are added does not depend on which layers of a pass are skipped."""
    sizes, rng = [4] * 25, np.random.default_rng(1)
    model = bt.nn.MLP(bt.Parameters(dtype=dtype, seed=2), sizes)
    oracle, d = bt.Oracle(model, **({"lanes": lanes} if lanes else {})), model.params.n
    x, y = rng.normal(size=(63, 4)), rng.normal(size=(63, 4))
    full = np.array(oracle.grad(x, y))
    for wanted in (range(d - 1, d), range(d - 100, d - 90), range(d // 2, d), range(d // 3, d // 2), range(3, 9)):
        expected = full[wanted.start : wanted.stop].tobytes()
        assert np.array(oracle.grad(x, y, wanted=wanted)).tobytes() == expected
        model.params.freeze([(0, wanted.start)] if wanted.start else [])
        model.params.freeze((wanted.stop, d)) if wanted.stop < d else None
        assert np.array(oracle.grad(x, y))[wanted.start : wanted.stop].tobytes() == expected
        model.params.unfreeze((0, d))


@pytest.mark.parametrize("make", [char_model, gpt_model, mlp_model])
def test_freezing_leaves_the_other_bits(make):
    model = make("float32")
    params, draw = model.params, random.Random(3)
    oracle = bt.Oracle(model)
    for n in (1, 20):
        x, y = batch_of(model, n, draw)
        full = np.array(oracle.grad(x, y))
        for _ in range(4):
            indices, _wanted = any_set(params.n, draw)
            mask = np.zeros(params.n, bool)
            mask[indices] = True
            if not mask.all():
                params.freeze(~mask)
            left = np.where(mask, full, np.float32(0)).tobytes()
            assert np.array(oracle.grad(x, y)).tobytes() == left
            # Frozen numbers of a set have zero gradients.
            assert np.array(oracle.grad(x, y, wanted=range(params.n))).tobytes() == left
            params.unfreeze((0, params.n))


def test_a_callable_has_the_same_sets():
    params = bt.Parameters(dtype="float64", seed=1)
    w = params.tensor((2, 3), name="w")
    params.tensor(2, name="b")
    x, y = np.arange(6.0).reshape(2, 3), np.array([1.0, 2.0])

    def traced(row, target):
        return ((w @ row).sum() - target) ** 2

    def in_lanes(row, target):
        return (bt.inner_product(w[0], row) * (1.0 if bool(params.n) else 0.0) - target) ** 2

    for loss in (traced, in_lanes):
        oracle = bt.Oracle(loss, params=params)
        value, grad = oracle(x, y)
        full = np.array(grad)
        assert full.any()
        found, some = oracle(x, y, wanted=["b", range(1, 4)])
        assert found == value
        assert np.array(some).tobytes() == full[[1, 2, 3, 6, 7]].tobytes()


def test_ways_to_denote_a_set():
    params = bt.Parameters(dtype="float64")
    w, _b = params.tensor((2, 3), name="w"), params.tensor(2, name="b")
    mask = np.zeros(8, bool)
    mask[[1, 6]] = True
    for wanted, indices in [
        ("w", range(6)),
        (w, range(6)),
        (["b", w], range(8)),
        ((2, 4), [2, 3]),
        (range(2, 4), [2, 3]),
        ([(0, 1), "b", range(1, 2)], [0, 1, 6, 7]),
        ([1, 6], [1, 6]),
        (array("q", [1, 6]), [1, 6]),
        (np.array([1, 6], "uint8"), [1, 6]),
        (mask, [1, 6]),
        (mask.tolist(), [1, 6]),
        (list(mask), [1, 6]),
        ([1, np.int32(6)], [1, 6]),
        (list(np.array([1, 6])), [1, 6]),
    ]:
        s = params.subset(wanted)
        assert s.indices.tolist() == list(indices)
        assert len(s) == len(indices)
        assert s.params is params
    mask[:] = True
    assert params.subset(s) is s
    assert repr(s) == "<Subset of 2 parameters in 2 ranges>"


@pytest.mark.parametrize(
    ("wanted", "error", "text"),
    [
        ("nobody", KeyError, "nobody"),
        ([3, 2], ValueError, "must ascend"),
        ([2, 2], ValueError, "must ascend"),
        ([2, 8], IndexError, "index 8"),
        ([-1], IndexError, "index -1"),
        ([2**63], IndexError, "beyond 64 bits, expected 0 to 7"),
        ([-(2**70)], IndexError, "beyond 64 bits, expected 0 to 7"),
        (np.array([2**63], np.uint64), IndexError, "beyond 64 bits, expected 0 to 7"),
        (range(0, 2**70), ValueError, "range"),
        ([True, False], ValueError, "a mask must have one bool for each of 8"),
        (np.zeros(8), TypeError, "wanted must be names"),
        (list(np.zeros(8)), TypeError, "wanted must be names"),
        ([np.int64(2), np.int64(2)], ValueError, "must ascend"),
        (1.5, TypeError, "wanted must be names"),
        (range(0, 8, 2), ValueError, "range"),
        (range(3, 9), ValueError, "range"),
        ((3, 9), ValueError, "range"),
        (bt.Parameters().tensor(1), ValueError, "other Parameters"),
        (bt.Parameters().subset, TypeError, "wanted must be names"),
    ],
)
def test_invalid_sets_are_refused(wanted, error, text):
    params = bt.Parameters(dtype="float64")
    model = bt.nn.Linear(params, 3, 2)
    oracle = bt.Oracle(model, loss="mse")
    before = list(params.grads)
    with pytest.raises(error, match=text):
        oracle([[1.0, 2.0, 3.0]], [[0.0, 1.0]], wanted=wanted)
    with pytest.raises(error, match=text):
        params.subset(wanted)
    assert list(params.grads) == before


EMPTY = {
    "list": [],
    "mask": np.zeros(8, bool),
    "list of bools": [False] * 8,
    "range": range(3, 3),
    "pair": (3, 3),
    "array": np.zeros(0, int),
    "list of ranges": [range(2, 2), (5, 5)],
}


@pytest.mark.parametrize("wanted", EMPTY)
@pytest.mark.parametrize("is_built_in", [True, False])
def test_an_empty_set_has_an_empty_gradient(wanted, is_built_in):
    params = bt.Parameters(dtype="float64", seed=1)
    model, wanted = bt.nn.Linear(params, 3, 2), EMPTY[wanted]
    body = bt.Oracle(lambda x, y: bt.mean((model(x) - y) ** 2), params=params)
    oracle = bt.Oracle(model, loss="mse") if is_built_in else body
    x, y = np.arange(12.0).reshape(4, 3), np.ones((4, 2))
    loss, _ = oracle(x, y)
    before = list(params.grads)
    for choices in ({}, {"stop": bt.Stop()}, {"deadline": 100.0}):
        found, none = oracle(x, y, wanted=wanted, **choices)
        assert (found, len(none)) == (pytest.approx(loss), 0)
        assert len(oracle.grad(x, y, wanted=wanted, **choices)) == 0
        whole = np.ones(8)
        found, out = oracle(x, y, wanted=wanted, out=whole, **choices)
        assert (found, out is whole, whole.tolist()) == (pytest.approx(loss), True, [0.0] * 8)
        with pytest.raises(ValueError, match="out must have 0 or 8 numbers, found 3"):
            oracle(x, y, wanted=wanted, out=np.zeros(3), **choices)
    at = np.zeros(8)
    assert oracle(x, y, wanted=wanted, at=at)[0] == pytest.approx(oracle(x, y, at=at, out=np.zeros(8))[0])
    assert list(params.grads) == before
    subset = params.subset(wanted)
    assert (len(subset), subset.indices.tolist()) == (0, [])
    assert len(oracle(x, y, wanted=subset)[1]) == 0
    values = list(params.values)
    with pytest.raises(ValueError, match="overlaps"):
        oracle(x, y, wanted=wanted, out=params.values)
    assert list(params.values) == values
    if is_built_in:
        found, none, n = oracle(x, y, wanted=wanted, on_stop="partial")
        assert (found, len(none), n) == (pytest.approx(loss), 0, 4)
        assert oracle.cost(wanted, x, y)["seconds"] >= 0.0
    params.freeze([5])
    with pytest.raises(ValueError, match="after the last change"):
        oracle(x, y, wanted=subset)
    token = bt.Stop()
    token.set()
    with pytest.raises(bt.StoppedError):
        oracle(x, y, wanted=wanted, stop=token)


def test_more_clients_than_parameters_send_empty_messages():
    params = bt.Parameters(dtype="float64", seed=1)
    oracle = bt.Oracle(bt.nn.Linear(params, 2, 1), loss="mse")
    x, y = np.ones((4, 2)), np.zeros((4, 1))
    draw, gradient = bt.compress.Draw(3), np.array(oracle(x, y)[1])
    sent = [oracle(x, y, compress=bt.compress.PermK(), draw=draw, client=client, n_clients=5)[1] for client in range(5)]
    assert sorted(len(message.indices) for message in sent) == [0, 0, 1, 1, 1]
    for client, message in enumerate(sent):
        expected = bt.compress.PermK().compress(gradient, draw=draw, client=client, n_clients=5)
        assert message.to_bytes() == expected.to_bytes()


def test_empty_sets_of_numbers():
    f = bt.function(lambda x: (x * x).sum())
    for wanted in ([], [False] * 3, np.zeros(3, bool), range(2, 2), np.zeros(0, int)):
        assert np.asarray(f.grad(np.ones(3), wanted=wanted)).tolist() == []
    for wanted in ([2**63], [3], [-1]):
        with pytest.raises(IndexError, match="expected 0 to 2"):
            f.grad(np.ones(3), wanted=wanted)
    w = bt.Parameters(dtype="float64").tensor(2, init=1.0)
    with bt.Graph(), pytest.raises(ValueError, match="no parameters"):
        bt.inner_product(w, w).backward(wanted=[])


def test_a_set_is_of_its_parameters_as_they_were():
    params = bt.Parameters(dtype="float64")
    model = bt.nn.Linear(params, 3, 2)
    oracle = bt.Oracle(model, loss="mse")
    x, y = [[1.0, 2.0, 3.0]], [[0.0, 1.0]]
    s = oracle.subset([1, 5])
    full = list(oracle.grad(x, y))
    assert list(oracle.grad(x, y, wanted=s)) == [full[1], full[5]]
    other = bt.Oracle(bt.nn.Linear(bt.Parameters(dtype="float64"), 3, 2), loss="mse")
    with pytest.raises(ValueError, match="other Parameters"):
        other(x, y, wanted=s)
    with pytest.raises(ValueError, match="numbers and room"):
        oracle(x, y, wanted=s, out=np.zeros(3))
    with pytest.raises(ValueError, match="overlaps"):
        oracle(x, y, wanted=s, out=params.values)
    params.freeze([5])
    with pytest.raises(ValueError, match="after the last change"):
        oracle(x, y, wanted=s)
    assert list(oracle.grad(x, y, wanted=[1, 5])) == [full[1], 0.0]
    params.unfreeze([5])
    params.tensor(1)
    with pytest.raises(ValueError, match="after the last change"):
        oracle(x, y, wanted=s)
    at = [0.5] * 9
    assert list(oracle.grad(x, y, at=at, wanted=[1, 5])) == [oracle.grad(x, y, at=at)[k] for k in (1, 5)]


def test_a_value_sweeps_for_some_parameters():
    params, other = bt.Parameters(dtype="float64", seed=1), bt.Parameters(dtype="float64", seed=2)
    w, b, u = params.tensor((3, 4), name="w"), params.tensor(3, name="b"), other.tensor(3)
    graph = bt.Graph()
    x = graph.vector([1.0, -2.0, 0.5, 3.0])

    def loss():
        with graph:
            hidden = bt.tanh(bt.affine(w, x, b))
            return bt.inner_product(hidden, u) + hidden[0] ** 2

    loss().backward()
    full, of_other, of_x = np.array(params.grads), np.array(other.grads), np.array(x.grad)
    assert full.all()
    assert of_x.all()
    for wanted, indices in [
        (params.subset([1, 5, 13]), [1, 5, 13]),
        (w, range(12)),
        ([b, (0, 2)], [0, 1, 12, 13, 14]),
        (params.subset(np.arange(15) % 2 == 0), range(0, 15, 2)),
    ]:
        params.grads[:] = 0.0
        other.grads[:] = 7.0
        graph.zero_grad()
        loss().backward(wanted=wanted)
        expected = np.zeros(15)
        expected[list(indices)] = full[list(indices)]
        assert np.array(params.grads).tobytes() == expected.tobytes()
        assert set(other.grads) == {7.0}
        assert not np.array(x.grad).any()
        loss().backward(2.0, wanted=wanted)
        assert np.array(params.grads) == pytest.approx(3 * expected, rel=1e-15)
    other.grads[:] = 0.0
    loss().backward(seed=1.0, wanted=u)
    assert np.array(other.grads).tobytes() == of_other.tobytes()
    with pytest.raises(ValueError, match="the graph reads 2 Parameters"):
        loss().backward(wanted=[1, 2])
    with pytest.raises(TypeError, match=r"backward\(\) takes seed"):
        loss().backward(1.0, 2.0)
    with pytest.raises(TypeError, match=r"backward\(\) takes seed"):
        loss().backward(1.0, seed=2.0)
    with pytest.raises(TypeError, match="wanted must be names"):
        loss().backward(wanted=[w, 1.5])
    stale = params.subset([1])
    params.freeze([1])
    with pytest.raises(ValueError, match="after the last change"):
        loss().backward(wanted=stale)
    params.grads[:] = 0.0
    loss().backward(wanted=[w])
    assert (np.array(params.grads)[:12] == np.where(np.arange(12) == 1, 0.0, full[:12])).all()


def test_freeze_takes_ranges_as_a_set_does():
    for what, left in [
        (range(1, 3), [0, 3, 4]),
        ([range(0, 2), (3, 4)], [2, 4]),
        (range(0, 5), []),
        ((1, 3), [0, 3, 4]),
    ]:
        params = bt.Parameters(dtype="float64")
        w = params.tensor(5, name="w", init=0.0)
        params.freeze(what)
        assert params.n_trainable == len(left)
        params.grads[:] = [1.0] * 5
        bt.optim.SGD(w, lr=1.0).step()
        assert [k for k, x in enumerate(params.values) if x != 0.0] == left
        params.unfreeze(what)
        assert params.n_trainable == 5
    params = bt.Parameters()
    params.tensor(5)
    for what in (range(0, 6), range(4, 2), range(0, 4, 2), range(-2, 1)):
        with pytest.raises((ValueError, TypeError)):
            params.freeze(what)
        assert params.n_trainable == 5
