"""SciPy's ufuncs of Values, Vectors' elements and Arrays: eager and traced, with derivatives."""

from __future__ import annotations

import numpy as np
import pytest

import burtorch as bt

special = pytest.importorskip("scipy.special")
POINTS = np.array([0.3, 0.7, 0.45])
UNARY = [
    "erf",
    "erfc",
    "ndtr",
    "gammaln",
    "psi",
    "expit",
    "exp10",
    "exp2",
    "expm1",
    "log1p",
    "cbrt",
    "logit",
    "log_expit",
    "entr",
]
BINARY = ["xlogy", "rel_entr", "betaln"]


def slope(f, x):
    """By central differences of fourth order."""
    h = 1e-3
    return (f(x - 2 * h) - 8 * f(x - h) + 8 * f(x + h) - f(x + 2 * h)) / (12 * h)


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_argument(name):
    f = getattr(special, name)
    expected, slopes = f(POINTS), slope(f, POINTS)
    for x, y, d in zip(POINTS, expected, slopes, strict=True):
        v = bt.Value(x)
        w = f(v)
        w.backward()
        assert isinstance(w, bt.Value)
        assert w.data == pytest.approx(y, rel=1e-13)
        assert v.grad == pytest.approx(d, rel=1e-7)
        assert bt.function(lambda v: f(v))(x) == pytest.approx(y, rel=1e-13)
    with bt.Graph() as graph:
        a = graph.array(POINTS)
        b = f(a)
        b.sum().backward()
    np.testing.assert_allclose(b.data, expected, rtol=1e-13)
    np.testing.assert_allclose(a.grad, slopes, rtol=1e-7)
    table = POINTS.reshape(1, 3)
    np.testing.assert_allclose(bt.function(lambda x: f(x))(table), expected[None], rtol=1e-13)
    np.testing.assert_allclose(bt.grad(lambda x: f(x).sum())(table), slopes[None], rtol=1e-7)


@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_arguments(name):
    f = getattr(special, name)
    other = POINTS[::-1] + 0.5
    expected = f(POINTS, other)
    for x, y, z in zip(POINTS, other, expected, strict=True):
        for given in ((bt.Value(x), bt.Value(y)), (bt.Value(x), y), (x, bt.Value(y))):
            assert f(*given).data == pytest.approx(z, rel=1e-13)
    by_both = bt.grad(lambda x, y: f(x, y).sum(), argnums=(0, 1))(POINTS, other)
    np.testing.assert_allclose(by_both[0], slope(lambda x: f(x, other), POINTS), rtol=1e-7)
    np.testing.assert_allclose(by_both[1], slope(lambda y: f(POINTS, y), other), rtol=1e-7)
    np.testing.assert_allclose(bt.function(lambda x: f(x, other))(POINTS[None]), expected[None], rtol=1e-13)


def test_other_functions_are_refused_by_name():
    with pytest.raises(TypeError, match=r"scipy.special.j0 does not take Arrays"):
        bt.function(lambda x: special.j0(x))(POINTS[None])
    with pytest.raises(TypeError, match="j0"):
        special.j0(bt.Value(0.5))
