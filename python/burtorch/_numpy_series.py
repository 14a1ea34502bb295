"""Functions of NumPy for sequences of samples: differences, interpolation, convolutions, polynomials."""

from __future__ import annotations

import builtins
import operator

import numpy

from burtorch import _arrays, _core
from burtorch._array_base import array, axes_of, axis_of, is_array, operand, part, public
from burtorch._array_reductions import reduced
from burtorch._array_shapes import concatenate, segment_sum, take
from burtorch._numpy_more import where
from burtorch._numpy_shapes import atleast_1d
from burtorch._numpy_ufuncs import is_integer

TYPE_CHECKING = False  # as in the package
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


@public
def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    a = array(a)
    if n == 0:
        return a
    if n < 0:
        raise ValueError(f"order must be non-negative but got {n}")
    if a.ndim == 0:
        raise ValueError("diff requires input that is at least one dimensional")
    ends = [None if end is None else end_of(a, array(end), axis) for end in (prepend, append)]
    joined = [x for x in (ends[0], a, ends[1]) if x is not None]
    a = concatenate(joined, axis) if len(joined) > 1 else a
    for _ in range(n):
        after, before = part(a, slice(1, None), axis), part(a, slice(None, -1), axis)
        a = after != before if a.dtype == bool else after - before
    return a


def end_of(a: Any, end: Any, axis: int) -> Any:
    """The array before or after ``a`` along an axis; a number is repeated for each row."""
    axis = axis_of(axis, a.ndim)
    return end if end.ndim else _arrays.broadcast_to(end, (*a.shape[:axis], 1, *a.shape[axis + 1 :]))


@public
def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    made = diff(array(ary).ravel())
    ends = [[] if end is None else [array(end).ravel()] for end in (to_begin, to_end)]
    return concatenate([*ends[0], made, *ends[1]]) if to_begin is not None or to_end is not None else made


@public
def linspace(
    start: Any, stop: Any, num: Any = 50, endpoint: bool = True, retstep: bool = False, dtype: Any = None,
    axis: int = 0, *, device: Any = None,
) -> Any:  # fmt: skip
    """The last sample is ``stop`` itself, and its gradient is that of ``stop``."""
    num = operator.index(num)
    if num < 0:
        raise ValueError(f"Number of samples, {num}, must be non-negative.")
    start, stop = (array(x) for x in (start, stop))
    change, n_steps = (stop - start) * 1.0, num - 1 if endpoint else num
    step = change / n_steps if n_steps > 0 else change * numpy.nan
    first, last = (_arrays.broadcast_to(x * 1.0, change.shape)[None] for x in (start, stop))
    inner = numpy.arange(1, n_steps).reshape((-1,) + (1,) * change.ndim)
    made = concatenate([first, first + inner * step, last])[:num] if num > 1 else first[:num]
    if dtype is not None:
        made = (_core.array_row("floor", made) if numpy.dtype(dtype).kind in "iu" else made).astype(dtype)
    made = _arrays.moveaxis(made, 0, axis)
    return (made, step) if retstep else made


@public
def logspace(
    start: Any, stop: Any, num: Any = 50, endpoint: bool = True, base: Any = 10.0, dtype: Any = None, axis: int = 0
) -> Any:
    if array(base).ndim:
        raise TypeError("its base is one number")
    made = base ** linspace(start, stop, num, endpoint, axis=axis)
    return made if dtype is None else made.astype(dtype)


@public
def geomspace(start: Any, stop: Any, num: Any = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0) -> Any:
    if builtins.any(not is_array(x) and (array(x) == 0).any() for x in (start, stop)):
        raise ValueError("Geometric sequence cannot include zero")
    start, stop = (_core.array_of(array(x), *(y for y in (start, stop) if is_array(y))) for x in (start, stop))
    sign = _core.array_row("sign", start)
    first, last = (_core.array_row("log10", x * sign) for x in (start, stop))
    made = logspace(first, last, num, endpoint) * sign
    first, last = (_arrays.broadcast_to(x * 1.0, made.shape[1:])[None] for x in (start, stop))
    if len(made) > 1:
        made = concatenate([first, made[1:-1], last if endpoint else made[-1:]])
    made = _arrays.moveaxis(made if len(made) > 1 else first[: len(made)], 0, axis)
    return made if dtype is None else made.astype(dtype)


@public
def trapezoid(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> Any:
    y = array(y)
    steps = dx
    if x is not None:
        x = array(x)
        after = y.ndim - axis_of(axis, y.ndim) - 1
        steps = diff(x).reshape((-1,) + (1,) * after) if x.ndim == 1 else diff(x, axis=axis)
    return (steps * (part(y, slice(1, None), axis) + part(y, slice(None, -1), axis)) / 2.0).sum(axis)


@public
def unwrap(p: Any, discont: Any = None, axis: int = -1, *, period: float = 2 * numpy.pi) -> Any:
    p = array(p)
    step, half = diff(p, axis=axis), period / 2
    wrapped = (step + half) % period - half
    wrapped = _core.array_where((wrapped == -half) & (step > 0), half, wrapped)
    turns = _core.array_where(abs(step) < (half if discont is None else discont), 0.0, wrapped - step)
    first = part(p, slice(0, 1), axis)
    return concatenate([first, part(p, slice(1, None), axis) + turns.cumsum(axis)], axis)


def cumulative(name: str, method: str, start: int) -> Callable[..., Any]:
    """A cumulative reduction; ``include_initial`` prepends its neutral element."""

    def made(x: Any, *, axis: Any = None, dtype: Any = None, out: Any = None, include_initial: bool = False) -> Any:
        x = array(x)
        if axis is None and x.ndim != 1:
            raise ValueError("an array of several axes needs axis=")
        axis = 0 if axis is None else axis
        found = reduced(method, x, axis, dtype=dtype, out=out)
        if not include_initial:
            return found
        along = axis_of(axis, x.ndim)
        first = numpy.full((*x.shape[:along], 1, *x.shape[along + 1 :]), start, found.dtype)
        return concatenate([first, found], axis)

    made.__name__ = name
    return public(made)


cumulative_sum = cumulative("cumulative_sum", "cumsum", 0)
cumulative_prod = cumulative("cumulative_prod", "cumprod", 1)


@public
def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    f = array(f)
    axes = tuple(range(f.ndim)) if axis is None else axes_of(axis, f.ndim)
    steps = varargs * len(axes) if len(varargs) == 1 else varargs or (1.0,) * len(axes)
    if len(steps) != len(axes):
        raise TypeError("it takes one sample distance, or one for each axis")
    steps = tuple(step if array(step).ndim == 0 else distances(step, f.shape[k]) for step, k in zip(steps, axes))
    if edge_order not in (1, 2):
        raise ValueError("edge_order must be 1 or 2")
    found = tuple(gradient_along(f, step, along, edge_order) for step, along in zip(steps, axes))
    return found[0] if len(found) == 1 else found


def distances(coordinates: Any, n: int) -> Any:
    """The distances between samples at coordinates; one number if all are known and equal."""
    coordinates = array(coordinates)
    if coordinates.shape != (n,):
        raise ValueError(f"coordinates of an axis of {n} samples must have shape ({n},), found {coordinates.shape}")
    steps = diff(coordinates * 1.0)
    return float(steps[0]) if not is_array(steps) and n > 1 and (steps == steps[0]).all() else steps


def gradient_along(f: Any, step: Any, axis: int, edge_order: int) -> Any:
    if f.shape[axis] < edge_order + 1:
        raise ValueError("an axis needs at least edge_order + 1 samples")
    if array(step).ndim:
        return gradient_at(f, step.reshape((-1,) + (1,) * (f.ndim - axis - 1)), axis, edge_order)
    at = [part(f, slice(k, k + 1), axis) for k in (*range(edge_order + 1), *range(-edge_order - 1, -1))]
    at.append(part(f, slice(-1, None), axis))
    if edge_order == 1:
        first, last = at[1] - at[0], at[-1] - at[-2]
    else:
        first, last = -1.5 * at[0] + 2.0 * at[1] - 0.5 * at[2], 0.5 * at[-3] - 2.0 * at[-2] + 1.5 * at[-1]
    middle = (part(f, slice(2, None), axis) - part(f, slice(None, -2), axis)) / 2.0
    return concatenate([first, middle, last], axis) / step


def gradient_at(f: Any, steps: Any, axis: int, edge_order: int) -> Any:
    """The gradient by slopes between neighbours: within, and at both ends with ``edge_order=2``, that of a parabola."""
    slopes = (part(f, slice(1, None), axis) - part(f, slice(None, -1), axis)) / steps
    before, after = part(slopes, slice(None, -1), axis), part(slopes, slice(1, None), axis)
    width_before, width_after = steps[:-1], steps[1:]
    middle = (before * width_after + after * width_before) / (width_before + width_after)
    ends = [part(slopes, slice(0, 1), axis), part(slopes, slice(-1, None), axis)]
    if edge_order == 2:
        ends = [2.0 * end - part(middle, k, axis) for end, k in zip(ends, (slice(0, 1), slice(-1, None)))]
    return concatenate([ends[0], middle, ends[1]], axis)


@public
def correlate(a: Any, v: Any, mode: str = "valid") -> Any:
    a, v = array(a), array(v)
    if a.ndim != 1 or v.ndim != 1 or 0 in (a.size, v.size):
        raise ValueError("it takes non-empty arrays of one dimension")
    if mode not in ("full", "same", "valid"):
        raise ValueError(f"mode must be 'valid', 'same' or 'full', found {mode!r}")
    if v.size > a.size:
        return _arrays.flip(correlate(v, a, mode))
    n, m = a.size, v.size
    before, after = {"full": (m - 1, m - 1), "same": (m // 2, m - m // 2 - 1), "valid": (0, 0)}[mode]
    ends = [numpy.zeros(k, a.dtype) for k in (before, after)]
    padded = concatenate([ends[0], a, ends[1]])
    n_places = n + before + after - m + 1
    if m <= MOST_SLICES:
        return sum_of_slices(padded, v, n_places)
    if is_integer(a):
        return product_of_blocks(padded, v, n_places)
    # A block contains zeros of no window, and 0 times an infinity is NaN.
    return _core.cond(
        numpy.isfinite(padded).all(),
        lambda: product_of_blocks(padded, v, n_places),
        lambda: loop_of_slices(padded, v, n_places),
    )


MOST_SLICES = 32
"""The longest shorter operand of ``correlate`` whose products are added one by one.

Measured: 32 slices of 100,000 numbers take 2.3 ms and their gradient 10 ms, blocks 1.8 and 12 ms; 64 slices 4.3 and
22 ms, blocks 1.9 and 13 ms.
"""


def sum_of_slices(padded: Any, v: Any, n_places: int) -> Any:
    """The sums of products of ``v`` and each window of ``padded``, by a slice for each number of ``v``."""
    found = padded[:n_places] * v[0]
    for k in range(1, v.size):
        found = found + padded[k : k + n_places] * v[k]
    return found


def loop_of_slices(padded: Any, v: Any, n_places: int) -> Any:
    """``sum_of_slices`` by a loop over runs of eight numbers of ``v``, for any numbers and a long ``v``."""
    n_runs, rest = divmod(v.size, 8)
    places = numpy.arange(n_places + 7)

    def step(total: Any, run: Any) -> tuple[Any, None]:
        weights, first = run
        return total + sum_of_slices(take(padded, places + first), weights, n_places), None

    runs = (v[: n_runs * 8].reshape(n_runs, 8), numpy.arange(n_runs) * 8)
    total = _core.scan(step, numpy.zeros(n_places, numpy.result_type(padded.dtype, v.dtype)), runs)[0]
    return total + sum_of_slices(padded[n_runs * 8 :], v[n_runs * 8 :], n_places) if rest else total


def product_of_blocks(padded: Any, v: Any, n_places: int) -> Any:
    """``sum_of_slices`` in memory proportional to both lengths, by a product of matrices for each piece of ``v``.

    Row j of the result is the sum over pieces q of ``[frame j + q, frame j + q + 1] @ T``, where frames are rows of
    ``padded``, pieces are rows of ``v`` of equal length, and ``T[s, r]`` is ``piece[s - r]`` or 0. Half of the products
    are by such zeros, yet two operands of 6,000 numbers take 12 ms instead of the 300 ms of a matrix of windows.
    """
    size = 64 if v.size <= 64 else 128
    n_rows, n_pieces = -(-n_places // size), -(-v.size // size)
    frames = filled(padded, (n_rows + n_pieces) * size).reshape(-1, size)
    distance = numpy.arange(2 * size)[:, None] - numpy.arange(size)
    distance[(distance < 0) | (distance >= size)] = size
    rows = numpy.arange(n_rows)

    def step(total: Any, run: Any) -> tuple[Any, None]:
        piece, q = run
        pair = concatenate([take(frames, rows + q, axis=0), take(frames, rows + q + 1, axis=0)], axis=1)
        return total + pair @ take(filled(piece, size + 1), distance), None

    start = numpy.zeros((n_rows, size), numpy.result_type(padded.dtype, v.dtype))
    runs = (filled(v, n_pieces * size).reshape(n_pieces, size), numpy.arange(n_pieces))
    return _core.scan(step, start, runs)[0].reshape(-1)[:n_places]


def filled(x: Any, n: int) -> Any:
    """The numbers and zeros, ``n`` in total."""
    return concatenate([x, numpy.zeros(n - x.size, x.dtype)])


@public
def convolve(a: Any, v: Any, mode: str = "full") -> Any:
    a, v = (x.reshape(1) if x.ndim == 0 else x for x in (array(a), array(v)))
    if v.size > a.size:
        a, v = v, a
    return correlate(a, _arrays.flip(v), mode)


@public
def vander(x: Any, N: int | None = None, increasing: bool = False) -> Any:  # noqa: N803
    x = array(x)
    if x.ndim != 1:
        raise ValueError("x must be a one-dimensional array or sequence.")
    N = len(x) if N is None else N  # noqa: N806
    powers = [_core.array_of(numpy.ones(x.shape, x.dtype), x)]
    for _ in range(1, N):
        powers.append(x if len(powers) == 1 else powers[-1] * x)
    if N <= 0:
        return _core.array_of(numpy.zeros((len(x), 0), x.dtype), x)
    return _core.array_stack(powers if increasing else powers[::-1], 1)


@public
def polyval(p: Any, x: Any) -> Any:
    y = array(x) * 0
    for coefficient in p:
        y = y * x + coefficient
    return y


@public
def polymul(a1: Any, a2: Any) -> Any:
    """Leading zeros stay, because the shape of the result must not depend on numbers."""
    return convolve(a1, a2)


def of_one_length(*polynomials: Any) -> list[Any]:
    """The polynomials with zeros as leading coefficients."""
    given = list(map(atleast_1d, polynomials))
    n = builtins.max(map(len, given))
    return [p if len(p) == n else concatenate([numpy.zeros(n - len(p), p.dtype), p]) for p in given]


@public
def polyadd(a1: Any, a2: Any) -> Any:
    a1, a2 = of_one_length(a1, a2)
    return a1 + a2


@public
def polysub(a1: Any, a2: Any) -> Any:
    a1, a2 = of_one_length(a1, a2)
    return a1 - a2


@public
def polyder(p: Any, m: int = 1) -> Any:
    if operator.index(m) < 0:
        raise ValueError("Order of derivative must be positive (see polyint)")
    p = array(p)
    for _ in range(m):
        p = p[:-1] * numpy.arange(len(p) - 1, 0, -1)
    return p


@public
def polyint(p: Any, m: int = 1, k: Any = None) -> Any:
    if operator.index(m) < 0:
        raise ValueError("Order of integral must be positive (see polyder)")
    p, k = array(p), atleast_1d(numpy.zeros(1) if k is None else k)
    if len(k) not in (1, m):
        raise ValueError("k must be a scalar or a rank-1 array of length 1 or >m.")
    for j in range(m):
        constant = k[:1] if len(k) == 1 else k[j : j + 1]
        p = concatenate([p / numpy.arange(len(p), 0, -1), constant])
    return p


@public
def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    """The number of sorted elements of ``a`` before each element of ``v``, by bisection, without a gradient."""
    if side not in ("left", "right"):
        raise ValueError(f"side must be 'left' or 'right', found {side!r}")
    a = array(a) if sorter is None else take(a, sorter)
    return _core.array_search(a, _core.array_of(operand(v), a), side == "right")


@public
def bincount(x: Any, weights: Any = None, minlength: int = 0) -> Any:
    """With weights, the sums of those of equal numbers; the numbers must be known, because they determine the shape."""
    x = array(x)
    if is_array(x):
        if _core.array_is_traced() or x.dtype.kind not in "iub":
            raise TypeError("its numbers must be known, because they determine the shape; use bt.segment_sum")
        x = x.data
    counts = numpy.bincount(x, minlength=minlength)
    if weights is None:
        return counts
    if array(weights).shape != x.shape:
        raise ValueError("The weights and list don't have the same length.")
    return segment_sum(array(weights) * 1.0, x.astype(int), len(counts))


@public
def digitize(x: Any, bins: Any, right: bool = False) -> Any:
    if is_array(bins):
        raise TypeError(
            "its bins must be known numbers, because the result depends on whether they increase or decrease"
        )
    bins = numpy.asarray(bins)
    side = "left" if right else "right"
    if (bins[1:] >= bins[:-1]).all():
        return searchsorted(bins, x, side)
    if not (bins[1:] <= bins[:-1]).all():
        raise ValueError("bins must be monotonic")
    return len(bins) - searchsorted(bins[::-1], x, side)


@public
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: float | None = None) -> Any:
    """At a point of ``xp`` the derivative by ``x`` is the slope after it; at the last point the slope before it."""
    x, xp, fp = array(x), array(xp), array(fp)
    if xp.ndim != 1 or xp.shape != fp.shape or xp.size == 0:
        raise ValueError("xp and fp must have one dimension and equal length, and not be empty")
    if period is not None:
        left, right, period = None, None, abs(period)
        order = _arrays.argsort(xp % period)
        xp, fp = take(xp % period, order), take(fp, order)
        x, xp = x % period, concatenate([xp[-1:] - period, xp, xp[:1] + period])
        fp = concatenate([fp[-1:], fp, fp[:1]])
    if xp.shape[0] == 1:
        found = fp[0]
    else:
        place = (searchsorted(xp, x, "right") - 1).clip(0, xp.shape[0] - 2)
        x0, x1, y0, y1 = (take(of, place + k) for of in (xp, fp) for k in (0, 1))
        slope = (y1 - y0) / (x1 - x0)
        found = where(x1 == x0, y1, y0 + slope * (x - x0))
    found = where(x == x, found, numpy.nan)
    found = where(x < xp[0], fp[0] if left is None else left, found)
    return where(x > xp[-1], fp[-1] if right is None else right, found)
