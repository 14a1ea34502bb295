"""Gradient descent shared by particle and saddle, with steps that grow after ten successes and shrink after a
failure."""

import numpy as np

TOLERANCE = 1e-5


def length(x):
    return sum(part * part for part in x) ** 0.5


def argmin(value, gradient, x, steps=None):
    """The minimum, a list of numbers, at which the slope or the step is small enough; `steps` takes each point and
    rate."""
    best, slope, rate, successes = value(x), gradient(x), 1e-5, 0
    while length(slope) > TOLERANCE:
        if successes == 10:
            rate, successes = 2.0 * rate, 0
            continue
        trial = [part - rate * down for part, down in zip(x, slope)]
        if length([a - b for a, b in zip(x, trial)]) <= TOLERANCE:
            break
        reached = value(trial)
        if reached < best:
            if steps is not None:
                steps.append((np.array(x), rate))
            x, best, slope, successes = trial, reached, gradient(trial), successes + 1
        else:
            rate, successes = rate / 2.0, 0
    return x
