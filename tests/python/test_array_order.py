"""Sorting, searching, repeating and sliding sums of Arrays, against NumPy."""

from __future__ import annotations

import pytest

import burtorch as bt

np = pytest.importorskip("numpy")

INF, NAN = np.inf, np.nan
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 5e-324, -5e-324, 1.7e308, 0.5, 0.5, NAN, -0.0, 3.0])


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64"])
@pytest.mark.parametrize("n", [1, 2, 3, 15, 100, 1000, 70000])
def test_sorting_is_stable_and_has_nan_last(n, dtype):
    rng = np.random.default_rng(n)
    x = rng.integers(-n, n + 1, n) if dtype == "int64" else rng.choice(np.append(SPECIAL, rng.normal(size=n)), n)
    with np.errstate(over="ignore"):
        x = x.astype(dtype)
    order = bt.function(np.argsort)(x)
    assert np.array_equal(order, np.argsort(x, kind="stable"))
    assert np.array_equal(bt.function(np.sort)(x), np.sort(x), equal_nan=dtype != "int64")
    rows = np.tile(x[: min(n, 20)], (5, 1)).copy()
    assert np.array_equal(bt.function(lambda x: np.argsort(x, axis=0))(rows), np.argsort(rows, axis=0, kind="stable"))


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 10, 257])
def test_searching_is_that_of_numpy(n, side):
    rng = np.random.default_rng(n)
    sorted_ = np.sort(rng.choice(np.append(SPECIAL, rng.normal(size=20)), n))
    x = np.concatenate([SPECIAL, sorted_, rng.normal(size=40)])
    expected = np.searchsorted(sorted_, x, side)
    assert np.array_equal(bt.function(lambda x: np.searchsorted(sorted_, x, side))(x), expected)
    assert np.array_equal(bt.function(lambda a, x: np.searchsorted(a, x, side))(sorted_, x), expected)
    assert np.array_equal(np.searchsorted(bt.array(sorted_), x, side).data, expected)
    for shape in ((5, -1), (-1, 5), (1, 1, -1)):
        y = x[: len(x) // 5 * 5].reshape(shape)
        assert np.array_equal(
            bt.function(lambda x: np.searchsorted(sorted_, x, side))(y), np.searchsorted(sorted_, y, side)
        )
    numbers = sorted_[~np.isnan(sorted_)]
    one = bt.function(lambda x: np.searchsorted(numbers, x, side))(np.array(0.25))
    assert one == np.searchsorted(numbers, 0.25, side)
    ints, keys = np.sort(rng.integers(-5, 5, n)), np.arange(-7, 8)
    assert np.array_equal(
        bt.function(lambda k: np.searchsorted(ints, k, side))(keys), np.searchsorted(ints, keys, side)
    )
    mixed = bt.function(lambda k: np.searchsorted(sorted_, k, side))(keys)
    assert np.array_equal(mixed, np.searchsorted(sorted_, keys, side))


def test_rows_are_searched_by_vmap():
    rng = np.random.default_rng(0)
    rows, x = np.sort(rng.normal(size=(6, 9)), axis=1), rng.normal(size=(6, 4))
    each = [np.searchsorted(row, keys) for row, keys in zip(rows, x)]
    assert np.array_equal(bt.vmap(np.searchsorted)(rows, x), each)
    shared = [np.searchsorted(rows[0], keys) for keys in x]
    assert np.array_equal(bt.vmap(np.searchsorted, in_axes=(None, 0))(rows[0], x), shared)
    same = [np.searchsorted(row, x[0]) for row in rows]
    assert np.array_equal(bt.vmap(np.searchsorted, in_axes=(0, None))(rows, x[0]), same)
    nested = bt.vmap(bt.vmap(np.searchsorted, in_axes=(None, 0)), in_axes=(0, None))(rows, x[:, 0])
    assert np.array_equal(nested, [[np.searchsorted(row, key) for key in x[:, 0]] for row in rows])


def test_a_search_is_saved_and_has_no_gradient(tmp_path):
    knots = np.linspace(-1.0, 1.0, 9)
    f = bt.function(lambda x: np.searchsorted(knots, x, "right") * x)
    x = np.linspace(-1.5, 1.5, 31)
    assert np.array_equal(f.value_and_grad(x[7])[1], np.searchsorted(knots, x[7], "right"))
    g = bt.function(lambda x: (np.searchsorted(knots, x, "right") * x, np.interp(x, knots, knots**2)))
    expected = g(x)
    g.save(tmp_path / "search")
    for found, right in zip(bt.load_function(tmp_path / "search")(x), expected):
        assert np.array_equal(found, right)
    assert "searchsorted_right" in str(g.program)


@pytest.mark.parametrize("axis", [None, 0, 1, 2, -1])
@pytest.mark.parametrize("repeats", [0, 1, 2, 5, np.int64(3), [1, 0, 2]])
def test_elements_are_repeated(axis, repeats):
    x = np.random.default_rng(0).normal(size=(3, 3, 3))
    if axis is None and isinstance(repeats, list):
        repeats = [*repeats] * 9
    expected = np.repeat(x, repeats, axis)
    assert np.array_equal(bt.function(lambda x: np.repeat(x, repeats, axis))(x), expected)
    weights = np.random.default_rng(1).normal(size=expected.shape)
    gradient = bt.grad(lambda x: (np.repeat(x, repeats, axis) * weights).sum())(x)
    h = 1e-6
    for at in ((0, 0, 0), (1, 2, 0), (2, 1, 2)):
        step = np.zeros_like(x)
        step[at] = h
        difference = ((np.repeat(x + step, repeats, axis) - np.repeat(x - step, repeats, axis)) * weights).sum() / (
            2 * h
        )
        assert gradient[at] == pytest.approx(difference, abs=1e-6)


@pytest.mark.parametrize("f", [np.convolve, np.correlate])
@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize(
    ("n", "m"), [(1, 1), (5, 1), (5, 5), (30, 7), (7, 30), (200, 63), (200, 64), (200, 65), (100, 100)]
)
def test_convolutions_and_their_gradients(n, m, mode, f):
    rng = np.random.default_rng(n + m)
    a, v = rng.normal(size=n), rng.normal(size=m)
    expected = f(a, v, mode)
    assert bt.function(lambda a, v: f(a, v, mode))(a, v) == pytest.approx(expected, abs=1e-12)
    w = rng.normal(size=expected.shape)
    da, dv = bt.grad(lambda a, v: (f(a, v, mode) * w).sum(), argnums=(0, 1))(a, v)
    for k in (0, n - 1):
        assert da[k] == pytest.approx((f(np.eye(n)[k], v, mode) * w).sum(), abs=1e-12)
    for k in (0, m - 1):
        assert dv[k] == pytest.approx((f(a, np.eye(m)[k], mode) * w).sum(), abs=1e-12)
    ints = rng.integers(-5, 5, n), rng.integers(-5, 5, m)
    found = bt.function(lambda a, v: f(a, v, mode))(*ints)
    assert found.dtype == np.int64
    assert np.array_equal(found, f(*ints, mode))


@pytest.mark.parametrize("x", [[-2.0, 0.0, 3.0], [0.0, -1.0, -1.0], [-0.0, 5.0], [1.0, -0.0, -2.0, 4.0]])
def test_running_products_keep_the_sign_of_zero(x):
    x = np.array(x)
    found = bt.function(np.cumprod)(x)
    assert np.array_equal(np.signbit(found), np.signbit(np.cumprod(x)))
    assert np.array_equal(found, np.cumprod(x))
