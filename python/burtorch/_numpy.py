"""NumPy's functions of Arrays: the dispatch table of ``Array.__array_ufunc__`` and ``Array.__array_function__``.

A function that is not in the table is a TypeError that names it. NumPy is never called again with an Array.
"""

from __future__ import annotations

import numpy

from burtorch import (
    _array_base,
    _arrays,
    _core,
    _numpy_linalg,
    _numpy_more,
    _numpy_reductions,
    _numpy_series,
    _numpy_shapes,
)
from burtorch._array_reductions import reduced
from burtorch._core import Array
from burtorch._numpy_bits import BITS
from burtorch._numpy_ufuncs import OPERATORS as OF_NUMBERS
from burtorch._numpy_ufuncs import REDUCTIONS, ROWS, RUNNING
from burtorch._where import clamp, where

TYPE_CHECKING = False  # as in the package
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def plain_operand(x: Any) -> Any:
    """A NumPy scalar or 0-d array as a number, so that its operators do not dispatch to NumPy again."""
    return x.item() if isinstance(x, (numpy.generic, numpy.ndarray)) and x.ndim == 0 else x


def ufunc(function: Any, method: str, *operands: Any, **keywords: Any) -> Any:
    """The result of ``__array_ufunc__``."""
    name = function.__name__
    if keywords.pop("out", None) is not None:
        raise TypeError(f"numpy.{name} takes no out= if an operand is an Array: Arrays are immutable")
    if method == "__call__":
        if keywords:
            raise TypeError(f"numpy.{name} of Arrays takes no {', '.join(sorted(keywords))}=")
        return elementwise(name, *operands)
    if method == "reduce" and name in REDUCTIONS:
        return reduced(REDUCTIONS[name], operands[0], **{"axis": 0, **dict(zip(["axis"], operands[1:])), **keywords})
    if method == "accumulate" and name in RUNNING:
        axis = operands[1] if len(operands) > 1 else keywords.pop("axis", 0)
        if axis is None or operands[0].ndim == 0:
            raise TypeError(f"numpy.{name}.accumulate takes an array and one axis of it")
        return getattr(operands[0], RUNNING[name])(axis, **keywords)
    if method == "outer" and len(operands) == 2 and not keywords and function.nin == 2:
        x, y = (_array_base.array(x) for x in operands)
        return elementwise(name, x.reshape(x.shape + (1,) * y.ndim), y)
    raise TypeError(f"numpy.{name}.{method} does not take Arrays")


OPERATORS = {**OF_NUMBERS, **BITS}
"""Ufuncs that are made of several operations."""


def home_of(name: str) -> str:
    """The package of a ufunc."""
    return "numpy" if hasattr(numpy, name) else "scipy.special"


def elementwise(name: str, *operands: Any) -> Any:
    if name not in ROWS and name not in OPERATORS:
        raise TypeError(f"{home_of(name)}.{name} does not take Arrays: burtorch has no such function")
    if not all(isinstance(x, Array) for x in operands):
        allowed = (Array, numpy.ndarray, numpy.generic, float, int, _core.Tensor, _core.Parameters)
        operands = tuple(x if isinstance(x, allowed) else _array_base.array(x) for x in operands)
        operands = tuple(map(plain_operand, operands))
        # An operator of a NumPy array would dispatch to NumPy, which would call this function again.
        first = next(x for x in operands if isinstance(x, Array))
        operands = tuple(_core.array_of(x, first) if isinstance(x, numpy.ndarray) else x for x in operands)
    if name in ROWS:
        return _core.array_row(ROWS[name], *operands)
    return OPERATORS[name](*operands)


def named(function: Any) -> str:
    """A function's name as users write it."""
    return f"{getattr(function, '__module__', 'numpy')}.{function.__name__}"


def function(called: Any, _types: Any, operands: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """The result of ``__array_function__``."""
    ours = FUNCTIONS.get(named(called))
    if ours is None:
        if called.__name__ in POSITIONS and len(operands) == 1:
            mask = _numpy_more.known_mask(operands[0])
            if mask is not None:
                return called(mask)
        raise TypeError(f"{named(called)} does not take Arrays: {why_not(called)}")
    if keywords.get("out") is not None:
        raise TypeError(f"{named(called)} takes no out= if an operand is an Array: Arrays are immutable")
    try:
        return _array_base.called(ours, operands, {key: x for key, x in keywords.items() if key != "out"})
    except (TypeError, AttributeError) as error:
        if isinstance(error, _core.TraceError):
            raise
        text = str(error).replace("<lambda>()", f"{called.__name__}()")
        raise TypeError(f"{named(called)} of Arrays: {text}") from error


ALIASES = {"amax": "max", "amin": "min", "around": "round", "concat": "concatenate", "permute_dims": "transpose"}
"""NumPy's aliases of functions with the same arguments."""


def table() -> dict[str, Callable[..., Any]]:
    """The functions of Arrays, by the names of NumPy's."""
    found: dict[str, Callable[..., Any]] = {}
    for module in (_arrays, _numpy_shapes, _numpy_reductions, _numpy_series, _numpy_more):
        for name, ours in vars(module).items():
            if callable(theirs := getattr(numpy, name, None)) and hasattr(ours, "__wrapped__"):
                found[named(theirs)] = ours.__wrapped__
    for alias, name in ALIASES.items():
        found[f"numpy.{alias}"] = found[f"numpy.{name}"]
    found.update({f"numpy.linalg.{name}": ours for name, ours in _numpy_linalg.LINALG.items()})
    return found


FUNCTIONS = table()
POSITIONS = {"argwhere", "flatnonzero", "nonzero"}
"""Functions of Arrays whose comparisons have numbers, such as those in ``burtorch.autograd``."""
SHAPES_OF_NUMBERS = {
    "argwhere", "flatnonzero", "intersect1d", "nonzero", "setdiff1d", "setxor1d", "trim_zeros",
    "union1d", "unique", "unique_all", "unique_counts", "unique_inverse", "unique_values",
}  # fmt: skip


def why_not(called: Any) -> str:
    """Why a function that is not in the table is refused."""
    if called.__name__ in SHAPES_OF_NUMBERS:
        return "the shape of its result depends on numbers; choose elements with bt.where, or use known numbers"
    return "burtorch has no such function"


def function_of_parameters(called: Any, types: Any, operands: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """The result of ``__array_function__`` of Tensors and Parameters, which become Arrays of the current graph."""
    if _core.Vector in types:
        return NotImplemented
    return function(called, types, operands, keywords)


def ufunc_of_parameters(called: Any, method: str, *operands: Any, **keywords: Any) -> Any:
    """The result of ``__array_ufunc__`` of Parameters, Tensors, Values and Vectors as Arrays."""
    kinds = (_core.Parameters, _core.Tensor, _core.parameter)
    operands = tuple(map(_array_base.as_array, operands))
    arrays = [x for x in operands if isinstance(x, Array)]
    operands = tuple(_core.array_of(x, *arrays) if isinstance(x, kinds) else x for x in operands)
    return ufunc(called, method, *operands, **keywords)


def shape_of_vector(x: Any) -> tuple[int]:
    return (len(x),)


REDUCTIONS_OF_VECTORS: dict[str, Callable[..., Any]] = {
    "numpy.sum": _core.reduce_sum, "numpy.prod": _core.reduce_mul, "numpy.mean": _core.reduce_mean,
    "numpy.max": _core.reduce_max, "numpy.amax": _core.reduce_max, "numpy.min": _core.reduce_min,
    "numpy.amin": _core.reduce_min, "numpy.var": _core.variance_biased, "numpy.linalg.norm": _core.norm2,
}  # fmt: skip
OF_VECTORS: dict[str, Callable[..., Any]] = {
    "numpy.dot": _core.inner_product, "numpy.vdot": _core.inner_product, "numpy.inner": _core.inner_product,
    "numpy.concatenate": lambda arrays: _core.concat(*arrays), "numpy.where": where, "numpy.clip": clamp,
    "numpy.shape": shape_of_vector, "numpy.size": len, "numpy.ndim": lambda x: 1,
}  # fmt: skip


PRODUCTS = {"numpy.dot", "numpy.vdot", "numpy.inner"}


def is_row(x: Any) -> bool:
    """Whether an operand has one axis: a Vector, a sequence of numbers, or an array."""
    numbers = (_core.Value, _core.parameter, float, int)
    return isinstance(x, _core.Vector) or (getattr(x, "ndim", 1) == 1 and not isinstance(x, numbers))


def function_of_vectors(called: Any, types: Any, operands: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """The result of ``Vector.__array_function__``."""
    if Array in types:
        return NotImplemented
    name = named(called)
    if name in REDUCTIONS_OF_VECTORS:
        x, *rest = operands
        names = ("ord", "axis") if name == "numpy.linalg.norm" else ("axis",)
        given = dict(zip(names, rest, strict=False)) | keywords
        axis = given.pop("axis", None)
        is_whole = axis is None or (type(axis) is int and axis in (0, -1))
        if is_whole and len(rest) <= len(names) and given in ({}, {"ord": None}):
            return REDUCTIONS_OF_VECTORS[name](x)
    elif name in OF_VECTORS and not keywords and (name not in PRODUCTS or all(map(is_row, operands))):
        return OF_VECTORS[name](*operands)
    if name not in FUNCTIONS:
        raise TypeError(f"{name} does not take Vectors or Arrays: {why_not(called)}")
    try:
        return function(called, types, operands, keywords)
    except TypeError as error:
        refused = f"{name} does not take Vectors with these arguments; {_array_base.INSTEAD_OF_VECTORS}"
        raise TypeError(refused) from error
