"""Three models written by hand, each trained with an Oracle that computes several samples at once.

A model is any callable that maps one sample to its loss. The oracle calls it once for each group of samples, with
Values and Vectors that hold one number in each lane, so the same code serves one sample and sixteen.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import burtorch as bt


def logistic(params: bt.Parameters) -> Callable[[Any, Any], bt.Value]:
    """Logistic regression on two features."""
    w, b = params.tensor(2, init=0.0), params.tensor(1, init=0.0)

    def loss(x: bt.Vector, label: bt.Value) -> bt.Value:
        z = bt.inner_product(x, w) + b[0]
        return bt.softplus(z) - label * z

    return loss


def tied(params: bt.Parameters, symbols: int = 8, width: int = 6) -> Callable[[Any, Any], bt.Value]:
    """Predicts a token from two: two hidden layers, and the embeddings used again as the output layer."""
    table = params.tensor((symbols, width), init="normal")
    w1, b1 = params.tensor((16, 2 * width)), params.tensor(16, init=0.0)
    w2, b2 = params.tensor((width, 16)), params.tensor(width, init=0.0)

    def loss(context: bt.TokenIds, target: bt.TokenIds) -> bt.Value:
        hidden = bt.tanh(bt.affine(w1, bt.gather(table, context), b1))
        hidden = bt.tanh(bt.affine(w2, hidden, b2))
        return bt.softmax_cross_entropy(table @ hidden, target)

    return loss


def residual(params: bt.Parameters, width: int = 8) -> Callable[[Any, Any], bt.Value]:
    """A regression with residual blocks."""
    first, shift = params.tensor((width, 1)), params.tensor(width, init=0.0)
    blocks = [(params.tensor((width, width)), params.tensor(width, init=0.0)) for _ in range(2)]
    last = params.tensor((1, width))

    def loss(x: bt.Vector, y: bt.Value) -> bt.Value:
        h = bt.affine(first, x, shift)
        for w, b in blocks:
            h = h + bt.tanh(bt.affine(w, h, b))
        difference = (last @ h)[0] - y
        return difference * difference

    return loss


def train(build: Callable[[bt.Parameters], Callable[[Any, Any], bt.Value]], x: Any, y: Any, lr: float) -> None:
    params = bt.Parameters(seed=1)
    model = build(params)
    oracle = bt.Oracle(model, params=params)
    first = oracle.loss(x, y)
    for _ in range(300):
        oracle.step(x, y, lr)
    last = oracle.loss(x, y)
    print(f"{build.__name__:<10}{params.n:>6} parameters   loss {first:.3f} -> {last:.3f}")
    assert last < first / 2


def main() -> None:
    rng = random.Random(0)
    points = [[rng.uniform(-1, 1), rng.uniform(-1, 1)] for _ in range(100)]
    train(logistic, points, [float(a > b) for a, b in points], 2.0)
    contexts = [[a, b] for a in range(8) for b in range(8)]
    train(tied, contexts, [(a + b) % 8 for a, b in contexts], 0.5)
    line = [[k / 20 - 1] for k in range(41)]
    train(residual, line, [math.sin(3 * x[0]) for x in line], 0.05)


if __name__ == "__main__":
    main()
