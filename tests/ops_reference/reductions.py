"""Ops over several operands: value and all partials of short lists. Inner products list x, then w, then the bias if
there is one.

The op that yields a mean and a mean of squares appears as two, with the suffix of its output: `.0` and `.1`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from mpmath import mpf

from .quantity import ANY, INF, NAN, ZERO, Result

Results = tuple[Result, list[Result]]
Exact = Callable[[list[mpf]], tuple[mpf, list[mpf]]]


@dataclass(frozen=True)
class Reduction:
    """One op: `exact` gives value and partials on finite lists, `at_inf` on lists with infinities (open without it)."""

    name: str
    exact: Exact
    at_inf: Callable[[list[float]], Results] | None = None
    lists: tuple[tuple[float, ...], ...] = ()

    def __call__(self, xs: list[float]) -> Results:
        """Value and partials of any list that is not empty."""
        if any(math.isnan(x) for x in xs):
            return NAN, [ANY] * len(xs)
        if any(math.isinf(x) for x in xs):
            return self.at_inf(xs) if self.at_inf else (ANY, [ANY] * len(xs))
        value, partials = self.exact([mpf(x) for x in xs])
        return (value if value else ZERO), list(partials)


def weighted(weight: Callable[[int, int], mpf]) -> tuple[Exact, Callable[[list[float]], Results]]:
    """A sum with constant weights: weight(i, n)."""

    def exact(xs: list[mpf]) -> tuple[mpf, list[mpf]]:
        weights = [weight(i, len(xs)) for i in range(len(xs))]
        return sum((w * x for w, x in zip(weights, xs)), mpf(0)), weights

    def at_inf(xs: list[float]) -> Results:
        weights = [weight(i, len(xs)) for i in range(len(xs))]
        signs = {w * x > 0 for w, x in zip(weights, xs) if math.isinf(x)}
        value = NAN if len(signs) == 2 else INF if signs == {True} else -INF
        return value, list(weights)

    return exact, at_inf


def squares(factor: Callable[[int], mpf]) -> tuple[Exact, Callable[[list[float]], Results]]:
    """factor(n) times the sum of squares."""

    def exact(xs: list[mpf]) -> tuple[mpf, list[mpf]]:
        f = factor(len(xs))
        return f * sum((x * x for x in xs), mpf(0)), [2 * f * x for x in xs]

    def at_inf(xs: list[float]) -> Results:
        f = factor(len(xs))
        return INF, [x if math.isinf(x) else 2 * f * mpf(x) for x in xs]

    return exact, at_inf


def product(xs: list[mpf]) -> tuple[mpf, list[mpf]]:
    """The product; each partial is the product of the others."""
    return times(xs), [times(xs[:i] + xs[i + 1 :]) for i in range(len(xs))]


def times(xs: list[mpf]) -> mpf:
    total = mpf(1)
    for x in xs:
        total *= x
    return total


def variance(less: int) -> Exact:
    """The sum of squared deviations over n - less."""

    def exact(xs: list[mpf]) -> tuple[Result, list[Result]]:
        n = len(xs) - less
        if n == 0:
            return NAN, [ANY] * len(xs)
        m = sum(xs, mpf(0)) / len(xs)
        if all(x == xs[0] for x in xs):
            return mpf(0), [ZERO] * len(xs)
        return sum(((x - m) ** 2 for x in xs), mpf(0)) / n, [2 * (x - m) / n for x in xs]

    return exact


def inner_product(xs: list[mpf]) -> tuple[mpf, list[mpf]]:
    """The sum of x_i w_i, plus a bias if the list is odd."""
    half = len(xs) // 2
    x, w, bias = xs[:half], xs[half : 2 * half], xs[2 * half :]
    value = sum((a * b for a, b in zip(x, w)), mpf(0)) + sum(bias, mpf(0))
    return value, [*w, *x, *[mpf(1)] * len(bias)]


ONE = mpf(1)
SUMS = (
    (3.0,),
    (1.0, 2.0, 3.0),
    (0.0, 0.0),
    (-0.0, -0.0),
    (0.1, 0.2, 0.3, 0.4, 0.5),
    (1e16, 1.0, -1e16),
    (INF, 1.0),
    (INF, -INF),
)
PRODUCTS = ((0.0, 2.0, 3.0), (1e-200, 1e-200, 3.0), (0.0, 0.0, 3.0), (5.0,), (1e-30, 1e30, 2.0), (0.1, 0.2, 0.3, 0.4))
SPREADS = (
    (1e8, 1e8 + 1, 1e8 + 2),
    (0.1, 0.1, 0.1),
    (4.0,),
    (1.0, 2.0),
    (1e6, 1e6 + 1, 1e6 + 4),
    (1.0, 2.0, 4.0, 8.0, 16.0),
    (-1.0, 1.0),
)
INNER = ((1.0, 2.0, 3.0, 4.0, 5.0, 6.0), (0.1, 0.3), (0.0, 2.0, 3.0, 0.0), (1e20, 1.0, -1e20, 1.0, 3.0, 1.0))
BIASED = ((1.0, 2.0, 3.0, 4.0, 0.5), (0.1, 0.3, 0.7), (0.0, 2.0, 3.0))

# fmt: off
REDUCTIONS = [
    Reduction("reduce_sum", *weighted(lambda i, n: ONE), lists=SUMS),
    Reduction("reduce_sub", *weighted(lambda i, n: -ONE if i else ONE), lists=SUMS),
    Reduction("reduce_mean", *weighted(lambda i, n: ONE / n), lists=SUMS),
    Reduction("reduce_negative_mean", *weighted(lambda i, n: -ONE / n), lists=SUMS),
    Reduction("reduce_mean_and_mean_squares.0", *weighted(lambda i, n: ONE / n), lists=SUMS),
    Reduction("reduce_sum_of_squares", *squares(lambda n: ONE), lists=SUMS),
    Reduction("reduce_mean_squares", *squares(lambda n: ONE / n), lists=SUMS),
    Reduction("reduce_mean_and_mean_squares.1", *squares(lambda n: ONE / n), lists=SUMS),
    Reduction("reduce_mul", product, lists=PRODUCTS),
    Reduction("variance", variance(1), lists=SPREADS),
    Reduction("variance_biased", variance(0), lists=SPREADS),
    Reduction("inner_product", inner_product, lists=INNER),
    Reduction("inner_product_with_bias", inner_product, lists=BIASED),
]
# fmt: on
