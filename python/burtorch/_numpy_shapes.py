"""Functions of NumPy without a burtorch name that join, split and rearrange Arrays."""

from __future__ import annotations

import builtins
import math
import operator

import numpy

from burtorch import _array_base, _arrays, _core
from burtorch._array_base import array, axes_of, axis_of, is_array, operand, part, public
from burtorch._array_shapes import cast, concatenate, extents_of, sections_of

TYPE_CHECKING = False  # as in the package
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


@public
def stack(
    arrays: Sequence[Any], axis: int = 0, out: None = None, *, dtype: Any = None, casting: Any = "same_kind"
) -> Any:
    if out is not None:
        raise TypeError("Arrays are immutable and take no out=")
    arrays = [operand(x) for x in arrays]
    if len({array(x).shape for x in arrays}) > 1:
        raise ValueError("all input arrays must have the same shape")
    stacked = _core.array_stack(arrays, axis_of(axis, array(arrays[0]).ndim + 1) if arrays else axis)
    return cast(stacked, arrays, dtype, casting)


@public
def unstack(x: Any, *, axis: int = 0) -> tuple[Any, ...]:
    x = array(x)
    if x.ndim == 0:
        raise ValueError("Input array must be at least 1-d.")
    return tuple(part(x, k, axis) for k in range(x.shape[axis_of(axis, x.ndim)]))


@public
def dstack(tup: Sequence[Any]) -> Any:
    return concatenate(list(map(atleast_3d, tup)), 2)


@public
def column_stack(tup: Sequence[Any]) -> Any:
    return concatenate([array(x).reshape(-1, 1) if array(x).ndim < 2 else x for x in tup], 1)


@public
def atleast_1d(*arys: Any) -> Any:
    made = tuple(array(x) if array(x).ndim else array(x).reshape(1) for x in arys)
    return made[0] if len(made) == 1 else made


@public
def atleast_2d(*arys: Any) -> Any:
    made = tuple(array(x) if array(x).ndim > 1 else array(x).reshape((1, -1)) for x in arys)
    return made[0] if len(made) == 1 else made


@public
def atleast_3d(*arys: Any) -> Any:
    made = []
    for x in map(array, arys):
        shape = {0: (1, 1, 1), 1: (1, *x.shape, 1), 2: (*x.shape, 1)}.get(x.ndim, x.shape)
        made.append(x.reshape(shape))
    return made[0] if len(made) == 1 else tuple(made)


@public
def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    ary = array(ary)
    if numpy.ndim(indices_or_sections) == 0:
        n = ary.shape[axis_of(axis, ary.ndim)]
        parts = numpy.array_split(numpy.arange(n), sections_of(indices_or_sections))
        indices_or_sections = numpy.cumsum([len(one) for one in parts])[:-1]
    return _arrays.split(ary, indices_or_sections, axis)


@public
def hsplit(ary: Any, indices_or_sections: Any) -> Any:
    return _arrays.split(of_rank(ary, 1, "hsplit"), indices_or_sections, 0 if ary.ndim == 1 else 1)


@public
def vsplit(ary: Any, indices_or_sections: Any) -> Any:
    return _arrays.split(of_rank(ary, 2, "vsplit"), indices_or_sections, 0)


@public
def dsplit(ary: Any, indices_or_sections: Any) -> Any:
    return _arrays.split(of_rank(ary, 3, "dsplit"), indices_or_sections, 2)


def of_rank(ary: Any, least: int, name: str) -> Any:
    """The array, after a check of its number of dimensions."""
    if array(ary).ndim < least:
        raise ValueError(f"{name} only works on arrays of {least} or more dimensions")
    return ary


@public
def append(arr: Any, values: Any, axis: int | None = None) -> Any:
    return concatenate([arr, values], axis)


@public
def fliplr(m: Any) -> Any:
    return _arrays.flip(m, 1)


@public
def flipud(m: Any) -> Any:
    return _arrays.flip(m, 0)


@public
def rot90(m: Any, k: int = 1, axes: Any = (0, 1)) -> Any:
    m = array(m)
    if len(axes) != 2:
        raise ValueError("len(axes) must be 2.")
    first, second = axes_of(tuple(axes), m.ndim, "axes")
    if k % 4 == 0:
        return m
    if k % 4 == 2:
        return _arrays.flip(m, (first, second))
    return _arrays.flip(_arrays.swapaxes(m, first, second), first if k % 4 == 1 else second)


@public
def rollaxis(a: Any, axis: int, start: int = 0) -> Any:
    a = array(a)
    n, axis = a.ndim, axis_of(axis, a.ndim)
    start = operator.index(start)
    if not -n <= start <= n:
        raise numpy.exceptions.AxisError(f"start is from {-n} to {n}, found {start}")
    start += n if start < 0 else 0
    return _arrays.moveaxis(a, axis, start - 1 if start > axis else start)


@public
def matrix_transpose(x: Any) -> Any:
    return array(x).mT


@public
def broadcast_arrays(*args: Any) -> Any:
    shape = numpy.broadcast_shapes(*(array(x).shape for x in args))
    return tuple(_arrays.broadcast_to(x, shape) for x in args)


@public
def pad(
    array: Any, pad_width: Any, mode: Any = "constant", *, constant_values: Any = 0, reflect_type: str = "even"
) -> Any:
    modes = ("constant", "edge", "reflect", "symmetric", "wrap")
    if mode not in modes or reflect_type != "even" or is_array(constant_values):
        raise TypeError(f"it takes mode= {', '.join(map(repr, modes))}, known constants, and reflect_type='even'")
    array = _array_base.array(array)
    widths = widths_of(pad_width, array.ndim)
    values = numpy.broadcast_to(constant_values, (array.ndim, 2))
    for axis, ends in enumerate(widths):
        n = array.shape[axis]
        if mode == "constant":
            shapes = [(*array.shape[:axis], width, *array.shape[axis + 1 :]) for width in ends]
            before, after = (numpy.full(shape, value, array.dtype) for shape, value in zip(shapes, values[axis]))
            array = concatenate([before, array, after], axis)
        elif builtins.any(ends):
            array = part(array, numpy.pad(numpy.arange(n), ends, mode), axis)
    return array


def widths_of(pad_width: Any, ndim: int) -> list[list[int]]:
    """The numbers of elements to add before and after each axis."""
    if isinstance(pad_width, dict):
        named = {axis_of(axis, ndim): ends for axis, ends in pad_width.items()}
        pad_width = [numpy.broadcast_to(named.get(axis, 0), 2) for axis in range(ndim)]
    widths = numpy.asarray(pad_width)
    if widths.dtype.kind not in "iu":
        raise TypeError("`pad_width` must be of integral type.")
    if (widths < 0).any():
        raise ValueError("index can't contain negative values")
    return numpy.broadcast_to(widths, (ndim, 2)).tolist()  # type: ignore[no-any-return]


@public
def diagflat(v: Any, k: int = 0) -> Any:
    return _arrays.diag(array(v).ravel(), k)


@public
def meshgrid(*xi: Any, indexing: str = "xy") -> Any:
    n = len(xi)
    flat = [array(x).ravel() for x in xi]
    places = [k if indexing == "ij" or k > 1 else 1 - k for k in range(n)] if n > 1 else [0]
    return broadcast_arrays(*(x.reshape((1,) * k + (-1,) + (1,) * (n - k - 1)) for k, x in zip(places, flat)))


@public
def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Any:
    """``obj`` must be known: an integer, several, a slice or a mask."""
    if axis is None:
        return insert(array(arr).ravel(), obj, values, 0)
    arr, values = array(arr), array(values)
    axis = axis_of(axis, arr.ndim)
    n = arr.shape[axis]
    places = numpy.arange(n)[obj] if isinstance(obj, slice) else numpy.asarray(obj)
    places = numpy.flatnonzero(places) if places.dtype == bool else places.astype(int)
    values = values.reshape((1,) * (arr.ndim - values.ndim) + values.shape)
    values = _arrays.moveaxis(values, 0, axis) if places.ndim == 0 else values
    n_new = values.shape[axis] if places.size == 1 else len(places)
    values = _arrays.broadcast_to(values, (*arr.shape[:axis], n_new, *arr.shape[axis + 1 :]))
    order = numpy.insert(numpy.arange(n), places, numpy.arange(n, n + n_new))
    return part(concatenate([arr, values], axis), order, axis)


@public
def delete(arr: Any, obj: Any, axis: int | None = None) -> Any:
    """``obj`` must be known: an integer, several, a slice or a mask."""
    if axis is None:
        return delete(array(arr).ravel(), obj, 0)
    if is_array(obj):
        raise TypeError("numpy.delete takes known positions, found an Array")
    arr = array(arr)
    axis = axis_of(axis, arr.ndim)
    return part(arr, numpy.delete(numpy.arange(arr.shape[axis]), obj), axis)


@public
def block(arrays: Any) -> Any:
    depth, first = 0, arrays
    while isinstance(first, list):
        depth, first = depth + 1, first[0]
    n = builtins.max(depth, *(array(x).ndim for x in leaves(arrays)), 0)

    def joined(x: Any, axis: int) -> Any:
        if isinstance(x, list):
            return concatenate([joined(one, axis + 1) for one in x], axis)
        x = array(x)
        return x.reshape((1,) * (n - x.ndim) + x.shape)

    return joined(arrays, n - depth)


def leaves(arrays: Any) -> list[Any]:
    return [leaf for one in arrays for leaf in leaves(one)] if isinstance(arrays, list) else [arrays]


@public
def resize(a: Any, new_shape: Any) -> Any:
    shape = tuple(extents_of(new_shape))
    n = math.prod(shape)
    if array(a).size == 0:
        return _core.array_of(numpy.zeros(shape, a.dtype), a)
    return array(a).ravel()[numpy.arange(n) % a.size].reshape(shape)


@public
def apply_along_axis(func1d: Any, axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    """The function is traced once, with one row."""
    rows = _arrays.moveaxis(arr, axis, -1)
    others = rows.shape[:-1]
    if 0 in others:
        raise ValueError("the other axes are empty, so there is no row to call the function with")
    rows = rows.reshape(math.prod(others), arr.shape[axis])
    found = _core.vmap(lambda row: func1d(row, *args, **kwargs))(rows)
    n_new = found.ndim - 1
    found = found.reshape(others + found.shape[1:])
    axis = axis % arr.ndim
    return _arrays.moveaxis(found, tuple(range(len(others), found.ndim)), tuple(range(axis, axis + n_new)))
