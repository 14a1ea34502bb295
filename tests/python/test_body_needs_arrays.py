"""Bodies that only Arrays support: every method traces them with Arrays, whatever the arguments are."""

from __future__ import annotations

import numpy as np
import pytest

import burtorch as bt

pytest.importorskip("scipy")
X = np.array([0.5, -1.25, 2.0])
BODIES = {
    "outer": lambda x: np.outer(x, x).sum() + np.max(x),
    "new axis": lambda x: (x[:, None] * x[None, :]).sum() - x[0] ** 3,
    "matrix": lambda x: (np.eye(3)[::-1] @ x) @ x + np.sum(x**3),
    "norm": lambda x: np.linalg.norm(x, axis=0) ** 3,
    "transform": lambda x: (bt.grad(lambda x: (x**3).sum())(x) * x).sum(),
    "loop": lambda x: bt.fori_loop(0, 3, lambda k, c: c * 0.5 + (x * x).sum(), 1.0),
}


def numeric(f, x):
    """The gradient and the Hessian, by `bt.grad` of Arrays of shape (1, 3), which are never traced with Values."""
    g = bt.grad(lambda x: f(x[0]))
    h = bt.hessian(lambda x: f(x[0]))
    return g(x[None])[0], h(x[None]).reshape(len(x), len(x))


@pytest.mark.parametrize("name", BODIES)
def test_every_method_traces_with_arrays(name):
    body = BODIES[name]
    value = float(bt.function(lambda x: body(x[0]))(X[None]))
    gradient, hessian = numeric(body, X)
    v = np.array([1.0, 0.5, -2.0])
    near = {"rtol": 1e-12, "atol": 1e-12}

    def check(found, expected):
        np.testing.assert_allclose(np.asarray(found), expected, **near)

    out = np.zeros(3)

    def bound(f):
        result = f.bind(X.copy(), out)()
        return [result, *out]

    def sparse(method, **options):
        return lambda f: getattr(f, method)(X, **options).toarray()

    rows = np.stack([X, 2 * X])
    twice = [float(bt.function(lambda x: body(x[0]))(row[None])) for row in rows]
    slopes = [numeric(body, row)[0] for row in rows]
    calls = {
        "call": (lambda f: f(X), value),
        "grad": (lambda f: f.grad(X), gradient),
        "value_and_grad": (lambda f: f.value_and_grad(X)[1], gradient),
        "wanted": (lambda f: f.grad(X, wanted=[0, 2]), gradient[[0, 2]]),
        "vjp": (lambda f: f.vjp(X, 1.0)[1], gradient),
        "jvp": (lambda f: f.jvp(X, v)[1], gradient @ v),
        "hvp": (lambda f: f.hvp(X, v), hessian @ v),
        "hessian": (lambda f: f.hessian(X), hessian),
        "jacobian": (lambda f: f.jacobian(X), gradient),
        "sparse_hessian": (sparse("sparse_hessian"), hessian),
        "sparse_hessian, argnums": (sparse("sparse_hessian", argnums=0), hessian),
        "sparse_jacobian": (sparse("sparse_jacobian"), gradient[None]),
        "hessian_sparsity": (lambda f: f.hessian_sparsity(X).toarray() * hessian, hessian),
        "jacobian_sparsity": (lambda f: f.jacobian_sparsity(X).toarray() * gradient, gradient[None]),
        "map": (lambda f: f.map(rows), twice),
        "map_value_and_grad": (lambda f: f.map_value_and_grad(rows)[0], twice),
        "map_value_and_grad, gradients": (lambda f: f.map_value_and_grad(rows)[1], slopes),
        "bind": (bound, [value, *gradient]),
        "bind, value": (lambda f: f.bind(X.copy())(), value),
    }
    for call, expected in calls.values():
        f = bt.function(body)
        check(call(f), expected)
        check(call(f), expected)


def test_numbers_of_bodies_that_need_arrays():
    def body(a, b):
        return bt.grad(lambda t: t**3 * b)(a) * a

    f = bt.function(body)
    assert f(3.0, 4.0) == pytest.approx(324.0)
    assert f.grad(3.0, 4.0) == pytest.approx((324.0, 81.0))
    out = np.zeros(2)
    assert bt.function(body).bind(np.array([3.0, 4.0]), out)() == pytest.approx(324.0)
    assert out.tolist() == pytest.approx([324.0, 81.0])
    expected = np.array([[216.0, 81.0], [81.0, 0.0]])
    np.testing.assert_allclose(bt.function(body).sparse_hessian(3.0, 4.0).toarray(), expected)


def test_sparse_derivatives_by_chosen_arguments():
    """Also in another order, of functions that are traced with Values and with Arrays."""
    x, y = np.array([0.5, -1.25, 2.0]), np.array([1.5, -0.5])
    for f in (lambda x, y: x[0] * x[2] * y[1] + y[0] ** 3, lambda x, y: np.outer(x, y).sum() ** 2 + (y**3).sum()):
        whole = bt.function(f).hessian(x, y)
        if isinstance(whole, tuple):
            whole = np.block([[np.asarray(part) for part in row] for row in whole])
        order = {None: range(5), 0: range(3), 1: (3, 4), (1, 0): (3, 4, 0, 1, 2), (-1,): (3, 4), (0, 1): range(5)}
        for argnums, numbers in order.items():
            at = np.ix_(list(numbers), list(numbers))
            made = bt.function(f)
            found = made.sparse_hessian(x, y, argnums=argnums)
            np.testing.assert_allclose(found.toarray(), whole[at], rtol=1e-13)
            assert found.has_sorted_indices
            again = made.sparse_hessian(2 * x, y, argnums=argnums, out=found)
            assert again is found
            pattern = made.hessian_sparsity(x, y, argnums=argnums)
            assert pattern.indices.tolist() == found.indices.tolist()
            both = bt.function(lambda x, y, f=f: [f(x, y), 2.0 * f(x, y)])
            slope = both.sparse_jacobian(x, y, argnums=argnums).toarray()
            one = np.concatenate(bt.grad(f, argnums=(0, 1))(x, y))[list(numbers)]
            np.testing.assert_allclose(slope, [one, 2 * one], rtol=1e-12)


def test_out_takes_dicts_by_key():
    f = bt.function(lambda p: (p["a"] * p["b"][0]).sum() + p["c"])
    p = {"a": np.arange(4.0).reshape(2, 2), "b": [np.full((2, 2), 3.0)], "c": 2.0}
    out = {"c": np.zeros(()), "b": [np.zeros((2, 2))], "a": np.zeros((2, 2))}
    found = f.grad(p, out=out)
    assert found is out
    assert list(found) == ["c", "b", "a"]
    assert out["a"].tolist() == p["b"][0].tolist()
    assert out["b"][0].tolist() == p["a"].tolist()
    assert out["c"] == 1.0
    with pytest.raises(ValueError, match="containers"):
        f.grad(p, out={"a": out["a"], "b": out["b"]})


def test_hvp_by_chosen_arguments():
    def f(x, y):
        return (x * x * y).sum() + (y**3).sum()

    x, y, v = np.array([1.0, 2.0]), np.array([0.5, -1.0]), np.array([1.0, 10.0])
    for found in (
        bt.function(f).hvp(x, y, v, argnums=1),
        bt.hvp(f, argnums=1)(x, y, v),
        bt.hvp(f, (x, y), (v,), argnums=1),
    ):
        np.testing.assert_allclose(found, 6 * y * v)
    both = bt.function(f).hvp(x, y, v, v, argnums=(1, 0))
    np.testing.assert_allclose(both[0], 6 * y * v + 2 * x * v)
    np.testing.assert_allclose(both[1], 2 * y * v + 2 * x * v)
    with pytest.raises(TypeError, match="a direction for each of argnums"):
        bt.function(f).hvp(x, argnums=(0, 1))
