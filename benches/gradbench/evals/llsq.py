"""Half the sum of squared residuals of a polynomial at equidistant points, and its gradient."""

import numpy as np

import burtorch as bt


def objective(x, *, n):
    t = np.linspace(-1.0, 1.0, n)
    residuals = np.sign(t) - np.vander(t, x.shape[0], increasing=True) @ x
    return 0.5 * np.sum(residuals * residuals)


row = bt.function(lambda x, *, n: objective(x[0], n=n))
gradient = bt.grad(objective)

FUNCTIONS = {"primal": lambda x, n: row(x[None], n=n), "gradient": lambda x, n: gradient(x, n=n)}


def prepare(given):
    return np.array(given["x"]), given["n"]
