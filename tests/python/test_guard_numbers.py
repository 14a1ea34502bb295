"""Comparisons inside a traced function have the same results as eager ones, for all operands."""

from __future__ import annotations

import math
import operator
import random

import numpy as np
import pytest

import burtorch as bt

OPERATORS = [operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge]
TYPES = {"float64": np.float64, "float32": np.float32}


def around(x, dtype):
    """The neighbours of x in a dtype, which a rounded constant would confuse."""
    try:
        x = float(x)
    except OverflowError:
        x = math.inf if x > 0 else -math.inf
    with np.errstate(over="ignore"):
        nearest = TYPES[dtype](x)
    steps = [nearest]
    for towards in (math.inf, -math.inf):
        steps += [np.nextafter(nearest, TYPES[dtype](towards))]
    return [float(step) for step in steps]


def random_constant(dice):
    """A Python or NumPy number equal to, or near, numbers of both widths."""
    x = dice.choice(
        [dice.uniform(-2, 2), dice.gauss(0, 1) * 10.0 ** dice.randrange(-45, 40), dice.randrange(-9, 10) / 8]
    )
    with np.errstate(over="ignore"):
        narrow = float(np.float32(x))
    return dice.choice(
        [
            lambda: x,
            lambda: narrow,
            lambda: math.nextafter(narrow, dice.choice([-math.inf, math.inf])),
            lambda: np.float32(narrow),
            lambda: np.float64(x),
            lambda: np.float16(dice.uniform(-2, 2)),
            lambda: np.array(x),
            lambda: dice.choice([1, -1]) * (2 ** dice.choice([24, 53, 60, 128, 1023, 1024]) + dice.randrange(-3, 4)),
            lambda: np.int64(2 ** dice.choice([24, 53, 60]) + dice.randrange(-3, 4)),
            lambda: dice.choice([True, False, 0, -0.0, math.inf, -math.inf, math.nan]),
        ]
    )()


def bodies(c, compare, dice):
    """Comparisons in various forms, each with a result that depends on the outcome."""
    is_moderate = not isinstance(c, int) and abs(float(c)) < 1e30
    return [
        lambda x: x * 2.0 if compare(x, c) else x * 3.0,
        lambda x: x * 2.0 if compare(c, x) else x * 3.0,
        lambda x: x * 2.0 if not compare(x, c) else x * 3.0,
        lambda x: x * 2.0 if -1.0 <= x < c else x * 3.0,
        lambda x: x * 2.0 if c < x <= 1e30 else x * 3.0,
        lambda x: x * 2.0 if max(x, c) is x else x * 3.0,
        lambda x: x * 2.0 if min(c, x) is x else x * 3.0,
        lambda x: x * 2.0 if (x - c if is_moderate else x) else x + 3.0,
    ]


def eager(body, x, dtype):
    with bt.Graph(dtype=dtype):
        return body(bt.Value(x)).data


def same(a, b):
    return a == b or (math.isnan(a) and math.isnan(b))


@pytest.mark.parametrize("dtype", TYPES)
def test_random_constants_around_rounding_boundaries(dtype):
    dice, n_compared = random.Random(7), 0
    for _ in range(400):
        c, compare = random_constant(dice), dice.choice(OPERATORS)
        body = dice.choice(bodies(c, compare, dice))
        f = bt.function(body, dtype=dtype)
        points = [*around(c, dtype), -0.0, 0.5, math.inf]
        dice.shuffle(points)
        expected = [eager(body, x, dtype) for x in points]
        for x, y in zip(points, expected):
            for _ in range(2):
                assert same(f(x), y), (c, type(c), compare, x, f(x), y)
            n_compared += 1
        rows = f.map(np.array(points))
        assert all(same(a, b) for a, b in zip(rows.tolist(), expected)), (c, compare, rows, expected)
    assert n_compared > 2000


def test_a_constant_between_two_float32_numbers():
    below, above = float(np.float32(-0.3)), float(np.nextafter(np.float32(-0.3), np.float32(1)))
    assert below < -0.3 < above
    f = bt.function(lambda x: x * 2.0 if x < -0.3 else x * 3.0, dtype="float32")
    assert f(below) == np.float32(below) * 2
    assert f(above) == float(np.float32(above) * np.float32(3))


def test_integers_that_no_float_holds():
    big = 2**53 + 1
    f = bt.function(lambda x: x * 2.0 if x < big else x * 3.0)
    assert f(2.0**53) == 2.0**54
    assert f(2.0**53 + 2) == 3 * (2.0**53 + 2)
    equal = bt.function(lambda x: x * 2.0 if x == big else x * 3.0)
    assert equal(2.0**53) == 3 * 2.0**53
    huge = bt.function(lambda x: x * 2.0 if x < 10**400 else x + 1.0)
    assert (huge(1.0), huge(math.inf), huge(-math.inf)) == (2.0, math.inf, -math.inf)
    lowest = bt.function(lambda x: 1.0 * x if x > -(10**400) else 0.0 * x)
    assert lowest(-1e308) == -1e308
    assert math.isnan(lowest(-math.inf))


def test_between_values_and_truth():
    f = bt.function(lambda x, y: x - y if x < y else (x + y if y else x * 5.0), dtype="float32")
    third = np.float32(1 / 3)
    assert f(1 / 3, float(third)) == np.float32(third + third)
    assert f(1.0, 0.0) == 5.0
    assert f(1.0, 1e-46) == 5.0
