"""Sums of segments, and copies of Arrays with other numbers at some places."""

from __future__ import annotations

from time import perf_counter

import numpy as np
import pytest

import burtorch as bt

X = np.arange(12.0).reshape(4, 3) + 1.0
INDICES = {
    "integer": 1,
    "negative": -1,
    "element": (2, 1),
    "slice": slice(1, None, 2),
    "reversed": slice(None, None, -1),
    "column": (slice(None), 2),
    "rows": np.array([2, 0]),
    "list": [3, 1],
    "pairs": (np.array([0, 3]), np.array([2, 0])),
    "mask": X % 3 == 1,
    "rows by a mask": np.array([True, False, True, False]),
    "None": (None, 1),
    "ellipsis": (..., 0),
    "all": ...,
    "nothing": slice(2, 2),
    "grid": (np.array([[0], [2]]), np.array([0, 1])),
}
METHODS = {
    "set": lambda old, new: new + 0 * old,
    "add": lambda old, new: old + new,
    "subtract": lambda old, new: old - new,
    "multiply": lambda old, new: old * new,
    "divide": lambda old, new: old / new,
    "min": np.minimum,
    "max": np.maximum,
}


def changed(x, index, method, values):
    x = x.copy()
    x[index] = METHODS[method](x[index], values)
    return x


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", INDICES)
def test_other_numbers_at_some_places(name, method):
    index = INDICES[name]
    rng = np.random.default_rng(0)
    for values in (2.5, rng.normal(size=X[index].shape) * 6.0 + 0.1):
        expected = changed(X, index, method, values)
        change = f"at[index].{method}"
        eager = bt.array(X)
        found = getattr(eager.at[index], method)(values)
        assert found.shape == X.shape, change
        np.testing.assert_array_equal(found.data, expected)
        traced = bt.function(lambda x, v: getattr(x.at[index], method)(v))
        np.testing.assert_array_equal(traced(X, values), expected)
        weights = np.cos(np.arange(12.0)).reshape(4, 3)

        def loss(x, v, weights=weights):
            return ((getattr(x.at[index], method)(v) * weights) ** 2).sum()

        by_x, by_v = bt.grad(loss, argnums=(0, 1))(X, values)
        step = 1e-6

        def at(x, v, weights=weights):
            return ((changed(x, index, method, v) * weights) ** 2).sum()

        for k in np.ndindex(X.shape):
            unit = np.zeros(X.shape)
            unit[k] = step
            slope = (at(X + unit, values) - at(X - unit, values)) / (2 * step)
            np.testing.assert_allclose(by_x[k], slope, rtol=1e-5, atol=1e-5)
        slope = (at(X, values + step) - at(X, values - step)) / (2 * step)
        np.testing.assert_allclose(np.sum(by_v), slope, rtol=1e-5, atol=1e-5)


AGAIN = {
    "all one": np.array([1, 1, 1, 1]),
    "some": np.array([2, 0, 2, 1]),
    "negative": np.array([-1, 2, 0, 2]),
    "one": np.array([2]),
    "none": np.array([], int),
    "scalar": np.array(1),
    "two axes": np.array([[0, 1], [1, 0]]),
}
UFUNCS = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide, "min": np.minimum}
UFUNCS |= {"max": np.maximum, "power": np.power}


def in_order(x, index, method, values):
    """Element by element, as NumPy combines and assigns."""
    x = x.copy()
    if method == "set":
        x[index] = values
    else:
        UFUNCS[method].at(x, index, values)
    return x


@pytest.mark.parametrize("rest", [(), (2,)])
@pytest.mark.parametrize("name", AGAIN)
@pytest.mark.parametrize("method", ["set", *UFUNCS])
def test_a_place_that_is_named_several_times(method, name, rest):
    rng, index = np.random.default_rng(1), AGAIN[name]
    x = rng.uniform(0.5, 2.0, size=(3, *rest))
    values = rng.uniform(0.5, 2.0, size=index.shape + rest)
    weights = np.cos(1.0 + np.arange(x.size)).reshape(x.shape)
    expected = in_order(x, index, method, values)

    def change(x, k, v):
        return getattr(x.at[k], method)(v)

    np.testing.assert_allclose(bt.function(change)(x, index, values), expected, rtol=1e-15)
    known = bt.function(lambda x, v: change(x, index, v))
    np.testing.assert_allclose(known(x, values), expected, rtol=1e-15)
    for k in (index, bt.array(index)) if index.ndim else (index,):
        np.testing.assert_allclose(change(bt.array(x), k, values).data, expected, rtol=1e-15)
    rows = bt.vmap(change)(np.stack([x, x + 1.0]), np.stack([index, index]), np.stack([values, values]))
    np.testing.assert_allclose(rows, [expected, in_order(x + 1.0, index, method, values)], rtol=1e-15)
    shared = bt.vmap(change, in_axes=(0, None, 0))(np.stack([x, x + 1.0]), index, np.stack([values, values]))
    np.testing.assert_array_equal(shared, rows)

    def total(x, k, v):
        return (change(x, k, v) ** 2 * weights).sum()

    by_x, by_v = bt.grad(total, argnums=(0, 2))(x, index, values)
    step = 1e-6

    def at(x, v):
        return (in_order(x, index, method, v) ** 2 * weights).sum()

    for of, found, moved in ((x, by_x, lambda u: at(x + u, values)), (values, by_v, lambda u: at(x, values + u))):
        for k in np.ndindex(of.shape):
            unit = np.zeros(of.shape)
            unit[k] = step
            np.testing.assert_allclose(
                np.asarray(found)[k], (moved(unit) - moved(-unit)) / (2 * step), rtol=1e-5, atol=1e-5
            )
    direction = rng.normal(size=x.shape)
    _, moved = bt.jvp(lambda x: total(x, index, values), (x,), (direction,))
    np.testing.assert_allclose(moved, (by_x * direction).sum(), rtol=1e-12)


LARGE = 2**60 + 1


@pytest.mark.parametrize("method", ["set", "add", "subtract", "multiply", "min", "max"])
def test_integers_stay_integers(method):
    x, index = np.arange(4) + LARGE, np.array([1, 3, 1])
    expected = in_order(x, index, method, 3)
    for change in (
        lambda x, k: getattr(x.at[k], method)(3),
        lambda x, k: getattr(x.at[index], method)(3),
        lambda x, k: getattr(x.at[k], method)(np.array([3, 3, 3])),
    ):
        found = bt.function(change)(x, index)
        assert found.dtype == np.int64
        np.testing.assert_array_equal(found, expected)
    found = bt.function(lambda x, k: x[k.at[0].add(1)])(np.arange(3.0), np.array([1, 0]))
    assert found.tolist() == [2.0, 0.0]


def test_masks_stay_masks_and_other_types_widen():
    x = np.array([[1.0, -1.0, 2.0]])
    mask = bt.function(lambda x: ~((x > 0).at[0, 0].set(False)))(x)
    assert mask.dtype == bool
    assert mask.tolist() == [[True, True, False]]
    assert bt.function(lambda x: x.at[0].set(1.5))(np.arange(3)).tolist() == [1.5, 1.0, 2.0]
    counts = bt.segment_sum(np.arange(5) + LARGE, np.arange(5), 5)
    np.testing.assert_array_equal(counts, np.arange(5) + LARGE)
    assert bt.segment_sum(np.array([True, True, False]), [0, 0, 1], 2).tolist() == [2, 0]
    assert bt.function(lambda x, k: bt.segment_sum(x, k, 2))(np.array([1, 2, 4]), np.array([1, 0, 1])).tolist() == [
        2,
        5,
    ]


def test_signed_zeros_are_kept():
    signs = bt.function(lambda x: 1.0 / x.at[0].set(-0.0))(np.array([1.0, -0.0, 0.0]))
    assert signs.tolist() == [-np.inf, -np.inf, np.inf]
    assert bt.function(lambda x: 1.0 / x.at[2].add(1.0))(np.array([-0.0, 0.0, 1.0])).tolist() == [-np.inf, np.inf, 0.5]
    assert bt.function(lambda x: 1.0 / x.at[:].multiply(-1.0))(np.zeros(2)).tolist() == [-np.inf, -np.inf]


def test_an_ellipsis_between_indices_separates_them():
    x = np.arange(60.0).reshape(3, 4, 5)
    for index in (
        (0, ..., np.array([0, 2]), 1),
        (slice(None), 1, ..., np.array([0, 2])),
        (np.array([0, 1]), ..., 2, 1),
    ):
        np.testing.assert_array_equal(bt.array(x)[index].data, x[index])
        np.testing.assert_array_equal(bt.function(lambda x, i=index: x[i])(x), x[index])
        np.testing.assert_array_equal(bt.array(x).at[index].multiply(1.0).data, x)


def random_step(draw, n):
    """A step of a loop over two arrays that are changed at some places, with old and new versions read in any order."""
    steps = []
    for _ in range(draw.integers(1, 5)):
        steps.append(
            (
                draw.integers(6),
                *draw.integers(2, size=2),
                draw.integers(n),
                draw.choice(["set", "add", "multiply", "max"]),
            )
        )
    last = draw.integers(3)

    def step(k, carries, w):
        x = [carries[0], carries[1]]
        for kind, a, b, at, method in steps:
            old, place = x[b], (k + at) % n
            if kind == 0:
                x[a] = getattr(x[a].at[place].set(w[at] * old[k]).at[k], method)(0.5)
            elif kind == 1:
                x[a] = getattr(x[a].at[place], method)(bt.sin(old[at]))
            elif kind == 2:
                x[a] = getattr(old.at[1:3], method)(x[a][:2] * w[at]) + 0.1 * x[a]
            elif kind == 3:
                x[a], x[b] = x[b].at[place].set(x[a][k]), x[a]
            elif kind == 4:
                x[a] = getattr(x[a].at[np.array([0, at])], method)(0.25 * x[b][::-1][:2])
            else:
                x[a] = x[a].at[at].set(0.3 * bt.sum(old) * w[k % n])
        return (x[1], x[0]) if last == 0 else (x[0], x[1]) if last == 1 else (x[0], x[0].at[k].add(0.2))

    return step


@pytest.mark.parametrize("seed", range(40))
def test_loops_that_change_arrays_are_the_unrolled_ones(seed):
    n = 4
    step = random_step(np.random.default_rng(seed), n)
    x, y, w = np.random.default_rng(seed + 1000).uniform(0.3, 1.2, size=(3, n))

    def rolled(x, y, w):
        x, y = bt.fori_loop(0, n, lambda k, c: step(k, c, w), (x, y))
        return (x * y + x).sum()

    def unrolled(x, y, w):
        for k in range(n):
            x, y = step(k, (x, y), w)
        return (x * y + x).sum()

    assert bt.function(rolled)(x, y, w) == pytest.approx(bt.function(unrolled)(x, y, w), rel=1e-13)
    found, expected = (bt.grad(f, argnums=(0, 1, 2))(x, y, w) for f in (rolled, unrolled))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-13)
    rows = [np.stack([u, 1.1 * u]) for u in (x, y, w)]
    by_row = bt.vmap(bt.grad(rolled))(*rows)
    np.testing.assert_allclose(by_row[0], expected[0], rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(bt.hessian(rolled)(x, y, w), bt.hessian(unrolled)(x, y, w), rtol=1e-9, atol=1e-11)


@pytest.mark.alone
def test_a_loop_changes_its_array_in_place():
    def least(f, x):
        took = []
        for _ in range(7):
            start = perf_counter()
            f(x)
            took.append(perf_counter() - start)
        return min(took[2:])

    for method in ("set", "add"):

        def run(x, method=method):
            return bt.fori_loop(1, len(x), lambda k, x: getattr(x.at[k], method)(0.25 * x[k - 1]), x)

        short, long = (least(bt.function(run), np.ones(n)) for n in (1_000, 16_000))
        assert long < 64 * short, "copies of the array would take 256 times as long"


def test_indices_that_are_arguments():
    f = bt.function(lambda x, k: x.at[k].set(7.0).at[k].add(1.0))
    assert f(np.zeros(4), np.array([2, 0])).tolist() == [8.0, 0.0, 8.0, 0.0]
    assert f(np.zeros(4), np.array([1, 3])).tolist() == [0.0, 8.0, 0.0, 8.0]
    assert f(np.zeros(4), np.array(-1)).tolist() == [0.0, 0.0, 0.0, 8.0]
    with pytest.raises(IndexError):
        f(np.zeros(4), np.array([4]))
    with pytest.raises(IndexError):
        bt.array(np.zeros(3)).at[5].set(1.0)
    with pytest.raises(ValueError, match="broadcast"):
        bt.array(np.zeros(3)).at[:2].set([1.0, 2.0, 3.0])


def test_a_tensor_and_its_gradient():
    w = bt.Parameters(dtype="float64").tensor(3, init=2.0)
    (w.at[1].multiply(3.0) ** 2).sum().backward()
    assert list(w.grads) == [4.0, 36.0, 4.0]


def test_placed_numbers_in_loops_and_batches():
    squares = bt.function(lambda x: bt.fori_loop(0, 4, lambda i, c: c.at[i].set(x[i] ** 2), bt.array(np.zeros(4))))
    assert squares(np.arange(4.0)).tolist() == [0.0, 1.0, 4.0, 9.0]
    assert bt.jacobian(squares)(np.arange(4.0)).tolist() == np.diag(2 * np.arange(4.0)).tolist()
    rows = bt.vmap(lambda x, k: x.at[k].add(1.0))(np.zeros((3, 2)), np.array([0, 1, 0]))
    assert rows.tolist() == [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]


SEGMENTS = {
    "one axis": ((6,), np.array([0, 2, 2, 1, 0, 2])),
    "rows": ((4, 3), np.array([3, 3, 0, 1])),
    "two axes of ids": ((2, 3, 2), np.array([[0, 1, 1], [2, 0, 4]])),
    "none": ((0, 2), np.array([], int)),
}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", SEGMENTS)
def test_sums_of_segments(name, dtype):
    shape, ids = SEGMENTS[name]
    x = np.random.default_rng(1).normal(size=shape).astype(dtype)
    for n in (None, 5, 7):
        rows = n if n is not None else (int(ids.max()) + 1 if ids.size else 0)
        expected = np.zeros((rows, *shape[ids.ndim :]), dtype)
        np.add.at(expected, ids, x)
        for found in (
            bt.segment_sum(x, ids, n),
            bt.function(lambda x, n=n: bt.segment_sum(x, ids, n), dtype=dtype)(x),
            bt.function(lambda x, k, rows=rows: bt.segment_sum(x, k, rows), dtype=dtype)(x, ids),
        ):
            assert found.shape == expected.shape
            np.testing.assert_allclose(found, expected, rtol=1e-6 if dtype == "float32" else 1e-15)
        gradient = bt.grad(lambda x, n=n: (bt.segment_sum(x, ids, n) ** 2).sum())(x)
        np.testing.assert_allclose(gradient, 2 * expected[ids], rtol=1e-5 if dtype == "float32" else 1e-14)


def test_segments_of_tensors_and_of_nothing():
    w = bt.Parameters(dtype="float64").tensor((3, 2), init=2.0)
    sums = bt.segment_sum(w, [1, 0, 1], 3)
    assert sums.data.tolist() == [[2.0, 2.0], [4.0, 4.0], [0.0, 0.0]]
    (sums**2).sum().backward()
    assert list(w.grads) == [8.0, 8.0, 4.0, 4.0, 8.0, 8.0]
    assert bt.function(lambda: bt.segment_sum(w, [1, 0, 1], 2))().tolist() == [[2.0, 2.0], [4.0, 4.0]]
    assert bt.segment_sum(np.zeros((0, 2)), [], 3).tolist() == [[0.0, 0.0]] * 3


def test_second_derivatives_of_sums_of_segments():
    ids = np.array([0, 1, 0, 1, 1])
    u = np.linspace(0.5, 1.5, 5)
    dense = bt.hessian(lambda x: bt.sum(bt.exp(bt.segment_sum(x, ids, 2))))(u)
    sums = np.array([u[ids == k].sum() for k in range(2)])
    np.testing.assert_allclose(dense, np.exp(sums)[ids] * (ids[:, None] == ids), rtol=1e-13)
    f = bt.function(lambda x: bt.segment_sum(x**2, ids, 2))
    assert f.jacobian_sparsity(u).nnz == 5


def test_counts_with_weights():
    ids, w = np.array([0, 3, 3, 1]), np.array([1.0, 2.0, 4.0, 8.0])
    for minlength in (0, 2, 6):
        expected = np.bincount(ids, w, minlength)
        np.testing.assert_array_equal(bt.function(lambda w, m=minlength: np.bincount(ids, w, m))(w), expected)
    np.testing.assert_array_equal(np.bincount(ids, weights=bt.array(w)).data, np.bincount(ids, w))
    assert bt.grad(lambda w: np.bincount(ids, weights=w)[3] ** 2)(w).tolist() == [0.0, 12.0, 12.0, 0.0]
    with pytest.raises(TypeError, match="must be known"):
        bt.function(lambda k, w: np.bincount(k, w))(ids, w)


@pytest.mark.parametrize(
    ("error", "call"),
    [
        (IndexError, lambda: bt.segment_sum(X, [0, 1, 2, 3], 3)),
        (IndexError, lambda: bt.segment_sum(X, [0, 1, -1, 3], 4)),
        (ValueError, lambda: bt.segment_sum(X, [0, 1], 3)),
        (TypeError, lambda: bt.segment_sum(X, [0.0, 1.0, 2.0, 3.0], 4)),
        (TypeError, lambda: bt.segment_sum(X, [0, 1, 2, 3], 4.5)),
        (TypeError, lambda: bt.function(lambda x, k: bt.segment_sum(x, k))(X, np.arange(4))),
        (ValueError, lambda: bt.segment_sum(X, [0, 1, 2, 3], -1)),
    ],
)
def test_wrong_segments(error, call):
    with pytest.raises(error):
        call()
