"""Loops built from other loops."""

from __future__ import annotations

import numpy

from burtorch._core import while_loop

TYPE_CHECKING = False  # as in the package
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def fori_between(lower: Any, upper: Any, body: Callable[[Any, Any], Any], init: Any) -> Any:
    """``fori_loop`` with an Array as a bound."""
    first = numpy.int64(lower) if isinstance(lower, int) else lower
    carry = while_loop(lambda c: c[0] < upper, lambda c: (c[0] + 1, body(c[0], c[1])), (first, init))
    return carry[1]
