"""Second derivatives of every op of the op table, as textbooks define them, in decimal numbers of 60 digits.

Nothing here comes from burtorch. A reference takes floats and returns the upper triangle of the Hessian by rows. An
entry is a pair: the number, and the sum of the absolute values of its terms, by which an error is measured; or a float:
an infinity, a NaN or a zero that holds as a limit; or ``ANY``, where no rule says what it is.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from itertools import product

CONTEXT = decimal.Context(prec=60, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN, traps=[])
INF, NAN, ANY = math.inf, math.nan, "any"

SIZES = [
    *(5e-324, 1e-310, 2.2250738585072014e-308, 1e-300, 1e-200, 1e-154, 1e-100, 1e-50, 1e-20, 1e-8, 1e-3, 0.1, 0.25),
    *(0.5, 0.9, 1 - 2**-53, 1.0, 1 + 2**-52, 1.5, 2.0, 3.0, 7.5, 20.0, 100.0, 700.0, 1e5, 1e16, 1e100, 1e154, 1e200),
    *(1e300, 1.7976931348623157e308, INF),
]
# 69 numbers: zeros of both signs, subnormals, the ends of the range, infinities, NaN, limits of domains.
SPECIAL = [0.0, *SIZES, -0.0, *(-size for size in SIZES), NAN]

Entry = object


def d(x: float) -> Decimal:
    return Decimal(x)


def exact(x: Decimal, size: Decimal | None = None) -> Entry:
    return (x, abs(x) if size is None else size)


def _pi(digits: int) -> Decimal:
    """By Machin's formula, in integers."""

    def arctan_of_inverse(n: int) -> int:
        term = total = unit // n
        k, sign = 3, -1
        while term:
            term //= n * n
            total += sign * (term // k)
            k, sign = k + 2, -sign
        return total

    unit = 10 ** (digits + 10)
    whole = 4 * (4 * arctan_of_inverse(5) - arctan_of_inverse(239))
    with decimal.localcontext(decimal.Context(prec=digits)):
        return Decimal(whole).scaleb(-digits - 10)


PI = _pi(400)


def cos_sin(x: float) -> tuple[Decimal, Decimal]:
    """By their series, after reduction with as many digits of pi as the largest float needs."""
    with decimal.localcontext(decimal.Context(prec=400)):
        rest = d(x) % (2 * PI)
    cosine, sine, term = Decimal(0), Decimal(0), Decimal(1)
    with decimal.localcontext(decimal.Context(prec=80, Emin=decimal.MIN_EMIN)):
        for k in range(160):
            if k % 2:
                sine += term if k % 4 == 1 else -term
            else:
                cosine += term if k % 4 == 0 else -term
            term = term * rest / (k + 1)
    return cosine, sine


def domain(inside: Callable[[Decimal], Entry], at_zero: Entry, at_inf: Entry, lowest: float = -INF, **edges: Entry):
    """A reference for an op of one operand: inside its domain, at 0, at infinity; NaN below the domain."""

    def reference(x: float) -> list[Entry]:
        if math.isnan(x) or x < lowest:
            return [NAN]
        if math.isinf(x):
            return [at_inf if x > 0 or "at_minus_inf" not in edges else edges["at_minus_inf"]]
        if x == 0 and at_zero is not None:
            return [at_zero if math.copysign(1, x) > 0 or "at_minus_zero" not in edges else edges["at_minus_zero"]]
        if x == lowest and "at_lowest" in edges:
            return [edges["at_lowest"]]
        return [inside(d(x))]

    return reference


def straight(x: float) -> list[Entry]:
    """No curvature. For NaN the rules leave open whether there is a derivative."""
    return [ANY if math.isnan(x) else 0.0]


def fall(size: Decimal) -> tuple[Decimal, Decimal]:
    """e = exp(-size), and 1 - e without cancellation."""
    e = (-size).exp()
    return e, size - size**2 / 2 + size**3 / 6 if size < Decimal("1e-20") else 1 - e


def sigmoid_bend(x: Decimal) -> Entry:
    e, rest = fall(abs(x))
    return exact(e * rest / (1 + e) ** 3 * (-1 if x > 0 else 1))


def tanh_bend(x: Decimal) -> Entry:
    e, rest = fall(2 * abs(x))
    return exact(8 * e * rest / (1 + e) ** 3 * (-1 if x > 0 else 1))


def trigonometric(bend: Callable[[Decimal, Decimal], Decimal]) -> Callable[[float], list[Entry]]:
    return lambda x: [exact(bend(*cos_sin(x))) if math.isfinite(x) else NAN]


def bell(x: Decimal) -> Decimal:
    """The density of the normal distribution."""
    return (-x * x / 2).exp() / (2 * PI).sqrt()


def gelu_bend(x: Decimal) -> Entry:
    density = bell(x)
    # The error of the density grows with the square of its argument.
    return exact(density * (2 - x * x), density * (2 + x * x) * (1 + x * x))


LN2, LN10 = CONTEXT.ln(Decimal(2)), CONTEXT.ln(Decimal(10))


def below_one(x: Decimal) -> Decimal:
    """1 - x^2 without cancellation."""
    return (1 - x) * (1 + x)


def root_cubed(x: Decimal) -> Decimal:
    return x * x.sqrt()


def within_one(inside: Callable[[Decimal], Entry], sign_at_one: int) -> Callable[[float], list[Entry]]:
    """A reference for an op on [-1, 1], odd in its second derivative, which is infinite at both ends."""

    def reference(x: float) -> list[Entry]:
        if abs(x) < 1:
            return [inside(d(x))]
        return [math.copysign(INF, x * sign_at_one) if abs(x) == 1 else NAN]

    return reference


def cosh_sinh(x: Decimal) -> tuple[Decimal, Decimal]:
    """Both halves of an exponential, the second one accurate near 0."""
    cosh = (x.exp() + (-x).exp()) / 2
    return cosh, x + x**3 / 6 + x**5 / 120 if abs(x) < Decimal("1e-10") else (x.exp() - (-x).exp()) / 2


def bernoulli(n: int) -> list[Fraction]:
    """The Bernoulli numbers of even index up to 2n."""
    numbers = [Fraction(1)]
    for m in range(1, 2 * n + 1):
        numbers.append(-sum(math.comb(m + 1, k) * numbers[k] for k in range(m)) / (m + 1))
    return numbers[::2]


BERNOULLI = bernoulli(30)


def polygamma(n: int, x: Decimal) -> Entry:
    """The n-th derivative of digamma, n = 1 or 2: steps to where Stirling's series is accurate."""
    total = size = Decimal(0)
    while x < 40:
        term = (-1) ** (n + 1) * math.factorial(n) / x ** (n + 1)
        total, size, x = total + term, size + abs(term), x + 1
    # Derivatives of log x - 1/(2x) - sum of B_2k / (2k x^2k).
    tail = 1 / x + 1 / (2 * x * x) if n == 1 else -1 / x**2 - 1 / x**3
    for k, b in enumerate(BERNOULLI[1:], start=1):
        factor = Decimal(b.numerator) / Decimal(b.denominator)
        tail += factor / x ** (2 * k + 1) if n == 1 else -factor * (2 * k + 1) / x ** (2 * k + 2)
    return exact(total + tail, size + abs(tail))


def with_poles(n: int, at_zero: Entry, at_minus_zero: Entry, at_pole: Entry) -> Callable[[float], list[Entry]]:
    """`polygamma`, with poles at 0, -1, -2 ..."""

    def reference(x: float) -> list[Entry]:
        if math.isnan(x):
            return [NAN]
        if math.isinf(x):
            return [0.0 if x > 0 else ANY]
        if x == 0:
            return [at_zero if math.copysign(1, x) > 0 else at_minus_zero]
        return [at_pole if x < 0 and x == math.floor(x) else polygamma(n, d(x))]

    return reference


def cube_root_bend(x: Decimal) -> Entry:
    size = (abs(x).ln() * -5 / 3).exp() * 2 / 9
    return exact(-size if x > 0 else size)


def silu_bend(x: Decimal) -> Entry:
    e, rest = fall(abs(x))
    slope, tilt = e / (1 + e) ** 2, abs(x) * rest / (1 + e)
    return exact(slope * (2 - tilt), slope * (2 + tilt))


SELU_DEPTH = Decimal("1.0507009873554804934193349852946") * Decimal("1.6732632423543772848170429916717")


# Computed where decimal arithmetic needs no limit; other values are stated.
UNARY = {
    "relu": straight,
    "abs": straight,
    "neg": straight,
    "tanh": domain(tanh_bend, 0.0, 0.0),
    "sigmoid": domain(sigmoid_bend, 0.0, 0.0),
    "softplus": domain(lambda x: exact((-abs(x)).exp() / (1 + (-abs(x)).exp()) ** 2), None, 0.0),
    "exp": domain(lambda x: exact(x.exp()), None, INF, at_minus_inf=0.0),
    "expm1": domain(lambda x: exact(x.exp()), None, INF, at_minus_inf=0.0),
    "log": domain(lambda x: exact(-1 / (x * x)), -INF, 0.0, lowest=0.0),
    "neg_log": domain(lambda x: exact(1 / (x * x)), INF, 0.0, lowest=0.0),
    "log1p": domain(lambda x: exact(-1 / ((1 + x) * (1 + x))), None, 0.0, lowest=-1.0, at_lowest=-INF),
    "inv": domain(lambda x: exact(2 / x**3), INF, 0.0, at_minus_zero=-INF),
    "sqr": domain(lambda x: exact(Decimal(2)), None, exact(Decimal(2))),
    "pow3": domain(lambda x: exact(6 * x), 0.0, INF, at_minus_inf=-INF),
    "sqrt": domain(lambda x: exact(-1 / (4 * x * x.sqrt())), -INF, 0.0, lowest=0.0, at_minus_zero=INF),
    "inv_sqrt": domain(lambda x: exact(3 / (4 * x * x * x.sqrt())), INF, 0.0, lowest=0.0, at_minus_zero=-INF),
    "sin": trigonometric(lambda cos, sin: -sin),
    "cos": trigonometric(lambda cos, sin: -cos),
    "tan": trigonometric(lambda cos, sin: 2 * sin / cos**3),
    "erf": domain(lambda x: exact(-4 * x * (-x * x).exp() / PI.sqrt()), 0.0, 0.0),
    "gelu": domain(gelu_bend, None, 0.0),
    "asin": within_one(lambda x: exact(x / root_cubed(below_one(x))), 1),
    "acos": within_one(lambda x: exact(-x / root_cubed(below_one(x))), -1),
    "atan": domain(lambda x: exact(-2 * x / (1 + x * x) ** 2), None, 0.0),
    "sinh": domain(lambda x: exact(cosh_sinh(x)[1]), None, INF, at_minus_inf=-INF),
    "cosh": domain(lambda x: exact(cosh_sinh(x)[0]), None, INF),
    "asinh": domain(lambda x: exact(-x / root_cubed(1 + x * x)), None, 0.0),
    "acosh": domain(lambda x: exact(-x / root_cubed(-below_one(x))), NAN, 0.0, lowest=1.0, at_lowest=-INF),
    "atanh": within_one(lambda x: exact(2 * x / below_one(x) ** 2), 1),
    "log2": domain(lambda x: exact(-1 / (x * x * LN2)), -INF, 0.0, lowest=0.0),
    "log10": domain(lambda x: exact(-1 / (x * x * LN10)), -INF, 0.0, lowest=0.0),
    "exp2": domain(lambda x: exact((x * LN2).exp() * LN2 * LN2), None, INF, at_minus_inf=0.0),
    "exp10": domain(lambda x: exact((x * LN10).exp() * LN10 * LN10), None, INF, at_minus_inf=0.0),
    "cbrt": domain(cube_root_bend, -INF, 0.0, at_minus_zero=INF),
    "erfc": domain(lambda x: exact(4 * x * (-x * x).exp() / PI.sqrt()), 0.0, 0.0),
    "ndtr": domain(lambda x: exact(-x * bell(x)), 0.0, 0.0),
    "lgamma": with_poles(1, INF, INF, ANY),
    "digamma": with_poles(2, -INF, INF, ANY),
    "silu": domain(silu_bend, None, 0.0),
    # The slope has a kink at 0: 0 is between both sides.
    "softsign": domain(lambda x: exact((-2 if x > 0 else 2) / (1 + abs(x)) ** 3), 0.0, 0.0),
    # The slope jumps at 0; the second derivative is that of the side whose slope is used.
    "selu": domain(lambda x: 0.0 if x > 0 else exact(SELU_DEPTH * x.exp()), 0.0, 0.0),
    "sign": straight,
    "round": straight,
    "floor": straight,
    "ceil": straight,
}


def flat(x: float, y: float) -> list[Entry]:
    """No curvature; unspecified if an operand is NaN."""
    return [ANY] * 3 if math.isnan(x) or math.isnan(y) else [0.0] * 3


def constant(xx: int, xy: int, yy: int) -> Callable[[float, float], list[Entry]]:
    return lambda x, y: [ANY] * 3 if math.isnan(x) or math.isnan(y) else [exact(Decimal(v)) for v in (xx, xy, yy)]


def div(x: float, y: float) -> list[Entry]:
    if math.isnan(x) or math.isnan(y) or (math.isinf(x) and math.isinf(y)):
        return [0.0 if not math.isnan(x + y) else ANY, ANY, ANY]
    if math.isinf(y):
        return [0.0, 0.0, 0.0]
    if y == 0:
        sign = math.copysign(1, y) * math.copysign(1, x)
        return [0.0, -INF, sign * INF] if x != 0 else [0.0, ANY, NAN]
    by_y = 0.0 if x == 0 else math.copysign(1, x) * math.copysign(1, y) * INF if math.isinf(x) else None
    return [0.0, exact(-1 / (d(y) * d(y))), by_y if by_y is not None else exact(2 * d(x) / d(y) ** 3)]


def atan2(x: float, y: float) -> list[Entry]:
    """At the point (y, x)."""
    if math.isnan(x) or math.isnan(y) or x == y == 0:
        return [NAN] * 3
    if math.isinf(x) or math.isinf(y):
        return [0.0] * 3
    x, y = d(x), d(y)
    square = x * x + y * y
    bend, twist = -2 * x * y / square**2, (x * x - y * y) / square**2
    return [exact(bend), exact(twist, 1 / square), exact(-bend)]


def power(x: float, y: float) -> list[Entry]:
    """At x = 0: limits from the right; 0^y is constant for y >= 0 (a convention at 0^0)."""
    if math.isnan(x) or math.isnan(y) or math.isinf(y) or x == -INF:
        return [ANY] * 3
    is_whole = y == math.floor(y)
    if x < 0 and not is_whole:
        return [NAN] * 3
    curved = d(y) * (d(y) - 1)
    if x == 0 or x == INF:
        return _power_at_the_end(x, y, curved, is_whole)
    log = abs(d(x)).ln()

    def size(e: Decimal) -> Decimal:
        return max(min(e * log, Decimal(10**6)), Decimal(-(10**6))).exp()

    xx = curved * size(d(y) - 2) * (-1 if x < 0 and y % 2 == 1 else 1)
    if x < 0:
        return [exact(xx), NAN, NAN]
    xy, factor = size(d(y) - 1), 1 + d(y) * log
    return [exact(xx), exact(xy * factor, xy * (1 + abs(d(y) * log))), exact(size(d(y)) * log * log)]


def _power_at_the_end(x: float, y: float, curved: Decimal, is_whole: bool) -> list[Entry]:
    is_negative = math.copysign(1, x) < 0
    sign = math.copysign(1, curved) * (-1 if is_negative and is_whole and y % 2 == 1 else 1)
    rises = y > 2 if x else y < 2
    xx = 0.0 if curved == 0 else exact(Decimal(2)) if y == 2 else sign * INF if rises else 0.0
    if x:
        return [xx, INF if y >= 1 else 0.0, INF if y >= 0 else 0.0]
    xy = 0.0 if y > 1 else -INF if y > 0 else INF
    yy = 0.0 if y >= 0 else INF
    return [xx, ANY if is_negative else xy, ANY if is_negative else yy]


LARGE = Decimal("1e300")


def hypot(x: float, y: float) -> list[Entry]:
    """0 at the origin, as the first derivatives are."""
    if math.isnan(x) or math.isnan(y) or (math.isinf(x) and math.isinf(y)):
        return [ANY] * 3
    if x == y == 0 or math.isinf(x) or math.isinf(y):
        return [0.0] * 3
    x, y = d(x), d(y)
    square = x * x + y * y
    cube, whole = root_cubed(square), 1 / square.sqrt()
    # If the inverse of the length is out of range, scaled by the length.
    sizes = [whole if whole > LARGE else None] * 3
    return [exact(v / cube, size) for v, size in zip((y * y, -x * y, x * x), sizes)]


def logaddexp(x: float, y: float) -> list[Entry]:
    if math.isnan(x) or math.isnan(y) or (math.isinf(x) and x == y):
        return [ANY] * 3
    if math.isinf(x) or math.isinf(y):
        return [0.0] * 3
    e = (-abs(d(x) - d(y))).exp()
    bend = e / (1 + e) ** 2
    return [exact(bend), exact(-bend), exact(bend)]


def xlogy(x: float, y: float) -> list[Entry]:
    """x log(y), which is 0 along x = 0."""
    if math.isnan(x) or math.isnan(y):
        return [ANY] * 3
    if x == 0 and y <= 0:
        return [0.0, ANY, ANY]
    if y < 0:
        return [ANY, NAN, NAN]
    if y == 0:
        return [0.0, math.copysign(INF, y), math.copysign(INF, -x)]
    if math.isinf(y):
        return [0.0, *([ANY] * 2 if math.isinf(x) else [0.0] * 2)]
    return [0.0, exact(1 / d(y)), math.copysign(INF, -x) if math.isinf(x) else exact(-d(x) / d(y) ** 2)]


def pieces(x: float, y: float) -> list[Entry]:
    """Constant or linear pieces; unspecified where there is no quotient."""
    is_open = math.isnan(x) or math.isnan(y) or math.isinf(x) or y == 0
    return [ANY] * 3 if is_open else [0.0] * 3


BINARY = {
    "add": flat,
    "sub": flat,
    "mean": flat,
    "negative_mean": flat,
    "max": flat,
    "min": flat,
    "mul": constant(0, 1, 0),
    "add_squares": constant(2, 0, 2),
    "mean_squares": constant(1, 0, 1),
    "div": div,
    "atan2": atan2,
    "pow": power,
    "hypot": hypot,
    "logaddexp": logaddexp,
    "xlogy": xlogy,
    "floor_divide": pieces,
    "remainder": pieces,
}


def elu(x: float, c: float) -> Entry:
    """Where the slope jumps, at 0, the curvature is 0."""
    if math.isnan(x) or math.isnan(c) or (math.isinf(c) and x <= 0) or x == -INF:
        return ANY
    return 0.0 if x >= 0 else exact(d(c) * d(x).exp())


# With respect to the operand; the other one is constant.
CONSTANT = {
    "add_constant": lambda x, c: flat(x, c)[0],
    "mul_by_constant": lambda x, c: flat(x, c)[0],
    "div_by_constant": lambda x, c: div(x, c)[0],
    "pow_constant": lambda x, c: power(x, c)[0],
    "leaky_relu": lambda x, c: flat(x, c)[0],
    "elu": elu,
}

# Lists of ordinary and extreme numbers, and ties of two and three.
FEW = [0.0, -0.0, 1.0, -2.5, 1e-200, 1e-310, 1e160, -1e160, 700.0, -1e300]
LISTS = [list(xs) for xs in product(FEW, repeat=3)] + [[0.5], [0.0, 0.0], [3.0] * 5, [1e3, 1e3, -1e3, 0.0]]

Matrix = list[list[Entry]]


def matrix(n: int, entry: Callable[[int, int], Entry]) -> Matrix:
    return [[entry(i, j) for j in range(n)] for i in range(n)]


def everywhere(value: Callable[[int, int, int], Decimal]) -> Callable[[list[float]], Matrix]:
    """A constant Hessian, given entry i, j of n."""
    return lambda xs: matrix(len(xs), lambda i, j: exact(value(i, j, len(xs))))


def reduce_mul(xs: list[float]) -> Matrix:
    def entry(i: int, j: int) -> Entry:
        if i == j:
            return 0.0
        total = Decimal(1)
        for k, x in enumerate(xs):
            total *= 1 if k in (i, j) else d(x)
        return exact(total)

    return matrix(len(xs), entry)


def logsumexp(xs: list[float]) -> Matrix:
    weights = [(d(x) - d(max(xs))).exp() for x in xs]
    total = sum(weights)
    q = [w / total for w in weights]

    def entry(i: int, j: int) -> Entry:
        others = sum(w for k, w in enumerate(q) if k != i)
        return exact(q[i] * others if i == j else -q[i] * q[j])

    return matrix(len(xs), entry)


def norm2(xs: list[float]) -> Matrix:
    """0 at the origin, as the first derivative there is."""
    if not any(xs):
        return matrix(len(xs), lambda i, j: 0.0)
    length = sum(d(x) * d(x) for x in xs).sqrt()

    def entry(i: int, j: int) -> Entry:
        square = sum(d(x) * d(x) for k, x in enumerate(xs) if k != i)
        value = square / length**3 if i == j else -d(xs[i]) * d(xs[j]) / length**3
        return exact(value, 1 / length)

    return matrix(len(xs), entry)


REDUCTIONS = {
    "reduce_sum": everywhere(lambda i, j, n: Decimal(0)),
    "reduce_sub": everywhere(lambda i, j, n: Decimal(0)),
    "reduce_mean": everywhere(lambda i, j, n: Decimal(0)),
    "reduce_negative_mean": everywhere(lambda i, j, n: Decimal(0)),
    "reduce_max": everywhere(lambda i, j, n: Decimal(0)),
    "reduce_min": everywhere(lambda i, j, n: Decimal(0)),
    "reduce_sum_of_squares": everywhere(lambda i, j, n: Decimal(2 if i == j else 0)),
    "reduce_mean_squares": everywhere(lambda i, j, n: Decimal(2 if i == j else 0) / n),
    "variance_biased": everywhere(lambda i, j, n: Decimal(2 * (n * (i == j) - 1)) / (n * n)),
    "variance": everywhere(lambda i, j, n: Decimal(2 * (n * (i == j) - 1)) / (n * (n - 1)) if n > 1 else Decimal(NAN)),
    "reduce_mul": reduce_mul,
    "logsumexp": logsumexp,
    "norm2": norm2,
    "reduce_mean_and_mean_squares": everywhere(lambda i, j, n: Decimal(2 if i == j else 0) / n),
}


def inner(n: int, has_bias: bool) -> Matrix:
    """For n products of x_i and w_i, interleaved, and a bias at the end."""
    of = lambda i, j: Decimal(1 if abs(i - j) == n and max(i, j) < 2 * n else 0)  # noqa: E731
    return matrix(2 * n + has_bias, lambda i, j: exact(of(i, j)))


# Ops that traced functions do not contain have no second derivative: leaves, and blocks, most of which read Parameters.
NOT_RECORDED = {
    *("leaf", "constant", "parameter", "frozen_parameter", "part", "imported"),
    *("affine", "gather", "softmax_cross_entropy", "token_embedding", "token_affine", "layer_norm", "rms_norm"),
    *("causal_attention", "token_cross_entropy", "add_ranges", "softmax", "log_softmax"),
}
# A map has the derivative of the mapped op.
ELSEWHERE = {"map"}
