"""Every public NumPy function, called with Arrays: the same result as NumPy, or a TypeError that names it."""

from __future__ import annotations

import inspect
import runpy
import warnings
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")

CASES = runpy.run_path(str(Path(__file__).with_name("array_cases.py")))
run, same = CASES["run"], CASES["same"]

SIDE_EFFECTS = {
    "save",
    "savez",
    "savez_compressed",
    "savetxt",
    "load",
    "loadtxt",
    "genfromtxt",
    "fromfile",
    "memmap",
    "test",
    "info",
    "show_config",
    "show_runtime",
    "seterr",
    "seterrcall",
    "setbufsize",
    "set_printoptions",
    "printoptions",
    "errstate",
    "seed",
    "set_state",
    "get_state",
    "fromregex",
    "from_dlpack",
    "lookfor",
    "source",
    "get_include",
    "bytes",
    "get_bit_generator",
    "set_bit_generator",
    "array2string",
    "array_repr",
    "array_str",
    "ndarray",
    "recarray",
    "nested_iters",
    "nditer",
    "DataSource",
    "open_memmap",
    "bmat",
    "isfortran",
}
"""Functions that use files or settings, need objects, or return before they read the Array's numbers."""
MASKS = {"trapezoid"}
"""Functions that add masks, which are 0 and 1 here; in NumPy True + True is True."""

SINGULAR_VALUES = {"lstsq"}
"""Functions whose last result is None here."""
NUMBERS_AT_RANDOM = {"empty", "empty_like"}
X = np.array([[0.3, -1.2, 2.0], [1.5, 0.7, -0.4]])
Y = np.array([[1.3, 0.2, -2.0], [0.5, -0.7, 0.9]])
S = np.array([[3.0, 0.5, -1.0], [0.5, 2.0, 0.25], [-1.0, 0.25, 4.0]])
V = np.array([0.5, 0.25, 0.75])
N = 3
CALLS = [
    (lambda f, x, y, s, v: f(x)),
    (lambda f, x, y, s, v: f(v)),
    (lambda f, x, y, s, v: f(s)),
    (lambda f, x, y, s, v: f(x, y)),
    (lambda f, x, y, s, v: f(s, v)),
    (lambda f, x, y, s, v: f(v, v)),
    (lambda f, x, y, s, v: f(s, s)),
    (lambda f, x, y, s, v: f([x, y])),
    (lambda f, x, y, s, v: f((v, v))),
    (lambda f, x, y, s, v: f(x, 1)),
    (lambda f, x, y, s, v: f(x, (1, 0))),
    (lambda f, x, y, s, v: f(x, axis=0)),
    (lambda f, x, y, s, v: f(x, axis=1, keepdims=True)),
    (lambda f, x, y, s, v: f(x, 0, 1)),
    (lambda f, x, y, s, v: f(x > 0, x, y)),
    (lambda f, x, y, s, v: f(x, -1.0, 1.0)),
    (lambda f, x, y, s, v: f(x, y, 0)),
    (lambda f, x, y, s, v: f(x, y, y)),
    (lambda f, x, y, s, v: f(X, y)),
    (lambda f, x, y, s, v: f(2.0, v)),
    (lambda f, x, y, s, v: f("ij,kj->ik", x, y)),
    (lambda f, x, y, s, v: f(x, dtype="float32")),
    (lambda f, x, y, s, v: f(x, where=X > 0)),
    (lambda f, x, y, s, v: f(x, initial=1.0)),
    (lambda f, x, y, s, v: f(x, out=np.zeros(3))),
]


def functions():
    for module in (np, np.linalg, np.fft, np.random):
        for name in sorted(vars(module)):
            f = getattr(module, name)
            if name.startswith("_") or name in SIDE_EFFECTS or not callable(f) or inspect.isclass(f):
                continue
            yield pytest.param(name, f, id=f"{module.__name__}.{name}")


COVERED = {"right": 0, "refused": 0}


@pytest.mark.parametrize(("name", "f"), list(functions()))
@pytest.mark.filterwarnings("ignore")
def test_a_function_is_right_or_a_type_error(name, f):
    rights, refusals = 0, []
    for call in CALLS:
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                expected = call(f, X.copy(), Y.copy(), S.copy(), V.copy())
        except Exception:
            expected = Ellipsis  # NumPy refuses: a refusal or a result is fine
        try:
            found = run(lambda *arrays: call(f, *arrays), X, Y, S, V)  # noqa: B023
        except TypeError as error:
            refusals.append(str(error))
            continue
        except Exception:
            if expected is not Ellipsis:
                raise
            continue
        if expected is Ellipsis or name in NUMBERS_AT_RANDOM | MASKS:
            continue
        if name in SINGULAR_VALUES:
            found, expected = found[:-1], expected[:-1]
        assert same(found, expected, 1e-9), (name, inspect.getsource(call), found, expected)
        rights += 1
    dispatched = isinstance(f, np.ufunc) or hasattr(f, "__wrapped__")
    if dispatched and not rights:
        assert any(name in refusal or f.__name__ in refusal for refusal in refusals), refusals
    COVERED["right" if rights else "refused"] += 1


def test_many_functions_are_covered():
    if sum(COVERED.values()) > 300:
        assert COVERED["right"] >= 190, COVERED


@pytest.mark.parametrize("ufunc", [np.add, np.multiply, np.maximum, np.minimum, np.logaddexp])
def test_reductions_of_ufuncs(ufunc):
    found = run(lambda x: [ufunc.reduce(x), ufunc.reduce(x, axis=1), ufunc.reduce(x, axis=None), ufunc.outer(x, V)], X)
    assert same(found, [ufunc.reduce(X), ufunc.reduce(X, axis=1), ufunc.reduce(X, axis=None), ufunc.outer(X, V)])


@pytest.mark.parametrize("call", [
    lambda x: np.add.at(x, [0], 1.0), lambda x: np.add.reduceat(x, [0, 1]), lambda x: np.arctan2.reduce(x),
    lambda x: np.subtract.accumulate(x), lambda x: np.exp(x, where=X > 0), lambda x: np.exp(x, dtype="float32"),
    lambda x: np.spacing(x), lambda x: np.partition(x, 1), lambda x: np.sum(x, out=X), lambda x: np.linalg.svd(x),
])  # fmt: skip
def test_unsupported_functions_are_named(call):
    with pytest.raises(TypeError, match=r"at|reduceat|reduce|accumulate|exp|spacing|partition|sum|svd"):
        run(call, X)


def test_running_totals_of_ufuncs():
    assert same(
        run(lambda x: [np.add.accumulate(x), np.multiply.accumulate(x, axis=1)], X), [X.cumsum(0), X.cumprod(1)]
    )


def test_matrices_are_factored_and_systems_solved():
    def body(s, v):
        q, r = np.linalg.qr(s)
        sign, size = np.linalg.slogdet(s)
        return [np.linalg.solve(s, v), np.linalg.inv(s), np.linalg.det(s), np.linalg.cholesky(s), q @ r, sign, size]

    found = run(body, S, V)
    assert same(found, body(S, V), 1e-10)
