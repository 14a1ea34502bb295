"""The saddle point of a function by nested descents: the outer one differentiates through the inner one.

Both run in Python, over traced steps, as in particle.
"""

import numpy as np

import burtorch as bt
from evals.descent import argmin
from evals.particle import MODES


def height(y, x):
    return x[0] ** 2 + x[1] ** 2 - y[0] ** 2 - y[1] ** 2


both = bt.value_and_grad(height, argnums=(0, 1))


class Peak:
    """The height at x of the highest y, with derivatives of the inner descent in one mode."""

    def __init__(self, inner):
        def step(y, x, rate):
            return y + rate * inner(height)(y, x)

        # A batch of one row, because a transform called with numbers does not keep its trace.
        self.slopes = bt.vmap(inner(height), in_axes=(0, None))
        self.along = bt.vmap(
            lambda y, x, rate, tangent, direction: bt.jvp(lambda y, x: step(y, x, rate), (y, x), (tangent, direction))[
                1
            ],
            in_axes=(None, None, None, 0, 0),
        )
        self.against = bt.grad(lambda y, x, rate, weights: np.sum(step(y, x, rate) * weights), argnums=(0, 1))

    def highest(self, x, start, steps=None):
        """The y that maximises the height, by steps from the start."""
        found = argmin(
            lambda y: -both(np.array(y), x)[0],
            lambda y: (-self.slopes(np.array([y]), x)[0]).tolist(),
            list(start),
            steps,
        )
        return np.array(found)

    def value(self, x, start):
        return both(self.highest(x, start), x)[0]

    def forward_slope(self, x, start):
        steps, tangents = [], np.zeros((2, 2))
        last = self.highest(x, start, steps)
        for y, rate in steps:
            tangents = self.along(y, x, rate, tangents, np.eye(2))
        by_y, by_x = both(last, x)[1]
        return tangents @ by_y + by_x

    def reverse_slope(self, x, start):
        steps = []
        weights, total = both(self.highest(x, start, steps), x)[1]
        for y, rate in reversed(steps):
            weights, by_x = self.against(y, x, rate, weights)
            total = total + by_x
        return total


def saddle(outer, inner):
    peak, last = Peak(MODES[inner]), Peak(MODES[outer])
    slope = peak.forward_slope if outer == "f" else peak.reverse_slope

    def solve(start):
        x = argmin(lambda x: peak.value(np.array(x), start), lambda x: slope(np.array(x), start).tolist(), list(start))
        return [*x, *last.highest(np.array(x), start)]

    return solve


FUNCTIONS = {outer + inner: saddle(outer, inner) for outer in MODES for inner in MODES}


def prepare(given):
    return (np.array(given["start"]).tolist(),)
