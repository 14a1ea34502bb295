"""Second derivatives of ops in array programs: the same bits as in traced functions of numbers, at special values."""

from __future__ import annotations

import decimal
import itertools
import runpy
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import pytest

import burtorch as bt

np = pytest.importorskip("numpy")

reference = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("second_derivatives.py"))))
wrong = runpy.run_path(str(Path(__file__).with_name("test_second_derivatives.py")))["wrong"]
pytestmark = pytest.mark.filterwarnings("ignore::burtorch.StaleRiskWarning", "ignore::RuntimeWarning")

X = np.array(reference.SPECIAL)
PAIRS = np.array(list(itertools.product(reference.SPECIAL, repeat=2)))


@pytest.fixture(autouse=True)
def precise():
    with decimal.localcontext(reference.CONTEXT):
        yield


def tupled(found):
    return found if isinstance(found, tuple) else (found,)


def entries(rows):
    """The entries of the Hessians at all points."""
    return np.array(rows).transpose(2, 0, 1)


def numbers(n):
    return tuple(range(n))


def summed(op):
    return lambda *xs: bt.sum(op(*xs))


def units(xs):
    """The unit directions of each argument."""
    return [tuple(np.full(len(x), float(x is moving)) for x in xs) for moving in xs]


def by_gradients(op, xs):
    n, f = len(xs), summed(op)
    sums = [lambda *xs, i=i: bt.sum(tupled(bt.grad(f, numbers(n))(*xs))[i]) for i in range(n)]
    return entries([tupled(bt.grad(one, numbers(n))(*xs)) for one in sums])


def by_columns(columns):
    return entries([list(row) for row in zip(*columns)])


def second(op, n, i, j):
    """One entry of the Hessian at a point of scalars, which are Arrays of shape ()."""
    return bt.grad(lambda *xs: bt.grad(op, i)(*xs), j)


def along(op, n, i, j):
    return lambda *xs: bt.jvp(bt.grad(op, i), xs, [np.array(float(k == j)) for k in range(n)])[1]


def of_rows(entry, op, xs):
    n = len(xs)
    return entries([[bt.vmap(entry(op, n, i, j))(*xs) for j in range(n)] for i in range(n)])


WAYS = {
    "gradients of gradients": by_gradients,
    "gradients along directions": lambda op, xs: by_columns(
        [tupled(bt.jvp(bt.grad(summed(op), numbers(len(xs))), xs, v)[1]) for v in units(xs)]
    ),
    "products with Hessians": lambda op, xs: by_columns([tupled(bt.hvp(summed(op), xs, v)) for v in units(xs)]),
    "Hessians of rows": lambda op, xs: entries(bt.vmap(bt.hessian(op, numbers(len(xs))))(*xs)),
    "gradients of gradients of rows": lambda op, xs: of_rows(second, op, xs),
    "directions of rows": lambda op, xs: of_rows(along, op, xs),
}


def differing(op, points, expected, ways=WAYS):
    """Points where Hessians of arrays have other bits than those of numbers."""
    xs, found = tuple(np.ascontiguousarray(points.T)), []
    for name in ways:
        hessians = WAYS[name](op, xs)
        is_same = (hessians == expected) | np.isnan(hessians) & np.isnan(expected)
        found += [
            f"{name} at {points[p].tolist()}: {hessians[p].tolist()}, expected {expected[p].tolist()}"
            for p in np.flatnonzero(~is_same.all((1, 2)))
        ]
    return found


def report(found):
    assert not found, f"{len(found)} points: " + "; ".join(found[:8])


def of_numbers(op, points):
    f = bt.function(lambda *xs: op(*xs))
    return np.array([f.hessian(*point) for point in points])


@pytest.mark.parametrize("name", reference.UNARY)
def test_ops_of_one_operand(name):
    op = lambda x: getattr(bt, name)(x)  # noqa: E731
    expected = of_numbers(op, X[:, None])
    report(differing(op, X[:, None], expected))
    hessian = np.array(bt.hessian(summed(op))(X))
    off = ~np.eye(len(X), dtype=bool)
    assert (hessian[off] == 0).all()
    np.testing.assert_array_equal(np.diag(hessian), expected[:, 0, 0])
    report([f"{x}" for x, h in zip(X, expected[:, 0, 0]) if wrong(h, reference.UNARY[name](x)[0])])


@pytest.mark.parametrize("name", reference.BINARY)
def test_ops_of_two_operands(name):
    op = lambda x, y: getattr(bt, name)(x, y)  # noqa: E731
    report(differing(op, PAIRS, of_numbers(op, PAIRS)))


@pytest.mark.parametrize("name", reference.CONSTANT)
def test_ops_by_a_constant(name):
    found = []
    for c in reference.SPECIAL[::3]:
        op = lambda x, c=c: getattr(bt, name)(x, c)  # noqa: E731
        found += differing(op, X[:, None], of_numbers(op, X[:, None]), ["gradients of gradients", "Hessians of rows"])
    report(found)


FOLDS = {
    "reduce_sum": lambda x: bt.sum(x),
    "reduce_mean": lambda x: x.mean(),
    "reduce_max": lambda x: x.max(),
    "reduce_min": lambda x: x.min(),
    "reduce_sum_of_squares": lambda x: (x * x).sum(),
    "reduce_mean_squares": lambda x: (x * x).mean(),
    "variance_biased": lambda x: x.var(),
    "variance": lambda x: x.var(ddof=1),
    "reduce_mul": lambda x: x.prod(),
    "logsumexp": lambda x: bt.logsumexp(x),
    "norm2": lambda x: np.linalg.norm(x),
}


def gradients_of_entries(f, x):
    """The rows of the Hessian for each row of x, by reverse mode twice."""
    return np.stack(
        [bt.grad(lambda x, k=k: bt.sum(bt.vmap(bt.grad(f))(x)[:, k]))(x) for k in range(x.shape[1])], axis=1
    )


@pytest.mark.parametrize("name", FOLDS)
def test_reductions(name):
    """For ordinary and extreme numbers, with ties and zeros."""
    f, found = FOLDS[name], []
    for n in {len(xs) for xs in reference.LISTS}:
        lists = [xs for xs in reference.LISTS if len(xs) == n]
        x, n_units = np.array(lists), range(n)
        ways = {
            "Hessians": np.array(bt.vmap(bt.hessian(f))(x)),
            "gradients": gradients_of_entries(f, x),
            "products": np.stack([bt.vmap(bt.hvp(f), (0, None))(x, np.eye(n)[k]) for k in n_units], axis=2),
        }
        for xs, *hessians in zip(lists, *ways.values()):
            expected = reference.REDUCTIONS[name](xs)
            for way, h in zip(ways, hessians):
                bad = [(i, j) for i, j in itertools.product(n_units, repeat=2) if wrong(float(h[i, j]), expected[i][j])]
                found += [f"{way} of {xs}: {h.tolist()} at {bad}"] if bad else []
    report(found)


def weighted_softmax(x):
    weights = bt.exp(x - x.max())
    return (weights / weights.sum())[0]


TIES = {
    "logsumexp": (bt.logsumexp, [1, 1, 1], [[2 / 9, -1 / 9, -1 / 9], [-1 / 9, 2 / 9, -1 / 9], [-1 / 9, -1 / 9, 2 / 9]]),
    "softmax": (lambda x: bt.softmax(x)[0], [1, 1], [[0, 0], [0, 0]]),
    "softmax by its formula": (weighted_softmax, [1, 1], [[0, 0], [0, 0]]),
    "softmax of one that is certain": (lambda x: bt.softmax(x)[1], [800, 0, -800], [[0] * 3] * 3),
    "log_softmax": (lambda x: bt.log_softmax(x)[1], [2, 2], [[-0.25, 0.25], [0.25, -0.25]]),
    "largest": (lambda x: x.max() ** 2, [2, 2, 1], [[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 0]]),
    "smallest": (lambda x: x.min() ** 2, [2, 2, 3], [[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 0]]),
    "largest square": (lambda x: (x**2).max(), [2, -2, 1], [[1, 0, 0], [0, 1, 0], [0, 0, 0]]),
    "distance of extremes": (lambda x: (x.max() - x.min()) ** 2, [1, 1], [[0, 0], [0, 0]]),
    "length at the origin": (lambda x: np.linalg.norm(x) ** 2, [0, 0], [[0, 0], [0, 0]]),
    "sum of sizes": (lambda x: np.linalg.norm(x, 1) ** 2, [0, 1, -1], [[0, 0, 0], [0, 2, -2], [0, -2, 2]]),
    "length of powers": (lambda x: np.linalg.norm(x, 3) ** 3, [0, 1, -2], [[0, 0, 0], [0, 6, 0], [0, 0, 12]]),
    "largest size": (lambda x: np.linalg.norm(x, np.inf) ** 2, [1, -1], [[0.5, -0.5], [-0.5, 0.5]]),
    "product with two zeros": (lambda x: x.prod(), [0, 0, 3], [[0, 3, 0], [3, 0, 0], [0, 0, 0]]),
    "running product": (lambda x: bt.sum(np.cumprod(x)), [0, 2, 0], [[0, 1, 2], [1, 0, 0], [2, 0, 0]]),
    "variance of equals": (lambda x: x.var(), [1, 1], [[0.5, -0.5], [-0.5, 0.5]]),
    "layer norm of equals": (lambda x: bt.layer_norm(x)[0], [1, 1, 1], [[0] * 3] * 3),
    "not chosen": (lambda x: bt.sum(bt.where(x > 0, bt.sqrt(x), x * x)), [0, 1], [[2, 0], [0, -0.25]]),
    "chosen at its edge": (lambda x: bt.sum(bt.where(x >= 0, bt.sqrt(x), x)), [0.0, 4], [[-np.inf, 0], [0, -1 / 32]]),
    "clip": (lambda x: bt.sum(np.clip(x, 0, 1) ** 2 + x**3), [0, 1, 0.5, 2], np.diag([0.5, 6.5, 5, 12])),
    "maximum": (lambda x: bt.sum(np.maximum(x, 0) ** 2), [0, 1, -1], np.diag([0.5, 2, 0])),
    "power of itself": (lambda x: bt.sum(x**x), [0, 1], [[np.inf, 0], [0, 2]]),
    "indexed": (lambda x: bt.sqrt(x[0]) * x[2] + x[1] ** 2, [4, 0, 2], [[-1 / 16, 0, 0.25], [0, 2, 0], [0.25, 0, 0]]),
}


@pytest.mark.parametrize("name", TIES)
def test_ties_and_edges(name):
    f, x, expected = TIES[name]
    x, expected = np.array(x, float), np.array(expected, float)
    ways = [
        bt.hessian(f)(x),
        bt.jacobian(bt.grad(f))(x),
        bt.vmap(bt.hessian(f))(x[None])[0],
        gradients_of_entries(f, x[None])[0],
        np.stack([bt.hvp(f)(x, row) for row in np.eye(len(x))]),
    ]
    for hessian in ways:
        np.testing.assert_allclose(hessian, expected, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("name", [*reference.UNARY, *reference.BINARY])
def test_ops_between_others(name):
    """The square of an op of squares: the same as traced functions of numbers, also at ties and at 0."""
    n = 2 if name in reference.BINARY else 1
    body = lambda *xs: getattr(bt, name)(*(x * x - 0.5 for x in xs)) ** 2  # noqa: E731
    points = np.array(list(itertools.product([0.0, 0.25, 1.0, 2.5, -0.75, 0.5**0.5], repeat=n)))
    expected, xs = of_numbers(body, points), tuple(np.ascontiguousarray(points.T))
    for way in WAYS:
        np.testing.assert_allclose(WAYS[way](body, xs), expected, rtol=1e-12, atol=1e-12, err_msg=way)


# Central differences of eighth order in decimal arithmetic: exact to some 20 digits.
STEP = 2.0**-10
SLOPE = [0, "0.8", "-0.2", Decimal(4) / 105, Decimal(-1) / 280]
BEND = [Decimal(-205) / 72, "1.6", "-0.2", Decimal(8) / 315, Decimal(-1) / 560]


def entry_of(entry):
    return entry[0] if isinstance(entry, tuple) else Decimal(entry)


def differences(f, weights, sign, order):
    """The first or second derivative of f(shift) at 0."""
    terms = (Decimal(weights[k]) * (f(k * STEP) + sign * f(-k * STEP)) for k in range(1, 5))
    return float((sum(terms) + Decimal(weights[0]) * f(0.0)) / Decimal(STEP) ** order)


def third_and_fourth(f):
    return differences(f, SLOPE, -1, 1), differences(f, BEND, 1, 2)


@pytest.mark.parametrize("name", reference.UNARY)
def test_third_and_fourth_derivatives_of_one_operand(name):
    within = {"asin": [0.3, 0.8], "acos": [0.3, 0.8], "atanh": [0.3, 0.8], "acosh": [1.3, 2.2]}
    op, x = getattr(bt, name), np.array(within.get(name, [0.3, 0.8, 1.7, 3.2]))
    expected = np.array(
        [third_and_fourth(lambda h, at=at: entry_of(reference.UNARY[name](at + h)[0])) for at in x.tolist()]
    ).T
    third = bt.grad(bt.grad(bt.grad(lambda x: op(x))))
    along_third = lambda x: bt.jvp(bt.hessian(lambda x: op(x)), (x,), (np.array(1.0),))[1]  # noqa: E731
    for f, wanted in [(third, 0), (along_third, 0), (bt.grad(third), 1), (bt.hessian(bt.hessian(lambda x: op(x))), 1)]:
        np.testing.assert_allclose(bt.vmap(f)(x), expected[wanted], rtol=1e-12, atol=1e-13)


def third_of_two(entries_at, x, y, i, j, k):
    """The derivative of entry i, j of the Hessian with respect to operand k."""
    at = (lambda h: entries_at(x + h, y)) if k == 0 else (lambda h: entries_at(x, y + h))
    return differences(lambda h: entry_of(at(h)[i + j]), SLOPE, -1, 1)


@pytest.mark.parametrize("name", ["div", "atan2", "pow", "hypot", "logaddexp", "xlogy", "mul", "add_squares"])
@pytest.mark.parametrize("point", [(0.8, 1.7), (2.5, 0.6)])
def test_third_derivatives_of_two_operands(name, point):
    op, xs = (lambda x, y: getattr(bt, name)(x, y)), [np.array(x) for x in point]
    places = list(itertools.product(range(2), repeat=3))
    expected = [third_of_two(reference.BINARY[name], *point, *place) for place in places]
    by_jacobian = bt.jacobian(bt.hessian(op, (0, 1)), (0, 1))(*xs)
    np.testing.assert_allclose(np.ravel(by_jacobian), expected, rtol=1e-12, atol=1e-13)
    found = [bt.grad(bt.grad(bt.grad(op, i), j), k)(*xs) for i, j, k in places]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)
