"""``burtorch bench gpt``: loss and gradient of the paper's GPT at several batch sizes.

Answers in float32 are checked against those in float64 first, loss and gradient within 1e-5. Contenders alternate in
short slices within one run, so that other load slows them equally. Rivals come from
``benches/python/bench_beside.py`` in burtorch's repository.
"""

from __future__ import annotations

import math
import random
from array import array
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, Literal

import burtorch

BATCHES = (1, 2, 4, 8, 16, 32, 64)
CONTEXT, VOCAB = 8, 65
TOLERANCE = 1e-5
SLICE_SECONDS = 0.02

Step = Callable[[], object]
# Label of its cell, name, seconds of compiling, the timed function.
Contender = tuple[str, str, float, Step]


class Cell:
    """One batch size: weights and batches."""

    def __init__(self, batch: int) -> None:
        self.batch = batch
        draw = random.Random(batch)
        params = burtorch.Parameters(seed=batch)
        burtorch.nn.GPT(params)
        self.weights = list(params.values)

        def symbols() -> memoryview:
            flat = array("i", draw.choices(range(VOCAB), k=batch * CONTEXT))
            return memoryview(flat).cast("B").cast("i", [batch, CONTEXT])

        self.X, self.Y = [symbols() for _ in range(8)], [symbols() for _ in range(8)]

    def oracle(self, dtype: Literal["float32", "float64"]) -> tuple[burtorch.Oracle, burtorch.Parameters]:
        params = burtorch.Parameters(dtype=dtype)
        model = burtorch.nn.GPT(params)
        params.values[:] = self.weights
        return burtorch.Oracle(model), params

    def step(self) -> Step:
        """burtorch on the next batch, read from buffers if there are any."""
        oracle, _ = self.oracle("float32")
        batches = list(zip(self.X, self.Y))
        turn = 0

        def step() -> object:
            nonlocal turn
            turn = (turn + 1) % len(batches)
            return oracle(*batches[turn])

        return step


def measure(batches: Sequence[int], rounds: int) -> dict[str, dict[str, Any]]:
    """The rows by batch size; see :func:`rows`."""
    contenders = []
    for batch in batches:
        cell = Cell(batch)
        checked(cell)
        contenders.append((f"b={batch}", "burtorch", 0.0, cell.step()))
    return rows(contenders, rounds)


def rows(contenders: Sequence[Contender], rounds: int) -> dict[str, dict[str, Any]]:
    """Seconds of compiling, and median, minimum and quartile of a gradient in ms, by cell and contender."""
    cells: dict[str, dict[str, Any]] = {label: {} for label, *_ in contenders}
    all_times = _interleaved([step for *_, step in contenders], rounds)
    for (label, name, seconds, _), times in zip(contenders, all_times):
        ordered = sorted(times)
        cells[label][name] = {
            "median": ordered[rounds // 2],
            "minimum": ordered[0],
            "quartile": ordered[rounds * 3 // 4],
            "compile_seconds": seconds,
        }
    return cells


def checked(cell: Cell) -> tuple[float, list[float]]:
    """Loss and gradient in float32, after a comparison with those in float64."""
    found = []
    dtypes: tuple[Literal["float64", "float32"], ...] = ("float64", "float32")
    for dtype in dtypes:
        oracle, _ = cell.oracle(dtype)
        loss, grad = oracle(cell.X[0], cell.Y[0])
        found.append((loss, [float(g) for g in grad]))
    agree("float32", found[0], found[1])
    return found[1]


def agree(name: str, expected: tuple[float, list[float]], found: tuple[float, list[float]]) -> None:
    norm = math.sqrt(sum(g * g for g in expected[1]))
    off = math.sqrt(sum((a - b) ** 2 for a, b in zip(expected[1], found[1]))) / norm
    same_loss = abs(found[0] - expected[0]) <= TOLERANCE * abs(expected[0])
    if len(expected[1]) != len(found[1]) or not same_loss or not off <= TOLERANCE:
        raise ValueError(f"{name} disagrees: losses {found[0]} and {expected[0]}, gradients off by {off:.1e}")


def _interleaved(steps: list[Step], rounds: int) -> list[list[float]]:
    """Milliseconds of each step, by round."""
    repeats = [_repeats(step) for step in steps]
    times: list[list[float]] = [[] for _ in steps]
    for _ in range(rounds):
        for step, n, found in zip(steps, repeats, times):
            step()
            start = perf_counter()
            for _ in range(n):
                step()
            found.append(1e3 * (perf_counter() - start) / n)
    return times


def _repeats(step: Step) -> int:
    for _ in range(3):
        step()
    start = perf_counter()
    step()
    return max(1, round(SLICE_SECONDS / max(perf_counter() - start, 1e-7)))


def peaks() -> dict[str, float] | None:
    """The peak resident and virtual memory of this process, in units of 10^6 bytes."""
    from burtorch.cli.reproduce.programs.measure import memory

    peak = memory()
    if peak["resident"] is None or peak["virtual"] is None:
        return None
    return {"peak_resident_mb": peak["resident"] / 1e6, "peak_virtual_mb": peak["virtual"] / 1e6}
