"""Comparisons of Vectors and Tensors: masks of numbers, eager and in traced functions."""

from __future__ import annotations

import operator

import numpy as np
import pytest

import burtorch as bt

COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
X = np.array([0.0, 2.0, 0.0, -1.0])


@pytest.mark.parametrize("compare", COMPARISONS)
@pytest.mark.parametrize("length", [4, 300])
def test_masks_in_traced_functions_are_those_of_numpy(compare, length):
    x = np.resize(X, length)
    bodies = [
        lambda x: np.where(compare(x, 0), 1.0, x),
        lambda x: np.where(compare(0.0, x), 1.0, x),
        lambda x: np.where(compare(x, x.max()), 1.0, 0.0),
        lambda x: np.where(compare(x, x * 1.0), 1.0, 3 * x),
        lambda x: np.where(compare(x, x[::-1]), 1.0, 3 * x),
        lambda x: np.where(compare(x, np.resize([0.0, -1.0], length)), x, 5.0),
        lambda x: np.where(compare(np.resize([0.0, -1.0], length), x), x, 5.0),
        lambda x: compare(x, 2.0) * x,
    ]
    for body in bodies:
        np.testing.assert_array_equal(bt.function(body)(x), body(x))
    mask = bt.function(lambda x: compare(x, 0))(x)
    assert np.array_equal(mask, compare(x, 0))


def test_gradients_of_chosen_elements():
    def guarded(x):
        return np.where(x == 0, 1.0, x * x).sum()

    f = bt.function(guarded)
    assert f.grad(X).tolist() == [0.0, 4.0, 0.0, -2.0]
    assert bt.grad(guarded)(X).tolist() == [0.0, 4.0, 0.0, -2.0]
    assert np.isfinite(bt.function(lambda x: np.where(x <= 0, 0.0, np.log(x)).sum())(X))


def test_tensors_in_traced_functions():
    params = bt.Parameters(dtype="float64")
    w, matrix = params.tensor(4, init=0.0), params.tensor((2, 2), init=0.0)
    params.values[:] = [*X, *X]
    assert bt.function(lambda x: np.where(w == 0, 1.0, x))(X).tolist() == [1.0, 2.0, 1.0, -1.0]
    assert bt.function(lambda x: np.where(matrix == 0, 1.0, x.reshape(2, 2)))(X).tolist() == [[1.0, 2.0], [1.0, -1.0]]


@pytest.mark.parametrize("compare", COMPARISONS)
def test_eager_masks(compare):
    params = bt.Parameters(dtype="float64")
    w, matrix = params.tensor(4), params.tensor((2, 2))
    params.values[:] = [*X, *X]
    v = bt.Vector(X)
    for x in (v, w):
        for other in (0, 2.0, np.float64(-1), X[::-1].copy(), bt.Value(2.0)):
            plain = getattr(other, "data", other) if isinstance(other, bt.Value) else other
            found = compare(x, other)
            assert isinstance(found, np.ndarray)
            assert np.array_equal(found, compare(X, plain))
            assert np.array_equal(compare(other, x), compare(plain, X))
    mask = compare(matrix, 0)
    assert isinstance(mask, bt.Array)
    assert np.array_equal(mask.data, compare(X.reshape(2, 2), 0))


def test_objects_are_equal_to_themselves_and_hashable():
    u, v = bt.Vector(X), bt.Vector(X)
    w = bt.Parameters(dtype="float64").tensor(4)
    for x in (u, w):
        assert x == x
        assert x != None  # noqa: E711
        assert x != "text"
        assert x in {x}
        assert [v, x].index(x) == 1
    assert u != v
    assert (u < v).tolist() == [False] * 4
    assert (u <= v).all()
    for wrong in ("a", None, object()):
        with pytest.raises(TypeError, match="not supported"):
            _ = u < wrong


@pytest.mark.parametrize("compare", COMPARISONS)
def test_lists_that_are_no_arrays_of_numbers(compare):
    w = bt.Parameters(dtype="float64").tensor(4, init=1.0)
    operands = [bt.array(X), bt.Vector(X), w]
    for x in operands:
        for other in (
            ["a"] * 4,
            [None, 1.0, 2.0, 3.0],
            [1j, 2, 3, 4],
            [[1.0], [2.0, 3.0]],
            [object()],
            ([],) * 2 + (1,),
        ):
            with pytest.raises(TypeError, match="lists of numbers with rows of one length"):
                compare(x, other)
        for other in ([], (), [[], []]):
            with pytest.raises(ValueError, match="broadcast"):
                compare(x, other)
    assert compare(bt.array(np.zeros(0)), []).shape == (0,)
    assert compare(bt.array(np.zeros((2, 0))), [[], []]).shape == (2, 0)


def test_other_objects_are_unequal():
    w = bt.Parameters(dtype="float64").tensor(4, init=1.0)
    for x in (bt.array(X), bt.Vector(X), w):
        for other in ("a", None, {}, object(), 1j):
            assert (x == other) is False
            assert (x != other) is True
    assert (bt.Value(1.0) == []) is False
