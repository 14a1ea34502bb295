"""Correlations and convolutions of long arrays: exact like NumPy's, in memory proportional to their lengths. Places
among sorted numbers, and elements of empty arrays."""

from __future__ import annotations

import tracemalloc

import pytest

import burtorch as bt

np = pytest.importorskip("numpy")

RNG = np.random.default_rng(5)
LENGTHS = [(33, 33), (65, 33), (300, 64), (129, 65), (130, 129), (400, 257)]
MODES = ["full", "same", "valid"]


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("n", "m"), LENGTHS)
def test_sums_are_those_of_numpy(n, m):
    a, v = RNG.normal(size=n), RNG.normal(size=m)
    for mode in MODES:
        for f, x, y in ((np.convolve, a, v), (np.correlate, a, v), (np.correlate, v, a)):
            expected = f(x, y, mode)
            close(bt.function(lambda x, y, f=f, mode=mode: f(x, y, mode))(x, y), expected)
            close(f(bt.array(x), bt.array(y), mode).data, expected)
            single = bt.function(lambda x, y, f=f, mode=mode: f(x, y, mode), dtype="float32")(x, y)
            np.testing.assert_allclose(single, expected, rtol=1e-3, atol=1e-4)
    close(bt.function(np.polymul)(a, v), np.polymul(a, v))


@pytest.mark.parametrize(("n", "m"), LENGTHS)
def test_integers_are_exact(n, m):
    i, j = (RNG.integers(-(2**29), 2**29, k) for k in (n, m))
    for mode in MODES:
        found = bt.function(lambda i, j, mode=mode: np.correlate(i, j, mode))(i, j)
        assert found.dtype == np.int64
        assert found.tolist() == np.correlate(i, j, mode).tolist()


def test_derivatives_are_correlations():
    a, v, change = RNG.normal(size=300), RNG.normal(size=200), RNG.normal(size=300)
    by_a, by_v = bt.grad(lambda a, v: (np.convolve(a, v) ** 2).sum() / 2, argnums=(0, 1))(a, v)
    total = np.convolve(a, v)
    close(by_a, np.correlate(total, v, "valid"))
    close(by_v, np.correlate(total, a, "valid"))
    close(bt.jvp(lambda a: np.convolve(a, v), (a,), (change,))[1], np.convolve(change, v))
    matrix = bt.jacobian(lambda v: np.convolve(a[:70], v))(v[:70])
    close(bt.hessian(lambda v: (np.convolve(a[:70], v) ** 2).sum() / 2)(v[:70]), matrix.T @ matrix)


def test_rows_under_vmap():
    rows, v = RNG.normal(size=(4, 150)), RNG.normal(size=70)
    close(bt.vmap(lambda a: np.convolve(a, v))(rows), [np.convolve(a, v) for a in rows])
    close(bt.vmap(lambda v: np.convolve(rows[0], v))(rows[:, :40]), [np.convolve(rows[0], v[:40]) for v in rows])


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_in_its_windows(special):
    a, v = RNG.normal(size=300), RNG.normal(size=100)
    for place in (0, 150, 299):
        with_it = a.copy()
        with_it[place] = special
        for mode in MODES:
            close(bt.function(lambda a, mode=mode: np.convolve(a, v, mode))(with_it), np.convolve(with_it, v, mode))
        weights = v.copy()
        weights[place % 100] = special
        close(bt.function(lambda v: np.convolve(a, v, "valid"))(weights), np.convolve(a, weights, "valid"))


def test_memory_is_proportional_to_the_lengths():
    a, v = RNG.normal(size=4000), RNG.normal(size=3000)
    tracemalloc.start()
    try:
        close(bt.function(np.convolve)(a, v), np.convolve(a, v))
        bt.grad(lambda a, v: np.convolve(a, v).sum(), argnums=(0, 1))(a, v)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 30e6, "a matrix of windows has 168 MB of indices"


@pytest.mark.parametrize("wanted", [[1.0], 1.5, (0.5, 2), [[1, 2], [0, 3]], np.array([1.0]), []])
@pytest.mark.parametrize("sorted_numbers", [np.arange(3.0), np.zeros(0)])
def test_places_of_lists_among_sorted_numbers(sorted_numbers, wanted):
    for side in ("left", "right"):
        expected = np.searchsorted(sorted_numbers, wanted, side)
        for call in (bt.function, bt.checkpoint):
            found = call(lambda x, side=side: np.searchsorted(x, wanted, side))(sorted_numbers)
            np.testing.assert_array_equal(found, expected)
    if sorted_numbers.size:
        places = bt.checkpoint(lambda x: np.digitize(x, [0.5, 1.5]))(sorted_numbers)
        np.testing.assert_array_equal(places, np.digitize(sorted_numbers, [0.5, 1.5]))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("mode", ["raise", "clip", "wrap"])
def test_nothing_is_taken_of_an_empty_axis(mode):
    for shape, axis in (((0, 2), 0), ((2, 0), 1), ((0,), None), ((2, 0), 0), ((0, 3), 1)):
        for places in ([0], []):
            call = bt.checkpoint(lambda x, p=places, a=axis: np.take(x, np.array(p, int), axis=a, mode=mode))
            try:
                expected = np.take(np.zeros(shape), np.array(places, int), axis=axis, mode=mode)
            except IndexError:
                with pytest.raises(IndexError):
                    call(np.zeros(shape))
            else:
                assert call(np.zeros(shape)).shape == expected.shape
