"""Functions of NumPy that Arrays have and ``burtorch`` does not name: ``numpy.diff`` of an Array, and the like."""

from __future__ import annotations

import builtins
from collections import namedtuple

import numpy

from burtorch import _arrays, _core
from burtorch._array_base import array, operand, part, public, reduction
from burtorch._array_shapes import concatenate

TYPE_CHECKING = False  # as in the package
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

max = reduction("max")
min = reduction("min")
mean = reduction("mean")


@public
def where(condition: Any, x: Any, y: Any) -> Any:
    return _core.array_where(condition, x, y)


@public
def stack(arrays: Sequence[Any], axis: int = 0) -> Any:
    return _core.array_stack([operand(x) for x in arrays], axis)


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
    if isinstance(indices_or_sections, int):
        parts = numpy.array_split(numpy.arange(ary.shape[axis]), indices_or_sections)
        indices_or_sections = numpy.cumsum([len(one) for one in parts])[:-1]
    return _arrays.split(ary, indices_or_sections, axis)  # type: ignore[no-any-return]


@public
def hsplit(ary: Any, indices_or_sections: Any) -> Any:
    return _arrays.split(ary, indices_or_sections, 0 if ary.ndim == 1 else 1)


@public
def vsplit(ary: Any, indices_or_sections: Any) -> Any:
    return _arrays.split(ary, indices_or_sections, 0)


@public
def dsplit(ary: Any, indices_or_sections: Any) -> Any:
    return _arrays.split(ary, indices_or_sections, 2)


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
    turns = [lambda x: x, lambda x: _arrays.flip(_arrays.swapaxes(x, *axes), axes[0])]
    turns += [lambda x: _arrays.flip(x, tuple(axes)), lambda x: _arrays.swapaxes(_arrays.flip(x, axes[0]), *axes)]
    return turns[k % 4](m)


@public
def rollaxis(a: Any, axis: int, start: int = 0) -> Any:
    axis, start = axis % a.ndim, start + a.ndim if start < 0 else start
    return _arrays.moveaxis(a, axis, start - 1 if start > axis else start)


@public
def matrix_transpose(x: Any) -> Any:
    return array(x).mT


@public
def broadcast_arrays(*args: Any) -> Any:
    shape = numpy.broadcast_shapes(*(array(x).shape for x in args))
    return tuple(_arrays.broadcast_to(x, shape) for x in args)


@public
def pad(array: Any, pad_width: Any, mode: Any = "constant", constant_values: Any = 0) -> Any:
    if mode != "constant" or not isinstance(constant_values, (int, float)):
        raise TypeError("numpy.pad of Arrays takes mode='constant' with one number")
    widths = numpy.broadcast_to(numpy.asarray(pad_width), (array.ndim, 2)).tolist()
    for axis, ends in enumerate(widths):
        shapes = [(*array.shape[:axis], n, *array.shape[axis + 1 :]) for n in ends]
        before, after = (numpy.full(shape, constant_values, array.dtype) for shape in shapes)
        array = concatenate([before, array, after], axis)
    return array


@public
def diff(a: Any, n: int = 1, axis: int = -1) -> Any:
    for _ in range(n):
        a = part(a, slice(1, None), axis) - part(a, slice(None, -1), axis)
    return a


@public
def ediff1d(ary: Any) -> Any:
    return diff(array(ary).ravel())


@public
def trapezoid(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> Any:
    y = array(y)
    steps = dx
    if x is not None:
        steps = diff(array(x)) if array(x).ndim > 1 else diff(array(x)).reshape((-1,) + (1,) * (-axis % y.ndim - 1))
        if array(x).ndim > 1:
            steps = diff(array(x), axis=axis)
    return (steps * (part(y, slice(1, None), axis) + part(y, slice(None, -1), axis)) / 2.0).sum(axis)


@public
def average(a: Any, axis: Any = None, weights: Any = None) -> Any:
    if weights is None:
        return array(a).mean(axis)
    if array(a).shape != array(weights).shape:
        weights = array(weights).reshape((-1,) + (1,) * (array(a).ndim - axis % array(a).ndim - 1))
        weights = _core.array_of(weights, a) * (_core.array_of(a, weights) * 0.0 + 1.0)
    return (array(a) * weights).sum(axis) / array(weights).sum(axis)


@public
def ptp(a: Any, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    return array(a).max(axis, out, keepdims) - array(a).min(axis, out, keepdims)


@public
def nan_to_num(x: Any, copy: bool = True, nan: float = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    limits = numpy.finfo(x.dtype)
    x = where(_core.array_isnan(x), nan, x)
    x = where(x == numpy.inf, limits.max if posinf is None else posinf, x)
    return where(x == -numpy.inf, limits.min if neginf is None else neginf, x)


@public
def nansum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    return where(_core.array_isnan(a), 0.0, a).sum(axis, dtype, out, keepdims)


@public
def sinc(x: Any) -> Any:
    is_zero = x == 0
    y = where(is_zero, 1.0, x * numpy.pi)
    return where(is_zero, 1.0, _core.array_row("sin", y) / y)


@public
def round(a: Any, decimals: int = 0, out: Any = None) -> Any:
    return array(a).round(decimals, out)


@public
def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    return array(a).trace(offset, axis1, axis2)


@public
def diagflat(v: Any, k: int = 0) -> Any:
    return _arrays.diag(array(v).ravel(), k)


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
    axisa, axisb, axisc = (axisa, axisb, axisc) if axis is None else (axis,) * 3
    a, b = _arrays.moveaxis(a, axisa, -1), _arrays.moveaxis(b, axisb, -1)
    if (a.shape[-1], b.shape[-1]) != (3, 3):
        raise TypeError("numpy.cross of Arrays takes vectors of three numbers")
    after, before = [1, 2, 0], [2, 0, 1]
    made = a[..., after] * b[..., before] - a[..., before] * b[..., after]
    return _arrays.moveaxis(made, -1, axisc)


@public
def count_nonzero(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return array(a).astype(bool).sum(axis, keepdims=keepdims)


@public
def isclose(a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Any:
    near = (abs(a - b) <= atol + rtol * abs(b)) & (abs(b) < numpy.inf) | (a == b)
    return near | (_core.array_isnan(a) & _core.array_isnan(b)) if equal_nan else near


@public
def allclose(a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    return bool(isclose(a, b, rtol, atol, equal_nan).all())


@public
def array_equal(a1: Any, a2: Any) -> bool:
    return array(a1).shape == array(a2).shape and bool((_core.array_of(a1, a2) == a2).all())


@public
def meshgrid(*xi: Any, indexing: str = "xy") -> Any:
    n = len(xi)
    flat = [array(x).ravel() for x in xi]
    places = [k if indexing == "ij" or k > 1 else 1 - k for k in range(n)] if n > 1 else [0]
    return broadcast_arrays(*(x.reshape((1,) * k + (-1,) + (1,) * (n - k - 1)) for k, x in zip(places, flat)))


@public
def shape(a: Any) -> tuple[int, ...]:
    return array(a).shape  # type: ignore[no-any-return]


@public
def ndim(a: Any) -> int:
    return array(a).ndim  # type: ignore[no-any-return]


@public
def size(a: Any, axis: int | None = None) -> int:
    return array(a).size if axis is None else array(a).shape[axis]  # type: ignore[no-any-return]


@public
def copy(a: Any, order: str = "K", subok: bool = False) -> Any:
    return a


@public
def real(val: Any) -> Any:
    return val


@public
def isrealobj(x: Any) -> bool:
    return True


@public
def iscomplexobj(x: Any) -> bool:
    return False


def like(name: str) -> Callable[..., Any]:
    """An array of numbers with the shape and dtype of an Array."""

    def made(a: Any, *arguments: Any, dtype: Any = None, shape: Any = None, **keywords: Any) -> Any:
        shape = a.shape if shape is None else shape
        return getattr(numpy, name)(shape, *arguments, dtype=a.dtype if dtype is None else dtype)

    made.__name__ = f"{name}_like"
    return public(made)


zeros_like = like("zeros")
ones_like = like("ones")
full_like = like("full")
empty_like = like("empty")

ALIASES = {
    "amax": "max", "amin": "min", "around": "round", "concat": "concatenate", "permute_dims": "transpose",
    "cumulative_sum": "cumsum", "cumulative_prod": "cumprod",
}  # fmt: skip
"""Other names of NumPy's for functions that take the same arguments."""

LINALG: dict[str, Callable[..., Any]] = {
    "norm": _arrays.norm, "matmul": _arrays.matmul, "outer": _arrays.outer, "tensordot": _arrays.tensordot,
    "matrix_transpose": matrix_transpose, "diagonal": lambda x, *, offset=0: x.diagonal(offset, -2, -1),
    "trace": lambda x, *, offset=0: x.trace(offset, -2, -1),
    "cross": lambda x1, x2, *, axis=-1: cross(x1, x2, axis=axis),
    "vecdot": lambda x1, x2, *, axis=-1: (x1 * x2).sum(axis),
    "vector_norm": lambda x, *, axis=None, keepdims=False, ord=2: vector_norm(x, axis, keepdims, ord),
    "matrix_norm": lambda x, *, keepdims=False, ord="fro": _arrays.norm(x, ord, (-2, -1), keepdims),
    "solve": lambda a, b: _core.array_linalg("solve", a, b)[0], "inv": lambda a: _core.array_linalg("inv", a)[0],
    "det": lambda a: _core.array_linalg("det", a)[0], "cholesky": lambda a: _core.array_linalg("cholesky", a)[0],
    "slogdet": lambda a: namedtuple("SlogdetResult", "sign logabsdet")(*_core.array_linalg("slogdet", a)),
    "qr": lambda a: namedtuple("QRResult", "Q R")(*_core.array_linalg("qr", a)),
    "multi_dot": lambda arrays: multi_dot(arrays), "matrix_power": lambda a, n: matrix_power(a, n),
}  # fmt: skip
"""Functions of ``numpy.linalg``."""


def vector_norm(x: Any, axis: Any, keepdims: bool, ord: Any) -> Any:
    if axis is None:
        made = _arrays.norm(x.ravel(), ord, 0)
        return made.reshape((1,) * x.ndim) if keepdims else made
    if isinstance(axis, tuple):
        raise TypeError("numpy.linalg.vector_norm of Arrays takes one axis, or all")
    return _arrays.norm(x, ord, axis, keepdims)


def multi_dot(arrays: Any) -> Any:
    product = arrays[0]
    for x in arrays[1:]:
        product = product @ x
    return product


def matrix_power(a: Any, n: int) -> Any:
    if n < 0:
        raise TypeError("numpy.linalg.matrix_power of Arrays takes no negative powers: there is no inverse")
    power = numpy.broadcast_to(numpy.eye(a.shape[-1]), a.shape)
    for _ in range(n):
        power = _core.array_of(power, a) @ a
    return power
