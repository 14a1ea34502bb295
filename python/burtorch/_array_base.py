"""Shared by the functions of arrays: detection of Arrays, and conversion of plain operands."""

from __future__ import annotations

import builtins
import functools
import inspect
import operator

import numpy

from burtorch import _core
from burtorch._core import Array, Parameters, Tensor, Value, Vector, parameter

TYPE_CHECKING = False  # as in the package
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any, ParamSpec, TypeVar

    P = ParamSpec("P")
    R = TypeVar("R")

INSTEAD_OF_VECTORS = "use an Array of bt.array or graph.array from the start, or x.data for the numbers alone"
"""What to do if a function does not take Vectors."""


def is_array(x: Any) -> bool:
    """Whether this is an Array, or has one in a list or tuple, or reads Parameters."""
    if isinstance(x, (list, tuple)):
        return builtins.any(map(is_array, x))
    return isinstance(x, (Array, Tensor, Parameters))


def array(x: Any) -> Any:
    """An object with the methods of arrays: an Array of Tensors and lists with Arrays, else ``x`` or NumPy's array."""
    if isinstance(x, (Array, numpy.ndarray)):
        return x
    if isinstance(x, (Tensor, Parameters, parameter)):
        return _core.array_of(x)
    if isinstance(x, (list, tuple)) and is_array(x):
        return _core.array(x)
    if has_value(x):
        return _core.array_of(x)  # raises the error
    made = numpy.asarray(x)
    if made.dtype.kind not in "biuf":
        raise TypeError(f"expected an Array, a number or an array of numbers, found {type(x).__name__}")
    return made


def as_array(x: Any) -> Any:
    """A Value or Vector as an Array of its graph, also in lists and tuples; other objects unchanged."""
    if isinstance(x, (list, tuple)) and has_value(x):
        return [*map(as_array, x)] if isinstance(x, list) else (*map(as_array, x),)
    return _core.array_of(x) if isinstance(x, (Value, Vector)) else x


def called(f: Callable[..., R], operands: tuple[Any, ...], keywords: dict[str, Any]) -> R:
    """The result of a function of Arrays, which Values and Vectors become."""
    return f(*map(as_array, operands), **{key: as_array(value) for key, value in keywords.items()})


def public(f: Callable[P, R]) -> Callable[P, R]:
    """A function that calls NumPy's function of the same name for plain arrays."""

    @functools.wraps(f)
    def of_any(*operands: P.args, **keywords: P.kwargs) -> R:
        if is_array(operands) or is_array(tuple(keywords.values())):
            return called(f, operands, keywords)
        if not f.__code__.co_flags & inspect.CO_VARKEYWORDS:
            check_names(f, keywords)
        return of_numbers(f.__name__, *operands, **keywords)  # type: ignore[no-any-return]

    return of_any


def of_numbers(name: str, *operands: Any, **keywords: Any) -> Any:
    """The function of this name of NumPy, with errors that name the operands instead of NumPy's parts."""
    try:
        return getattr(numpy, name)(*operands, **keywords)
    except (TypeError, AttributeError) as error:
        text, found = str(error), type(operands[0]).__name__ if operands else "nothing"
        if "dispatcher for __array_function__" in text:
            raise TypeError(f"{name}() takes a sequence of arrays, found {found}") from None
        if operands and isinstance(operands[0], (str, bytes)):
            raise TypeError(f"{name}() takes an Array, numbers or an array of numbers, found {found}") from None
        if has_value(operands) and "burtorch.Value" in text:
            raise TypeError(f"{name}() does not take lists of Values; {INSTEAD_OF_VECTORS}") from None
        raise


def check_names(f: Callable[..., Any], keywords: Iterable[str]) -> None:
    """TypeError for a keyword that a function does not take."""
    code = f.__code__
    taken = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    for name in keywords:
        if name in taken:
            continue
        import difflib

        near = difflib.get_close_matches(name, taken, n=1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        raise TypeError(f"{f.__name__}() got an unexpected keyword argument '{name}'{hint}")


def evaluated(n: int) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A function that NumPy does not have, whose first ``n`` operands are arrays."""

    def made(f: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(f)
        def of_any(*operands: P.args, **keywords: P.kwargs) -> R:
            if is_array(operands) or is_array(tuple(keywords.values())):
                return called(f, operands, keywords)
            if has_value(operands) or has_value(tuple(keywords.values())):
                raise TypeError(f"{f.__name__}() does not take Values or Vectors; {INSTEAD_OF_VECTORS}")
            arrays = [numpy.asarray(x) for x in operands[:n]]
            function: Callable[..., R] = f
            found: R = _core.array_evaluated(lambda *x: function(*x, *operands[n:], **keywords), *arrays)
            return found

        return of_any

    return made


def operand(x: Any) -> Any:
    """An operand of functions of several arrays: lists of numbers are arrays."""
    return x if isinstance(x, (Array, Tensor, Parameters, numpy.ndarray)) else array(x)


def part(x: Any, index: Any, axis: int) -> Any:
    """``x`` indexed along one axis."""
    return x[(slice(None),) * axis_of(axis, x.ndim) + (index,)]


def axis_of(axis: int, ndim: int) -> int:
    """An axis counted from the start."""
    axis = operator.index(axis)
    if not -ndim <= axis < ndim:
        raise numpy.exceptions.AxisError(axis, ndim)
    return axis % ndim


def axes_of(axis: int | Sequence[int], ndim: int, name: str = "axis") -> tuple[int, ...]:
    """Axes counted from the start, each named once."""
    axes = tuple(axis_of(one, ndim) for one in (axis if isinstance(axis, (tuple, list)) else (axis,)))
    if len({*axes}) < len(axes):
        raise ValueError(f"repeated axis in `{name}`: {axis}")
    return axes


def has_value(x: Any) -> bool:
    """Whether this is a Vector, or a list or tuple with Values."""
    if isinstance(x, (list, tuple)):
        return builtins.any(map(has_value, x))
    return isinstance(x, (Value, Vector))
