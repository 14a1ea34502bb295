"""Totals over rows within rows and loops, and carries that swap."""

from __future__ import annotations

import numpy as np
import pytest

import burtorch as bt

RNG = np.random.default_rng(8)
BODIES = {
    "itself": lambda r, w: r * 1.0,
    "function": lambda r, w: np.tanh(r),
    "shared": lambda r, w: r * w,
    "product": lambda r, w: r @ w,
    "function of a product": lambda r, w: np.sin(r @ w),
    "two results": lambda r, w: (r * w, np.sum(r)),
    "matrix": lambda r, w: r[:, None] * w,
}


def total(body, reduce, rows, w):
    """By NumPy, one row at a time."""
    results = [body(r, w) for r in rows]
    of = {"sum": np.sum, "mean": np.mean}[reduce]
    if isinstance(results[0], tuple):
        return tuple(of(np.array(part), axis=0) for part in zip(*results, strict=True))
    return of(np.array(results), axis=0)


def close(found, expected):
    pairs = zip(found, expected, strict=True) if isinstance(expected, tuple) else [(found, expected)]
    for a, b in pairs:
        np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("name", BODIES)
def test_totals_within_rows_and_loops(name, reduce):
    body = BODIES[name]
    x, w = RNG.normal(size=(3, 4, 2)), RNG.normal(size=2)
    of_rows = bt.vmap(body, in_axes=(0, None), reduce=reduce)
    expected = [total(body, reduce, rows, w) for rows in x]
    stacked = tuple(map(np.array, zip(*expected, strict=True))) if name == "two results" else np.array(expected)
    for shared in (of_rows, bt.function(lambda r, w: of_rows(r, w)), bt.checkpoint(of_rows)):
        close(shared(x[0], w), expected[0])
        close(bt.vmap(shared, in_axes=(0, None))(x, w), stacked)
        close(bt.scan(lambda c, rows, f=shared: (c, f(rows, w)), 0.0, x)[1], stacked)


@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("name", [name for name in BODIES if name != "two results"])
def test_derivatives_of_totals(name, reduce):
    """Beside those of the same total written out."""
    body = BODIES[name]
    x, w = RNG.normal(size=(4, 2)), RNG.normal(size=2)
    of = {"sum": np.sum, "mean": np.mean}[reduce]
    of_rows = lambda w: bt.vmap(body, in_axes=(0, None), reduce=reduce)(x, w)  # noqa: E731
    written = lambda w: of(np.stack([body(x[k], w) + 0.0 * w[0] for k in range(4)]), axis=0)  # noqa: E731
    scalar = lambda f: lambda w: np.sum(f(w) ** 2)  # noqa: E731
    for transform in (bt.jacobian, lambda f: bt.grad(scalar(f)), lambda f: bt.hessian(scalar(f))):
        np.testing.assert_allclose(transform(of_rows)(w), transform(written)(w), rtol=1e-11, atol=1e-12)
    ws = RNG.normal(size=(3, 2))
    np.testing.assert_allclose(
        bt.vmap(bt.grad(scalar(of_rows)))(ws), [bt.grad(scalar(written))(w) for w in ws], rtol=1e-11, atol=1e-12
    )


def test_totals_of_no_rows():
    none = np.ones((3, 0, 2))
    np.testing.assert_array_equal(bt.vmap(bt.vmap(lambda r: r * 2.0, reduce="sum"))(none), np.zeros((3, 2)))
    mean = bt.vmap(lambda r: r * 2.0, reduce="mean")
    for refused in (mean, bt.vmap(mean)):
        with pytest.raises(ValueError, match="mean over rows of no values"):
            refused(none[0] if refused is mean else none)


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0), (2, 0, 1), (1, 1, 1), (2, 2, 0), (0, 0, 2)])
@pytest.mark.parametrize("constant", [None, 0, 1, 2])
@pytest.mark.parametrize("chosen", [False, True])
def test_carries_become_others(order, constant, chosen):
    """In loops, with their tangents and gradients, against Python loops."""
    two, x = np.array([0.3, 0.7]), np.arange(1.0, 4.0)

    def body(carries, a):
        new = [carries[k] for k in order]
        new = [np.where(True, c, two) if chosen else c for c in new]
        if constant is not None:
            new[constant] = two
        return (*[c * 1.0 if k == 2 else c for k, c in enumerate(new[:2])], new[2] + a), new[0][0] * a

    def rolled(x, start):
        carries, ys = bt.scan(body, (start, two, start * 2.0), x)
        return np.sum(carries[0] + 2.0 * carries[1] - carries[2]) + np.sum(ys**2)

    def unrolled(x, start):
        carries, total = (start, two, start * 2.0), 0.0
        for k in range(len(x)):
            carries, y = body(carries, x[k])
            total = total + y**2
        return np.sum(carries[0] + 2.0 * carries[1] - carries[2]) + total

    start = np.array([0.5, -0.25])
    near = {"rtol": 1e-12, "atol": 1e-13}
    np.testing.assert_allclose(bt.function(rolled)(x, start), unrolled(x, start), **near)
    for argnum in (0, 1):
        found, expected = bt.grad(rolled, argnum)(x, start), bt.grad(unrolled, argnum)(x, start)
        np.testing.assert_allclose(found, expected, **near)
    tangents = (x + 1.0, start - 2.0)
    found, expected = bt.jvp(rolled, (x, start), tangents)[1], bt.jvp(unrolled, (x, start), tangents)[1]
    np.testing.assert_allclose(found, expected, **near)
    found, expected = bt.hessian(rolled)(x, start), bt.hessian(unrolled)(x, start)
    np.testing.assert_allclose(found, expected, **near)


def test_a_tangent_whose_carry_becomes_another():
    two, y = np.array([0.3, 0.7]), np.arange(4.0)
    body = lambda k, a: ((a, two, np.where(True, k[1], two)), 0.5)  # noqa: E731
    f = lambda x: bt.scan(body, (0.65, two, two), x)[0][0] + x  # noqa: E731
    value, tangent = bt.jvp(f, (y,), (y,))
    np.testing.assert_array_equal([value, tangent], [y[-1] + y] * 2)
    np.testing.assert_array_equal(bt.vmap(lambda t: bt.jvp(f, (y,), (t,))[1])(np.eye(4)), np.eye(4) + np.eye(4)[:, 3:])
