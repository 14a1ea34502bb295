"""Checks of methods' arguments, one error per kind, before anything runs."""

from __future__ import annotations

import math
import operator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


def number(value: Any, name: str) -> float:
    """A real number as a float; text is none."""
    try:
        if isinstance(value, (str, bytes, bytearray)) or np.ndim(value):
            raise TypeError
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number, found {type(value).__name__}") from None
    except OverflowError:
        raise ValueError(f"{name} is too large for a float") from None


def probability(p: float, name: str = "p") -> float:
    """A probability above 0."""
    if not 0.0 < (found := number(p, name)) <= 1.0:
        raise ValueError(f"{name} must be above 0 and at most 1, found {p}")
    return found


def positive(value: float, name: str, most: float = math.inf) -> float:
    """A finite number above 0."""
    found = number(value, name)
    if not (0.0 < found < math.inf and found <= most):
        expected = "finite and above 0" if most == math.inf else f"above 0 and at most {most:g}"
        raise ValueError(f"{name} must be {expected}, found {value}")
    return found


def not_negative(value: float, name: str, *, is_finite: bool = True) -> float:
    """A number of at least 0; infinity only if not `is_finite`."""
    found = number(value, name)
    if not (found >= 0.0 and (found < math.inf or not is_finite)):
        raise ValueError(f"{name} must be {'finite and ' if is_finite else ''}at least 0, found {value}")
    return found


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
    found = number(value, name)
    if not math.isfinite(found):
        raise ValueError(f"{name} must be finite, found {value}")
    return found


def numbers(values: ArrayLike, name: str) -> NDArray[np.float64]:
    """Numbers as a new array of floats, which the caller's arrays do not change."""
    if isinstance(values, np.ma.MaskedArray):
        raise TypeError(f"{name} must be numbers, found a masked array, whose mask would be lost")
    try:
        found = np.asarray(values)
    except ValueError:
        raise ValueError(f"{name} must be an array, found rows of unequal length") from None
    if found.dtype.kind in "fiub":
        return found.astype(float)
    what = type(values).__name__ if found.dtype.kind == "O" and not found.ndim else found.dtype
    if found.dtype.kind == "O":
        with suppress(TypeError, ValueError):
            # Fractions and large integers, for example; `astype` would make NaN of None.
            return np.array([number(value, name) for value in found.ravel()]).reshape(found.shape)
    raise TypeError(f"{name} must be numbers, found {what}")


def check_shape(x: ArrayLike, d: int, name: str) -> None:
    """Raises ValueError unless x is an array or a list of `d` entries."""
    try:
        found = x.shape if hasattr(x, "shape") else np.shape(x)
    except ValueError:
        raise ValueError(f"{name} must be an array, found rows of unequal length") from None
    if found != (d,):
        raise ValueError(f"{name} must have the shape ({d},), found {found}")


def point(x: ArrayLike, d: int, name: str) -> NDArray[np.float64]:
    """`d` finite numbers, copied."""
    found = numbers(x, name)
    check_shape(found, d, name)
    if not np.isfinite(found).all():
        raise ValueError(f"{name} must be finite")
    return found


def of_kind(value: object, kind: type, name: str, example: str) -> None:
    """Raises TypeError for an object of another class."""
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise TypeError(f"{name} must be {article} {kind.__name__}, such as {example}, found {type(value).__name__}")
