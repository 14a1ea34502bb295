"""The saddle of a function by a descent within a descent: the outer one differentiates through the inner one."""

import numpy as np

import burtorch as bt
from evals.descent import argmin
from evals.particle import forward


def height(x, y):
    return x[0] ** 2 + x[1] ** 2 - y[0] ** 2 - y[1] ** 2


def highest(x, start, mode):
    """The y that maximises the height above x."""
    slope = mode(lambda y: -height(x, y))
    return argmin(lambda y: -height(x, y), lambda y: list(slope(np.stack(y))), list(start))


def saddle(outer, inner):
    def peak(x, start):
        return height(x, highest(x, start, inner))

    value, gradient = bt.function(peak), bt.function(outer(peak))
    above = bt.function(lambda x, start: highest(x, start, outer))

    def solve(start):
        x = np.stack(
            argmin(lambda x: value(np.stack(x), start), lambda x: list(gradient(np.stack(x), start)), list(start))
        )
        return [*x, *above(x, start)]

    return solve


FUNCTIONS = {
    first + second: saddle(outer, inner)
    for first, outer in (("f", forward), ("r", bt.grad))
    for second, inner in (("f", forward), ("r", bt.grad))
}


def prepare(given):
    return (np.array(given["start"]),)
