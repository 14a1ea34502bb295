"""A classifier of two moons, written with scalars: the same code on burtorch's Values and on a plain-Python class.

Run: ``python examples/two_moons.py [--steps 20] [--points 100]``. Prints the loss of each step on both, their largest
difference, and how many times faster burtorch was.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import time
from typing import Any

import burtorch as bt


class Plain:
    """A scalar in pure Python that records its computation."""

    __slots__ = ("data", "grad", "parents", "partials")

    def __init__(self, data: float, parents: tuple[Plain, ...] = (), partials: tuple[float, ...] = ()) -> None:
        self.data, self.grad, self.parents, self.partials = data, 0.0, parents, partials

    def __add__(self, other: Plain | float) -> Plain:
        if isinstance(other, Plain):
            return Plain(self.data + other.data, (self, other), (1.0, 1.0))
        return Plain(self.data + other, (self,), (1.0,))

    def __mul__(self, other: Plain | float) -> Plain:
        if isinstance(other, Plain):
            return Plain(self.data * other.data, (self, other), (other.data, self.data))
        return Plain(self.data * other, (self,), (other,))

    __radd__, __rmul__ = __add__, __mul__

    def relu(self) -> Plain:
        return Plain(max(self.data, 0.0), (self,), (float(self.data > 0),))

    def backward(self) -> None:
        order, seen, stack = [], set(), [(self, False)]
        while stack:
            node, is_done = stack.pop()
            if is_done:
                order.append(node)
            elif node not in seen:
                seen.add(node)
                stack.append((node, True))
                stack += [(parent, False) for parent in node.parents]
        self.grad = 1.0
        for node in reversed(order):
            for parent, partial in zip(node.parents, node.partials):
                parent.grad += node.grad * partial


def moons(n: int) -> list[tuple[list[float], float]]:
    """Points of two interleaved half circles with noise, and the half circle of each: -1 or 1."""
    points = []
    for k in range(n):
        angle, side = math.pi * random.random(), 1.0 if k % 2 else -1.0
        x, y = (math.cos(angle), math.sin(angle)) if side < 0 else (1 - math.cos(angle), 0.5 - math.sin(angle))
        points.append(([x + random.gauss(0, 0.1), y + random.gauss(0, 0.1)], side))
    return points


def weights(sizes: list[int]) -> list[list[list[float]]]:
    """One row per neuron of each layer: its weights, then its bias."""
    return [
        [[random.uniform(-1, 1) for _ in range(n_in)] + [0.0] for _ in range(n_out)]
        for n_in, n_out in itertools.pairwise(sizes)
    ]


def train(value: Any, start: list[list[list[float]]], points: list[tuple[list[float], float]], n_steps: int) -> Any:
    """Losses of gradient descent on the hinge loss, and the seconds used. ``value`` converts a number to a scalar."""
    layers = [[[value(w) for w in neuron] for neuron in layer] for layer in start]
    parameters = [w for layer in layers for neuron in layer for w in neuron]

    def score(x: list[Any]) -> Any:
        for k, layer in enumerate(layers):
            x = [sum((w * xi for w, xi in zip(neuron, x)), neuron[-1]) for neuron in layer]
            x = [xi.relu() for xi in x] if k < len(layers) - 1 else x
        return x[0]

    losses, began = [], time.perf_counter()
    for step in range(n_steps):
        hinges = [(score(x) * -side + 1.0).relu() for x, side in points]
        loss = sum(hinges) * (1.0 / len(points)) + sum(p * p for p in parameters) * 1e-4
        for p in parameters:
            p.grad = 0.0
        loss.backward()
        for p in parameters:
            p.data -= (1.0 - 0.9 * step / n_steps) * p.grad
        losses.append(loss.data)
    return losses, time.perf_counter() - began


def main(arguments: list[str] | None = None) -> float:
    """Trains both, prints the comparison and returns the largest difference of losses."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--points", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1337)
    options = parser.parse_args(arguments)
    random.seed(options.seed)
    points, start = moons(options.points), weights([2, 16, 16, 1])
    ours, our_time = train(bt.Value, start, points, options.steps)
    plain, plain_time = train(Plain, start, points, options.steps)
    print("step  loss on burtorch       loss on plain Python")
    for k, (a, b) in enumerate(zip(ours, plain)):
        print(f"{k:4}  {a:<21.16g}  {b:.16g}")
    difference = max(abs(a - b) for a, b in zip(ours, plain))
    print(f"largest difference {difference:.1e}")
    print(f"burtorch {our_time:.3f} s, plain Python {plain_time:.3f} s: {plain_time / our_time:.1f} times faster")
    return difference


if __name__ == "__main__":
    main()
