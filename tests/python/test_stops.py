"""Calls that end early: the state is consistent at any moment, and partial results are means of whole samples."""

from __future__ import annotations

import math
import os
import random
import threading
import time

import numpy as np
import pytest

import burtorch as bt

#: Number of random moments; increase with BURTORCH_STOPS=10000.
MOMENTS = int(os.environ.get("BURTORCH_STOPS", "300"))


def model_and_batch(kind, n):
    draw = random.Random(n)
    params = bt.Parameters(dtype="float32" if kind == "wide" else "float64", seed=1)
    tokens = [[draw.randrange(7) for _ in range(4)] for _ in range(n)]
    if kind == "gpt":
        model = bt.nn.GPT(params, vocab=7, context=4, layers=2, heads=2, width=6)
        return model, tokens, [[draw.randrange(7) for _ in range(4)] for _ in range(n)]
    # The kernels of a wide model take longer than the time allowed between two checks.
    size = {"embedding": 64, "hidden": 256} if kind == "wide" else {"embedding": 5, "hidden": 32}
    model = bt.nn.CharMLP(params, vocab=7, context=4, **size)
    return model, tokens, [draw.randrange(7) for _ in range(n)]


@pytest.mark.parametrize("kind", ["mlp", "gpt", "wide"])
@pytest.mark.parametrize(("n", "threads"), [(3, 1), (150, 1), (150, 2)])
def test_a_stop_at_any_moment_leaves_all_whole(kind, n, threads):
    model, x, y = model_and_batch(kind, n)
    params = model.params
    values = np.array(params.values).tobytes()
    oracle = bt.Oracle(model, threads=threads)
    loss, grad = oracle(x, y)
    # The first call allocates memory, which takes longer.
    began = time.perf_counter()
    for _ in range(5):
        oracle(x, y)
    took = (time.perf_counter() - began) / 5
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
            part_loss, part = sums(x[:m], y[:m], out=np.empty(params.n, some.dtype))
            exact = some.dtype == np.float64
            assert found[0] == pytest.approx(part_loss / m, rel=1e-12 if exact else 1e-5)
            assert np.allclose(some, part / m, rtol=1e-9 if exact else 1e-3, atol=1e-13 if exact else 1e-6)
        else:
            assert found[0] == loss
            assert np.array(found[1]).tobytes() == full.tobytes()
    assert ended
    assert oracle(x, y)[0] == loss
    assert np.array(params.grads).tobytes() == full.tobytes()


def test_large_gradients_are_zero_after_a_stop_and_whole_after_the_next_call():
    # Also with held arrays, and with frozen parts.
    params = bt.Parameters(seed=1)
    model = bt.nn.CharMLP(params, vocab=27, context=16, embedding=64, hidden=512)
    held = np.asarray(params.grads)
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 27, (70, 16)).astype("int32"), rng.integers(0, 27, 70).astype("int32")
    oracle = bt.Oracle(model)
    for frozen in ((), (100_000, 300_000)):
        if frozen:
            params.freeze(frozen)
        full = np.array(oracle(x, y)[1])
        assert held.any()
        with pytest.raises(bt.StoppedError):
            oracle(x, y, deadline=0)
        assert not held.any()
        assert np.array(oracle(x, y)[1]).tobytes() == full.tobytes()
        assert held.tobytes() == full.tobytes()


@pytest.mark.parametrize("kind", ["mlp", "gpt", "wide"])
@pytest.mark.parametrize("n", [1, 10, 70])
def test_a_step_of_an_oracle_moves_all_values_or_none(kind, n):
    model, x, y = model_and_batch(kind, n)
    params = model.params
    before = np.array(params.values)
    oracle = bt.Oracle(model)
    loss = oracle.step(x, y, 0.1)
    after = np.array(params.values)
    params.values[:] = before
    began = time.perf_counter()
    oracle.step(x, y, 0.1)
    took = time.perf_counter() - began
    draw = random.Random(n)
    for moment in range(MOMENTS // 6):
        params.values[:] = before
        try:
            assert oracle.step(x, y, 0.1, deadline=draw.uniform(0, 1.5 * took) if moment else 0.0) == loss
        except bt.StoppedError:
            assert np.array(params.values).tobytes() == before.tobytes()
        else:
            assert moment
            assert np.array(params.values).tobytes() == after.tobytes()


@pytest.mark.parametrize("make", [bt.optim.SGD, bt.optim.Adam, bt.optim.AdamW])
def test_a_step_of_an_optimiser_does_not_begin_after_a_stop(make):
    params = bt.Parameters(dtype="float64")
    params.tensor(3, init=1.0)
    params.grads[:] = [1.0, 2.0, 3.0]
    optimizer, stop = make(params, lr=0.5), bt.Stop()
    stop.set()
    with pytest.raises(bt.StoppedError):
        optimizer.step(stop=stop)
    assert list(params.values) == [1.0] * 3
    stop.clear()
    optimizer.step(stop=stop)
    moved = list(params.values)
    params.values[:] = 1.0
    make(params, lr=0.5).step()
    assert list(params.values) == moved != [1.0] * 3


def test_a_step_of_a_callables_oracle_moves_all_values_or_none():
    params = bt.Parameters(dtype="float64")
    w = params.tensor((1, 2), init=1.0)
    oracle = bt.Oracle(lambda x, y: ((w @ x).sum() - y) ** 2, params=params)
    x, y = [[1.0, 2.0], [0.0, 1.0]], [0.0, 1.0]
    with pytest.raises(bt.StoppedError):
        oracle.step(x, y, 0.1, deadline=0.0)
    assert list(params.values) == [1.0, 1.0]
    loss = oracle.step(x, y, 0.1, deadline=3600.0)
    moved = list(params.values)
    params.values[:] = 1.0
    assert oracle.step(x, y, 0.1) == loss
    assert list(params.values) == moved != [1.0, 1.0]


def test_another_thread_stops_a_call():
    params = bt.Parameters(dtype="float32")
    model = bt.nn.CharMLP(params, vocab=27, context=8, embedding=32, hidden=256)
    n_all = 300_000
    x, y = np.ones((n_all, 8), "int32"), np.ones(n_all, "int32")
    oracle = bt.Oracle(model)
    stop = bt.Stop()
    delay, n = 0.05, 0
    # Reading and checking the batch takes part of the time.
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
        ({"draw": bt.compress.Draw(1)}, "need compress="),
        ({"compress": bt.compress.TopK(2), "on_stop": "partial"}, "compress can be combined only with"),
    ],
)
def test_invalid_arguments_are_refused(options, text):
    model, x, y = model_and_batch("mlp", 3)
    model.params.grads[:] = 2.0
    with pytest.raises(ValueError, match=text):
        bt.Oracle(model)(x, y, **options)
    assert set(model.params.grads) == {2.0}


@pytest.mark.parametrize("is_traced", [True, False])
def test_a_callable_ends_with_all_samples_or_none(is_traced):
    params = bt.Parameters(dtype="float64", seed=1)
    w = params.tensor((30, 30), init="normal")

    def loss(row):
        if is_traced:
            return ((w @ row) ** 2).sum()
        # Code that reads the number of parameters cannot be traced.
        return sum((bt.inner_product(w[k], row) ** 2 for k in range(30)), 0.0 * params.n)

    oracle = bt.Oracle(loss, params=params, lanes=None if is_traced else 8)
    x = np.random.default_rng(1).normal(size=(6000 if is_traced else 150, 30))
    value, grad = oracle(x)
    full = np.array(grad)
    began = time.perf_counter()
    oracle(x)
    took = time.perf_counter() - began
    draw, ended = random.Random(2), 0
    for moment in range(MOMENTS // 6):
        out = np.full(params.n, 7.0)
        into = {"out": out} if moment % 3 == 0 else {}
        on_stop = ["raise", "discard", "partial"][moment % 3]
        try:
            found = oracle(x, deadline=draw.uniform(0, 1.5 * took), on_stop=on_stop, **into)
        except bt.StoppedError:
            assert on_stop == "raise"
            assert not out.any()
            ended += 1
            continue
        if found is None or found[2:] == (0,):
            assert on_stop == ("discard" if found is None else "partial")
            assert not np.array(params.grads).any()
            ended += 1
            continue
        assert found[0] == value
        assert np.array(found[1]).tobytes() == full.tobytes()
    assert ended
    some = oracle(x, deadline=60.0, wanted=range(5, 9), on_stop="partial")
    assert np.array(some[1]).tobytes() == full[5:9].tobytes()
    assert some[2] == len(x)
    assert np.array(oracle.grad(x)).tobytes() == full.tobytes()
    with pytest.raises(ValueError, match="reweight is for the models"):
        oracle(x, deadline=1.0, on_stop="partial", reweight=0.5)


def graph_of(params):
    """A Value over leaves and parameters, with some 100,000 nodes."""
    w = params.tensor((50, 50), init="normal")
    x = [bt.Value(0.01 * k) for k in range(50)]
    hidden = bt.concat(*x)
    for _ in range(20):
        hidden = bt.concat(*[(bt.inner_product(w[k], hidden) * 0.1).tanh() for k in range(50)])
    total = x[0]
    for k in range(30_000):
        total = total * 0.999 + x[k % 50].sin()
    return hidden.sum() + total, x


def test_a_stopped_backward_leaves_gradients_as_they_were():
    params = bt.Parameters(dtype="float64", seed=1)
    root, x = graph_of(params)
    params.grads[:] = 0.25
    began = time.perf_counter()
    root.backward()
    took = time.perf_counter() - began
    full = np.array(params.grads) - 0.25
    of_leaves = [v.grad for v in x]
    graph = bt.current_graph()
    draw = random.Random(3)
    ended = 0
    for moment in range(MOMENTS // 6):
        graph.zero_grad()
        params.grads[:] = 0.25
        wanted = range(100, 200) if moment % 3 == 0 else None
        try:
            root.backward(deadline=draw.uniform(0, 1.2 * took), wanted=wanted)
        except bt.StoppedError:
            ended += 1
            assert set(params.grads) == {0.25}
            assert not any(v.grad for v in x)
            continue
        found = np.array(params.grads) - 0.25
        if wanted is None:
            assert found.tobytes() == full.tobytes()
            assert [v.grad for v in x] == of_leaves
        else:
            assert found[100:200].tobytes() == full[100:200].tobytes()
            assert not found[:100].any()
    assert ended
    graph.zero_grad()
    params.grads[:] = 0.25
    root.backward(stop=bt.Stop(), deadline=3600.0)
    assert (np.array(params.grads) - 0.25).tobytes() == full.tobytes()
    assert [v.grad for v in x] == of_leaves


def test_another_thread_stops_backward_and_map():
    def slow(x):
        total = x
        for _ in range(300):
            total = (total * 1.01).sin()
        return total

    f = bt.function(slow)
    rows = np.linspace(0.0, 1.0, 3_000_000)
    stop = bt.Stop()
    for threads in (1, 2):
        stop.clear()
        f(0.5)
        threading.Timer(0.05, stop.set).start()
        began = time.perf_counter()
        with pytest.raises(bt.StoppedError, match="before the call was finished"):
            f.map(rows, stop=stop, threads=threads)
        assert time.perf_counter() - began < 5.0
        with pytest.raises(bt.StoppedError):
            f.map_value_and_grad(rows, stop=stop)
    stop.clear()
    assert f.map(rows[:100], stop=stop, deadline=60.0).tolist() == f.map(rows[:100]).tolist()
    with pytest.raises(bt.StoppedError):
        f.map(rows, deadline=0.0)
    x = bt.Value(1.0)
    y = x * x
    stop.set()
    with pytest.raises(bt.StoppedError):
        y.backward(stop=stop)
    assert x.grad == 0.0
    with pytest.raises(bt.StoppedError):
        y.graph.backward(y, stop=stop)
    assert x.grad == 0.0
    stop.clear()
    y.backward(2.0, stop=stop)
    assert x.grad == 4.0
    y.graph.backward(y, deadline=60.0)
    assert x.grad == 6.0


def test_arrays_end_early():
    params = bt.Parameters(dtype="float64", seed=1)
    w = params.tensor((300, 300), init="normal")
    graph = bt.Graph()
    x = y = graph.array(np.ones((300, 300)))
    for _ in range(4):
        y = bt.tanh(w @ y)
    y = y.sum()
    began = time.perf_counter()
    y.backward()
    took = time.perf_counter() - began
    full, slopes = np.array(params.grads), np.array(x.grad)
    draw, ended = random.Random(8), 0
    for _ in range(MOMENTS // 30):
        params.grads[:] = 0.0
        graph.zero_grad()
        try:
            y.backward(deadline=draw.uniform(0, 1.5 * took))
        except bt.StoppedError:
            ended += 1
            assert not np.array(params.grads).any()
            assert not np.array(x.grad).any()
            continue
        assert np.array(params.grads).tobytes() == full.tobytes()
        assert np.array(x.grad).tobytes() == slopes.tobytes()
    assert ended


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"stop": 3}, TypeError, "stop must be a Stop, found int"),
        ({"deadline": "soon"}, TypeError, "str"),
        ({"deadline": -1.0}, ValueError, "deadline must be at least 0"),
    ],
)
def test_other_stops_are_refused(options, error, text):
    x = bt.Value(1.0)
    with pytest.raises(error, match=text):
        (x * x).backward(**options)
    with pytest.raises(error, match=text):
        bt.function(lambda x: x * x).map([1.0], **options)
    assert x.grad == 0.0


@pytest.mark.alone  # a step is taken within a tenth of a second
def test_a_method_stops_between_steps():
    data, targets = bt.opt.make_logistic(2000, 50, seed=1)
    problem = bt.opt.logistic_regression(data, targets)
    stop = bt.Stop()
    method = bt.opt.GD(problem)
    threading.Timer(0.1, stop.set).start()
    records = method.run(stop=stop)
    taken = records[-1].step
    assert taken > 0
    assert method.run(5, stop=stop)[-1].step == taken
    stop.clear()
    again = bt.opt.GD(problem)
    again.run(taken + 3)
    method.run(3, stop=stop)
    assert np.array_equal(method.x, again.x)
    with pytest.raises(ValueError, match="or stop"):
        method.run()


def test_a_map_that_is_stopped_at_any_moment_leaves_its_function_whole():
    def slow(x):
        total = x
        for _ in range(40):
            total = (total * 1.01).sin()
        return total

    f = bt.function(slow)
    rows = np.linspace(0.0, 1.0, 20_000)
    full, (values, slopes) = np.array(f.map(rows)), [np.array(part) for part in f.map_value_and_grad(rows)]
    began = time.perf_counter()
    f.map_value_and_grad(rows)
    took = time.perf_counter() - began
    draw, ended, out = random.Random(4), 0, np.empty(len(rows))
    for moment in range(MOMENTS // 6):
        deadline, threads = draw.uniform(0, 1.2 * took), 1 + moment // 2 % 2
        try:
            if moment % 2:
                found = f.map(rows, deadline=deadline / 2, threads=threads, out=out)
                assert found.tobytes() == full.tobytes()
            else:
                value, slope = f.map_value_and_grad(rows, deadline=deadline, threads=threads)
                assert np.array(value).tobytes() == values.tobytes()
                assert np.array(slope).tobytes() == slopes.tobytes()
        except bt.StoppedError:
            ended += 1
            # Rows of out have the result or the old content.
            assert f(0.5) == f.map(np.array([0.5]))[0]
    assert ended
    assert np.array(f.map(rows)).tobytes() == full.tobytes()
    assert f.stats()["traced"] == 1


def test_a_method_that_is_stopped_at_any_moment_goes_on_as_if_it_had_not():
    data, targets = bt.opt.make_logistic(300, 20, seed=1)
    problem = bt.opt.logistic_regression(data, targets)
    stop, draw = bt.Stop(), random.Random(6)
    method, again = bt.opt.GD(problem), bt.opt.GD(problem)
    began = time.perf_counter()
    again.run(5)
    delay = 2 * (time.perf_counter() - began)
    taken, ended = 0, 0
    for _ in range(MOMENTS // 6):
        timer = threading.Timer(draw.uniform(0, delay), stop.set)
        timer.start()
        records = method.run(400, stop=stop)
        timer.join()
        stop.clear()
        before, taken = taken, records[-1].step if records else taken
        ended += taken < before + 400
        assert np.isfinite(method.x).all()
    assert ended
    again.run(taken - 5)
    assert np.array_equal(method.x, again.x)
