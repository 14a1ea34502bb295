"""Functions of NumPy without a burtorch name: selection, elementwise functions, products, comparisons, predicates."""

from __future__ import annotations

import builtins
import math
import operator

import numpy

from burtorch import _arrays, _core
from burtorch._array_base import array, axes_of, is_array, part, public
from burtorch._array_shapes import broadcast_to
from burtorch._core import Array
from burtorch._numpy_ufuncs import is_integer, signbit, trunc

TYPE_CHECKING = False  # as in the package
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any


@public
def where(condition: Any, x: Any = None, y: Any = None) -> Any:
    if x is None and y is None and (mask := known_mask(condition)) is not None:
        return numpy.nonzero(mask)
    if x is None or y is None:
        raise TypeError("it needs a condition and two choices; without them the shape depends on numbers")
    condition, x, y = (array(one) if isinstance(one, (list, tuple)) else one for one in (condition, x, y))
    return _core.array_where(condition, x, y)


def known_mask(x: Any) -> Any:
    """Where an array is not 0, or None in a trace that is kept, as comparisons have no numbers there."""
    try:
        return numpy.asarray(array(x) != 0)
    except _core.TraceError:
        return None


@public
def compress(condition: Any, a: Any, axis: int | None = None) -> Any:
    """``condition`` must be known."""
    mask = known_mask(condition)
    if mask is None:
        raise TypeError("its condition must be known, because the shape of the result depends on it; use bt.where")
    if mask.ndim != 1:
        raise ValueError("condition must be a 1-d array")
    return part(array(a).ravel() if axis is None else array(a), numpy.flatnonzero(mask), 0 if axis is None else axis)


@public
def extract(condition: Any, arr: Any) -> Any:
    """``condition`` must be known."""
    return compress(array(condition).ravel(), arr)


@public
def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Any:
    if len(condlist) != len(choicelist):
        raise ValueError("the numbers of conditions and choices must be equal")
    for condition in condlist:
        if numpy.dtype(array(condition).dtype) != bool:
            raise TypeError("its conditions must be masks, such as results of comparisons")
    chosen = default
    for condition, choice in zip(reversed(condlist), reversed(choicelist)):
        chosen = where(condition, choice, chosen)
    return chosen


@public
def piecewise(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Any:
    """Each function is called with all of ``x``, so it must be elementwise."""
    is_one = not isinstance(condlist, (list, tuple)) or not isinstance(condlist[0], (list, tuple, Array, numpy.ndarray))
    masks = [array(mask).astype(bool) for mask in ([condlist] if is_one and x.ndim else condlist)]
    if len(funclist) not in (len(masks), len(masks) + 1):
        raise ValueError(f"{len(masks)} conditions need as many functions, or one more, found {len(funclist)}")
    made = [f(x, *args, **kw) if callable(f) else f for f in funclist]
    chosen = made.pop() if len(made) > len(masks) else 0
    for mask, of_mask in zip(masks, made):
        chosen = where(mask, of_mask, chosen)
    chosen = broadcast_to(_core.array_of(chosen, x), x.shape)
    return chosen.astype(x.dtype) if is_integer(x) else chosen


@public
def nan_to_num(x: Any, copy: bool = True, nan: float = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    x = array(x)
    if is_integer(x):
        return x
    limits = numpy.finfo(x.dtype)
    x = where(_core.array_isnan(x), nan, x)
    x = where(x == numpy.inf, limits.max if posinf is None else posinf, x)
    return where(x == -numpy.inf, limits.min if neginf is None else neginf, x)


@public
def round(a: Any, decimals: int = 0, out: Any = None) -> Any:
    a = array(a)
    if decimals == 0 or (is_integer(a) and decimals > 0):
        return a.round(0, out)
    scale = 10.0 ** abs(decimals)
    found = (a * scale).round(0, out) / scale if decimals > 0 else (a / scale).round(0, out) * scale
    return found.astype(a.dtype) if is_integer(a) else found


@public
def fix(x: Any) -> Any:
    return trunc(x)


@public
def angle(z: Any, deg: bool = False) -> Any:
    """0 for positive numbers, pi or 180 degrees for negative ones and -0.0; its derivative is 0."""
    half = 180.0 if deg else numpy.pi
    return where(_core.array_isnan(z), numpy.nan, where(signbit(z), half, 0.0))


@public
def imag(val: Any) -> Any:
    return numpy.zeros(val.shape, array(val).dtype)


@public
def sinc(x: Any) -> Any:
    """``sin(pi x) / (pi x)``; near 0 its series, whose derivatives of any order are right there, too."""
    y = x * numpy.pi
    square = y * y
    series = 1.0
    for k in range(16, 0, -2):
        series = 1.0 - square / (k * (k + 1.0)) * series
    is_near = abs(y) < 0.5
    y = where(is_near, 1.0, y)
    return where(is_near, series, _core.array_row("sin", y) / y)


@public
def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Any:
    return (array(a) if dtype is None else array(a).astype(dtype)).trace(offset, axis1, axis2)


@public
def vdot(a: Any, b: Any) -> Any:
    return _core.array_dot(_arrays.ravel(a), _arrays.ravel(b))


@public
def inner(a: Any, b: Any) -> Any:
    if array(a).ndim == 0 or array(b).ndim == 0:
        return _arrays.dot(a, b)
    return _arrays.tensordot(a, b, (-1, -1))


@public
def kron(a: Any, b: Any) -> Any:
    a, b = array(a), array(b)
    n = builtins.max(a.ndim, b.ndim)
    of_a, of_b = (1,) * (n - a.ndim) + a.shape, (1,) * (n - b.ndim) + b.shape
    x = a.reshape(tuple(extent for m in of_a for extent in (m, 1)))
    y = b.reshape(tuple(extent for m in of_b for extent in (1, m)))
    return (x * y).reshape(tuple(p * q for p, q in zip(of_a, of_b)))


@public
def cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Any:
    axisa, axisb, axisc = map(operator.index, (axisa, axisb, axisc) if axis is None else (axis,) * 3)
    a, b = _arrays.moveaxis(a, axisa, -1), _arrays.moveaxis(b, axisb, -1)
    if (a.shape[-1], b.shape[-1]) != (3, 3):
        raise TypeError("numpy.cross of Arrays takes vectors of three numbers")
    after, before = [1, 2, 0], [2, 0, 1]
    made = a[..., after] * b[..., before] - a[..., before] * b[..., after]
    return _arrays.moveaxis(made, -1, axisc)


@public
def isclose(a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Any:
    a, b = (_core.array_of(array(x), *(y for y in (a, b) if isinstance(y, Array))) for x in (a, b))
    near = (abs(a - b) <= atol + rtol * abs(b)) & (abs(b) < numpy.inf) | (a == b)
    return near | (_core.array_isnan(a) & _core.array_isnan(b)) if equal_nan else near


@public
def allclose(a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    return bool(isclose(a, b, rtol, atol, equal_nan).all())


@public
def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> bool:
    a1, a2 = array(a1), array(a2)
    if a1.shape != a2.shape:
        return False
    is_equal = a1 == a2
    return bool((is_equal | (_core.array_isnan(a1) & _core.array_isnan(a2)) if equal_nan else is_equal).all())


@public
def array_equiv(a1: Any, a2: Any) -> bool:
    a1, a2 = array(a1), array(a2)
    try:
        numpy.broadcast_shapes(a1.shape, a2.shape)
    except ValueError:
        return False
    return bool((a1 == a2).all())


@public
def isin(
    element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *, kind: Any = None
) -> Any:
    """In time and memory the product of both sizes."""
    found = (array(element)[..., None] == _arrays.ravel(test_elements)).any(-1)
    return ~found if invert else found


def is_infinity(name: str, infinity: float) -> Callable[..., Any]:
    """Whether each element is this infinity."""

    def made(x: Any, out: None = None) -> Any:
        if out is not None:
            raise TypeError("Arrays are immutable and take no out=")
        return x == infinity

    made.__name__ = name
    return public(made)


isposinf = is_infinity("isposinf", numpy.inf)
isneginf = is_infinity("isneginf", -numpy.inf)


@public
def isreal(x: Any) -> Any:
    return numpy.ones(x.shape, bool)


@public
def iscomplex(x: Any) -> Any:
    return numpy.zeros(x.shape, bool)


@public
def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    return array(x).astype(dtype)


@public
def shape(a: Any) -> tuple[int, ...]:
    return array(a).shape  # type: ignore[no-any-return]


@public
def ndim(a: Any) -> int:
    return array(a).ndim  # type: ignore[no-any-return]


@public
def size(a: Any, axis: int | tuple[int, ...] | None = None) -> int:
    a = array(a)
    return a.size if axis is None else math.prod(a.shape[k] for k in axes_of(axis, a.ndim))


@public
def copy(a: Any, order: str = "K", subok: bool = False) -> Any:
    return a


@public
def real(val: Any) -> Any:
    return val


@public
def real_if_close(a: Any, tol: float = 100) -> Any:
    return a


@public
def isrealobj(x: Any) -> bool:
    return True


@public
def iscomplexobj(x: Any) -> bool:
    return False


def like(name: str) -> Callable[..., Any]:
    """An array of numbers with the shape and dtype of an Array."""

    def made(a: Any, *arguments: Any, dtype: Any = None, shape: Any = None, **keywords: Any) -> Any:
        a = array(a)
        shape = a.shape if shape is None else shape
        return getattr(numpy, name)(shape, *arguments, dtype=a.dtype if dtype is None else dtype)

    made.__name__ = f"{name}_like"
    return public(made)


zeros_like = like("zeros")
ones_like = like("ones")
empty_like = like("empty")


@public
def full_like(
    a: Any, fill_value: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, *,
    device: Any = None,
) -> Any:  # fmt: skip
    a = array(a)
    shape, dtype = a.shape if shape is None else shape, a.dtype if dtype is None else dtype
    if is_array(fill_value):
        return broadcast_to(array(fill_value).astype(dtype), shape)
    return numpy.full(shape, fill_value, dtype)


def places_from(name: str) -> Callable[..., Any]:
    """The places of a triangle or diagonal, which the shape determines."""

    def made(arr: Any, *k: Any, **keywords: Any) -> Any:
        if name == "diag":
            if arr.ndim < 2 or len(set(arr.shape)) > 1:
                raise ValueError(f"expected at least two axes of equal length, found shape {arr.shape}")
            return numpy.diag_indices(arr.shape[0], arr.ndim)
        if arr.ndim != 2:
            raise ValueError("input array must be 2-d")
        return getattr(numpy, f"{name}_indices")(arr.shape[0], *k, m=arr.shape[1], **keywords)

    made.__name__ = f"{name}_indices_from"
    return public(made)


tril_indices_from = places_from("tril")
triu_indices_from = places_from("triu")
diag_indices_from = places_from("diag")
