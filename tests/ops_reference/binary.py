"""Ops of two operands: value and both partials, exact on finite operands, by rule at the edges."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from mpmath import mp, mpf

from .quantity import ANY, INF, NAN, ZERO, Format, Result

Triple = tuple[Result, Result, Result]
ONE, HALF = mpf(1), mpf(1) / 2


@dataclass(frozen=True)
class Binary:
    """One op: `at` gives value and partials at any two numbers of a type."""

    name: str
    at: Callable[[float, float, Format], Triple]
    interval: tuple[float, float] = (-10.0, 10.0)
    special: tuple[tuple[float, float], ...] = ()


def is_negative(x: float) -> bool:
    """Whether the sign bit is set."""
    return math.copysign(1, x) < 0


def exact(x: float) -> Result:
    """A partial that equals an operand."""
    return mpf(x) if math.isfinite(x) and x != 0 else x


def both_finite(x: float, y: float) -> bool:
    return math.isfinite(x) and math.isfinite(y)


def linear(x: float, y: float, sum_: float, value: Callable[[], mpf], dx: mpf, dy: mpf) -> Triple:
    """A weighted sum: the partials are constants; with a NaN operand the rules leave them open."""
    if math.isnan(x) or math.isnan(y):
        return NAN, ANY, ANY
    if not both_finite(x, y) or sum_ == 0:
        return sum_, dx, dy
    return value(), dx, dy


def add(x: float, y: float, _: Format) -> Triple:
    return linear(x, y, x + y, lambda: mpf(x) + y, ONE, ONE)


def sub(x: float, y: float, _: Format) -> Triple:
    return linear(x, y, x - y, lambda: mpf(x) - y, ONE, -ONE)


def mean(x: float, y: float, form: Format) -> Triple:
    return scaled_sum(x, y, form, HALF)


def negative_mean(x: float, y: float, form: Format) -> Triple:
    return scaled_sum(x, y, form, -HALF)


def scaled_sum(x: float, y: float, form: Format, factor: mpf) -> Triple:
    """The factor times x + y; where the sum overflows the value is left open."""
    if both_finite(x, y) and abs(mpf(x) + y) > form.largest:
        return ANY, factor, factor
    return linear(x, y, float(factor) * (x + y), lambda: (mpf(x) + y) * factor, factor, factor)


def mul(x: float, y: float, _: Format) -> Triple:
    dx = ANY if math.isnan(x) and not math.isnan(y) else exact(y)
    dy = ANY if math.isnan(y) and not math.isnan(x) else exact(x)
    if not both_finite(x, y) or x == 0 or y == 0:
        return x * y, dx, dy
    return mpf(x) * y, dx, dy


def mul_by_constant(x: float, c: float, form: Format) -> Triple:
    value, dx, _ = mul(x, c, form)
    return value, dx, ANY


def div(x: float, y: float, _: Format) -> Triple:
    if math.isnan(x) or math.isnan(y):
        return NAN, ANY if not math.isnan(y) else NAN, NAN
    if (x == 0 and y == 0) or (math.isinf(x) and math.isinf(y)):
        return NAN, ANY, NAN
    sign = -1.0 if is_negative(x) != is_negative(y) else 1.0
    if y == 0:
        return sign * INF, -INF if is_negative(y) else INF, INF if is_negative(x) else -INF
    if math.isinf(x):
        return sign * INF, 1 / mpf(y), -INF if x > 0 else INF
    if math.isinf(y):
        return sign * 0.0, ZERO, ZERO
    if x == 0:
        return sign * 0.0, 1 / mpf(y), ZERO
    return mpf(x) / y, 1 / mpf(y), -mpf(x) / mpf(y) ** 2


def squares(x: float, y: float, form: Format, factor: mpf) -> Triple:
    """The factor times x^2 + y^2."""
    dx, dy = (exact(v) if factor == HALF or not math.isfinite(v) else 2 * mpf(v) for v in (x, y))
    if math.isnan(x) or math.isnan(y):
        return NAN, dx, dy
    if math.isinf(x) or math.isinf(y):
        return INF, dx, dy
    total = mpf(x) ** 2 + mpf(y) ** 2
    if total > form.largest and factor != 1:
        return ANY, dx, dy
    return (total * factor if total else 0.0), dx, dy


def add_squares(x: float, y: float, form: Format) -> Triple:
    return squares(x, y, form, ONE)


def mean_squares(x: float, y: float, form: Format) -> Triple:
    return squares(x, y, form, HALF)


def power(x: float, y: float, form: Format) -> Triple:
    """x^y: the value by Annex F, the partials chosen at x = 0, open at infinity and where a factor overflows."""
    if math.isnan(x) or math.isnan(y):
        return (ONE if x == 1 or y == 0 else NAN), (ANY if y in (0, 1) or x == 1 else NAN), (ANY if x == 1 else NAN)
    if not both_finite(x, y):
        return math.pow(x, y), ANY, ANY  # follows Annex F with an infinite operand
    if x == 0:
        return power_of_zero(x, y)
    if x < 0 and y != math.floor(y):
        return NAN, NAN, NAN
    value = mpf(x) ** mpf(y)
    slope = mpf(x) ** (mpf(y) - 1)
    dx: Result = mpf(y) * slope if y else ZERO
    dy: Result = value * mp.log(x) if x > 0 else NAN
    if y and not form.smallest_normal <= abs(slope) <= form.largest:
        dx = ANY
    if x > 0 and not form.smallest_normal <= value <= form.largest:
        dy = ANY
    return value, dx, dy


def power_of_zero(x: float, y: float) -> Triple:
    """(+-0)^y for finite y."""
    odd = y == math.floor(y) and y % 2 == 1
    if y == 0:
        return ONE, ZERO, ZERO
    if y > 0:
        slope: Result = ONE if y == 1 else ZERO if y > 1 else INF if not is_negative(x) else ANY
        return (x if odd else 0.0), slope, ZERO
    value = -INF if odd and is_negative(x) else INF
    return value, -INF if not is_negative(x) else ANY, -INF if not is_negative(x) else ANY


def extreme(x: float, y: float, larger: bool) -> Triple:
    """max or min: halves on a tie, NaN with any NaN."""
    if math.isnan(x) or math.isnan(y):
        return NAN, NAN, NAN
    if x == y:
        return (exact(x) if x != 0 else ZERO), HALF, HALF
    first = (x > y) == larger
    return exact(x if first else y), ONE if first else ZERO, ZERO if first else ONE


def maximum(x: float, y: float, _: Format) -> Triple:
    return extreme(x, y, True)


def minimum(x: float, y: float, _: Format) -> Triple:
    return extreme(x, y, False)


def atan2(y: float, x: float, _: Format) -> Triple:
    """The angle of (x, y), first operand y; the partials are x/r^2 and -y/r^2, 0 at infinity, open at the origin."""
    if math.isnan(x) or math.isnan(y):
        return NAN, NAN, NAN
    if x == 0 and y == 0:
        return exact_angle(y, x), ANY, ANY
    if not both_finite(x, y):
        return exact_angle(y, x), ZERO, ZERO
    square = mpf(x) ** 2 + mpf(y) ** 2
    return exact_angle(y, x), mpf(x) / square, -mpf(y) / square


def exact_angle(y: float, x: float) -> Result:
    """atan2 to 200 bits, its special cases from the rounded one."""
    rough = math.atan2(y, x)
    if rough == 0 and (y == 0 or math.isinf(x)):
        return rough
    if both_finite(x, y) and y != 0:
        return mp.atan2(y, x)
    return round(rough / (math.pi / 4)) * mp.pi / 4


def hypot(x: float, y: float, _: Format) -> Triple:
    """The partials are 0 at the origin; where an operand is infinite they are checked elsewhere."""
    if math.isinf(x) or math.isinf(y):
        return INF, ANY, ANY
    if math.isnan(x) or math.isnan(y):
        return NAN, NAN, NAN
    if x == 0 and y == 0:
        return 0.0, ZERO, ZERO
    length = mp.sqrt(mpf(x) ** 2 + mpf(y) ** 2)
    return length, x / length, y / length


def logaddexp(x: float, y: float, _: Format) -> Triple:
    if math.isnan(x) or math.isnan(y):
        return NAN, NAN, NAN
    if x == y:
        return (x if math.isinf(x) else x + mp.log(2)), HALF, HALF
    if not both_finite(x, y):
        return exact(max(x, y)) or ZERO, ONE if x > y else ZERO, ONE if y > x else ZERO
    gap = mpf(y) - x
    if abs(gap) > 10**6:
        return exact(max(x, y)) or ZERO, ONE if x > y else ZERO, ONE if y > x else ZERO
    return max(mpf(x), mpf(y)) + mp.log1p(mp.exp(-abs(gap))), 1 / (1 + mp.exp(gap)), 1 / (1 + mp.exp(-gap))


def xlogy(x: float, y: float, _: Format) -> Triple:
    """0 where x is 0; other edges are checked elsewhere."""
    if math.isnan(x) or math.isnan(y):
        return NAN, NAN, NAN
    if x == 0 or y <= 0 or not both_finite(x, y):
        return (ZERO if x == 0 else ANY), ANY, ANY
    return mpf(x) * mp.log(y), mp.log(y), mpf(x) / y


def floored(x: float, y: float) -> tuple[mpf, mpf]:
    """floor(x/y) and what is left, exactly."""
    with mp.workprec(4400):
        quotient = mp.floor(mpf(x) / mpf(y))
        return quotient, mpf(x) - quotient * mpf(y)


def floor_divide(x: float, y: float, _: Format) -> Triple:
    if not both_finite(x, y) or y == 0 or x == 0:
        return ANY, ANY, ANY
    return floored(x, y)[0] or ZERO, ZERO, ZERO


def remainder(x: float, y: float, _: Format) -> Triple:
    if not both_finite(x, y) or y == 0 or x == 0:
        return ANY, ANY, ANY
    quotient, rest = floored(x, y)
    return rest or ZERO, ONE, -quotient if quotient else ZERO


POWERS = (
    *(
        (0.0, 0.5),
        (0.0, 3.0),
        (-0.0, 3.0),
        (-0.0, -1.0),
        (0.0, -2.5),
        (-2.0, 3.0),
        (-2.0, -1.0),
        (-2.0, 0.5),
        (-2.0, 0.0),
    ),
    *(
        (5.0, 0.0),
        (1.0, 7.5),
        (10.0, 22.0),
        (1.0000001, 1e8),
        (0.9999999, -1e8),
        (2.0, 0.5),
        (1e-20, 1.5),
        (1e20, -1.5),
    ),
    *((10.0, 400.0), (10.0, -400.0)),
)
QUOTIENTS = ((1e-200, 1e-200), (1e-30, 1e-30), (1.0, 3.0), (1e200, 1e-200), (1e-20, 1e20))
PRODUCTS = ((1e-200, 1e-200), (1e200, 1e200), (1e-30, 1e-30), (0.1, 3.0), (1e-160, 1e-160))
ANGLES = ((1e200, 1e200), (1e-200, 1e-200), (1e20, 1e20), (1e-30, 1e-30), (1e-300, -1.0), (3.0, 4.0))

BINARY = [
    Binary("add", add, special=((1.0, 1e-17), (0.1, 0.2), (3.0, -3.0), (1e16, -1.0))),
    Binary("sub", sub, special=((1.0, 1e-17), (0.3, 0.1), (3.0, 3.0), (1e16, 1.0))),
    Binary("mul", mul, special=PRODUCTS),
    Binary("mul_by_constant", mul_by_constant, special=((0.1, 3.0), (1e30, 1e30))),
    Binary("div", div, interval=(0.1, 10.0), special=QUOTIENTS),
    Binary("mean", mean, special=((0.1, 0.2), (3.0, -3.0))),
    Binary("add_squares", add_squares, special=((3.0, 4.0), (1e-30, 1.0), (1e160, 1.0), (1e-23, 1e-23))),
    Binary("mean_squares", mean_squares, special=((3.0, 4.0), (1e-30, 1.0), (1e-23, 1e-23))),
    Binary("negative_mean", negative_mean, special=((0.1, 0.2), (3.0, -3.0))),
    Binary("pow", power, interval=(0.1, 5.0), special=POWERS),
    Binary("max", maximum, special=((3.0, 3.0), (0.1, 0.2))),
    Binary("min", minimum, special=((3.0, 3.0), (0.1, 0.2))),
    Binary("atan2", atan2, special=ANGLES),
    Binary("hypot", hypot, special=((3.0, 4.0), (1e200, 1e200), (1e-200, 1e-200), (1e-30, 1e-30), (1.0, 1e-9))),
    Binary("logaddexp", logaddexp, special=((100.0, 99.0), (-1000.0, -1000.5), (3.0, 3.0))),
    Binary("xlogy", xlogy, interval=(0.1, 10.0), special=((2.0, 1.0), (3.0, 0.9999999), (-2.0, 5.0))),
    Binary("floor_divide", floor_divide, interval=(0.1, 10.0), special=((-7.0, 2.0), (1e15, 0.3), (6.0, 3.0))),
    Binary("remainder", remainder, interval=(0.1, 10.0), special=((-7.0, 2.0), (7.0, -2.0), (1e15, 0.3), (6.0, 3.0))),
]
