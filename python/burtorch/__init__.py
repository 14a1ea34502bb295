"""burtorch computes gradients of scalar functions on a CPU with the lowest latency and the least memory.

    >>> import burtorch as bt
    >>> a, b = bt.Value(-41.0), bt.Value(2.0)
    >>> g = ((a + b) - (a * b + b**3)) ** 2 / 2
    >>> g.backward()
    >>> g.data, a.grad, b.grad
    (612.5, -35.0, 1050.0)

Numbers are computed in Rust (``burtorch._core``); this package arranges the calls. The submodules ``nn``, ``optim``,
``micrograd``, ``text``, ``data``, ``viz`` and ``system`` are imported when they are first used, and NumPy only when an
array is asked for.
"""

import sys as _sys

if getattr(_sys, "argv", [])[:1] == ["-m"] and "burtorch" in getattr(_sys, "orig_argv", ()):
    # The command is about to run: Ctrl-C ends it without a traceback, also while the package is imported.
    _sys.excepthook = lambda kind, *error: None if kind is KeyboardInterrupt else _sys.__excepthook__(kind, *error)

from burtorch._core import (
    BurtorchError,
    BusyError,
    FormatError,
    Function,
    Graph,
    GraphFullError,
    GraphMismatchError,
    Mark,
    Oracle,
    Parameters,
    Program,
    Scope,
    StaleFunctionWarning,
    StaleRiskWarning,
    StaleValueError,
    TokenIds,
    TraceError,
    Value,
    Vector,
    __version__,
    abs,
    acos,
    acosh,
    add,
    add_constant,
    add_squares,
    affine,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    bytes_needed,
    cbrt,
    ceil,
    concat,
    config,
    cos,
    cosh,
    current_graph,
    digamma,
    div,
    div_by_constant,
    elu,
    erf,
    erfc,
    exp,
    exp2,
    exp10,
    expm1,
    floor,
    floor_divide,
    gather,
    gelu,
    grad,
    hessian,
    hvp,
    hypot,
    inner_product,
    inner_product_with_bias,
    inv,
    inv_sqrt,
    jacobian,
    jvp,
    leaky_relu,
    lgamma,
    load_function,
    load_graph,
    load_parameters,
    log,
    log1p,
    log2,
    log10,
    log_softmax,
    logaddexp,
    logsumexp,
    max,
    mean,
    mean_squares,
    min,
    mul,
    mul_by_constant,
    ndtr,
    neg,
    neg_log,
    negative_mean,
    no_grad,
    norm2,
    parameter,
    pow,
    pow3,
    pow_constant,
    primitive,
    reduce_max,
    reduce_mean,
    reduce_mean_and_mean_squares,
    reduce_mean_squares,
    reduce_min,
    reduce_mul,
    reduce_negative_mean,
    reduce_sub,
    reduce_sum,
    reduce_sum_of_squares,
    relu,
    remainder,
    rms_norm,
    round,
    selu,
    sigmoid,
    sign,
    silu,
    sin,
    sinh,
    softmax,
    softmax_cross_entropy,
    softplus,
    softsign,
    sqr,
    sqrt,
    stack,
    sub,
    tan,
    tanh,
    value_and_grad,
    variance,
    variance_biased,
    vmap,
    xlogy,
)
from burtorch._where import clamp, where

TYPE_CHECKING = False  # what typing.TYPE_CHECKING is, without the 5 ms that importing typing costs
if TYPE_CHECKING:
    from typing import Any

    from burtorch import data, micrograd, nn, optim, system, text, viz
    from burtorch._check_grads import check_grads
    from burtorch._function import function, trace
    from burtorch._memory import memory
    from burtorch._parallel import parallel
    from burtorch._vjp import vjp

__all__ = [
    "BurtorchError",
    "BusyError",
    "FormatError",
    "Function",
    "Graph",
    "GraphFullError",
    "GraphMismatchError",
    "Mark",
    "Oracle",
    "Parameters",
    "Program",
    "Scope",
    "StaleFunctionWarning",
    "StaleRiskWarning",
    "StaleValueError",
    "TokenIds",
    "TraceError",
    "Value",
    "Vector",
    "__version__",
    "abs",
    "acos",
    "acosh",
    "add",
    "add_constant",
    "add_squares",
    "affine",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bytes_needed",
    "cbrt",
    "ceil",
    "check_grads",
    "clamp",
    "concat",
    "config",
    "cos",
    "cosh",
    "current_graph",
    "data",
    "digamma",
    "div",
    "div_by_constant",
    "elu",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "exp10",
    "expm1",
    "floor",
    "floor_divide",
    "function",
    "gather",
    "gelu",
    "grad",
    "hessian",
    "hvp",
    "hypot",
    "inner_product",
    "inner_product_with_bias",
    "inv",
    "inv_sqrt",
    "jacobian",
    "jvp",
    "leaky_relu",
    "lgamma",
    "load_function",
    "load_graph",
    "load_parameters",
    "log",
    "log1p",
    "log2",
    "log10",
    "log_softmax",
    "logaddexp",
    "logsumexp",
    "max",
    "mean",
    "mean_squares",
    "memory",
    "micrograd",
    "min",
    "mul",
    "mul_by_constant",
    "ndtr",
    "neg",
    "neg_log",
    "negative_mean",
    "nn",
    "no_grad",
    "norm2",
    "optim",
    "parallel",
    "parameter",
    "pow",
    "pow3",
    "pow_constant",
    "primitive",
    "reduce_max",
    "reduce_mean",
    "reduce_mean_and_mean_squares",
    "reduce_mean_squares",
    "reduce_min",
    "reduce_mul",
    "reduce_negative_mean",
    "reduce_sub",
    "reduce_sum",
    "reduce_sum_of_squares",
    "relu",
    "remainder",
    "rms_norm",
    "round",
    "selu",
    "sigmoid",
    "sign",
    "silu",
    "sin",
    "sinh",
    "softmax",
    "softmax_cross_entropy",
    "softplus",
    "softsign",
    "sqr",
    "sqrt",
    "stack",
    "sub",
    "system",
    "tan",
    "tanh",
    "text",
    "trace",
    "value_and_grad",
    "variance",
    "variance_biased",
    "viz",
    "vjp",
    "vmap",
    "where",
    "xlogy",
]

_SUBMODULES = frozenset({"data", "micrograd", "nn", "optim", "system", "text", "viz"})


def __getattr__(name: str) -> "Any":
    if name == "check_grads":
        from burtorch._check_grads import check_grads

        return check_grads
    if name in _SUBMODULES:
        import importlib

        return importlib.import_module(f"burtorch.{name}")
    if name in ("function", "trace"):
        from burtorch import _function

        globals()[name] = getattr(_function, name)  # asked once
        return globals()[name]
    if name == "vjp":
        from burtorch._vjp import vjp

        globals()[name] = vjp  # asked once
        return vjp
    if name == "memory":
        from burtorch._memory import memory

        return memory
    if name == "parallel":
        from burtorch._parallel import parallel

        globals()[name] = parallel  # asked once
        return parallel
    raise AttributeError(f"module 'burtorch' has no attribute {name!r}")


def __dir__() -> "list[str]":
    return sorted({*__all__, *(name for name in globals() if name.startswith("_"))})
