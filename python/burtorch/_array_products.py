"""Products of arrays, norms, and attention, with NumPy's names and signatures if there are any."""

from __future__ import annotations

import math
import operator
import string

import numpy

from burtorch import _core
from burtorch._array_base import array, axes_of, evaluated, operand, public
from burtorch._array_shapes import ravel

TYPE_CHECKING = False  # as in the package
if TYPE_CHECKING:
    from typing import Any


@public
def dot(a: Any, b: Any) -> Any:
    """The product with a number, else the sum over the last axis of ``a`` and the second last of ``b``."""
    return _core.array_dot(operand(a), operand(b))


@public
def matmul(x1: Any, x2: Any) -> Any:
    """``x1 @ x2``: vectors, matrices, and batches of them."""
    return array(x1) @ array(x2)


@public
def outer(a: Any, b: Any) -> Any:
    """All products of an element of ``a`` and one of ``b``, as a matrix."""
    return ravel(a).reshape((-1, 1) if array(a).size else (0, 1)) * ravel(b)


@public
def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    """The sum over pairs of axes: the last ``axes`` of ``a`` with the first of ``b``, or two lists of axes."""
    a, b = operand(a), operand(b)
    if isinstance(axes, int):
        pair = [list(range(array(a).ndim - axes, array(a).ndim)), list(range(axes))]
    else:
        pair = [list(one) if isinstance(one, (list, tuple)) else [one] for one in axes]
    return _core.array_tensordot(a, b, *pair)


@public
def einsum(*operands: Any, optimize: Any = False) -> Any:
    """Einstein summation, such as ``einsum("ij,jk->ik", x, y)`` or ``einsum(x, [0, 1], y, [1, 2], [0, 2])``.

    Several operands are multiplied from the left; ``optimize`` is ignored.
    """
    if not operands:
        raise TypeError("it takes subscripts and operands")
    subscripts, *arrays = operands if isinstance(operands[0], str) else interleaved(operands)
    return _core.array_einsum(subscripts, [operand(x) for x in arrays])


def interleaved(operands: tuple[Any, ...]) -> list[Any]:
    """The subscripts of operands that are followed by lists of axes, and the operands."""
    arrays, lists = operands[: len(operands) // 2 * 2 : 2], list(operands[1::2])
    if not lists or not all(isinstance(axes, (list, tuple, numpy.ndarray)) for axes in lists):
        raise TypeError("it takes its subscripts as a string, or a list of axes after each operand")
    found = ",".join(map(letters, lists))
    return [f"{found}->{letters(operands[-1])}" if len(operands) % 2 else found, *arrays]


def letters(axes: Any) -> str:
    """A list of axes, numbered from 0 to 51, as subscripts."""
    names = string.ascii_uppercase + string.ascii_lowercase
    numbers = [axis if axis is Ellipsis else operator.index(axis) for axis in axes]
    if not all(axis is Ellipsis or 0 <= axis < len(names) for axis in numbers):
        raise ValueError(f"axes of einsum are numbers from 0 to {len(names) - 1}, or ..., found {list(axes)}")
    return "".join("..." if axis is Ellipsis else names[axis] for axis in numbers)


@evaluated(1)
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """As numpy.linalg.norm, without the matrix norms that need singular values."""
    x = array(x)
    is_whole = axis is None
    if axis is None:
        axis = tuple(range(x.ndim))
    if isinstance(axis, list):
        raise TypeError("'axis' must be None, an integer or a tuple of integers")
    axes = axes_of(axis, x.ndim)
    if len(axes) not in (1, 2) and not (is_whole and ord is None):
        raise ValueError("Improper number of dimensions to norm.")
    is_of_nothing = any(x.shape[axis] == 0 for axis in axes)
    kinds = (None, "fro", 1, math.inf)
    if is_of_nothing and (ord in kinds if len(axes) == 2 else not isinstance(ord, str) and (ord is None or ord > 0)):
        return abs(x).sum(axes, keepdims=keepdims)
    if ord is None or (len(axes) == 2 and ord == "fro") or (len(axes) == 1 and ord == 2):
        return x.norm2(axes, keepdims=keepdims)
    size = abs(x)
    if len(axes) == 2 and ord in (1, -1, math.inf, -math.inf):
        summed, over = axes if abs(ord) == 1 else axes[::-1]
        sums = size.sum(summed, keepdims=True)
        total = sums.max(over, keepdims=True) if ord > 0 else sums.min(over, keepdims=True)
        return total if keepdims else total.squeeze(axes)
    if len(axes) != 1 or isinstance(ord, str):
        raise TypeError(f"norm() of Arrays does not support ord={ord!r} over {len(axes)} axes")
    if abs(ord) == math.inf:
        return size.max(axes, keepdims=keepdims) if ord > 0 else size.min(axes, keepdims=keepdims)
    if ord == 0:
        return (x != 0).astype(float).sum(axes, keepdims=keepdims)
    total = (size if ord == 1 else size**ord).sum(axes, keepdims=keepdims)
    return total if ord == 1 else total ** (1.0 / ord)


@evaluated(1)
def layer_norm(x: Any, axis: Any = -1, epsilon: float = 1e-5) -> Any:
    """``(x - mean) / sqrt(variance + epsilon)`` over axes. It has no weights: multiply the result by them.

    A negative epsilon is a ValueError.
    """
    axes = axis if isinstance(axis, tuple) else () if axis is None else (axis,)
    if not all(isinstance(one, (int, numpy.integer)) for one in axes):
        raise TypeError(
            f"layer_norm() takes an axis, or a tuple of them, and epsilon, found {type(axis).__name__}; weights are "
            "factors and terms of its result"
        )
    if not epsilon >= 0.0:
        raise ValueError(f"epsilon must be at least 0, found {epsilon}")
    return _core.array_norm(x, axis, epsilon, True)


@evaluated(3)
def attention(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    """``softmax(q k^T / sqrt(d)) v`` over the last two axes; leading axes broadcast.

    If ``mask`` is given and false, a query (row) ignores a key (column): with ``np.tri(n)`` tokens attend to
    earlier ones.
    """
    return _core.array_attention(q, k, v, mask)
