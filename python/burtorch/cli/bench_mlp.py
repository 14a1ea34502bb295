"""``burtorch bench mlp``: one SGD step of the paper's character model, after a check that it reduces the loss.

Contenders alternate in short slices, so that other load slows them equally. Rivals come from
``benches/python/bench_beside.py`` in burtorch's repository.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import burtorch

SYMBOLS, CONTEXT, EMBEDDING = 27, 16, 64
HIDDEN = (4, 16, 32, 64, 128, 512, 1024)
BATCHES = (1, 64)
LEARNING_RATE = 0.01
SLICE_SECONDS = 0.02


@dataclass
class Contender:
    """A contender: calling ``step`` runs one SGD step to its end."""

    name: str
    step: Callable[[], object]
    compile_seconds: float = 0.0


class Burtorch:
    """A model, its oracle, and cyclic batches."""

    name = "burtorch"
    compile_seconds = 0.0

    def __init__(self, hidden: int, batches: Sequence[tuple[Any, Any]], weights: Any = None) -> None:
        self.params = burtorch.Parameters(seed=0)
        self.model = burtorch.nn.CharMLP(self.params, SYMBOLS, CONTEXT, EMBEDDING, hidden)
        if weights is not None:
            self.params.values[:] = weights
        self.oracle = burtorch.Oracle(self.model)
        self.batches, self.at = batches, 0

    def next(self) -> tuple[Any, Any]:
        """The batch of the next step; like the rivals, the first step takes the second batch."""
        self.at = (self.at + 1) % len(self.batches)
        return self.batches[self.at]

    def step(self) -> float:
        """One step in one call, like the rivals' compiled steps: values change during the backward pass."""
        x, y = self.next()
        return self.oracle.step(x, y, LEARNING_RATE)

    def __call__(self) -> object:
        return self.step()


def measure(hidden: int, n: int, rounds: int) -> dict[str, Any]:
    """The row of one cell; see :func:`rows`."""
    return rows([alone(hidden, n)], rounds)


def rows(contenders: Sequence[Contender], rounds: int) -> dict[str, Any]:
    """Seconds of compiling, and median and minimum of a step in ms, for each contender."""
    return {
        contender.name: {**times, "compile_seconds": contender.compile_seconds}
        for contender, times in zip(contenders, _interleaved(contenders, rounds))
    }


def alone(hidden: int, n: int) -> Contender:
    rng = random.Random(0)
    batches = []
    for _ in range(64):
        symbols = memoryview(array("i", rng.choices(range(SYMBOLS), k=n * CONTEXT))).cast("B").cast("i", [n, CONTEXT])
        batches.append((symbols, array("i", rng.choices(range(SYMBOLS), k=n))))
    mine = Burtorch(hidden, batches)
    first = mine.oracle.loss(*batches[0])
    burtorch.Oracle(mine.model).step(*batches[0], lr=LEARNING_RATE)
    if not mine.oracle.loss(*batches[0]) < first:
        raise ValueError("a step did not reduce the loss of its batch")
    return Contender(mine.name, mine)


def _interleaved(contenders: Sequence[Contender], rounds: int) -> list[dict[str, float]]:
    repeats = [_repeats(contender.step) for contender in contenders]
    times: list[list[float]] = [[] for _ in contenders]
    for _ in range(rounds):
        for contender, n, slices in zip(contenders, repeats, times):
            start = perf_counter()
            for _ in range(n):
                contender.step()
            slices.append(1e3 * (perf_counter() - start) / n)
    return [{"median": sorted(slices)[rounds // 2], "minimum": min(slices)} for slices in times]


def _repeats(step: Callable[[], object]) -> int:
    """The number of steps in a slice, after as many warm-up steps."""
    n = 1
    while True:
        start = perf_counter()
        for _ in range(n):
            step()
        elapsed = perf_counter() - start
        if elapsed >= SLICE_SECONDS / 2:
            return max(1, round(n * SLICE_SECONDS / elapsed))
        n *= 2
