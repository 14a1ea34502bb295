"""Writes tests/data/derivatives_reference.txt: gradients and Hessians of the functions in python/derivative_cases.py.

    python tests/make_derivatives_reference.py  # needs mpmath; tests need only the table

One record a line: the name (two words), the inputs as doubles in hexadecimal, a bar, then value, gradient and the upper
triangle of the Hessian by rows, all computed with 100 digits by central differences of step 1e-25, whose error is
1e-50, and rounded to 20.
"""

from __future__ import annotations

import sys
from pathlib import Path

from mpmath import mp, mpf

TESTS = Path(__file__).resolve().parent
TABLE = TESTS / "data" / "derivatives_reference.txt"
SELU_SCALE, SELU_ALPHA = "1.0507009873554804934193349852946", "1.6732632423543772848170429916717"
HEADER = "# name, inputs | value, gradient, upper triangle of the Hessian; see make_derivatives_reference.py\n"


class Ops:
    """The ops on mpmath numbers, by definition."""

    tanh, exp, log, sqrt, sin, cos, tan = mp.tanh, mp.exp, mp.log, mp.sqrt, mp.sin, mp.cos, mp.tan
    log1p, expm1, erf, abs, atan2, max, min = mp.log1p, mp.expm1, mp.erf, abs, mp.atan2, max, min
    relu = staticmethod(lambda x: x if x > 0 else 0 * x)
    neg_log = staticmethod(lambda x: -mp.log(x))
    sigmoid = staticmethod(lambda x: 1 / (1 + mp.exp(-x)))
    inv = staticmethod(lambda x: 1 / x)
    sqr = staticmethod(lambda x: x * x)
    pow3 = staticmethod(lambda x: x * x * x)
    inv_sqrt = staticmethod(lambda x: 1 / mp.sqrt(x))
    neg = staticmethod(lambda x: -x)
    softplus = staticmethod(lambda x: mp.log(1 + mp.exp(x)))
    gelu = staticmethod(lambda x: x * mp.erfc(-x / mp.sqrt(2)) / 2)
    asin, acos, atan, sinh, cosh = mp.asin, mp.acos, mp.atan, mp.sinh, mp.cosh
    asinh, acosh, atanh, erfc, ndtr = mp.asinh, mp.acosh, mp.atanh, mp.erfc, mp.ncdf
    hypot, digamma, sign, floor, ceil, round = mp.hypot, mp.digamma, mp.sign, mp.floor, mp.ceil, mp.nint
    log2 = staticmethod(lambda x: mp.log(x, 2))
    log10 = staticmethod(lambda x: mp.log(x, 10))
    exp2 = staticmethod(lambda x: mpf(2) ** x)
    exp10 = staticmethod(lambda x: mpf(10) ** x)
    cbrt = staticmethod(lambda x: mp.sign(x) * mp.cbrt(mp.fabs(x)))
    lgamma = staticmethod(lambda x: mp.log(mp.fabs(mp.gamma(x))))
    silu = staticmethod(lambda x: x / (1 + mp.exp(-x)))
    softsign = staticmethod(lambda x: x / (1 + mp.fabs(x)))
    leaky_relu = staticmethod(lambda x: x if x > 0 else mpf(0.01) * x)
    elu = staticmethod(lambda x: x if x > 0 else mp.expm1(x))
    selu = staticmethod(lambda x: mpf(SELU_SCALE) * (x if x > 0 else mpf(SELU_ALPHA) * mp.expm1(x)))
    logaddexp = staticmethod(lambda x, y: mp.log(mp.exp(x) + mp.exp(y)))
    xlogy = staticmethod(lambda x, y: x * mp.log(y))
    floor_divide = staticmethod(lambda x, y: mp.floor(x / y))
    remainder = staticmethod(lambda x, y: x - y * mp.floor(x / y))
    mean = staticmethod(lambda x, y: (x + y) / 2)
    add_squares = staticmethod(lambda x, y: x * x + y * y)
    mean_squares = staticmethod(lambda x, y: (x * x + y * y) / 2)
    negative_mean = staticmethod(lambda x, y: -(x + y) / 2)
    reduce_sum = staticmethod(lambda x: mp.fsum(x))
    reduce_sub = staticmethod(lambda x: 2 * x[0] - mp.fsum(x))
    reduce_mul = staticmethod(lambda x: mp.fprod(x))
    reduce_mean = staticmethod(lambda x: mp.fsum(x) / len(x))
    reduce_sum_of_squares = staticmethod(lambda x: mp.fsum(v * v for v in x))
    reduce_mean_squares = staticmethod(lambda x: mp.fsum(v * v for v in x) / len(x))
    reduce_negative_mean = staticmethod(lambda x: -mp.fsum(x) / len(x))
    reduce_mean_and_mean_squares = staticmethod(lambda x: (mp.fsum(x) / len(x), mp.fsum(v * v for v in x) / len(x)))
    variance_biased = staticmethod(lambda x: mp.fsum((v - mp.fsum(x) / len(x)) ** 2 for v in x) / len(x))
    variance = staticmethod(lambda x: mp.fsum((v - mp.fsum(x) / len(x)) ** 2 for v in x) / (len(x) - 1))
    reduce_max, reduce_min = staticmethod(lambda x: max(x)), staticmethod(lambda x: min(x))
    logsumexp = staticmethod(lambda x: mp.log(mp.fsum(mp.exp(v) for v in x)))
    norm2 = staticmethod(lambda x: mp.sqrt(mp.fsum(v * v for v in x)))
    inner_product = staticmethod(lambda x, y: mp.fsum(a * b for a, b in zip(x, y)))
    inner_product_with_bias = staticmethod(lambda x, y, b: mp.fsum(a * c for a, c in zip(x, y)) + b)


def record(name, body, point) -> str:
    """One line of the table."""
    x, h = [mpf(v) for v in point], mpf(10) ** -25

    def at(*moves):
        moved = list(x)
        for k, by in moves:
            moved[k] += by * h
        return body(Ops, *moved)

    n = range(len(x))
    value = at()
    gradient = [(at((k, 1)) - at((k, -1))) / (2 * h) for k in n]
    hessian = []
    for j in n:
        hessian.append((at((j, 1)) - 2 * value + at((j, -1))) / h**2)
        for k in range(j + 1, len(x)):
            corners = at((j, 1), (k, 1)) - at((j, 1), (k, -1)) - at((j, -1), (k, 1)) + at((j, -1), (k, -1))
            hessian.append(corners / (4 * h**2))
    # Removes the rounding error of a zero.
    clean = [mpf(0) if abs(v) < mpf(10) ** -45 else v for v in [value, *gradient, *hessian]]
    return " ".join([name, *(float(v).hex() for v in point), "|", *(mp.nstr(v, 20) for v in clean)])


def main() -> None:
    sys.path.insert(0, str(TESTS / "python"))
    from derivative_cases import cases

    mp.dps = 100
    lines = [record(*case) for case in cases()]
    TABLE.write_text(HEADER + "\n".join(lines) + "\n")
    print(f"{TABLE}: {len(lines)} records, {TABLE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
