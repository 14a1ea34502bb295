"""Functions that are methods of Arrays, with the keywords that only NumPy's functions have: ``where``, ``initial``,
``mean``, ``correction`` and ``dtype``."""

from __future__ import annotations

import functools

import numpy

from burtorch import _core
from burtorch._array_base import array, check_names, has_value, is_array, of_numbers
from burtorch._array_shapes import broadcast_to

TYPE_CHECKING = False  # as in the package
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, ParamSpec, TypeVar

    P = ParamSpec("P")
    R = TypeVar("R")

EXTREMES = {"max": -1, "min": 1}
JOINED: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda x, y: x + y,
    "prod": lambda x, y: x * y,
    "max": lambda x, y: _core.array_row("max", x, y),
    "min": lambda x, y: _core.array_row("min", x, y),
}
"""The function that combines the result of a reduction with ``initial``."""
TYPED = {"sum", "prod", "mean", "cumsum", "cumprod"}
"""Reductions whose second argument, after the axis, is a dtype."""


OF_VALUES: dict[str, Callable[[Any], Any]] = {
    "sum": _core.reduce_sum,
    "prod": _core.reduce_mul,
    "var": _core.variance_biased,
    "std": lambda x: _core.sqrt(_core.variance_biased(x)),
}
"""The reductions of lists of Values to a Value."""


def reduction(f: Callable[P, R]) -> Callable[P, R]:
    """A function that is a method of arrays, with the signature and documentation of ``f``, which is never called."""
    name = f.__name__
    of_values = OF_VALUES.get(name)

    @functools.wraps(f)
    def method(*operands: P.args, **keywords: P.kwargs) -> R:
        found: R = reduced(name, *operands, **keywords)
        return found

    @functools.wraps(method)
    def of_any(*operands: P.args, **keywords: P.kwargs) -> R:
        check_names(f, keywords)
        found: R
        if is_array(operands) or is_array(tuple(keywords.values())):
            found = method(*operands, **keywords)
        elif of_values is not None and len(operands) == 1 and not keywords and is_reduced(name, operands[0]):
            found = of_values(operands[0])
        else:
            found = of_numbers(name, *operands, **keywords)
        return found

    return of_any


def is_reduced(name: str, x: Any) -> bool:
    """Whether this is a list of Values, or a Vector for a reduction that is an op of Vectors."""
    return has_value(x) and (name in ("sum", "prod") or not isinstance(x, _core.Vector))


def reduced(name: str, a: Any, axis: Any = None, *rest: Any, **keywords: Any) -> Any:
    """The method ``name`` over the elements selected by ``where``, and over ``initial``."""
    x, where, initial = array(a), keywords.pop("where", True), keywords.pop("initial", None)
    dtype = keywords.pop("dtype", None)
    if rest and name in TYPED:
        dtype, rest = rest[0], (None, *rest[1:])
    if dtype is not None:
        x = x.astype(dtype)
    if name in ("var", "std"):
        return spread(name, x, where, axis, *rest, **keywords)
    if where is not True:
        if name == "mean":
            n = mask_of(where, x).sum(axis, keepdims=keywords.get("keepdims", False))
            return reduced("sum", x, axis, *rest, where=where, **keywords) / n
        if name in EXTREMES and initial is None:
            raise ValueError(f"{name} with where= needs initial=, because where may select no elements")
        x = _core.array_where(mask_of(where, x), x, start(name, x))
    if initial is None:
        return getattr(x, name)(axis, *rest, **keywords)
    if name not in JOINED:
        raise TypeError(f"{name}() got an unexpected keyword argument 'initial'")
    if numpy.dtype(x.dtype).kind != "f" and not is_array(initial):
        initial = int(initial)  # NumPy keeps integers too
    # The sum of no elements exists and has the right shape.
    method = "sum" if x.size == 0 and name in EXTREMES else name
    found = getattr(x, method)(axis, *rest, **keywords)
    return JOINED["sum" if method == "sum" else name](found, initial)


def mask_of(where: Any, x: Any) -> Any:
    """``where`` for each element of ``x``."""
    where = array(where)
    return broadcast_to(where if where.dtype == bool else where.astype(bool), x.shape)


def start(name: str, x: Any) -> Any:
    """The neutral element of a reduction, in the type of ``x``."""
    if name not in EXTREMES:
        starts = {"sum": 0, "prod": 1, "any": False, "all": True}
        if name not in starts:
            raise TypeError(f"{name}() got an unexpected keyword argument 'where'")
        return starts[name]
    dtype = numpy.dtype(x.dtype)
    if dtype.kind == "f":
        return EXTREMES[name] * numpy.inf
    limits = numpy.iinfo("int64") if dtype.kind in "iu" else None
    return (limits.min if name == "max" else limits.max) if limits else name == "min"


def spread(
    name: str, x: Any, where: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = None,
    keepdims: bool = False, *, correction: Any = None, mean: Any = None,
) -> Any:  # fmt: skip
    """The variance or the standard deviation."""
    if ddof is not None and correction is not None:
        raise ValueError("pass ddof= or correction=, not both")
    ddof = next((n for n in (ddof, correction) if n is not None), 0)
    if where is True and mean is None:
        return getattr(x, name)(axis, dtype, out, ddof, keepdims)
    if dtype is not None or out is not None:
        raise TypeError(f"{name}() of Arrays takes no positional dtype and out")
    mask = mask_of(where, x)
    mean = reduced("mean", x, axis, where=where, keepdims=True) if mean is None else mean
    apart = _core.array_where(mask, x - mean, 0.0)
    n = mask.sum(axis, keepdims=keepdims)
    found = (apart * apart).sum(axis, keepdims=keepdims) / _core.array_row("max", _core.array_of(n - ddof, x), 0.0)
    return found if name == "var" else _core.array_row("sqrt", found)
