"""Methods and attributes of Arrays on Tensors, eager and traced."""

from __future__ import annotations

import numpy as np
import pytest

import burtorch as bt

CALLS = {
    "T": lambda w: w.T,
    "sum": lambda w: w.sum(),
    "sum of rows": lambda w: w.sum(axis=0),
    "mean": lambda w: w.mean(axis=1),
    "reshape": lambda w: w.reshape(-1),
    "ravel": lambda w: w.ravel(),
    "max": lambda w: w.max(),
    "min": lambda w: w.min(axis=0),
    "std": lambda w: w.std(),
    "cumsum": lambda w: w.cumsum(),
    "transpose": lambda w: w.transpose(),
    "dot": lambda w: w.dot(w.T),
    "clip": lambda w: w.clip(-0.1, 0.1),
}


def made(shape):
    params = bt.Parameters(dtype="float64", seed=3)
    return params, params.tensor(shape, init="normal")


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("shape", [(4, 2), (3,)])
def test_attributes_are_those_of_arrays(name, shape):
    if shape == (3,) and name in {"mean"}:
        pytest.skip("one axis")
    params, w = made(shape)
    call = CALLS[name]
    numbers = np.array(w.values).reshape(shape)
    expected = call(numbers)
    found = call(w)
    assert isinstance(found, bt.Array)
    np.testing.assert_allclose(found.data, expected)
    (found**2).sum().backward()
    by_arrays = bt.grad(lambda a: (call(a) ** 2).sum())(numbers)
    np.testing.assert_allclose(np.array(params.grads).reshape(shape), by_arrays)
    traced = bt.function(lambda x: (call(w) ** 2).sum() * x)
    np.testing.assert_allclose(traced(2.0), 2 * (expected**2).sum())
    np.testing.assert_allclose(bt.grad(lambda x: (call(w) ** 2).sum() * x)(2.0), (expected**2).sum())


def test_extents():
    _, w = made((4, 2))
    assert (w.ndim, w.size, w.shape, len(w)) == (2, 8, (4, 2), 4)
    assert (w[0].ndim, w[0].size) == (1, 2)


@pytest.mark.parametrize("make", [np.asarray, np.array, lambda w: np.array([w, w]), lambda w: np.array(w, float)])
def test_an_array_of_numpy_would_have_no_gradient(make):
    params, w = made((4, 2))
    for x in (w, w[0], params):
        with pytest.raises(TypeError, match=r"no gradient: use numpy\.asarray"):
            make(x)
    assert np.asarray(w.values).tolist() == list(w.values)
    assert np.stack([w, w]).shape == (2, 4, 2)


def test_arrays_like_a_tensor():
    _, w = made((4, 2))
    for found, number in ((np.zeros_like(w), 0.0), (np.ones_like(w), 1.0), (np.full_like(w, 3.0), 3.0)):
        assert found.tolist() == [[number, number]] * 4
    traced = bt.function(lambda x: (np.ones_like(w) * x).sum())
    assert traced(np.ones((4, 2))) == 8.0


def test_an_autoencoder_with_tied_weights():
    params, a = made((4, 2))
    x = np.random.default_rng(0).normal(size=(9, 4))
    oracle = bt.Oracle(lambda x: ((x - bt.tanh(x @ a) @ a.T) ** 2).sum(), params=params)
    w = np.array(a.values).reshape(4, 2)
    assert oracle.loss(x) == pytest.approx((((x - np.tanh(x @ w) @ w.T) ** 2).sum(axis=1)).mean())
    grad = bt.grad(lambda w: bt.vmap(lambda x: ((x - bt.tanh(x @ w) @ w.T) ** 2).sum(), reduce="mean")(x))(w)
    np.testing.assert_allclose(np.array(oracle(x)[1]).reshape(4, 2), grad)


def test_what_a_tensor_does_not_have():
    _, w = made((4, 2))
    for name, ours in (("data", "values"), ("grad", "grads")):
        with pytest.raises(AttributeError, match=ours):
            getattr(w, name)
    for name in ("dtype", "item", "backward", "nothing", "_private", "__wrapped__"):
        assert not hasattr(w, name)


def test_elementwise_results_keep_the_shape():
    _, w = made((4, 2))
    numbers = np.array(w.values).reshape(4, 2)
    for call in (
        lambda w: np.sum(w**2, axis=0),
        lambda w: np.max(w * 2, axis=0),
        lambda w: np.mean(w / 2, axis=0),
        lambda w: bt.softmax(w / 2),
        lambda w: (w * 2)[0],
        lambda w: -w,
        lambda w: abs(w),
        lambda w: np.tanh(w),
        lambda w: bt.relu(w),
        lambda w: 2.0 - w,
        lambda w: w + w,
        lambda w: w * np.ones((4, 2)),
        lambda w: np.ones(2) * w,
        lambda w: np.maximum(w, 0),
    ):
        eager, expected = call(w), call(bt.array(numbers)).data
        assert isinstance(eager, bt.Array)
        np.testing.assert_allclose(eager.data, expected)
        np.testing.assert_allclose(bt.function(lambda z, call=call: call(w) + z * 0)(0.0), expected)


@pytest.mark.parametrize(
    "loss", [lambda w, x: (w * w).sum() * x, lambda w, x: bt.tanh(w).sum() + x * x], ids=["squares", "tanh"]
)
def test_branches_join_what_tensors_with_axes_give(loss):
    params, w = made((4, 2))
    with bt.Graph():
        x = bt.Value(2.0)
        sum((loss(w, x) for _ in range(3)), 0.0).backward()
        expected = np.array(params.grads), x.grad
    for build in (lambda f: bt.parallel(f, range(3)), by_branches):
        params.zero_grad()
        with bt.Graph():
            x = bt.Value(2.0)
            found = build(lambda _, x=x: loss(w, x))
            (found[0] + found[1] + found[2]).backward()
            np.testing.assert_allclose(params.grads, expected[0], rtol=1e-14)
            np.testing.assert_allclose(x.grad, expected[1], rtol=1e-14)


def by_branches(f):
    graph, found = bt.current_graph(), []
    for branch in graph.branches(3):
        with branch:
            found.append(f(None))
    graph.join()
    return found


INDICES = {
    "mask": np.array([True, False, True, False]),
    "mask in a list": [False, True, True, True],
    "list": [2, 0, 2],
    "list of one": [3],
    "array": np.array([[0, 1], [3, 3]]),
    "None": None,
    "ellipsis": ...,
    "reversed": slice(None, None, -1),
    "every second": slice(0, None, 2),
    "no row": slice(2, 2),
    "empty list": np.array([], dtype=int),
    "numpy integer": np.int64(-1),
    "list in a tuple": ([1, 0],),
    "Ellipsis in a tuple": (..., 0),
    "None in a tuple": (None, 1),
}


@pytest.mark.parametrize("name", INDICES)
@pytest.mark.parametrize("shape", [(4, 2), (4,)])
def test_indices_are_those_of_arrays(name, shape):
    params, w = made(shape)
    numbers = np.array(w.values).reshape(shape)
    index = INDICES[name]
    expected = numbers[index]
    (bt.array(w[index]) ** 2).sum().backward()
    by_numpy = np.zeros(shape)
    np.add.at(by_numpy, index, 2 * expected)
    np.testing.assert_array_equal(np.array(params.grads).reshape(shape), by_numpy)
    traced = bt.function(lambda x: (bt.array(w[index]) * x).sum())
    np.testing.assert_allclose(traced(2.0), 2 * expected.sum(), rtol=1e-14, atol=1e-300)
    np.testing.assert_allclose(traced.grad(2.0), expected.sum(), rtol=1e-14, atol=1e-300)


def test_a_condition_is_an_index():
    params, w = made((4, 2))
    numbers = np.array(w.values).reshape(4, 2)
    bt.sum(w[w > 0] ** 2).backward()
    np.testing.assert_array_equal(np.array(params.grads).reshape(4, 2), np.where(numbers > 0, 2 * numbers, 0.0))


@pytest.mark.parametrize("index", ["a", 1.5, object(), (0, "a"), {}, [0.5], 4, -5, [4], np.zeros(3, bool)])
def test_other_indices_are_errors(index):
    for shape in ((4, 2), (4,)):
        with pytest.raises((IndexError, TypeError)):
            made(shape)[1][index]


@pytest.mark.parametrize("shape", [(4, 2), (4,)])
def test_operators_of_python(shape):
    _, w = made(shape)
    numbers = np.array(w.values).reshape(shape)
    for found, expected in (
        (+w, numbers),
        (round(w), np.round(numbers)),
        (divmod(w, 0.3)[0], numbers // 0.3),
        (divmod(w, 0.3)[1], numbers % 0.3),
        (divmod(1.0, w)[0], 1.0 // numbers),
        (round(w.reshape(-1), 2), np.round(numbers, 2).reshape(-1)),
        (round(bt.array(numbers), 1), np.round(numbers, 1)),
        (round(bt.array([3, 14])), [3, 14]),
    ):
        found = w.values if found is w else found.data
        np.testing.assert_allclose(np.reshape(found, np.shape(expected)), expected, rtol=1e-14)


@pytest.mark.parametrize("shape", [(4, 2), (4,)])
def test_a_traced_function_takes_a_tensor(shape):
    params, w = made(shape)
    numbers = np.array(w.values).reshape(shape)
    f = bt.function(lambda x: bt.sum(x**2 * 1.0))
    for _ in range(2):
        params.zero_grad()
        loss = f(w)
        loss.backward()
        np.testing.assert_allclose(params.grads, 2 * numbers.ravel())
        np.testing.assert_allclose(float(loss.data), f(numbers))
        np.testing.assert_allclose(f.grad(w), 2 * numbers)
        np.testing.assert_allclose(f.value_and_grad(w)[1], 2 * numbers)
        np.testing.assert_allclose(bt.grad(f)(w), 2 * numbers)


@pytest.mark.parametrize("shape", [(4, 2), (3,)])
def test_a_known_mask_chooses_from_a_tensor(shape):
    params, w = made(shape)
    numbers = np.array(w.values).reshape(shape)
    mask = numbers > 0
    for known in (mask, mask.tolist()):
        for where in (lambda w, known=known: bt.where(known, w, 0.5), lambda w, known=known: bt.where(known, 0.5, w)):
            expected = where(numbers)
            params.zero_grad()
            bt.sum(bt.array(where(w)) ** 2).backward()
            by_arrays = bt.grad(lambda a, where=where: bt.sum(where(a) ** 2))(numbers)
            np.testing.assert_allclose(np.array(params.grads).reshape(shape), by_arrays)
            traced = bt.function(lambda x, where=where: bt.sum(where(w)) * x)
            assert traced(2.0) == pytest.approx(2.0 * expected.sum())
            rows = bt.vmap(lambda x, where=where: bt.sum(where(w)) * x)(np.ones(3))
            np.testing.assert_allclose(rows, [expected.sum()] * 3)
            oracle = bt.Oracle(lambda x, where=where: bt.sum(where(w)) * bt.where(x > 0, x, 0.0), params=params)
            assert oracle(np.array([1.0, -1.0]))[0] == pytest.approx(expected.sum() / 2)


NUMBERS = np.array([-1.5, 0.0, 2.5, np.inf, np.nan, -np.inf])


@pytest.mark.parametrize(
    "name",
    ["isnan", "isfinite", "isinf", "isneginf", "isposinf", "signbit", "trunc", "fix", "degrees", "deg2rad", "rad2deg"]
    + ["radians", "fabs", "nan_to_num", "imag", "real", "conj", "logical_not", "modf"],
)
def test_functions_that_only_arrays_have(name):
    function = getattr(np, name)
    w = bt.Parameters(dtype="float64").tensor(6)
    w.values[:] = NUMBERS
    expected = function(NUMBERS)
    for found in (function(w), function(bt.Vector(NUMBERS)), function(bt.array(NUMBERS))):
        for one, other in zip(*([x] if name != "modf" else x for x in (found, expected))):
            np.testing.assert_array_equal(bt.array(one).data, other)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_functions_that_only_arrays_have_keep_gradients(dtype):
    params = bt.Parameters(dtype=dtype)
    w = params.tensor(2, init=-0.5)
    with bt.Graph(dtype=dtype):
        v, x = bt.Vector([-0.5, 2.0]), bt.Value(-0.5)
        loss = np.fabs(v).sum() + np.copysign(v, -x).sum() + np.degrees(w).sum() + np.fmod(v, x).sum()
        loss.backward()
    assert list(v.grad) == [-1.0 - 1.0 + 1.0, 1.0 + 1.0 + 1.0]
    assert x.grad == 4.0 - 1.0
    assert list(params.grads) == pytest.approx([180 / np.pi] * 2)


@pytest.mark.parametrize(
    "name", ["fmax", "fmin", "fmod", "copysign", "heaviside", "logaddexp2", "divmod", "logical_and"]
)
def test_functions_of_two_operands_that_only_arrays_have(name):
    function = getattr(np, name)
    x, y = np.array([-1.5, 0.0, 2.5]), np.array([1.0, 2.0, -0.5])
    w = bt.Parameters(dtype="float64").tensor(3)
    w.values[:] = x
    expected = np.asarray(function(x, y))
    for left in (w, bt.Vector(x), bt.array(x)):
        for right in (y, bt.Vector(y), bt.array(y)):
            found = function(left, right)
            found = [one.data for one in found] if name == "divmod" else found.data
            np.testing.assert_allclose(np.asarray(found, float), expected, rtol=1e-15)


@pytest.mark.parametrize("axes", [0, 1])
def test_pad_and_astype(axes):
    w = bt.Parameters(dtype="float64").tensor((2, 3)[axes:], init=0.5)
    numbers = np.full((2, 3)[axes:], 0.5)
    np.testing.assert_array_equal(np.pad(w, 1).data, np.pad(numbers, 1))
    np.testing.assert_array_equal(np.imag(w), np.zeros(numbers.shape))
