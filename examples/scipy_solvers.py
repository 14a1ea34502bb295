"""SciPy's solvers on traced functions: minimisation, also with Hessian products, root finding, curve fitting.

Each part takes gradients from burtorch, and prints its result and the number of evaluations. Run it with
``python examples/scipy_solvers.py``; it needs NumPy and SciPy.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
from scipy import optimize

import burtorch as bt


@bt.function
def rosenbrock(x):
    """A curved valley whose floor falls slowly to 0 at (1, ..., 1)."""
    return sum(100.0 * (x[i + 1] - x[i] ** 2) ** 2 + (1.0 - x[i]) ** 2 for i in range(len(x) - 1))


def report(every):
    """A callback that prints the progress of a solver every few steps."""
    steps = []

    def callback(x):
        steps.append(rosenbrock(x))
        if len(steps) % every == 0:
            print(f"  step {len(steps):>4}: {steps[-1]:.3e}")

    callback.steps = steps
    return callback


def minimise(n, every):
    """BFGS: values and gradients come from one call."""
    x0 = np.tile([-1.2, 1.0], n // 2)
    print(f"BFGS on Rosenbrock's function of {n} numbers")
    progress = report(every)
    found = optimize.minimize(rosenbrock.value_and_grad, x0, jac=True, method="BFGS", callback=progress)
    print(f"  {found.fun:.1e} after {found.nit} steps and {found.nfev} calls")
    return found, progress.steps


def minimise_with_curvature(n, every):
    """Newton's method: the Hessian is never formed, only multiplied."""
    x0 = np.tile([-1.2, 1.0], n // 2)
    print("Newton-CG on the same")
    progress = report(every)
    found = optimize.minimize(
        rosenbrock.value_and_grad, x0, jac=True, hessp=rosenbrock.hvp, method="Newton-CG", callback=progress
    )
    print(f"  {found.fun:.1e} after {found.nit} steps, {found.nfev} calls and {found.nhev} products")
    return found, progress.steps


def find_root():
    """Two equations in two unknowns, with their Jacobian."""

    @bt.function
    def system(x):
        return [x[0] + 0.5 * (x[0] - x[1]) ** 3 - 1.0, 0.5 * (x[1] - x[0]) ** 3 + x[1]]

    found = optimize.root(system, np.zeros(2), jac=system.jacobian)
    print(f"a root: {found.x[0]:.6f}, {found.x[1]:.6f} after {found.nfev} calls")
    return found


def fit():
    """An exponential through noisy points; outliers count less."""
    rng = np.random.default_rng(0)
    t = np.linspace(0.0, 3.0, 40)
    data = 2.0 * np.exp(-1.3 * t) + 0.01 * rng.normal(size=t.size)
    data[5] += 1.0

    @bt.function
    def residuals(p):
        return [p[0] * bt.exp(p[1] * tk) - yk for tk, yk in zip(t.tolist(), data.tolist())]

    found = optimize.least_squares(residuals, [1.0, -1.0], jac=residuals.jacobian, loss="soft_l1", f_scale=0.05)
    print(f"a fit: {found.x[0]:.3f} exp({found.x[1]:.3f} t) after {found.nfev} calls")
    return found


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=10, help="numbers of Rosenbrock's function, even")
    parser.add_argument("--every", type=int, default=10, help="steps between two lines of progress")
    options = parser.parse_args(arguments)
    return (
        *minimise(options.n, options.every),
        *minimise_with_curvature(options.n, options.every),
        find_root(),
        fit(),
    )


if __name__ == "__main__":
    main(sys.argv[1:])
