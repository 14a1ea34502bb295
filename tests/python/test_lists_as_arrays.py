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
        for other in (None, "abc", {}, object()):
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
    np.testing.assert_array_equal(bt.stack(bt.array(X)).data, X)
    np.testing.assert_array_equal(bt.function(lambda x: bt.stack(x))(X), X)
    np.testing.assert_array_equal(bt.stack(A), A)
    np.testing.assert_array_equal(bt.stack([[1.0, 2.0], [3.0, 4.0]]), [[1.0, 2.0], [3.0, 4.0]])
    assert bt.inner_product(np.ones((2, 3)), np.ones(3)).tolist() == [3.0, 3.0]
    assert bt.concat(A, B).shape == (4, 2)


def test_rows_of_several_lengths_are_errors():
    for call in (lambda x: bt.softmax(x), lambda x: bt.max(x, axis=0), lambda x: bt.stack(x)):
        with pytest.raises((ValueError, TypeError)):
            call([[1.0, 2.0], [3.0]])


def kinds(rows):
    """The same rows of numbers as objects with and without a gradient."""
    with_values = [[bt.Value(rows[0][0]), *rows[0][1:]], *[list(row) for row in rows[1:]]]
    return {
        "Vectors": [bt.Vector(row) for row in rows],
        "Tensors": [tensor(np.asarray(row)) for row in rows],
        "Arrays": [bt.array(row) for row in rows],
        "lists with a Value": with_values,
        "a Vector and a list": [bt.Vector(rows[0]), *[list(row) for row in rows[1:]]],
    }


ROWWISE = {
    "max": lambda x: bt.max(x, axis=0),
    "min": lambda x: bt.min(x, axis=1),
    "mean": lambda x: bt.mean(x, axis=0),
    "logsumexp": lambda x: bt.logsumexp(x, axis=1),
    "norm2": lambda x: bt.norm2(x, axis=0),
    "stack": lambda x: bt.stack(x),
    "stack of columns": lambda x: bt.stack(x, axis=1),
}


@pytest.mark.parametrize("name", ROWWISE)
def test_rows_of_any_kind_keep_their_axis(name):
    rows = [[1.0, 2.5, 0.5], [3.0, 4.0, -1.0]]
    call = ROWWISE[name]
    expected = call(np.array(rows))
    for kind, x in kinds(rows).items():
        found = call(x)
        assert isinstance(found, bt.Array), kind
        np.testing.assert_allclose(found.data, expected, rtol=1e-14, err_msg=kind)
        (found**2).sum().backward()
    traced = bt.function(lambda a, b: call([a, b]))(*map(np.array, rows))
    np.testing.assert_allclose(traced, expected, rtol=1e-14)
    batch = bt.vmap(lambda a, b: call([a, b]))(*(np.array([row]) for row in rows))
    np.testing.assert_allclose(batch[0], expected, rtol=1e-14)


def test_nested_lists_with_values_keep_their_rows():
    rows = [[1.0, 2.5], [3.0, 4.0]]
    v = bt.Value(1.0)
    nested = [[v, 2.5], [3.0, 4.0]]
    for f in (bt.softmax, bt.log_softmax, lambda x: bt.softmax(x, axis=0), lambda x: bt.inner_product(x, rows)):
        np.testing.assert_allclose(f(nested).data, f(rows), rtol=1e-14)
    bt.softmax(nested)[0, 0].backward()
    p = np.exp([1.0, 2.5]) / np.exp([1.0, 2.5]).sum()
    assert v.grad == pytest.approx(p[0] * (1 - p[0]))
    # Vectors in a list mean their elements.
    assert len(bt.softmax([bt.Vector([1.0, 2.0]), bt.Vector([3.0])])) == 3


CONCATENATED = {
    "arrays": [X, X[:2]],
    "lists": [[1.0, 2.0], [3.0]],
    "numbers": [1.0, 2.0],
    "a number and a list": [1.0, [2.0, 3.0]],
    "matrices": [A, B],
}


@pytest.mark.parametrize("name", CONCATENATED)
def test_concat_joins(name):
    parts = CONCATENATED[name]
    expected = np.concatenate([np.atleast_1d(part) for part in parts])
    for found in (bt.concat(parts), bt.concat(*parts), bt.concat(tuple(parts))):
        assert isinstance(found, np.ndarray)
        np.testing.assert_array_equal(found, expected)
    if all(isinstance(part, np.ndarray) for part in parts):
        np.testing.assert_array_equal(bt.function(lambda a, b: bt.concat([a, b]))(*parts), expected)
        np.testing.assert_array_equal(bt.concat([bt.array(part) for part in parts]).data, expected)
        joined = bt.concat([tensor(part) for part in parts])
        np.testing.assert_array_equal(np.asarray(joined.data), expected)


BESIDE = {
    "maximum": lambda a, x: bt.maximum(a, x),
    "minimum": lambda a, x: bt.minimum(x, a),
    "logaddexp": lambda a, x: bt.logaddexp(a, x),
    "where": lambda a, x: bt.where([True, False, True], a, x),
    "stack": lambda a, x: bt.stack([a, x]),
    "concat": lambda a, x: bt.concat([a, x]),
    "inner_product": lambda a, x: bt.inner_product(a, x),
    "solve": lambda a, x: np.linalg.solve([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [1.0, 0.0, 4.0]], a),
}


@pytest.mark.parametrize("name", BESIDE)
def test_lists_beside_arrays_in_functions(name):
    call, other = BESIDE[name], [2.0, 1.0, 5.0]
    expected = call(X, np.array(other))
    np.testing.assert_allclose(call(bt.array(X), other).data, expected, rtol=1e-14)
    np.testing.assert_allclose(bt.function(lambda x: call(x, other))(X), expected, rtol=1e-14)


@pytest.mark.parametrize("name", ["max", "min", "mean", "logsumexp", "norm2"])
def test_the_axis_of_a_vector(name):
    call = getattr(bt, name)
    for x in (bt.Vector(X), tensor(X)):
        found = call(x, axis=0)
        assert found.shape == ()
        np.testing.assert_allclose(found.data, call(X), rtol=1e-14)
    assert call(bt.Vector(X), axis=0, keepdims=True).shape == (1,)
    assert bt.softmax(tensor(X), axis=0).shape == (3,)


def test_functions_that_only_arrays_have_take_tensors():
    w = tensor(np.array([1.5, np.nan, -2.5]))
    for f in (np.isnan, np.isfinite, np.isinf, np.trunc, np.degrees, np.fabs, np.signbit):
        np.testing.assert_array_equal(f(w).data, f(np.array([1.5, np.nan, -2.5])))


def test_mixed_arguments_of_a_traced_function():
    f = bt.function(lambda w, x: bt.sum((x * w) ** 2))
    x, numbers = np.ones((2, 3)), np.array([1.0, 2.0, 3.0])
    w = tensor(numbers)
    loss = f(w, x)
    loss.backward()
    assert float(loss.data) == f(numbers, x) == 28.0
    assert list(w.grads) == [4.0, 8.0, 12.0]
    v = bt.Value(2.0)
    loss = f(v, x)
    loss.backward()
    assert (float(loss.data), v.grad) == (24.0, 24.0)
    u = bt.Vector(numbers)
    f(u, x).backward()
    assert list(u.grad) == [4.0, 8.0, 12.0]
    f({"w": w}["w"], x).backward()


def test_a_checkpoint_without_arguments_keeps_the_gradient():
    w = tensor(np.array([1.0, 2.0]))
    bt.checkpoint(lambda: (w * w).sum() * 3.0)().backward()
    assert list(w.grads) == [6.0, 12.0]


def test_other_numbers_of_inputs_than_a_layer_has():
    params = bt.Parameters(dtype="float64", seed=1)
    w = params.tensor((2, 3), init="normal")
    layers = [
        bt.nn.Linear(params, 3, 2, bias=False), bt.nn.Linear(params, 3, 2),
        bt.nn.Linear(params, 3, 2, activation="tanh"), lambda x: bt.affine(w, x), lambda x: bt.affine(w, [x]),
    ]  # fmt: skip
    for layer in layers:
        for n in (1, 2, 4, 6):
            with pytest.raises(ValueError, match=rf"weight of shape \(2, 3\) expects 3 scalars for x, found {n}"):
                layer(bt.Vector(np.ones(n)))
        assert len(layer(bt.Vector(np.ones(3)))) == 2
    with pytest.raises(ValueError, match="two dimensions"):
        bt.affine(params.tensor((2, 2, 3)), bt.Vector(np.ones(3)))
    layer = layers[0]
    oracle = bt.Oracle(lambda x, y: bt.sum(layer(x)) - y, params=params)
    with pytest.raises(ValueError, match=r"expects 3 scalars|shapes|equal"):
        oracle(np.ones((4, 2)), np.zeros(4))


def test_nested_lists_are_conditions():
    mask = [[True, False], [False, True]]
    expected = np.where(mask, A, B)
    assert bt.where(mask, A, B).tolist() == bt.where(tuple(map(tuple, mask)), A, B).tolist() == expected.tolist()
    assert bt.where(mask, 1.0, 0.0).tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert bt.where(mask, bt.array(A), B).data.tolist() == expected.tolist()
    assert bt.function(lambda a: bt.where(mask, a, B))(A).tolist() == expected.tolist()
    with pytest.raises(ValueError, match="a condition of one axis"):
        bt.where(mask, bt.Vector([1.0, 2.0]), 0.0)
