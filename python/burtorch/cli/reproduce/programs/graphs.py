"""The two scalar expressions of the paper, on numbers of any kind, and loops over them that a user could have written.

    tiny    Figure 1 of the paper at a = -41, b = 2: c = a + b; d = a b + b^3; g = (c - d)^2 / 2      (10 nodes)
    small   the expression of micrograd's README at a = -4, b = 2                                     (32 nodes)

A loop runs its graph ``n`` times and returns the last answer: the value, or the value and the two derivatives.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

Loop = Callable[[int], "tuple[float, ...]"]
POINTS = {"tiny": (-41.0, 2.0), "small": (-4.0, 2.0)}
ANSWERS = {
    "tiny": (612.5, -35.0, 1050.0),
    "small": (24.70408163265306, 138.83381924198252, 645.5772594752186),
}


def tiny(a: Any, b: Any, relu: Callable[[Any], Any] | None = None) -> Any:
    """Figure 1 of the paper."""
    c = a + b
    d = a * b + b**3
    e = c - d
    f = e**2
    return f / 2.0


def small(a: Any, b: Any, relu: Callable[[Any], Any] = lambda x: x.relu()) -> Any:
    """The expression of micrograd's README."""
    c = a + b
    d = a * b + b**3
    c = c + (c + 1)
    c = c + (1 + c + (-a))
    d = d + (d * 2 + relu(b + a))
    d = d + (3 * d + relu(b - a))
    e = c - d
    f = e**2
    g = f / 2.0
    return g + 10.0 / f


def tiny_by_hand(a: Any, b: Any) -> tuple[Any, Any, Any]:
    """Value and partials of tiny."""
    e = a + b - (a * b + b * b * b)
    return e * e / 2.0, e * (1.0 - b), e * (1.0 - a - 3.0 * b * b)


def small_by_hand(a: Any, b: Any) -> tuple[Any, Any, Any]:
    """Value and partials of small, where c = 3a + 4b + 2 and d = 12 (a b + b^3) + 4 relu(b + a) + relu(b - a)."""
    c = a + b
    c = c + (c + 1.0)
    c = c + (1.0 + c - a)
    d = a * b + b * b * b
    left, right = b + a, b - a
    d = d + (d * 2.0 + (left if left > 0.0 else 0.0))
    d = d + (3.0 * d + (right if right > 0.0 else 0.0))
    e = c - d
    f = e * e
    de = e - 20.0 / (f * e)
    on_left = 4.0 if left > 0.0 else 0.0
    on_right = 1.0 if right > 0.0 else 0.0
    da = de * (3.0 - (12.0 * b + on_left - on_right))
    db = de * (4.0 - (12.0 * (a + 3.0 * b * b) + on_left + on_right))
    return f / 2.0 + 10.0 / f, da, db


def is_right(answer: tuple[float, ...], graph: str, tolerance: float = 1e-13) -> bool:
    """Whether value and partials agree with those of the graph, relative to each."""
    return all(math.isclose(x, y, rel_tol=tolerance) for x, y in zip(answer, ANSWERS[graph]))


EXPRESSIONS: dict[str, Callable[..., Any]] = {"tiny": tiny, "small": small}
BY_HAND: dict[str, Callable[..., Any]] = {"tiny": tiny_by_hand, "small": small_by_hand}


def eager(graph: str, value: Any) -> Loop:
    """The loop over Values, of burtorch or of micrograd."""
    return {"tiny": _tiny_eager, "small": _small_eager}[graph](value)


def _tiny_eager(value: Any) -> Loop:
    def loop(n: int) -> tuple[float, ...]:
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

    return loop


def _small_eager(value: Any) -> Loop:
    def loop(n: int) -> tuple[float, ...]:
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

    return loop


def tiny_floats(n: int) -> tuple[float, ...]:
    for _ in range(n):
        a, b = -41.0, 2.0
        c = a + b
        d = a * b + b**3
        e = c - d
        f = e**2
        g = f / 2
    return (g,)


def tiny_floats_by_hand(n: int) -> tuple[float, ...]:
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


def small_floats_by_hand(n: int) -> tuple[float, ...]:
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


FLOATS: dict[str, Loop] = {"tiny": tiny_floats, "small": small_floats}
FLOATS_BY_HAND: dict[str, Loop] = {"tiny": tiny_floats_by_hand, "small": small_floats_by_hand}
