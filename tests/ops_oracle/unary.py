"""Ops of one operand: value and partial, exact inside the domain, by rule at the edges (C99 Annex F and the project's
semantics)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from mpmath import mp, mpf

from .quantity import ANY, INF, NAN, ZERO, Result

Pair = tuple[Result, Result]
NO = (NAN, NAN)
ONE, HALF = mpf(1), mpf(1) / 2


@dataclass(frozen=True)
class Unary:
    """One op. `edges` maps inputs to results and comes first; zeros of either sign are looked up by their sign."""

    name: str
    value: Callable[[mpf], Result]
    partial: Callable[[mpf], Result]
    plus_zero: Pair | None
    minus_zero: Pair | None
    plus_inf: Pair
    minus_inf: Pair
    lowest: float = -INF  # below it both are NaN
    edges: dict[float, Pair] = field(default_factory=dict)
    at_nan: Pair = (NAN, NAN)
    interval: tuple[float, float] = (-10.0, 10.0)
    special: tuple[float, ...] = ()

    def __call__(self, x: float) -> Pair:
        """Value and partial at any number."""
        if math.isnan(x):
            return self.at_nan
        if x < self.lowest:
            return NAN, NAN
        if math.isinf(x):
            return self.plus_inf if x > 0 else self.minus_inf
        edge = (self.minus_zero if math.copysign(1, x) < 0 else self.plus_zero) if x == 0 else self.edges.get(x)
        return edge or (self.value(mpf(x)), self.partial(mpf(x)))


def normal_density(x: mpf) -> mpf:
    return mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi)


def normal_distribution(x: mpf) -> mpf:
    if abs(x) > 1000:
        return ONE if x > 0 else mpf(2) ** -100_000
    return mp.erfc(-x / mp.sqrt(2)) / 2


def logistic(x: mpf) -> mpf:
    return 1 / (1 + mp.exp(-x))


# fmt: off
UNARY = [
    Unary("relu", lambda x: x if x > 0 else 0.0, lambda x: ONE if x > 0 else ZERO,
          (0.0, ZERO), (0.0, ZERO), (INF, ONE), (0.0, ZERO)),
    Unary("tanh", mp.tanh, lambda x: mp.cosh(x) ** -2,
          (0.0, ONE), (-0.0, ONE), (ONE, ZERO), (-ONE, ZERO),
          interval=(-20, 20), special=(0.76, -0.76, 0.7600001, 8.7, 19.0, 20.0, -22.0, 43.0, 354.0, 372.0)),
    Unary("exp", mp.exp, mp.exp, (ONE, ONE), (ONE, ONE), (INF, INF), (0.0, ZERO),
          interval=(-30, 30), special=(88.7, 88.8, -87.4, -103.9, -104.1, 709.7, 709.8, -708.5, -745.1, -745.2)),
    Unary("neg_log", lambda x: -mp.log(x), lambda x: -1 / x,
          (INF, -INF), (INF, ANY), (-INF, ZERO), NO, lowest=0.0, edges={1.0: (ZERO, -ONE)},
          interval=(0.001, 50), special=(0.9999999, 1.0000001, 0.7, 1.4142135)),
    Unary("sigmoid", logistic, lambda x: 1 / (2 + mp.exp(x) + mp.exp(-x)),
          (HALF, HALF / 2), (HALF, HALF / 2), (ONE, ZERO), (0.0, ZERO),
          interval=(-30, 30), special=(37.0, -37.0, 40.0, 88.0, -103.0, 710.0, -710.0, -745.0)),
    Unary("inv", lambda x: 1 / x, lambda x: -1 / x**2, (INF, -INF), (-INF, -INF), (0.0, ZERO), (-0.0, ZERO),
          special=(3.0, -7.0, 1e19, 1e-19, 1e-160, 1e160)),
    Unary("sqr", lambda x: x * x, lambda x: 2 * x, (0.0, ZERO), (0.0, ZERO), (INF, INF), (INF, -INF),
          special=(3.0, 1e-22, 1e19, 1e-160, 1e154)),
    Unary("pow3", lambda x: x**3, lambda x: 3 * x * x, (0.0, ZERO), (-0.0, ZERO), (INF, INF), (-INF, INF),
          special=(3.0, -3.0, 1e-14, 1e12, 1e-107, 1e102)),
    Unary("log", mp.log, lambda x: 1 / x,
          (-INF, INF), (-INF, ANY), (INF, ZERO), NO, lowest=0.0, edges={1.0: (0.0, ONE)},
          interval=(0.001, 50), special=(0.9999999, 1.0000001, 0.7, 1.4142135)),
    Unary("sqrt", mp.sqrt, lambda x: HALF / mp.sqrt(x), (0.0, INF), (-0.0, -INF), (INF, ZERO), NO, lowest=0.0,
          interval=(0.001, 50), special=(3.0, 4.0, 1e-20, 1e20)),
    Unary("inv_sqrt", lambda x: 1 / mp.sqrt(x), lambda x: -HALF / (x * mp.sqrt(x)),
          (INF, -INF), (-INF, -INF), (0.0, ZERO), NO, lowest=0.0,
          interval=(0.001, 50), special=(3.0, 4.0, 1e-20, 1e20)),
    Unary("neg", lambda x: -x, lambda x: -ONE, (-0.0, -ONE), (0.0, -ONE), (-INF, -ONE), (INF, -ONE), at_nan=(NAN, ANY)),
    Unary("abs", abs, lambda x: mpf(mp.sign(x)), (0.0, ZERO), (0.0, ZERO), (INF, ONE), (INF, -ONE)),
    Unary("sin", mp.sin, mp.cos, (0.0, ONE), (-0.0, ONE), NO, NO,
          special=(1.5707963267948966, 3.141592653589793, 22.0, 355.0, 1e5, 1e22)),
    Unary("cos", mp.cos, lambda x: -mp.sin(x), (ONE, ZERO), (ONE, ZERO), NO, NO,
          special=(1.5707963267948966, 3.141592653589793, 11.0, 355.0, 1e5, 1e22)),
    Unary("tan", mp.tan, lambda x: mp.cos(x) ** -2, (0.0, ONE), (-0.0, ONE), NO, NO,
          special=(1.5707963267948966, 3.141592653589793, 11.0, 355.0, 1e5, 1e22)),
    Unary("log1p", mp.log1p, lambda x: 1 / (1 + x), (0.0, ONE), (-0.0, ONE), (INF, ZERO), NO,
          lowest=-1.0, edges={-1.0: (-INF, INF)},
          interval=(-0.9, 50), special=(-0.9999999, 1e-10, -1e-10, 0.41, -0.29)),
    Unary("expm1", mp.expm1, mp.exp, (0.0, ONE), (-0.0, ONE), (INF, INF), (-ONE, ZERO),
          interval=(-20, 20), special=(1e-10, -1e-10, 0.35, -0.35, 88.7, 88.8, 709.7, 709.8, -37.5)),
    Unary("softplus", lambda x: mp.log1p(mp.exp(x)), logistic,
          (mp.log(2), HALF), (mp.log(2), HALF), (INF, ONE), (0.0, ZERO),
          interval=(-30, 30), special=(37.0, -37.0, 88.0, -88.0, -103.0, 710.0, -745.0)),
    Unary("gelu", lambda x: x * normal_distribution(x), lambda x: normal_distribution(x) + x * normal_density(x),
          (0.0, HALF), (-0.0, HALF), (INF, ONE), (ZERO, ZERO),
          interval=(-5, 5), special=(-0.7, -0.8, 8.0, -8.0, -12.0, -14.5, -37.0, -38.5)),
    Unary("erf", mp.erf, lambda x: 2 * mp.exp(-x * x) / mp.sqrt(mp.pi),
          (0.0, 2 / mp.sqrt(mp.pi)), (-0.0, 2 / mp.sqrt(mp.pi)), (ONE, ZERO), (-ONE, ZERO),
          interval=(-3, 3), special=(1e-10, 0.84375, 1.25, 2.857, 4.0, 5.9, -6.0, 10.0, 26.5)),
]
# fmt: on
