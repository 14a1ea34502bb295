"""Checks of methods' arguments, one error per kind, before anything runs."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


def probability(p: float, name: str = "p") -> float:
    """A probability above 0."""
    if not 0.0 < p <= 1.0:
        raise ValueError(f"{name} must be above 0 and at most 1, found {p}")
    return p


def positive(value: float, name: str, most: float = math.inf) -> float:
    """A finite number above 0."""
    if not (0.0 < value < math.inf and value <= most):
        expected = "finite and above 0" if most == math.inf else f"above 0 and at most {most:g}"
        raise ValueError(f"{name} must be {expected}, found {value}")
    return value


def whole(value: Any, name: str, least: int = 1) -> int:
    """An integer."""
    try:
        found = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, found {value!r}") from None
    if not least <= found < 2**64:
        expected = f"at least {least}" if found < least else "below 2**64"
        raise ValueError(f"{name} must be {expected}, found {found}")
    return found


def finite(value: float, name: str) -> float:
    """A finite number."""
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, found {value}")
    return value


def point(x: ArrayLike, d: int, name: str) -> NDArray[np.float64]:
    """`d` finite numbers."""
    found = np.asarray(x, float)
    if found.shape != (d,):
        raise ValueError(f"{name} must have the shape ({d},), found {found.shape}")
    if not np.isfinite(found).all():
        raise ValueError(f"{name} must be finite")
    return found


def of_kind(value: object, kind: type, name: str, example: str) -> None:
    """Raises TypeError for an object of another class."""
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise TypeError(f"{name} must be {article} {kind.__name__}, such as {example}, found {type(value).__name__}")
