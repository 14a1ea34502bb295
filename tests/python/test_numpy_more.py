"""NumPy functions on Arrays that consist of several operations: numbers like NumPy's, derivatives like differences."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

import burtorch as bt

np = pytest.importorskip("numpy")

CASES = runpy.run_path(str(Path(__file__).with_name("array_cases.py")))
run, same = CASES["run"], CASES["same"]

RNG = np.random.default_rng(11)
X = RNG.normal(size=(3, 4))
Y = RNG.normal(size=(3, 4))
V = RNG.normal(size=5)
W = RNG.normal(size=3)
TALL = RNG.normal(size=(5, 3))
SQUARE = X[:, :3] + 3.0 * np.eye(3)
CUBES = RNG.normal(size=(2, 3, 2, 3)) + 4.0 * np.eye(6).reshape(2, 3, 2, 3)
INTEGERS = RNG.integers(-7, 8, (3, 4))
HOLES = np.where(RNG.random((4, 5)) < 0.4, np.nan, RNG.normal(size=(4, 5)))
HOLES[2] = np.nan
SPECIAL = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, -1.0, 2.5, -2.5, 0.5, 1e300])
ROWS = np.repeat(SPECIAL[:, None], len(SPECIAL), 1)
MASK = np.array([[True, False, True, True], [False, False, False, False], [True, True, True, False]])
KNOTS = np.array([-1.0, -0.25, 0.5, 0.75, 2.0])
BINS = np.array([-1.0, 0.0, 0.0, 0.5, 2.0])
AXES = [{"axis": axis, "keepdims": keepdims} for axis in (None, 0, -1, (0, 1)) for keepdims in (False, True)]

ELEMENTS = {
    "fmax": (np.fmax, ROWS, ROWS.T), "fmin": (np.fmin, ROWS, ROWS.T), "fmod": (np.fmod, X * 9, Y),
    "fmod of integers": (np.fmod, INTEGERS, np.array([3, -2, 5, -4])),
    "copysign": (np.copysign, np.abs(ROWS[1:]), ROWS.T[1:]), "copysign of integers": (np.copysign, INTEGERS, X),
    "logaddexp2": (np.logaddexp2, X * 50, Y), "heaviside": (np.heaviside, ROWS, ROWS.T), "fix": (np.fix, SPECIAL),
    "float_power": (np.float_power, np.abs(X), Y), "signbit": (np.signbit, SPECIAL[1:]), "rint": (np.rint, SPECIAL),
    "ldexp": (lambda x: np.ldexp(x, [1, -3, 0, 7]), X), "ldexp far": (lambda x: np.ldexp(x * 1e-300, 1500), X),
    "ldexp of Arrays": (np.ldexp, X, INTEGERS), "angle": (np.angle, SPECIAL), "imag": (np.imag, X),
    "modf": (np.modf, SPECIAL), "modf of integers": (np.modf, INTEGERS), "vecdot": (np.vecdot, X, Y[0]),
    "matvec": (np.matvec, np.stack([X, Y]), V[:4]), "vecmat": (np.vecmat, np.stack([W, W + 1.0]), X),
    "angle in degrees": (lambda x: np.angle(x, deg=True), X), "rint of integers": (np.rint, INTEGERS),
    "floor of integers": (np.floor, INTEGERS), "fix of integers": (np.fix, INTEGERS),
    "signbit of integers": (np.signbit, INTEGERS), "nan_to_num": (np.nan_to_num, SPECIAL),
    "nan_to_num of integers": (np.nan_to_num, INTEGERS), "select": (
        lambda x, y: np.select([x > 1, y > 0, x < -1], [x, y * 2, 0.5], default=-1.0), X, Y),
    "select of known masks": (lambda x: np.select([MASK, ~MASK[0]], [x, 7]), X),
    "piecewise": (lambda x: np.piecewise(x, [x < 0, x > 1], [lambda x: -x, lambda x: np.log(x), 0.5]), X),
    "piecewise by one mask": (lambda x: np.piecewise(x, x < 0, [lambda x, k: k * x, 1.0], 3.0), V),
    "piecewise, the last holds": (lambda x: np.piecewise(x, [x > -1, x > 0], [1.0, 2.0]), X),
    "isposinf": (lambda x: [np.isposinf(x), np.isneginf(x), np.isreal(x), np.iscomplex(x)], SPECIAL),
    "isposinf of integers": (lambda x: [np.isposinf(x), np.isneginf(x)], INTEGERS),
    "real_if_close": (np.real_if_close, X), "astype": (lambda x: [np.astype(x, t) for t in (int, bool, float)], X * 9),
    "astype of integers": (lambda x: [np.astype(x, t, copy=False) for t in (int, bool, float)], INTEGERS),
    "isin": (lambda x, i: [np.isin(i, [3, -2]), np.isin(i, i[0], invert=True), np.isin(2, i), np.isin(x, []),
                           np.isin(x, x[1:, 1])], X, INTEGERS),
    "isclose": (lambda x: [np.isclose(x, list(SPECIAL), equal_nan=e) for e in (False, True)]
                + [np.isclose(list(SPECIAL[::-1]), x, 0.1, equal_nan=True), np.isclose(x, 0.0, atol=2)], SPECIAL),
    "clip by min and max": (lambda x: [np.clip(x, min=-0.5, max=0.5), np.clip(x, max=0.1), np.clip(x, min=0.1)], X),
}  # fmt: skip
for decimals in (-2, -1, 1, 2, 5):
    ELEMENTS[f"round to {decimals}"] = (lambda x, n=decimals: np.round(x, n), X * 100)
    ELEMENTS[f"round integers to {decimals}"] = (lambda x, n=decimals: np.round(x, n), INTEGERS * 25)

ORDERS = {
    "take wrap": (lambda x: np.take(x, [-5, 9, 1], mode="wrap", axis=1), X),
    "take clip": (lambda x: np.take(x, [[-5, 9], [1, 2]], mode="clip", axis=0), X),
    "take clip of all": (lambda x: np.take(x, 99, mode="clip"), X),
    "take of Arrays": (lambda x, i: [np.take(x, i, mode="wrap"), np.take(x, i, 0, mode="clip")], X, INTEGERS),
    "argsort of a number": (lambda x: np.argsort(x[0, 0]), X), "sort of all": (lambda x: np.sort(x, axis=None), X),
    "searchsorted": (lambda x: [np.searchsorted(BINS, x, side) for side in ("left", "right")], X),
    "searchsorted edges": (lambda x: [np.searchsorted([-1.0, -0.0, 0.5, np.nan, np.nan], x, side)
                                      for side in ("left", "right")], SPECIAL),
    "searchsorted in one and none": (lambda x: [np.searchsorted([0.5], x), np.searchsorted([], x)], X),
    "searchsorted in Arrays": (lambda bins: np.searchsorted(np.sort(bins), X, "right"), V),
    "searchsorted by a sorter": (lambda x: np.searchsorted(BINS[::-1], x, sorter=np.arange(4, -1, -1)), X),
    "searchsorted integers": (lambda x: np.searchsorted([-3, 0, 4], x), INTEGERS),
    "digitize": (lambda x: [np.digitize(x, b, right) for b in (BINS, BINS[::-1]) for right in (False, True)], SPECIAL),
    "take_along_axis of all": (lambda x: np.take_along_axis(x, np.array([3, 0, 11, 3]), None), X),
    "compress": (lambda x: [np.compress([True, False, True], x, axis=0), np.compress([0, 2], x), np.extract(MASK, x),
                            np.compress(MASK[0], x, axis=-1), np.extract(INTEGERS, x)], X),
    "full_like": (lambda x, i: [np.full_like(x, x[0, 1]), np.full_like(x, x[0]), np.full_like(x, 2, dtype=int),
                                np.full_like(i, x[0, 0], dtype=float, shape=(2,))], X, INTEGERS),
    "places": (lambda x: [x[:, :3][np.triu_indices_from(x[:, :3])], x[np.tril_indices_from(x, -1)],
                          x[np.triu_indices_from(x, k=1)], x[:, 1:][np.diag_indices_from(x[:, 1:])]], X),
    "insert": (lambda x: [np.insert(x, 1, 9.0, 0), np.insert(x, [0, 2, 2], [1, 2, 3], 1),
                          np.insert(x, 5, [7.0, 8.0])], X),
    "insert more": (lambda x, y: [np.insert(x, slice(0, 3, 2), y[:2], 0), np.insert(x, -1, y.T[:3], axis=1),
                                  np.insert(x, [1], y.T[:3, :3], axis=1), np.insert(x, MASK[0], 0.0, 1)], X, Y),
    "delete": (lambda x: [np.delete(x, 1, 0), np.delete(x, [0, -1], 1), np.delete(x, slice(1, 9, 3)),
                          np.delete(x, MASK[0], 1)], X),
    "block": (lambda x, y: [np.block([[x, y], [y, x]]), np.block([x, y]), np.block([[x], [2.0 * np.ones((1, 4))]]),
                            np.block([x[0], 1.0]), np.block(x), np.block([[[x]], [[y]]])], X, Y),
    "resize": (lambda x: [np.resize(x, (2, 7)), np.resize(x, 3), np.resize(x, (0, 2))], X),
    "diagonal": (lambda x: [np.diagonal(x), np.diagonal(x, 1), np.diagonal(x, -1, 1, 0)], X),
    "unwrap": (lambda x: [np.unwrap(x), np.unwrap(x, axis=0, period=4.0), np.unwrap(x, 5.0)], np.cumsum(X, 1) * 5),
    "unwrap at half a turn": (lambda x: np.unwrap(x, period=2), np.array([0.0, 1.0, 0.0, -1.0, 2.0, 3.0])),
    "cumulative": (lambda x: [f(x, axis=k, include_initial=i) for f in (np.cumulative_sum, np.cumulative_prod)
                              for k in (0, -1) for i in (False, True)], X),
    "cumulative of a row": (lambda v: np.cumulative_sum(v, include_initial=True), V),
    "apply_along_axis": (lambda x: [np.apply_along_axis(f, k, x) for k in (0, -1) for f in (
        np.sum, np.cumsum, lambda row: np.outer(row, row[:2]))], RNG.normal(size=(2, 3, 4))),
    "apply_along_axis with more": (lambda x: np.apply_along_axis(lambda row, k, p: row[k] ** p, 1, x, 2, p=3), X),
    "interp": (lambda x: [np.interp(x, KNOTS, V), np.interp(x, KNOTS, V, left=-9.0, right=9.0),
                          np.interp(x, KNOTS, V, period=1.3), np.interp(x, [0.25], [3.0])], X),
    "interp edges": (lambda x: np.interp(x, [-1.0, 0.5, 0.5, 2.5, 2.5], V), SPECIAL),
    "interp of Arrays": (lambda xp, fp: [np.interp(X, np.sort(xp), fp), np.interp(0.1, np.sort(xp), fp)], KNOTS, V),
    "interp by values": (lambda fp: [np.interp(X, KNOTS, fp, period=2.0), np.interp(0.2, [0.0], fp[:1])], V),
    "gradient": (lambda x: [np.gradient(x, axis=0), *np.gradient(x), np.gradient(x[0], 0.5), *np.gradient(x, 2.0, 3.0),
                            *np.gradient(x, edge_order=2), np.gradient(x, axis=(1, 0))[0]], X),
    "gradient at coordinates": (lambda x, t: [
        np.gradient(x, KNOTS[:4], axis=1), *np.gradient(x, 2.0, t), *np.gradient(x, KNOTS[1:4], t, edge_order=2),
        np.gradient(x[0], [0, 1, 3, 4]), np.gradient(x[0], [0, 2, 4, 6]), np.gradient(x[:2], KNOTS[:2], axis=0)],
        X, np.array([-1.0, 0.5, 0.75, 3.0])),
    "gradient of short rows": (lambda x: [np.gradient(x[:2], axis=0),
                                          np.gradient(x[:, :3], 2.0, axis=1, edge_order=2)], X),
    "convolve": (lambda a, b: [f(p, q, mode) for f in (np.convolve, np.correlate) for mode in ("full", "same", "valid")
                               for p, q in ((a, b), (b, a), (a, a), (b[:2], a), (a[:4], b[:2]), (a, b[:1]))], V, W),
    "convolve integers": (lambda i: [np.convolve(i[0], i[1]), np.correlate(i[0], [1, 2, 3], "same")], INTEGERS),
    "vander": (lambda v: [np.vander(v), np.vander(v, 3), np.vander(v, 4, increasing=True), np.vander(v, 0)], V),
    "vander of integers": (lambda i: np.vander(i[0], 3), INTEGERS),
    "polymul": (lambda p, q: [np.polymul(p, q), np.polymul(p, [1, 2]), np.polymul([3.0], q)], V, W),
    "polyadd": (lambda p, q: [f(a, b) for f in (np.polyadd, np.polysub) for a, b in ((p, q), (q, p), (p, p), (p, 2.0),
                                                                                   ([1, 2], q), (p, [1] * 7))], V, W),
    "polyder": (lambda p: [np.polyder(p, m) for m in range(7)] + [np.polyder(p)], V),
    "polyint": (lambda p: [np.polyint(p), np.polyint(p, 0), np.polyint(p, 3), np.polyint(p, 1, 2.5),
                           np.polyint(p, 2, [1, 2])], V),
    "polyder of integers": (lambda i: [np.polyder(i[0], 2), np.polyint(i[0]), np.polyadd(i[0], 1)], INTEGERS),
    "ediff1d": (lambda x: [np.ediff1d(x), np.ediff1d(x, [1.0, 2.0]), np.ediff1d(x, to_begin=x[0, 0])], X),
    "unstack": (lambda x: [np.unstack(x, axis=k) for k in (0, 1, -1)] + [np.unstack(x[0])], X),
    "linspace": (lambda x, y: [np.linspace(x, y, 3), np.linspace(x[0], 1, 4, endpoint=False), np.linspace(2, y[0, 0]),
                               np.linspace(x, y[0], 5, axis=1), np.linspace(x, y, 2, axis=-1), np.linspace(x, 0, 1),
                               np.linspace(x, y, 0), *np.linspace(x, y, 7, retstep=True), np.linspace(x, y, 1, False),
                               np.linspace(x, x, 3), np.linspace(x, y, num=2, endpoint=False)], X, Y),
    "linspace rounds": (lambda x, y: np.linspace(x * 9, y, 4, dtype=int), X, Y),
    "linspace of integers": (lambda i: [np.linspace(i[0], i[1], 4), np.linspace(i[0, 0], 5, 3)], INTEGERS),
    "logspace": (lambda x, y: [
        np.logspace(x, y, 3), np.logspace(x[0], 1, 4, endpoint=False, base=2.0),
        np.logspace(0, y[0], 5, base=1.5, axis=1), np.logspace(0, 1, 3, base=y[0, 0] + 9)], X, Y),
    "geomspace": (lambda x, y: [
        np.geomspace(abs(x), abs(y), 4), np.geomspace(-abs(x[0]), -2, 4, endpoint=False),
        np.geomspace(3, abs(y), 5, axis=1), *(np.geomspace(abs(x), abs(y), n) for n in (0, 1, 2))], X, Y),
    **{f"pad {mode}": (lambda x, mode=mode: [np.pad(x, width, mode) for width in (
        0, 1, (2, 0), ((1, 2), (0, 3)), ((7, 5), (9, 11)), {1: 2}, {-2: (0, 1)})], X)
       for mode in ("constant", "edge", "reflect", "symmetric", "wrap")},
    "pad one": (lambda v: [np.pad(v[:1], 2, mode) for mode in ("edge", "reflect", "symmetric", "wrap")], V),
    "pad constants": (lambda x: [np.pad(x, 1, constant_values=-2), np.pad(x, (1, 2), constant_values=(3, 4.5)),
                                 np.pad(x, 1, constant_values=((1, 2), (3, 4)))], X),
    "pad of integers": (lambda i: [np.pad(i, 2, mode) for mode in ("edge", "reflect", "symmetric", "wrap")], INTEGERS),
    "join as a type": (lambda x, i: [f([i, x], dtype=float) for f in (np.concatenate, np.vstack, np.hstack, np.stack)]
                       + [np.vstack([i, i], dtype=float), np.stack([i, x], 1, dtype=int, casting="unsafe"),
                          np.concatenate([i, i], None, dtype=float)], X, INTEGERS),
    "polyval": (lambda p, x: [np.polyval(p, x), np.polyval([1.0, -2.0, 0.5], x), np.polyval(p, 0.3), np.polyval([], x)],
                V, X),
}  # fmt: skip

METHODS = (
    *("linear", "lower", "higher", "nearest", "midpoint", "inverted_cdf", "interpolated_inverted_cdf", "hazen"),
    *("weibull", "median_unbiased", "normal_unbiased"),
)
REDUCED = {
    "sum where": lambda x, **axes: np.sum(x, where=MASK, **axes),
    "sum initial": lambda x, **axes: np.sum(x, initial=2.5, where=MASK[:, :1], **axes),
    "prod where": lambda x, **axes: [np.prod(x, where=MASK, **axes), np.prod(x, initial=3.0, **axes)],
    "max": lambda x, **axes: [np.max(x, initial=0.5, **axes), np.max(x, initial=-9.0, where=MASK, **axes)],
    "min": lambda x, **axes: [np.min(x, initial=0.5, **axes), np.min(x, initial=9.0, where=MASK, **axes)],
    "any": lambda x, **axes: [np.any(x > 0, where=MASK, **axes), np.all(x > 0, where=MASK, **axes)],
    "mean": lambda x, **axes: np.mean(x, where=MASK, **axes),
    "var": lambda x, **axes: [np.var(x, where=MASK, **axes), np.var(x, correction=1, **axes)],
    "std": lambda x, **axes: [np.std(x, where=MASK, ddof=1, **axes), np.std(x, correction=2, **axes)],
    "var mean": lambda x, **axes: np.var(x, mean=np.mean(x, axis=axes["axis"], keepdims=True), **axes),
    "add.reduce": lambda x, **axes: [np.add.reduce(x, where=MASK, **axes), np.maximum.reduce(x, initial=0.0, **axes)],
    "dtypes by position": lambda x, axis, keepdims=False: [
        f(x, axis, float, None, keepdims) for f in (np.sum, np.prod, np.mean)] + [
        f(x, axis if isinstance(axis, int) else -1, float) for f in (np.cumsum, np.cumprod)],
    "average": lambda x, **axes: [*np.average(x, returned=True, **axes),
                                  *np.average(x, weights=MASK + 0.5, returned=True, **axes)],
    "sum to integers": lambda x, **axes: np.sum(x, dtype=int, **axes),
    **{f"quantile {method}": lambda x, method=method, **axes: [
        np.quantile(x, [0.0, 0.3, 0.5, 1.0], method=method, **axes), np.percentile(x, 62.5, method=method, **axes)]
       for method in METHODS},
}  # fmt: skip

NAN = {name: getattr(np, name) for name in ("nansum", "nanprod", "nanmax", "nanmin", "nanmean", "nanvar", "nanstd")}
NAN["nanmedian"] = np.nanmedian
NAN.update({f"nanquantile {method}": lambda x, method=method, **axes: [
    np.nanquantile(x, [[0.0, 0.3], [0.5, 1.0]], method=method, **axes),
    np.nanpercentile(x, 62.5, method=method, **axes)]
            for method in METHODS})  # fmt: skip
NAN["where"] = lambda x, **axes: [
    f(x, where=np.arange(len(x))[:, None] != 1, **axes) for f in (np.nanmean, np.nanstd, np.nanvar)] + [
    np.nanvar(x, where=[[True]], ddof=1, **axes), np.nanvar(x, mean=np.nanmean(x, axis=axes["axis"], keepdims=True) + 1,
                                                           **axes)]  # fmt: skip
NAN["nanvar ddof"] = lambda x, **axes: [np.nanvar(x, ddof=2, **axes), np.nanstd(x, correction=1, **axes)]

MATRICES = {
    "powers": (lambda a: [np.linalg.matrix_power(a, n) for n in (-3, -1, 0, 1, 2, 5, 8)], SQUARE),
    "powers of several": (lambda a: np.linalg.matrix_power(a, 3), np.stack([SQUARE, SQUARE.T])),
    "lstsq": (lambda a, b: np.linalg.lstsq(a, b)[:3], TALL, V),
    "lstsq, several": (lambda a, b: np.linalg.lstsq(a, b)[:3], TALL, RNG.normal(size=(5, 2))),
    "lstsq, wide": (lambda a, b: np.linalg.lstsq(a.T, b)[:3], TALL, W),
    "triangular": (lambda a: [np.linalg.qr(a, "r"), np.linalg.qr(a.T, mode="r"), np.linalg.qr(a[:2] + 2, mode="r"),
                              np.linalg.qr(np.stack([a, 2 * a]), mode="r")], TALL),
    "complete": (lambda a, b: [*np.linalg.qr(a + 2 * np.eye(3), mode="complete"), np.linalg.qr(b, "complete")[1],
                               np.linalg.qr(b, mode="complete")[0][:, :3], *np.linalg.qr(b.T, mode="complete"),
                               *np.linalg.qr(np.stack([a, a.T]), mode="complete")], SQUARE, TALL),
    "cholesky": (lambda a: [np.linalg.cholesky(a @ a.T, upper=True), np.linalg.cholesky(a @ a.T, upper=False),
                            np.linalg.cholesky(np.stack([a @ a.T, np.eye(3)]), upper=True)], SQUARE),
    "tensorsolve": (lambda a, b: [
        np.linalg.tensorsolve(a, b), np.linalg.tensorsolve(a.transpose(2, 0, 1, 3), b.T, (0, 2))[:1],
        np.linalg.tensorsolve(np.eye(4).reshape(2, 2, 4), b[0, :2, None] * b[1, :2])], CUBES, X[:2, :3]),
    "tensorinv": (lambda a: [np.linalg.tensorinv(a), np.linalg.tensorinv(a.reshape(6, 2, 3), ind=1)], CUBES),
    "vector_norm": (lambda a: [np.linalg.vector_norm(a, axis=axis, ord=p, keepdims=k) for axis in ((0, 1), (2, 0), 1)
                               for p in (1, 2, 3, np.inf) for k in (False, True)], CUBES[0]),
    "trace": (lambda a: [np.trace(a, dtype=float), np.linalg.trace(a, offset=1, dtype=float)], SQUARE),
    "pinv": (lambda a: [np.linalg.pinv(a), np.linalg.pinv(a.T), np.linalg.pinv(np.stack([a, 2 * a]))], TALL),
    "cov": (lambda x, y: [np.cov(x), np.cov(x, y), np.cov(x, rowvar=False), np.cov(x, bias=True),
                          np.cov(x, ddof=2), np.cov(x, dtype=float)], X, Y),
    "cov with weights": (lambda x, y, w: [
        np.cov(x, aweights=w), np.cov(x, y, aweights=w, ddof=0), np.cov(x, fweights=[1, 0, 2, 3]),
        np.cov(x, fweights=[1, 0, 2, 3], aweights=w, bias=True), np.cov(x, fweights=[2, 1, 2, 3], aweights=w),
        np.cov(x[0], aweights=w)], X, Y, np.abs(X[0]) + 0.5),
    "cov of rows": (lambda v: [np.cov(v), np.cov(v, v**2), np.corrcoef(v, v**3), np.corrcoef(v)], V),
    "corrcoef": (lambda x, y: [np.corrcoef(x), np.corrcoef(x, y), np.corrcoef(x, rowvar=False)], X, Y),
}  # fmt: skip
TABLE = {**ELEMENTS, **ORDERS, **MATRICES}


def listed(x):
    return [one for part in x for one in listed(part)] if isinstance(x, (list, tuple)) else [x]


def in_all_ways(body, arrays, tolerance=1e-12):
    """The results of a body when traced, replayed, and evaluated eagerly, compared with NumPy's."""
    with np.errstate(all="ignore"):
        expected = listed(body(*arrays))
    assert same(listed(run(body, *arrays)), expected, tolerance)
    traced = bt.function(lambda *arrays: listed(body(*arrays)))(*arrays)
    assert same(traced, expected, tolerance)
    for found, one in zip(traced, expected):
        if np.asarray(one).dtype.kind == "b" or np.asarray(one).dtype.kind == "f":
            assert np.asarray(found).dtype.kind == np.asarray(one).dtype.kind
    at_once = listed(body(*(bt.array(x) for x in arrays)))
    assert same([x.data if isinstance(x, bt.Array) else x for x in at_once], expected, tolerance)


@pytest.mark.parametrize("name", list(TABLE))
@pytest.mark.filterwarnings("ignore")
def test_numbers_are_those_of_numpy(name):
    body, *arrays = TABLE[name]
    in_all_ways(body, arrays)


@pytest.mark.parametrize("axes", AXES, ids=str)
@pytest.mark.parametrize("name", list(REDUCED))
@pytest.mark.filterwarnings("ignore")
def test_reductions_are_those_of_numpy(name, axes):
    for x in (X, np.round(X), INTEGERS, np.where(MASK, X, np.nan)):
        if not (x.dtype.kind == "f" and np.isnan(x).any() and name == "sum to integers"):
            in_all_ways(lambda x: REDUCED[name](x, **axes), [x])


@pytest.mark.parametrize("axes", AXES, ids=str)
@pytest.mark.parametrize("name", list(NAN))
@pytest.mark.filterwarnings("ignore")
def test_reductions_without_nan_are_those_of_numpy(name, axes):
    for x in (HOLES, X, INTEGERS):
        in_all_ways(lambda x: NAN[name](x, **axes), [x])
    in_all_ways(lambda x: [np.nancumsum(x, 0), np.nancumprod(x, 1), np.nancumsum(x)], [HOLES])


def test_quantiles_of_rows_without_nan_are_those_of_quantile():
    ends = np.array([[1.0, 2.0, np.inf, -np.inf][k] for k in RNG.integers(0, 4, 400)]).reshape(100, 4)
    for x in (RNG.normal(size=(50, 5)), ends):
        for q in (0.0, 0.2, 0.5, 0.7, 1.0):
            expected = bt.quantile(bt.array(x), q, axis=1).data
            assert np.nanquantile(bt.array(x), q, axis=1).data.tobytes() == expected.tobytes()
    given = np.array([[np.nan, 3.0, 1.0, 5.0], [np.nan] * 4])
    assert bt.grad(lambda x: np.nanmedian(x[0]))(given).tolist() == [[0.0, 1.0, 0.0, 0.0], [0.0] * 4]
    assert bt.grad(lambda x: np.nanquantile(x[0], 0.25))(given).tolist() == [[0.0, 0.5, 0.5, 0.0], [0.0] * 4]


def test_a_complete_factor_has_a_gradient_where_it_is_the_reduced_one():
    def cubes(mode, part):
        return bt.grad(lambda a: (np.linalg.qr(a, mode)[0][part] ** 3).sum())(TALL)

    reduced, beyond = (..., slice(3)), (..., slice(3, None))
    assert cubes("complete", reduced).tobytes() == cubes("reduced", reduced).tobytes()
    assert np.isnan(cubes("complete", beyond)).all()


def test_values_fill_an_array_with_their_gradient():
    w = bt.Parameters(dtype="float64").tensor(3, init=2.0)
    fills = [(w[0], [6.0, 0.0, 0.0]), (w, [2.0, 2.0, 2.0]), (w * 2, [4.0, 4.0, 4.0])]
    for number, expected in fills:
        for fill in (lambda x, k: np.full_like(x, k), lambda x, k: np.full_like(x, fill_value=k)):
            w.zero_grad()
            fill(bt.array(np.ones((2, 3))), number).sum().backward()
            assert list(w.grads) == expected


def test_a_traced_condition_does_not_determine_a_shape():
    for f in (np.compress, np.extract):
        assert f(bt.array(V) > 0, bt.array(V)).data.tolist() == V[V > 0].tolist()
        with pytest.raises(TypeError, match=f"numpy.{f.__name__} of Arrays.*condition must be known"):
            bt.function(lambda v, f=f: f(v > 0, v))(V)


def test_places_of_extremes_leave_nan_out():
    for f in (np.nanargmax, np.nanargmin):
        for axis in (0, 1, None):
            x = HOLES[[0, 1, 3], 1:]
            x = np.where(np.isnan(x).all(0), 0.5, x)
            in_all_ways(lambda x, f=f, axis=axis: [f(x, axis), f(x, axis, keepdims=True)], [x])
            in_all_ways(lambda x, f=f, axis=axis: f(x, axis), [INTEGERS])
        assert f(bt.array(HOLES), axis=1).data[2] == -1


def test_reductions_of_no_elements():
    none = np.zeros((0, 3))
    in_all_ways(lambda x: [np.max(x, axis=0, initial=2.0), np.min(x, initial=-2.0), np.sum(x, 0, initial=1.5)], [none])
    in_all_ways(lambda x: [np.prod(x, axis=1, keepdims=True, initial=3.0), np.nansum(x, axis=0)], [none])
    for f in (np.max, np.min):
        with pytest.raises(ValueError, match="initial"):
            run(lambda x, f=f: f(x, where=MASK), X)


def differences(body, arrays, k):
    """The derivative of the weighted sum of a body's results with respect to its k-th array."""

    def total(*arrays):
        return sum((np.asarray(one) * weights(np.shape(one))).sum() for one in listed(body(*arrays)))

    slopes, x = np.zeros(arrays[k].size), arrays[k].astype(float)
    for j in range(x.size):
        step = np.zeros(x.size)
        step[j] = 1e-6
        ends = [total(*arrays[:k], x + way * step.reshape(x.shape), *arrays[k + 1 :]) for way in (1, -1)]
        slopes[j] = (ends[0] - ends[1]) / 2e-6
    return slopes.reshape(x.shape)


def weights(shape):
    return np.cos(1.0 + np.arange(np.prod(shape, dtype=int))).reshape(shape)


def total(body):
    """The weighted sum of a body's results on Arrays."""

    def summed(*arrays):
        parts = [one for one in listed(body(*arrays)) if isinstance(one, bt.Array)]
        return sum(((one * weights(one.shape)).sum() for one in parts), 0.0)

    return summed


SMOOTH = {
    name: case for name, case in TABLE.items() if all(x.dtype.kind == "f" and np.isfinite(x).all() for x in case[1:])
    and not any(word in name for word in ("round", "rint", "searchsorted", "far", "half"))
}  # fmt: skip
SMOOTH.update({name: (lambda x, f=f: f(x, axis=1), X) for name, f in REDUCED.items() if "integers" not in name})
SMOOTH["std"] = (lambda x: np.std(x, axis=0, correction=1, where=MASK[:, :1] | ~MASK), X)
OF_ROWS, OF_ALL = (np.nansum, np.nanmax, np.nanmin, np.nanprod), (np.nanmean, np.nanvar, np.nanstd, np.nanmedian)
SMOOTH["nan quantiles"] = (
    lambda x: [np.nanquantile(np.where(MASK, x, np.nan)[::2], [0.2, 0.9], axis=k) for k in (0, 1, None)],
    X,
)
SMOOTH["nan"] = (lambda x: [f(np.where(MASK, x, np.nan), axis=1) for f in OF_ROWS], X)
SMOOTH["nan means"] = (lambda x: [f(np.where(MASK, x, np.nan)) for f in OF_ALL], X)


@pytest.mark.parametrize("name", list(SMOOTH))
@pytest.mark.filterwarnings("ignore")
def test_derivatives_are_differences(name):
    body, *arrays = SMOOTH[name]
    summed = total(body)
    given = [bt.array(x) for x in arrays]
    result = summed(*given)
    if isinstance(result, bt.Array):
        result.backward()
    for k, x in enumerate(arrays):
        expected = differences(body, arrays, k)
        found = bt.grad(summed, argnums=k)(*arrays)
        finite = np.isfinite(expected)
        np.testing.assert_allclose(found[finite], expected[finite], rtol=2e-6, atol=2e-7)
        assert found.shape == x.shape
        if isinstance(result, bt.Array):
            np.testing.assert_allclose(given[k].grad, found, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", list(SMOOTH))
@pytest.mark.filterwarnings("ignore")
def test_batches_are_rows(name):
    body, *arrays = SMOOTH[name]
    summed = total(body)
    batch = [np.stack([x, x[::-1].copy() if name not in ("interp of Arrays",) else x]) for x in arrays]
    try:
        expected = [bt.grad(summed)(*(x[k] for x in batch)) for k in range(2)]
    except np.linalg.LinAlgError:
        return
    np.testing.assert_allclose(bt.vmap(bt.grad(summed))(*batch), np.stack(expected), rtol=1e-11, atol=1e-12)


REFUSED = {
    **dict.fromkeys(("argwhere", "flatnonzero", "nonzero", "unique", "union1d", "where"), "depends on numbers"),
    **dict.fromkeys(("nextafter", "frexp", "spacing", "partition", "polyfit", "histogram"), "no such function"),
    **dict.fromkeys(("linalg.cond", "linalg.svd", "linalg.eigh", "fft.fft", "einsum_path"), "no such function"),
}


@pytest.mark.parametrize("f", [np.argwhere, np.flatnonzero, np.nonzero, np.where])
def test_positions_outside_traces_are_numbers(f):
    for found in (f(bt.array(X) > 0), f(bt.array(np.where(X > 0, X, 0.0)))):
        np.testing.assert_array_equal(found, f(X > 0))


@pytest.mark.parametrize(
    "body",
    [lambda x: np.where([True, False, True], x, [1, 2, 3.0]), lambda x: np.where(x > 0.5, (1.0, 2.0, 3.0), x),
     lambda x: np.clip([1.0, 2.0, 3.0], x, x + 1), lambda x: np.clip(x, [0.5, 0.0, 0.0], (1.0, 2.0, 1.5)),
     lambda x: np.select([x > 0.5], [[1.0, 2.0, 3.0]], [4.0, 5.0, 6.0])],
)  # fmt: skip
def test_lists_are_operands(body):
    x = np.array([0.0, 1.0, 2.0])
    np.testing.assert_array_equal(run(body, x), body(x))
    assert bt.jacobian(body)(x).shape == (3, 3)


N_OPERANDS = {"nextafter": 2, "union1d": 2, "polyfit": 3, "partition": 2}
WRONG = {
    "quantile": lambda x: np.quantile(x, 0.5, weights=X), "ldexp": lambda x: np.ldexp(x, 0.5),
    "percentile": lambda x: np.percentile(x, 50, method="closest_observation"),
    "take": lambda x: np.take(x, 0, mode="fill"),
    "linalg.lstsq": lambda x: np.linalg.lstsq(x, V[:3], rcond=0.1), "cov": lambda x: np.cov(x, fweights=V[:4]),
    "linalg.pinv": lambda x: np.linalg.pinv(x, rcond=0.1), "sum": lambda x: np.sum(x, out=X),
    "linalg.matrix_power": lambda x: np.linalg.matrix_power(x, 2.5), "digitize": lambda x: np.digitize(0.5, x[0]),
    "pad": lambda x: np.pad(x, 1, "mean"),
    "concatenate": lambda x: np.concatenate([x, x], dtype=int), "logspace": lambda x: np.logspace(x, 1, base=x[0]),
    "stack": lambda x: np.stack([x, x], dtype=int), "select": lambda x: np.select([x], [x]),
    "nanquantile": lambda x: np.nanquantile(x, 0.5, method="averaged_inverted_cdf"),
    "vstack": lambda x: np.vstack([x, x], dtype=bool), "isposinf": lambda x: np.isposinf(x, X > 0),
    "gradient": lambda x: np.gradient(x, 1.0, 2.0, axis=0), "exp": lambda x: np.exp(x, where=MASK),
    "linalg.qr": lambda x: np.linalg.qr(x, mode="raw"),
}  # fmt: skip


@pytest.mark.parametrize("name", [*REFUSED, *WRONG])
def test_refusals_are_type_errors_that_name_the_function(name):
    f = np
    for part in name.split("."):
        f = getattr(f, part)
    body = WRONG.get(name, lambda x: f(*[x] * N_OPERANDS.get(name, 1)))
    calls = [lambda: bt.function(body)(X), lambda: run(body, X), lambda: body(bt.array(X))]
    # Comparisons of Arrays have numbers outside traces.
    for call in calls[: 1 if name in ("argwhere", "flatnonzero", "nonzero", "where") else 3]:
        with pytest.raises(TypeError, match=rf"numpy\.{name}.*{REFUSED.get(name, '')}"):
            call()
    if name in REFUSED and name != "where":
        for call in (lambda: body(bt.Vector(V)), lambda: bt.function(body)(V)):
            with pytest.raises(TypeError, match=rf"numpy\.{name} does not take.*({REFUSED[name]}|no op)"):
                call()


@pytest.mark.parametrize("call", [
    lambda x: np.round(x, 2), lambda x: np.fmax(x, 0.5), lambda x: np.interp(x, KNOTS, V), np.gradient, np.nanmean,
    lambda x: np.sum(x, where=[True, False, True, True, False]), lambda x: np.convolve(x, W), np.signbit, np.vander,
    lambda x: np.quantile(x, 0.4, method="lower"), lambda x: np.select([x > 0], [x]), lambda x: np.sum(x[1]),
    lambda x: [f(x[2]) for f in (np.sum, np.mean, np.var, np.std, np.max, np.min, np.prod)],
    lambda x: np.round(x[0], 1), lambda x: np.linalg.matrix_power(np.outer(x, x), 2),
])  # fmt: skip
def test_a_body_that_vectors_do_not_do_is_traced_with_arrays(call):
    assert same(bt.function(lambda x: listed(call(x)))(V), listed(call(V)), 1e-13)


def test_ties_share_the_gradient_and_nan_receives_none():
    assert bt.grad(lambda x: np.fmax(x, 1.0).sum())(np.array([1.0, np.nan, 2.0])).tolist() == [0.5, 0.0, 1.0]
    assert bt.grad(lambda x: np.max(x, initial=1.0))(np.array([1.0, 0.0])).tolist() == [0.5, 0.0]
    assert bt.grad(lambda x: np.max(x, initial=1.0, where=[True, False]))(np.array([2.0, 2.0])).tolist() == [1.0, 0.0]
    assert bt.grad(np.nanmax)(np.array([3.0, np.nan, 3.0])).tolist() == [0.5, 0.0, 0.5]
    assert bt.grad(np.nanmean)(np.array([3.0, np.nan, 1.0])).tolist() == [0.5, 0.0, 0.5]
    assert bt.grad(lambda x: np.fmod(x, 2.0).sum())(np.array([0.0, 3.0, -3.0])).tolist() == [1.0, 1.0, 1.0]
    assert bt.grad(lambda x: np.round(x, 1).sum())(X).tolist() == np.zeros(X.shape).tolist()
    slopes = bt.grad(lambda x: np.interp(x, [0.0, 1.0, 2.0], [0.0, 1.0, 5.0]).sum())
    assert slopes(np.array([-1.0, 0.0, 0.5, 1.0, 2.0, 3.0])).tolist() == [0.0, 1.0, 1.0, 4.0, 4.0, 0.0]
    divided = bt.grad(lambda x: np.piecewise(x, [x > 0], [lambda x: 1.0 / x, 0.0]).sum())
    assert divided(np.array([0.0, 2.0])).tolist() == [0.0, -0.25]


@pytest.mark.parametrize(("words", "body"), [
    ("forbidden", lambda x: np.clip(x, 0.0, 2.0, max=1.0)),
    ("numbers of conditions and choices", lambda x: np.select([x > 0], [])),
    ("edge_order", lambda x: np.gradient(x[:1], axis=0)), ("side", lambda x: np.searchsorted(BINS, x, side="middle")),
    ("must be monotonic", lambda x: np.digitize(x, [0.0, 2.0, 1.0])), ("empty", lambda x: np.convolve(x[0, :0], x[0])),
    ("empty", lambda x: np.interp(x, [], [])), ("mode", lambda x: np.convolve(x[0], x[1], "odd")),
    ("equal length", lambda x: np.interp(x, [1.0, 2.0], [1.0])),
    ("not both", lambda x: np.var(x, ddof=1, correction=1)), ("axis", lambda x: np.sort(x[0, 0])),
    ("range", lambda x: np.quantile(x, 1.5, method="lower")), ("axis", lambda x: np.cumulative_sum(x)),
    ("are empty", lambda x: np.apply_along_axis(np.sum, 0, x[:, :0])),
    ("functions", lambda x: np.piecewise(x, [x > 0], [])), ("non-negative", lambda x: np.linspace(x, 1.0, -1)),
    ("at least 1-d", lambda x: np.unstack(x[0, 0])), ("range", lambda x: np.nanquantile(x, 1.5)),
    ("include zero", lambda x: np.geomspace(x, 0.0)), ("Order", lambda x: np.polyint(x[0], -1)),
    ("mode must be", lambda x: np.linalg.qr(x, "full")), ("ind", lambda x: np.linalg.tensorinv(x, 0)),
    ("as many elements", lambda x: np.linalg.tensorsolve(x, x[0])), ("1-d", lambda x: np.compress(MASK, x)),
    ("as many elements", lambda x: np.linalg.tensorinv(x, 1)), ("2-d", lambda x: np.tril_indices_from(x[0])),
    ("equal length", lambda x: np.diag_indices_from(x)), ("single dim", lambda x: np.take_along_axis(x, x > 0, None)),
    ("coordinates", lambda x: np.gradient(x, [0.0, 1.0], axis=0)), ("aweights", lambda x: np.cov(x, aweights=[1.0])),
    ("negative", lambda x: np.pad(x, -1, "edge")), ("Order", lambda x: np.polyder(x[0], -1)),
])  # fmt: skip
def test_wrong_values_are_value_errors(words, body):
    for call in (lambda: body(bt.array(X)), lambda: run(body, X)):
        with pytest.raises(ValueError, match=words):
            call()
