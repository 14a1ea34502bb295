"""Derivatives by a tangent or an adjoint where it is 0: those of any other number there, as products are linear."""

from __future__ import annotations

import pytest

import burtorch as bt

np = pytest.importorskip("numpy")

X = np.array([0.5, -0.25, 0.75])
TANGENTS = {
    "0": np.zeros(3),
    "-0": -np.zeros(3),
    "some 0": np.array([0.0, 1.5, -0.0]),
    "none 0": np.array([1.0, -0.5, 2.0]),
}
M = np.cos(np.arange(9.0)).reshape(3, 3)


def scanned(x):
    return bt.scan(lambda c, a: (np.tanh(c * a), c * c), x[0], x)[1]


FUNCTIONS = {
    "sin": np.sin,
    "exp": np.exp,
    "sqrt": lambda x: np.sqrt(1 + x * x),
    "square": lambda x: x**2,
    "product": lambda x: x * x[::-1],
    "quotient": lambda x: x / (2 + x[::-1]),
    "linear": lambda x: M @ x,
    "power": lambda x: (2 + x) ** x,
    "sum": np.sum,
    "cumsum": np.cumsum,
    "cumprod": np.cumprod,
    "max": np.max,
    "prod": np.prod,
    "logsumexp": lambda x: bt.logsumexp(x, axis=0),
    "softmax": bt.softmax,
    "norm": lambda x: np.linalg.norm(x),
    "var": np.var,
    "sort": np.sort,
    "index": lambda x: x[[0, 2, 0]] ** 2,
    "where": lambda x: np.where(x > 0, x * x, np.sin(x)),
    "maximum": lambda x: np.maximum(x**2, x),
    "scan": scanned,
    "solve": lambda x: np.linalg.solve(np.diag(x) + 2 * np.eye(3) + M, x),
    "det": lambda x: np.linalg.det(np.outer(x, x) + M),
    "loop": lambda x: bt.fori_loop(0, 3, lambda _, y: np.sin(y) + y * x, x),
    "rows": lambda x: bt.vmap(lambda a: np.sum(np.sin(a * x)))(x),
    "total": lambda x: bt.vmap(lambda a: np.sin(a * x), reduce="sum")(x),
    "mean": lambda x: bt.vmap(lambda a, x: np.sum(a * x) ** 2, in_axes=(0, None), reduce="mean")(M, x),
    "choice": lambda x: bt.cond(x[0] > 0, np.cos, np.sin, x),
    "checkpoint": lambda x: bt.checkpoint(lambda x: np.sin(x) * x)(x),
    "within": lambda x: bt.jvp(np.sin, (x,), (x * 0.0,))[1] + x,
}


@pytest.mark.parametrize("tangent", TANGENTS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_by_a_tangent(name, tangent):
    f, t = FUNCTIONS[name], TANGENTS[tangent]
    expected = bt.jacobian(f)(X)
    for found in (
        bt.jacobian(lambda t: bt.jvp(f, (X,), (t,))[1])(t),
        bt.vmap(lambda s: bt.jvp(lambda t: bt.jvp(f, (X,), (t,))[1], (t,), (s,))[1])(np.eye(3)).T,
        bt.vmap(bt.jacobian(lambda t: bt.jvp(f, (X,), (t,))[1]))(np.stack([t, t]))[1],
    ):
        np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("tangent", TANGENTS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_by_the_tangent_of_a_gradient(name, tangent):
    f, t = FUNCTIONS[name], TANGENTS[tangent]

    def g(x):
        return np.sum(np.sin(f(x) + 0.3))

    expected = bt.hessian(g)(X)
    np.testing.assert_allclose(bt.jacobian(lambda t: bt.hvp(g, (X,), (t,)))(t), expected, rtol=1e-11, atol=1e-13)
    found = bt.jacobian(lambda t: bt.jvp(bt.grad(g), (X,), (t,))[1])(t)
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-13)
    # By the point as well, along which the tangent moves.
    h = 1e-5
    along = lambda x: bt.jvp(bt.grad(g), (x,), (x * t,))[1]  # noqa: E731
    found = bt.jacobian(along)(X)
    differences = [(along(X + h * e) - along(X - h * e)) / (2 * h) for e in np.eye(3)]
    np.testing.assert_allclose(found, np.stack(differences, -1), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("tangent", TANGENTS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_by_an_adjoint(name, tangent):
    f = FUNCTIONS[name]
    expected = bt.jacobian(f)(X)
    shape = expected.shape[:-1]
    t = TANGENTS[tangent] if shape else TANGENTS[tangent][0]
    found = bt.jacobian(lambda t: bt.vjp(f, X)[1](t)[0])(t)
    np.testing.assert_allclose(found.reshape(3, -1).T.reshape(expected.shape), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("tangent", TANGENTS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_by_a_tangent_of_a_graph(name, tangent):
    f, t = FUNCTIONS[name], TANGENTS[tangent]
    expected = bt.jacobian(f)(X)
    weights = np.cos(np.arange(float(expected[..., 0].size))).reshape(expected.shape[:-1])
    x, v = bt.array(X), bt.array(t)
    np.sum(bt.jvp(f, (x,), (v,))[1] * weights).backward()
    along = np.tensordot(weights, expected, weights.ndim)
    np.testing.assert_allclose(v.grad, along, rtol=1e-12, atol=1e-14)
    x, v = bt.array(X), bt.array(t)
    np.sum(bt.hvp(lambda x: np.sum(np.sin(f(x) + 0.3)), (x,), (v,)) * np.arange(1.0, 4.0)).backward()
    hessian = bt.hessian(lambda x: np.sum(np.sin(f(x) + 0.3)))(X)
    np.testing.assert_allclose(v.grad, hessian @ np.arange(1.0, 4.0), rtol=1e-11, atol=1e-13)


def test_a_tangent_of_0_meets_no_infinite_partial():
    x = np.array([0.0, 4.0])
    assert bt.jvp(np.sqrt, (x,), (np.array([0.0, 1.0]),))[1].tolist() == [0.0, 0.25]
    assert bt.jvp(bt.grad(lambda x: np.sqrt(x).sum()), (x,), (np.array([0.0, 1.0]),))[1].tolist() == [0.0, -1 / 32]
    # The derivative by the point leaves it alone, too.
    assert bt.grad(lambda x: bt.jvp(np.sqrt, (x,), (np.array([0.0, 1.0]),))[1].sum())(x).tolist() == [0.0, -1 / 32]


def test_the_third_derivative_of_a_norm_along_its_point():
    x = np.array([1.0, 0.0])
    found = bt.jacobian(lambda x: bt.hvp(np.linalg.norm, (x,), (np.array([1.0, 0.0]),)))(x)
    # The Hessian is homogeneous of degree -1.
    np.testing.assert_allclose(found, -bt.hessian(np.linalg.norm)(x), atol=1e-15)


def moved(x, t):
    """A tangent that is 0 at X but for the step along it."""
    return bt.jvp(lambda y: np.sin(y) * y, (x,), (t,))[1] + t


@pytest.mark.parametrize("steps", [1, 3])
def test_within_loops(steps):
    factor = np.cos(X) * X + np.sin(X) + 1
    for f in (
        lambda x: bt.fori_loop(0, steps, lambda _, t: moved(x, t), x - X),
        lambda x: bt.scan(lambda t, _: (moved(x, t), t), x - X, length=steps)[0],
        lambda x: bt.vmap(lambda a, b: bt.fori_loop(0, steps, lambda _, t: moved(a, t), b))(x, x - X),
    ):
        expected = np.diag(factor**steps)
        np.testing.assert_allclose(bt.jacobian(f)(X), expected, rtol=1e-12)
        along = bt.vmap(lambda e, f=f: bt.jvp(f, (X,), (e,))[1])(np.eye(3))
        np.testing.assert_allclose(along.T, expected, rtol=1e-12)
        x = bt.array(X)
        np.sum(f(x)).backward()
        np.testing.assert_allclose(x.grad, factor**steps, rtol=1e-12)


# Functions with a partial of 0 at a point where they choose none of what moves: nothing moves there.
MASKS = {
    "relu": (lambda x: bt.relu(x), [-1.0, 0.0]),
    "max": (lambda x: bt.max(x, 0.0), [-1.0]),
    "max on the right": (lambda x: bt.max(0.0, x), [-1.0]),
    "min": (lambda x: bt.min(x, 0.0), [1.0]),
    "abs": (lambda x: abs(x), [0.0]),
    "clamp": (lambda x: bt.clamp(x, 0.0, 1.0), [-1.0]),
    "floor": (lambda x: bt.floor(x), [0.5, -0.0]),
    "ceil": (lambda x: bt.ceil(x), [-0.5]),
    "round": (lambda x: bt.round(x), [0.25]),
    "sign": (lambda x: bt.sign(x), [0.0]),
    "floor quotient": (lambda x: x // 2.0, [0.5]),
    "where": (lambda x: bt.where(x > 0.0, x, 0.0), [-1.0, 0.0]),
}
STEEP = {
    "sqrt": bt.sqrt,
    "cbrt": lambda y: bt.cbrt(y),
    "log": lambda y: bt.log(y * y),
    "power": lambda y: y**0.5,
    "inv": lambda y: 1.0 / y,
    "acos": lambda y: bt.acos(y + 1.0),
    "product": lambda y: y * float("inf"),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("steep", STEEP)
@pytest.mark.parametrize("mask", MASKS)
def test_forward_mode_agrees_with_reverse_mode_where_nothing_is_chosen(mask, steep):
    choose, points = MASKS[mask]

    def f(x):
        return STEEP[steep](choose(x))

    for x in points:
        traced = bt.function(f)
        assert traced.grad(x) == 0.0
        assert bt.grad(f)(x) == 0.0
        assert traced.jvp(x, 1.0)[1] == 0.0
        assert bt.jvp(f, (x,), (1.0,))[1] == 0.0
        assert bt.jacobian(f)(x) == 0.0
        rows = np.full((3, 2), x)
        assert not bt.jvp(f, (rows,), (np.ones((3, 2)),))[1].any()
        assert not bt.jacobian(f)(rows).any()
        assert not bt.vmap(bt.jacobian(f))(rows[:, 0]).any()
        # Along a line through other functions, beside a part that moves.
        line = bt.function(lambda t, x=x: f(x + 0.0 * t) + 2.0 * t)
        assert (line.grad(0.0), line.jvp(0.0, 1.0)[1]) == (2.0, 2.0)
        many = bt.function(lambda v: [f(v[k]) + v[0] for k in range(12)])
        jacobian = np.zeros((12, 12))
        jacobian[:, 0] = 1.0
        assert np.array_equal(many.jacobian(np.full(12, x)), jacobian)


def test_a_tangent_of_zero_contributes_nothing_to_any_op():
    for f, x in [(bt.sqrt, 0.0), (bt.log, 0.0), (lambda x: 1.0 / x, 0.0), (lambda x: x**0.5, 0.0)]:
        traced = bt.function(lambda a, b, f=f: f(a) + b * b)
        assert traced.jvp(x, 3.0, 0.0, 1.0)[1] == 6.0
        assert bt.jvp(traced, (x, 3.0), (0.0, 1.0))[1] == 6.0
        assert traced.jvp(x, 3.0, 1.0, 0.0)[1] in (float("inf"), -float("inf"))
