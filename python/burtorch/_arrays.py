"""Functions of arrays with NumPy's names and signatures.

Given an Array they return an Array; given only plain arrays and numbers they call NumPy's function of that name, or,
if NumPy has none, run the same instructions on the numbers. ``out=`` and other unlisted arguments are a TypeError.
"""

from __future__ import annotations

import numpy

from burtorch import _core
from burtorch._array_base import array, axes_of, public
from burtorch._array_products import attention, dot, einsum, layer_norm, matmul, norm, outer, tensordot
from burtorch._array_reductions import reduction
from burtorch._array_shapes import (
    broadcast_to,
    concatenate,
    diag,
    diagonal,
    expand_dims,
    flip,
    hstack,
    moveaxis,
    ravel,
    repeat,
    reshape,
    roll,
    segment_sum,
    split,
    squeeze,
    swapaxes,
    take,
    take_along_axis,
    tile,
    transpose,
    tril,
    triu,
    vstack,
)

TYPE_CHECKING = False  # as in the package
if TYPE_CHECKING:
    from typing import Any

__all__ = [
    "all",
    "any",
    "argmax",
    "argmin",
    "argsort",
    "attention",
    "broadcast_to",
    "clip",
    "concatenate",
    "cumprod",
    "cumsum",
    "diag",
    "diagonal",
    "dot",
    "einsum",
    "expand_dims",
    "flip",
    "hstack",
    "layer_norm",
    "matmul",
    "maximum",
    "median",
    "minimum",
    "moveaxis",
    "norm",
    "outer",
    "percentile",
    "prod",
    "quantile",
    "ravel",
    "repeat",
    "reshape",
    "roll",
    "segment_sum",
    "sort",
    "split",
    "squeeze",
    "std",
    "sum",
    "swapaxes",
    "take",
    "take_along_axis",
    "tensordot",
    "tile",
    "transpose",
    "tril",
    "triu",
    "var",
    "vstack",
]


@reduction
def all(a: Any, axis: Any = None, out: Any = None, keepdims: bool = False, *, where: Any = True) -> Any:
    """Whether all elements are true. As numpy.all; see Array.all.

    Args:
        a: an Array, a Tensor, numbers, an array, or lists of them.
        axis: an axis, a tuple of axes, or None for all elements.
        out: only of plain arrays, as NumPy takes it; Arrays are immutable.
        keepdims: whether reduced axes remain, with extent 1.
        where: a mask of the elements that count.
    """


@reduction
def any(a: Any, axis: Any = None, out: Any = None, keepdims: bool = False, *, where: Any = True) -> Any:
    """Whether at least one element is true. As numpy.any; see Array.any.

    Args:
        a: an Array, a Tensor, numbers, an array, or lists of them.
        axis: an axis, a tuple of axes, or None for all elements.
        out: only of plain arrays, as NumPy takes it; Arrays are immutable.
        keepdims: whether reduced axes remain, with extent 1.
        where: a mask of the elements that count.
    """


@reduction
def argmax(a: Any, axis: int | None = None, out: Any = None, *, keepdims: bool = False) -> Any:
    """The index of the largest element, of the first of equal ones. As numpy.argmax; see Array.argmax.

    Args:
        a: an Array, a Tensor, numbers, an array, or lists of them.
        axis: an axis, or None for all elements in row-major order.
        out: only of plain arrays, as NumPy takes it; Arrays are immutable.
        keepdims: whether reduced axes remain, with extent 1.
    """


@reduction
def argmin(a: Any, axis: int | None = None, out: Any = None, *, keepdims: bool = False) -> Any:
    """The index of the smallest element, of the first of equal ones. As numpy.argmin; see Array.argmin.

    Args:
        a: an Array, a Tensor, numbers, an array, or lists of them.
        axis: an axis, or None for all elements in row-major order.
        out: only of plain arrays, as NumPy takes it; Arrays are immutable.
        keepdims: whether reduced axes remain, with extent 1.
    """


@reduction
def cumprod(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Any:
    """The products of the first elements along an axis. As numpy.cumprod; see Array.cumprod.

    Args:
        a: an Array, a Tensor, numbers, an array, or lists of them.
        axis: an axis, or None for all elements in row-major order.
        dtype: the type in which Arrays are multiplied; None for their own.
        out: only of plain arrays, as NumPy takes it; Arrays are immutable.
    """


@reduction
def cumsum(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Any:
    """The sums of the first elements along an axis. As numpy.cumsum; see Array.cumsum.

    Args:
        a: an Array, a Tensor, numbers, an array, or lists of them.
        axis: an axis, or None for all elements in row-major order.
        dtype: the type in which Arrays are added; None for their own.
        out: only of plain arrays, as NumPy takes it; Arrays are immutable.
    """


@reduction
def prod(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: bool = False,
    *,
    initial: Any = None,
    where: Any = True,
) -> Any:
    """The product of the elements. As numpy.prod; see Array.prod.

    Args:
        a: an Array, a Tensor, numbers, an array, Values, Vectors, or lists of them.
        axis: an axis, a tuple of axes, or None for all elements.
        dtype: the type in which Arrays are multiplied; None for their own.
        out: only of plain arrays, as NumPy takes it; Arrays are immutable.
        keepdims: whether reduced axes remain, with extent 1.
        initial: a number that is included.
        where: a mask of the elements that count.
    """


@reduction
def std(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: Any = 0,
    keepdims: bool = False,
    *,
    where: Any = True,
    mean: Any = None,
    correction: Any = None,
) -> Any:
    """The standard deviation, the root of :func:`var`. Its gradient is NaN for equal numbers.

    As numpy.std; see Array.std.

    Args:
        a: an Array, a Tensor, numbers, an array, or lists of them.
        axis: an axis, a tuple of axes, or None for all elements.
        dtype: the type in which Arrays are added; None for their own.
        out: only of plain arrays, as NumPy takes it; Arrays are immutable.
        ddof: the sum of squares is divided by the number of elements less ddof.
        keepdims: whether reduced axes remain, with extent 1.
        where: a mask of the elements that count.
        mean: the means, if they are known, with the reduced axes kept.
        correction: another name of ddof.
    """


@reduction
def sum(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: bool = False,
    *,
    initial: Any = None,
    where: Any = True,
) -> Any:
    """The sum of the elements. As numpy.sum; see Array.sum.

    Args:
        a: an Array, a Tensor, numbers, an array, Values, Vectors, or lists of them.
        axis: an axis, a tuple of axes, or None for all elements.
        dtype: the type in which Arrays are added; None for their own.
        out: only of plain arrays, as NumPy takes it; Arrays are immutable.
        keepdims: whether reduced axes remain, with extent 1.
        initial: a number that is included.
        where: a mask of the elements that count.
    """


@reduction
def var(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: Any = 0,
    keepdims: bool = False,
    *,
    where: Any = True,
    mean: Any = None,
    correction: Any = None,
) -> Any:
    """The variance, computed in two passes. As numpy.var; see Array.var.

    Args:
        a: an Array, a Tensor, numbers, an array, or lists of them.
        axis: an axis, a tuple of axes, or None for all elements.
        dtype: the type in which Arrays are added; None for their own.
        out: only of plain arrays, as NumPy takes it; Arrays are immutable.
        ddof: the sum of squares is divided by the number of elements less ddof.
        keepdims: whether reduced axes remain, with extent 1.
        where: a mask of the elements that count.
        mean: the means, if they are known, with the reduced axes kept.
        correction: another name of ddof.
    """


@public
def maximum(x1: Any, x2: Any) -> Any:
    """The larger of two, elementwise; equal operands each receive half of the gradient."""
    return _core.array_row("max", x1, x2)


@public
def minimum(x1: Any, x2: Any) -> Any:
    """The smaller of two, elementwise; equal operands each receive half of the gradient."""
    return _core.array_row("min", x1, x2)


@public
def clip(a: Any, a_min: Any = None, a_max: Any = None, out: Any = None, *, min: Any = None, max: Any = None) -> Any:
    """``minimum(maximum(a, a_min), a_max)``; None means no bound. ``min`` and ``max`` are aliases of the bounds."""
    if (min is not None or max is not None) and (a_min is not None or a_max is not None):
        raise ValueError("Passing `min` or `max` keyword argument when `a_min` and `a_max` are provided is forbidden.")
    a_min, a_max = (a_min, a_max) if min is None and max is None else (min, max)
    a, a_min, a_max = (array(x) if isinstance(x, (list, tuple)) else x for x in (a, a_min, a_max))
    bounds = [bound for bound in (a_min, a_max) if bound is not None]
    return _core.array_of(a, *bounds).clip(a_min, a_max, out)


@public
def sort(a: Any, axis: int | None = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
    """The elements along an axis in ascending order, NaN last; for None, all elements.

    The gradient of each position goes to the element placed there; equal elements keep their order.
    """
    return sorted_along(a, axis, order, indices=False)


@public
def argsort(a: Any, axis: int | None = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
    """The indices that sort along an axis; equal elements keep their order, and NaN comes last."""
    return sorted_along(a, axis, order, indices=True)


def sorted_along(a: Any, axis: int | None, order: Any, *, indices: bool) -> Any:
    if order is not None:
        raise TypeError("order= is for arrays with fields, and Arrays have none")
    a = array(a)
    if axis is None or (indices and a.ndim == 0 and axis in (0, -1)):
        return _core.array_sort(a.reshape(-1), 0, indices)
    axes_of(axis, a.ndim)
    return _core.array_sort(a, axis, indices)


@public
def median(a: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, keepdims: bool = False) -> Any:
    """The middle element along an axis, several axes, or of all elements; the mean of two middle elements.

    NaN if one element is NaN. The gradient goes to the middle element, or half of it to each of two;
    among equal elements, to the one that a stable sort places there.
    """
    rows, shape = rows_of(a, axis, out)
    found = _core.array_quantiles(rows, None, -1)
    return found.reshape(shape) if keepdims else found


@public
def quantile(
    a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, method: str = "linear",
    keepdims: bool = False, *, weights: None = None,
) -> Any:  # fmt: skip
    """The quantile ``q``, from 0 to 1, of the elements along an axis. Between two elements ``method`` selects linear
    interpolation, ``lower``, ``higher``, ``nearest``, ``midpoint``, or another definition of NumPy's.

    Several ``q`` give a result that begins with their shape. Gradients are like those of ``median``.
    """
    shares = shares_of(q, method, weights)
    rows, shape = rows_of(a, axis, out)
    if method == "linear":
        found = _core.array_quantiles(rows, shares.ravel().tolist(), -1)
    else:
        found = elements_at(rows, shares.ravel(), method)
    return found.reshape(shares.shape + (shape if keepdims else found.shape[1:]))


@public
def percentile(
    a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, method: str = "linear",
    keepdims: bool = False, *, weights: None = None,
) -> Any:  # fmt: skip
    """``quantile`` with ``q`` from 0 to 100."""
    shares = numpy.true_divide(numbers_of(q), 100)
    return quantile(array(a), shares, axis, out, overwrite_input, method, keepdims, weights=weights)


def shares_of(q: Any, method: str, weights: None) -> Any:
    """Known quantiles, for one of the methods."""
    if method not in (methods := (*OFFSETS, "lower", "higher", "nearest", "midpoint", "inverted_cdf")):
        raise TypeError(f"quantile of Arrays takes method= {', '.join(map(repr, methods))}, found {method!r}")
    if weights is not None:
        raise TypeError("quantile of Arrays takes no weights")
    return numbers_of(q).astype("float64")


OFFSETS = {
    "linear": (1.0, 1.0), "hazen": (0.5, 0.5), "weibull": (0.0, 0.0), "median_unbiased": (1 / 3, 1 / 3),
    "normal_unbiased": (0.375, 0.375), "interpolated_inverted_cdf": (0.0, 1.0),
}  # fmt: skip
"""The constants alpha and beta of Hyndman and Fan (1996) of the methods that interpolate."""


def places_of(shares: Any, last: Any, method: str) -> Any:
    """The places of fractions among elements of indices 0 to ``last``; negative ones mean 0."""
    if method == "inverted_cdf":
        return shares * (last + 1.0) - 1.0
    alpha, beta = OFFSETS.get(method, (1.0, 1.0))
    if alpha == beta == 1.0:
        return shares * last
    places = (last + 1.0) * shares + (alpha + shares * (1.0 - alpha - beta)) - 1.0
    return places - (places - last).clip(0.0)


def between(low: Any, high: Any, share: Any) -> Any:
    """The number at this share of the way between two, computed from the nearer one; ``low`` itself at 0."""
    found = _core.array_where(share < 0.5, low + (high - low) * share, high - (high - low) * (1.0 - share))
    return _core.array_where(share == 0, low, found)


def numbers_of(q: Any) -> Any:
    """Known numbers as an array."""
    found = array(q)
    if isinstance(found, _core.Array):
        raise TypeError("quantiles of Arrays are known numbers, found an Array; use its .data")
    if found.dtype.kind not in "biuf":
        raise TypeError(f"expected a number or an array of numbers, found an array of {found.dtype}")
    return numpy.asarray(found)


def elements_at(rows: Any, shares: Any, method: str) -> Any:
    """The elements of each sorted row at fractions of its length, along a new first axis; NaN if the row has one."""
    if not ((shares >= 0) & (shares <= 1)).all():
        raise ValueError("Quantiles must be in the range [0, 1]")
    places = places_of(shares, rows.shape[-1] - 1, method).clip(0.0)
    below, above, nearest = (f(places).astype(int) for f in (numpy.floor, numpy.ceil, numpy.rint))
    ordered = _core.array_sort(rows, -1, False)
    if method == "midpoint":
        found = (ordered[..., below] + ordered[..., above]) * 0.5
    elif method in OFFSETS:
        found = between(ordered[..., below], ordered[..., above], places - below)
    else:
        found = ordered[..., {"lower": below, "nearest": nearest}.get(method, above)]
    last = ordered[..., -1:]
    found = _core.array_where(_core.array_isnan(last), last, found)
    return found.transpose(found.ndim - 1, *range(found.ndim - 1))


def rows_of(a: Any, axis: Any, out: Any) -> tuple[Any, tuple[int, ...]]:
    """The array with some axes merged into the last one, and its shape with 1 in their place."""
    if out is not None:
        raise TypeError("Arrays are immutable and take no out=")
    a = array(a)
    axes = tuple(range(a.ndim)) if axis is None else axes_of(axis, a.ndim)
    if len(set(axes)) < len(axes):
        raise ValueError("repeated axis")
    others = tuple(k for k in range(a.ndim) if k not in axes)
    n = int(numpy.prod([a.shape[k] for k in axes], dtype=int))
    rows = a.transpose(*others, *axes).reshape(tuple(a.shape[k] for k in others) + (n,))
    return rows, tuple(1 if k in axes else a.shape[k] for k in range(a.ndim))
