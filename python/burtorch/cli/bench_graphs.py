"""The two graphs of ``burtorch bench eager``, each as a loop that a user could have written.

tiny is Figure 1 of the BurTorch paper at a = -41, b = 2, small the example of micrograd's README at a = -4, b = 2.
A loop runs its graph ``n`` times and returns the last answer: the value, or the value and the two derivatives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from burtorch import Value

Loop = Callable[[int], "tuple[float, ...]"]

RATIOS = [
    ("burtorch, value and gradient", "floats, value only"),
    ("burtorch, value and gradient", "floats, gradient by hand"),
    ("micrograd, value and gradient", "burtorch, value and gradient"),
]
"""Which medians are compared: the first over the second, where both are there."""

ANSWERS = {
    "tiny": (612.5, -35.0, 1050.0),
    "small": (24.70408163265306, 138.83381924198252, 645.5772594752186),
}


def tiny_floats(n: int) -> tuple[float, ...]:
    for _ in range(n):
        a, b = -41.0, 2.0
        c = a + b
        d = a * b + b**3
        e = c - d
        f = e**2
        g = f / 2
    return (g,)


def tiny_by_hand(n: int) -> tuple[float, ...]:
    for _ in range(n):
        a, b = -41.0, 2.0
        c = a + b
        d = a * b + b**3
        e = c - d
        f = e**2
        g = f / 2
        de = 0.5 * (2 * e)
        da = de - de * b
        db = de - de * (a + 3 * b**2)
    return g, da, db


def tiny_burtorch(n: int) -> tuple[float, ...]:
    for _ in range(n):
        a, b = Value(-41.0), Value(2.0)
        c = a + b
        d = a * b + b**3
        e = c - d
        f = e**2
        g = f / 2
        g.backward()
        da, db = a.grad, b.grad
    return g.data, da, db


def tiny_micrograd(n: int) -> tuple[float, ...]:
    value = _micrograd_value()
    for _ in range(n):
        a, b = value(-41.0), value(2.0)
        c = a + b
        d = a * b + b**3
        e = c - d
        f = e**2
        g = f / 2
        g.backward()
        da, db = a.grad, b.grad
    return g.data, da, db


def small_floats(n: int) -> tuple[float, ...]:
    for _ in range(n):
        a, b = -4.0, 2.0
        c = a + b
        d = a * b + b**3
        c += c + 1
        c += 1 + c + (-a)
        d += d * 2 + max(b + a, 0.0)
        d += 3 * d + max(b - a, 0.0)
        e = c - d
        f = e**2
        g = f / 2.0
        g += 10.0 / f
    return (g,)


def small_by_hand(n: int) -> tuple[float, ...]:
    for _ in range(n):
        a, b = -4.0, 2.0
        c = a + b
        d = a * b + b**3
        c += c + 1
        c += 1 + c + (-a)
        sum_on, difference_on = b + a > 0.0, b - a > 0.0
        d += d * 2 + (b + a if sum_on else 0.0)
        d += 3 * d + (b - a if difference_on else 0.0)
        e = c - d
        f = e**2
        g = f / 2.0
        g += 10.0 / f
        de = (0.5 - 10.0 / (f * f)) * (2 * e)  # c = 4 (a + b) + 3 - a and d = 12 (a b + b^3) + 4 relu + relu
        from_sum = -4 * de if sum_on else 0.0
        from_difference = -de if difference_on else 0.0
        da = 3 * de - 12 * de * b + from_sum - from_difference
        db = 4 * de - 12 * de * (a + 3 * b**2) + from_sum + from_difference
    return g, da, db


def small_burtorch(n: int) -> tuple[float, ...]:
    for _ in range(n):
        a, b = Value(-4.0), Value(2.0)
        c = a + b
        d = a * b + b**3
        c += c + 1
        c += 1 + c + (-a)
        d += d * 2 + (b + a).relu()
        d += 3 * d + (b - a).relu()
        e = c - d
        f = e**2
        g = f / 2.0
        g += 10.0 / f
        g.backward()
        da, db = a.grad, b.grad
    return g.data, da, db


def small_micrograd(n: int) -> tuple[float, ...]:
    value = _micrograd_value()
    for _ in range(n):
        a, b = value(-4.0), value(2.0)
        c = a + b
        d = a * b + b**3
        c += c + 1
        c += 1 + c + (-a)
        d += d * 2 + (b + a).relu()
        d += 3 * d + (b - a).relu()
        e = c - d
        f = e**2
        g = f / 2.0
        g += 10.0 / f
        g.backward()
        da, db = a.grad, b.grad
    return g.data, da, db


def _micrograd_value() -> Any:
    import importlib

    return importlib.import_module("micrograd.engine").Value


GRAPHS: dict[str, dict[str, Loop]] = {
    "tiny": {
        "burtorch, value and gradient": tiny_burtorch,
        "floats, gradient by hand": tiny_by_hand,
        "floats, value only": tiny_floats,
        "micrograd, value and gradient": tiny_micrograd,
    },
    "small": {
        "burtorch, value and gradient": small_burtorch,
        "floats, gradient by hand": small_by_hand,
        "floats, value only": small_floats,
        "micrograd, value and gradient": small_micrograd,
    },
}
