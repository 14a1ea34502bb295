"""The place of a charge for which a particle reaches the origin: derivatives in a loop within derivatives."""

import numpy as np

import burtorch as bt
from evals.descent import argmin

STEP = 0.1


def forward(f):
    """The derivative by an argument that is a number or a vector, in forward mode."""

    def gradient(x, *others):
        def along(direction):
            return bt.jvp(lambda x: f(x, *others), (x,), (direction,))[1]

        if not np.shape(x):
            return along(1.0)
        return np.stack([along(direction) for direction in np.eye(np.shape(x)[0])])

    return gradient


def potential(x, w):
    return 1.0 / np.sqrt((x[0] - 10.0) ** 2 + (x[1] - (10.0 - w)) ** 2) + 1.0 / np.sqrt((x[0] - 10.0) ** 2 + x[1] ** 2)


def miss(field):
    """The squared distance from the origin at which the particle crosses the axis."""

    def miss(w):
        # 0 w: jvp takes numbers without an Array among them for a call outside the body.
        x, speed = np.stack([0.0 * w, 8.0]), np.array([0.75, 0.0])
        while True:
            following = x + STEP * speed
            if following[1] <= 0.0:
                return (x[0] - x[1] / speed[1] * speed[0]) ** 2
            x, speed = following, speed - STEP * field(x, w)

    return miss


def control(outer, inner):
    path = miss(inner(potential))
    slope = outer(path)
    # A matrix of one number: a body of numbers alone would be traced as scalars, which transforms do not take.
    value, gradient = bt.function(lambda w: path(w[0, 0])), bt.function(lambda w: slope(w[0, 0]))
    return lambda w: argmin(lambda x: value(np.array([x])), lambda x: [gradient(np.array([x]))], [w])[0]


FUNCTIONS = {
    first + second: control(outer, inner)
    for first, outer in (("f", forward), ("r", bt.grad))
    for second, inner in (("f", forward), ("r", bt.grad))
}


def prepare(given):
    return (float(given["w"]),)
