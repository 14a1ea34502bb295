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
    highest: float = INF  # above it likewise
    edges: dict[float, Pair] = field(default_factory=dict)
    at_nan: Pair = (NAN, NAN)
    interval: tuple[float, float] = (-10.0, 10.0)
    special: tuple[float, ...] = ()

    def __call__(self, x: float) -> Pair:
        """Value and partial at any number."""
        if math.isnan(x):
            return self.at_nan
        if x < self.lowest or x > self.highest:
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


def is_pole(x: mpf) -> bool:
    return x <= 0 and x == mp.floor(x)


def log_gamma(x: mpf) -> Result:
    """log |gamma(x)|; below 0 by reflection, as far as sines can be told apart."""
    if is_pole(x):
        return INF
    if x > 0:
        return mp.loggamma(x)
    with mp.workprec(1400):
        return mp.log(mp.pi / abs(mp.sinpi(x))) - mp.loggamma(1 - x)


def digamma(x: mpf) -> Result:
    if is_pole(x):
        return NAN
    if x > 0:
        return mp.digamma(x)
    with mp.workprec(1400):
        return mp.digamma(1 - x) - mp.pi * mp.cospi(x) / mp.sinpi(x)


def trigamma(x: mpf) -> Result:
    if is_pole(x):
        return INF
    if x > 0:
        return mp.psi(1, x)
    with mp.workprec(1400):
        return (mp.pi / mp.sinpi(x)) ** 2 - mp.psi(1, 1 - x)


SELU_SCALE, SELU_ALPHA = mpf("1.0507009873554804934193349852946"), mpf("1.6732632423543772848170429916717")


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
    Unary("asin", mp.asin, lambda x: 1 / mp.sqrt(1 - x * x), (0.0, ONE), (-0.0, ONE), NO, NO, lowest=-1.0, highest=1.0,
          edges={1.0: (mp.pi / 2, INF), -1.0: (-mp.pi / 2, INF)}, interval=(-0.99, 0.99),
          special=(1e-9, 0.7, 0.9999999)),
    Unary("acos", mp.acos, lambda x: -1 / mp.sqrt(1 - x * x), (mp.pi / 2, -ONE), (mp.pi / 2, -ONE), NO, NO, lowest=-1.0,
          highest=1.0, edges={1.0: (0.0, -INF), -1.0: (mp.pi, -INF)}, interval=(-0.99, 0.99), special=(0.7, 0.9999999)),
    Unary("atan", mp.atan, lambda x: 1 / (1 + x * x), (0.0, ONE), (-0.0, ONE), (mp.pi / 2, ZERO), (-mp.pi / 2, ZERO),
          special=(1e-9, 0.41421356, 1e20)),
    Unary("sinh", mp.sinh, mp.cosh, (0.0, ONE), (-0.0, ONE), (INF, INF), (-INF, INF),
          interval=(-20, 20), special=(1e-9, 0.9999, 1.0001, 88.9, 89.5, 710.4, -710.5)),
    Unary("cosh", mp.cosh, mp.sinh, (ONE, ZERO), (ONE, ZERO), (INF, INF), (INF, -INF),
          interval=(-20, 20), special=(1e-9, 88.9, 89.5, 710.4, -710.5)),
    Unary("asinh", mp.asinh, lambda x: 1 / mp.sqrt(x * x + 1), (0.0, ONE), (-0.0, ONE), (INF, ZERO), (-INF, ZERO),
          interval=(-50, 50), special=(1e-9, 0.00097, 1e18, 1e30)),
    Unary("acosh", mp.acosh, lambda x: 1 / mp.sqrt(x * x - 1), NO, NO, (INF, ZERO), NO, lowest=1.0,
          edges={1.0: (0.0, INF)}, interval=(1.01, 50), special=(1.0000001, 1e18, 1e30)),
    Unary("atanh", mp.atanh, lambda x: 1 / (1 - x * x), (0.0, ONE), (-0.0, ONE), NO, NO, lowest=-1.0, highest=1.0,
          edges={1.0: (INF, INF), -1.0: (-INF, INF)}, interval=(-0.99, 0.99), special=(1e-9, 0.00097, 0.9999999)),
    Unary("log2", lambda x: mp.log(x, 2), lambda x: 1 / (x * mp.log(2)), (-INF, INF), (-INF, ANY), (INF, ZERO), NO,
          lowest=0.0, edges={1.0: (0.0, 1 / mp.log(2))}, interval=(0.001, 50), special=(8.0, 0.9999999, 0.7)),
    Unary("log10", mp.log10, lambda x: 1 / (x * mp.log(10)), (-INF, INF), (-INF, ANY), (INF, ZERO), NO, lowest=0.0,
          edges={1.0: (0.0, 1 / mp.log(10))}, interval=(0.001, 50), special=(1000.0, 0.9999999, 0.7)),
    Unary("exp2", lambda x: mpf(2) ** x, lambda x: mpf(2) ** x * mp.log(2), (ONE, mp.log(2)), (ONE, mp.log(2)),
          (INF, INF), (0.0, ZERO), interval=(-30, 30), special=(10.0, 127.9, 1023.9, -148.6, -1073.6)),
    Unary("exp10", lambda x: mpf(10) ** x, lambda x: mpf(10) ** x * mp.log(10), (ONE, mp.log(10)), (ONE, mp.log(10)),
          (INF, INF), (0.0, ZERO), interval=(-10, 10), special=(3.0, 22.0, 38.5, 308.2, -44.8, -323.0)),
    Unary("cbrt", lambda x: mp.sign(x) * mp.cbrt(abs(x)), lambda x: 1 / (3 * mp.cbrt(x * x)), (0.0, INF), (-0.0, INF),
          (INF, ZERO), (-INF, ZERO), interval=(0.1, 50), special=(27.0, -8.0, 1e-30, 1e30)),
    Unary("erfc", mp.erfc, lambda x: -2 * mp.exp(-x * x) / mp.sqrt(mp.pi), (ONE, -2 / mp.sqrt(mp.pi)),
          (ONE, -2 / mp.sqrt(mp.pi)), (0.0, ZERO), (mpf(2), ZERO), interval=(-5, 10), special=(0.5, 0.624, 9.0, 26.5)),
    Unary("ndtr", normal_distribution, normal_density, (HALF, 1 / mp.sqrt(2 * mp.pi)), (HALF, 1 / mp.sqrt(2 * mp.pi)),
          (ONE, ZERO), (0.0, ZERO), interval=(-10, 5), special=(-0.75, -1.9, -7.5, -13.0, -37.5)),
    Unary("lgamma", log_gamma, digamma, (INF, -INF), (INF, INF), (INF, INF), (INF, NAN),
          interval=(0.1, 20), special=(3.0, 1.0000001, 2.0000001, 9.99, 10.01, 1e10, -0.3, -5.3, -50.3)),
    Unary("digamma", digamma, trigamma, (-INF, INF), (INF, INF), (INF, ZERO), NO,
          interval=(0.1, 20), special=(3.0, 11.99, 12.01, 1e10, -0.3, -5.3, -50.3)),
    Unary("silu", lambda x: x * logistic(x), lambda x: logistic(x) * (1 + x / (1 + mp.exp(x))), (0.0, HALF),
          (-0.0, HALF), (INF, ONE), (-0.0, ZERO), special=(3.0, -8.0, 20.0)),
    Unary("softsign", lambda x: x / (1 + abs(x)), lambda x: (1 + abs(x)) ** -2, (0.0, ONE), (-0.0, ONE), (ONE, ZERO),
          (-ONE, ZERO), special=(3.0, 1e10)),
    Unary("selu", lambda x: SELU_SCALE * (x if x > 0 else SELU_ALPHA * mp.expm1(x)),
          lambda x: SELU_SCALE * (1 if x > 0 else SELU_ALPHA * mp.exp(x)), (0.0, SELU_SCALE), (-0.0, SELU_SCALE),
          (INF, SELU_SCALE), (-SELU_SCALE * SELU_ALPHA, ZERO), special=(3.0, -1e-10, -8.0)),
    Unary("sign", lambda x: mpf(mp.sign(x)), lambda x: ZERO, (0.0, ZERO), (0.0, ZERO), (ONE, ZERO), (-ONE, ZERO)),
    Unary("round", lambda x: mp.nint(x) or math.copysign(0.0, x), lambda x: ZERO, (0.0, ZERO), (-0.0, ZERO),
          (INF, ZERO), (-INF, ZERO), special=(2.5, 3.5, -2.5)),
    Unary("floor", lambda x: mp.floor(x) or 0.0, lambda x: ZERO, (0.0, ZERO), (-0.0, ZERO), (INF, ZERO), (-INF, ZERO),
          special=(2.5, -2.5)),
    Unary("ceil", lambda x: mp.ceil(x) or math.copysign(0.0, x), lambda x: ZERO, (0.0, ZERO), (-0.0, ZERO), (INF, ZERO),
          (-INF, ZERO), special=(2.5, -2.5)),
]
# fmt: on
