"""Selection by a condition or by bounds, and constants of derivatives."""

from __future__ import annotations

from burtorch._core import Array, Tensor, Value, Vector, array_is_traced, array_of, array_where, concat, parameter
from burtorch._core import max as _max
from burtorch._core import min as _min

TYPE_CHECKING = False  # as in the package: importing typing costs several milliseconds
if TYPE_CHECKING:
    from typing import Any


def where(cond: Any, a: Any, b: Any) -> Any:
    """Take ``a`` where ``cond`` holds, else ``b``; only the chosen one receives a gradient.

    Args:
        cond: a bool, number or Value; or a sequence, array or Vector of them, for one choice per element.
        a: a Value or a number, which is broadcast; or a Vector, sequence or array; or an Array.
        b: likewise.

    Returns:
        A Value if none of the three has a length, else a Vector of that length, broadcast as in NumPy. Nothing is
        copied; a number becomes a constant. For plain numbers and arrays, a number or an array.

    Raises:
        TypeError: ``cond`` is text, a dict or a set.
        ValueError: two of ``cond``, ``a`` and ``b`` have different lengths.

    Linear in the length.

    Example:
        >>> import burtorch as bt
        >>> x = bt.Value(3.0)
        >>> y = bt.where(x > 2, x * x, -x)
        >>> y.backward()
        >>> y.data, x.grad
        (9.0, 6.0)
    """
    if isinstance(cond, (str, bytes, dict, set, frozenset)):
        found = type(cond).__name__
        raise TypeError(f"where() takes a bool, a number, a Value or an array of them as its condition, found {found}")
    tensors = [x for x in (a, b) if isinstance(x, Tensor)]
    has_axes = any(x.ndim > 1 for x in tensors) or getattr(cond, "ndim", 0) > 1
    is_of_arrays = bool(tensors) and (array_is_traced("where() of a Tensor") or has_axes)
    if is_of_arrays or any(isinstance(x, Array) for x in (cond, a, b)):
        return array_where(cond, a, b)
    if not _has_graph(a) and not _has_graph(b):
        return _of_numbers(cond, a, b)
    if isinstance(cond, (list, tuple)) and any(isinstance(c, (list, tuple)) for c in cond):
        raise ValueError(
            "where() of Values and Vectors takes a condition of one axis, found rows; use Arrays of bt.array"
        )
    if _is_scalar(cond):
        lengths = [len(x) for x in (a, b) if not _is_scalar(x)]
        if not lengths:
            chosen = a if cond else b
            return chosen if isinstance(chosen, Value) else _join([chosen], (a, b))[0]
        cond = [bool(cond)] * lengths[0]
    choices = [_elements(x, len(cond)) for x in (a, b)]
    return _join([x if c else y for c, x, y in zip(cond, *choices)], (a, b, *choices[0], *choices[1]))


def stop_gradient(x: Any) -> Any:
    """The same numbers, as constants of derivatives.

    Args:
        x: a Value, a Vector, an Array, a number or an array, or a list, tuple or dict of them.

    Example:
        >>> import burtorch as bt
        >>> bt.grad(lambda x: x * bt.stop_gradient(x))(3.0)
        3.0
    """
    if isinstance(x, (Array, Value)):
        return x.detach()
    if isinstance(x, Vector):
        return concat([value.detach() for value in x])
    if isinstance(x, Tensor):
        return array_of(x).detach()
    if isinstance(x, dict):
        return {name: stop_gradient(part) for name, part in x.items()}
    if isinstance(x, tuple) and hasattr(x, "_make"):
        return x._make(map(stop_gradient, x))
    if isinstance(x, (list, tuple)):
        return type(x)(map(stop_gradient, x))
    if x is None or isinstance(x, (bool, int, float)) or hasattr(x, "dtype"):
        return x
    raise TypeError(f"stop_gradient() takes Values, Vectors, Arrays and numbers, found {type(x).__name__}")


def clamp(x: Any, low: Any = None, high: Any = None) -> Any:
    """min(max(x, low), high); dx = 1 between the bounds, 1/2 at a bound, else 0.

    Args:
        x: a Value or a Vector; or a number or an array, with a result of the same kind.
        low: a number, a Value or an array of numbers, or None for no bound.
        high: likewise, not below ``low``. At least one bound is required.

    Returns:
        A Value or a Vector, like ``x``. NaN stays NaN. A bound that is a Value receives the gradient that ``x`` does
        not receive.

    Raises:
        TypeError: ``x`` has another type, or there is no bound.
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
    bounds = [bound for bound in (low, high) if bound is not None]
    if not bounds:
        raise TypeError("clamp() needs a bound: clamp(x, low, high), clamp(x, low=0.0) or clamp(x, high=1.0)")
    known = [_known(bound) for bound in bounds if not isinstance(bound, (Value, Vector, Array, Tensor))]
    if any(_holds(bound != bound) for bound in known):
        raise ValueError("the bounds of clamp() must not be NaN")
    if len(known) == 2 and _holds(known[0] > known[1]):
        raise ValueError(f"clamp() expects low <= high, found {low} and {high}")
    if low is not None:
        x = _max(x, low)
    return x if high is None else _min(x, high)


def _known(bound: Any) -> Any:
    """A bound without a gradient, a list as an array."""
    if not isinstance(bound, (list, tuple)) or _has_graph(bound):
        return bound
    import numpy

    return numpy.asarray(bound)


def _holds(condition: Any) -> bool:
    """Whether a condition holds for an element."""
    return bool(condition.any() if hasattr(condition, "any") else condition)


def _has_graph(x: Any) -> bool:
    """Whether ``x`` is on a graph, or a sequence with such an element."""
    if isinstance(x, (list, tuple)):
        return any(map(_has_graph, x))
    if _holds_objects(x):
        return any(map(_has_graph, x.ravel()))
    return isinstance(x, (Value, Vector, Tensor, parameter))


def _holds_objects(x: Any) -> bool:
    return getattr(getattr(x, "dtype", None), "kind", "") == "O"


def _of_numbers(cond: Any, a: Any, b: Any) -> Any:
    if _is_scalar(cond):
        cond = bool(cond)
        if _is_scalar(a) and _is_scalar(b):
            from numbers import Real

            # Durations of NumPy are registered as integers.
            kinds = [getattr(getattr(x, "dtype", None), "kind", "f") for x in (a, b)]
            if isinstance(a, Real) and isinstance(b, Real) and "m" not in kinds:
                return a if cond else b
    elif not hasattr(cond, "dtype"):
        cond = _truths(cond)
    import numpy

    chosen = numpy.where(cond, a, b)
    # Of arrays only masked ones have this attribute; NumPy 2.5 imports numpy.ma when it is named.
    if chosen.dtype.kind not in "biuf" or any(isinstance(x, numpy.ndarray) and hasattr(x, "mask") for x in (a, b)):
        raise TypeError("where() expects Values, Vectors, real numbers or arrays of them to choose from")
    return chosen


def _truths(cond: Any) -> list[Any]:
    """The conditions of a sequence, or of rows of them."""
    return [_truths(c) if isinstance(c, (list, tuple)) else bool(c) for c in cond]


def _is_scalar(x: Any) -> bool:
    """Whether ``x`` has no length: a Value, a number or a 0-d array."""
    return isinstance(x, Value) or not hasattr(x, "__len__") or getattr(x, "shape", None) == ()


def _elements(x: Any, n: int) -> list[Any]:
    """The ``n`` elements of a sequence, or one scalar ``n`` times."""
    if _is_scalar(x):
        return [x] * n
    if len(x) != n:
        raise ValueError(f"where() expects operands of equal length, found {n} and {len(x)}")
    return list(x)


def _join(chosen: list[Any], candidates: tuple[Any, ...]) -> Vector:
    """A Vector of the chosen Values, on the graph of the first candidate that has one."""
    # Outside traced functions a parameter is a number.
    kinds = (Value, Vector), (parameter, Tensor)
    anchor = next(x for kind in kinds for x in candidates if isinstance(x, kind))
    # If only numbers are chosen, the empty part determines the graph.
    joined: Vector = concat([*chosen, concat(anchor)[:0]])
    return joined
