"""``burtorch selftest``: edges, lanes and random points of every op, on this CPU, in a few seconds."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import burtorch as bt
from burtorch.cli.arguments import seed

LANES: list[Any] = [dtype for dtype in bt.system.DTYPES if "x" in dtype]
DIGITS = {"float32": (24, -149), "float64": (53, -1074)}
POINTS = 48


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "selftest",
        help="check every op on this CPU",
        description="Check every op on this CPU at each instruction level, in a few seconds: the edges of the "
        "domains, lanes against plain numbers, and random points against float128. Exit code 1 if a check fails.",
    )
    parser.add_argument("--seed", type=seed, default=0, help="seed of the random points (default 0)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    began = time.perf_counter()
    failures: list[str] = []
    level = bt.system.cpu_level()
    for name in bt.system.available_cpu_levels():
        bt.system.force_cpu_level(name)
        try:
            for part in (_edges, _random_points, _lanes):
                n, wrong = part(args.seed)
                failures += [f"{name}: {text}" for text in wrong]
                print(f"{name:<10} {part.__doc__:<58} {n:>6} results, {len(wrong)} wrong")
        finally:
            bt.system.force_cpu_level(level)
    for text in failures[:20]:
        print(text)
    print(f"{'FAILED' if failures else 'passed'} in {time.perf_counter() - began:.1f} s")
    return 1 if failures else 0


def _of_one_lane(dtype: str) -> Any:
    return dtype.split("x")[0]


def _apply(graph: bt.Graph, name: str, operands: list[Any]) -> list[Any]:
    """Value and gradients of an op."""
    leaves = [graph.value(x) for x in operands]
    function: Callable[..., bt.Value] = getattr(bt, name)
    value = function(leaves) if name.startswith(("reduce_", "variance")) else function(*leaves)
    value.backward()
    return [value.data, *(leaf.grad for leaf in leaves)]


def _edges(_seed: int) -> tuple[int, list[str]]:
    """edges of the domains, in every dtype"""
    from burtorch._edges import EDGES

    wrong, n = [], 0
    dtypes: list[Any] = ["float64", "float32", *LANES]
    for dtype in dtypes:
        one = bt.Graph(dtype=_of_one_lane(dtype))
        for name, at, value, grads in EDGES:
            found = _apply(bt.Graph(dtype=dtype), name, list(at))
            for k, (x, expected) in enumerate(zip(found, (value, *grads))):
                x = x[k % len(x)] if isinstance(x, tuple) else x
                n += 1
                if not _close(x, one.value(expected).data, dtype, sign=k == 0):
                    wrong.append(f"{name}{at} in {dtype}: result {k} is {x!r}, expected {expected!r}")
    return n, wrong


def _close(x: float, expected: float, dtype: str, *, sign: bool) -> bool:
    if math.isnan(expected) or math.isinf(expected) or expected == 0:
        same = x == expected or (math.isnan(x) and math.isnan(expected))
        return same and (not sign or math.isnan(x) or math.copysign(1, x) == math.copysign(1, expected))
    return abs(x - expected) <= 4 * _place(expected, dtype)


def _place(x: float, dtype: str) -> float:
    digits, least = DIGITS[dtype.split("x")[0]]
    return math.ldexp(1.0, max(math.frexp(x)[1] - digits, least))


def _points(seed: int) -> Iterator[tuple[dict[str, Any], list[list[float]]]]:
    """Each elementwise op of the table, with points of its interval."""
    import random

    for op in bt.system.ops():
        if op["arity"] in ("unary", "binary"):
            rng = random.Random(f"{seed} {op['name']}")
            n = 1 if op["arity"] == "unary" else 2
            yield op, [[rng.uniform(*op["domain"]) for _ in range(n)] for _ in range(POINTS)]


def _random_points(seed: int) -> tuple[int, list[str]]:
    """random points of every op, against float128"""
    wrong, n = [], 0
    dtypes: list[Any] = ["float64", "float32"]
    for dtype in dtypes:
        one = bt.Graph(dtype=dtype)
        for op, points in _points(seed):
            for at in points:
                rounded = [one.value(x).data for x in at]
                found = _apply(bt.Graph(dtype=dtype), op["name"], rounded)
                exact = _apply(bt.Graph(dtype="float128"), op["name"], rounded)
                for k, (x, right) in enumerate(zip(found, exact)):
                    n += 1
                    bound = op["value_ulp"] if k == 0 else op["partial_ulp"]
                    off = abs(float(type(right)(x) - right)) / _place(float(right), dtype) if right else abs(x)
                    if not off <= bound:
                        wrong.append(f"{op['name']}{at} in {dtype}: result {k} is {x!r}, {off:.2f} ULP off")
    return n, wrong


def _lanes(seed: int) -> tuple[int, list[str]]:
    """lanes against plain numbers, bit for bit"""
    wrong, n = [], 0
    for op, points in _points(seed):
        for dtype in LANES:
            width = int(dtype.split("x")[1])
            chunk = points[:width]
            together = _apply(bt.Graph(dtype=dtype), op["name"], [list(lanes) for lanes in zip(*chunk)])
            for lane, at in enumerate(chunk):
                alone = _apply(bt.Graph(dtype=_of_one_lane(dtype)), op["name"], at)
                found = [x[lane] for x in together]
                n += len(alone)
                if repr(found) != repr(alone):
                    wrong.append(f"{op['name']}{at} in lane {lane} of {dtype}: {found}, alone {alone}")
    return n, wrong
