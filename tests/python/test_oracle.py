"""Oracles: formulas, shapes and types of batches, refusals without changes, threads, Ctrl-C."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from array import array

import numpy as np
import pytest

import burtorch as bt
from burtorch.nn import MLP, Linear

CONTEXT = 3


@pytest.fixture(params=["float32", "float64"])
def model(request):
    return bt.nn.CharMLP(bt.Parameters(dtype=request.param), vocab=5, context=CONTEXT, embedding=3, hidden=4)


def test_the_gradient_is_the_slope():
    params = bt.Parameters(dtype="float64", seed=3)
    model = bt.nn.CharMLP(params, vocab=5, context=CONTEXT, embedding=3, hidden=4)
    oracle = bt.Oracle(model)
    batch = [[0, 1, 2], [4, 4, 1]], [3, 0]
    loss, grad = oracle(*batch)
    expected = [sum(math.exp(z) for z in model.logits(x)) for x in batch[0]]
    losses = [math.log(total) - model.logits(x)[y] for total, x, y in zip(expected, *batch)]
    assert loss == pytest.approx(sum(losses) / 2, rel=1e-12)
    assert oracle.losses(*batch) == pytest.approx(losses, rel=1e-12)
    for k in range(0, params.n, 3):
        at = params.values[k]
        params.values[k] = at + 1e-6
        above = oracle.loss(*batch)
        params.values[k] = at - 1e-6
        slope = (above - oracle.loss(*batch)) / 2e-6
        params.values[k] = at
        assert grad[k] == pytest.approx(slope, abs=1e-8)


@pytest.mark.parametrize("n", [1, 5, 64, 300])
def test_a_gradient_that_skips_the_loss_is_the_same(model, n):
    params = model.params
    oracle = bt.Oracle(model)
    contexts, targets = [[k % 5, (k + 1) % 5, 2] for k in range(n)], [k % 5 for k in range(n)]
    loss, grad = oracle(contexts, targets)
    wanted = list(grad)
    params.zero_grad()
    out = bytearray(len(wanted) * (4 if params.dtype == "float32" else 8))
    out = memoryview(out).cast("f" if params.dtype == "float32" else "d")
    assert list(oracle.grad(contexts, targets)) == wanted
    assert list(oracle.grad(contexts, targets, out=out)) == wanted == list(out)
    assert oracle(contexts, targets)[0] == loss == pytest.approx(oracle.loss(contexts, targets), rel=1e-6)


def test_sum_is_b_times_mean(model):
    batch = [[0, 1, 2], [4, 4, 1], [2, 2, 2]], [3, 0, 1]
    mean, grad = bt.Oracle(model)(*batch)
    grad = list(grad)
    total, grads = bt.Oracle(model, reduction="sum")(*batch)
    assert total == pytest.approx(3 * mean, rel=1e-6)
    assert list(grads) == pytest.approx([3 * g for g in grad], rel=1e-4, abs=1e-6)


def test_the_gradient_is_zero_where_nothing_reaches(model):
    params = model.params
    extra = params.tensor(3, init=1.0)
    params.grads[:] = float("nan")
    _, grad = bt.Oracle(model)([[0, 1, 1]], [2])
    assert not any(math.isnan(g) for g in grad)
    assert not any(list(extra.grads) + list(model.embedding.grads[6:]))
    assert any(model.embedding.grads[:6])


def test_frozen_parts_receive_nothing(model):
    params = model.params
    params.freeze(model.embedding)
    _, grad = bt.Oracle(model)([[0, 1, 2]], [3])
    assert not any(model.embedding.grads)
    assert any(grad)


def test_probabilities_are_targets_too(model):
    oracle = bt.Oracle(model)
    by_class, grad = oracle([[0, 1, 2]], [3])
    grad = list(grad)
    by_probability, same = oracle([[0, 1, 2]], [[0.0, 0.0, 0.0, 1.0, 0.0]])
    assert by_probability == pytest.approx(by_class, rel=1e-6)
    assert list(same) == pytest.approx(grad, rel=1e-4, abs=1e-6)


def test_regression_and_classification_with_dense_models():
    params = bt.Parameters(dtype="float64")
    layer = Linear(params, 2, 2, bias=False)
    params.values[:] = [1.0, 2.0, 3.0, 4.0]
    x = [[1.0, 1.0], [0.0, 2.0]]
    assert layer(x[0]) == [3.0, 7.0]
    oracle = bt.Oracle(layer)
    assert oracle.losses(x, [[3.0, 6.0], [4.0, 8.0]]) == [0.5, 0.0]
    assert oracle.loss(x, [1, 1]) == pytest.approx((math.log1p(math.exp(-4)) + math.log1p(math.exp(-4))) / 2)
    assert bt.Oracle(layer, loss="mse").losses(x, [[3, 6], [4, 8]]) == [0.5, 0.0]
    cross = bt.Oracle(layer, loss="cross_entropy").loss(x, [[0.0, 1.0], [0.0, 1.0]])
    assert cross == pytest.approx(oracle.loss(x, [1, 1]))
    one = bt.Oracle(MLP(bt.Parameters(), [2, 3, 1]))
    assert one.loss(x, [0.5, 1.0]) == pytest.approx(one.loss(x, [[0.5], [1.0]]))


def test_training_a_small_network():
    params = bt.Parameters(dtype="float64", seed=1)
    model = MLP(params, [2, 8, 1])
    oracle, sgd = bt.Oracle(model), bt.optim.SGD(model, lr=0.1, momentum=0.9)
    batch = [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], [0.0, 1.0, 1.0, 0.0]
    for _ in range(1000):
        oracle(*batch)
        sgd.step()
    assert oracle.loss(*batch) < 1e-3


def batches():
    np = pytest.importorskip("numpy")
    x, y = np.array([[0, 1, 2], [3, 4, 1]]), np.array([3, 0])
    wide = np.zeros((4, 6), dtype=np.int16)
    wide[::2, ::2] = x
    yield from [(x.astype(t), y.astype(t)) for t in ("u1", "i2", "u4", "i8", "u8")]
    yield wide[::2, ::2], y
    yield np.asfortranarray(x), y
    yield list(x), list(y)
    yield x.tolist(), tuple(y)
    yield [tuple(row) for row in x], array("B", y)


def test_batches_of_every_kind_are_read_alike(model):
    oracle = bt.Oracle(model)
    assert len({oracle(x, y)[0] for x, y in batches()}) == 1


@pytest.mark.parametrize(
    ("x", "y", "error"),
    [
        ([], [], ValueError),
        ([[0, 1]], [0], ValueError),
        ([0, 1, 2], [0], ValueError),
        ([[0, 1, 2], [0, 1]], [0, 1], ValueError),
        ([[0, 1, 2], 3], [0, 1], ValueError),
        ([[[0, 1, 2]]], [0], ValueError),
        ([[0, 1, 2]], [0, 1], ValueError),
        ([[0, 1, 2]], [[0]], ValueError),
        ([[0, 1, 2]], [0.5], ValueError),
        ([[0, 1, 5]], [0], IndexError),
        ([[0, 1, 2], [0, 1, 5]], [0, 0], IndexError),
        ([[0, 1, -1]], [0], IndexError),
        ([[0, 1, 2]], [5], IndexError),
        ([[0, 1, 2]], [-1], IndexError),
        ([[0, 1, 2**40]], [0], IndexError),
        ([[0, 1, 2.5]], [0], TypeError),
        ([[0.0, 1.0, 2.0]], [0], TypeError),
        (["abc"], [0], TypeError),
        (None, [0], TypeError),
        ([[0, 1, 2]], None, TypeError),
        ([[0, 1, 2]], "a", TypeError),
        (array("f", [0, 1, 2]), [0], TypeError),
        (memoryview(bytearray(3)).cast("?", [1, 3]), [0], TypeError),
    ],
)
def test_a_bad_batch_changes_nothing(model, x, y, error):
    params = model.params
    params.grads[:] = 3.0
    values = list(params.values)
    oracle = bt.Oracle(model)
    for call in (oracle, oracle.loss, oracle.losses):
        with pytest.raises(error):
            call(x, y)
    assert (set(params.grads), list(params.values)) == ({3.0}, values)


def test_bad_oracles_are_refused(model):
    for bad in (None, 3, model.params, bt.Oracle(model)):
        with pytest.raises(TypeError):
            bt.Oracle(bad)
    with pytest.raises(ValueError, match="reduction"):
        bt.Oracle(model, reduction="max")
    with pytest.raises(ValueError, match="loss"):
        bt.Oracle(model, loss="hinge")


def test_a_loss_that_is_not_a_number_is_a_result(model):
    model.params.values[:] = float("nan")
    assert math.isnan(bt.Oracle(model)([[0, 1, 2]], [0])[0])


def big():
    model = bt.nn.CharMLP(bt.Parameters(), hidden=256)
    n = 4000
    return model, memoryview(bytes(16 * n)).cast("B", [n, 16]), memoryview(bytes(n))


def test_a_long_call_lets_other_threads_run_and_refuses_them_the_parameters():
    model, x, y = big()
    busy = []
    done = threading.Event()

    def other():
        while not done.is_set():
            try:
                len(model.params)
            except bt.BusyError:
                busy.append(time.monotonic())
            time.sleep(1e-3)

    thread = threading.Thread(target=other)
    thread.start()
    try:
        loss, _ = bt.Oracle(model)(x, y)
    finally:
        done.set()
        thread.join()
    assert math.isfinite(loss)
    assert len(busy) > 3


def train_for_long(oracle, x, y):
    for _ in range(1000):
        oracle(x, y)


@pytest.mark.skipif(os.name != "posix", reason="signals to oneself")
def test_ctrl_c_ends_a_long_call_and_leaves_no_gradient():
    model, x, y = big()
    values = list(model.params.values)
    timer = threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT))
    oracle = bt.Oracle(model)
    timer.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        train_for_long(oracle, x, y)
    assert time.monotonic() - start < 2.0
    assert list(model.params.values) == values
    assert not any(model.params.grads)


@pytest.mark.parametrize("n", [1, 3])
def test_a_fused_step_is_a_gradient_and_a_step(n):
    models = [bt.nn.CharMLP(bt.Parameters(seed=1), vocab=5, context=CONTEXT, embedding=3, hidden=4) for _ in range(2)]
    apart, fused = map(bt.Oracle, models)
    sgd = bt.optim.SGD(models[0], lr=0.1)
    batch = [[0, 1, 1], [4, 2, 0], [3, 3, 3]][:n], [3, 0, 1][:n]
    for _ in range(5):
        loss, _ = apart(*batch)
        sgd.step()
        assert fused.step(*batch, lr=0.1) == pytest.approx(loss, rel=1e-5)
    assert list(fused.params.values) == pytest.approx(list(apart.params.values), rel=1e-4, abs=1e-6)
    with pytest.raises(ValueError, match="learning rate"):
        fused.step(*batch, lr=-1.0)


def test_an_optimiser_follows_its_formula_and_refuses_nonsense():
    params = bt.Parameters(dtype="float64")
    params.tensor(2, init=1.0)
    sgd = bt.optim.SGD(params, lr=0.1, momentum=0.5, nesterov=True, weight_decay=0.1)
    assert (sgd.lr, sgd.momentum, sgd.weight_decay, sgd.params is params) == (0.1, 0.5, 0.1, True)
    x, v = 1.0, 0.0
    for _ in range(3):
        params.grads[0] = 2.0
        sgd.step()
        g = 2.0 + 0.1 * x
        v = 0.5 * v + g
        x -= 0.1 * (g + 0.5 * v)
        assert params.values[0] == pytest.approx(x, rel=1e-12)
    sgd.zero_grad()
    assert params.grads[0] == 0.0
    for arguments in ({"lr": -1.0}, {"lr": math.nan}, {"momentum": 1.0}, {"nesterov": True}, {"weight_decay": -1.0}):
        with pytest.raises(ValueError, match="must be"):
            bt.optim.SGD(params, **arguments)
    with pytest.raises(ValueError, match="learning rate"):
        sgd.lr = math.inf
    assert sgd.lr == 0.1
    with pytest.raises(TypeError):
        bt.optim.SGD([1.0])


def test_threads_do_not_change_a_bit():
    params = bt.Parameters(seed=1)
    model = bt.nn.CharMLP(params, vocab=11, context=3, embedding=4, hidden=8)
    contexts = [[(7 * k + i) % 11 for i in range(3)] for k in range(300)]
    targets = [(5 * k) % 11 for k in range(300)]
    found = set()
    for threads in (1, 2, 8, 64):
        oracle = bt.Oracle(model, threads=threads)
        for _ in range(3):
            loss, grad = oracle(contexts, targets)
            found.add((loss, bytes(memoryview(grad))))
    assert len(found) == 1
    with pytest.raises(ValueError, match="threads must be at least 1"):
        bt.Oracle(model, threads=0)


def test_a_sample_loss_is_that_of_the_oracle_and_an_error_appends_nothing():
    params = bt.Parameters(seed=1)
    model = bt.nn.CharMLP(params, vocab=11, context=3, embedding=4, hidden=8)
    graph = bt.Graph(dtype="float32")
    with graph:
        losses = bt.parallel(lambda k: bt.nn.sample_loss(model, [k, 1, 2], [k]), range(8), threads=4)
        wanted = bt.Oracle(model).losses([[k, 1, 2] for k in range(8)], list(range(8)))
        assert [loss.data for loss in losses] == pytest.approx(wanted, rel=1e-6)
        n = len(graph)
        with pytest.raises(IndexError):
            bt.nn.sample_loss(model, [11, 1, 2], [0])
        with pytest.raises(ValueError, match="must be 3, found 2"):
            bt.nn.sample_loss(model, [1, 2], [0])
        with pytest.raises(TypeError), bt.Graph():
            bt.nn.sample_loss(model, [1, 1, 2], [0])
        assert len(graph) == n
    losses[0].backward()
    assert any(params.grads)


@pytest.mark.parametrize("dtype", ["f2", "g", "?", ">f2", ">f4", ">f8", ">i2", ">i8", "<u4", ">u4", "f4", "i1"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_numbers_of_any_format_are_contexts_and_targets(dtype, order):
    x, y = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]]), np.array([[1.0, 0.0], [0.0, 1.0]])
    of_x, of_y = np.asarray(x, dtype, order=order), np.asarray(y, dtype, order=order)
    model = bt.nn.MLP(bt.Parameters(dtype="float64", seed=2), [3, 4, 2])
    for loss in ("mse", "cross_entropy"):
        oracle = bt.Oracle(model, loss=loss)
        expected, gradient = oracle(x, y)
        gradient = list(gradient)
        found, given = oracle(of_x, y)
        assert (found, list(given)) == (expected, gradient)
        if loss == "mse" or of_y.dtype.kind not in "iu":
            found, given = oracle(x, of_y)
            assert (found, list(given)) == (expected, gradient)
        assert oracle.loss(list(of_x), y) == expected


def test_tokens_and_classes_in_the_other_byte_order():
    tokens, after = np.array([[0, 1, 4], [2, 2, 3]]), np.array([1, 3])
    chars = bt.nn.CharMLP(bt.Parameters(seed=1), vocab=5, context=3, embedding=4, hidden=6)
    gpt = bt.nn.GPT(bt.Parameters(seed=1), vocab=5, context=4, layers=1, heads=1, width=8)
    classes = bt.Oracle(bt.nn.MLP(bt.Parameters(seed=1), [3, 5]))
    for dtype in (">i8", ">u4", ">i2"):
        for oracle, x, y in ((bt.Oracle(chars), tokens, after), (bt.Oracle(gpt), tokens, tokens)):
            assert oracle.loss(x.astype(dtype), y.astype(dtype)) == oracle.loss(x, y)
        assert classes.loss(np.ones((2, 3)), after.astype(dtype)) == classes.loss(np.ones((2, 3)), after)
    for dtype in (">f8", "f2", "?"):
        with pytest.raises(TypeError, match="contexts must be integers"):
            bt.Oracle(chars).loss(tokens.astype(dtype), after)


@pytest.mark.parametrize("dtype", ["c16", ">c16", "M8[s]", "U3", "O"])
def test_other_arrays_are_no_numbers(dtype):
    oracle = bt.Oracle(bt.nn.Linear(bt.Parameters(), 2, 1))
    with pytest.raises((TypeError, ValueError)):
        oracle.loss(np.zeros((3, 2)).astype(dtype), np.zeros((3, 1)))
