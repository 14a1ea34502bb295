"""Choosing between operands, by a condition or by bounds."""

from __future__ import annotations

from burtorch._core import Value, Vector, concat, parameter
from burtorch._core import max as _max
from burtorch._core import min as _min

TYPE_CHECKING = False  # as in the package: importing typing costs several milliseconds
if TYPE_CHECKING:
    from typing import Any


def where(cond: Any, a: Any, b: Any) -> Any:
    """Take ``a`` where ``cond`` holds, else ``b``; only what is taken receives a gradient.

    Args:
        cond: a bool, number or Value; or a sequence, array or Vector of them, for one choice per element.
        a: a Value or a number, which stands for every element; or a Vector, sequence or array.
        b: likewise. At least one of the two is a Value, or holds Values.

    Returns:
        A Value where none of the three has a length, else a Vector of that length, as NumPy broadcasts. Nothing is
        copied; a number becomes a constant.

    Raises:
        ValueError: two of ``cond``, ``a`` and ``b`` have different lengths.
        TypeError: what is chosen from are numbers only.

    Linear in the length.

    Example:
        >>> import burtorch as bt
        >>> x = bt.Value(3.0)
        >>> y = bt.where(x > 2, x * x, -x)
        >>> y.backward()
        >>> y.data, x.grad
        (9.0, 6.0)
    """
    if _is_scalar(cond):
        lengths = [len(x) for x in (a, b) if not _is_scalar(x)]
        if not lengths:
            chosen = a if cond else b
            return chosen if isinstance(chosen, Value) else _join([chosen], (a, b))[0]
        cond = [bool(cond)] * lengths[0]
    choices = [_elements(x, len(cond)) for x in (a, b)]
    return _join([x if c else y for c, x, y in zip(cond, *choices)], (a, b, *choices[0], *choices[1]))


def clamp(x: Any, low: Any = None, high: Any = None) -> Any:
    """min(max(x, low), high); dx = 1 between the bounds, 1/2 at a bound, else 0.

    Args:
        x: a Value or a Vector.
        low: a number or a Value, or None for no bound.
        high: likewise, not below ``low``. At least one is given.

    Returns:
        A Value or a Vector, like ``x``. NaN stays NaN. A bound that is a Value receives the gradient that ``x`` does
        not.

    Raises:
        TypeError: ``x`` is neither a Value nor a Vector, or there is no bound.
        ValueError: ``low`` is above ``high``, or a bound is NaN.

    Two ops per element, one per bound.

    Example:
        >>> import burtorch as bt
        >>> x = bt.Value(3.0)
        >>> y = bt.clamp(x, -1.0, 1.0)
        >>> y.backward()
        >>> y.data, x.grad
        (1.0, 0.0)
    """
    if not isinstance(x, (Value, Vector)):
        raise TypeError(f"clamp() expects a Value or a Vector, found {type(x).__name__}")
    bounds = [bound for bound in (low, high) if bound is not None]
    if not bounds:
        raise TypeError("clamp() needs a bound: clamp(x, low, high), clamp(x, low=0.0) or clamp(x, high=1.0)")
    if any(not isinstance(bound, Value) and bound != bound for bound in bounds):
        raise ValueError("a bound of clamp() is NaN")
    if len(bounds) == 2 and not any(isinstance(bound, Value) for bound in bounds) and low > high:
        raise ValueError(f"clamp() expects low <= high, found {low} and {high}")
    if low is not None:
        x = _max(x, low)
    return x if high is None else _min(x, high)


def _is_scalar(x: Any) -> bool:
    """Whether this has no length: a Value, a number, an array without dimensions."""
    return isinstance(x, Value) or not hasattr(x, "__len__") or getattr(x, "shape", None) == ()


def _elements(x: Any, n: int) -> list[Any]:
    """The ``n`` elements of a sequence, or ``n`` times one scalar."""
    if _is_scalar(x):
        return [x] * n
    if len(x) != n:
        raise ValueError(f"where() expects operands of equal length, found {n} and {len(x)}")
    return list(x)


def _join(chosen: list[Any], candidates: tuple[Any, ...]) -> Vector:
    """A Vector of what was chosen, on the graph of the first candidate that has one."""
    # Outside of traced functions a parameter is a number.
    kinds = (Value, Vector), parameter
    anchor = next((x for kind in kinds for x in candidates if isinstance(x, kind)), None)
    if anchor is None:
        raise TypeError("where() expects a Value or a Vector to choose from")
    # The empty part tells the graph where only numbers are chosen.
    return concat([*chosen, concat(anchor)[:0]])
