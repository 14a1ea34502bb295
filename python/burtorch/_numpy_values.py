"""NumPy's functions of a single Value: the results of ``Value.__array_function__``."""

from __future__ import annotations

from burtorch._core import Array, Parameters, Tensor, Value, Vector
from burtorch._where import clamp, where

TYPE_CHECKING = False  # as in the package
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

ITSELF = {"sum", "prod", "mean", "average", "median", "max", "min", "amax", "amin", "nansum", "nanmean", "squeeze"}
"""Functions that return their operand."""

SPREADS = {"var", "std", "ptp"}
"""Functions that are 0 for a single number."""


def rounded(a: Value, decimals: int = 0, out: None = None) -> Value:
    return round(a, decimals)


def clip(
    a: Value, a_min: Any = None, a_max: Any = None, out: None = None, *, min: Any = None, max: Any = None
) -> Value:
    low, high = (given if one is None else one for one, given in ((a_min, min), (a_max, max)))
    return a if low is None and high is None else clamp(a, low, high)


def interp(x: Value, xp: Any, fp: Any, left: Any = None, right: Any = None, period: None = None) -> Value:
    """The value at ``x`` of the line through known points; constant outside of them.

    At a point its slope is that of the interval after it, at the last one of the interval before it.
    """
    import numpy

    if period is not None:
        raise TypeError("numpy.interp of a Value takes no period=")
    xs = numpy.asarray(xp, float)
    if xs.ndim != 1 or len(xs) != len(fp) or len(xs) == 0:
        raise ValueError("fp and xp are not of the same length, or empty")
    if x != x:
        return x
    last = len(xs) - 1
    if x < xs[0] or last == 0 or x > xs[last]:
        end = 0 if x < xs[0] else last
        given = left if x < xs[0] else right if x > xs[last] else None
        constant: Value = where(True, fp[end] if given is None else given, x)
        return constant
    k = next((k for k in range(1, last) if x < xs[k]), last) - 1
    found: Value = fp[k] + (x - xs[k]) * ((fp[k + 1] - fp[k]) / (xs[k + 1] - xs[k]))
    return found


OURS: dict[str, Callable[..., Value]] = {"round": rounded, "around": rounded, "clip": clip, "interp": interp}
"""Functions of a Value that are composed of ops."""


def loses_gradient(found: Any) -> bool:
    """Whether a result contains floats that were computed from Values."""
    if isinstance(found, (tuple, list)):
        return any(map(loses_gradient, found))
    kind = getattr(getattr(found, "dtype", None), "kind", None)
    return isinstance(found, (float, complex)) if kind is None else kind in "fc"


def function_of_values(called: Any, types: Any, operands: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """The result of ``Value.__array_function__``; functions of Values alone treat them as objects."""
    if any(one in types for one in (Array, Parameters, Tensor, Vector)):
        return NotImplemented
    name = called.__name__
    if name in OURS and operands and isinstance(operands[0], Value) and keywords.get("out") is None:
        return OURS[name](*operands, **keywords)
    if name in ITSELF | SPREADS and called.__module__ == "numpy" and isinstance(operands[0], Value):
        axes = [*operands[1:2], *(value for key, value in keywords.items() if key == "axis")]
        others = sorted(set(keywords) - {"axis", "keepdims"})
        if len(operands) > 2 or others or axes not in ([], [None], [0], [-1], [()]):
            wrong = f"{others[0]}=" if others else f"axis={axes[0]}" if axes else "these arguments"
            raise TypeError(f"numpy.{name} of a Value takes no {wrong}: a Value is one number")
        return operands[0] if name in ITSELF else operands[0] - operands[0]
    try:
        found = called._implementation(*operands, **keywords)
        if loses_gradient(found):
            raise TypeError("its result would have no gradient")
        return found
    except Exception as error:
        full = f"{called.__module__}.{name}"
        # The body of a traced function is then traced with Arrays.
        raise TypeError(f"{full} does not take Values with these arguments: {error}; use an array") from error
