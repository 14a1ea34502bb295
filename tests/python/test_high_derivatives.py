"""Derivatives of order up to four of random expressions, also where tangents vanish, against power series."""

from __future__ import annotations

import math
import random

import pytest

import burtorch as bt

np = pytest.importorskip("numpy")

ORDER = 4
POINTS = [0.0, 1.0, -1.0, 0.5, 2.0, -0.75]


class Series:
    """The first coefficients of a power series."""

    def __init__(self, c):
        self.c = list(c)

    def __add__(self, other):
        return Series(a + b for a, b in zip(self.c, of(other).c))

    def __neg__(self):
        return Series(-a for a in self.c)

    def __sub__(self, other):
        return self + -of(other)

    def __mul__(self, other):
        other = of(other)
        return Series(sum(self.c[j] * other.c[k - j] for j in range(k + 1)) for k in range(ORDER + 1))

    def __truediv__(self, other):
        other, q = of(other), []
        for k in range(ORDER + 1):
            q.append((self.c[k] - sum(q[j] * other.c[k - j] for j in range(k))) / other.c[0])
        return Series(q)

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other):
        return of(other) - self

    def __rtruediv__(self, other):
        return of(other) / self

    def along(self, first, slope):
        """The series of f(self), whose derivative is `slope` times that of self; `slope` may read the known
        coefficients."""
        made = [first]
        for k in range(1, ORDER + 1):
            factor = slope(Series(made + [0.0] * (ORDER + 1 - k)))
            made.append(sum(j * self.c[j] * factor.c[k - j] for j in range(1, k + 1)) / k)
        return Series(made)


def of(x):
    return x if isinstance(x, Series) else Series([float(x)] + [0.0] * ORDER)


def sincos(x):
    s, c = [math.sin(x.c[0])], [math.cos(x.c[0])]
    for k in range(1, ORDER + 1):
        s.append(sum(j * x.c[j] * c[k - j] for j in range(1, k + 1)) / k)
        c.append(-sum(j * x.c[j] * s[k - j] for j in range(1, k + 1)) / k)
    return Series(s), Series(c)


SERIES = {
    "exp": lambda x: x.along(math.exp(x.c[0]), lambda y: y),
    "tanh": lambda x: x.along(math.tanh(x.c[0]), lambda y: 1.0 - y * y),
    "sin": lambda x: sincos(x)[0],
    "cos": lambda x: sincos(x)[1],
    "atan": lambda x: x.along(math.atan(x.c[0]), lambda _: 1.0 / (1.0 + x * x)),
    "square": lambda x: x * x,
    "softplus": lambda x: x.along(math.log1p(math.exp(x.c[0])), lambda _: 1.0 / (1.0 + SERIES["exp"](-x))),
    "sqrt1": lambda x: (x * x + 1.0).along(math.sqrt(x.c[0] ** 2 + 1.0), lambda y: 0.5 / y),
    "log1": lambda x: (x * x + 1.0).along(math.log(x.c[0] ** 2 + 1.0), lambda _: 1.0 / (x * x + 1.0)),
}
ARRAYS = {
    **{name: getattr(bt, name) for name in ("exp", "tanh", "sin", "cos", "atan", "softplus")},
    "square": lambda x: x**2,
    "sqrt1": lambda x: bt.sqrt(x**2 + 1.0),
    "log1": lambda x: bt.log(x**2 + 1.0),
}


def expression(rng, depth):
    """A function of a table of functions and an argument."""
    if depth == 0:
        constant = rng.choice([1.0, 2.0, -1.0, 0.5])
        return (lambda _, x: x) if rng.random() < 0.75 else (lambda _, x: 0.0 * x + constant)
    kind = rng.choice(["function"] * 3 + ["+", "-", "*", "/", "/"])
    a, b = expression(rng, depth - 1), expression(rng, depth - 1)
    if kind == "function":
        name = rng.choice(sorted(SERIES))
        return lambda table, x: table[name](a(table, x))
    return {
        "+": lambda table, x: a(table, x) + b(table, x),
        "-": lambda table, x: a(table, x) - b(table, x),
        "*": lambda table, x: a(table, x) * b(table, x),
        "/": lambda table, x: a(table, x) / (2.0 + b(table, x) * b(table, x)),
    }[kind]


def check(f, x, say):
    expected = f(SERIES, Series([x, 1.0] + [0.0] * (ORDER - 1)))
    if max(map(abs, expected.c)) > 1e6:
        return
    g = lambda x: f(ARRAYS, x)  # noqa: E731
    h = lambda x: f(ARRAYS, x).sum()  # noqa: E731
    for k in range(1, ORDER + 1):
        g = bt.grad(g)
        h = (lambda of: lambda x: bt.grad(of)(x).sum())(h)
        scale = 1.0 + max(map(abs, expected.c)) * math.factorial(k)
        right = expected.c[k] * math.factorial(k)
        assert abs(g(x) - right) <= 1e-9 * scale, (say, "order", k, "at", x, g(x), right)
        found = h(np.array([x, x]))
        assert abs(found - 2 * right) <= 1e-9 * scale, (say, "order", k, "of an array at", x, found, 2 * right)


def test_a_quotient_whose_numerator_does_not_move():
    check(lambda t, x: (1.0 - t["exp"](-2.0 * x)) / (1.0 + t["exp"](-2.0 * x)), 0.0, "tanh by exp")


@pytest.mark.parametrize("name", sorted(SERIES))
@pytest.mark.parametrize("x", POINTS)
def test_functions(name, x):
    check(lambda t, x: t[name](x), x, name)
    check(lambda t, x: t[name](x * x) / (2.0 + t[name](x) * t[name](x)), x, name)


@pytest.mark.parametrize("seed", range(40))
def test_random_expressions(seed):
    rng = random.Random(seed)
    for _ in range(2):
        f = expression(rng, 3)
        check(f, rng.choice(POINTS), seed)


@pytest.mark.parametrize("y", [0.0, 1.0, 2.0, 3.0, -1.0, 0.5])
def test_powers_move_with_their_exponent(y):
    x = 1.7
    log = math.log(x)
    mixed = bt.grad(bt.grad(bt.grad(lambda x, y: x**y, 0), 0), 1)(x, y)
    assert mixed == pytest.approx(x ** (y - 2) * (2 * y - 1 + y * (y - 1) * log), rel=1e-12, abs=1e-12)
    mixed = bt.grad(bt.grad(bt.grad(lambda x, y: x**y, 0), 1), 1)(x, y)
    assert mixed == pytest.approx(x ** (y - 1) * log * (2 + y * log), rel=1e-12, abs=1e-12)
    third = bt.grad(bt.grad(bt.grad(lambda x, y: x**y, 1), 1), 1)(x, y)
    assert third == pytest.approx(x**y * log**3, rel=1e-12, abs=1e-12)


def cofactors(x):
    """The gradient of a determinant: signed determinants of what remains without a row and a column."""
    n = len(x)
    found = np.empty((n, n))
    for i in range(n):
        for j in range(n):
            rest = np.delete(np.delete(x, i, 0), j, 1)
            found[i, j] = (-1) ** (i + j) * (np.linalg.det(rest) if n > 1 else 1.0)
    return found


@pytest.mark.parametrize("n", [1, 2, 3])
def test_determinants_of_singular_matrices_have_derivatives(n):
    rng = np.random.default_rng(n)
    column = rng.integers(-3, 4, (n, 1)).astype(float)
    for x in (np.zeros((n, n)), column @ column.T, np.ones((n, n)), np.arange(float(n * n)).reshape(n, n), np.eye(n)):
        assert np.allclose(bt.grad(np.linalg.det)(x), cofactors(x), atol=1e-12)
        assert np.allclose(bt.vmap(bt.grad(np.linalg.det))(x[None])[0], cofactors(x), atol=1e-12)
        assert np.isclose(np.linalg.det(bt.array(x)).data, np.linalg.det(x), atol=1e-12)
        # A polynomial of degree n that is linear in each entry: its second derivatives are differences of cofactors.
        hessian = bt.hessian(np.linalg.det)(x)
        for i in range(n):
            for j in range(n):
                moved = x.copy()
                moved[i, j] += 1.0
                assert np.allclose(hessian[i, j], cofactors(moved) - cofactors(x), atol=1e-12)
    batch = rng.normal(size=(4, 5, n, n))
    assert np.allclose(bt.function(np.linalg.det)(batch), np.linalg.det(batch), rtol=1e-12)
