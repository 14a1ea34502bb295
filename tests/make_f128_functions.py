"""Writes tests/data/f128_functions.txt: elementary functions of float128 over its whole range, and where they are hard.

    python tests/make_f128_functions.py            # needs mpmath; the table is committed, tests need only the table

One record a line: op, its operands as the 128 bits of a float128 in hexadecimal, a bar, the nearest float128.
Points lie near 0 and 1, near multiples of pi/2, at both ends of the range, and where results under- or overflow soon.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import mpmath as m
from mpmath import mp, mpf

mp.prec = 1000
TABLE = Path(__file__).resolve().parent / "data" / "f128_functions.txt"
POINTS = 32
PRECISION_OF_LARGE_ANGLES = 17_500
rng = random.Random("float128")

Draw = Callable[[], mpf]


def between(low: float, high: float, signed: bool = True) -> Draw:
    """Numbers with magnitudes from 2^low to 2^high."""

    def draw() -> mpf:
        size = mpf(2) ** rng.uniform(low, high) * (1 + mpf(rng.getrandbits(113)) / 2**113)
        return -size if signed and rng.random() < 0.5 else size

    return draw


def near(centre: float, most: int = 112) -> Draw:
    """Numbers near another, at distances up to 2^-most."""
    return lambda: (
        centre + rng.choice((-1, 1)) * mpf(2) ** -rng.randint(1, most) * (1 + mpf(rng.getrandbits(60)) / 2**60)
    )


def right_angles() -> mpf:
    return m.pi * rng.getrandbits(rng.randint(1, 110)) / 2


def power(x: mpf, y: mpf) -> mpf:
    return m.power(abs(x), y) * (-1 if x < 0 and int(y) % 2 else 1)


def log_gamma(x: mpf) -> mpf:
    return m.log(abs(m.gamma(x))) if abs(x) < 1e5 else m.loggamma(x).real


tiny, small, middle, large, above_0 = (
    between(-16490, -100),
    between(-130, 0),
    between(-3, 7),
    between(0, 16383),
    between(-16490, 16383, False),
)
UNARY: dict[str, tuple[Callable[[mpf], mpf], tuple[Draw, ...]]] = {
    "exp": (m.exp, (small, middle, tiny, between(7, 13.5))),
    "expm1": (m.expm1, (small, middle, tiny, between(-60, -30), between(7, 13.4))),
    "exp2": (lambda x: mpf(2) ** x, (small, middle, between(7, 13.99))),
    "exp10": (lambda x: mpf(10) ** x, (small, middle, between(7, 12.2))),
    "log": (m.log, (above_0, near(1), between(-2, 2, False))),
    "log2": (lambda x: m.log(x) / m.log(2), (above_0, near(1), between(-2, 2, False))),
    "log10": (lambda x: m.log(x) / m.log(10), (above_0, near(1), between(-2, 2, False))),
    "log1p": (m.log1p, (small, tiny, between(-80, -60), between(0, 16383, False), near(-1), near(-0.3))),
    "sin": (m.sin, (small, middle, large, tiny, right_angles)),
    "cos": (m.cos, (small, middle, large, tiny, right_angles)),
    "tan": (m.tan, (small, middle, large, tiny, right_angles)),
    "asin": (m.asin, (small, tiny, near(1), near(-1))),
    "acos": (m.acos, (small, tiny, near(1), near(-1))),
    "atan": (m.atan, (small, tiny, middle, large)),
    "sinh": (m.sinh, (small, middle, tiny, between(7, 13.4))),
    "cosh": (m.cosh, (small, middle, between(7, 13.4))),
    "tanh": (m.tanh, (small, middle, tiny)),
    "cbrt": (lambda x: m.cbrt(abs(x)) * m.sign(x), (small, middle, large, tiny)),
    "erf": (m.erf, (small, tiny, middle, between(-2, 3))),
    "erfc": (m.erfc, (small, middle, between(-2, 3), near(4, 10), between(2, 6.74, False))),
    "lgamma": (log_gamma, (small, middle, between(0, 10, False), near(1, 30), near(2, 30), between(10, 16000, False))),
}
BINARY: dict[str, tuple[Callable[[mpf, mpf], mpf], tuple[tuple[Draw, Draw], ...]]] = {
    "atan2": (m.atan2, ((small, middle), (middle, middle), (tiny, small), (large, middle))),
    "hypot": (m.hypot, ((middle, middle), (between(0, 8000), between(0, 8000)), (tiny, tiny))),
    "pow": (
        power,
        (
            (between(-10, 10, False), middle),
            (near(1), between(1, 90)),
            (between(-16000, 16000, False), between(-14, 0)),
            (lambda: -between(0, 5, False)(), lambda: mpf(rng.randint(-500, 500))),
        ),
    ),
}


def to_bits(x: mpf) -> int:
    """The nearest float128; infinity beyond the largest."""
    exponent = max(m.frexp(abs(x))[1] - 1, -16382) if x else -16382
    whole = int(m.nint(abs(x) * mpf(2) ** (112 - exponent)))
    # The leading bit adds one to the exponent, as does a carry.
    return (int(x < 0) << 127) | min(((exponent + 16382) << 112) + whole, 0x7FFF << 112)


def from_bits(bits: int) -> mpf:
    exponent, fraction = (bits >> 112) & 0x7FFF, bits & (2**112 - 1)
    whole = fraction | (2**112 if exponent else 0)
    return (-1 if bits >> 127 else 1) * mpf(whole) * mpf(2) ** (max(exponent, 1) - 16383 - 112)


def is_inside(name: str, xs: list[mpf]) -> bool:
    is_whole = xs[0] == m.floor(xs[0])
    return not (
        (name in ("asin", "acos") and abs(xs[0]) > 1)
        or (name == "log1p" and xs[0] <= -1)
        or (name == "lgamma" and xs[0] <= 0 and is_whole)
    )


def record(name: str, exact: Callable[..., mpf], draws: tuple[Draw, ...]) -> str:
    while True:
        operands = [to_bits(draw()) for draw in draws]
        xs = [from_bits(bits) for bits in operands]
        if is_inside(name, xs):
            break
    with mp.workprec(PRECISION_OF_LARGE_ANGLES if name in ("sin", "cos", "tan") else mp.prec):
        result = exact(*xs)
    return f"{name} {' '.join(f'{bits:x}' for bits in operands)} | {to_bits(result):x}"


def main() -> None:
    lines = [
        record(name, exact, (rng.choice(draws),)) for name, (exact, draws) in UNARY.items() for _ in range(POINTS)
    ] + [record(name, exact, rng.choice(draws)) for name, (exact, draws) in BINARY.items() for _ in range(POINTS)]
    TABLE.write_text("\n".join(lines) + "\n")
    print(f"{TABLE}: {len(lines)} records, {TABLE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
