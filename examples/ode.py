"""Fits an ordinary differential equation to its path: the friction and the frequency of a pendulum.

The steps of the solver, classical Runge-Kutta, are one `bt.scan`: its body is traced once, and the program is as small
for a million steps as for one. Derivatives are taken through all steps.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np

import burtorch as bt


def slope(state: tuple[Any, Any], friction: Any, frequency: Any) -> tuple[Any, Any]:
    """The derivatives of angle and speed."""
    angle, speed = state
    return speed, -friction * speed - frequency * frequency * bt.sin(angle)


def path(friction: Any, frequency: Any, start: float, h: float, n: int) -> Any:
    """The angle after each of n steps."""

    def along(state: tuple[Any, Any], change: tuple[Any, Any], h: float) -> tuple[Any, Any]:
        return state[0] + h * change[0], state[1] + h * change[1]

    def step(state: tuple[Any, Any], _: None) -> tuple[tuple[Any, Any], Any]:
        a = slope(state, friction, frequency)
        b = slope(along(state, a, h / 2), friction, frequency)
        c = slope(along(state, b, h / 2), friction, frequency)
        d = slope(along(state, c, h), friction, frequency)
        mean = tuple((w + 2 * x + 2 * y + z) / 6 for w, x, y, z in zip(a, b, c, d, strict=True))
        state = along(state, (mean[0], mean[1]), h)
        return state, state[0]

    _, angles = bt.scan(step, (start, 0.0), length=n)
    return angles


def main(argv: Sequence[str] | None = None) -> float:
    """Fits, prints the loss during the fit, and returns the error of the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400, help="steps of the solver")
    parser.add_argument("--descents", type=int, default=8, help="steps of the fit")
    options = parser.parse_args(argv)
    truth, h, n = np.array([0.3, 2.0]), 0.02, options.steps
    seen = np.asarray(bt.function(lambda p: path(p[0], p[1], 1.2, h, n))(truth))

    def residual(p: Any) -> Any:
        return path(p[0], p[1], 1.2, h, n) - seen

    both = bt.function(lambda p: (residual(p), bt.jacobian(residual)(p)))
    p = np.array([0.1, 1.7])
    for k in range(options.descents):
        r, j = both(p)
        p = p - np.linalg.lstsq(j, r, rcond=None)[0]
        if k % 2 == 0:
            print(f"step {k:3d}  loss {float(r @ r):.3e}  friction {p[0]:.6f}  frequency {p[1]:.6f}")
    gradient = bt.grad(lambda p: (residual(p) ** 2).sum())(p)
    print(f"gradient at the end: {np.abs(gradient).max():.1e}")
    return float(np.abs(p - truth).max())


if __name__ == "__main__":
    main()
