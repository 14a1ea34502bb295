"""Functions of arrays with NumPy's names and signatures.

Of an Array they give an Array; of plain arrays and numbers alone they are NumPy's function of that name, or, where
NumPy has none, the same instructions run on the numbers. ``out=`` and whatever else is not named here is a TypeError.
"""

from __future__ import annotations

from burtorch import _core
from burtorch._array_base import public, reduction
from burtorch._array_products import attention, dot, einsum, layer_norm, matmul, norm, outer, tensordot
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
    "minimum",
    "moveaxis",
    "norm",
    "outer",
    "prod",
    "ravel",
    "repeat",
    "reshape",
    "roll",
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

all = reduction("all")
any = reduction("any")
argmax = reduction("argmax")
argmin = reduction("argmin")
cumprod = reduction("cumprod")
cumsum = reduction("cumsum")
prod = reduction("prod")
std = reduction("std")
sum = reduction("sum")
var = reduction("var")


@public
def maximum(x1: Any, x2: Any) -> Any:
    """The larger of two, elementwise; where they are equal each receives half of the gradient."""
    return _core.array_row("max", x1, x2)


@public
def minimum(x1: Any, x2: Any) -> Any:
    """The smaller of two, elementwise; where they are equal each receives half of the gradient."""
    return _core.array_row("min", x1, x2)


@public
def clip(a: Any, a_min: Any = None, a_max: Any = None, out: Any = None) -> Any:
    """``minimum(maximum(a, a_min), a_max)``; None is no bound."""
    bounds = [bound for bound in (a_min, a_max) if bound is not None]
    return _core.array_of(a, *bounds).clip(a_min, a_max, out)
