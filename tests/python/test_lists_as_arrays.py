"""Lists and tuples of numbers where NumPy takes them for arrays: beside Arrays, and in functions of arrays."""

from __future__ import annotations

import operator

import numpy as np
import pytest

import burtorch as bt

X = np.array([1.0, 2.0, 3.0])
ROWS = np.array([[1.0, 2.0, 9.0], [1.0, -1.0, 3.0]])
OPERATORS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
LISTS = {
    "list": [1.0, 2.0, 2.5],
    "tuple": (1, 3, 3),
    "rows": [[1.0, 2.0, 9.0], [1.0, -1.0, 3.0]],
    "row": [[1.0, 0.0, 3.0]],
    "one": [2.0],
    "arrays": [X + 1.0, X],
    "bools": [True, False, True],
}


def tensor(numbers):
    made = bt.Parameters(dtype="float64").tensor(numbers.shape)
    made.values[:] = numbers.ravel()
    return made


@pytest.mark.parametrize("other", LISTS)
@pytest.mark.parametrize("compare", OPERATORS, ids=lambda f: f.__name__)
def test_comparisons_are_masks(compare, other):
    other = LISTS[other]
    for numbers in (X, ROWS):
        expected, reversed_ = compare(numbers, other), compare(np.asarray(other), numbers)
        eager = [bt.array(numbers), tensor(numbers)]
        if np.ndim(other) == numbers.ndim == 1 and np.shape(other) == numbers.shape:
            eager.append(bt.current_graph().vector(list(numbers)))
        for x in eager:
            if isinstance(x, type(eager[1])) and np.ndim(other) > numbers.ndim:
                continue
            assert np.asarray(compare(x, other)).tolist() == expected.tolist()
            assert np.asarray(compare(other, x)).tolist() == reversed_.tolist()

        def doubled(x):
            return bt.where(compare(x, other), x * 2.0, x)

        for found in (
            bt.function(doubled)(numbers),
            bt.checkpoint(doubled)(numbers),
            bt.jvp(doubled, (numbers,), (numbers,))[0],
        ):
            np.testing.assert_array_equal(found, np.where(expected, 2.0 * numbers, numbers))
        gradient = bt.grad(lambda x: bt.sum(doubled(x)))(numbers)
        shape = np.broadcast_shapes(np.shape(other), numbers.shape)
        whole = np.where(expected, 2.0, 1.0) * np.ones(shape)
        np.testing.assert_array_equal(gradient, whole.reshape(-1, *numbers.shape).sum(axis=0))


def test_integers_are_compared_with_lists():
    count = bt.function(lambda k: bt.sum(bt.where(k == [1, 2, 3], 1.0, 0.0)))
    assert count(np.array([1, 2, 5])) == 2.0


def test_lists_with_values_are_compared():
    x, v = bt.array(X), bt.Value(2.0)
    for found in (x == [v, v, 3.0], bt.current_graph().vector([1.0, 2.0, 3.0]) == [v, v, 3.0]):
        assert np.asarray(found).tolist() == [False, True, True]
    traced = bt.function(lambda x: bt.where(x == [x[0], 2.5, x[2]], 1.0, 0.0))
    assert traced(X).tolist() == [1.0, 0.0, 1.0]


def test_other_objects_are_never_equal():
    for x in (bt.array(X), tensor(X), bt.current_graph().vector([1.0, 2.0, 3.0])):
        for other in (None, "abc", ["a", "b", "c"], [], {}, object()):
            assert (x == other) is False
            assert (x != other) is True


def test_lists_of_another_length_are_errors():
    with pytest.raises(ValueError, match="broadcast"):
        operator.eq(bt.array(X), [1.0, 2.0])
    with pytest.raises(ValueError, match="broadcast"):
        bt.function(lambda x: bt.where(x == [1.0, 2.0], 1.0, 0.0))(X)


A, B = np.array([[1.0, 2.5], [3.0, 4.0]]), np.array([[0.5, 0.25], [2.0, 1.0]])
CALLS = {
    "softmax": lambda a, b: bt.softmax(a),
    "softmax of columns": lambda a, b: bt.softmax(a, axis=0),
    "log_softmax": lambda a, b: bt.log_softmax(b),
    "log_softmax of columns": lambda a, b: bt.log_softmax(b, axis=0),
    "max": lambda a, b: bt.max(a, axis=0),
    "min": lambda a, b: bt.min(a, axis=1),
    "mean": lambda a, b: bt.mean(a, axis=1),
    "logsumexp": lambda a, b: bt.logsumexp(a, axis=0),
    "norm2": lambda a, b: bt.norm(a, axis=0),
    "sum": lambda a, b: bt.sum(a, axis=0),
    "inner_product": lambda a, b: bt.inner_product(a, b),
    "concat": lambda a, b: bt.concat([a, b]),
    "stack": lambda a, b: bt.stack([a, b]),
    "stack along the last axis": lambda a, b: bt.stack([a, b], axis=-1),
}


@pytest.mark.parametrize("name", CALLS)
def test_functions_of_plain_arrays_are_those_of_arrays(name):
    call = CALLS[name]
    expected = bt.function(call)(A, B)
    np.testing.assert_allclose(call(bt.array(A), bt.array(B)).data, expected, rtol=1e-15)
    kinds = {
        "arrays": (A, B),
        "lists": (A.tolist(), B.tolist()),
        "tuples": (tuple(map(tuple, A.tolist())), tuple(map(tuple, B.tolist()))),
        "lists of arrays": (list(A), list(B)),
        "integers": (A.astype(int).tolist(), B.astype(int).tolist()),
    }
    for kind, (a, b) in kinds.items():
        if name == "concat" and kind != "arrays":
            continue  # joins what lists contain
        if kind == "integers":
            expected = bt.function(call)(A.astype(int) * 1.0, B.astype(int) * 1.0)
        found = call(a, b)
        assert isinstance(found, np.ndarray)
        np.testing.assert_allclose(found, expected, rtol=1e-15, err_msg=kind)


def test_one_axis_is_softmax_of_all():
    for x in ([1.0, 2.0], (1.0, 2.0), np.array([1.0, 2.0])):
        np.testing.assert_allclose(bt.softmax(x, axis=0), bt.softmax(x), rtol=1e-15)
    for axis in (1, 2, -3):
        with pytest.raises((ValueError, TypeError), match="axis"):
            bt.softmax([1.0, 2.0], axis=axis)


def test_the_parts_of_one_array_are_stacked():
    np.testing.assert_array_equal(bt.stack(X), X)
    np.testing.assert_array_equal(bt.stack(A), A)
    np.testing.assert_array_equal(bt.stack([[1.0, 2.0], [3.0, 4.0]]), [[1.0, 2.0], [3.0, 4.0]])
    assert bt.inner_product(np.ones((2, 3)), np.ones(3)).tolist() == [3.0, 3.0]
    assert bt.concat(A, B).shape == (4, 2)


def test_rows_of_several_lengths_are_errors():
    for call in (lambda x: bt.softmax(x), lambda x: bt.max(x, axis=0), lambda x: bt.stack(x)):
        with pytest.raises((ValueError, TypeError)):
            call([[1.0, 2.0], [3.0]])
