"""NumPy functions with valid and invalid axes, shapes and counts: results or errors, compared with NumPy's own.

Every row of the table runs on floats and integers of all shapes with all axes: out of range, negative, repeated, of
other types. Arrays refuse what NumPy refuses; if both accept, the results are equal. Cases that only Arrays refuse
are counted.
"""

from __future__ import annotations

import itertools
import runpy
import warnings
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")

CASES = runpy.run_path(str(Path(__file__).with_name("array_cases.py")))
run, same = CASES["run"], CASES["same"]

SHAPES = [(), (1,), (3,), (0,), (2, 3), (1, 3), (0, 3), (3, 3), (2, 3, 4), (2, 0, 3)]
NUMBERS = [None, 0, 1, 2, 3, -1, -2, -3, -4, 7]
TUPLES = [(0, 1), (1, 0), (0, 0), (0, -1), (1, -1), (0, 2), (5, 0), (0,), (), (0, 1, 2), (1.5, 0), [0, 1], 1.0, "0"]
AXES = [*NUMBERS, *TUPLES, np.int64(1)]
PAIRS = list(itertools.product([0, 1, 2, -1, -2, 3, -4], repeat=2))
COUNTS = [0, 1, 2, -1, 5, (1, 2), (1,), (), [1, 2], 1.5]
REDUCTIONS = ["sum", "prod", "mean", "max", "min", "var", "std", "any", "all", "argmax", "argmin"]

OTHERS = [
    *("ptp", "median", "nansum", "nanprod", "nanmax", "nanmin", "nanmean", "nanvar", "nanstd", "cumsum", "cumprod"),
    *("nancumsum", "nancumprod", "cumulative_sum", "cumulative_prod", "count_nonzero", "sort", "flip", "squeeze"),
    *("unwrap", "gradient", "average"),
]


def at(function, *arguments, **keywords):
    return lambda x, axis: function(x, *arguments, axis=axis, **keywords)


def each(function, choices):
    """Calls without an axis from the table."""
    return [lambda x, axis, choice=choice: function(x, choice) for choice in choices]


WITH_AXIS = {
    **{name: [at(getattr(np, name)), at(getattr(np, name), keepdims=True)] for name in REDUCTIONS},
    **{f"method {name}": [lambda x, axis, name=name: getattr(x, name)(axis)] for name in REDUCTIONS},
    **{name: [at(getattr(np, name))] for name in OTHERS},
    "reduce": [at(np.add.reduce), at(np.maximum.reduce), at(np.add.accumulate)],
    "initial": [at(np.cumulative_sum, include_initial=True), at(np.sum, initial=2.0)],
    "quantile": [at(np.quantile, 0.5), at(np.percentile, 30.0)],
    "expand_dims": [at(np.expand_dims)],
    "squeezed": [
        lambda x, axis: np.squeeze(x[None], axis),
        lambda x, axis: np.squeeze(x[..., None, None], axis),
        lambda x, axis: x.squeeze(axis),
    ],
    "diff": [at(np.diff), *(at(np.diff, n) for n in (0, 2, 5, -1))],
    "trapezoid": [
        at(np.trapezoid),
        at(np.trapezoid, dx=0.5),
        at(np.trapezoid, np.arange(3.0) ** 2),
        at(np.trapezoid, np.arange(2.0)),
        at(np.trapezoid, np.arange(6.0).reshape(2, 3) ** 2),
        at(np.trapezoid, np.array(2.0)),
        lambda x, axis: np.trapezoid(x, x, axis=axis),
    ],
    "gradient": [at(np.gradient), at(np.gradient, 2.0), at(np.gradient, 2.0, 3.0), at(np.gradient, edge_order=2)],
    "repeat": [at(np.repeat, n) for n in (*COUNTS, [1, 2, 0], [2], [], np.array(2))],
    "roll": [at(np.roll, n) for n in COUNTS],
    "take": [
        at(np.take, index, mode=mode)
        for index in (0, -1, 3, -4, [0, 1], [[0, 0], [1, -1]], [], 1.5, np.array([], int), [True, False])
        for mode in ("raise", "clip", "wrap")
    ],
    "take_along_axis": [
        lambda x, axis, index=index: np.take_along_axis(x, index, axis)
        for index in (
            *(np.array([0]), np.array([[0, 1, 0]]), np.array([[0], [1]]), np.array([5]), np.zeros((2, 3), int)),
            *(np.zeros((2, 3, 1), int), np.zeros(0, int), np.array([0.0])),
        )
    ],
    "concatenate": [
        *(
            lambda x, axis, shape=shape: np.concatenate([x, np.zeros(shape)], axis)
            for shape in ((3,), (2, 3), (1, 3), (), (2, 3, 4), (0,), (2, 0))
        ),
        lambda x, axis: np.concatenate([x, x], axis),
        lambda x, axis: np.concatenate([x], axis),
    ],
    "stack": [
        *(
            lambda x, axis, shape=shape: np.stack([x, np.zeros(shape)], axis)
            for shape in ((3,), (2, 3), (1, 3), (), (0,))
        ),
        lambda x, axis: np.stack([x, x], axis),
        lambda x, axis: np.stack([x], axis),
    ],
    "append": [lambda x, axis: np.append(x, x, axis), lambda x, axis: np.append(x, np.zeros((1, 3)), axis)],
    "split": [at(np.split, n) for n in (1, 2, 3, 0, -1, [1], [1, 2], [2, 1], [5], [-1], [], 1.5, np.int64(1))],
    "array_split": [at(np.array_split, n) for n in (1, 2, 3, 0, -1, [1], [2, 1], [5], [], 1.5, np.int64(2))],
    "insert": [at(np.insert, k, 9.0) for k in (0, 1, -1, 5, [0, 1], slice(1), [])],
    "delete": [at(np.delete, k) for k in (0, 1, -1, 5, [0, 1], slice(1), [])],
    "size": [at(np.size)],
    "weighted": [
        at(np.average, weights=np.arange(1.0, 4.0)),
        at(np.average, weights=np.arange(1.0, 3.0)),
        at(np.average, weights=np.ones((1, 3))),
        lambda x, axis: np.average(x, axis, abs(x) + 1.0),
    ],
    "cross": [
        lambda x, axis: np.cross(x, x, axis=-1 if axis is None else axis),
        lambda x, axis: np.cross(x, np.ones(3), axisa=-1 if axis is None else axis),
        lambda x, axis: np.cross(x, np.ones(3), axisc=-1 if axis is None else axis),
    ],
    "vecdot": [lambda x, axis: np.linalg.vecdot(x, x, axis=-1 if axis is None else axis)],
    "norm": [
        *(at(np.linalg.norm, ord) for ord in (None, 1, 2, -1, 0, 3, np.inf, -np.inf, "fro", "x")),
        at(np.linalg.norm, keepdims=True),
        at(np.linalg.vector_norm),
    ],
}
WITHOUT = {
    "shapes": [
        *(
            lambda x, _, f=f: f(x)
            for f in (np.fliplr, np.flipud, np.atleast_1d, np.atleast_2d, np.atleast_3d, np.ravel)
        ),
        *(lambda x, _, f=f: f([x, x]) for f in (np.hstack, np.vstack, np.dstack, np.column_stack)),
        *(lambda x, _, f=f: f(x, 1) for f in (np.hsplit, np.vsplit, np.dsplit)),
        *(lambda x, _, f=f: f(x) for f in (np.diag, np.diagflat, np.tril, np.triu, np.matrix_transpose, np.vander)),
        *(
            lambda x, _, f=f: f(x)
            for f in (np.trace, np.linalg.trace, np.linalg.diagonal, np.ediff1d, np.cov, len, list)
        ),
        *(lambda x, _, f=f: f(x, x) for f in (np.dot, np.inner, np.outer, np.vdot, np.matmul, np.kron, np.convolve)),
    ],
    "reshape": each(
        np.reshape, [-1, (3, -1), (-1, -1), (2, 3), (0, -1), (), (1, 1, -1), 6, (3, 2.0), (-2, 3), [-1, 1]]
    ),
    "broadcast_to": each(np.broadcast_to, [3, (3,), (2, 3), (2, 2, 3), (), (0, 3), (-1, 3), (4, 2, 3, 4), [2, 3]]),
    "tile": each(np.tile, [0, 1, 2, (2, 1), (1, 2), (2, 1, 1), (), -1, (2, -1), 1.5, [2, 2]]),
    "resize": each(np.resize, [3, (2, 2), (), 0, (0, 2), -1, (-1, 2), 2.5]),
    "pad": each(np.pad, [0, 1, (1, 2), ((1, 2),), ((1, 0), (0, 1)), -1, 1.5, ((1, 0), (0, 1), (1, 1)), (1, 2, 3)]),
    "swapaxes": each(lambda x, pair: np.swapaxes(x, *pair), [*PAIRS, (1.0, 0), (None, 0), ("0", 1)]),
    "moveaxis": each(
        lambda x, pair: np.moveaxis(x, *pair),
        [
            *(*PAIRS, (1.0, 0), (None, 0), ((0, 1), (1, 0)), ([0, 1], [1, 0]), ((0, 0), (0, 1)), ((0, 1), (0, 0))),
            *(((0, -2), (1, 0)), ((0,), 1), ((), ()), ((0, 1), 0), ((0, 2), (2, 0)), ((0, -3), (1, 2))),
        ],
    ),
    "rollaxis": each(lambda x, pair: np.rollaxis(x, *pair), [*PAIRS, (1.0, 0), (0, 1.0), (None, 0)]),
    "diagonal": [*each(lambda x, pair: np.diagonal(x, 1, *pair), PAIRS), *each(np.diagonal, [-1, 5, -5])],
    "trace": [*each(lambda x, pair: np.trace(x, 1, *pair), PAIRS), *each(np.trace, [-1, 5, -5])],
    "rot90": [
        *(call for k in (0, 1, 2, 3, 7) for call in each(lambda x, pair, k=k: np.rot90(x, k, pair), PAIRS)),
        *each(lambda x, axes: np.rot90(x, 1, axes), [[0, 1], (0,), (), (0, 1, 2), 0]),
    ],
    "transpose": each(
        np.transpose,
        [None, (0,), (0, 1), (1, 0), (0, 0), (-1, 0), (2, 0, 1), (-1, -2, -3), (0, 1, 5), (), (0, 1.0), 0, [1, 0]],
    ),
    "tensordot": each(
        lambda x, axes: np.tensordot(x, x, axes),
        [0, 1, 2, 3, -1, (0, 0), (1, 1), ([0, 1], [0, 1]), ([0, 1], [1, 0]), ([0, 0], [0, 0]), ([0, 1], [0]), (5, 0)],
    ),
    "index": each(
        lambda x, index: x[index],
        [
            *(0, -1, 3, -4, slice(1, None), slice(None, None, -1), slice(5, 1), slice(-2, None), slice(None, None, 2)),
            *((0, 0), (0, 1, 2), (0, 0, 0, 0), None, ..., (..., 0), (0, ...), (..., ...), (None, 0), [0, 1], [0, 5]),
            *((slice(None), [0, 2]), ([0, 1], [0, 1]), ([0, 1], [0, 1, 2]), (0, [0, 1]), 1.5, "a", np.array([0.5])),
            *(([0, 1], slice(None), [0, 1]), np.array([True, False, True]), np.array([True, False]), np.int64(1)),
            *((slice(None),) * 4, slice(0, 3, 0), []),
        ],
    ),
}


def outcome(call, *operands):
    """Whether a call returns a result, and the result or the error."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return True, call(*operands)
    except Exception as error:
        return False, error


def listed(x):
    return [listed(one) for one in x] if isinstance(x, (list, tuple)) else x


ACCIDENTS = ("cannot reshape array of size 0", "not enough values to unpack")
"""Errors inside NumPy's code, e.g. for empty medians and rolls."""


def check(name, call, axis):
    """The number of calls that NumPy accepts, and the number of these that Arrays refuse."""
    taken = refused = 0
    for shape, dtype in itertools.product(SHAPES, (float, int)):
        x = np.random.default_rng(1).uniform(-4, 4, shape).astype(dtype)
        is_right, expected = outcome(lambda x: call(x, axis), x)
        is_given, found = outcome(lambda x: run(lambda x: call(x, axis), x), x)
        case = (name, axis, shape, dtype)
        if is_given and (isinstance(expected, ZeroDivisionError) or str(expected).startswith(ACCIDENTS)):
            continue  # empty, or weights with the sum 0: Arrays give NaN, because the numbers are not known
        if is_given:
            assert is_right, (case, found, expected)
            assert same(listed(found), listed(expected), 1e-9), (case, found, expected)
        taken, refused = taken + is_right, refused + (is_right and not is_given)
        assert is_given or isinstance(found, (TypeError, ValueError, IndexError, ArithmeticError)), (case, found)
    return np.array([taken, refused])


@pytest.mark.parametrize("name", [*WITH_AXIS, *WITHOUT])
def test_results_and_errors_are_those_of_numpy(name):
    counts = np.zeros(2)
    for call in WITH_AXIS.get(name, ()):
        counts += sum(check(name, call, axis) for axis in AXES)
    for call in WITHOUT.get(name, ()):
        counts += check(name, call, None)
    taken, refused = counts
    assert refused <= 0.4 * taken
