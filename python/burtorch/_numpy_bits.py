"""NumPy's bit operations of Arrays of 64-bit integers. No instruction acts on bits, so these look up four bits at a
time.

Promises the integers that NumPy gives. Masks are left to the operators. Of two words, 16 integers are needed per
element, unless one is a known run of ones.
"""

from __future__ import annotations

import operator

import numpy

from burtorch import _core
from burtorch._array_base import array
from burtorch._array_shapes import take
from burtorch._numpy_ufuncs import is_integer

TYPE_CHECKING = False  # as in the package
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def places() -> Any:
    """The value of each group of four bits."""
    return 16 ** numpy.arange(16, dtype="int64")


def powers() -> Any:
    """2 to each power below 63, the lowest integer, and 0 for longer shifts."""
    return numpy.append(numpy.left_shift(1, numpy.arange(64, dtype="int64")), 0)


def whole(*operands: Any) -> list[Any]:
    """The operands as integers."""
    found = [array(x) for x in operands]
    if not all(map(is_integer, found)):
        raise TypeError("bit operations of Arrays take integers or masks")
    return [x.astype(int) if x.dtype == bool else x for x in found]


def groups(x: Any) -> Any:
    """The groups of four bits, as a last axis. Division rounds down, so they are those of the two's complement."""
    return x[..., None] // places() % 16


def both(x: Any, y: Any) -> Any:
    x, y = whole(x, y)
    for word, other in ((x, y), (y, x)):
        if isinstance(other, numpy.ndarray) and other.ndim == 0 and (run := run_of_ones(other.item())):
            first, n_values = run
            return word // first % n_values * first
    four = numpy.arange(16)
    return (take((four[:, None] & four).ravel(), groups(x) * 16 + groups(y), 0) * places()).sum(-1)


def run_of_ones(word: int) -> tuple[int, int] | None:
    """If the ones of a positive word are adjacent: the value of the first, and the number of values of so many bits."""
    first = word & -word
    n_values = word // first + 1 if word > 0 else 0
    return (first, n_values) if word > 0 and n_values & (n_values - 1) == 0 and n_values < 2**63 else None


def either(x: Any, y: Any) -> Any:
    x, y = whole(x, y)
    return x + y - both(x, y)


def exclusive(x: Any, y: Any) -> Any:
    x, y = whole(x, y)
    return x + y - both(x, y) * 2


def inverted(x: Any) -> Any:
    return -1 - whole(x)[0]


def count(x: Any) -> Any:
    """The number of ones in the absolute value."""
    ones = numpy.array([bin(k).count("1") for k in range(16)])
    return take(ones, groups(abs(whole(x)[0])), 0).sum(-1)


def within(n: Any, other: int) -> Any:
    """Lengths of shifts below 64, and ``other`` for all others, which shift everything out."""
    is_within = (n >= 0) & (n < 64)
    choose = _core.array_where if isinstance(n, _core.Array) else numpy.where
    return choose(is_within, n, other)


def left(x: Any, n: Any) -> Any:
    x, n = whole(x, n)
    return x * take(powers(), within(n, 64), 0)


def right(x: Any, n: Any) -> Any:
    x, n = whole(x, n)
    n = within(n, 63)
    half = n // 2  # 2**63 is above the largest integer
    return x // take(powers(), half, 0) // take(powers(), n - half, 0)


def of_masks_or(of_integers: Callable[..., Any], of_masks: Callable[..., Any]) -> Callable[..., Any]:
    """The operator if all operands are masks."""

    def found(*operands: Any) -> Any:
        are_masks = all(isinstance(x, bool) or numpy.dtype(getattr(x, "dtype", float)) == bool for x in operands)
        return (of_masks if are_masks else of_integers)(*operands)

    return found


BITS: dict[str, Callable[..., Any]] = {
    "bitwise_and": of_masks_or(both, operator.and_), "bitwise_or": of_masks_or(either, operator.or_),
    "bitwise_xor": of_masks_or(exclusive, operator.xor), "invert": of_masks_or(inverted, operator.inv),
    "bitwise_count": count, "left_shift": left, "right_shift": right,
}  # fmt: skip
"""The ufuncs of bits."""
