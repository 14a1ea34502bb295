"""Functions that join, split and rearrange arrays, with NumPy's names and signatures."""

from __future__ import annotations

import builtins
import math
import operator

import numpy

from burtorch import _core
from burtorch._array_base import array, axes_of, axis_of, is_array, operand, part, public
from burtorch._core import Array

TYPE_CHECKING = False  # as in the package
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


@public
def concatenate(
    arrays: Sequence[Any], axis: int | None = 0, out: None = None, *, dtype: Any = None, casting: Any = "same_kind"
) -> Any:
    """Arrays joined along an axis; for None, all their elements."""
    if out is not None:
        raise TypeError("Arrays are immutable and take no out=")
    if axis is None:
        arrays, axis = [ravel(x) for x in arrays], 0
    return cast(_core.array_concatenate([operand(x) for x in arrays], axis), arrays, dtype, casting)


def cast(joined: Any, arrays: Sequence[Any], dtype: Any, casting: Any) -> Any:
    """Joined arrays as another type, if ``casting`` allows this for each of them."""
    if dtype is None:
        return joined
    for x in map(array, arrays):
        if not numpy.can_cast(x.dtype, dtype, casting):
            raise TypeError(f"Cannot cast from {x.dtype} to {numpy.dtype(dtype)} according to the rule {casting!r}")
    return joined.astype(dtype)


@public
def vstack(tup: Sequence[Any], *, dtype: Any = None, casting: Any = "same_kind") -> Any:
    """Arrays one below the other."""
    arrays = [reshape(x, (1, -1)) if array(x).ndim < 2 else x for x in map(array, tup)]
    return concatenate(arrays, 0, dtype=dtype, casting=casting)


@public
def hstack(tup: Sequence[Any], *, dtype: Any = None, casting: Any = "same_kind") -> Any:
    """Arrays side by side."""
    arrays = [array(x) if array(x).ndim else reshape(x, (1,)) for x in tup]
    return concatenate(arrays, 0 if arrays and arrays[0].ndim == 1 else 1, dtype=dtype, casting=casting)


@public
def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """Equal parts along an axis, or the parts between indices."""
    ary = array(ary)
    n = ary.shape[axis_of(axis, ary.ndim)]
    if numpy.ndim(indices_or_sections) == 0:
        sections = sections_of(indices_or_sections)
        if n % sections:
            raise ValueError("array split does not result in an equal division")
        cuts = [n // sections * k for k in range(1, sections)]
    else:
        cuts = [operator.index(cut) for cut in indices_or_sections]
    ends = [*cuts, n]
    return [part(ary, slice(a, b), axis) for a, b in zip([0, *cuts], ends)]


def sections_of(number: Any) -> int:
    """The number of parts of a split."""
    if (sections := operator.index(number)) <= 0:
        raise ValueError("number sections must be larger than 0.")
    return sections


@public
def reshape(a: Any, shape: Any, order: str = "C") -> Any:
    """The same numbers with another shape; -1 is replaced by the extent that fits. With ``order="F"`` the first index
    changes fastest, in both shapes."""
    return array(a).reshape(shape, order=order)


@public
def ravel(a: Any, order: str = "C") -> Any:
    """All elements in one row: by rows, or by columns with ``order="F"``."""
    return array(a).ravel(order)


@public
def transpose(a: Any, axes: Any = None) -> Any:
    """The axes in another order, by default reversed."""
    return array(a).transpose(*(() if axes is None else (tuple(axes),)))


@public
def swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    """The array with two axes exchanged."""
    return array(a).swapaxes(axis1, axis2)


@public
def moveaxis(a: Any, source: Any, destination: Any) -> Any:
    """The array with some axes moved to other positions."""
    a = array(a)
    pair = [axes_of(axis, a.ndim, name) for axis, name in ((source, "source"), (destination, "destination"))]
    if len(pair[0]) != len(pair[1]):
        raise ValueError("`source` and `destination` arguments must have the same number of elements")
    order = [axis for axis in range(a.ndim) if axis not in pair[0]]
    for to, axis in sorted(zip(pair[1], pair[0])):
        order.insert(to, axis)
    return a.transpose(tuple(order))


@public
def expand_dims(a: Any, axis: Any) -> Any:
    """The array with new axes of extent 1."""
    a = array(a)
    n_new = len(axis) if isinstance(axis, (tuple, list)) else 1
    places = axes_of(axis, a.ndim + n_new)
    rest = iter(a.shape)
    return a.reshape(tuple(1 if k in places else next(rest) for k in range(a.ndim + n_new)))


@public
def squeeze(a: Any, axis: Any = None) -> Any:
    """The array without axes of extent 1: the given ones, or all."""
    return array(a).squeeze(axis)


@public
def broadcast_to(array: Any, shape: Any) -> Any:
    """The array repeated to a shape, without copying."""
    return _core.array_broadcast_to(array, extents_of(shape))


def extents_of(shape: Any) -> list[int]:
    """A shape, or a number of elements, as a list."""
    extents = [operator.index(n) for n in (shape if numpy.ndim(shape) else (shape,))]
    if builtins.any(n < 0 for n in extents):
        raise ValueError(f"negative dimensions are not allowed, found {shape}")
    return extents


@public
def flip(m: Any, axis: Any = None) -> Any:
    """The elements in reverse order along axes, or along all."""
    m = array(m)
    axes = range(m.ndim) if axis is None else axes_of(axis, m.ndim)
    return m[tuple(slice(None, None, -1) if k in axes else slice(None) for k in range(m.ndim))]


@public
def roll(a: Any, shift: Any, axis: Any = None) -> Any:
    """The elements shifted along axes; elements shifted beyond the end reappear at the start."""
    a = array(a)
    if axis is None:
        return roll(a.ravel(), shift, 0).reshape(a.shape)
    # An axis may be named several times, and one axis or shift goes with several of the other.
    named = axis if isinstance(axis, (tuple, list)) else (axis,)
    shifts, axes = numpy.broadcast_arrays(shift, [axis_of(one, a.ndim) for one in named])
    if shifts.ndim > 1:
        raise ValueError("'shift' and 'axis' should be scalars or 1D sequences")
    for by, along in zip(map(operator.index, shifts), axes.tolist()):
        n = a.shape[along]
        if n and by % n:
            a = concatenate([part(a, slice(n - by % n, None), along), part(a, slice(None, n - by % n), along)], along)
    return a


@public
def tile(A: Any, reps: Any) -> Any:
    """The array repeated as a whole along each axis."""
    A = array(A)
    reps = tuple(extents_of(reps))
    n = builtins.max(A.ndim, len(reps))
    shape, reps = (1,) * (n - A.ndim) + A.shape, (1,) * (n - len(reps)) + reps
    apart = A.reshape(tuple(extent for m in shape for extent in (1, m)))
    repeated = broadcast_to(apart, tuple(extent for pair in zip(reps, shape) for extent in pair))
    return repeated.reshape(tuple(k * m for k, m in zip(reps, shape)))


@public
def repeat(a: Any, repeats: Any, axis: int | None = None) -> Any:
    """Each element repeated a given number of times, along an axis or in one row."""
    a = array(a)
    if axis is None:
        return repeat(a.ravel(), repeats, 0)
    n = a.shape[axis_of(axis, a.ndim)]
    return part(a, numpy.repeat(numpy.arange(n), repeats), axis)


@public
def take(a: Any, indices: Any, axis: int | None = None, out: Any = None, mode: str = "raise") -> Any:
    """The elements at the given indices, along an axis or of the flattened array.

    An index out of range is an IndexError; with ``mode`` "clip" it is the nearest element (negative indices: the
    first), and with "wrap" indices wrap around.
    """
    if out is not None or mode not in ("raise", "clip", "wrap"):
        raise TypeError(f"take() of Arrays takes no out=, and mode='raise', 'clip' or 'wrap', found {mode!r}")
    a = _core.array_of(a, *(x for x in (indices,) if isinstance(x, Array)))
    if not isinstance(indices, Array) and (known := numpy.asarray(indices)).dtype == bool:
        indices = known.astype(int)  # numbers here, and no mask
    if mode != "raise":
        indices, n = array(indices), a.size if axis is None else a.shape[axis]
        if n == 0 and indices.size:
            raise IndexError("cannot take an element of an axis that has none")
        indices = indices % n if mode == "wrap" else indices.clip(0, n - 1)
    if axis is not None and -a.ndim <= axis < a.ndim and 0 in a.shape[: axis % a.ndim]:
        # Nothing is taken, and NumPy accepts any index.
        shape = indices.shape if isinstance(indices, Array) else numpy.shape(indices)
        return a.reshape((*a.shape[: axis % a.ndim], *shape, *a.shape[axis % a.ndim + 1 :]))
    return a.take(indices, axis)


@public
def take_along_axis(arr: Any, indices: Any, axis: int | None = -1) -> Any:
    """For each row along an axis, the elements at a row of indices; of all elements with ``axis=None``."""
    if axis is None:
        if array(indices).ndim != 1:
            raise ValueError("when axis=None, indices must have a single dimension")
        arr, axis = array(arr).ravel(), 0
    return _core.array_take_along_axis(arr, indices, axis)


def segment_sum(data: Any, segment_ids: Any, num_segments: int | None = None) -> Any:
    """The sums of the elements along the first axes with equal ids, as ``jax.ops.segment_sum``.

    Args:
        data: an array.
        segment_ids: integers of at least 0, with the shape of the first axes of ``data``, in any order.
        num_segments: how many sums; by default the largest id and one, if the ids are known.

    Raises:
        IndexError: an id is not below ``num_segments``.

    Example:
        >>> import numpy as np
        >>> import burtorch as bt
        >>> messages, to = np.array([1.0, 2.0, 4.0]), np.array([2, 0, 2])
        >>> bt.segment_sum(messages, to, 4)
        array([2., 0., 5., 0.])
        >>> bt.grad(lambda m: (bt.segment_sum(m, to, 4) ** 2).sum())(messages)
        array([10.,  4., 10.])
    """
    data, ids = array(data), array(segment_ids)
    if isinstance(ids, numpy.ndarray) and not ids.size:
        ids = ids.astype(int)
    if ids.dtype.kind not in "iu":
        raise TypeError(f"segment_ids must be integers, found {ids.dtype}")
    if ids.shape != data.shape[: ids.ndim]:
        raise ValueError(f"segment_ids must have the shape of the first axes of {data.shape}, found {ids.shape}")
    if num_segments is None:
        if isinstance(ids, Array):
            raise TypeError("segment_sum() needs num_segments, because a shape does not depend on an Array of ids")
        num_segments = int(ids.max()) + 1 if ids.size else 0
    kind = numpy.int64 if data.dtype.kind in "iub" else numpy.float64
    sums = numpy.zeros((operator.index(num_segments), *data.shape[ids.ndim :]), kind)

    def summed(data: Any, ids: Any) -> Any:
        return _core.array_segment_sum(sums, ids, data)

    is_traced = isinstance(data, Array) or isinstance(ids, Array)
    return summed(data, ids) if is_traced else _core.array_evaluated(summed, data, ids)


class At:
    """``x.at``: copies of an Array with other elements at some places, with the names of JAX.

    ``x.at[index].set(y)`` has the elements of ``y`` there; ``add``, ``subtract``, ``multiply``, ``divide``, ``power``,
    ``min`` and ``max`` combine both, and ``get()`` is ``x[index]``. The index is any of ``x[index]``. Where it names a
    place several times, all numbers are combined, in order, and ``set`` leaves the last one, as NumPy does. The result
    has the wider type of both, so integers stay integers. ``fori_loop`` and ``scan`` change their Array in place.

    Example:
        >>> import numpy as np
        >>> import burtorch as bt
        >>> bt.function(lambda x: x.at[1:].add(10.0))(np.array([1.0, 2.0, 3.0]))
        array([ 1., 12., 13.])
    """

    __slots__ = ("_x",)

    def __init__(self, x: Array) -> None:
        self._x = x

    def __getitem__(self, index: Any) -> Place:
        return Place(self._x, index)


class Place:
    """``x.at[index]``."""

    __slots__ = ("_at", "_index", "_is_of_rows", "_shape", "_x")

    def __init__(self, x: Array, index: Any) -> None:
        self._x, self._index = x, index
        self._at: Any
        self._is_of_rows = isinstance(index, Array) and index.dtype.kind in "iu" and x.ndim > 0
        if self._is_of_rows:
            self._at, self._shape = index, (*index.shape, *x.shape[1:])
            return
        numbers: Any = numpy.arange(x.size).reshape(x.shape)
        if is_array(index):
            numbers = _core.array_of(numbers, *([x] if isinstance(x, Array) else ()))
        places: Any = array(numbers[index])
        self._at, self._shape = places.reshape(-1), places.shape

    def get(self) -> Any:
        """The elements there."""
        return self._x[self._index]

    def add(self, values: Any) -> Any:
        """With these numbers, broadcast to the shape of the places, added there."""
        return self._scattered(_core.array_scatter_add, values)

    def subtract(self, values: Any) -> Any:
        return self.add(-operand(values))

    def set(self, values: Any) -> Any:
        """With these elements, broadcast to the shape of the places, there."""
        return self._scattered(_core.array_scatter_set, values)

    def multiply(self, values: Any) -> Any:
        return self._combined(operator.mul, values)

    def divide(self, values: Any) -> Any:
        return self._combined(operator.truediv, values)

    def power(self, values: Any) -> Any:
        return self._combined(operator.pow, values)

    def min(self, values: Any) -> Any:
        return self._combined(numpy.minimum, values)

    def max(self, values: Any) -> Any:
        return self._combined(numpy.maximum, values)

    def _into(self) -> Any:
        """The array whose rows change: all elements, unless the index is one of rows."""
        return self._x if self._is_of_rows else self._x.reshape(-1)

    def _numbers(self, values: Any) -> Any:
        """Numbers for all places."""
        rest = self._x.shape[1:] if self._is_of_rows else ()
        return broadcast_to(_core.array_of(operand(values), self._x), self._shape).reshape((*self._at.shape, *rest))

    def _scattered(self, scatter: Any, values: Any) -> Any:
        return scatter(self._into(), self._at, self._numbers(values)).reshape(self._x.shape)

    def _combined(self, of: Any, values: Any) -> Any:
        into, at, n = self._into(), self._at, math.prod(self._at.shape)
        if n < 2 or (not isinstance(at, Array) and numpy.unique(at).size == n):
            return self.set(of(self.get(), operand(values)))
        # Places may be equal: one after the other.
        at = _core.array_of(at.reshape(-1), into)
        numbers = self._numbers(values).reshape((n, *into.shape[1:]))
        if into.dtype != (combined := of(into[:1], numbers[:1])).dtype:
            into = into.astype(combined.dtype)

        def step(k: Any, x: Any) -> Any:
            return _core.array_scatter_set(x, at[k], of(x[at[k]], numbers[k]))

        return _core.fori_loop(0, n, step, into).reshape(self._x.shape)


@public
def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """The elements on a diagonal of two axes, as a last axis."""
    return array(a).diagonal(offset, axis1, axis2)


@public
def diag(v: Any, k: int = 0) -> Any:
    """The diagonal of a matrix, or the matrix with this diagonal and 0 elsewhere."""
    v = array(v)
    if v.ndim == 2:
        return v.diagonal(k)
    if v.ndim != 1:
        raise ValueError("Input must be 1- or 2-d.")
    n = v.shape[0] + abs(k)
    if v.shape[0] == 0:
        return _core.array_of(numpy.zeros((n, n), v.dtype), v)
    places = numpy.arange(n) - builtins.max(k, 0)
    return _core.array_where(numpy.eye(n, k=k, dtype=bool), v[numpy.clip(places, 0, v.shape[0] - 1)], 0)


def triangle(m: Any, k: int, is_lower: bool) -> Any:
    m = array(m)
    if m.ndim < 1:
        raise ValueError("tril and triu take an array with at least one axis")
    rows = m.shape[-1] if m.ndim == 1 else m.shape[-2]
    below = numpy.tri(rows, m.shape[-1], k if is_lower else k - 1, dtype=bool)
    return _core.array_where(below, m, 0) if is_lower else _core.array_where(below, 0, m)


@public
def tril(m: Any, k: int = 0) -> Any:
    """The array with 0 above a diagonal of the last two axes."""
    return triangle(m, k, True)


@public
def triu(m: Any, k: int = 0) -> Any:
    """The array with 0 below a diagonal of the last two axes."""
    return triangle(m, k, False)
