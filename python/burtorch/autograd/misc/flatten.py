"""Nests of arrays as one row of numbers."""

from __future__ import annotations

import numpy

import burtorch as bt
from burtorch.autograd import _Hole, _mapped

TYPE_CHECKING = False  # as in the package
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["flatten", "flatten_func"]


def flatten(value: Any) -> tuple[Any, Callable[[Any], Any]]:
    """All numbers of a nest of arrays in one row, and the function that converts such a row back to the nest.

    The numbers of a dict are in the order of its sorted keys, as in autograd.

    Example:
        >>> from burtorch.autograd.misc import flatten
        >>> row, unflatten = flatten({"b": 1.0, "a": [2.0, 3.0]})
        >>> row
        array([2., 3., 1.])
    """
    leaves: list[Any] = []

    def leaf(x: Any) -> _Hole:
        leaves.append(x)
        return _Hole(len(leaves) - 1)

    holes = _mapped(leaf, value, sorted)
    shapes = [numpy.shape(x) for x in leaves]
    ends = numpy.cumsum([int(numpy.prod(shape)) for shape in shapes]).tolist()
    starts = [0, *ends[:-1]]

    def unflatten(row: Any) -> Any:
        return _mapped(lambda hole: row[starts[hole.k] : ends[hole.k]].reshape(shapes[hole.k]), holes)

    rows = [bt.ravel(x) for x in leaves]
    return (bt.concatenate(rows) if rows else numpy.zeros(0)), unflatten


def flatten_func(func: Callable[..., Any], example: Any) -> tuple[Callable[..., Any], Callable[[Any], Any], Any]:
    """``func`` with its first argument and result as rows."""
    row, unflatten = flatten(example)
    return (lambda x, *rest: flatten(func(unflatten(x), *rest))[0]), unflatten, row
