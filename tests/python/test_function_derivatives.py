"""Hessians, directional derivatives, Jacobians and their sparse forms; SciPy's solvers on traced functions."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

import burtorch as bt


def rosenbrock(x):
    return sum(100.0 * (x[i + 1] - x[i] ** 2) ** 2 + (1.0 - x[i]) ** 2 for i in range(len(x) - 1))


OPS = [
    lambda u, v, c, x: u + v,
    lambda u, v, c, x: u - v * c,
    lambda u, v, c, x: (u * v).tanh(),
    lambda u, v, c, x: u.sin() * c,
    lambda u, v, c, x: v.sigmoid() + u * 0.5,
    lambda u, v, c, x: (u * u + v * v + 1.0).log(),
    lambda u, v, c, x: (0.3 * u).exp() / (2.0 + v.cos()),
    lambda u, v, c, x: bt.reduce_mul([u.tanh(), v.cos(), u + 1.0]) * 0.5,
    lambda u, v, c, x: bt.variance([u, v, u * v, x[0]]),
]


def random_body(seed, n):
    """A random smooth function of n numbers, using operators."""
    rng = np.random.default_rng(seed)
    plan = [(int(rng.integers(len(OPS))), *rng.integers(0, n + i, size=2), float(rng.normal())) for i in range(14)]

    def body(x):
        nodes = [x[k] for k in range(n)]
        for kind, a, b, c in plan:
            nodes.append(OPS[kind](nodes[a], nodes[b], c, x))
        return nodes[-1] + 0.1 * nodes[-2] * nodes[-3]

    return body


def test_derivatives_of_random_functions_against_differences():
    for seed in range(200):
        n = 2 + seed % 5
        f = bt.function(random_body(seed, n))
        rng = np.random.default_rng(seed + 1000)
        x, v = rng.normal(size=n) * 0.7, rng.normal(size=n)
        g = f.grad(x)
        h = f.hessian(x)
        scale = max(1.0, np.abs(h).max(), np.abs(g).max())
        step = 1e-5
        columns = np.array([(f.grad(x + step * e) - f.grad(x - step * e)) / (2 * step) for e in np.eye(n)])
        np.testing.assert_allclose(h, columns, atol=3e-6 * scale)
        np.testing.assert_allclose(h, h.T, atol=1e-11 * scale)
        np.testing.assert_allclose(f.hvp(x, v), h @ v, atol=1e-11 * scale)
        value, tangent = f.jvp(x, v)
        assert value == f(x)
        assert tangent == pytest.approx(g @ v, abs=1e-11 * scale)
        np.testing.assert_allclose(f.jacobian(x), g, atol=1e-12 * scale)
        sparse = f.sparse_hessian(x)
        np.testing.assert_allclose(sparse.toarray(), h, atol=1e-11 * scale)
        assert (np.asarray(h)[f.hessian_sparsity(x).toarray() == 0] == 0).all()


def test_second_derivatives_of_functions_that_are_known():
    f = bt.function(lambda x, y: x.sin() * y.exp() + x**3 / y)
    x, y = 0.7, 1.3
    expected = [
        [-np.sin(x) * np.exp(y) + 6 * x / y, np.cos(x) * np.exp(y) - 3 * x**2 / y**2],
        [np.cos(x) * np.exp(y) - 3 * x**2 / y**2, np.sin(x) * np.exp(y) + 2 * x**3 / y**3],
    ]
    np.testing.assert_allclose(f.hessian(x, y), expected, rtol=1e-14)
    assert f.hvp(x, y, 1.0, 0.0) == pytest.approx(tuple(row[0] for row in expected), rel=1e-14)


def test_zero_directions_do_not_poison_jacobians():
    f = bt.function(lambda x: [bt.sqrt(x[0]) + x[1], 2.0 * x[0], x[1] * x[2]])
    x = np.array([0.0, 1.0, 2.0])
    expected = [[np.inf, 1.0, 0.0], [2.0, 0.0, 0.0], [0.0, 2.0, 1.0]]
    np.testing.assert_array_equal(f.jacobian(x), expected)
    np.testing.assert_array_equal(f.sparse_jacobian(x).toarray(), expected)


def test_kinks_take_the_same_derivative_both_ways():
    for body in (lambda x: bt.max(x, 0.0 * x), lambda x: abs(x), lambda x: x.relu(), lambda x: bt.min(x, x)):
        f = bt.function(body)
        for x in (-1.0, 0.0, 1.0):
            assert f.jvp(x, 1.0)[1] == f.grad(x)


def test_sparse_forms():
    def chain(x):
        return [x[i] * x[i + 1] - bt.sin(x[i]) for i in range(len(x) - 1)]

    n = 60
    f, x = bt.function(chain), np.linspace(0.1, 2.0, n)
    jacobian = f.sparse_jacobian(x)
    assert scipy.sparse.issparse(jacobian)
    assert jacobian.nnz == 2 * (n - 1)
    np.testing.assert_allclose(jacobian.toarray(), f.jacobian(x), rtol=1e-13)
    assert f.jacobian_sparsity(x).nnz == jacobian.nnz
    r = bt.function(rosenbrock)
    hessian = r.sparse_hessian(x)
    assert hessian.nnz == 3 * n - 2
    np.testing.assert_allclose(hessian.toarray(), r.hessian(x), rtol=1e-12)


def test_weights_and_directions_in_shape():
    f = bt.function(lambda p, x: {"a": p[0] * x, "b": p[1] + x})
    value, (dp, dx) = f.vjp([2.0, 3.0], 5.0, {"a": 1.0, "b": 10.0})
    assert value == {"a": 10.0, "b": 8.0}
    assert (dp, dx) == ([5.0, 10.0], 12.0)
    value, tangent = f.jvp([2.0, 3.0], 5.0, [1.0, 0.0], 2.0)
    assert tangent == {"a": 9.0, "b": 2.0}
    for bad in (lambda: f.vjp([2.0, 3.0], 5.0, [1.0]), lambda: f.jvp([1.0, 2.0], 3.0, [1.0], 2.0)):
        with pytest.raises(ValueError, match="numbers"):
            bad()
    with pytest.raises(TypeError, match="as many directions"):
        f.jvp([1.0, 2.0], 3.0, 4.0)


@pytest.mark.parametrize("n", [2, 100])
def test_scipy_minimises_rosenbrock(n):
    f = bt.function(rosenbrock)
    x0 = np.tile([-1.2, 1.0], n // 2)
    for method, more in (("BFGS", {}), ("Newton-CG", {"hessp": f.hvp}), ("trust-exact", {"hess": f.hessian})):
        found = scipy.optimize.minimize(f.value_and_grad, x0, jac=True, method=method, tol=1e-8, **more)
        # From this start the chain of 100 converges to a second minimum near -1 in the first coordinate.
        assert np.abs(f.grad(found.x)).max() < 1e-4
        assert found.fun < 1e-8 or n > 2
    assert f.stats()["traced"] == 1


def test_scipy_solves_and_fits():
    system = bt.function(lambda x: [x[0] + 0.5 * (x[0] - x[1]) ** 3 - 1.0, 0.5 * (x[1] - x[0]) ** 3 + x[1]])
    found = scipy.optimize.root(system, np.zeros(2), jac=system.jacobian)
    np.testing.assert_allclose(found.x, [0.8411639, 0.1588361], atol=1e-6)
    t = np.linspace(0.0, 3.0, 20)
    data = 2.0 * np.exp(-1.3 * t)
    residuals = bt.function(lambda p: [p[0] * (p[1] * tk).exp() - yk for tk, yk in zip(t, data)])
    fitted = scipy.optimize.least_squares(residuals, [1.0, -1.0], jac=residuals.jacobian)
    np.testing.assert_allclose(fitted.x, [2.0, -1.3], rtol=1e-8)


def test_the_weights_of_vjp_may_be_integers():
    f = bt.function(lambda x: [x[0] * x[1], x[1] ** 2])
    for dtype in (np.int8, np.int64, np.uint8, bool, np.float32):
        value, gradient = f.vjp(np.array([2.0, 3.0]), np.ones(2, dtype))
        assert (list(value), list(gradient)) == ([6.0, 9.0], [3.0, 8.0])
    with pytest.raises((TypeError, ValueError)):
        f.vjp(np.array([2.0, 3.0]), np.ones(2, complex))
