"""Loops with parts computed for all steps at once, against Python loops, bit for bit."""

from __future__ import annotations

import random

import numpy as np
import pytest

import burtorch as bt

# Numbers or vectors: a state h, a captured w, a slice x.
OF_SLICES = [
    lambda w, x: np.exp(0.3 * x),
    lambda w, x: np.sin(w * x),
    lambda w, x: np.log1p(x * x),
    lambda w, x: x * 2.0,
    lambda w, x: bt.where(x > w, np.tanh(x), x),
    lambda w, x: np.maximum(x, w),
    lambda w, x: 1.0 / (1.0 + x * x),
    lambda w, x: w,
]
OF_STATES = [
    lambda h, s: h * s,
    lambda h, s: np.tanh(h + s),
    lambda h, s: h + 0.1 * np.sin(h) * s,
    lambda h, s: bt.where(h > s, h, s),
    lambda h, s: 0.5 * h + 0.5 * s,
    lambda h, s: s,
    lambda h, s: np.sqrt(1.0 + h * h) - s,
]
OF_RESULTS = [
    lambda h, new, s: np.log(1.0 + h * h),
    lambda h, new, s: new,
    lambda h, new, s: s,
    lambda h, new, s: np.cos(new) * s,
    lambda h, new, s: np.exp(-new * new) + h,
    lambda h, new, s: h * 3.0,
    lambda h, new, s: (new - h) / (1.0 + s * s),
]
SHAPES = [(), (1,), (3,), (17,)]


def unrolled(step, carry, xs, reverse):
    ys = {}
    order = range(xs.shape[0])
    for k in reversed(order) if reverse else order:
        carry, ys[k] = step(carry, xs[k])
    return carry, [ys[k] for k in order]


def loops(seed):
    """A random loop, rolled and unrolled, and its arguments."""
    rng = random.Random(seed)
    shape, n = rng.choice(SHAPES), rng.choice([1, 2, 3, 5, 40])
    slices, states, results = rng.choices(OF_SLICES, k=2), rng.choices(OF_STATES, k=2), rng.choices(OF_RESULTS, k=2)
    reverse, two = rng.random() < 0.5, rng.random() < 0.5

    def made(is_kept):
        def f(h, w, xs):
            def step(carry, x):
                h, other = carry
                s, t = slices[0](w, x), slices[1](w, x)
                new = states[0](h, s)
                ys = (results[0](h, new, s), results[1](other, new, t))
                return (new, states[1](other, t) if two else t), ys

            start = (h, 0.5 * h)
            if is_kept:
                (last, other), (ys, zs) = bt.scan(step, start, xs, reverse=reverse)
                rows = [(ys[k], zs[k]) for k in range(n)]
            else:
                (last, other), rows = unrolled(step, start, xs, reverse)
            total = last + 2.0 * other
            for k, (y, z) in enumerate(rows):
                total = total + (k + 1.0) * y * z
            return total if shape == () else total.sum()

        return f

    numbers = np.random.default_rng(seed)
    h, w = numbers.standard_normal(shape), numbers.standard_normal(shape)
    return made(True), made(False), (h, w, numbers.standard_normal((n, *shape)))


@pytest.mark.parametrize("seed", range(150))
def test_random_loops_have_the_numbers_of_python_loops(seed):
    kept, flat, args = loops(seed)
    value, grads = bt.value_and_grad(kept, argnums=(0, 1, 2))(*args)
    expected, expected_grads = bt.value_and_grad(flat, argnums=(0, 1, 2))(*args)
    assert float(value) == float(expected)
    for grad, expected in zip(grads, expected_grads, strict=True):
        np.testing.assert_allclose(grad, expected, rtol=1e-12, atol=1e-13)
    tangent = bt.jvp(kept, args, tuple(np.ones_like(x) for x in args))[1]
    np.testing.assert_allclose(tangent, sum(np.sum(grad) for grad in grads), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("seed", range(0, 150, 5))
def test_gradients_of_gradients_and_batches_of_them(seed):
    kept, flat, (h, w, xs) = loops(seed)
    for f in (lambda g: bt.grad(lambda w: (g(h, w, xs) ** 2).sum()), lambda g: bt.grad(lambda w: g(h, w, xs))):
        inner = f(kept), f(flat)
        second = [bt.grad(lambda w, one=one: (one(w) * one(w)).sum())(w) for one in inner]
        np.testing.assert_allclose(second[0], second[1], rtol=1e-9, atol=1e-9)
    rows = np.stack([w, w + 0.5, w - 0.25])
    found = [bt.vmap(bt.grad(lambda w, one=one: one(h, w, xs)))(rows) for one in (kept, flat)]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12, atol=1e-12)


def test_tables_are_read_for_all_steps_at_once():
    """A state that is combined with rows of a table, at indices from slices."""
    rng = np.random.default_rng(3)
    table, places = rng.standard_normal((6, 4)), rng.integers(-6, 6, 30)

    def f(table, is_kept):
        def step(h, i):
            h = np.tanh(h + table[i])
            return h, np.exp(h).sum()

        h = np.zeros(4)
        if is_kept:
            h, ys = bt.scan(step, h, places)
            return (h * h).sum() + ys.sum()
        total = 0.0
        for i in places:
            h, y = step(h, int(i))
            total = total + y
        return (h * h).sum() + total

    found = [bt.value_and_grad(lambda t, kept=kept: f(t, kept))(table) for kept in (True, False)]
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-14)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-12)
    outside = places.copy()
    outside[7] = 6
    looked_up = bt.function(lambda t, i: bt.scan(lambda h, i: (np.tanh(h + t[i]), None), np.zeros(4), i)[0])
    assert np.isfinite(looked_up(table, places)).all()
    with pytest.raises(IndexError):
        looked_up(table, outside)


@pytest.mark.parametrize("low", [0.0, -np.inf])
def test_states_of_a_hidden_markov_model(low):
    rng = np.random.default_rng(5)
    moves, shows, seen = rng.standard_normal((4, 4)), rng.standard_normal((4, 3)), rng.integers(0, 3, 20)
    moves[2, 1] = low

    def f(moves, shows, is_kept):
        def step(a, o):
            return bt.logsumexp(a[:, None] + moves, axis=0) + shows[:, o], None

        a = np.zeros(4)
        if is_kept:
            return bt.logsumexp(bt.scan(step, a, seen)[0])
        for o in seen:
            a, _ = step(a, int(o))
        return bt.logsumexp(a)

    found, wanted = (
        bt.value_and_grad(lambda m, s, kept=kept: f(m, s, kept), argnums=(0, 1))(moves, shows) for kept in (True, False)
    )
    assert float(found[0]) == float(wanted[0])
    for x, y in zip(found[1], wanted[1], strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-13, atol=1e-15)


def test_a_division_by_zero_in_one_step_stays_in_that_step():
    xs = np.array([1.0, 0.0, -0.0, np.inf, np.nan, 2.0, 3.0])

    def f(h, xs):
        _, ys = bt.scan(lambda h, x: (0.5 * h, np.log(1.0 / x) + h), h, xs)
        return ys

    ys = bt.function(f)(1.0, xs)
    with np.errstate(all="ignore"):
        expected = np.log(1.0 / xs) + 0.5 ** np.arange(7)
    np.testing.assert_array_equal(np.asarray(ys), expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33])
def test_elementwise_operations_of_every_length_have_the_bits_of_single_numbers(dtype, n):
    rng = np.random.default_rng(n)
    x, y = rng.standard_normal((2, n)).astype(dtype)

    def f(x, y):
        return x * y + x / y - np.sqrt(np.abs(x)) + bt.where(x > y, x, -y)

    whole = np.asarray(bt.function(f)(x, y))
    assert whole.dtype == dtype
    alone = [np.asarray(bt.function(f)(x[k : k + 1], y[k : k + 1]))[0] for k in range(n)]
    np.testing.assert_array_equal(whole, alone)
