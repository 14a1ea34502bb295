"""Calls that end early: what is left is whole, at whatever moment, and partial results are means of whole samples."""

from __future__ import annotations

import math
import os
import random
import threading
import time

import numpy as np
import pytest

import burtorch as bt

#: How many random moments; BURTORCH_STOPS=10000 for more.
MOMENTS = int(os.environ.get("BURTORCH_STOPS", "300"))


def model_and_batch(kind, n):
    draw = random.Random(n)
    params = bt.Parameters(dtype="float64", seed=1)
    tokens = [[draw.randrange(7) for _ in range(4)] for _ in range(n)]
    if kind == "gpt":
        model = bt.nn.GPT(params, vocab=7, context=4, layers=2, heads=2, width=6)
        return model, tokens, [[draw.randrange(7) for _ in range(4)] for _ in range(n)]
    model = bt.nn.CharMLP(params, vocab=7, context=4, embedding=5, hidden=32)
    return model, tokens, [draw.randrange(7) for _ in range(n)]


@pytest.mark.parametrize("kind", ["mlp", "gpt"])
@pytest.mark.parametrize(("n", "threads"), [(3, 1), (150, 1), (150, 2)])
def test_a_stop_at_any_moment_leaves_all_whole(kind, n, threads):
    model, x, y = model_and_batch(kind, n)
    params = model.params
    values = np.array(params.values).tobytes()
    oracle = bt.Oracle(model, threads=threads)
    began = time.perf_counter()
    loss, grad = oracle(x, y)
    took = time.perf_counter() - began
    full = np.array(grad)
    sums = bt.Oracle(model, reduction="sum")
    draw = random.Random(5)
    ended = 0
    for moment in range(MOMENTS // 6):
        deadline = draw.uniform(0, 1.5 * took)
        kept = moment % 2 > 0
        try:
            found = oracle(x, y, deadline=deadline, on_stop="partial" if kept else "raise")
        except bt.StoppedError:
            ended += 1
            assert not np.array(params.grads).any()
            assert not kept
            assert np.array(params.values).tobytes() == values
            continue
        assert np.array(params.values).tobytes() == values
        if kept and found[2] < n:
            ended += 1
            m = found[2]
            some = np.array(found[1])
            if m == 0:
                assert math.isnan(found[0])
                assert not some.any()
                continue
            part_loss, part = sums(x[:m], y[:m], out=np.empty(params.n))
            assert found[0] == pytest.approx(part_loss / m, rel=1e-12)
            assert np.allclose(some, part / m, rtol=1e-9, atol=1e-13)
        else:
            assert found[0] == loss
            assert np.array(found[1]).tobytes() == full.tobytes()
    assert ended
    assert oracle(x, y)[0] == loss
    assert np.array(params.grads).tobytes() == full.tobytes()


def test_another_thread_stops_a_call():
    params = bt.Parameters(dtype="float32")
    model = bt.nn.CharMLP(params, vocab=27, context=8, embedding=32, hidden=256)
    n_all = 300_000
    x, y = np.ones((n_all, 8), "int32"), np.ones(n_all, "int32")
    oracle = bt.Oracle(model)
    stop = bt.Stop()
    delay, n = 0.05, 0
    # Reading and checking the batch takes a part of the time.
    while n == 0:
        stop.clear()
        threading.Timer(delay, stop.set).start()
        loss, grad, n = oracle(x, y, stop=stop, on_stop="partial")
        delay *= 2
    assert 0 < n < n_all
    one_loss, one = oracle(x[:1], y[:1], out=np.empty(params.n, "float32"))
    assert loss == pytest.approx(one_loss, rel=1e-5)
    assert np.allclose(np.array(grad), one, rtol=1e-3, atol=1e-6)
    assert stop.is_set()
    assert repr(stop) == "<Stop, set>"
    assert oracle(x[:1], y[:1], stop=stop, on_stop="discard") is None
    with pytest.raises(bt.StoppedError, match="before the batch was finished"):
        oracle(x[:1], y[:1], stop=stop)
    stop.clear()
    assert oracle(x[:1], y[:1], stop=stop, on_stop="discard")[0] == one_loss
    assert repr(stop) == "<Stop>"


@pytest.mark.parametrize("wanted", [None, range(3, 20), [1, 7, 50]])
def test_partial_results_are_reweighted(wanted):
    model, x, y = model_and_batch("mlp", 10)
    oracle = bt.Oracle(model)
    loss, grad, n = oracle(x, y, wanted=wanted, deadline=3600.0, on_stop="partial", reweight=0.25)
    plain_loss, plain = oracle(x, y, wanted=wanted, out=None if wanted else np.empty(model.params.n))
    assert n == 10
    assert loss == 4 * plain_loss
    assert np.allclose(np.array(grad), 4 * np.array(plain), rtol=1e-15)
    loss, grad, n = oracle(x, y, wanted=wanted, deadline=0, on_stop="partial", reweight=0.25)
    assert (n, loss) == (0, 0.0)
    assert not np.array(grad).any()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"deadline": -1.0}, "deadline must be at least 0"),
        ({"deadline": math.nan}, "deadline must be at least 0"),
        ({"on_stop": "wait"}, "on_stop must be"),
        ({"reweight": 0.5}, "reweight is for"),
        ({"on_stop": "partial", "reweight": 0.0}, "probability of finishing"),
        ({"on_stop": "partial", "reweight": 1.5}, "probability of finishing"),
        ({"draw": bt.compress.Draw(1)}, "are for compress="),
        ({"compress": bt.compress.TopK(2), "on_stop": "partial"}, "compress goes with"),
    ],
)
def test_what_makes_no_sense_is_refused(options, text):
    model, x, y = model_and_batch("mlp", 3)
    model.params.grads[:] = 2.0
    with pytest.raises(ValueError, match=text):
        bt.Oracle(model)(x, y, **options)
    assert set(model.params.grads) == {2.0}


def test_a_callable_refuses_stops():
    params = bt.Parameters(dtype="float64")
    w = params.tensor(2)
    oracle = bt.Oracle(lambda row: (w * row).sum(), params=params)
    with pytest.raises(ValueError, match=r"models of burtorch\.nn"):
        oracle([[1.0, 2.0]], deadline=1.0)
