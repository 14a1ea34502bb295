"""Reductions of NumPy without a burtorch name: statistics, and reductions that ignore NaN."""

from __future__ import annotations

import builtins
import math

import numpy

from burtorch import _arrays, _core
from burtorch._array_base import array, axes_of, is_array, public
from burtorch._array_reductions import mask_of, reduced, reduction
from burtorch._array_shapes import broadcast_to, concatenate
from burtorch._numpy_ufuncs import is_integer

TYPE_CHECKING = False  # as in the package
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


@reduction
def max(
    a: Any, axis: Any = None, out: Any = None, keepdims: bool = False, *, initial: Any = None, where: Any = True
) -> Any: ...


@reduction
def min(
    a: Any, axis: Any = None, out: Any = None, keepdims: bool = False, *, initial: Any = None, where: Any = True
) -> Any: ...


@reduction
def mean(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False, *, where: Any = True
) -> Any: ...


@public
def average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: bool = False) -> Any:
    a = array(a)
    axes = None if axis is None else axes_of(axis, a.ndim)
    if weights is None:
        found = a.mean(axes, keepdims=keepdims)
        return (found, numpy.full(found.shape, a.size / builtins.max(found.size, 1))) if returned else found
    weights = array(weights)
    if a.shape != weights.shape:
        if axes is None:
            raise TypeError("Axis must be specified when shapes of a and weights differ.")
        if weights.shape != tuple(a.shape[one] for one in axes):
            raise ValueError("Shape of weights must be consistent with shape of a along specified axis.")
        places = sorted(range(len(axes)), key=axes.__getitem__)
        weights = weights.transpose(tuple(places)).reshape([a.shape[k] if k in axes else 1 for k in range(a.ndim)])
        weights = broadcast_to(weights, a.shape)
    total = weights.sum(axes, keepdims=keepdims)
    found = (a * weights).sum(axes, keepdims=keepdims) / total
    return (found, broadcast_to(total * 1.0, found.shape)) if returned else found


@public
def ptp(a: Any, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    return array(a).max(axis, out, keepdims) - array(a).min(axis, out, keepdims)


def is_number(a: Any, where: Any = True) -> Any:
    """Whether each element is selected by ``where`` and is not NaN."""
    if is_integer(array(a)):
        return where
    return ~_core.array_isnan(a) if where is True else ~_core.array_isnan(a) & mask_of(where, array(a))


def without_nan(a: Any, number: float) -> Any:
    """The array with NaN replaced by ``number``."""
    return a if is_integer(array(a)) else _core.array_where(_core.array_isnan(a), number, a)


def leaving_nan_out(name: str, method: str, number: float) -> Callable[..., Any]:
    """A reduction with NaN replaced by its neutral element."""

    def made(a: Any, axis: Any = None, *rest: Any, **keywords: Any) -> Any:
        return reduced(method, without_nan(a, number), axis, *rest, **keywords)

    made.__name__ = name
    return public(made)


nansum = leaving_nan_out("nansum", "sum", 0.0)
nanprod = leaving_nan_out("nanprod", "prod", 1.0)
nancumsum = leaving_nan_out("nancumsum", "cumsum", 0.0)
nancumprod = leaving_nan_out("nancumprod", "cumprod", 1.0)


def extreme(name: str, method: str, number: float) -> Callable[..., Any]:
    """The largest or smallest number; NaN if all are NaN."""

    def made(a: Any, axis: Any = None, out: Any = None, keepdims: bool = False, **keywords: Any) -> Any:
        found = reduced(method, without_nan(a, number), axis, out, keepdims, **keywords)
        if is_integer(array(a)) or keywords:
            return found
        return _core.array_where(_core.array_isnan(a).all(axis, keepdims=keepdims), numpy.nan, found)

    made.__name__ = name
    return public(made)


nanmax = extreme("nanmax", "max", -numpy.inf)
nanmin = extreme("nanmin", "min", numpy.inf)


@public
def nanmean(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False, *, where: Any = True
) -> Any:
    return reduced("mean", a, axis, dtype=dtype, out=out, keepdims=keepdims, where=is_number(a, where))


@public
def nanvar(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = None, keepdims: bool = False, *,
    where: Any = True, mean: Any = None, correction: Any = None,
) -> Any:  # fmt: skip
    where = is_number(a, where)
    spread = {"ddof": ddof, "correction": correction, "keepdims": keepdims, "where": where, "mean": mean}
    found = reduced("var", a, axis, dtype=dtype, out=out, **spread)
    lost = ddof or correction or 0
    n = mask_of(where, array(a)).sum(axis, keepdims=keepdims)
    return _core.array_where(n > lost, found, numpy.nan)


@public
def nanstd(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, *rest: Any, **keywords: Any) -> Any:
    return _core.array_row("sqrt", nanvar(a, axis, dtype, out, *rest, **keywords))


def place_of_extreme(name: str, method: str, number: float) -> Callable[..., Any]:
    """The index of the largest or smallest number; -1 if all are NaN."""

    def made(a: Any, axis: int | None = None, out: Any = None, *, keepdims: bool = False) -> Any:
        found = reduced(method, without_nan(a, number), axis, out, keepdims=keepdims)
        if is_integer(array(a)):
            return found
        return _core.array_where(_core.array_isnan(a).all(axis, keepdims=keepdims), -1, found)

    made.__name__ = name
    return public(made)


nanargmax = place_of_extreme("nanargmax", "argmax", -numpy.inf)
nanargmin = place_of_extreme("nanargmin", "argmin", numpy.inf)


@public
def nanquantile(
    a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, method: str = "linear",
    keepdims: bool = False, *, weights: None = None,
) -> Any:  # fmt: skip
    """The quantile of each row's numbers, which a stable sort places before its NaN; NaN if there are none."""
    shares = _arrays.shares_of(q, method, weights)
    if not ((shares >= 0) & (shares <= 1)).all():
        raise ValueError("Quantiles must be in the range [0, 1]")
    rows, shape = _arrays.rows_of(a, axis, out)
    if rows.shape[-1] == 0 or is_integer(rows):
        return _arrays.quantile(a, q, axis, method=method, keepdims=keepdims)
    last = (~_core.array_isnan(rows)).sum(-1, keepdims=True) - 1
    places = _arrays.places_of(shares.ravel(), last, method).clip(0.0)
    below = places.floor()
    above = _core.array_row("min", below + 1.0, _core.array_row("max", last, 0.0))
    ordered = _core.array_sort(rows, -1, False)

    def at(place: Any) -> Any:
        return _core.array_take_along_axis(ordered, place.astype(int), -1)

    if method in _arrays.OFFSETS:
        found = _arrays.between(at(below), at(above), places - below)
    elif method == "midpoint":
        found = (at(below) + at(places.ceil())) * 0.5
    else:
        found = at({"lower": below, "nearest": places.round()}.get(method, places.ceil()))
    found = found.transpose(found.ndim - 1, *range(found.ndim - 1))
    return found.reshape(shares.shape + (shape if keepdims else found.shape[1:]))


@public
def nanpercentile(
    a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, method: str = "linear",
    keepdims: bool = False, *, weights: None = None,
) -> Any:  # fmt: skip
    shares = numpy.true_divide(_arrays.numbers_of(q), 100)
    return nanquantile(a, shares, axis, out, method=method, keepdims=keepdims, weights=weights)


@public
def nanmedian(a: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, keepdims: bool = False) -> Any:
    return nanquantile(a, 0.5, axis, out, method="midpoint", keepdims=keepdims)


@public
def count_nonzero(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return array(a).astype(bool).sum(axis, keepdims=keepdims)


@public
def cov(
    m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: int | None = None, fweights: Any = None,
    aweights: Any = None, *, dtype: Any = None,
) -> Any:  # fmt: skip
    rows = [array(x) if dtype is None else array(x).astype(dtype) for x in (m, y) if x is not None]
    if builtins.any(x.ndim > 2 for x in rows):
        raise ValueError("m and y have at most 2 dimensions")
    rows = [x.reshape(1, -1) if x.ndim < 2 else x if rowvar else x.T for x in rows]
    x = concatenate(rows, 0)
    lost = int(not bias) if ddof is None else ddof
    given = {"fweights": fweights, "aweights": aweights}
    weights = [weights_of(one, x.shape[1], name) for name, one in given.items() if one is not None]
    if not weights:
        x = x - x.mean(1, keepdims=True)
        return (x @ x.T / float(builtins.max(x.shape[1] - lost, 0))).squeeze()
    weight = math.prod(weights[1:], start=weights[0])
    total = weight.sum()
    x = x - ((x * weight).sum(1) / total)[:, None]
    n = total - (lost if aweights is None else lost * (weight * weights[-1]).sum() / total)
    return ((x * weight) @ x.T / (n if is_array(n) else builtins.max(float(n), 0.0))).squeeze()


def weights_of(given: Any, n: int, name: str) -> Any:
    """The weights of ``cov``, one for each of ``n`` observations."""
    weights = array(given)
    if name == "fweights" and not is_array(weights) and not (weights == numpy.around(weights)).all():
        raise TypeError("fweights must be integer")
    if weights.shape != (n,):
        raise ValueError(f"{name} must have one number for each observation, {n}, found shape {weights.shape}")
    return weights * 1.0


@public
def corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> Any:
    c = cov(x, y, rowvar, dtype=dtype)
    if c.ndim == 0:
        return c / c
    root = _core.array_row("sqrt", c.diagonal())
    return (c / root[:, None] / root).clip(-1.0, 1.0)
