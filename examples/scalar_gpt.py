"""A GPT of about 4,000 parameters, written with scalars, that learns names: the same code on burtorch's Values and on a
plain-Python Value class.

One layer, four heads, 16 numbers a token, RMS norms, relu; Adam; one name a step. Run:
``python examples/scalar_gpt.py [--steps 20] [--data FILE]`` (a text with one word a line; eleven names by
default). Prints the loss of each step on both, their largest difference, the speed-up, and names that burtorch's model
makes up.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import burtorch as bt

WIDTH, N_HEADS, N_POSITIONS = 16, 4, 16
WORDS = ["ada", "alan", "barbara", "donald", "edsger", "frances", "grace", "john", "katherine", "leslie", "margaret"]


class Plain:
    """A scalar in pure Python that remembers how it was computed."""

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

    def __pow__(self, exponent: float) -> Plain:
        return Plain(self.data**exponent, (self,), (exponent * self.data ** (exponent - 1),))

    def __neg__(self) -> Plain:
        return self * -1.0

    def __sub__(self, other: Plain | float) -> Plain:
        return self + -other

    def __truediv__(self, other: Plain | float) -> Plain:
        return self * other**-1.0

    __radd__, __rmul__ = __add__, __mul__

    def relu(self) -> Plain:
        return Plain(max(self.data, 0.0), (self,), (float(self.data > 0),))

    def exp(self) -> Plain:
        y = math.exp(self.data)
        return Plain(y, (self,), (y,))

    def log(self) -> Plain:
        return Plain(math.log(self.data), (self,), (1.0 / self.data,))

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


def start(n_symbols: int) -> dict[str, list[list[float]]]:
    """Weights to begin with, by name, as rows."""

    def matrix(n_out: int, n_in: int, spread: float = 0.1) -> list[list[float]]:
        return [[random.gauss(0, spread) for _ in range(n_in)] for _ in range(n_out)]

    return {
        "symbols": matrix(n_symbols, WIDTH),
        "positions": matrix(N_POSITIONS, WIDTH),
        "query": matrix(WIDTH, WIDTH),
        "key": matrix(WIDTH, WIDTH),
        "value": matrix(WIDTH, WIDTH),
        "join": matrix(WIDTH, WIDTH),
        "widen": matrix(4 * WIDTH, WIDTH),
        "narrow": matrix(WIDTH, 4 * WIDTH),
        "logits": matrix(n_symbols, WIDTH),
    }


def dot(xs: Sequence[Any], ys: Sequence[Any]) -> Any:
    total = xs[0] * ys[0]
    for x, y in zip(xs[1:], ys[1:]):
        total = total + x * y
    return total


def times(rows: list[list[Any]], x: Sequence[Any]) -> list[Any]:
    return [dot(row, x) for row in rows]


def normed(x: list[Any]) -> list[Any]:
    scale = (dot(x, x) * (1.0 / len(x)) + 1e-5) ** -0.5
    return [xi * scale for xi in x]


def softmax(logits: list[Any]) -> list[Any]:
    highest = max(logit.data for logit in logits)
    powers = [(logit - highest).exp() for logit in logits]
    total = sum(powers[1:], powers[0])
    return [power / total for power in powers]


def logits(weights: dict[str, list[list[Any]]], symbol: int, memory: list[tuple[list[Any], list[Any]]]) -> list[Any]:
    """Scores of what follows ``symbol``, given keys and values of what was before it; its own are appended."""
    x = [a + b for a, b in zip(weights["symbols"][symbol], weights["positions"][len(memory)])]
    y = normed(x)
    query = times(weights["query"], y)
    memory.append((times(weights["key"], y), times(weights["value"], y)))
    size = WIDTH // N_HEADS
    seen = []
    for head in range(N_HEADS):
        part = slice(head * size, (head + 1) * size)
        attention = softmax([dot(query[part], key[part]) * size**-0.5 for key, _ in memory])
        seen += [dot(attention, [value[part][k] for _, value in memory]) for k in range(size)]
    x = [a + b for a, b in zip(x, times(weights["join"], seen))]
    hidden = [h.relu() for h in times(weights["widen"], normed(x))]
    x = [a + b for a, b in zip(x, times(weights["narrow"], hidden))]
    return times(weights["logits"], x)


def train(value: Any, begin: dict[str, list[list[float]]], words: list[list[int]], n_steps: int) -> Any:
    """Losses of Adam, one word a step, the seconds it took, and the weights. ``value`` makes a scalar of a number."""
    weights = {name: [[value(w) for w in row] for row in rows] for name, rows in begin.items()}
    parameters = [w for rows in weights.values() for row in rows for w in row]
    first, second = [0.0] * len(parameters), [0.0] * len(parameters)
    losses, began = [], time.perf_counter()
    for step in range(n_steps):
        word, memory, loss = words[step % len(words)][: N_POSITIONS + 1], [], 0.0
        for symbol, following in itertools.pairwise(word):
            loss = loss + -softmax(logits(weights, symbol, memory))[following].log()
        loss = loss * (1.0 / (len(word) - 1))
        for p in parameters:
            p.grad = 0.0
        loss.backward()
        rate = 0.01 * (1 - step / n_steps)
        for k, p in enumerate(parameters):
            g = p.grad
            first[k] = 0.85 * first[k] + 0.15 * g
            second[k] = 0.99 * second[k] + 0.01 * g * g
            m, v = first[k] / (1 - 0.85 ** (step + 1)), second[k] / (1 - 0.99 ** (step + 1))
            p.data -= rate * m / (math.sqrt(v) + 1e-8)
        losses.append(loss.data)
    return losses, time.perf_counter() - began, weights


def make_up(weights: dict[str, list[list[Any]]], alphabet: str) -> str:
    """A word drawn from the model, symbol by symbol."""
    memory: list[Any] = []
    word, symbol = "", 0
    with bt.no_grad():
        while len(memory) < N_POSITIONS:
            chances = [float(p) for p in softmax(logits(weights, symbol, memory))]
            symbol = random.choices(range(len(alphabet) + 1), chances)[0]
            if symbol == 0:
                break
            word += alphabet[symbol - 1]
    return word


def main(arguments: list[str] | None = None) -> float:
    """Trains both, prints the comparison and returns the largest difference of losses."""
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--names", type=int, default=5, help="how many names to make up at the end")
    options = parser.parse_args(arguments)
    random.seed(options.seed)
    words = options.data.read_text(encoding="utf-8").split() if options.data else list(WORDS)
    random.shuffle(words)
    alphabet = "".join(sorted(set("".join(words)) | set("abcdefghijklmnopqrstuvwxyz")))
    coded = [[0, *(alphabet.index(c) + 1 for c in word), 0] for word in words]
    begin = start(len(alphabet) + 1)
    print(f"{sum(len(row) for rows in begin.values() for row in rows)} parameters")
    ours, our_time, weights = train(bt.Value, begin, coded, options.steps)
    plain, plain_time, _ = train(Plain, begin, coded, options.steps)
    print("step  loss on burtorch       loss on plain Python")
    for k, (a, b) in enumerate(zip(ours, plain)):
        print(f"{k:4}  {a:<21.16g}  {b:.16g}")
    difference = max(abs(a - b) for a, b in zip(ours, plain))
    print(f"largest difference {difference:.1e}")
    print(f"burtorch {our_time:.3f} s, plain Python {plain_time:.3f} s: {plain_time / our_time:.1f} times faster")
    print("made up:", *(make_up(weights, alphabet) for _ in range(options.names)))
    return difference


if __name__ == "__main__":
    main()
