"""Functions of ``numpy.linalg`` of Arrays. Systems of equations must have full rank: there are no singular values."""

from __future__ import annotations

import math
import operator
from collections import namedtuple

import numpy

from burtorch import _arrays, _core
from burtorch._array_base import array, axes_of
from burtorch._array_shapes import concatenate
from burtorch._numpy_more import cross, trace
from burtorch._numpy_shapes import matrix_transpose
from burtorch._numpy_ufuncs import is_integer, vecdot

TYPE_CHECKING = False  # as in the package
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def vector_norm(x: Any, axis: Any, keepdims: bool, ord: Any) -> Any:
    if axis is None:
        made = _arrays.norm(x.ravel(), ord, 0)
        return made.reshape((1,) * x.ndim) if keepdims else made
    if isinstance(axis, tuple):
        rows, shape = _arrays.rows_of(x, axis, None)
        made = _arrays.norm(rows, ord, -1)
        return made.reshape(shape) if keepdims else made
    return _arrays.norm(x, ord, axis, keepdims)


def qr(a: Any, mode: Any = "reduced") -> Any:
    """The factors. Columns of the complete ``Q`` beyond those of the reduced one have no derivative: theirs is NaN."""
    if mode == "raw":
        raise TypeError("it takes mode='reduced', 'complete' or 'r', found 'raw', which gives Householder reflectors")
    if mode not in ("reduced", "complete", "r"):
        raise ValueError(f"mode must be 'reduced', 'complete' or 'r', found {mode!r}")
    q, r = _core.array_linalg("qr", a)
    if mode == "r":
        return r
    m, n = a.shape[-2:]
    if mode == "complete" and m > n:
        # Columns of zeros change no other column, and a Householder factorisation completes Q for them.
        square = concatenate([a, numpy.zeros((*a.shape[:-1], m - n))], -1)
        q = concatenate([q, _core.array_linalg("qr", square)[0][..., n:]], -1)
        r = concatenate([r, numpy.zeros((*a.shape[:-2], m - n, n))], -2)
    return tuple_of("QRResult", "Q R", q, r)


def tuple_of(name: str, fields: str, *parts: Any) -> Any:
    """A named tuple of a new class, which nothing keeps."""
    return namedtuple(name, fields)(*parts)


def cholesky(a: Any, *, upper: bool = False) -> Any:
    lower = _core.array_linalg("cholesky", a)[0]
    return lower.mT if upper else lower


def tensorsolve(a: Any, b: Any, axes: Any = None) -> Any:
    a, b = array(a), array(b)
    if axes is not None:
        axes = axes_of(axes, a.ndim, "axes")
        a = _arrays.moveaxis(a, axes, tuple(range(-len(axes), 0)))
    shape = a.shape[b.ndim :]
    n = math.prod(shape)
    if a.size != n**2 or b.size != n:
        raise numpy.linalg.LinAlgError(
            f"the axes of a that b sums over need as many elements as b, found shapes {a.shape} and {b.shape}"
        )
    return _core.array_linalg("solve", a.reshape(n, n), b.reshape(n))[0].reshape(shape)


def tensorinv(a: Any, ind: int = 2) -> Any:
    if operator.index(ind) <= 0:
        raise ValueError(f"ind must be at least 1, found {ind}")
    n = math.prod(a.shape[ind:])
    if a.size != n**2:
        raise numpy.linalg.LinAlgError(f"the axes before and after ind={ind} need as many elements, found {a.shape}")
    return _core.array_linalg("inv", a.reshape(n, n))[0].reshape(a.shape[ind:] + a.shape[:ind])


def multi_dot(arrays: Any) -> Any:
    product = arrays[0]
    for x in arrays[1:]:
        product = product @ x
    return product


def matrix_power(a: Any, n: int) -> Any:
    """By repeated squaring; a negative power is a power of the inverse."""
    n = operator.index(n)
    if n < 0:
        return matrix_power(_core.array_linalg("inv", a)[0], -n)
    if n == 0:
        return _core.array_of(
            numpy.broadcast_to(numpy.eye(a.shape[-1], dtype=int if is_integer(a) else float), a.shape), a
        )
    half = matrix_power(a, n // 2) if n > 1 else None
    square = a if half is None else half @ half
    return square @ a if n % 2 and half is not None else square


def lstsq(a: Any, b: Any, rcond: Any = None) -> tuple[Any, Any, int, None]:
    """The solution, the residual sums of squares, the rank, which must be full, and None for the singular values."""
    if rcond not in (None, -1):
        raise TypeError("it takes no rcond=, because matrices must have full rank")
    a, b = (array(x) for x in (a, b))
    m, n = a.shape
    x = _core.array_linalg("lstsq", a, b)[0]
    rest = (b - a @ x).reshape(m, -1)
    remains = (rest * rest).sum(0) if m > n else _core.array_of(numpy.zeros(0), b)
    return x, remains, min(m, n), None


def pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Any:
    """The pseudo-inverse of one or several matrices of full rank."""
    if rcond is not None or rtol is not None or hermitian:
        raise TypeError("it takes only matrices of full rank, and no rcond=, rtol= or hermitian=")
    *batch, m, _ = a.shape
    return _core.array_linalg("lstsq", a, numpy.broadcast_to(numpy.eye(m), (*batch, m, m)))[0]


LINALG: dict[str, Callable[..., Any]] = {
    "norm": _arrays.norm, "matmul": _arrays.matmul, "outer": _arrays.outer, "tensordot": _arrays.tensordot,
    "matrix_transpose": matrix_transpose, "diagonal": lambda x, *, offset=0: x.diagonal(offset, -2, -1),
    "trace": lambda x, *, offset=0, dtype=None: trace(x, offset, -2, -1, dtype),
    "cross": lambda x1, x2, *, axis=-1: cross(x1, x2, axis=axis),
    "vecdot": lambda x1, x2, *, axis=-1: vecdot(x1, x2, axis),
    "vector_norm": lambda x, *, axis=None, keepdims=False, ord=2: vector_norm(x, axis, keepdims, ord),
    "matrix_norm": lambda x, *, keepdims=False, ord="fro": _arrays.norm(x, ord, (-2, -1), keepdims),
    "solve": lambda a, b: _core.array_linalg("solve", a, b)[0], "inv": lambda a: _core.array_linalg("inv", a)[0],
    "det": lambda a: _core.array_linalg("det", a)[0], "cholesky": cholesky, "qr": qr,
    "slogdet": lambda a: tuple_of("SlogdetResult", "sign logabsdet", *_core.array_linalg("slogdet", a)),
    "multi_dot": multi_dot, "matrix_power": matrix_power, "lstsq": lstsq, "pinv": pinv, "tensorsolve": tensorsolve,
    "tensorinv": tensorinv,
}  # fmt: skip
"""Functions of ``numpy.linalg``."""
