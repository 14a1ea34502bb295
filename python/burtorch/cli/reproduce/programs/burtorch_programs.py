"""burtorch's own programs: the three ways to a small graph, and the two models.

burtorch            eager: Values, built and differentiated every time
burtorch-function   traced once, called with two floats
burtorch-buffers    the same on buffers set beforehand
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from typing import Any

import burtorch

from .graphs import ANSWERS, EXPRESSIONS, POINTS, Loop, eager, is_right

GPT = {"vocab": 65, "context": 8, "layers": 6, "heads": 6, "width": 24}


def graph_loop(name: str, graph: str) -> Loop:
    """The loop of one way; an AssertionError if its answer is wrong."""
    loop = eager(graph, burtorch.Value) if name == "burtorch" else _traced(name, graph)
    answer = loop(1)
    if not is_right(answer, graph):
        raise AssertionError(f"{name} on {graph}: expected {ANSWERS[graph]}, found {answer}")
    return loop


def _traced(name: str, graph: str) -> Loop:
    expression = EXPRESSIONS[graph]
    f = burtorch.function(lambda a, b: expression(a, b))
    a, b = POINTS[graph]

    def floats(n: int) -> tuple[float, ...]:
        for _ in range(n):
            value, (da, db) = f.value_and_grad(a, b)
        return value, da, db

    if name == "burtorch-function":
        return floats
    x, grad = array("d", [a, b]), array("d", [0.0, 0.0])
    bound = f.bind(x, grad)

    def buffers(n: int) -> tuple[float, ...]:
        for _ in range(n):
            value = bound()
        return value, grad[0], grad[1]

    return buffers


class Model:
    """The character MLP or the GPT of a problem file, its oracle, and its batches, used cyclically."""

    def __init__(self, problem: dict[str, Any], dtype: Any = "float32") -> None:
        self.params = burtorch.Parameters(dtype=dtype)
        if problem["model"] == "mlp":
            model: Any = burtorch.nn.CharMLP(self.params, problem["symbols"], 16, 64, problem["hidden"])
        else:
            model = burtorch.nn.GPT(self.params, **{**GPT, "vocab": problem["symbols"]})
        weights, X, Y = read_problem(problem)
        self.params.values[:] = weights
        self.oracle = burtorch.Oracle(model)
        self.batches, self.at, self.lr = list(zip(X, Y)), 0, problem["lr"]
        self.step: Callable[[], object] = self.descend if problem["model"] == "mlp" else self.differentiate

    def next(self) -> tuple[Any, Any]:
        self.at = (self.at + 1) % len(self.batches)
        return self.batches[self.at]

    def descend(self) -> float:
        """One step of SGD."""
        x, y = self.next()
        return self.oracle.step(x, y, self.lr)

    def differentiate(self) -> object:
        """Loss and gradient."""
        return self.oracle(*self.next())

    def loss_and_grad(self) -> tuple[float, Any]:
        """On the first batch."""
        loss, grad = self.oracle(*self.batches[0])
        return loss, array("d", grad)


def read_problem(problem: dict[str, Any]) -> tuple[array[float], list[memoryview], list[memoryview]]:
    """Weights, contexts and targets of a problem file, without NumPy."""
    n, b, inputs, targets = (problem[key] for key in ("n_batches", "batch", "inputs", "targets"))
    with open(problem["file"], "rb") as file:
        weights = array("f")
        weights.fromfile(file, problem["n_weights"])
        X = [_ints(file, (b, inputs)) for _ in range(n)]
        Y = [_ints(file, (b,) if targets == 1 else (b, targets)) for _ in range(n)]
    return weights, X, Y


def _ints(file: Any, shape: tuple[int, ...]) -> memoryview:
    numbers = array("i")
    numbers.fromfile(file, math.prod(shape))
    return memoryview(numbers).cast("B").cast("i", list(shape))
