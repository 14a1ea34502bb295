"""Parameters in functions of arrays: by reference, with gradients, with the float type of the program."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import burtorch as bt


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
