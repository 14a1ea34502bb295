"""Where the ops are taken: special values of each type, each op's own, and a few random points from a fixed seed."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from .binary import Binary
from .quantity import INF, NAN, Format
from .reductions import Reduction
from .unary import Unary

RANDOM_POINTS = 5


def common(form: Format) -> list[float]:
    """Values at which anything may break: zeros, the ends of the range, ones and their neighbours."""
    epsilon = 2.0**-52 if form.name == "f64" else 2.0**-23
    positive = [
        form.smallest,
        form.smallest_normal,
        epsilon,
        0.5,
        1.0 - epsilon / 2,
        1.0,
        1.0 + epsilon,
        2.0,
        1000.0,
        form.largest,
        INF,
    ]
    return [0.0, -0.0, NAN, *positive, *(-x for x in positive)]


def pairs(form: Format) -> list[tuple[float, float]]:
    """Pairs of special values: all of a few, kinks and ties among them."""
    few = [0.0, -0.0, 1.0, -2.0, INF, -INF, NAN]
    ends = [
        (form.largest, form.largest),
        (form.smallest, form.smallest),
        (form.smallest_normal, 0.5),
        (-form.largest, 2.0),
    ]
    return [(x, y) for x in few for y in few] + ends


def usable(xs: tuple[float, ...], form: Format) -> bool:
    """Whether a type can hold the numbers other than as zero or infinity."""
    return all(x == 0 or not math.isfinite(x) or form.smallest_normal <= abs(x) <= form.largest for x in xs)


def unary_points(op: Unary, form: Format) -> Iterator[float]:
    """The inputs of one op, without repetition."""
    rng = random.Random(f"{op.name} {form.name}")
    drawn = [rng.uniform(*op.interval) for _ in range(RANDOM_POINTS)]
    chosen = [form.nearest(x) for x in [*op.special, *drawn] if usable((x,), form)]
    return once([*common(form), *chosen])


def binary_points(op: Binary, form: Format) -> Iterator[tuple[float, float]]:
    """The pairs of inputs of one op, without repetition."""
    rng = random.Random(f"{op.name} {form.name}")
    drawn = [(rng.uniform(*op.interval), rng.uniform(*op.interval)) for _ in range(RANDOM_POINTS)]
    chosen = [pair for pair in [*op.special, *drawn] if usable(pair, form)]
    return once([*pairs(form), *((form.nearest(x), form.nearest(y)) for x, y in chosen)])


def lists(op: Reduction, form: Format) -> Iterator[tuple[float, ...]]:
    """The lists of one op: its own, one with NaN, and random ones as long as these."""
    rng = random.Random(f"{op.name} {form.name}")
    drawn = [tuple(rng.uniform(-2, 2) for _ in own) for own in op.lists]
    chosen = [own for own in [*op.lists, *drawn] if usable(own, form)]
    return once([tuple(map(form.nearest, own)) for own in [(NAN, *chosen[0][1:]), *chosen]])


def once(items: list) -> Iterator:  # type: ignore[type-arg]  # of floats, or of tuples of floats
    """Each item the first time it comes; 0 and -0 are two items."""
    seen = set()
    for item in items:
        key = repr(item)
        if key not in seen:
            seen.add(key)
            yield item
