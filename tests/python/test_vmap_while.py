"""Rows whose loops end after different numbers of steps, more of them than one block holds."""

from __future__ import annotations

import pytest

import burtorch as bt

np = pytest.importorskip("numpy")


def root(a, b=1.0):
    """Newton's iteration for the square root of a."""
    return bt.while_loop(lambda x: bt.abs(x * x - a) > 1e-12 * a, lambda x: (x + a / x) / 2, a + b)


ROWS = [1, 255, 256, 257, 300, 1024, 2500]


@pytest.mark.parametrize("n", ROWS)
def test_rows_have_the_bits_of_single_calls(n):
    a = np.random.default_rng(n).uniform(0.01, 1e4, n)
    one = bt.function(root)
    expected = [one(x) for x in a]
    assert np.array_equal(bt.vmap(root)(a), expected)
    assert np.array_equal(one.map(a), expected)
    assert np.array_equal(bt.vmap(bt.vmap(root))(a.reshape(-1, 1))[:, 0], expected)
    both = bt.vmap(lambda x: (root(x), x), out_axes=(0, 0))(a)
    assert np.array_equal(both[0], expected)
    assert np.array_equal(both[1], a)


@pytest.mark.parametrize("n", [257, 2500])
def test_derivatives_of_rows(n):
    a = np.random.default_rng(n).uniform(0.01, 1e4, n)
    slope = 0.5 / np.sqrt(a)
    assert bt.vmap(bt.grad(root))(a) == pytest.approx(slope, rel=1e-6)
    assert bt.grad(lambda a: bt.sum(bt.vmap(root)(a)))(a) == pytest.approx(slope, rel=1e-6)
    assert bt.jvp(bt.vmap(root), (a,), (np.ones(n),))[1] == pytest.approx(slope, rel=1e-6)
    assert np.array_equal(bt.vmap(bt.grad(root))(a), [bt.grad(root)(x) for x in a])


def test_shared_values_and_their_gradients():
    a, b = np.random.default_rng(0).uniform(0.5, 9.0, 700), np.array([0.3, 1.2])

    def f(a, b):
        scale = np.linalg.solve(np.eye(2) * 2.0, b).sum()
        grown = bt.while_loop(lambda c: c[0] < 20.0, lambda c: (c[0] * (1.0 + scale), c[1] + 1.0), (a, 0.0))
        return grown[0] * b[0] + grown[1]

    rows = np.array([bt.function(f)(x, b) for x in a])
    found = bt.vmap(f, in_axes=(0, None))(a, b)
    assert found == pytest.approx(rows, rel=1e-14)
    da, db = bt.grad(lambda a, b: bt.sum(bt.vmap(f, in_axes=(0, None))(a, b)), argnums=(0, 1))(a, b)
    each = [bt.grad(f, argnums=(0, 1))(x, b) for x in a]
    assert da == pytest.approx([x for x, _ in each], rel=1e-12)
    assert db == pytest.approx(sum(y for _, y in each), rel=1e-12)


def test_loops_within_loops_and_other_axes():
    def f(x):
        def outer(c, v):
            return bt.while_loop(lambda c: bt.sum(c * c) < 50.0 + v, lambda c: c * 1.5 + v, c), c.sum()

        return bt.scan(outer, x, np.array([0.1, 0.7, 2.0]))

    x = np.random.default_rng(1).uniform(0.1, 1.0, (3, 400))
    last, sums = bt.vmap(f, in_axes=1, out_axes=(1, 0))(x)
    one = bt.function(f)
    for k in (0, 57, 399):
        right = one(np.ascontiguousarray(x[:, k]))
        assert np.array_equal(last[:, k], right[0])
        assert np.array_equal(sums[k], right[1])


def test_counted_loops_and_integers_of_rows():
    def f(n, x):
        return bt.fori_loop(0, n, lambda k, c: (c[0] * 0.9 + k, c[1] + k), (x, 0))

    n = np.random.default_rng(2).integers(0, 30, 600)
    x = np.linspace(-1.0, 1.0, 600)
    found = bt.vmap(f)(n, x)
    for k in range(0, 600, 37):
        c, total = x[k], 0
        for i in range(n[k]):
            c, total = c * 0.9 + i, total + i
        assert found[0][k] == pytest.approx(c, rel=1e-14)
        assert found[1][k] == total


def test_no_rows_and_parameters():
    assert bt.vmap(root)(np.zeros(0)).shape == (0,)
    params = bt.Parameters(dtype="float64")
    w = params.tensor(1, init=2.0)
    oracle = bt.Oracle(lambda x: bt.while_loop(lambda c: c < 100.0, lambda c: c * w[0], x), params=params)
    x = np.random.default_rng(3).uniform(0.5, 4.0, 600)
    steps = np.ceil(np.log2(100.0 / x))
    loss, gradient = oracle(x)
    assert loss == pytest.approx((x * 2.0**steps).mean(), rel=1e-12)
    assert gradient[0] == pytest.approx((x * steps * 2.0 ** (steps - 1)).mean(), rel=1e-12)
