"""Loops whose bodies work on short arrays, which share one workspace.

They have the same bits as loops with a choice in the body, which run step by step, and the numbers of Python loops.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

import burtorch as bt

LENGTHS = [1, 2, 7, 8, 9, 16, 31, 33, 62, 64, 100, 130]
STEPS = 4


def same(x, y):
    x, y = np.asarray(x), np.asarray(y)
    assert x.dtype == y.dtype
    assert x.shape == y.shape
    assert x.tobytes() == y.tobytes(), (x, y)


def half(x):
    return x * 0.5


# Each maps an array with one axis of any length to one of the same length.
WAYS = {
    "sum": lambda x, w: x + w,
    "difference": lambda x, w: w - x,
    "product": lambda x, w: x * w,
    "quotient": lambda x, w: x / (w * w + 1.0),
    "negative": lambda x, w: -x + w,
    "square and root": lambda x, w: np.sqrt(x * x + 1.0) - w,
    "magnitude": lambda x, w: np.abs(x - w),
    "sine": lambda x, w: np.sin(x) * w,
    "exponential": lambda x, w: np.exp(-x * x) + half(w),
    "tanh": lambda x, w: np.tanh(x + w),
    "logarithm": lambda x, w: np.log(x * x + 2.0) * w,
    "power": lambda x, w: (x * x + 1.0) ** 1.5 * 0.1 + w,
    "larger": lambda x, w: np.maximum(x, w),
    "smaller": lambda x, w: np.minimum(x, half(w)),
    "choice": lambda x, w: np.where(x < w, x * w, x - w),
    "repeated number": lambda x, w: x * w[0] + w[-1],
    "of all": lambda x, w: x - x.sum() * 0.1 + w.mean() - x.max() * 0.5,
    "backwards": lambda x, w: x[::-1] + half(w),
    "turned": lambda x, w: np.concatenate([x[1:], x[:1]]) * w,
    "neighbours": lambda x, w: np.concatenate([x[:1], x[1:] - half(x[:-1])]) + w,
    "every second": lambda x, w: np.concatenate([x[::2] * 2.0, x[1::2] + w[1::2]]),
    "two rows": lambda x, w: (np.stack([x, w]) * np.stack([w, half(x)])).sum(axis=0),
    "rows and columns": lambda x, w: (x[:, None] * half(w)[None, :3]).sum(axis=1) + w,
    "columns": lambda x, w: np.concatenate([(x[:, None] + w[None, :9]).max(axis=0), x[9:]]) * 0.9,
    "columns of columns": lambda x, w: np.stack([x, w], axis=1).reshape(-1)[: len(x)] + half(x),
    "turned rows": lambda x, w: (np.stack([x, w, x * w]).T * 0.3).sum(axis=1),
    "product of matrices": lambda x, w: np.outer(w, w[:5]) @ x[:5] * 0.1 + x,
    "inner product": lambda x, w: x + w * (x @ w) * 0.01,
    "logsumexp": lambda x, w: x - bt.logsumexp(x * w) + w,
    "places": lambda x, w: x[np.arange(len(x)) * 7 % len(x)] * 0.5 + w,
    "running sum": lambda x, w: np.cumsum(x) * 0.1 + w,
}


def checked(step, arguments):
    """The values and the gradients of a scan, of one with a choice, and of a Python loop."""

    def rolled(x, w, ys):
        x, kept = bt.scan(lambda x, y: step(x, w, y), x, ys)
        return (x * x).sum() + kept.sum()

    def by_steps(x, w, ys):
        def chosen(c, y):
            x, kept = step(c[0], w, y)
            return (x, bt.cond(c[1] < 2.0, lambda n: n + 1.0, lambda n: n, c[1])), kept

        (x, _), kept = bt.scan(chosen, (x, 0.0), ys)
        return (x * x).sum() + kept.sum()

    def plain(x, w, ys):
        kept = []
        for k in range(STEPS):
            x, one = step(x, w, ys[k])
            kept.append(one)
        return (x * x).sum() + np.stack(kept).sum()

    found = [bt.value_and_grad(f, argnums=(0, 1, 2))(*arguments) for f in (rolled, by_steps, plain)]
    near = 1e-11 if arguments[0].dtype == np.float64 else 2e-3
    (value, gradient), *others = [(value, [*gradient]) for value, gradient in found]
    for x, by_step, unrolled in zip([value, *gradient], *([v, *g] for v, g in others), strict=True):
        same(x, by_step)
        x, unrolled = np.asarray(x), np.asarray(unrolled)
        np.testing.assert_allclose(x, unrolled, rtol=0, atol=near * max(1.0, np.abs(unrolled).max()))


def numbers(seed, n, dtype):
    rng = np.random.default_rng(seed)
    return rng.normal(size=n).astype(dtype), rng.normal(size=n).astype(dtype), rng.normal(size=(STEPS, n)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("way", WAYS)
def test_every_way_at_every_length(way, dtype):
    for n in LENGTHS:
        checked(lambda x, w, y: (WAYS[way](x, w) * 0.5 + y, x[:1]), numbers(n, n, dtype))


@pytest.mark.parametrize("seed", range(60))
def test_random_bodies(seed):
    rng = random.Random(seed)
    plan = [(rng.choice(sorted(WAYS)), rng.random(), rng.random()) for _ in range(rng.randint(2, 6))]

    def step(x, w, y):
        known = [x, w, y]
        for way, a, b in plan:
            one, other = known[int(a * len(known))], known[int(b * len(known))]
            known.append(np.tanh(WAYS[way](one, other)))
        return known[-1] + half(x), known[-2]

    checked(step, numbers(seed, rng.choice(LENGTHS), rng.choice([np.float64, np.float32])))


@pytest.mark.parametrize("n", [1, 8, 30, 64, 130])
def test_loops_in_loops_batches_and_loops_of_unknown_length(n):
    x, w, ys = numbers(n, n, np.float64)

    def body(x, y):
        return np.concatenate([x[1:] * 0.5, x[:1]]) + np.sin(x) * y, None

    def nested(x, w, ys):
        return bt.scan(lambda x, y: (bt.scan(body, x, np.stack([y, w]))[0] * 0.9, None), x, ys)[0].sum()

    def plain(x, w, ys):
        for k in range(STEPS):
            for y in (ys[k], w):
                x = body(x, y)[0]
            x = x * 0.9
        return x.sum()

    found = [bt.value_and_grad(f, argnums=(0, 1, 2))(x, w, ys) for f in (nested, plain)]
    same(found[0][0], found[1][0])
    for a, b in zip(found[0][1], found[1][1], strict=True):
        same(a, b)

    def each(x):
        return bt.scan(body, x, ys)[0].sum()

    rows = np.stack([x, w, x * w])
    for f in (each, bt.grad(each)):
        np.testing.assert_allclose(bt.vmap(f)(rows), np.stack([f(row) for row in rows]), rtol=0, atol=1e-12)

    def until(x):
        start = (x, np.int64(0))
        return bt.while_loop(lambda c: c[1] < STEPS, lambda c: (body(c[0], w)[0], c[1] + 1), start)[0].sum()

    def stepped(x):
        for _ in range(STEPS):
            x = body(x, w)[0]
        return x.sum()

    for transform in (bt.function, bt.grad):
        same(transform(until)(x), transform(stepped)(x))


def test_carries_may_swap_and_be_returned():
    def step(c, y):
        a, b, n = c
        return (b, a * 0.5 + y, n + 1), (a, n)

    x, w, ys = numbers(3, 20, np.float64)
    (a, b, n), (kept, counts) = bt.scan(step, (x, w, np.int64(2)), ys)
    assert n == 2 + STEPS
    assert counts.tolist() == [2, 3, 4, 5]
    expected = []
    for y in ys:
        expected.append(x)
        x, w = w, x * 0.5 + y
    same(a, x)
    same(b, w)
    same(kept, np.stack(expected))
