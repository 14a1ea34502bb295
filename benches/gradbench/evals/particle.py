"""The position of a charge for which a particle reaches the origin: derivatives in a loop within derivatives.

The length of the loop depends on data, so it runs in Python, over a traced step. The loop is differentiated forward
along with it, or backward over the states that it recorded.
"""

import numpy as np

import burtorch as bt
from evals.descent import argmin

STEP = 0.1
START = np.array([[0.0, 8.0], [0.75, 0.0]])


def forward(f):
    """The gradient with respect to the first argument, a vector, in forward mode."""

    def gradient(x, *others):
        directions = np.eye(x.shape[0])
        return bt.vmap(lambda direction: bt.jvp(lambda x: f(x, *others), (x,), (direction,))[1])(directions)

    return gradient


def potential(x, w):
    return 1.0 / np.sqrt((x[0] - 10.0) ** 2 + (x[1] - (10.0 - w)) ** 2) + 1.0 / np.sqrt((x[0] - 10.0) ** 2 + x[1] ** 2)


def miss(state):
    """The squared distance from the origin at which the last step crosses the axis."""
    (x, y), (speed_x, speed_y) = state
    return (x - y / speed_y * speed_x) ** 2


miss_and_slope = bt.value_and_grad(miss)


class Path:
    """The miss of the particle as a function of the control, with derivatives of the field in one mode."""

    def __init__(self, inner):
        field = inner(potential)

        def step(state, w):
            return np.stack([state[0] + STEP * state[1], state[1] - STEP * field(state[0], w)])

        self.step = bt.function(step)
        self.along = bt.function(lambda state, w, tangent: bt.jvp(step, (state, w), (tangent, 1.0)))
        self.against = bt.grad(lambda state, w, weights: np.sum(step(state, w) * weights), argnums=(0, 1))

    def states(self, w):
        found = [START]
        while True:
            following = self.step(found[-1], w)
            if following[0, 1] <= 0.0:
                return found
            found.append(following)

    def value(self, w):
        return miss_and_slope(self.states(w)[-1])[0]

    def forward_slope(self, w):
        state, tangent = START, np.zeros((2, 2))
        while True:
            following, change = self.along(state, w, tangent)
            if following[0, 1] <= 0.0:
                return np.sum(miss_and_slope(state)[1] * tangent)
            state, tangent = following, change

    def reverse_slope(self, w):
        states = self.states(w)
        weights, total = miss_and_slope(states[-1])[1], 0.0
        for state in reversed(states[:-1]):
            weights, slope = self.against(state, w, weights)
            total += slope
        return total


def control(outer, inner):
    path = Path(inner)
    slope = path.forward_slope if outer == "f" else path.reverse_slope
    return lambda w: argmin(lambda x: path.value(x[0]), lambda x: [slope(x[0])], [w])[0]


MODES = {"f": forward, "r": bt.grad}
FUNCTIONS = {outer + inner: control(outer, MODES[inner]) for outer in MODES for inner in MODES}


def prepare(given):
    return (float(given["w"]),)
