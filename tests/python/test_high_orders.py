"""Derivatives of higher order where formulas are singular and functions are not, against Taylor's coefficients."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

import burtorch as bt

np = pytest.importorskip("numpy")

ORDERS = range(1, 6)
# The coefficients of x, x**2, ... at 0.
SERIES = {
    "exp": (np.exp, [Fraction(1, math.factorial(k)) for k in ORDERS]),
    "expm1": (np.expm1, [Fraction(1, math.factorial(k)) for k in ORDERS]),
    "sin": (np.sin, [1, 0, Fraction(-1, 6), 0, Fraction(1, 120)]),
    "cos": (np.cos, [0, Fraction(-1, 2), 0, Fraction(1, 24), 0]),
    "tan": (np.tan, [1, 0, Fraction(1, 3), 0, Fraction(2, 15)]),
    "sinh": (np.sinh, [1, 0, Fraction(1, 6), 0, Fraction(1, 120)]),
    "cosh": (np.cosh, [0, Fraction(1, 2), 0, Fraction(1, 24), 0]),
    "tanh": (np.tanh, [1, 0, Fraction(-1, 3), 0, Fraction(2, 15)]),
    "arcsin": (np.arcsin, [1, 0, Fraction(1, 6), 0, Fraction(3, 40)]),
    "arctan": (np.arctan, [1, 0, Fraction(-1, 3), 0, Fraction(1, 5)]),
    "arcsinh": (np.arcsinh, [1, 0, Fraction(-1, 6), 0, Fraction(3, 40)]),
    "arctanh": (np.arctanh, [1, 0, Fraction(1, 3), 0, Fraction(1, 5)]),
    "log1p": (np.log1p, [1, Fraction(-1, 2), Fraction(1, 3), Fraction(-1, 4), Fraction(1, 5)]),
    "softplus": (bt.softplus, [Fraction(1, 2), Fraction(1, 8), 0, Fraction(-1, 192), 0]),
    "sigmoid": (bt.sigmoid, [Fraction(1, 4), 0, Fraction(-1, 48), 0, Fraction(1, 480)]),
    "silu": (bt.silu, [Fraction(1, 2), Fraction(1, 4), 0, Fraction(-1, 48), 0]),
    "square": (np.square, [0, 1, 0, 0, 0]),
    "inverse": (lambda x: 1.0 / (1.0 + x), [-1, 1, -1, 1, -1]),
    "root": (
        lambda x: np.sqrt(1.0 + x),
        [Fraction(1, 2), Fraction(-1, 8), Fraction(1, 16), Fraction(-5, 128), Fraction(7, 256)],
    ),
    "sinc": (np.sinc, [0, -(math.pi**2) / 6, 0, math.pi**4 / 120, 0]),
    "product": (lambda x: np.prod(np.stack([x, x, 1.0 - x, x])), [0, 0, 1, -1, 0]),
    "polynomial": (lambda x: np.polyval([1.0, 2.0, 3.0, 4.0, 5.0], x), [4, 3, 2, 1, 0]),
}


def nested(f, order, transform):
    for _ in range(order):
        f = transform(f)
    return f


def pushed(f):
    return lambda x: bt.jvp(f, (x,), (1.0,))[1]


@pytest.mark.parametrize("name", SERIES)
@pytest.mark.parametrize("transform", [bt.grad, pushed])
def test_derivatives_at_0_are_those_of_the_series(name, transform):
    f, coefficients = SERIES[name]
    for order, coefficient in zip(ORDERS, coefficients):
        found = nested(f, order, transform)(0.0)
        assert float(found) == pytest.approx(float(coefficient) * math.factorial(order), rel=1e-9, abs=1e-12), order


POWERS = {
    "power of a float": lambda n: lambda x: x ** float(n),
    "power of an int": lambda n: lambda x: x**n,
    "numpy.power": lambda n: lambda x: np.power(x, n),
}


@pytest.mark.parametrize("kind", POWERS)
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("x", [0.0, -0.0, 1e-30, -1e-16, 0.5, 2.0])
def test_derivatives_of_powers_are_falling_factorials(kind, n, x):
    f = POWERS[kind](n)
    for order in range(1, 7):
        expected = math.perm(n, order) * x ** (n - order) if order <= n else 0.0
        assert float(nested(f, order, bt.grad)(x)) == pytest.approx(expected, rel=1e-9, abs=1e-300), order


@pytest.mark.parametrize("n", [3, 4, 5])
def test_powers_of_values_and_functions(n):
    f = bt.function(lambda x: x**n)
    g = bt.grad(bt.grad(bt.grad(f)))
    for x in (0.0, 1e-200, -1.5):
        assert g(x) == pytest.approx(math.perm(n, 3) * x ** (n - 3), abs=1e-300)
        assert f.hessian(x) == pytest.approx(n * (n - 1) * x ** (n - 2), abs=1e-300)
