"""burtorch computes gradients and other derivatives on a CPU, with low latency and little memory.

    >>> import burtorch as bt
    >>> a, b = bt.Value(-41.0), bt.Value(2.0)
    >>> g = ((a + b) - (a * b + b**3)) ** 2 / 2
    >>> g.backward()
    >>> g.data, a.grad, b.grad
    (612.5, -35.0, 1050.0)

Numbers are computed in Rust (``burtorch._core``); this package arranges the calls. The submodules ``autograd``,
``compress``, ``data``, ``flower``, ``micrograd``, ``mpi``, ``nn``, ``opt``, ``optim``, ``system``, ``text`` and ``viz``
are imported when they are first used, and NumPy only when an array is asked for.
"""

import sys as _sys

if getattr(_sys, "argv", [])[:1] == ["-m"] and "burtorch" in getattr(_sys, "orig_argv", ()):
    # The command is about to run: Ctrl-C ends it without a traceback, also while the package is imported.
    _sys.excepthook = lambda kind, *error: None if kind is KeyboardInterrupt else _sys.__excepthook__(kind, *error)

from burtorch import _core
from burtorch._core import (
    Array,
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
    Stop,
    StoppedError,
    Subset,
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
    array,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    bytes_needed,
    cbrt,
    ceil,
    checkpoint,
    concat,
    cond,
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
    fori_loop,
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
    scan,
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
    while_loop,
    xlogy,
)
from burtorch._where import clamp, stop_gradient, where

TYPE_CHECKING = False  # what typing.TYPE_CHECKING is, without the 5 ms that importing typing costs
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from burtorch import autograd, compress, data, flower, micrograd, mpi, nn, opt, optim, system, text, viz
    from burtorch._arrays import (
        all,
        any,
        argmax,
        argmin,
        argsort,
        attention,
        broadcast_to,
        clip,
        concatenate,
        cumprod,
        cumsum,
        diag,
        diagonal,
        dot,
        einsum,
        expand_dims,
        flip,
        hstack,
        layer_norm,
        matmul,
        maximum,
        median,
        minimum,
        moveaxis,
        norm,
        outer,
        percentile,
        prod,
        quantile,
        ravel,
        repeat,
        reshape,
        roll,
        segment_sum,
        sort,
        split,
        squeeze,
        std,
        sum,
        swapaxes,
        take,
        take_along_axis,
        tensordot,
        tile,
        transpose,
        tril,
        triu,
        var,
        vstack,
    )
    from burtorch._check_grads import check_grads
    from burtorch._function import function, trace
    from burtorch._memory import memory
    from burtorch._parallel import parallel
    from burtorch._vjp import vjp

__all__ = [
    "Array",
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
    "Stop",
    "StoppedError",
    "Subset",
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
    "all",
    "any",
    "argmax",
    "argmin",
    "argsort",
    "array",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "attention",
    "autograd",
    "broadcast_to",
    "bytes_needed",
    "cbrt",
    "ceil",
    "check_grads",
    "checkpoint",
    "clamp",
    "clip",
    "compress",
    "concat",
    "concatenate",
    "cond",
    "config",
    "cos",
    "cosh",
    "cumprod",
    "cumsum",
    "current_graph",
    "data",
    "diag",
    "diagonal",
    "digamma",
    "div",
    "div_by_constant",
    "dot",
    "einsum",
    "elu",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "exp10",
    "expand_dims",
    "expm1",
    "flip",
    "floor",
    "floor_divide",
    "flower",
    "fori_loop",
    "function",
    "gather",
    "gelu",
    "grad",
    "hessian",
    "hstack",
    "hvp",
    "hypot",
    "inner_product",
    "inner_product_with_bias",
    "inv",
    "inv_sqrt",
    "jacobian",
    "jvp",
    "layer_norm",
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
    "matmul",
    "max",
    "maximum",
    "mean",
    "mean_squares",
    "median",
    "memory",
    "micrograd",
    "min",
    "minimum",
    "moveaxis",
    "mpi",
    "mul",
    "mul_by_constant",
    "ndtr",
    "neg",
    "neg_log",
    "negative_mean",
    "nn",
    "no_grad",
    "norm",
    "norm2",
    "opt",
    "optim",
    "outer",
    "parallel",
    "parameter",
    "percentile",
    "pow",
    "pow3",
    "pow_constant",
    "primitive",
    "prod",
    "quantile",
    "ravel",
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
    "repeat",
    "reshape",
    "rms_norm",
    "roll",
    "round",
    "scan",
    "segment_sum",
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
    "sort",
    "split",
    "sqr",
    "sqrt",
    "squeeze",
    "stack",
    "std",
    "stop_gradient",
    "sub",
    "sum",
    "swapaxes",
    "system",
    "take",
    "take_along_axis",
    "tan",
    "tanh",
    "tensordot",
    "text",
    "tile",
    "trace",
    "transpose",
    "tril",
    "triu",
    "value_and_grad",
    "var",
    "variance",
    "variance_biased",
    "viz",
    "vjp",
    "vmap",
    "vstack",
    "where",
    "while_loop",
    "xlogy",
]

_SUBMODULES = frozenset(
    {"autograd", "compress", "data", "flower", "micrograd", "mpi", "nn", "opt", "optim", "system", "text", "viz"}
)


def _no_array(self: object, dtype: object = None, copy: object = None) -> "NoReturn":
    raise TypeError(
        "an array of NumPy has no gradient: use numpy.asarray(w.values), a view of the numbers alone, or "
        "functions of NumPy, such as numpy.stack, on the Tensors"
    )


# NumPy would make an array of one object, and of a list of Tensors an array of objects.
_core.Tensor.__array__ = _no_array  # type: ignore[method-assign]
_core.Parameters.__array__ = _no_array  # type: ignore[method-assign]


def __getattr__(name: str) -> "Any":
    try:
        return _found(name)
    except ModuleNotFoundError as error:
        if error.name != "numpy":
            raise
        text = f"burtorch.{name} needs NumPy, which is not installed (pip install numpy)"
        raise ModuleNotFoundError(text, name="numpy") from None


def _found(name: str) -> "Any":
    """An attribute whose module is imported when it is first used."""
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
    if name in __all__:
        from burtorch import _arrays

        globals()[name] = getattr(_arrays, name)  # asked once
        return globals()[name]
    raise AttributeError(f"module 'burtorch' has no attribute {name!r}")


def __dir__() -> "list[str]":
    return sorted({*__all__, *(name for name in globals() if name.startswith("_"))})
