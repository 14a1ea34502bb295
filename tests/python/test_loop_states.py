"""Loops whose states are small arrays, and loops over integers, against Python loops."""

from __future__ import annotations

import random

import numpy as np
import pytest

import burtorch as bt

SIZES = [2, 3, 4, 5, 9, 17, 40]

# Steps from a state h of n numbers, a matrix w with n rows and columns, and a slice x of n numbers to n numbers.
VECTOR_STEPS = [
    lambda h, w, x: w @ h,
    lambda h, w, x: h @ w,
    lambda h, w, x: h * x,
    lambda h, w, x: h + 0.25 * x * x,
    lambda h, w, x: np.outer(h, x) @ h,
    lambda h, w, x: (w * h[:, None]).sum(axis=0),
    lambda h, w, x: np.concatenate([h[1:], h[:1]]),
    lambda h, w, x: h[::-1] * x[0],
    lambda h, w, x: np.where(h > x, h, x),
    lambda h, w, x: np.maximum(h, x),
    lambda h, w, x: h - h.mean(),
    lambda h, w, x: h / (1.0 + np.linalg.norm(h)),
    lambda h, w, x: np.stack([h.sum(), *[h[k] * x[k] for k in range(1, len(h))]]),
    lambda h, w, x: np.clip(h, -0.5, 0.5),
    lambda h, w, x: h * h.max(),
    lambda h, w, x: h * np.exp(-np.log1p(np.exp(x))),
]

# The same with matrices.
MATRIX_STEPS = [
    lambda a, w, x: w @ a,
    lambda a, w, x: a @ a.T,
    lambda a, w, x: w @ a @ w.T + 0.1 * np.eye(len(x)),
    lambda a, w, x: a - np.outer(x, x @ a),
    lambda a, w, x: a * x,
    lambda a, w, x: np.tril(a) + np.diag(x),
    lambda a, w, x: a.reshape(-1)[::-1].reshape(a.shape),
    lambda a, w, x: a / (1.0 + np.trace(a @ a.T)),
]


def unrolled(step, carry, xs):
    ys = []
    for x in xs:
        carry, y = step(carry, x)
        ys.append(y)
    return carry, ys


def bodies(seed, steps, is_matrix):
    """A loop of random steps as a function of its first state, its matrix and its slices: rolled and unrolled."""
    rng = random.Random(seed)
    plan = [rng.choice(steps) for _ in range(rng.randint(1, 3))]
    n = rng.choice(SIZES[:4] if is_matrix else SIZES)
    stacked = rng.random() < 0.5

    def made(is_kept):
        def f(h, w, xs):
            def step(h, x):
                new = h
                for one in plan:
                    new = one(new, w, x)
                new = np.tanh(0.9 * new + 0.1 * h)
                return new, (new * h).sum()

            last, ys = bt.scan(step, h, xs) if is_kept else unrolled(step, h, [xs[k] for k in range(xs.shape[0])])
            total = (last * last).sum()
            if stacked:
                total = total + (ys.sum() if is_kept else sum(ys[1:], ys[0]))
            return total

        return f

    numbers = np.random.default_rng(seed)
    h = numbers.standard_normal((n, n) if is_matrix else n)
    return made(True), made(False), (h, numbers.standard_normal((n, n)) / n, numbers.standard_normal((5, n)))


@pytest.mark.parametrize("seed", range(120))
@pytest.mark.parametrize("is_matrix", [False, True])
def test_loops_of_small_arrays_are_loops_of_python(seed, is_matrix):
    kept, flat, args = bodies(seed, MATRIX_STEPS if is_matrix else VECTOR_STEPS, is_matrix)
    value, grads = bt.value_and_grad(kept, argnums=(0, 1, 2))(*args)
    expected, expected_grads = bt.value_and_grad(flat, argnums=(0, 1, 2))(*args)
    np.testing.assert_allclose(value, expected, rtol=1e-14)
    for grad, expected in zip(grads, expected_grads, strict=True):
        np.testing.assert_allclose(grad, expected, rtol=1e-11, atol=1e-13)
    tangent = bt.jvp(kept, args, tuple(np.ones_like(x) for x in args))[1]
    np.testing.assert_allclose(tangent, sum(np.sum(grad) for grad in grads), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_traced_loops_of_small_arrays_give_the_same_again_and_again(dtype):
    """A body's arguments are overwritten in place from step to step; the next call starts with its own arguments."""

    @bt.function
    def f(p, w):
        last, ys = bt.scan(lambda h, x: ((w @ h) * 0.5 + x, h), p, np.ones((4, 3), dtype))
        return (last * last).sum() + (ys * ys).sum()

    p, w = np.arange(3, dtype=dtype), np.ones((3, 3), dtype) / 3
    first = f.value_and_grad(p, w, argnums=(0, 1))
    for _ in range(3):
        again = f.value_and_grad(p, w, argnums=(0, 1))
        assert again[0] == first[0]
        for x, y in zip(again[1], first[1], strict=True):
            assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


def test_states_that_exchange_their_places():
    def f(a, b):
        (a, b), ys = bt.scan(lambda c, x: ((c[1] + x, c[0] * 2.0), c[0]), (a, b), np.arange(4.0))
        return (a * b).sum() + (ys * ys).sum()

    def flat(a, b):
        total = 0.0
        for x in range(4):
            total = total + (a * a).sum()
            a, b = b + float(x), a * 2.0
        return (a * b).sum() + total

    for n in (1, 3, 100):
        args = np.linspace(0.5, 1.5, n), np.linspace(-1.0, 2.0, n)
        value, grads = bt.value_and_grad(f, argnums=(0, 1))(*args)
        expected, expected_grads = bt.value_and_grad(flat, argnums=(0, 1))(*args)
        np.testing.assert_allclose(value, expected, rtol=1e-14)
        for x, y in zip(grads, expected_grads, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-13)


INDEXED = [
    lambda i, h, x: h + x[i],
    lambda i, h, x: h * 0.5 + x[i] * i,
    lambda i, h, x: h + np.sin(h * i),
    lambda i, h, x: bt.where(i > 2, h * 2.0, h + 1.0),
    lambda i, h, x: h + x[i] * x[0],
    lambda i, h, x: h + x[(i * 3) % 7],
    lambda i, h, x: h * 1.5,
]


@pytest.mark.parametrize("k", range(len(INDEXED)))
@pytest.mark.parametrize("bounds", [(0, 7), (2, 6), (3, 3), (5, 2), (-2, 4)])
def test_loops_over_integers(k, bounds):
    body, x = INDEXED[k], np.linspace(-1.0, 1.0, 7)

    def kept(h, x):
        return bt.fori_loop(*bounds, lambda i, h: body(i, h, x), h)

    def flat(h, x):
        for i in range(*bounds):
            h = body(i, h, x)
        return h

    for derived in (lambda f: bt.value_and_grad(f, argnums=(0, 1)), lambda f: bt.grad(bt.grad(f))):
        for found, expected in zip(leaves(derived(kept)(0.7, x)), leaves(derived(flat)(0.7, x)), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-15)


def leaves(tree):
    return [leaf for part in tree for leaf in leaves(part)] if isinstance(tree, tuple) else [np.asarray(tree)]


def test_counters_of_scans_end_where_they_should():
    def step(c, x):
        i, total = c
        return (i + 2, total + x * i), i

    (i, total), ys = bt.scan(step, (np.int64(5), 0.0), np.ones(4))
    assert (int(i), total, list(ys)) == (13, 5.0 + 7.0 + 9.0 + 11.0, [5, 7, 9, 11])
    (i, total), ys = bt.scan(step, (np.int64(5), 0.0), np.arange(4.0), reverse=True)
    assert (int(i), total, list(ys)) == (13, 3 * 5.0 + 2 * 7.0 + 9.0, [11, 9, 7, 5])
    largest = np.int64(2**63 - 3)
    (i, _), ys = bt.scan(lambda c, x: ((c[0] + 1, c[1]), c[0]), (largest, 0.0), np.ones(4))
    assert [int(y) for y in ys] == [2**63 - 3, 2**63 - 2, 2**63 - 1, -(2**63)]


@pytest.mark.parametrize("flag", [False, np.False_, np.array(False)], ids=["bool", "numpy", "array"])
def test_flags_are_carried(flag):
    def body(c):
        x, done = c
        return x * 2.0, done | (x > 20.0)

    x, done = bt.while_loop(lambda c: ~c[1], body, (1.0, flag))
    assert (x, done) == (64.0, True)
    assert isinstance(done, bool)
    assert bt.grad(lambda x: bt.while_loop(lambda c: ~c[1], body, (x, flag))[0])(1.0) == 64.0

    def step(c, x):
        total, seen = c
        return (bt.where(seen, total, total + x), seen | (x > 1.5)), seen

    (total, seen), before = bt.scan(step, (0.0, flag), np.array([1.0, 2.0, 3.0]))
    assert (total, seen, before.tolist(), before.dtype) == (3.0, True, [False, False, True], bool)
    assert bt.fori_loop(0, 3, lambda i, c: (c[0] + 1.0, True), (0.0, flag)) == (3.0, True)
    rows = bt.vmap(lambda x: bt.while_loop(lambda c: ~c[1], body, (x, flag)))(np.array([1.0, 30.0]))
    assert [r.tolist() for r in rows] == [[64.0, 60.0], [True, True]]
    inside = bt.function(lambda x: bt.scan(step, (x, flag), np.array([1.0, 2.0, 3.0]))[0])
    assert inside(1.0) == (4.0, True)


def test_flags_are_arguments():
    f = bt.function(lambda x, b: bt.where(b, x, -x) * b)
    for x in (2.0, np.array([2.0]), np.ones((2, 2))):
        np.testing.assert_array_equal(f(x, np.True_), x)
        np.testing.assert_array_equal(f(x, np.False_), x * 0.0)
    with pytest.raises(TypeError, match="needs float arguments"):
        bt.grad(lambda x, b: x * b, argnums=1)(2.0, np.True_)


def test_bounds_that_are_computed():
    def power(n, x):
        return bt.fori_loop(0, n, lambda i, c: c * x, 1.0)

    n = np.int64(5)
    assert bt.function(power)(n, 3.0) == 243.0
    assert bt.function(power)(np.int64(0), 3.0) == 1.0
    assert bt.grad(power, 1)(n, 3.0) == 405.0
    assert bt.vmap(power)(np.array([1, 0, 3]), np.array([2.0, 2.0, 2.0])).tolist() == [2.0, 1.0, 8.0]
    total = bt.function(lambda n, m: bt.fori_loop(n, m, lambda i, c: c + i, 0.0))
    assert [total(np.int64(a), np.int64(b)) for a, b in [(2, 5), (5, 2), (-1, 2)]] == [9.0, 0.0, 0.0]
    with pytest.raises(TypeError, match="the bounds of fori_loop"):
        bt.function(power)(2.5, 3.0)


def test_a_number_chooses():
    choose = bt.function(lambda k, x: bt.cond(k, lambda x: x, lambda x: -x, x))
    for k, expected in [(1.0, 3.0), (0.0, -3.0), (np.int64(2), 3.0), (np.int64(0), -3.0), (np.True_, 3.0)]:
        assert choose(k, 3.0) == expected
    assert bt.cond(2, lambda x: x, lambda x: -x, 3.0) == 3.0
    assert bt.cond(0.0, lambda x: x, lambda x: -x, 3.0) == -3.0
    rows = bt.vmap(lambda k, x: bt.cond(k, lambda x: x, lambda x: -x, x))(np.array([0, 2]), np.array([3.0, 4.0]))
    assert rows.tolist() == [-3.0, 4.0]
