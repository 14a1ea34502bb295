"""NumPy functions on Arrays at zeros of both signs and of no elements, and comparisons of whole arrays."""

from __future__ import annotations

import pytest

import burtorch as bt

np = pytest.importorskip("numpy")

X = np.random.default_rng(11).normal(size=(2, 4))
Y = X + 1.0


def listed(x):
    return list(x) if isinstance(x, (list, tuple)) else [x]


ENDS = np.array([0.0, 1.0, 6.0, 0.5, 2.5, np.inf, 5e-324, 1e300])
ENDS = np.concatenate([ENDS, -ENDS, [np.nan]])
UFUNCS = sorted(name for name in dir(np) if isinstance(getattr(np, name), np.ufunc))
EXTREMES = {"fmax", "fmin", "maximum", "minimum"}
"""Of zeros of two signs, either one is right."""


@pytest.mark.parametrize("name", [name for name in UFUNCS if name not in EXTREMES])
@pytest.mark.filterwarnings("ignore")
def test_zeros_have_the_signs_of_numpy(name):
    f = getattr(np, name)
    given = [ENDS] if f.nin == 1 else [x.ravel() for x in np.meshgrid(*[ENDS] * f.nin)]
    try:
        with np.errstate(all="ignore"):
            expected = listed(f(*given))
        found = [listed(f(*map(bt.array, given))), bt.function(lambda *x: listed(f(*x)))(*given)]
    except (TypeError, ValueError):
        return
    for of_zero, at_once, traced in zip(expected, *found):
        is_zero = (of_zero == 0) & (of_zero.dtype.kind == "f")
        for x in (at_once.data, traced):
            assert (np.signbit(x) == np.signbit(of_zero))[is_zero].all()


def test_remainders_of_zeros_have_derivatives():
    x, signs = np.array([-6.0, -0.0, 0.0, 6.0]), [-1, -1, 1, 1]
    for f in (lambda x: np.fmod(x, 2.0), lambda x: np.fmod(x, -2.0), lambda x: np.modf(x)[0]):
        for found in (bt.function(f)(x), f(bt.array(x)).data):
            assert (found.tolist(), np.copysign(1, found).tolist()) == ([0.0] * 4, signs)
        assert bt.grad(lambda x, f=f: f(x).sum())(x).tolist() == [1.0] * 4
        assert bt.jacobian(f)(x).tolist() == np.eye(4).tolist()


def test_whole_arrays_are_compared():
    body = [
        lambda x: np.array_equiv(x, x), lambda x: np.array_equiv(x, Y), lambda x: np.array_equiv(x, x[:, :2]),
        lambda x: np.array_equiv(x * 0, [0, 0, 0, 0]), lambda x: np.array_equiv(X[:1], x[:1]),
        lambda x: np.array_equal(x, x), lambda x: np.array_equal(x, X.tolist()), lambda x: np.array_equal(x, x[1:]),
        lambda x: np.array_equal(x * np.nan, x * np.nan), lambda x: np.array_equal(x * np.nan, x * np.nan, True),
        lambda x: np.allclose(x, (X + 1e-9).tolist()), lambda x: np.allclose(x[0], 0.0),
    ]  # fmt: skip
    for f in body:
        assert f(bt.array(X)) is f(X)
        assert np.size(bt.function(lambda x, f=f: x.sum() if f(x) else x)(X)) == (1 if f(X) else X.size)


NONE = {
    "diag": np.diag, "diag above": lambda x: np.diag(x, 2), "diag below": lambda x: np.diag(x, -1),
    "diagflat": np.diagflat, "resize": lambda x: np.resize(x, (2, 2)), "vander": np.vander,
    "vander of no powers": lambda x: np.vander(x, 0), "tril": np.tril, "flip": np.flip, "tile": lambda x: np.tile(x, 3),
    "ediff1d": np.ediff1d, "outer": np.outer, "kron": lambda x: np.kron(x, x), "sort": np.sort,
    "isin": lambda x: np.isin(x, [1.0]), "pad": lambda x: np.pad(x, 2), "roll": lambda x: np.roll(x, 1),
    "linspace": lambda x: np.linspace(x, 1.0, 3), "stack": lambda x: np.stack([x, x]), "isposinf": np.isposinf,
    "residuals": lambda x: np.linalg.lstsq(np.eye(2), np.ones(2) + x.sum())[1],
}  # fmt: skip


@pytest.mark.parametrize("name", list(NONE))
def test_arrays_of_no_elements_give_arrays(name):
    f = (lambda x: NONE[name](x, x)) if name == "outer" else NONE[name]
    for none in (np.zeros(0), np.zeros(0, int)):
        expected, found = f(none), f(bt.array(none))
        assert isinstance(found, bt.Array)
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        assert found.data.tolist() == expected.tolist()
    rows = np.zeros((0, 3))
    assert bt.grad(lambda rows: (f(rows[:, 0]) * 1.0).sum())(rows).shape == (0, 3)


def test_no_elements_cannot_be_extended_by_others():
    for mode in ("edge", "reflect", "symmetric", "wrap"):
        with pytest.raises(ValueError, match="empty axis"):
            np.pad(bt.array(np.zeros((0, 2))), 1, mode)
        assert np.pad(bt.array(np.zeros((0, 2))), ((0, 0), (1, 2)), mode).shape == (0, 5)
