"""A Kalman filter whose noise is fitted to observations: the positions of a point that moves in a plane.

One `bt.scan` over the observations computes the likelihood; its body, which solves a linear system, is traced once. The
fit uses the gradient through all steps.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np

import burtorch as bt

STEP = 0.1
MOVE = np.eye(4) + STEP * np.eye(4, k=2)
SEE = np.eye(2, 4)


def likelihood(p: Any, seen: Any) -> Any:
    """The mean negative log-likelihood of an observed position; p holds the logarithms of both noise variances."""
    of_move, of_sight = bt.exp(p[0]) * np.diag([0.0, 0.0, 1.0, 1.0]), bt.exp(p[1]) * np.eye(2)

    def step(state: tuple[Any, Any], place: Any) -> tuple[tuple[Any, Any], Any]:
        mean, spread = state
        mean, spread = MOVE @ mean, MOVE @ spread @ MOVE.T + of_move
        apart = place - SEE @ mean
        expected = SEE @ spread @ SEE.T + of_sight
        gain = np.linalg.solve(expected, SEE @ spread).T
        cost = 0.5 * (apart @ np.linalg.solve(expected, apart) + np.linalg.slogdet(expected)[1])
        return (mean + gain @ apart, spread - gain @ (SEE @ spread)), cost

    _, costs = bt.scan(step, (np.zeros(4), np.eye(4)), seen)
    return bt.mean(costs)


def made_up(n: int, of_move: float, of_sight: float) -> Any:
    """Simulated observations of such a point."""
    rng = np.random.default_rng(1)
    speeds = np.cumsum(np.sqrt(of_move) * rng.standard_normal((n, 2)), axis=0)
    places = STEP * np.cumsum(speeds, axis=0)
    return places + np.sqrt(of_sight) * rng.standard_normal((n, 2))


def main(argv: Sequence[str] | None = None) -> float:
    """Fits both noises, prints the progress, and returns the largest error of their logarithms."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--observations", type=int, default=1000)
    parser.add_argument("--descents", type=int, default=12)
    options = parser.parse_args(argv)
    truth = np.log([0.02, 0.3])
    seen = made_up(options.observations, *np.exp(truth))
    value_and_grad, hessian = bt.value_and_grad(likelihood), bt.hessian(likelihood)
    p = np.zeros(2)
    for k in range(options.descents):
        value, gradient = value_and_grad(p, seen)
        # Newton's step, with a limited length, and downhill even if the Hessian is not positive definite.
        sizes, directions = np.linalg.eigh(hessian(p, seen))
        move = directions @ (directions.T @ gradient / np.maximum(np.abs(sizes), 1e-3))
        p = p - move * min(1.0, 1.0 / np.abs(move).max())
        print(f"step {k}: {value:.6f}, noises {np.exp(p).round(4)}")
    error = float(np.abs(p - truth).max())
    assert np.abs(gradient).max() < 1e-6, "a minimum"
    assert error < 0.5, "the noises are found within their scatter"
    return error


if __name__ == "__main__":
    main()
