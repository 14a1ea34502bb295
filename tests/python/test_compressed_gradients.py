"""Compressed gradients: the same message, bit by bit, as compressing the whole gradient."""

from __future__ import annotations

import numpy as np
import pytest

import burtorch as bt
from burtorch import compress


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [1, 70])
@pytest.mark.parametrize(
    "compressor",
    [
        compress.Identity(),
        compress.RandK(3),
        compress.RandK(fraction=0.3),
        compress.RandSeqK(40),
        compress.PermK(),
        compress.TopK(7),
        compress.TopLEK(7),
        compress.Natural(),
        compress.QSGD(4),
        compress.Bernoulli(0.5),
        compress.Compose(compress.RandK(9), compress.Natural()),
        compress.Compose(compress.RandSeqK(50), compress.QSGD(3)),
    ],
    ids=repr,
)
def test_messages_are_those_of_the_whole_gradient(compressor, dtype, n):
    params = bt.Parameters(dtype=dtype, seed=1)
    model = bt.nn.CharMLP(params, vocab=5, context=3, embedding=4, hidden=6)
    oracle = bt.Oracle(model)
    x, y = [[k % 5, k % 3, 1] for k in range(n)], [k % 5 for k in range(n)]
    loss, grad = oracle(x, y)
    full = np.array(grad)
    params.grads[:] = 1.0
    clients = {"client": 2, "n_clients": 4} if isinstance(compressor, compress.PermK) else {}
    for round_ in range(8):
        draw = compress.Draw(seed=3, round=round_, client=2)
        found, message = oracle(x, y, compress=compressor, draw=draw, **clients)
        assert found == loss
        assert message == compressor.compress(full, draw, **clients)
        assert message.to_bytes() == compressor.compress(full, draw, **clients).to_bytes()
    assert set(params.grads) == {1.0}


def test_draws_and_clients_are_required():
    params = bt.Parameters()
    oracle = bt.Oracle(bt.nn.Linear(params, 2, 1))
    x, y = [[1.0, 2.0]], [[1.0]]
    with pytest.raises(ValueError, match="random: pass draw="):
        oracle(x, y, compress=compress.RandK(1))
    with pytest.raises(ValueError, match="n_clients"):
        oracle(x, y, compress=compress.PermK(), draw=compress.Draw(1))
    with pytest.raises(ValueError, match="1 to 3"):
        oracle(x, y, compress=compress.RandK(4), draw=compress.Draw(1))
    with pytest.raises(ValueError, match="contexts must have shape"):
        oracle([[1.0]], y, compress=compress.RandK(1), draw=compress.Draw(1))


MODELS = {
    "CharMLP": lambda params: (bt.nn.CharMLP(params, vocab=7, context=3, embedding=4, hidden=20), 3, False),
    "GPT": lambda params: (bt.nn.GPT(params, vocab=7, context=4, width=8, heads=2, layers=2), 4, True),
}


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize("n", [1, 5, 70])
@pytest.mark.parametrize("kind", MODELS)
def test_the_largest_numbers_are_chosen_while_the_sweep_runs(kind, n, threads):
    """The same as from the whole gradient, bit by bit: few and many numbers, with zeros (of token ids that do not
    occur), frozen ones, and at another point."""
    params = bt.Parameters(dtype="float32", seed=1)
    model, context, is_text = MODELS[kind](params)
    oracle = bt.Oracle(model, threads=threads)
    rng = np.random.default_rng(n)
    x = rng.integers(3, size=(n, context))
    y = rng.integers(3, size=(n, context) if is_text else n)
    point = np.array(params.values) * np.float32(0.5)
    for frozen in (False, True):
        if frozen:
            params.freeze(params.subset(range(10, 25)))
        for at in (None, point):
            more = {} if at is None else {"at": at}
            full = np.zeros(params.n, np.float32)
            oracle(x, y, out=full, **more)
            params.grads[:] = 2.0
            for k in (1, 3, params.n // 4, params.n - 1, params.n):
                for c in (compress.TopK(k), compress.Compose(compress.TopK(k), compress.Natural())):
                    draw = compress.Draw(seed=3, round=k)
                    assert oracle(x, y, compress=c, draw=draw, **more)[1] == c.compress(full, draw)
            assert set(params.grads) == {2.0}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", [*MODELS, "callable"])
def test_messages_of_samples_are_those_of_their_gradients(kind, dtype):
    """For TopK and other compressors, with and without frozen numbers, for batches of several blocks."""
    params = bt.Parameters(dtype=dtype, seed=1)
    rng = np.random.default_rng(3)
    if kind == "callable":
        w = params.tensor((5, 3), init="normal")
        params.tensor(4)
        oracle = bt.Oracle(lambda x, y: ((w @ x) ** 2).sum() * y, params=params)
        x, y = rng.normal(size=(70, 3)), rng.normal(size=70)
    else:
        model, context, is_text = MODELS[kind](params)
        oracle = bt.Oracle(model)
        x, y = rng.integers(7, size=(70, context)), rng.integers(7, size=(70, context) if is_text else 70)
    draw = compress.Draw(seed=3, round=5, client=2)
    for frozen in (False, True):
        if frozen:
            params.freeze(params.subset(range(4, 9)))
        rows = np.asarray(oracle.per_sample_grads(x, y))
        params.grads[:] = 2.0
        for c in (
            compress.TopK(1),
            compress.TopK(6),
            compress.TopK(params.n),
            compress.Compose(compress.TopK(5), compress.Natural()),
            compress.RandK(4),
            compress.ScaledSign(),
        ):
            found = oracle.per_sample_grads(x, y, compress=c, draw=draw)
            clients = [compress.Draw(seed=3, round=5, client=2 + k) for k in range(70)]
            assert found == [c.compress(row, client) for row, client in zip(rows, clients, strict=True)]
        assert set(params.grads) == {2.0}
    with pytest.raises(ValueError, match="random: pass draw="):
        oracle.per_sample_grads(x, y, compress=compress.RandK(1))
    with pytest.raises(ValueError, match="n_clients"):
        oracle.per_sample_grads(x, y, compress=compress.PermK(), draw=draw)
    with pytest.raises(ValueError, match="draw is for compress="):
        oracle.per_sample_grads(x, y, draw=draw)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_callable_of_two_parameters_has_the_same_messages(dtype):
    params, others = (bt.Parameters(dtype=dtype, seed=k) for k in (1, 2))
    w, v = params.tensor((4, 3), init="normal"), params.tensor(5, init="normal")
    u = others.tensor(3, init="normal")
    rng = np.random.default_rng(3)
    x = rng.normal(size=(6, 3))
    for call in (
        lambda x: ((w @ (x * u)) ** 2).sum() + v[1] * x[0],
        lambda x: (w[2] * x).sum() ** 2 + v[1] * x[0] * v[3],
        lambda x: (x * x).sum(),
    ):
        oracle = bt.Oracle(call, params=params)
        rows = np.asarray(oracle.per_sample_grads(x))
        others.zero_grad()
        params.grads[:] = 2.0
        for k in (1, 3, 17):
            c = compress.TopK(k)
            assert oracle.per_sample_grads(x, compress=c) == [c.compress(row) for row in rows]
        assert set(params.grads) == {2.0}


def test_the_largest_numbers_take_the_memory_of_a_layer():
    """In a chain of equal layers, one or two are in flight; b separate samples need b times K numbers."""
    params = bt.Parameters()
    oracle = bt.Oracle(bt.nn.MLP(params, [64] * 40))
    x, y = np.random.default_rng(0).normal(size=(2, 3, 64))
    rows = np.asarray(oracle.per_sample_grads(x, y))
    before = oracle.memory()["adjoints"]
    each = oracle.per_sample_grads(x, y, compress=compress.TopK(5))
    more = oracle.memory()["adjoints"] - before
    assert 0 < more <= 3 * 4 * (64 * 64 + 64)
    assert more * 10 < 4 * params.n
    assert each == [compress.TopK(5).compress(row) for row in rows]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [1, 16, 37])
def test_a_program_keeps_the_largest_numbers_while_it_computes(dtype, n):
    """The message of the whole gradient, for one block of samples and for several, with ties and unused parameters."""
    params = bt.Parameters(dtype=dtype, seed=1)
    w, _, v = params.tensor((6, 4), init="normal"), params.tensor(5), params.tensor(6, init="normal")
    oracle = bt.Oracle(lambda row: ((w @ row).tanh() * v).sum() ** 2, params=params)
    x = np.random.default_rng(n).integers(-1, 2, size=(n, 4)) * 1.0
    point = np.array(params.values) * 0.5
    for more in ({}, {"at": point}):
        full = np.zeros(params.n, dtype)
        loss, _ = oracle(x, out=full, **more)
        params.grads[:] = 2.0
        for k in (1, 3, 17, 30, params.n):
            for c in (compress.TopK(k), compress.Compose(compress.TopK(k), compress.Natural())):
                draw = compress.Draw(seed=3, round=k)
                found, message = oracle(x, compress=c, draw=draw, **more)
                assert (found, message) == (loss, c.compress(full, draw))
        assert set(params.grads) == {2.0}


def test_the_largest_numbers_of_a_program_take_the_memory_of_a_layer():
    """Of a callable of equal layers, whose batch is one block: a quarter of a gradient, with values and adjoints."""
    params = bt.Parameters()
    weights = [params.tensor((64, 64), init="normal") for _ in range(40)]

    def loss(row):
        for w in weights:
            row = (w @ row * 0.1).tanh()
        return (row**2).sum()

    oracle = bt.Oracle(loss, params=params)
    x = np.random.default_rng(0).normal(size=(4, 64)).astype("float32")
    message = oracle(x, compress=compress.TopK(5))[1]
    assert 0 < oracle.memory()["activations"] < params.n
    assert message == compress.TopK(5).compress(np.array(oracle(x)[1]))
