"""Transforms: derivatives of any order by any nesting, without perturbation confusion."""

from __future__ import annotations

import collections
import itertools
import math

import numpy as np
import pytest

import burtorch as bt

ORDER = 4


class Series:
    """A truncated power series: coefficients of h^0 to h^ORDER, by the definition of each function."""

    def __init__(self, coefficients):
        self.c = [*coefficients, *[0.0] * (ORDER + 1)][: ORDER + 1]

    def __add__(self, other):
        other = other if isinstance(other, Series) else Series([other])
        return Series([x + y for x, y in zip(self.c, other.c)])

    def __sub__(self, other):
        return self + other * -1.0

    def __mul__(self, other):
        other = other if isinstance(other, Series) else Series([other])
        return Series([sum(self.c[k] * other.c[n - k] for k in range(n + 1)) for n in range(ORDER + 1)])

    def of(self, taylor):
        """A function with these coefficients around c[0]."""
        away, power, total = Series([0.0, *self.c[1:]]), Series([1.0]), Series([])
        for k in range(ORDER + 1):
            total, power = total + power * taylor(self.c[0], k), power * away
        return total

    def exp(self):
        return self.of(lambda a, k: math.exp(a) / math.factorial(k))

    def sin(self):
        return self.of(lambda a, k: math.sin(a + k * math.pi / 2) / math.factorial(k))

    def log(self):
        return self.of(lambda a, k: math.log(a) if k == 0 else -((-1 / a) ** k) / k)

    def inverse(self):
        return self.of(lambda a, k: (-1 / a) ** k / a)

    def sqrt(self):
        return self.of(lambda a, k: math.prod(0.5 - m for m in range(k)) / math.factorial(k) * a ** (0.5 - k))


UNARY = {
    "sin": (bt.sin, Series.sin),
    "exp": (bt.exp, Series.exp),
    "tanh": (bt.tanh, lambda x: ((x * 2.0).exp() + 1.0).inverse() * -2.0 + 1.0),
    "log": (lambda x: bt.log(x * x + 1.5), lambda x: (x * x + 1.5).log()),
    "sqrt": (lambda x: bt.sqrt(x * x + 0.5), lambda x: (x * x + 0.5).sqrt()),
    "sigmoid": (bt.sigmoid, lambda x: ((x * -1.0).exp() + 1.0).inverse()),
    "cube": (lambda x: x**3, lambda x: x * x * x),
    "inverse": (lambda x: 1.0 / (x * x + 1.0), lambda x: (x * x + 1.0).inverse()),
}


def derivative_at(theirs, x, order):
    return theirs(Series([x, 1.0])).c[order] * math.factorial(order)


# Each computes the derivative of a function of one number.
DERIVATIVES = {
    "grad": lambda f: bt.grad(f),
    "value_and_grad": lambda f: lambda x: bt.value_and_grad(f)(x)[1],
    "jvp": lambda f: lambda x: bt.jvp(f, (x,), (1.0,))[1],
    "jvp of a function": lambda f: lambda x: bt.jvp(f)(x, 1.0)[1],
    "vjp": lambda f: lambda x: bt.vjp(f)(x, 1.0)[1],
    "pull": lambda f: lambda x: bt.vjp(f, x)[1](1.0)[0],
    "jacobian": lambda f: bt.jacobian(f),
    "function": lambda f: bt.function(f).grad,
    "aux": lambda f: lambda x: bt.grad(lambda y: (f(y), {"y": y}), has_aux=True)(x)[0],
    "dict": lambda f: lambda x: bt.grad(lambda d: f(d["x"]) + d["y"][0])({"x": x, "y": [x]})["x"],
    "argnums": lambda f: lambda x: bt.grad(lambda y, z: f(z) * y, argnums=(0, 1))(1.0, x)[1],
}


def expression(rng, depth=3):
    """A function of x, for burtorch and for Series, and its text."""
    if depth == 0:
        c = round(float(rng.uniform(0.3, 1.7)), 3)
        return rng.choice([(lambda x: x, lambda x: x, "x"), (lambda x: x * c, lambda x: x * c, f"{c}x")], axis=0)
    if rng.random() < 0.5:
        name = str(rng.choice(list(UNARY)))
        inner = expression(rng, depth - 1)
        ours, theirs = UNARY[name]
        return lambda x: ours(inner[0](x)), lambda x: theirs(inner[1](x)), f"{name}({inner[2]})"
    left, right = expression(rng, depth - 1), expression(rng, depth - 1)
    if rng.random() < 0.5:
        return lambda x: left[0](x) * right[0](x), lambda x: left[1](x) * right[1](x), f"({left[2]} * {right[2]})"
    return lambda x: left[0](x) - right[0](x), lambda x: left[1](x) - right[1](x), f"({left[2]} - {right[2]})"


def close(found, expected, tolerance=1e-9):
    scale = max(1.0, abs(float(expected)))
    assert isinstance(found, float)
    assert abs(found - float(expected)) <= tolerance * scale, (found, float(expected))


@pytest.mark.parametrize("order", [1, 2, 3, 4])
@pytest.mark.parametrize("seed", range(6))
def test_derivatives_by_random_nesting(seed, order):
    """To order 4, against Taylor series."""
    rng = np.random.default_rng(100 * order + seed)
    for _ in range(4):
        ours, theirs, _ = expression(rng)
        names = [str(name) for name in rng.choice(list(DERIVATIVES), size=order)]
        derivative = ours
        for name in names:
            derivative = DERIVATIVES[name](derivative)
        x = float(rng.uniform(-1.0, 1.0))
        expected = derivative_at(theirs, x, order)
        close(bt.vmap(derivative)(np.array([x])).item(), expected)
        close(derivative(x), expected)


@pytest.mark.parametrize("names", [*itertools.product(["grad", "jvp", "vjp", "jacobian"], repeat=3)], ids="-".join)
def test_every_nesting_of_three(names):
    """Forward and reverse mode in any order, also for captured numbers."""

    def derivative(x):
        return bt.sin(x) * x**4

    for name in names:
        derivative = DERIVATIVES[name](derivative)
    close(derivative(0.7), derivative_at(lambda x: x.sin() * x * x * x * x, 0.7, 3))


def test_no_perturbation_confusion():
    """Derivatives are with respect to their own arguments, in any nesting."""
    d = bt.grad
    assert d(lambda x: x * d(lambda y: x + y)(2.0))(1.0) == 1.0
    assert d(lambda x: x * d(lambda y: x * y)(2.0))(3.0) == 6.0
    assert d(lambda x: d(lambda y: x * y * y)(x))(3.0) == 12.0
    assert d(lambda x: d(lambda y: d(lambda z: x * y * z)(1.0))(1.0))(5.0) == 1.0
    assert d(lambda x: x * d(lambda y: y * d(lambda z: x * y * z)(x))(x))(2.0) == 24.0

    def forward(f):
        return lambda x: bt.jvp(f, (x,), (1.0,))[1]

    assert forward(lambda x: x * forward(lambda y: x + y)(1.0))(1.0) == 1.0
    assert forward(lambda x: x * d(lambda y: x + y)(1.0))(1.0) == 1.0
    assert d(lambda x: x * forward(lambda y: x + y)(1.0))(1.0) == 1.0
    assert d(lambda x: forward(lambda y: d(lambda z: x * y**2 * z**2)(x))(x))(1.0) == 12.0


def test_an_inner_function_is_given_captured_arrays_only():
    """The inner arguments contain no Array of the surrounding body: the call still belongs to that body."""
    a = np.array([1.0, 2.0, 3.0])
    assert bt.grad(lambda x: bt.grad(lambda y: (x * a).sum() * y * y)(3.0))(1.0) == 36.0
    assert bt.grad(lambda x: bt.grad(lambda y: y * y)(3.0) * x)(1.0) == 6.0


def test_gradients_have_the_structure_of_arguments():
    def loss(p, x):
        return ((x @ p["w"] + p["b"][0]) ** 2).sum() + p["b"][1] * 2.0

    rng = np.random.default_rng(0)
    p = {"w": rng.normal(size=(3, 2)), "b": [rng.normal(size=2), 0.5]}
    x = rng.normal(size=(4, 3))
    value, gradient = bt.value_and_grad(loss)(p, x)
    residual = x @ p["w"] + p["b"][0]
    assert list(gradient) == ["w", "b"]
    assert type(gradient["b"]) is list
    assert math.isclose(value, (residual**2).sum() + 1.0)
    np.testing.assert_allclose(gradient["w"], 2 * x.T @ residual, rtol=1e-13)
    np.testing.assert_allclose(gradient["b"][0], 2 * residual.sum(0), rtol=1e-13)
    assert gradient["b"][1] == 2.0
    both = bt.grad(loss, argnums=(1, 0))(p, x)
    assert type(both) is tuple
    assert both[0].shape == (4, 3)
    assert both[1]["b"][1] == 2.0
    assert bt.grad(loss, argnums=-1)(p, x).tobytes() == both[0].tobytes()


def test_hessians_and_jacobians_have_the_shapes_of_both():
    rng = np.random.default_rng(1)
    a, x = rng.normal(size=(4, 3)), rng.normal(size=3)
    np.testing.assert_allclose(
        bt.jacobian(lambda x: bt.tanh(a @ x))(x), (1 - np.tanh(a @ x) ** 2)[:, None] * a, rtol=1e-13
    )
    wide = bt.jacobian(lambda x: bt.tanh(x @ a))(rng.normal(size=4))
    assert wide.shape == (3, 4)
    hessian = bt.hessian(lambda m: (m @ m.T).sum() ** 2)(a)
    assert hessian.shape == (4, 3, 4, 3)
    s = (a.sum(0) ** 2).sum()
    column = a.sum(0)
    expected = 8 * column[None, :, None, None] * column[None, None, None, :] + 4 * s * np.eye(3)[None, :, None, :]
    np.testing.assert_allclose(hessian, np.broadcast_to(expected, hessian.shape), rtol=1e-12)
    blocks = bt.hessian(lambda x, y: (x * x * y).sum(), argnums=(0, 1))(x, x + 1.0)
    np.testing.assert_allclose(blocks[0][1], np.diag(2 * x), rtol=1e-15)
    np.testing.assert_allclose(blocks[0][0], np.diag(2 * (x + 1.0)), rtol=1e-15)
    assert not blocks[1][1].any()
    table = bt.jacobian(lambda d: {"s": d["x"].sum(), "p": [d["x"] * d["y"]]})({"x": x, "y": 2.0})
    assert table["s"]["x"].tolist() == [1.0] * 3
    assert table["s"]["y"] == 0.0
    assert table["p"][0]["x"].shape == (3, 3)
    assert table["p"][0]["y"].tolist() == x.tolist()


def test_a_row_of_a_jacobian_is_the_gradient_of_its_result():
    jacobian = bt.jacobian(lambda x: np.stack([np.sqrt(x[0]) + x[1], x[1] * x[2]]))
    np.testing.assert_array_equal(jacobian(np.array([0.0, 1.0, 2.0])), [[np.inf, 1.0, 0.0], [0.0, 2.0, 1.0]])


def test_products_with_hessians_and_jacobians():
    rng = np.random.default_rng(2)
    x, v = rng.normal(size=5), rng.normal(size=5)

    def f(x):
        return (bt.exp(x) * x[::-1]).sum() * x.sum()

    hessian = bt.hessian(f)(x)
    np.testing.assert_allclose(bt.hvp(f)(x, v), hessian @ v, rtol=1e-12)
    np.testing.assert_allclose(bt.hvp(f, (x,), (v,)), hessian @ v, rtol=1e-12)

    def g(x):
        return bt.sin(x) * x.sum()

    jacobian = bt.jacobian(g)(x)
    value, change = bt.jvp(g)(x, v)
    np.testing.assert_allclose(change, jacobian @ v, rtol=1e-12)
    value, gradient = bt.vjp(g)(x, v)
    np.testing.assert_allclose(gradient, v @ jacobian, rtol=1e-12)
    np.testing.assert_allclose(value, np.sin(x) * x.sum(), rtol=1e-15)
    value, pull, auxiliary = bt.vjp(lambda x: (g(x), x.sum()), x, has_aux=True)
    assert type(pull(v)) is tuple
    assert auxiliary == pytest.approx(x.sum())
    value, change, auxiliary = bt.jvp(lambda x: (g(x), x.sum()), (x,), (v,), has_aux=True)
    np.testing.assert_allclose(change, jacobian @ v, rtol=1e-12)


def test_rows_at_once_have_the_bits_of_rows_alone():
    rng = np.random.default_rng(3)
    xs, w = rng.normal(size=(7, 4)), rng.normal(size=4)

    def f(x, w):
        return bt.tanh((x * w).sum()) + (x * x).sum()

    alone = np.array([bt.grad(f, argnums=1)(x, w) for x in xs])
    together = bt.vmap(bt.grad(f, argnums=1), in_axes=(0, None))(xs, w)
    assert together.tobytes() == alone.tobytes()
    summed = bt.grad(lambda w: bt.vmap(f, in_axes=(0, None))(xs, w).sum())(w)
    np.testing.assert_allclose(summed, alone.sum(0), rtol=1e-13)
    pairs = bt.vmap(bt.vmap(lambda x, y: (x * y).sum(), in_axes=(None, 0)), in_axes=(0, None))(xs, xs)
    np.testing.assert_allclose(pairs, xs @ xs.T, rtol=1e-12)
    hessians = bt.vmap(bt.hessian(lambda x: f(x, w)))(xs)
    assert hessians.tobytes() == np.array([bt.hessian(lambda x: f(x, w))(x) for x in xs]).tobytes()


def test_axes_of_rows():
    a, b = np.arange(6.0).reshape(2, 3), np.arange(3.0)

    def f(x, y):
        return x * y

    np.testing.assert_array_equal(bt.vmap(f, in_axes=(1, 0))(a, b), (a * b).T)
    np.testing.assert_array_equal(bt.vmap(f, in_axes=(-1, 0), out_axes=1)(a, b), a * b)
    np.testing.assert_array_equal(bt.vmap(f, in_axes=(1, 0), out_axes=-1)(a, b), a * b)
    np.testing.assert_array_equal(
        bt.vmap(lambda d: d["x"] * d["y"], in_axes=({"x": 0, "y": None},))({"x": b, "y": 2.0}), 2 * b
    )
    x, shared = bt.vmap(lambda x, y: (x, y * 2.0), in_axes=(0, None), out_axes=(0, None))(b, 3.0)
    assert x.tolist() == b.tolist()
    assert shared == 6.0
    assert bt.vmap(lambda x: 1.0)(b).tolist() == [1.0] * 3
    with pytest.raises(ValueError, match="as long as that of the others, 3, found 2"):
        bt.vmap(f)(b, np.ones(2))
    with pytest.raises(ValueError, match="at least one argument"):
        bt.vmap(f, in_axes=None)(b, b)
    with pytest.raises(ValueError, match="3 entries for 2"):
        bt.vmap(f, in_axes=(0, 0, 0))(b, b)
    with pytest.raises(ValueError, match="in_axes 1 is not an axis of an argument with 1"):
        bt.vmap(f, in_axes=1)(b, b)
    with pytest.raises(ValueError, match="not an axis of a result"):
        bt.vmap(f, out_axes=3)(b, b)
    with pytest.raises(ValueError, match="differs from row to row"):
        bt.vmap(f, out_axes=None)(b, b)
    with pytest.raises(TypeError, match="in_axes must be an axis"):
        bt.vmap(f, in_axes="rows")(b, b)
    with pytest.raises(ValueError):
        bt.vmap(f)(1.0, b)


def test_integers_are_no_variables():
    def f(x, i):
        return (x * x).sum() + 0.0 * i.sum()

    x, i = np.arange(3.0), np.arange(2)
    assert bt.grad(f)(x, i).tolist() == [0.0, 2.0, 4.0]
    for bad in (1, (0, 1), -1):
        with pytest.raises(TypeError, match="argument 1 contains integers"):
            bt.grad(f, argnums=bad)(x, i)
    gradient = bt.function(f).grad(x, i)
    assert gradient[0].tolist() == [0.0, 2.0, 4.0]
    assert gradient[1] is None
    with pytest.raises(TypeError, match="contains integers"):
        bt.function(f).grad(x, i, argnums=1)
    with pytest.raises(IndexError, match="2 is out of range"):
        bt.grad(f, argnums=2)(x, i)


def test_branches_are_taken_for_the_numbers_of_the_call():
    def f(x):
        if x < 0:
            return x * x
        return 3.0 * x if x < 10.0 else x**3

    derivative, second = bt.grad(f), bt.grad(bt.grad(f))
    for _ in range(2):
        assert [derivative(x) for x in (-2.0, 2.0, 20.0)] == [-4.0, 3.0, 1200.0]
        assert [second(x) for x in (-2.0, 2.0, 20.0)] == [2.0, 0.0, 120.0]
    assert derivative.stats()["traced"] == 3
    assert derivative.stats()["guard_misses"] > 0
    assert bt.grad(lambda x: x * bt.grad(lambda y: f(x) * y)(1.0))(-2.0) == 12.0
    with pytest.raises(bt.TraceError, match=r"bt\.where"):
        bt.vmap(f)(np.array([1.0, 2.0]))
    # A value common to all rows may decide.
    shared = bt.vmap(lambda x, flag: x * 2.0 if flag < 0 else x, in_axes=(0, None))
    assert shared(np.ones(2), 1.0).tolist() == [1.0, 1.0]
    assert shared(np.ones(2), -1.0).tolist() == [2.0, 2.0]


def test_functions_of_results_that_are_no_number_are_refused():
    for f, found in ((lambda x: x * np.ones(3), "shape"), (lambda x: (x, x), "several"), (lambda x: x < 0.0, "mask")):
        with pytest.raises(bt.TraceError, match="needs a function that returns one float of shape") as error:
            bt.grad(f)(1.0)
        assert found in str(error.value)
    with pytest.raises(bt.TraceError, match="has_aux=True needs a function that returns a tuple"):
        bt.grad(lambda x: x, has_aux=True)(1.0)
    with pytest.raises(TypeError, match="takes a function, found int"):
        bt.grad(1)
    with pytest.raises(TypeError, match="takes primals and tangents, or neither"):
        bt.jvp(lambda x: x, (1.0,))
    with pytest.raises(ValueError, match="directions with matching shapes"):
        bt.jvp(lambda x: x, (np.ones(3),), (np.ones(2),))
    with pytest.raises(bt.TraceError, match="directions with the structure"):
        bt.jvp(lambda x: x[0], ([1.0],), ((1.0,),))
    with pytest.raises(ValueError, match="weights with matching shapes"):
        bt.vjp(lambda x: x)(np.ones(3), 1.0)


def test_functions_that_call_themselves_are_refused():
    def f(x):
        return bt.grad(f)(x)

    for _ in range(2):
        with pytest.raises(RecursionError):
            bt.grad(f)(1.0)
    assert bt.grad(lambda x: x * x)(3.0) == 6.0


def test_names():
    def loss(x):
        return x

    assert bt.grad(loss).__name__.startswith("grad(")
    assert "loss" in repr(bt.hessian(loss))
    assert bt.grad(loss).__wrapped__.__wrapped__ is loss
    with pytest.raises(TypeError, match="did you mean 'key'"):
        bt.grad(lambda x, key=1: x)(1.0, kee=2)
    assert bt.grad(lambda x, key=1: x * key)(1.0, key=5) == 5.0


def test_a_body_with_numpy_arrays_of_values_is_traced_again_with_arrays():
    def body(w):
        return bt.grad(lambda x: (x * x * w).sum())(np.stack([w, 2.0 * w])).sum()

    f = bt.function(body)
    assert f(0.5) == 2.0 * 0.5 * 0.5 * 3.0
    assert f.grad(0.5) == 2.0 * 2.0 * 0.5 * 3.0


@pytest.mark.parametrize("power", [lambda x, y: x**y, bt.pow, np.power, lambda x, y: (x**y).sum()])
@pytest.mark.parametrize("x", [2.0, np.array([2.0, 3.0])])
def test_an_exponent_may_be_one_traced_number(power, x):
    gradients = bt.grad(lambda x, y: bt.sum(power(x, y)), argnums=(0, 1))(x, 3.0)
    assert np.allclose(gradients[0], 3.0 * x**2, rtol=1e-15)
    assert np.isclose(gradients[1], np.sum(x**3 * np.log(x)), rtol=1e-15)
    assert bt.grad(lambda y: 2.0**y)(3.0) == pytest.approx(8.0 * np.log(2.0), rel=1e-15)


def test_a_body_that_returns_none_is_an_error():
    for transform in (bt.grad, bt.value_and_grad, bt.hessian):
        with pytest.raises(bt.TraceError, match="found None"):
            transform(lambda x: None)(1.0)
    for transform in (bt.vmap, bt.jacobian):
        with pytest.raises(bt.TraceError, match="returned no numbers"):
            transform(lambda x: None)(np.ones(2))


def test_shapes_that_do_not_broadcast_are_named():
    with pytest.raises(ValueError, match=r"^shapes \(3,\) and \(4,\) do not broadcast$"):
        bt.grad(lambda x: bt.sum(x * np.ones(4)))(np.ones(3))


def test_named_tuples_keep_their_type():
    Point = collections.namedtuple("Point", "w b")
    p = Point(np.array([1.0, 2.0]), 3.0)
    gradient = bt.grad(lambda p: (p.w**2).sum() * p.b)(p)
    assert type(gradient) is Point
    assert gradient.w.tolist() == [6.0, 12.0]
    assert gradient.b == 5.0
    assert type(bt.function(lambda x: Point(x.T, x.sum()))(np.ones((2, 3)))) is Point
    last, _ = bt.scan(lambda c, x: (Point(c.w * x, c.b + x), None), p, np.array([2.0, 0.5]))
    assert (type(last), last.w.tolist(), last.b) == (Point, [1.0, 2.0], 5.5)
    # Another class with as many parts is a different structure.
    Other = collections.namedtuple("Other", "w b")
    total = bt.grad(lambda p: p.w.sum() * p.b if isinstance(p, Point) else p.b)
    assert total(p).w.tolist() == [3.0, 3.0]
    assert total(Other(*p)).w.tolist() == [0.0, 0.0]


def test_methods_take_argnums():
    f = bt.function(lambda x, y: x * x * y + bt.sin(y))
    assert f.hessian(3.0, 4.0, argnums=0) == 8.0
    (a, b), (c, d) = f.hessian(3.0, 4.0, argnums=(0, 1))
    assert [a, b, c, d] == f.hessian(3.0, 4.0).ravel().tolist()
    assert f.hessian(3.0, 4.0, argnums=None).shape == (2, 2)
    g = bt.function(lambda x, y: np.concatenate([x * y[0], y]))
    x, y = np.array([1.0, 2.0]), np.array([3.0, 4.0, 5.0])
    for k in (0, 1):
        assert g.jacobian(x, y, argnums=k).tolist() == bt.jacobian(g, argnums=k)(x, y).tolist()
    for which in (2, -3, (0, 5)):
        with pytest.raises(IndexError, match="out of range"):
            f.hessian(3.0, 4.0, argnums=which)


def test_primals_and_tangents_are_tuples():
    for given in (1.0, np.ones(2), "ab"):
        with pytest.raises(TypeError, match="primals as a tuple with an entry for each argument, found"):
            bt.jvp(np.sin, given, given)
        with pytest.raises(TypeError, match="tangents as a tuple with an entry for each argument, found"):
            bt.hvp(np.sin, (1.0,), given)


def test_integers_are_refused_before_the_body_runs():
    with pytest.raises(TypeError, match="argument 0 contains integers"):
        bt.grad(lambda x: (x**2).sum())(np.array([1, 2]))


class Foreign:
    """An array of a library without dtype kinds, which shares its memory."""

    def __init__(self, array):
        self.array, self.dtype, self.shape = array, object(), array.shape

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_arrays_of_other_libraries_are_read_where_they_are():
    x, rows = np.array([1.0, 2.0]), np.arange(6.0).reshape(3, 2)
    f = bt.value_and_grad(lambda x, rows: bt.tanh(rows @ x).sum())
    found, expected = f(Foreign(x), Foreign(rows)), f(x, rows)
    assert found[0] == expected[0]
    assert found[1].tolist() == expected[1].tolist()
    square = bt.function(lambda x: (x * x).sum())
    assert square(Foreign(x)) == 5.0
    assert square.grad(Foreign(x)).tolist() == [2.0, 4.0]
    single = square.grad(Foreign(x.astype("float32")))
    assert single.dtype == np.float32
    params = bt.Parameters(dtype="float64")
    w = params.tensor(2, init=0.5)
    oracle = bt.Oracle(lambda x, y: (x @ w - y) ** 2, params=params)
    assert oracle(Foreign(rows), Foreign(np.ones(3)))[0] == oracle(rows, np.ones(3))[0]


def test_other_sparse_formats_are_named():
    sparse = pytest.importorskip("scipy.sparse")
    for kind in ("csc", "coo", "lil"):
        a = sparse.random_array((4, 3), density=0.5, format=kind)
        for f in (bt.grad(lambda w, a: ((a @ w) ** 2).sum()), bt.function(lambda w, a: ((a @ w) ** 2).sum())):
            with pytest.raises(TypeError, match=r"CSR format, found \w+; pass x.tocsr\(\)"):
                f(np.ones(3), a)


def test_stop_gradient_blocks_every_derivative():
    x = np.array([[0.5, -1.0], [2.0, 3.0]])
    square = lambda x: (x * bt.stop_gradient(x)).sum()  # noqa: E731
    assert bt.grad(square)(x).tolist() == x.tolist()
    assert bt.grad(lambda x: (x * x.detach()).sum())(x).tolist() == x.tolist()
    assert not bt.hessian(square)(x).any()
    assert bt.jvp(square, (x,), (np.ones((2, 2)),)) == ((x * x).sum(), x.sum())
    assert not bt.grad(lambda x: bt.stop_gradient(x).sum())(x).any()
    assert bt.vmap(bt.grad(square))(x).tolist() == x.tolist()
    last = bt.grad(lambda x: bt.fori_loop(0, 3, lambda k, c: c * x + bt.stop_gradient(c), x))(2.0)
    assert last == 46.0
    # An infinite slope is not used as a factor.
    assert bt.grad(lambda x: (bt.stop_gradient(np.sqrt(x)) * x).sum())(np.zeros((1, 2))).tolist() == [[0.0, 0.0]]
    for f in (bt.function(lambda x: x * bt.stop_gradient(x)), bt.function(lambda x: x * x.detach())):
        assert f.grad(3.0) == 3.0
        assert f.grad(4.0) == 4.0
    v = bt.Value(3.0)
    (v * bt.stop_gradient(v)).backward()
    assert v.grad == 3.0
    w = v.graph.vector([1.0, 2.0])
    (w * bt.stop_gradient(w)).sum().backward()
    assert w.grad.tolist() == [1.0, 2.0]
    kept = bt.stop_gradient({"a": [v, 2.0, None], "b": (x, 1)})
    assert kept["a"][0].data == 3.0
    assert not kept["a"][0].same_node(v)
    assert kept["b"][0] is x
    with pytest.raises(TypeError, match="found str"):
        bt.stop_gradient("a")


def test_a_function_keeps_the_transforms_that_are_made_of_it():
    def f(x):
        return (x * x).sum()

    F = bt.function(f)  # noqa: N806
    for transform in (bt.grad, bt.value_and_grad, bt.jacobian, bt.hessian, bt.jvp, bt.hvp, bt.vjp):
        assert transform(F) is transform(F)
    assert bt.grad(F) is not bt.grad(F, argnums=(0,))
    assert bt.grad(F, has_aux=True) is not bt.grad(F, has_aux=True)
    assert bt.grad(f) is not bt.grad(f)
    for k in range(5):
        assert bt.grad(F)(np.full((2, 2), float(k))).tolist() == [[2.0 * k] * 2] * 2
    assert bt.grad(F).stats()["traced"] == 1
    before = bt.grad(F)
    F.forget()
    assert bt.grad(F) is not before
    assert bt.grad(F)(np.eye(2)).tolist() == [[2.0, 0.0], [0.0, 2.0]]
