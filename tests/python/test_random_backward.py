"""Weight gradients from randomly sampled inputs: no bias, by enumeration and by sampling; the variance; bits."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest

import burtorch as bt

Draw = bt.compress.Draw


def model_and_batch(kind, n, dtype="float64"):
    draw = random.Random(n)
    params = bt.Parameters(dtype=dtype, seed=1)
    tokens = [[draw.randrange(5) for _ in range(2)] for _ in range(n)]
    if kind == "gpt":
        model = bt.nn.GPT(params, vocab=5, context=2, layers=2, heads=2, width=4)
        return model, tokens, [[draw.randrange(5) for _ in range(2)] for _ in range(n)]
    if kind == "char":
        model = bt.nn.CharMLP(params, vocab=5, context=2, embedding=2, hidden=4)
        return model, tokens, [draw.randrange(5) for _ in range(n)]
    x = [[draw.uniform(-1, 1) for _ in range(3)] for _ in range(n)]
    return bt.nn.MLP(params, [3, 4, 2]), x, [draw.randrange(2) for _ in range(n)]


def gradients(oracle, x, y, p, draws):
    """Loss and gradient for each draw as a row, and the one variance of all."""
    losses, rows, variances = set(), [], set()
    for draw in draws:
        loss, grad, variance = oracle(x, y, random_backward=p, draw=draw)
        losses.add(loss)
        rows.append(np.array(grad))
        variances.add(variance)
    ((loss,), (variance,)) = losses, variances
    return loss, np.array(rows), variance


@pytest.mark.parametrize("kind", ["mlp", "char"])
@pytest.mark.parametrize("n", [1, 3])
def test_the_mean_of_all_outcomes_is_the_gradient(kind, n):
    """Each layer has at most four inputs: 16 outcomes at p = 1/2. With one sample, their spread is the variance."""
    model, x, y = model_and_batch(kind, n)
    oracle = bt.Oracle(model)
    loss, grad = oracle(x, y)
    full = np.array(grad)
    outcomes = [Draw.of(u) for u in itertools.product([0.25, 0.75], repeat=4)]
    same, rows, variance = gradients(oracle, x, y, 0.5, outcomes)
    assert same == loss
    assert np.allclose(rows.mean(axis=0), full, rtol=1e-12, atol=1e-15)
    assert len({row.tobytes() for row in rows}) > 8
    if n == 1:
        assert ((rows - full) ** 2).sum(axis=1).mean() == pytest.approx(variance, rel=1e-12)
        # Frozen weights have no gradient.
        model.params.freeze([(0, 2), (5, 17)])
        full = np.array(oracle.grad(x, y))
        _, rows, less = gradients(oracle, x, y, 0.5, outcomes)
        assert ((rows - full) ** 2).sum(axis=1).mean() == pytest.approx(less, rel=1e-12)
        assert 0 < less <= variance


@pytest.mark.parametrize("kind", ["mlp", "char", "gpt"])
@pytest.mark.parametrize("q", [2, 4, 5])
def test_inputs_that_are_kept_together_have_no_bias_either(kind, q):
    """The gradient is linear in the kept inputs: keeping all with probability 1/q, otherwise none, has no bias."""
    model, x, y = model_and_batch(kind, 5)
    oracle = bt.Oracle(model)
    full = np.array(oracle.grad(x, y))
    outcomes = [Draw.of([(k + 0.5) / q] * 256) for k in range(q)]
    _, rows, _ = gradients(oracle, x, y, 1 / q, outcomes)
    assert np.allclose(rows.mean(axis=0), full, rtol=1e-12, atol=1e-15)
    assert not np.allclose(rows[0], full)


@pytest.mark.parametrize("kind", ["mlp", "char", "gpt"])
@pytest.mark.parametrize("n", [1, 6])
def test_draws_have_no_bias_and_the_stated_variance(kind, n):
    """Means of 8 numbers, and of the squared distance, within 6 standard errors: one false alarm in 5e7 runs."""
    rounds = 1000
    model, x, y = model_and_batch(kind, n)
    oracle = bt.Oracle(model)
    full = np.array(oracle.grad(x, y))
    _, rows, variance = gradients(oracle, x, y, 0.3, [Draw(7, k) for k in range(rounds)])
    off = rows - full
    for direction in np.random.default_rng(1).normal(size=(8, len(full))):
        seen = off @ direction
        assert abs(seen.mean()) < 6 * seen.std() / math.sqrt(rounds)
    squares = (off**2).sum(axis=1)
    assert abs(squares.mean() - variance) < 6 * squares.std() / math.sqrt(rounds)
    assert variance > 0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["mlp", "char", "gpt"])
def test_bits_depend_on_the_draw_only(kind, dtype):
    for n in (1, 2, 5, 16, 70, 150):
        model, x, y = model_and_batch(kind, n, dtype)
        oracle = bt.Oracle(model)
        loss, grad = oracle(x, y)
        full = np.array(grad)
        same, all_kept, variance = oracle(x, y, random_backward=1.0, draw=Draw(1))
        assert (same, variance) == (loss, 0.0)
        assert np.array(all_kept).tobytes() == full.tobytes()
        found = set()
        for threads in (1, 2, 8):
            threaded = bt.Oracle(model, threads=threads)
            for _ in range(2):
                some_loss, some, variance = threaded(x, y, random_backward=0.4, draw=Draw(3, 5))
                found.add((some_loss, np.array(some).tobytes(), variance))
        assert len(found) == 1
        ((_, bits, variance),) = found
        assert bits != full.tobytes()
        # The same inputs are kept however many samples are computed at once.
        some = np.frombuffer(bits, dtype)
        _, by_one, of_one = bt.Oracle(model, lanes=1)(x, y, random_backward=0.4, draw=Draw(3, 5))
        tolerance = 2e-5 if dtype == "float32" else 1e-12
        assert np.allclose(np.array(by_one), some, rtol=tolerance, atol=tolerance)
        assert of_one == pytest.approx(variance, rel=tolerance)
        assert np.array(oracle(x, y, random_backward=0.4, draw=Draw(3, 6))[1]).tobytes() != bits


def test_points_and_memory_of_the_caller():
    model, x, y = model_and_batch("char", 4)
    oracle = bt.Oracle(model)
    params = model.params
    point, out = np.array(params.values) * 0.5, np.empty(params.n)
    params.grads[:] = 3.0
    loss, grad, variance = oracle(x, y, at=point, out=out, random_backward=0.5, draw=Draw(1))
    assert grad is out
    assert set(params.grads) == {3.0}
    params.values[:] = point
    again = oracle(x, y, random_backward=0.5, draw=Draw(1))
    assert (again[0], again[2]) == (loss, variance)
    assert np.array(again[1]).tobytes() == out.tobytes()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"random_backward": 0.0, "draw": Draw(1)}, "above 0 and at most 1"),
        ({"random_backward": 1.5, "draw": Draw(1)}, "above 0 and at most 1"),
        ({"random_backward": math.nan, "draw": Draw(1)}, "above 0 and at most 1"),
        ({"random_backward": 0.5}, "needs draw="),
        (
            {"random_backward": 0.5, "draw": Draw(1), "wanted": [1]},
            "combined only with at, out, draw, stop and deadline",
        ),
        (
            {"random_backward": 0.5, "draw": Draw(1), "on_stop": "partial"},
            "combined only with at, out, draw, stop and deadline",
        ),
        (
            {"random_backward": 0.5, "draw": Draw(1), "compress": bt.compress.TopK(2)},
            "combined only with at, out, draw, stop and deadline",
        ),
        ({"random_backward": 0.5, "draw": Draw(1), "client": 1}, "combined only with at, out, draw, stop and deadline"),
    ],
)
def test_invalid_arguments_are_refused(options, text):
    model, x, y = model_and_batch("mlp", 3)
    model.params.grads[:] = 2.0
    with pytest.raises(ValueError, match=text):
        bt.Oracle(model)(x, y, **options)
    assert set(model.params.grads) == {2.0}


def test_too_few_given_numbers_and_callables_are_refused():
    model, x, y = model_and_batch("mlp", 3)
    oracle = bt.Oracle(model)
    with pytest.raises(ValueError, match="the given draws"):
        oracle(x, y, random_backward=0.5, draw=Draw.of([0.5, 0.5]))
    assert not np.array(model.params.grads).any()
    w = model.params.tensor(2)
    with pytest.raises(ValueError, match=r"models of burtorch\.nn"):
        bt.Oracle(lambda row: (w * row).sum(), params=model.params)([[1.0, 2.0]], random_backward=0.5, draw=Draw(1))
