"""What a record holds: one line of text made of exact numbers and of symbols for what has no exact number.

Promises: the first double of an expected number is the exact value rounded once, the second is what is left over, so
that errors below one unit in the last place can be measured. Knows nothing of ops.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from mpmath import mp, mpf

mp.prec = 200

# A result: an exact number, a float (zeros with their sign, infinities, NaN), or one of the words ANY and ZERO.
Result = mpf | float | str
ANY = "any"  # the rules leave it open
ZERO = "zero"  # a zero of either sign
NAN, INF = math.nan, math.inf


@dataclass(frozen=True)
class Format:
    """A floating-point type: its name, its largest finite, its smallest positive and its smallest normal number."""

    name: str
    largest: float
    smallest: float
    smallest_normal: float

    def nearest(self, x: float) -> float:
        """x rounded to this type."""
        if self.name == "f64" or not math.isfinite(x):
            return x
        return float(struct.unpack("<f", struct.pack("<f", x))[0])


F64 = Format("f64", 1.7976931348623157e308, 5e-324, 2.2250738585072014e-308)
F32 = Format("f32", 3.4028234663852886e38, 1.401298464324817e-45, 1.1754943508222875e-38)


def nearest_double(x: mpf) -> float:
    """x rounded once to a double, subnormals included (mpmath's own conversion rounds those twice)."""
    sign, mantissa, exponent, _ = x._mpf_
    numerator, denominator = int(mantissa) << max(exponent, 0), 1 << max(-exponent, 0)
    try:
        rounded = numerator / denominator
    except OverflowError:
        rounded = INF
    return -rounded if sign else rounded


def settle(result: Result, form: Format) -> Result:
    """The result as the type can hold it: overflow becomes an infinity, underflow a signed zero."""
    if not isinstance(result, mpf):
        return result
    if result == 0:
        return ZERO
    sign = -1.0 if result < 0 else 1.0
    digits = 53 if form.name == "f64" else 24
    if abs(result) >= mpf(form.largest) * (1 + mpf(2) ** -(digits + 1)):
        return sign * INF
    if abs(result) <= mpf(form.smallest) / 2:
        return sign * 0.0
    return result


def bits(x: float) -> str:
    """The 64 bits of a double as hexadecimal digits without leading zeros."""
    return f"{struct.unpack('<Q', struct.pack('<d', x))[0]:x}"


def expected(result: Result, form: Format) -> str:
    """Two words: the number and what rounding it left over, or a symbol and 0."""
    result = settle(result, form)
    if isinstance(result, str):
        return f"{result} 0"
    if isinstance(result, float):
        if math.isnan(result):
            return "nan 0"
        if math.isinf(result):
            return "inf 0" if result > 0 else "-inf 0"
        return f"{bits(result)} 0"
    high = nearest_double(result)
    return f"{bits(high)} {bits(nearest_double(result - mpf(high)))}"


def record(form: Format, op: str, inputs: Sequence[float], value: Result, partials: Sequence[Result]) -> str:
    """One line: type, op, number of inputs, inputs, value, a partial for each input (a zero of either sign)."""
    free = [ZERO if isinstance(p, float) and p == 0 else p for p in (settle(p, form) for p in partials)]
    words = [form.name, op, str(len(inputs)), *map(bits, inputs), expected(value, form)]
    return " ".join([*words, *(expected(p, form) for p in free)])
