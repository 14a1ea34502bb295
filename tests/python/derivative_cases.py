"""Functions with derivatives computed by mpmath: every op alone, and random programs.

``tests/make_derivatives_reference.py`` computes them with 100 digits, the tests with burtorch. Bodies take the ops
as their first argument. Inputs are exact doubles.
"""

from __future__ import annotations

import random

# Name, body, points. At each point the second derivative exists and is not a small difference of larger numbers.
OPS = {
    "relu": (lambda o, x: o.relu(x), [(1.5,), (-2.0,)]),
    "tanh": (lambda o, x: o.tanh(x), [(0.3,), (-1.7,), (15.0,), (1e-5,)]),
    "exp": (lambda o, x: o.exp(x), [(0.3,), (-20.0,), (50.0,)]),
    "neg_log": (lambda o, x: o.neg_log(x), [(0.3,), (1e-3,), (1e6,)]),
    "sigmoid": (lambda o, x: o.sigmoid(x), [(0.7,), (-3.0,), (38.0,), (-38.0,)]),
    "inv": (lambda o, x: o.inv(x), [(0.3,), (-7.0,)]),
    "sqr": (lambda o, x: o.sqr(x), [(0.3,), (-7.0,)]),
    "pow3": (lambda o, x: o.pow3(x), [(0.3,), (-7.0,)]),
    "log": (lambda o, x: o.log(x), [(0.3,), (1e-3,), (1e6,)]),
    "sqrt": (lambda o, x: o.sqrt(x), [(0.3,), (1e-4,), (1e6,)]),
    "inv_sqrt": (lambda o, x: o.inv_sqrt(x), [(0.3,), (1e-4,), (1e6,)]),
    "neg": (lambda o, x: o.neg(x), [(0.3,)]),
    "abs": (lambda o, x: o.abs(x), [(0.3,), (-2.0,)]),
    "sin": (lambda o, x: o.sin(x), [(0.3,), (-4.0,), (1000.0,)]),
    "cos": (lambda o, x: o.cos(x), [(0.3,), (-4.0,), (1000.0,)]),
    "tan": (lambda o, x: o.tan(x), [(0.3,), (-1.2,), (4.0,)]),
    "log1p": (lambda o, x: o.log1p(x), [(0.3,), (-0.9,), (1e-9,)]),
    "expm1": (lambda o, x: o.expm1(x), [(0.3,), (-3.0,), (1e-9,)]),
    "softplus": (lambda o, x: o.softplus(x), [(0.3,), (-30.0,), (30.0,)]),
    "erf": (lambda o, x: o.erf(x), [(0.3,), (-2.5,), (4.0,)]),
    "gelu": (lambda o, x: o.gelu(x), [(0.3,), (-3.0,), (2.5,)]),
    "asin": (lambda o, x: o.asin(x), [(0.3,), (-0.9,)]),
    "acos": (lambda o, x: o.acos(x), [(0.3,), (-0.9,)]),
    "atan": (lambda o, x: o.atan(x), [(0.3,), (-4.0,), (1000.0,)]),
    "sinh": (lambda o, x: o.sinh(x), [(0.3,), (-4.0,), (50.0,)]),
    "cosh": (lambda o, x: o.cosh(x), [(0.3,), (-4.0,), (50.0,)]),
    "asinh": (lambda o, x: o.asinh(x), [(0.3,), (-4.0,), (1000.0,)]),
    "acosh": (lambda o, x: o.acosh(x), [(1.3,), (4.0,), (1000.0,)]),
    "atanh": (lambda o, x: o.atanh(x), [(0.3,), (-0.9,)]),
    "log2": (lambda o, x: o.log2(x), [(0.3,), (1e6,)]),
    "log10": (lambda o, x: o.log10(x), [(0.3,), (1e6,)]),
    "exp2": (lambda o, x: o.exp2(x), [(0.3,), (-20.0,)]),
    "exp10": (lambda o, x: o.exp10(x), [(0.3,), (-20.0,)]),
    "cbrt": (lambda o, x: o.cbrt(x), [(0.3,), (-7.0,)]),
    "erfc": (lambda o, x: o.erfc(x), [(0.3,), (-2.5,), (4.0,)]),
    "ndtr": (lambda o, x: o.ndtr(x), [(0.3,), (-3.0,), (2.5,)]),
    "lgamma": (lambda o, x: o.lgamma(x), [(0.3,), (4.5,), (30.0,), (-1.4,)]),
    "digamma": (lambda o, x: o.digamma(x), [(0.3,), (4.5,), (30.0,), (-1.4,)]),
    "silu": (lambda o, x: o.silu(x), [(0.3,), (-3.0,), (8.0,)]),
    "softsign": (lambda o, x: o.softsign(x), [(0.3,), (-3.0,)]),
    "selu": (lambda o, x: o.selu(x), [(0.3,), (-3.0,)]),
    "sign": (lambda o, x: o.sign(x), [(0.3,), (-3.0,)]),
    "floor": (lambda o, x: o.floor(x), [(0.3,), (-3.4,)]),
    "ceil": (lambda o, x: o.ceil(x), [(0.3,), (-3.4,)]),
    "round": (lambda o, x: o.round(x), [(0.3,), (-3.4,)]),
    "leaky_relu": (lambda o, x: o.leaky_relu(x), [(0.3,), (-3.0,)]),
    "elu": (lambda o, x: o.elu(x), [(0.3,), (-3.0,)]),
    "hypot": (lambda o, x, y: o.hypot(x, y), [(0.3, 2.0), (-3.0, 4.0)]),
    "logaddexp": (lambda o, x, y: o.logaddexp(x, y), [(0.3, 2.0), (-3.0, 4.0)]),
    "xlogy": (lambda o, x, y: o.xlogy(x, y), [(0.3, 2.0), (-3.0, 4.0)]),
    "floor_divide": (lambda o, x, y: o.floor_divide(x, y), [(7.3, 2.0), (-3.0, 4.0)]),
    "remainder": (lambda o, x, y: o.remainder(x, y), [(7.3, 2.0), (-3.0, 4.0)]),
    "add": (lambda o, x, y: x + y, [(0.3, 2.0)]),
    "sub": (lambda o, x, y: x - y, [(0.3, 2.0)]),
    "mul": (lambda o, x, y: x * y, [(0.3, 2.0)]),
    "div": (lambda o, x, y: x / y, [(0.3, 2.0), (1e-3, -5.0)]),
    "mean": (lambda o, x, y: o.mean(x, y), [(0.3, 2.0)]),
    "add_squares": (lambda o, x, y: o.add_squares(x, y), [(0.3, 2.0)]),
    "mean_squares": (lambda o, x, y: o.mean_squares(x, y), [(0.3, 2.0)]),
    "negative_mean": (lambda o, x, y: o.negative_mean(x, y), [(0.3, 2.0)]),
    "pow": (lambda o, x, y: x**y, [(0.3, 2.5), (2.0, -1.5), (1.5, 3.0)]),
    "atan2": (lambda o, x, y: o.atan2(x, y), [(0.3, 2.0), (-1.0, -0.5), (2.0, -3.0)]),
    "max": (lambda o, x, y: o.max(x, y), [(0.3, 2.0)]),
    "min": (lambda o, x, y: o.min(x, y), [(0.3, 2.0)]),
    "mul_by_constant": (lambda o, x: x * 3.0, [(0.3,)]),
    "div_by_constant": (lambda o, x: x / 3.0, [(0.3,)]),
    "add_constant": (lambda o, x: x + 3.0, [(0.3,)]),
    "pow_constant": (lambda o, x: x**2.5, [(0.3,), (4.0,)]),
    "constant_pow": (lambda o, x: 1.7**x, [(0.3,), (-4.0,)]),
    "constant_div": (lambda o, x: 1.7 / x, [(0.3,), (-4.0,)]),
    "reduce_sum": (lambda o, *x: o.reduce_sum(x), [(0.3, 2.0, -1.0)]),
    "reduce_sub": (lambda o, *x: o.reduce_sub(x), [(0.3, 2.0, -1.0)]),
    "reduce_mul": (lambda o, *x: o.reduce_mul(x), [(0.3, 2.0, -1.0, 1.5), (0.3, 0.0, -1.0)]),
    "reduce_mean": (lambda o, *x: o.reduce_mean(x), [(0.3, 2.0, -1.0)]),
    "reduce_sum_of_squares": (lambda o, *x: o.reduce_sum_of_squares(x), [(0.3, 2.0, -1.0)]),
    "reduce_mean_squares": (lambda o, *x: o.reduce_mean_squares(x), [(0.3, 2.0, -1.0)]),
    "reduce_negative_mean": (lambda o, *x: o.reduce_negative_mean(x), [(0.3, 2.0, -1.0)]),
    "reduce_mean_and_mean_squares.0": (lambda o, *x: o.reduce_mean_and_mean_squares(x)[0], [(0.3, 2.0, -1.0)]),
    "reduce_mean_and_mean_squares.1": (lambda o, *x: o.reduce_mean_and_mean_squares(x)[1], [(0.3, 2.0, -1.0)]),
    "variance_biased": (lambda o, *x: o.variance_biased(x), [(0.3, 2.0, -1.0)]),
    "variance": (lambda o, *x: o.variance(x), [(0.3, 2.0, -1.0, 4.0)]),
    "reduce_max": (lambda o, *x: o.reduce_max(x), [(0.3, 2.0, -1.0)]),
    "reduce_min": (lambda o, *x: o.reduce_min(x), [(0.3, 2.0, -1.0)]),
    "logsumexp": (lambda o, *x: o.logsumexp(x), [(0.3, 2.0, -1.0), (800.0, 801.0)]),
    "norm2": (lambda o, *x: o.norm2(x), [(0.3, 2.0, -1.0)]),
    "inner_product": (lambda o, a, b, c, d: o.inner_product((a, b), (c, d)), [(0.3, 2.0, -1.0, 0.5)]),
    "inner_product_with_bias": (
        lambda o, a, b, c, d, e: o.inner_product_with_bias((a, b), (c, d), e),
        [(0.3, 2.0, -1.0, 0.5, 4.0)],
    ),
}

N_PROGRAMS = 40


def program(seed):
    """A random function of 2 to 5 numbers, and a point."""
    dice = random.Random(seed)
    n = 2 + seed % 4
    plan = [(dice.randrange(12), dice.randrange(n + i), dice.randrange(n + i), dice.gauss(0, 1)) for i in range(14)]

    def body(o, *x):
        nodes = list(x)
        for kind, a, b, c in plan:
            nodes.append(_step(o, kind, nodes[a], nodes[b], c))
        return nodes[-1] + 0.1 * nodes[-2] * nodes[-3]

    return body, tuple(0.7 * dice.gauss(0, 1) for _ in range(n))


def _step(o, kind, u, v, c):
    return [
        lambda: u + v,
        lambda: u - v * c,
        lambda: o.tanh(u * v),
        lambda: o.sin(u) * c,
        lambda: o.sigmoid(v) + u * 0.5,
        lambda: o.log(u * u + v * v + 1.0),
        lambda: o.exp(0.3 * o.tanh(u)) / (2.0 + o.cos(v)),
        lambda: o.softplus(u) * 0.5,
        lambda: o.erf(u) + o.sqrt(v * v + 1.0),
        lambda: o.gelu(u - v),
        lambda: o.logsumexp((u, v, u * c)),
        lambda: o.variance((u, v, o.atan2(u, v * v + 1.0))),
    ][kind]()


def cases():
    """Every case: name, body, point."""
    for name, (body, points) in OPS.items():
        for k, x in enumerate(points):
            yield f"{name} {k}", body, x
    for seed in range(N_PROGRAMS):
        body, x = program(seed)
        yield f"program {seed}", body, x
