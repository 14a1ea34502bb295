"""Sorting and quantiles of arrays: against NumPy, with derivatives; ties, NaN, infinities, empty arrays."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

import burtorch as bt

np = pytest.importorskip("numpy")

CASES = runpy.run_path(str(Path(__file__).with_name("array_cases.py")))
run, same = CASES["run"], CASES["same"]

RNG = np.random.default_rng(5)
X = RNG.normal(size=(3, 4, 5))
SPECIAL = np.array([2.0, np.nan, -np.inf, 0.0, -0.0, np.inf, np.nan, 2.0, -1.5])
NAMES = ["sort", "argsort", "median", "quantile", "percentile"]


def check(body, *arrays):
    with np.errstate(all="ignore"):
        expected = body(*arrays)
    assert same(run(body, *arrays), expected, 1e-14)


@pytest.mark.parametrize("axis", [-1, 0, 1, None])
def test_sort_and_argsort_are_numpy_s(axis):
    arrays = [X, np.round(X), X.astype(np.float32), X[:, ::-1, ::2], np.moveaxis(X, 0, 2), X.astype(">f8"), X > 0]
    for x in [*arrays, RNG.integers(-5, 5, X.shape), np.zeros((2, 0, 3)), np.empty((0, 2, 3))]:
        for f, g in ((np.sort, bt.sort), (np.argsort, bt.argsort)):
            expected = f(x, axis=axis, kind="stable")
            for found in (bt.function(f)(x, axis=axis), bt.function(g)(x, axis=axis), g(x, axis, kind="stable")):
                assert found.shape == expected.shape
                assert np.array_equal(found, expected)
    check(lambda x: np.sort(x), SPECIAL)
    check(lambda x: np.argsort(x, kind="stable"), SPECIAL)
    check(lambda x: np.sort(x, 0), np.stack([SPECIAL, SPECIAL[::-1], X.ravel()[:9]]))


def test_long_rows_are_sorted():
    for x in (RNG.normal(size=300_001), RNG.integers(0, 50, 140_000), np.zeros(70_000), np.arange(131_073.0)[::-1]):
        assert np.array_equal(run(lambda x: np.argsort(x), x), np.argsort(x, kind="stable"))


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2), (1, 0)])
def test_medians_and_quantiles_are_numpy_s(axis, keepdims):
    for x in (X, np.round(X), X[:, :2], X[:1], np.stack([SPECIAL] * 3)[:, :, None], RNG.integers(0, 9, X.shape)):
        check(lambda x: np.median(x, axis=axis, keepdims=keepdims), x)
        for q in (0.0, 1.0, 0.3, [0.25, 0.5], np.array([[0.1], [0.9]])):
            if x.dtype.kind == "i" or np.isfinite(x).all():
                check(lambda x, q=q: np.quantile(x, q, axis=axis, keepdims=keepdims), x)
                check(lambda x, q=q: np.percentile(x, np.multiply(q, 100), axis=axis, keepdims=keepdims), x)


def test_infinities_and_large_numbers_have_a_median():
    for x in ([np.inf, np.inf], [-np.inf, np.inf], [1.0, np.inf, np.inf], [1e308, 1e308], [5e-324, 5e-324, 0.0, 1.0]):
        check(lambda x: np.median(x), np.array(x))


def test_gradients_go_to_the_elements_in_their_places():
    w = RNG.normal(size=X.shape)
    expected = np.empty_like(X)
    np.put_along_axis(expected, np.argsort(X, 1), w, 1)
    assert np.array_equal(bt.grad(lambda x: (np.sort(x, 1) * w).sum())(X), expected)
    assert np.array_equal(bt.grad(lambda x: np.median(x))(np.array([3.0, 1.0, 2.0])), [0, 0, 1])
    assert np.array_equal(bt.grad(np.median)(np.array([3.0, 1.0, 2.0, 4.0])), [0.5, 0, 0.5, 0])
    assert np.allclose(bt.grad(lambda x: bt.quantile(x, 0.3))(np.array([3.0, 1.0, 2.0, 4.0])), [0, 0.1, 0.9, 0])
    # Equal elements keep their order.
    assert np.array_equal(bt.jacobian(bt.sort)(np.array([1.0, 0.0, 1.0])), [[0, 1, 0], [1, 0, 0], [0, 0, 1]])
    assert np.array_equal(bt.grad(np.median)(np.array([2.0, 2.0, 2.0])), [0, 1, 0])
    # Elements that are not selected have a zero gradient, whatever their slope.
    assert np.array_equal(bt.grad(lambda x: np.sort(np.sqrt(x))[1])(np.array([0.0, 4.0])), [0.0, 0.25])


def test_sorting_has_derivatives_of_all_orders_in_all_modes():
    f = lambda x: (np.sort(x**3) * np.arange(5.0)).sum() + np.median(np.exp(x)) ** 2  # noqa: E731
    x = X[0, 0]
    step = 1e-6 * np.eye(5)
    numeric = np.array([(bt.grad(f)(x + d) - bt.grad(f)(x - d)) / 2e-6 for d in step])
    assert np.allclose(bt.hessian(f)(x), numeric, rtol=1e-6, atol=1e-6)
    v = RNG.normal(size=5)
    assert np.allclose(bt.jvp(f, (x,), (v,))[1], bt.grad(f)(x) @ v, rtol=1e-13)
    assert np.allclose(bt.hvp(f)(x, v), bt.hessian(f)(x) @ v, rtol=1e-12)
    assert np.array_equal(bt.vmap(bt.grad(f))(X[0]), [bt.grad(f)(row) for row in X[0]])
    assert np.array_equal(bt.vmap(bt.sort, in_axes=1, out_axes=1)(X[0]), np.sort(X[0], 0))
    assert np.array_equal(bt.vmap(np.argsort)(X), np.argsort(X))
    g = lambda x: bt.scan(lambda c, row: (np.sort(c + row), c.sum()), x[0], x)[0] @ np.arange(5.0)  # noqa: E731
    numeric = [(g_of(g, X[0], d) - g_of(g, X[0], -d)) / 2e-6 for d in 1e-6 * np.eye(20).reshape(20, 4, 5)]
    assert np.allclose(bt.grad(g)(X[0]).ravel(), numeric, rtol=1e-6, atol=1e-6)


def g_of(g, x, d):
    return bt.function(g)(x + d)


def test_arrays_of_a_graph_are_sorted_at_once():
    graph = bt.Graph()
    x = graph.array(np.array([3.0, 1.0, np.nan, 2.0]))
    y = np.sort(x)
    assert np.array_equal(y.data, [1, 2, 3, np.nan], equal_nan=True)
    (y * np.array([1.0, 2.0, 3.0, 4.0])).sum().backward()
    assert np.array_equal(x.grad, [3, 1, 4, 2])
    z = graph.array(np.array([3.0, 1.0, 2.0]))
    np.median(z).backward()
    assert np.array_equal(z.grad, [0, 0, 1])
    assert np.array_equal(np.argsort(z).data, [1, 2, 0])


def test_a_nan_makes_the_median_one_and_receives_its_gradient():
    x = np.array([1.0, np.nan, 3.0])
    value, gradient = bt.value_and_grad(np.median)(x)
    assert np.isnan(value)
    assert np.array_equal(gradient, [0, 1, 0])


def test_errors_name_the_mistake():
    for body, error, words in (
        (lambda x: np.median(x, axis=1), ValueError, "quantile|median|empty"),
        (lambda x: np.sort(x, axis=2), ValueError, "axis"),
        (lambda x: np.sort(x, order="a"), TypeError, "order"),
        (lambda x: np.quantile(x, 1.5, axis=0), ValueError, "from 0 to 1"),
        (lambda x: np.quantile(x, 0.5, axis=0, method="closest_observation"), TypeError, "linear.*closest"),
        (lambda x: np.median(x, axis=(0, 0)), ValueError, "axis"),
        (lambda x: np.median(x, axis=0, out=np.zeros(0)), TypeError, "out"),
    ):
        with pytest.raises(error, match=words):
            run(body, np.zeros((2, 0)))
    with pytest.raises(ValueError, match=r"0 axes|number|axis"):
        run(lambda x: np.sort(x), np.float64(1.0))
    assert run(lambda x: np.median(x), np.float64(2.0)) == 2.0


SHAPES = [(0, 0), (2, 0), (0, 3), (2, 0, 0), (0, 2, 0), (3, 0, 2), (2, 3)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("indices", [[0, -1, 0], [5], [], 0, [[0, 1]]])
def test_take_of_empty_axes_is_that_of_numpy(shape, indices):
    for axis in range(-len(shape), len(shape)):
        traced = bt.function(lambda x, axis=axis: np.take(x, indices, axis=axis))
        try:
            expected = np.take(np.ones(shape), indices, axis=axis)
        except IndexError:
            with pytest.raises(IndexError):
                traced(np.ones(shape))
        else:
            assert np.shape(traced(np.ones(shape))) == expected.shape
