"""The sum of squared distances to the nearest centre, and Newton's direction for the centres."""

import numpy as np

import burtorch as bt


def cost(centres, points):
    distances = (
        np.sum(points * points, axis=1)[:, None] - 2.0 * (points @ centres.T) + np.sum(centres * centres, axis=1)
    )
    return np.sum(np.min(distances, axis=1))


@bt.function
def direction(centres, points):
    # The Hessian is diagonal, so its product with ones is its diagonal.
    slope, curvature = bt.jvp(lambda c: bt.grad(cost)(c, points), (centres,), (np.ones(centres.shape),))
    return slope / curvature


FUNCTIONS = {"cost": bt.function(cost), "dir": direction}


def prepare(given):
    return np.array(given["centroids"]), np.array(given["points"])
