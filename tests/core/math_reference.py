"""Writes tests/core/math_reference.txt: arguments and exact values of the elementary functions, from
mpmath at 300 bits.

Each line: function, x, y (0 where there is none), the value's nearest f64, and the value minus that; floats as hex
bits.
Run: python3 tests/core/math_reference.py > tests/core/math_reference.txt (mpmath 1.3, about a minute).
"""

import random
import struct

from mpmath import mp, mpf

mp.prec = 300
random.seed(20260101)
POINTS = 90


def bits(x):
    return struct.pack(">d", x).hex()


def sigmoid(x):
    return 1 / (1 + mp.exp(-x))


def phi(x):
    return mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi)


def cdf(x):
    return mp.erfc(-x / mp.sqrt(2)) / 2


def bell(x):
    e = mp.exp(-abs(x))
    return e / (1 + e) ** 2


# function, value, interval, largest binary exponent of the other points
ONE = {
    "exp": (mp.exp, -745, 709.7, 9),
    "expm1": (mp.expm1, -3, 3, 9),
    "log": (mp.log, 0, 4, 1023),
    "log1p": (mp.log1p, -1, 4, 1023),
    "softplus": (lambda x: max(x, mpf(0)) + mp.log1p(mp.exp(-abs(x))), -40, 40, 9),
    "tanh": (mp.tanh, -1, 1, 6),
    "sigmoid": (sigmoid, -40, 40, 9),
    "sigmoid_grad": (bell, -40, 40, 9),
    "sin": (mp.sin, -10, 10, 1023),
    "cos": (mp.cos, -10, 10, 1023),
    "tan": (mp.tan, -10, 10, 1023),
    "tan_grad": (lambda x: mp.sec(x) ** 2, -10, 10, 1023),
    "erf": (mp.erf, -3, 3, 3),
    "erf_grad": (lambda x: 2 / mp.sqrt(mp.pi) * mp.exp(-x * x), -26, 26, 4),
    "normal_pdf": (phi, -37, 37, 5),
    "gelu": (lambda x: x * cdf(x), -37, 8, 5),
    "gelu_grad": (lambda x: cdf(x) + x * phi(x), -37, 8, 5),
}
TWO = {
    "pow": (mp.power, 0, 40),
    "atan2": (mp.atan2, -4, 4),
}


def line(name, x, y, value):
    try:
        high = float(value)
    except OverflowError:
        return
    # Infinities, and numbers near underflow, are tested as special values.
    if high in (float("inf"), float("-inf")) or abs(high) < 2.0**-1000:
        return
    print(name, bits(x), bits(y), bits(high), bits(float(value - mpf(high))))


def point(low, high, top, i):
    if i % 3 < 2:
        return random.uniform(low, high)
    return 2.0 ** random.uniform(-60, top) * (1 if low >= 0 else random.choice([-1, 1]))


for name, (f, low, high, top) in ONE.items():
    for i in range(POINTS):
        x = point(low, high, top, i)
        if name == "log1p" and x <= -1:
            continue
        mp.prec = 300 if abs(x) < 1e10 else 1500
        line(name, x, 0.0, f(mpf(x)))
        mp.prec = 300
for n in range(1, 200, 7):
    # The numbers nearest to multiples of pi/2 have the largest cancellation.
    x = float(mpf(n * n * n) * mp.pi / 2)
    for name in ("sin", "cos", "tan", "tan_grad"):
        line(name, x, 0.0, ONE[name][0](mpf(x)))
for name, (f, low, high) in TWO.items():
    for i in range(2 * POINTS):
        x, y = random.uniform(low, high), random.uniform(-abs(high), high)
        if i % 3 == 2:
            x = 2.0 ** random.uniform(-900, 900)
            y = random.uniform(-1, 1) * (0.9 if name == "pow" else 10.0 ** random.uniform(-250, 250))
        line(name, x, y, f(mpf(x), mpf(y)))
