"""What does a model written in Python cost? The character MLP from layers in an Oracle, beside the built-in one.

    python rebuilt_char_mlp.py [--rounds 25] [--record]      # where burtorch is installed

Losses and gradients are compared first (relative 1e-5). The two take turns in short slices; medians, in milliseconds a
gradient, are over the slices.
"""

from __future__ import annotations

import argparse
import random
from array import array
from collections.abc import Callable
from time import perf_counter
from typing import Any

from record import write_record

import burtorch as bt

CELLS = [(4, 1), (64, 1), (512, 1), (1024, 1), (4, 64), (64, 64), (512, 64), (1024, 64)]
SLICE_SECONDS = 0.02


class Chars:
    """The character MLP from layers, with parameters in the order of the built-in one."""

    def __init__(self, params: bt.Parameters, hidden: int) -> None:
        self.table = bt.nn.Embedding(params, 27, 64)
        self.hidden = bt.nn.Linear(params, 16 * 64, hidden, activation="tanh")
        self.output = bt.nn.Linear(params, hidden, 27)

    def __call__(self, symbols: bt.TokenIds, label: Any) -> bt.Value:
        return bt.softmax_cross_entropy(self.output(self.hidden(self.table.rows(symbols))), label)


def batch(n: int) -> tuple[Any, Any]:
    draw = random.Random(n)
    flat = array("i", draw.choices(range(27), k=16 * n))
    return memoryview(flat).cast("B").cast("i", [n, 16]), array("i", draw.choices(range(27), k=n))


def measure(hidden: int, n: int, rounds: int) -> tuple[float, float]:
    """Medians of the built-in model and of the rebuilt one, in ms."""
    params, own = bt.Parameters(), bt.Parameters()
    oracles = [bt.Oracle(bt.nn.CharMLP(params, hidden=hidden)), bt.Oracle(Chars(own, hidden))]
    own.values[:] = params.values
    data = batch(n)
    (loss, grad), (loss_too, grad_too) = (oracle(*data) for oracle in oracles)
    norm = sum(g * g for g in grad) ** 0.5
    off = sum((a - b) ** 2 for a, b in zip(grad, grad_too)) ** 0.5
    assert abs(loss - loss_too) <= 1e-5 * loss, (loss, loss_too)
    assert off <= 1e-5 * norm, (off, norm)
    steps: list[Callable[[], object]] = [lambda oracle=oracle: oracle(*data) for oracle in oracles]
    times: list[list[float]] = [[], []]
    for _ in range(rounds):
        for step, found in zip(steps, times):
            start, repeats = perf_counter(), 0
            while perf_counter() - start < SLICE_SECONDS:
                step()
                repeats += 1
            found.append(1e3 * (perf_counter() - start) / repeats)
    built, rebuilt = (sorted(found)[rounds // 2] for found in times)
    return built, rebuilt


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--record", action="store_true", help="write benches/record")
    args = parser.parse_args()
    lines = ["| e | b | built-in, ms | from layers, ms | ratio |", "|---|---|---|---|---|"]
    for hidden, n in CELLS:
        built, rebuilt = measure(hidden, n, args.rounds)
        lines.append(f"| {hidden} | {n} | {built:.4f} | {rebuilt:.4f} | {rebuilt / built:.2f} |")
    text = "# The character MLP from layers in Python beside the built-in one\n\nOne core, float32, medians.\n\n"
    text += "\n".join(lines) + "\n"
    print(text)
    if args.record:
        write_record("rebuilt-char-mlp", text)


if __name__ == "__main__":
    main()
