"""Second derivatives of every op, at special values and ties, against decimal arithmetic and against each other."""

from __future__ import annotations

import decimal
import itertools
import math
import runpy
import sys
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import burtorch as bt

reference = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("second_derivatives.py"))))
BOUND = 2e-15
LEAST, LARGEST = Decimal(math.ulp(0.0)), Decimal(sys.float_info.max)


@pytest.fixture(autouse=True)
def precise():
    with decimal.localcontext(reference.CONTEXT):
        yield


def wrong(got: float, expected) -> bool:
    """Whether an entry differs from its reference."""
    if expected == reference.ANY:
        return False
    if isinstance(expected, float):
        return not (got == expected or (math.isnan(got) and math.isnan(expected)))
    value, size = expected
    if value.is_nan():
        return not math.isnan(got)
    if abs(value) > LARGEST:
        return got != math.copysign(math.inf, value)
    if not math.isfinite(got):
        return abs(value) < LARGEST * (1 - Decimal(BOUND))
    # Below the smallest normal number, the last places of two factors.
    return abs(Decimal(got) - value) > Decimal(BOUND) * size + 64 * LEAST


def mismatches(f, point, expected) -> list[str]:
    """The wrong entries of the Hessian at a point."""
    n = len(point)
    hessian = f.hessian(*point)
    return [
        f"{point}: H[{i}][{j}] is {hessian[i, j]!r}, expected {expected[i][j]}"
        for i in range(n)
        for j in range(n)
        if wrong(hessian[i, j], expected[i][j])
    ]


def products_differ(f, point) -> list[str]:
    """Where a product with a unit vector, or a sparse Hessian, differs from the Hessian."""
    hessian, n = f.hessian(*point), len(point)
    found = []
    for j, unit in enumerate(np.eye(n)):
        product = np.atleast_1d(f.hvp(*point, *unit))
        is_known = ~np.isnan(product) | (hessian[:, j] != 0)
        if not np.array_equal(product[is_known], hessian[is_known, j], equal_nan=True):
            found.append(f"{point}: hvp along {j} is {product}, the Hessian {hessian}")
    if not np.array_equal(f.sparse_hessian(*point).toarray(), hessian, equal_nan=True):
        found.append(f"{point}: the sparse Hessian differs")
    return found


def report(found: list[str], n: int) -> None:
    assert not found, f"{len(found)} of {n} points: " + "; ".join(found[:8])


def square(upper):
    xx, xy, yy = upper
    return [[xx, xy], [xy, yy]]


@pytest.mark.parametrize("name", reference.UNARY)
def test_ops_of_one_operand(name):
    f = bt.function(lambda x: getattr(bt, name)(x))
    found = []
    for x in reference.SPECIAL:
        found += mismatches(f, (x,), [reference.UNARY[name](x)])
        found += products_differ(f, (x,))
    report(found, len(reference.SPECIAL))


@pytest.mark.parametrize("name", reference.BINARY)
def test_ops_of_two_operands(name):
    f = bt.function(lambda x, y: getattr(bt, name)(x, y))
    points = list(itertools.product(reference.SPECIAL, repeat=2))
    found = [text for point in points for text in mismatches(f, point, square(reference.BINARY[name](*point)))]
    for point in points[::37]:
        found += products_differ(f, point)
    report(found, len(points))


@pytest.mark.parametrize("name", ["pow", "div", "mul", "add"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_ops_with_a_constant(name, side):
    op, entries = getattr(bt, name), reference.BINARY[name]

    def fixed(c):
        return bt.function((lambda x: op(c, x)) if side == "left" else (lambda x: op(x, c)))

    found, n = [], 0
    for c in reference.SPECIAL[::5]:
        f = fixed(c)
        for x in reference.SPECIAL:
            upper = entries(c, x)[2] if side == "left" else entries(x, c)[0]
            found += mismatches(f, (x,), [[upper]])
            n += 1
    report(found, n)


@pytest.mark.parametrize("name", reference.CONSTANT)
def test_ops_by_a_constant(name):
    op, found, n = getattr(bt, name), [], 0
    for c in reference.SPECIAL[::3]:
        f = bt.function(lambda x, c=c: op(x, c))
        for x in reference.SPECIAL:
            found += mismatches(f, (x,), [[reference.CONSTANT[name](x, c)]])
            n += 1
    report(found, n)


@pytest.mark.parametrize("name", reference.REDUCTIONS)
def test_reductions(name):
    op = getattr(bt, name)
    # The second output of the op with two outputs; the first is the mean.
    body = (lambda *xs: op(xs)[1]) if name == "reduce_mean_and_mean_squares" else (lambda *xs: op(xs))
    functions = {n: bt.function(body) for n in range(1, 6)}
    found = []
    for k, xs in enumerate(reference.LISTS):
        f = functions[len(xs)]
        found += mismatches(f, xs, reference.REDUCTIONS[name](xs))
        if k % 31 == 0:
            found += products_differ(f, xs)
    report(found, len(reference.LISTS))


@pytest.mark.parametrize("has_bias", [False, True])
def test_inner_products(has_bias):
    def body(*xs):
        n = len(xs) // 2
        return (
            bt.inner_product_with_bias(xs[:n], xs[n : 2 * n], xs[-1]) if has_bias else bt.inner_product(xs[:n], xs[n:])
        )

    functions = {n: bt.function(lambda *xs: body(*xs)) for n in range(1, 6)}
    found = []
    for xs in reference.LISTS[::7]:
        n = len(xs)
        point = [*xs, *reversed(xs), *([1.5] if has_bias else [])]
        found += mismatches(functions[n], point, reference.inner(n, has_bias))
    report(found, len(reference.LISTS[::7]))


@pytest.mark.parametrize("name", reference.UNARY)
def test_a_map_is_the_op_that_it_maps(name):
    op = getattr(bt, name)
    alone, mapped = bt.function(lambda x: op(x)), bt.function(lambda x: op(bt.concat(x, 1.0))[0])
    for x in reference.SPECIAL[::4]:
        np.testing.assert_array_equal(mapped.hessian(x), alone.hessian(x))


@pytest.mark.parametrize("name", [*reference.UNARY, *reference.BINARY, *reference.CONSTANT])
def test_ops_in_the_middle(name):
    """The second derivative of the square of an op, from the op's own derivatives, also at ties and at 0."""
    op, n = getattr(bt, name), 2 if name in reference.BINARY else 1
    alone = bt.function(lambda *xs: op(*xs, *([0.5] if name in reference.CONSTANT else [])))
    inside = bt.function(lambda *xs: op(*xs, *([0.5] if name in reference.CONSTANT else [])) ** 2)
    for point in itertools.product([0.0, 0.25, 1.0, 2.5, -0.75, -1.0], repeat=n):
        value, slopes = alone.value_and_grad(*point)
        slopes, bends = np.atleast_1d(slopes), alone.hessian(*point)
        with np.errstate(invalid="ignore"):
            expected = 2 * (value * bends + np.outer(slopes, slopes))
        found = inside.hessian(*point)
        is_known = np.isfinite(expected) & np.isfinite(slopes).all() & np.isfinite(value)
        np.testing.assert_allclose(found[is_known], expected[is_known], rtol=1e-13, atol=1e-13, err_msg=f"{point}")


def test_every_op_of_the_table_has_a_case():
    tested = {*reference.UNARY, *reference.BINARY, *reference.CONSTANT, *reference.REDUCTIONS}
    tested |= {"inner_product", "inner_product_with_bias", *reference.ELSEWHERE}
    names = {op["name"] for op in bt.system.ops()}
    assert tested | reference.NOT_RECORDED == names
    assert not tested & reference.NOT_RECORDED


def test_ties_between_operands_that_move_together():
    both = np.array([[0.25, -0.25], [-0.25, 0.25]])
    for x in (0.0, 1.0, -700.0, 1e300):
        f = bt.function(lambda x, y: bt.logsumexp([x, y]))
        np.testing.assert_allclose(f.hessian(x, x), both, rtol=1e-15)
        np.testing.assert_allclose(f.hvp(x, x, 1.0, 0.0), both[0], rtol=1e-15)
    # An explicit softmax: the largest takes half of the adjoint from each, which cancels.
    softmax = bt.function(lambda x, y: bt.exp(x - bt.max(x, y)) / (bt.exp(x - bt.max(x, y)) + bt.exp(y - bt.max(x, y))))
    np.testing.assert_allclose(softmax.hessian(2.0, 2.0), np.zeros((2, 2)), atol=1e-16)
    loss = bt.function(lambda x, y: bt.logsumexp([x, y, x * y]) - x)
    np.testing.assert_allclose(
        loss.hessian(1.0, 1.0), [[2 / 9 * 2 - 2 / 9, 1 / 3 - 1 / 9], [1 / 3 - 1 / 9, 2 / 9]], rtol=1e-14
    )


def test_shares_of_tied_operands_are_constant():
    for body in (
        lambda x, y: bt.max(x * x, y * y),
        lambda x, y: bt.min(x * x, y * y),
        lambda x, y: bt.reduce_max([x * x, y * y]),
        lambda x, y: bt.reduce_min([x * x, y * y]),
    ):
        f = bt.function(body)
        np.testing.assert_array_equal(f.hessian(3.0, 3.0), [[1.0, 0.0], [0.0, 1.0]])
        np.testing.assert_array_equal(f.hvp(3.0, -3.0, 1.0, 1.0), [1.0, 1.0])


def test_a_zero_tangent_contributes_nothing_whatever_its_partial():
    inf = math.inf
    cases = [
        (lambda x, y: x * bt.sqrt(y), (2.0, 0.0), [[0.0, inf], [inf, -inf]]),
        (lambda x, y: x * x + bt.log(y), (3.0, 0.0), [[2.0, 0.0], [0.0, -inf]]),
        (lambda x, y: x**2.5 * bt.inv(y), (1.0, inf), [[0.0, 0.0], [0.0, 0.0]]),
        (lambda x, y: bt.reduce_mul([x, x, y]), (1.0, inf), [[inf, 2.0], [2.0, 0.0]]),
        (lambda x, y: bt.inner_product([x, y], [y, x]), (inf, 1.0), [[0.0, 2.0], [2.0, 0.0]]),
    ]
    for body, point, expected in cases:
        f = bt.function(body)
        np.testing.assert_array_equal(f.hessian(*point), expected)
        np.testing.assert_array_equal(f.sparse_hessian(*point).toarray(), expected)
