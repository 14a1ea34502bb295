"""Writes tests/data/f128_reference.txt: values and partials of every elementwise op at random float128 numbers.

    python tests/make_f128_reference.py            # needs mpmath; the table is committed, tests need only the table

One record a line: op, then each operand as the 128 bits of a float128 in hexadecimal, a bar, and for the value and each
partial the bits of the nearest float128 and what is left of the exact result, in units of its last place.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from mpmath import mp, mpf
from ops_reference.unary import UNARY

mp.prec = 400
TABLE = Path(__file__).resolve().parent / "data" / "f128_reference.txt"
POINTS = 24
# The derivative of gelu is piecewise: this tests several points per piece.
MORE_POINTS = {"gelu": 400}
LARGEST = mpf(2) ** 16384 * (1 - mpf(2) ** -113)

# fmt: off
BINARY = {
    "add": (lambda x, y: (x + y, mpf(1), mpf(1)), (-10, 10)),
    "sub": (lambda x, y: (x - y, mpf(1), mpf(-1)), (-10, 10)),
    "mul": (lambda x, y: (x * y, y, x), (-10, 10)),
    "div": (lambda x, y: (x / y, 1 / y, -x / y**2), (-10, 10)),
    "mean": (lambda x, y: ((x + y) / 2, mpf(1) / 2, mpf(1) / 2), (-10, 10)),
    "add_squares": (lambda x, y: (x * x + y * y, 2 * x, 2 * y), (-10, 10)),
    "mean_squares": (lambda x, y: ((x * x + y * y) / 2, x, y), (-10, 10)),
    "negative_mean": (lambda x, y: (-(x + y) / 2, mpf(-1) / 2, mpf(-1) / 2), (-10, 10)),
    "pow": (lambda x, y: (x**y, y * x ** (y - 1), x**y * mp.log(x)), (0.01, 20)),
    "atan2": (lambda x, y: (mp.atan2(x, y), y / (x * x + y * y), -x / (x * x + y * y)), (-10, 10)),
    "max": (lambda x, y: (max(x, y), mpf(x > y), mpf(y > x)), (-10, 10)),
    "hypot": (lambda x, y: (mp.hypot(x, y), x / mp.hypot(x, y), y / mp.hypot(x, y)), (-10, 10)),
    "logaddexp": (
        lambda x, y: (mp.log(mp.exp(x) + mp.exp(y)), 1 / (1 + mp.exp(y - x)), 1 / (1 + mp.exp(x - y))), (0, 10)
    ),
    "xlogy": (lambda x, y: (x * mp.log(y), mp.log(y), x / y), (2, 10)),
    "floor_divide": (lambda x, y: (mp.floor(x / y), mpf(0), mpf(0)), (0.1, 10)),
    "remainder": (lambda x, y: (x - y * mp.floor(x / y), mpf(1), -mp.floor(x / y)), (0.1, 10)),
    "min": (lambda x, y: (min(x, y), mpf(x < y), mpf(y < x)), (-10, 10)),
}
# fmt: on


def split(x: mpf) -> tuple[int, int]:
    """The 113 bits of the nearest float128 with a sign, and the exponent of the last."""
    exponent = int(mp.floor(mp.log(abs(x), 2))) - 112
    scaled = x / mpf(2) ** exponent
    if abs(scaled) >= mpf(2) ** 113:
        exponent, scaled = exponent + 1, scaled / 2
    whole = int(mp.nint(scaled))
    return whole, exponent


def bits(whole: int, exponent: int) -> int:
    """The normal float128 whole * 2^exponent."""
    size = abs(whole)
    if size == 2**113:
        size, exponent = 2**112, exponent + 1
    stored = exponent + 112 + 16383
    assert 0 < stored < 32767, "the points keep to normal numbers"
    return (int(whole < 0) << 127) | (stored << 112) | (size - 2**112)


def words(x: mpf) -> str:
    """The nearest float128, and the remainder in units of its last place."""
    if x == 0:
        return "0 0"
    if abs(x) > LARGEST:
        return f"{(int(x < 0) << 127) | (32767 << 112):x} 0"
    whole, exponent = split(x)
    rest = float(x / mpf(2) ** exponent - whole)
    return f"{bits(whole, exponent):x} {rest:.6f}"


def nearest(x: float, rng: random.Random) -> mpf:
    """A random float128 near x."""
    whole, exponent = split(mpf(x) * (1 + mpf(rng.getrandbits(112)) / mpf(2) ** 160))
    return mpf(whole) * mpf(2) ** exponent


def records() -> Iterator[str]:
    for op in UNARY:
        rng = random.Random(op.name)
        low, high = op.interval
        low = max(low, op.lowest + (0.001 if op.lowest > -1e9 else 0))
        drawn = [rng.uniform(low, high) for _ in range(MORE_POINTS.get(op.name, POINTS))]
        drawn += [x for x in op.special if x > max(op.lowest, -700) and 1e-100 < abs(x) < 1e22]
        for x in (nearest(x, rng) for x in drawn):
            results = [r if isinstance(r, mpf) else mpf(0) for r in (op.value(x), op.partial(x))]
            yield f"{op.name} {bits(*split(x)):x} | {words(results[0])} {words(results[1])}"
    for name, (exact, (low, high)) in BINARY.items():
        rng = random.Random(name)
        for _ in range(POINTS):
            x, y = (nearest(rng.uniform(low, high), rng) for _ in range(2))
            operands = f"{bits(*split(x)):x} {bits(*split(y)):x}"
            yield f"{name} {operands} | {' '.join(words(r) for r in exact(x, y))}"


def main() -> None:
    lines = list(records())
    TABLE.write_text("\n".join(lines) + "\n")
    print(f"{TABLE}: {len(lines)} records, {TABLE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
