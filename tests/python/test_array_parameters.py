"""Parameters in functions of arrays: by reference, with gradients, with the float type of the program."""

from __future__ import annotations

import functools
import itertools
import operator

import numpy as np
import pytest

import burtorch as bt
from burtorch._core import Tensor


def test_parameters_are_read_at_every_call():
    params = bt.Parameters(dtype="float64")
    w, b = params.tensor((3, 2), init=0.5), params.tensor(2, init=1.0)
    f = bt.function(lambda x: ((x @ w + b) ** 2).sum())
    x = np.arange(12.0).reshape(4, 3)
    values = np.asarray(params.values)

    def reference():
        wv, bv = values[:6].reshape(3, 2), values[6:]
        r = x @ wv + bv
        return (r**2).sum(), np.concatenate([(2 * x.T @ r).ravel(), 2 * r.sum(0)]), 2 * r @ wv.T

    for step in range(3):
        value, flat, by_x = reference()
        assert f(x) == pytest.approx(value, rel=1e-14)
        found, gradient = f.value_and_param_grad(x)
        assert found == pytest.approx(value, rel=1e-14)
        np.testing.assert_allclose(np.asarray(gradient), flat, rtol=1e-13)
        np.testing.assert_allclose(np.asarray(params.grads), flat, rtol=1e-13)
        np.testing.assert_allclose(f.grad(x), by_x, rtol=1e-13)
        values[:] = values * 0.9 + 0.01 * step
    assert f.stats()["traced"] == 1
    # With a tensor as an argument, and through the optimiser.
    np.testing.assert_allclose(
        bt.grad(lambda w, x: ((x @ w) ** 2).sum())(w, x), 2 * x.T @ (x @ values[:6].reshape(3, 2))
    )
    bt.optim.SGD(params, lr=1e-3).step()
    assert f(x) < reference()[0] * 1.0001
    w.freeze()
    before = np.asarray(params.grads).copy()
    before[6:] = 0.0
    f.value_and_param_grad(x)
    assert np.asarray(params.grads)[:6].tolist() == before[:6].tolist()
    with pytest.raises(bt.TraceError, match="reads Parameters"):
        bt.function(lambda x: x.sum()).value_and_param_grad(x)


def test_parameters_decide_the_float_type():
    params = bt.Parameters()
    w = params.tensor(3, init=0.1)
    runs = []

    def f(x):
        runs.append(x.dtype)
        return (w * x).sum()

    x = np.ones((2, 3))
    assert bt.function(f)(x) == pytest.approx(0.6, abs=1e-6)
    assert runs == ["float64", "float32"]
    assert bt.grad(f)(x).dtype == np.float64  # that of its argument
    assert bt.grad(f)(x.astype(np.float32)).dtype == np.float32
    other = bt.Parameters(dtype="float64").tensor(3)
    with pytest.raises(TypeError, match="float32 reads Parameters of float64"):
        bt.function(lambda x: (w * x).sum() + (other * x).sum())(x)
    with pytest.raises(TypeError, match="float64 reads Parameters of float32; give"):
        bt.function(f, dtype="float64")(x)
    half = bt.Parameters(dtype="float16").tensor(3)
    with pytest.raises(TypeError, match="float16"):
        bt.function(lambda x: (half * x).sum())(x)
    assert bt.function(lambda x: x / 3.0, dtype="float32")(x).dtype == np.float32


def test_functions_of_parameters_nest():
    params = bt.Parameters(dtype="float64")
    w = params.tensor((2, 2), init=0.5)

    def loss(x):
        return (bt.tanh(x @ w) ** 2).sum()

    x = np.array([[1.0, 2.0], [3.0, -1.0]])
    _value, gradient = bt.function(loss).value_and_param_grad(x)
    f = bt.function(lambda x: bt.function(loss).value_and_param_grad(x)[1].sum())
    epsilon, total = 1e-6, np.asarray(gradient).sum()
    assert f(x) == pytest.approx(total, rel=1e-12)
    along = np.ones_like(x)
    numeric = (f(x + epsilon * along) - f(x - epsilon * along)) / (2 * epsilon)
    assert f.grad(x).sum() == pytest.approx(numeric, rel=1e-6)


USES = {
    "product": lambda x, p: x * p,
    "reflected": lambda x, p: p - x,
    "power": lambda x, p: (1.0 + x * x) ** p + p**x,
    "function": lambda x, p: bt.sin(p) * x + bt.hypot(x, p),
    "alone": lambda x, p: x + p * p,
    "negative": lambda x, p: x * -p + abs(p),
    "where": lambda x, p: np.where(x > p, x, p),
    "array": lambda x, p: np.full(2, 1.5) * p * x + p * np.ones(2),
    "functions of NumPy": lambda x, p: np.exp(p) * x - np.arctan2(p, np.ones(2)),
    "branch": lambda x, p: x * 2.0 if p > 2.5 else x * 3.0,
    "numpy": lambda x, p: np.multiply(p, x) + np.maximum(x, p),
    "loop": lambda x, p: bt.fori_loop(0, 3, lambda k, c: c * p + x, x),
    "choice": lambda x, p: bt.cond(x.sum() > p, lambda: x * p, lambda: x + p),
}
TABLE = np.arange(6.0).reshape(3, 2) / 4


def runs():
    """Ways to run a body of one array or row."""
    params = bt.Parameters(dtype="float64")
    v = params.tensor(2, init=0.3)

    def oracle(f):
        made = bt.Oracle(lambda row: (f(row) @ v) ** 2, params=params)
        return lambda: [made(TABLE, None)[0], *params.grads]

    return {
        "function": lambda f: lambda: bt.function(lambda x: f(x).sum())(TABLE),
        "kept function": lambda f: functools.partial(bt.function(lambda x: f(x).sum()), TABLE),
        "grad": lambda f: functools.partial(bt.grad(lambda x: (f(x) ** 2).sum()), TABLE),
        "hessian": lambda f: functools.partial(bt.hessian(lambda x: (f(x) ** 2).sum()), TABLE),
        "jvp": lambda f: functools.partial(bt.jvp(f), TABLE, TABLE),
        "vmap": lambda f: functools.partial(bt.vmap(lambda row: f(row).sum()), TABLE),
        "totals": lambda f: functools.partial(bt.vmap(lambda row: f(row).sum(), reduce="sum"), TABLE),
        "nested": lambda f: functools.partial(
            bt.vmap(bt.grad(lambda row: bt.grad(lambda r: (f(r) ** 2).sum())(row).sum())), TABLE
        ),
        "scan": lambda f: functools.partial(
            bt.function(lambda x: bt.scan(lambda c, row: (c + f(row).sum(), c), 0.0, x)), TABLE
        ),
        "array of a graph": lambda f: lambda: f(bt.array(TABLE)).sum().data,
        "gradient at an array of a graph": lambda f: (
            lambda: bt.grad(lambda x: (f(x) ** 2).sum())(bt.array(TABLE)).data
        ),
        "oracle": oracle,
    }  # fmt: skip


def flat(result):
    return [x for part in result for x in flat(part)] if isinstance(result, tuple) else np.ravel(result).tolist()


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("way", runs())
def test_a_parameter_is_read_at_every_call(way, use):
    p = bt.parameter(2.0)
    run = runs()[way](lambda x: USES[use](x, p))
    for number in (2.0, 3.0, -1.5, 2.0):
        p.value = number
        expected = runs()[way](lambda x: USES[use](x, number))()  # noqa: B023
        assert flat(run()) == pytest.approx(flat(expected), rel=1e-12, nan_ok=True)


def test_a_parameter_costs_no_trace_and_has_no_numbers_in_one():
    p = bt.parameter(2.0)
    f = bt.grad(lambda x: (x * p).sum())
    for k in range(5):
        p.value = float(k)
        assert f(TABLE).tolist() == np.full((3, 2), k).tolist()
    assert f.stats()["traced"] == 1
    for read in (lambda x: x * p.value, lambda x: x * float(p), lambda x: x * np.asarray(p, float)):
        with pytest.raises(TypeError):
            bt.grad(lambda x: read(x).sum())(TABLE)  # noqa: B023
    single = bt.function(lambda x: x * p, dtype="float32")
    assert single(TABLE.astype("float32")).dtype == np.float32


SHAPES = [(2, 3), (3, 2), (2, 1), (1, 3), (6,), (1, 1), (1,), (3, 1, 2)]


OPERATORS = {
    operator.add: bt.add, operator.sub: bt.sub, operator.mul: bt.mul, operator.truediv: bt.div, operator.pow: bt.pow,
    operator.floordiv: bt.floor_divide, operator.mod: bt.remainder,
}  # fmt: skip


@pytest.mark.parametrize("operate", OPERATORS, ids=lambda operate: operate.__name__)
def test_tensors_with_axes_broadcast_as_arrays_do(operate):
    params = bt.Parameters(dtype="float64", seed=1)
    tensors = [params.tensor(shape) for shape in SHAPES]
    params.values[:] = np.random.default_rng(0).uniform(0.5, 2.0, params.n)
    for a in tensors:
        for b in tensors:
            x, y = (np.asarray(t.values).reshape(t.shape) for t in (a, b))
            for f in (operate, OPERATORS[operate]):
                is_of_arrays = max(a.ndim, b.ndim) > 1
                try:
                    expected = operate(x, y)
                except ValueError:
                    expected = None
                if expected is None or (not is_of_arrays and a.shape != b.shape):
                    with pytest.raises(ValueError, match=r"broadcast|expects operands of equal length"):
                        f(a, b)
                    continue
                found = f(a, b)
                assert isinstance(found, bt.Array if is_of_arrays else bt.Vector)
                assert np.allclose(found.data, expected, rtol=1e-12)
            try:
                expected = operate(x, y)
            except ValueError:
                continue
            assert np.allclose(operate(bt.array(a), b).data, expected, rtol=1e-12)
            traced = bt.function(lambda c, a=a, b=b: operate(a, b) * c)
            assert np.allclose(traced(1.0), expected, rtol=1e-12)


def test_products_of_matrices_beside_tensors_are_arrays():
    params = bt.Parameters(dtype="float64", seed=1)
    w, m, k = params.tensor(3, init=0.5), params.tensor((2, 3), init=1.0), params.tensor((3, 2), init=2.0)
    params.values[:] = np.arange(1.0, params.n + 1.0)
    of = {id(t): np.asarray(t.values).reshape(t.shape) for t in (w, m, k)}
    x, y = np.arange(6.0).reshape(2, 3), np.arange(6.0).reshape(3, 2)
    for left, right in [(x, w), (w, y), (x, k), (y, m), (m, y), (k, x), (m, k), (k, m), (w, k)]:
        found = left @ right
        expected = of.get(id(left), left) @ of.get(id(right), right)
        assert isinstance(found, bt.Array)
        assert np.array_equal(found.data, expected)
        params.zero_grad()
        (found * found).sum().backward()
        assert np.any(params.grads)
        assert np.array_equal(bt.function(lambda c, left=left, right=right: (left @ right) * c)(1.0), expected)
    assert isinstance(m @ bt.Vector([1.0, 2.0, 3.0]), bt.Vector)


def test_indices_of_tensors_are_those_of_numpy():
    params = bt.Parameters(dtype="float64", seed=1)
    for shape in ((4, 3), (2, 3, 2)):
        w = params.tensor(shape)
        w.values[:] = np.arange(float(np.prod(shape)))
        numbers = np.asarray(w.values).reshape(shape)
        every = [0, -1, slice(None), slice(0, 2), slice(1, None), [0, 1], None, ...]
        for index in [
            *itertools.product(every, repeat=2),
            *itertools.product(every[:6], repeat=3),
            (1,),
            (slice(1, 2),),
        ]:
            try:
                expected = numbers[index]
            except IndexError:
                continue
            found = w[index]
            if isinstance(found, Tensor):
                assert found.shape == expected.shape
                assert list(found.values) == expected.ravel().tolist()
            else:
                assert np.array_equal(found.data, expected), index
            traced = bt.function(lambda c, w=w, index=index: w[index] * c)(1.0)
            assert np.array_equal(traced, expected), index


def test_functions_along_an_axis_keep_the_shape_of_tensors():
    params = bt.Parameters(dtype="float64", seed=1)
    w = params.tensor((2, 3))
    params.values[:] = np.arange(6.0)
    x = np.arange(6.0).reshape(2, 3)
    soft = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    assert np.allclose(bt.softmax(w).data, soft)
    assert np.allclose(bt.log_softmax(w).data, np.log(soft))
    assert np.allclose(bt.softmax(w, axis=0).data, (np.exp(x) / np.exp(x).sum(0)))
    assert np.array_equal(bt.reduce_sum(w, axis=1).data, x.sum(1))
    assert np.allclose(bt.logsumexp(w, axis=1).data, np.log(np.exp(x).sum(1)))
    # Of all numbers, Values as before.
    assert bt.reduce_sum(w).data == x.sum()
    assert bt.reduce_max(w * w).data == 25.0


READS = {
    "call": lambda u, t: u(t),
    "grad": lambda u, t: bt.grad(u)(t),
    "value_and_grad": lambda u, t: bt.value_and_grad(u)(t)[1],
    "jvp": lambda u, t: bt.jvp(u, (t,), (1.0,))[1],
    "vjp": lambda u, t: bt.vjp(u, t)[1](1.0)[0],
    "hessian": lambda u, t: bt.hessian(u)(t),
    "jacobian": lambda u, t: bt.jacobian(u)(t),
    "hvp": lambda u, t: bt.hvp(u, (t,), (1.0,)),
    "vmap": lambda u, t: bt.vmap(u)(bt.stack([t, 2.0 * t])).sum(),
    "sum of vmap": lambda u, t: bt.vmap(u, reduce="sum")(bt.stack([t, 2.0 * t])),
    "vmap of grad": lambda u, t: bt.vmap(bt.grad(u))(bt.stack([t, 2.0 * t])).sum(),
    "scan": lambda u, t: bt.scan(lambda c, s: (c + u(s), None), 0.0, bt.stack([t, 2.0 * t]))[0],
    "cond": lambda u, t: bt.cond(t > 0, u, lambda s: s, t),
    "checkpoint": lambda u, t: bt.checkpoint(u)(t),
    "function": lambda u, t: bt.function(u)(t),
}


@pytest.mark.parametrize("second", READS)
@pytest.mark.parametrize("first", READS)
def test_a_tensor_may_be_read_within_transforms_and_beside_them(first, second):
    params = bt.Parameters(dtype="float64")
    w, b = params.tensor(2), params.tensor(1)
    params.values[:] = [0.7, 1.3, 0.2]

    def made(w, b):
        def u(t):
            return bt.sin(w[0] * t) + w[1] * t**3 * b[0]

        return lambda t: READS[first](u, t) + READS[second](u, 2.0 * t) + 0.1 * (w * w).sum()

    f = bt.function(made(w, b))
    value, gradient = f.value_and_param_grad(0.3)
    expected = bt.value_and_grad(lambda w, b: made(w, b)(0.3), argnums=(0, 1))(np.array([0.7, 1.3]), np.array([0.2]))
    np.testing.assert_allclose(value, expected[0], rtol=1e-13)
    np.testing.assert_allclose(list(gradient), np.concatenate(expected[1]), rtol=1e-13)
    oracle = bt.Oracle(lambda x: made(w, b)(x[0]), params=params)
    assert oracle(np.array([[0.3]]))[0] == pytest.approx(value, rel=1e-13)
    np.testing.assert_allclose(params.grads, np.concatenate(expected[1]), rtol=1e-13)
