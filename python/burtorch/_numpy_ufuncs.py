"""NumPy's ufuncs of Arrays: rows of the op table, and compositions of other operations."""

from __future__ import annotations

import math
import operator

import numpy

from burtorch import _arrays, _core
from burtorch._array_base import axis_of

TYPE_CHECKING = False  # as in the package
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

ROWS = {
    "absolute": "abs", "fabs": "abs", "negative": "neg", "square": "sqr", "reciprocal": "inv", "sign": "sign",
    "exp": "exp", "exp2": "exp2", "expm1": "expm1", "log": "log", "log2": "log2", "log10": "log10", "log1p": "log1p",
    "sqrt": "sqrt", "cbrt": "cbrt", "sin": "sin", "cos": "cos", "tan": "tan", "arcsin": "asin", "arccos": "acos",
    "arctan": "atan", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "arcsinh": "asinh", "arccosh": "acosh",
    "arctanh": "atanh", "rint": "round", "arctan2": "atan2", "hypot": "hypot",
    "logaddexp": "logaddexp", "maximum": "max", "minimum": "min",
    # Of SciPy.
    "erf": "erf", "erfc": "erfc", "ndtr": "ndtr", "gammaln": "lgamma", "psi": "digamma", "expit": "sigmoid",
    "xlogy": "xlogy", "exp10": "exp10",
}  # fmt: skip
"""Ufuncs that are rows of the op table."""

REDUCTIONS = {
    "add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "logaddexp": "logsumexp",
    "logical_and": "all", "logical_or": "any",
}  # fmt: skip
"""The reduction of each ufunc's ``reduce``."""

RUNNING = {"add": "cumsum", "multiply": "cumprod"}
"""The cumulative reduction of each ufunc's ``accumulate``."""


def mask(x: Any) -> Any:
    return x.astype(bool) if hasattr(x, "astype") else bool(x)


def is_integer(x: Any) -> bool:
    """Whether the elements are integers or masks."""
    return numpy.dtype(x.dtype).kind in "biu" if hasattr(x, "dtype") else isinstance(x, int)


def whole(name: str) -> Callable[[Any], Any]:
    """A rounding function, which does not change integers."""
    return lambda x: x if is_integer(x) else _core.array_row(name, x)


def trunc(x: Any) -> Any:
    return x if is_integer(x) else _core.array_where(x < 0, _core.array_row("ceil", x), _core.array_row("floor", x))


def signbit(x: Any) -> Any:
    """Whether a number is negative or -0.0; False for NaN."""
    return (x < 0) if is_integer(x) else (x < 0) | ((x == 0) & (1.0 / x < 0))


def of_numbers(choose: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """``choose`` of two operands, or, if one is NaN, the other."""

    def chosen(x: Any, y: Any) -> Any:
        x, y = (_core.array_of(one, other) for one, other in ((x, y), (y, x)))
        if is_integer(x) and is_integer(y):
            return choose(x, y)
        where, isnan = _core.array_where, _core.array_isnan
        return where(isnan(x), y, where(isnan(y), x, choose(x, y)))

    return chosen


def fmod(x: Any, y: Any) -> Any:
    """The remainder with the sign of ``x``, also if it is 0."""
    return _core.array_where(signbit(x), -(-x % abs(y)), x % abs(y))


def copysign(x: Any, y: Any) -> Any:
    x, y = (_core.array_of(one, other) for one, other in ((x, y), (y, x)))
    return _core.array_where(signbit(x) == signbit(y), x, -x) * 1.0


def logaddexp2(x: Any, y: Any) -> Any:
    return _core.array_row("logaddexp", x * math.log(2), y * math.log(2)) / math.log(2)


def heaviside(x: Any, at_0: Any) -> Any:
    """0 below 0, 1 above, ``at_0`` at 0; its gradient goes only to ``at_0``."""
    x, at_0 = (_core.array_of(one, other) for one, other in ((x, at_0), (at_0, x)))
    step = _core.array_where(x > 0, 1.0, _core.array_where(x < 0, 0.0, math.nan))
    return _core.array_where(x == 0, at_0, step)


def ldexp(x: Any, exponent: Any) -> Any:
    """``x * 2**exponent``, in two steps because one power might overflow."""
    if not is_integer(exponent):
        raise TypeError("numpy.ldexp takes integer exponents")
    half = exponent // 2
    return x * power_of_2(half) * power_of_2(exponent - half)


def power_of_2(n: Any) -> Any:
    return _core.array_row("exp2", n * 1.0) if isinstance(n, _core.Array) else numpy.exp2(n)


def modf(x: Any) -> tuple[Any, Any]:
    """The fractional and integral parts, both with the sign of ``x``, also if they are 0."""
    x = x * 1.0
    whole = trunc(x)
    rest = _core.array_where(signbit(x), -(whole - x), x - whole)
    return _core.array_where(abs(x) == math.inf, _core.array_where(x < 0, -0.0, 0.0), rest), whole


def matvec(x: Any, y: Any) -> Any:
    return (_core.array_of(x, y) @ _core.array_of(y, x)[..., None])[..., 0]


def vecmat(x: Any, y: Any) -> Any:
    return (_core.array_of(x, y)[..., None, :] @ _core.array_of(y, x))[..., 0, :]


def vecdot(x: Any, y: Any, axis: int = -1) -> Any:
    x, y = _core.array_of(x, y), _core.array_of(y, x)
    if x.shape[axis_of(axis, x.ndim)] != y.shape[axis_of(axis, y.ndim)]:
        raise ValueError(f"vecdot takes vectors of one length, found shapes {x.shape} and {y.shape}")
    x, y = (_arrays.moveaxis(one, axis, -1) for one in (x, y))
    return (x * y).sum(-1)


SPECIAL: dict[str, Callable[..., Any]] = {
    "logit": lambda x: _core.log(x / (1.0 - x)), "log_expit": lambda x: -_core.softplus(-x),
    "entr": lambda x: -_core.xlogy(x, x), "rel_entr": lambda x, y: _core.xlogy(x, x / y),
    "betaln": lambda x, y: _core.lgamma(x) + _core.lgamma(y) - _core.lgamma(x + y),
}  # fmt: skip
"""SciPy's ufuncs that are made of several operations, of Values and Arrays."""

OPERATORS: dict[str, Callable[..., Any]] = {
    **SPECIAL,
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv,
    "true_divide": operator.truediv, "power": operator.pow, "float_power": lambda x, y: (x * 1.0) ** y,
    "floor_divide": operator.floordiv, "remainder": operator.mod, "mod": operator.mod, "divmod": divmod,
    "matmul": operator.matmul, "positive": operator.pos, "less": operator.lt, "less_equal": operator.le,
    "greater": operator.gt, "greater_equal": operator.ge, "equal": operator.eq, "not_equal": operator.ne,
    "logical_and": lambda x, y: mask(x) & mask(y), "logical_or": lambda x, y: mask(x) | mask(y),
    "logical_xor": lambda x, y: mask(x) ^ mask(y), "logical_not": lambda x: ~mask(x),
    "isnan": _core.array_isnan, "isinf": lambda x: abs(x) == math.inf, "isfinite": lambda x: abs(x) < math.inf,
    "deg2rad": lambda x: x * (math.pi / 180), "radians": lambda x: x * (math.pi / 180),
    "rad2deg": lambda x: x * (180 / math.pi), "degrees": lambda x: x * (180 / math.pi),
    "conjugate": operator.pos, "floor": whole("floor"), "ceil": whole("ceil"), "trunc": trunc, "signbit": signbit,
    "clip": lambda x, low, high: _arrays.clip(x, low, high), "fmax": of_numbers(_arrays.maximum),
    "fmin": of_numbers(_arrays.minimum), "fmod": fmod, "copysign": copysign, "logaddexp2": logaddexp2,
    "heaviside": heaviside, "ldexp": ldexp, "modf": modf, "matvec": matvec, "vecmat": vecmat,
    "vecdot": lambda x, y: vecdot(x, y),
}  # fmt: skip
"""Other ufuncs."""
