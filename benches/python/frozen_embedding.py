"""What does freezing the embeddings save? One model, frozen and trainable in turn, in the same memory.

    python frozen_embedding.py [--pairs 400] [--record]      # where burtorch is installed

Two models at different addresses differ in speed by a percent for this reason alone; so one model is frozen and
unfrozen between slices. The gradients of the other parameters are compared first: they are equal, bit for bit.
A slice is some ten milliseconds of gradients and optimiser steps over 16 batches in turn; the ratio is of frozen to
trainable, pair by pair.
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

SLICE_SECONDS = 0.01
N_BATCHES = 16


def rows(draw: random.Random, symbols: int, n: int, width: int) -> Any:
    flat = array("i", draw.choices(range(symbols), k=n * width))
    return memoryview(flat).cast("B").cast("i", [n, width])


def gpt(params: bt.Parameters, n: int) -> tuple[Any, list[bt.Tensor], Any, list[Any]]:
    model = bt.nn.GPT(params)
    draw = random.Random(n)
    batches = [(rows(draw, 65, n, 8), rows(draw, 65, n, 8)) for _ in range(N_BATCHES)]
    return model, [model.tokens, model.positions], bt.optim.AdamW(params, lr=1e-4), batches


def mlp(hidden: int) -> Callable[[bt.Parameters, int], tuple[Any, list[bt.Tensor], Any, list[Any]]]:
    def make(params: bt.Parameters, n: int) -> tuple[Any, list[bt.Tensor], Any, list[Any]]:
        model = bt.nn.CharMLP(params, hidden=hidden)
        draw = random.Random(n)
        batches = [(rows(draw, 27, n, 16), array("i", draw.choices(range(27), k=n))) for _ in range(N_BATCHES)]
        return model, [model.embedding], bt.optim.SGD(params, lr=1e-3), batches

    return make


def measure(make: Callable[..., Any], n: int, pairs: int) -> tuple[list[float], list[float], list[float], int]:
    """Sorted ratios, sorted times frozen and trainable in ms, and the bytes saved according to ``bt.memory``."""
    params = bt.Parameters(seed=0)
    model, tensors, optimizer, batches = make(params, n)
    oracle = bt.Oracle(model)
    frozen_end = max(t.span[1] for t in tensors)

    def freeze(yes: bool) -> None:
        for tensor in tensors:
            (tensor.freeze if yes else tensor.unfreeze)()

    grads, bytes_used = [], []
    for yes in (True, False):
        freeze(yes)
        grads.append(bytes(memoryview(oracle(*batches[0])[1])[frozen_end:]))
        bytes_used.append(bt.memory(model, optimizer, batches[0]).total)
    assert grads[0] == grads[1], "gradients of what is trained differ"

    def slice_of(repeats: int) -> float:
        start = perf_counter()
        for k in range(repeats):
            oracle(*batches[k % N_BATCHES])
            optimizer.step()
        return 1e3 * (perf_counter() - start) / repeats

    repeats = max(1, round(1e3 * SLICE_SECONDS / slice_of(20)))
    times: tuple[list[float], list[float]] = ([], [])
    for k in range(pairs):
        for yes in (True, False) if k % 2 else (False, True):
            freeze(yes)
            slice_of(2)
            times[not yes].append(slice_of(repeats))
    ratios = sorted(a / b for a, b in zip(*times))
    return ratios, sorted(times[0]), sorted(times[1]), bytes_used[1] - bytes_used[0]


def at(values: list[float], share: float) -> float:
    return values[int(share * (len(values) - 1))]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=400)
    parser.add_argument("--record", action="store_true", help="write benches/record")
    args = parser.parse_args()
    models = {"GPT, AdamW": gpt, "character MLP, e = 4, SGD": mlp(4), "character MLP, e = 64, SGD": mlp(64)}
    lines = [
        "| model | b | trainable, ms | frozen, ms | ratio (quartiles) | bytes fewer |",
        "|---|---|---|---|---|---|",
    ]
    for name, make in models.items():
        for n in (64, 1):
            ratios, frozen, trainable, saved = measure(make, n, args.pairs)
            spread = f"{at(ratios, 0.5):.4f} ({at(ratios, 0.25):.4f} to {at(ratios, 0.75):.4f})"
            both = f"{at(trainable, 0.5):.4f} | {at(frozen, 0.5):.4f}"
            lines.append(f"| {name} | {n} | {both} | {spread} | {saved:,} |")
            print(lines[-1], flush=True)
    text = f"# Embeddings frozen and trainable, in turn\n\nOne core, float32, medians of {args.pairs} pairs.\n\n"
    text += "\n".join(lines) + "\n"
    if args.record:
        write_record("frozen-embedding", text)


if __name__ == "__main__":
    main()
