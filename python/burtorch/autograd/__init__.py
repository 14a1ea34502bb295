"""The functions of HIPS autograd, with its names and signatures, on burtorch's derivatives.

Code written for autograd needs only its imports changed::

    import burtorch.autograd.numpy as np
    from burtorch.autograd import grad

A body runs at every call, as in autograd: it may draw random numbers, print, or read changing data. Only the
differentiated arguments are Arrays while it runs; the others are passed unchanged. ``bt.grad`` and the other transforms
keep the program of a body instead, which is faster.

    >>> import burtorch.autograd.numpy as np
    >>> from burtorch.autograd import elementwise_grad, grad
    >>> grad(lambda x: np.sum(np.tanh(x) ** 2))(np.array([0.0, 1.0])).round(4)
    array([0.    , 0.6397])
    >>> elementwise_grad(elementwise_grad(np.sin))(np.array([0.5, 1.0])).round(4)
    array([-0.4794, -0.8415])
"""

from __future__ import annotations

import functools

import burtorch as bt
from burtorch import _core
from burtorch._array_base import is_array
from burtorch._core import Array

TYPE_CHECKING = False  # as in the package
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

__all__ = [
    "checkpoint",
    "deriv",
    "elementwise_grad",
    "grad",
    "grad_and_aux",
    "grad_named",
    "hessian",
    "hessian_tensor_product",
    "hessian_vector_product",
    "jacobian",
    "make_ggnvp",
    "make_hvp",
    "make_jvp",
    "make_vjp",
    "multigrad_dict",
    "tensor_jacobian_product",
    "value_and_grad",
    "vector_jacobian_product",
]


def __getattr__(name: str) -> Any:
    """Submodules and the functions that autograd has here too, imported when they are first used."""
    import importlib

    if name in ("builtins", "extend", "misc", "numpy", "scipy", "test_util"):
        return importlib.import_module(f"burtorch.autograd.{name}")
    if name == "primitive":
        return importlib.import_module("burtorch.autograd.extend").primitive
    if name in ("dict", "isinstance", "list", "tuple", "type"):
        return getattr(importlib.import_module("burtorch.autograd.builtins"), name)
    raise AttributeError(f"module 'burtorch.autograd' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


class _Hole:
    """The position of an Array in a nest."""

    def __init__(self, k: int) -> None:
        self.k = k


def _mapped(f: Callable[[Any], Any], nest: Any, order: Callable[[Any], Any] = iter) -> Any:
    """A nest of lists, tuples and dicts with ``f`` applied to its leaves, for the keys of a dict in this order."""
    if isinstance(nest, dict):
        by_key = {key: _mapped(f, nest[key], order) for key in order(nest)}
        return {key: by_key[key] for key in nest}
    if isinstance(nest, (list, tuple)):
        made = [_mapped(f, one, order) for one in nest]
        return type(nest)(*made) if hasattr(nest, "_fields") else type(nest)(made)
    return f(nest)


def _run(body: Callable[..., Any], *arguments: Any) -> Any:
    """Calls ``body`` with Arrays for the numbers in nests of arguments, and returns its result as numbers."""
    leaves: list[Any] = []

    def leaf(x: Any) -> _Hole:
        leaves.append(x)
        return _Hole(len(leaves) - 1)

    holes = _mapped(leaf, arguments)
    if any(map(is_array, leaves)):
        return body(*arguments)
    results: list[Any] = []
    kept: list[Any] = []

    def recording(*arrays: Any) -> Any:
        kept.append(_mapped(_out_of(results), body(*_filled(holes, arrays))))
        return results

    numbers = _core.array_evaluated(recording, *leaves)
    # In a function that is being traced, a body may use Arrays from around it: its result is an Array too.
    return body(*arguments) if numbers is None else _filled(kept[0], numbers)


def _out_of(arrays: list[Any]) -> Callable[[Any], Any]:
    """A function that moves the Arrays of a nest to a list."""

    def leaf(x: Any) -> Any:
        if not isinstance(x, Array):
            return x
        arrays.append(x)
        return _Hole(len(arrays) - 1)

    return leaf


def _filled(nest: Any, leaves: Any) -> Any:
    """The nest with its holes replaced by ``leaves``."""
    return _mapped(lambda x: leaves[x.k] if isinstance(x, _Hole) else x, nest)


def _with(arguments: tuple[Any, ...], argnum: Any, x: Any) -> tuple[Any, ...]:
    """Arguments with some of them replaced."""
    places = argnum if isinstance(argnum, (tuple, list)) else (argnum,)
    given = list(arguments)
    for place, one in zip(places, x if isinstance(argnum, (tuple, list)) else (x,)):
        given[place] = one
    return tuple(given)


def _check_callable(name: str, fun: object) -> None:
    if not callable(fun):
        raise TypeError(f"{name}() expects a function, found {type(fun).__name__}")


def _chosen(arguments: Sequence[Any], argnum: Any) -> Any:
    for place in argnum if isinstance(argnum, (tuple, list)) else (argnum,):
        if not -len(arguments) <= place < len(arguments):
            raise TypeError(f"argnum {place} needs an argument of this index, found {len(arguments)} arguments")
    if isinstance(argnum, (tuple, list)):
        return tuple(arguments[place] for place in argnum)
    return arguments[argnum]


def _of_argument(transform: Callable[..., Any]) -> Callable[..., Any]:
    """Turns a transform of a function of one argument into one that takes ``fun`` and ``argnum``."""

    @functools.wraps(transform)
    def made(fun: Callable[..., Any], argnum: Any = 0) -> Callable[..., Any]:
        _check_callable(transform.__name__, fun)

        def derivative(*arguments: Any, **keywords: Any) -> Any:
            def body(x: Any) -> Any:
                return fun(*_with(arguments, argnum, x), **keywords)

            return _run(functools.partial(transform, body), _chosen(arguments, argnum))

        return derivative

    return made


@_of_argument
def grad(fun: Callable[..., Any], x: Any) -> Any:
    """A function that returns the gradient of ``fun`` by its argument ``argnum``, in the argument's structure."""
    return bt.grad(lambda x: _number(fun(x)))(x)


@_of_argument
def value_and_grad(fun: Callable[..., Any], x: Any) -> Any:
    """A function that returns the value and the gradient."""
    return bt.value_and_grad(lambda x: _number(fun(x)))(x)


def _number(y: Any) -> Any:
    """The number in an array of one number, whatever its shape."""
    if isinstance(y, Array):
        return y.reshape(()) if y.size == 1 else y
    return _constant(y)


def _constant(y: Any) -> Any:
    """A result that depends on no argument, as a float if it is one number."""
    if hasattr(y, "shape") and y.size == 1:
        y = y.item()
    return float(y) if isinstance(y, int) else y


@_of_argument
def elementwise_grad(fun: Callable[..., Any], x: Any) -> Any:
    """A function that returns the gradient of the sum of the results: for elementwise ``fun``, each derivative."""
    return bt.grad(lambda x: _sum(fun(x)))(x)


def _sum(y: Any) -> Any:
    """The sum of an array, also of a constant result."""
    if isinstance(y, Array):
        return y.sum()
    return _constant(y.sum() if hasattr(y, "shape") else y)


@_of_argument
def jacobian(fun: Callable[..., Any], x: Any) -> Any:
    """A function that returns the Jacobian, of shape (result, argument)."""
    return bt.jacobian(fun)(x)


@_of_argument
def hessian(fun: Callable[..., Any], x: Any) -> Any:
    """A function that returns the Hessian: the Jacobian of the Jacobian."""
    return bt.jacobian(bt.jacobian(fun))(x)


@_of_argument
def grad_and_aux(fun: Callable[..., Any], x: Any) -> Any:
    """For a ``fun`` that returns a value and auxiliary data: the gradient, and the auxiliary data."""
    kept: list[Any] = []

    def with_arrays(x: Any) -> Any:
        value, aux = fun(x)
        arrays: list[Any] = []
        kept.append(_mapped(_out_of(arrays), aux))
        return value, arrays

    gradient, arrays = bt.grad(with_arrays, has_aux=True)(x)
    return gradient, _filled(kept[-1], arrays)


def deriv(fun: Callable[..., Any], argnum: int = 0) -> Callable[..., Any]:
    """A function that returns the derivative with respect to a number."""
    _check_callable("deriv", fun)

    def derivative(*arguments: Any, **keywords: Any) -> Any:
        def along(x: Any) -> Any:
            return bt.jvp(lambda x: fun(*_with(arguments, argnum, x), **keywords), (x,), (_ones(x),))[1]

        return _run(along, _chosen(arguments, argnum))

    return derivative


def _ones(x: Any) -> Any:
    return x * 0.0 + 1.0


def grad_named(fun: Callable[..., Any], argname: str) -> Callable[..., Any]:
    """The gradient with respect to the argument ``argname``."""
    _check_callable("grad_named", fun)
    import inspect

    derivative: Callable[..., Any] = grad(fun, list(inspect.signature(fun).parameters).index(argname))
    return derivative


def multigrad_dict(fun: Callable[..., Any]) -> Callable[..., Any]:
    """The gradients with respect to all arguments, as a dict by name."""
    _check_callable("multigrad_dict", fun)
    import inspect

    signature = inspect.signature(fun)

    def gradients(*arguments: Any, **keywords: Any) -> Any:
        bound = signature.bind(*arguments, **keywords)
        bound.apply_defaults()
        return _run(bt.grad(lambda named: fun(**named)), dict(bound.arguments))

    return gradients


def hessian_tensor_product(fun: Callable[..., Any], argnum: int = 0) -> Callable[..., Any]:
    """A function of the arguments and a tensor: the Hessian times the tensor."""
    _check_callable("hessian_tensor_product", fun)

    def product(*arguments: Any, **keywords: Any) -> Any:
        *given, tensor = arguments

        def times(x: Any) -> Any:
            gradient = bt.grad(lambda x: _number(fun(*_with(tuple(given), argnum, x), **keywords)))
            return bt.grad(lambda x: _sum(gradient(x) * tensor))(x)

        return _run(times, _chosen(given, argnum))

    return product


hessian_vector_product = hessian_tensor_product


def tensor_jacobian_product(fun: Callable[..., Any], argnum: int = 0) -> Callable[..., Any]:
    """A function of the arguments and a tensor of the shape of the result: the tensor times the Jacobian."""
    _check_callable("tensor_jacobian_product", fun)

    def product(*arguments: Any, **keywords: Any) -> Any:
        *given, tensor = arguments

        def times(x: Any) -> Any:
            return bt.grad(lambda x: _sum(fun(*_with(tuple(given), argnum, x), **keywords) * tensor))(x)

        return _run(times, _chosen(given, argnum))

    return product


vector_jacobian_product = tensor_jacobian_product


def make_vjp(fun: Callable[..., Any], argnum: Any = 0) -> Callable[..., Any]:
    """A function of the arguments that returns ``(vjp, value)``, where ``vjp(g)`` is g times the Jacobian."""
    _check_callable("make_vjp", fun)

    def maker(*arguments: Any, **keywords: Any) -> Any:
        def body(x: Any) -> Any:
            return fun(*_with(arguments, argnum, x), **keywords)

        def vjp(g: Any) -> Any:
            return _run(lambda x, g: bt.vjp(body)(x, g)[1], _chosen(arguments, argnum), g)

        return vjp, _run(body, _chosen(arguments, argnum))

    return maker


def make_hvp(fun: Callable[..., Any], argnum: int = 0) -> Callable[..., Any]:
    """A function of the arguments that returns ``(hvp, gradient)``, where ``hvp(v)`` is the Hessian times v."""
    _check_callable("make_hvp", fun)
    maker: Callable[..., Any] = make_vjp(grad(fun, argnum), argnum)
    return maker


def make_jvp(fun: Callable[..., Any], argnum: int = 0) -> Callable[..., Any]:
    """A function of the arguments that returns ``jvp``, where ``jvp(v)`` is the value and its derivative along v."""
    _check_callable("make_jvp", fun)

    def maker(*arguments: Any, **keywords: Any) -> Any:
        def body(x: Any) -> Any:
            return fun(*_with(arguments, argnum, x), **keywords)

        return lambda v: _run(lambda x, v: bt.jvp(body, (x,), (v,)), _chosen(arguments, argnum), v)

    return maker


def checkpoint(fun: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, whose intermediate results are not kept for the gradient but computed again."""
    _check_callable("checkpoint", fun)

    @functools.wraps(fun)
    def recomputed(*arguments: Any, **keywords: Any) -> Any:
        arrays: list[Any] = []
        given, named = _mapped(_out_of(arrays), (arguments, keywords))
        if not arrays:
            return fun(*arguments, **keywords)
        return bt.checkpoint(lambda *arrays: fun(*_filled(given, arrays), **_filled(named, arrays)))(*arrays)

    return recomputed


def make_ggnvp(f: Callable[..., Any], g: Any = None, f_argnum: int = 0) -> Callable[..., Any]:
    """A function of the arguments that returns products with the generalised Gauss-Newton matrix of ``g(f(x))``."""
    _check_callable("make_ggnvp", f)
    g = g or (lambda y: 0.5 * (y * y).sum())

    def maker(*arguments: Any, **keywords: Any) -> Any:
        def body(x: Any) -> Any:
            return f(*_with(arguments, f_argnum, x), **keywords)

        def times(x: Any, v: Any) -> Any:
            y, change = bt.jvp(body, (x,), (v,))
            bent = hessian_tensor_product(g)(y, change)
            return bt.vjp(body)(x, bent)[1]

        return lambda v: _run(times, _chosen(arguments, f_argnum), v)

    return maker
