"""Traced functions: ``@bt.function`` and ``bt.trace``."""

from __future__ import annotations

from types import FunctionType, MethodType

from burtorch._core import Function, function_like

TYPE_CHECKING = False  # as in the package: importing typing costs several milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal, TypedDict, Unpack

    class Options(TypedDict, total=False):
        """The options of :class:`burtorch.Function`."""

        dtype: Literal["float64", "float32"]
        optimize: Literal["exact", "fast"]
        max_paths: int
        max_variants: int
        max_nodes: int
        audit: bool


class Kept(tuple):  # type: ignore[type-arg]  # a Function of a class and that of an instance
    """What an instance keeps of a decorated method; copies and pickles of the instance make their own."""

    def __reduce__(self) -> Any:
        return Kept, ()


def of_instance(self: Function, instance: object) -> Function:
    """The Function of a method, which the instance keeps so that it is traced once."""
    method = self.__wrapped__
    if not isinstance(method, FunctionType):
        return self
    own = getattr(instance, "__dict__", None)
    if own is None:
        raise TypeError(f"a traced method needs an instance with a __dict__, found {instance!r:.60}")
    name = f"_traced {method.__qualname__}"
    found = own.get(name)
    if not found or found[0] is not self or found[1].__wrapped__.__self__ is not instance:
        found = Kept((self, function_like(self, MethodType(method, instance))))
        if isinstance(own, dict):
            own[name] = found
        else:
            setattr(instance, name, found)  # of a class
    function: Function = found[1]
    return function


def of_class(self: Function, instance: object) -> Function | None:
    """The Function of an instance whose class has this one as a method or property; None for other objects."""
    from functools import cached_property

    for kind in type(instance).__mro__:
        for held in vars(kind).values():
            of_property = isinstance(held, property) and self in (held.fget, held.fset, held.fdel)
            if held is self or of_property or (isinstance(held, cached_property) and held.func is self):
                return of_instance(self, instance)
    return None


def function(body: Callable[..., Any] | None = None, /, **options: Unpack[Options]) -> Any:
    """Trace a Python function of numbers and arrays once, and replay it in Rust afterwards.

    Args:
        body: the function; see :class:`burtorch.Function` for the arguments and operations that it may use.
        options: ``dtype``, ``optimize``, ``max_paths``, ``max_variants``, ``max_nodes``, ``audit``, as Function
            takes them.

    Returns:
        A Function; without ``body`` a decorator that makes one.

    Raises:
        TypeError: ``body`` is not callable, or an option is unknown.

    Example:
        >>> import burtorch as bt
        >>> @bt.function
        ... def rosenbrock(x):
        ...     return (1.0 - x[0]) ** 2 + 100.0 * (x[1] - x[0] ** 2) ** 2
        >>> rosenbrock([1.0, 2.0])
        100.0
        >>> rosenbrock.grad([1.0, 2.0])
        [-400.0, 200.0]
    """
    if body is None:
        Function(function, **options)  # reports invalid options at once
        return lambda body: Function(body, **options)
    return Function(body, **options)


def trace(body: Callable[..., Any], *examples: Any, **options: Unpack[Options]) -> Function:
    """Trace a function at example arguments immediately, as the first call of a :func:`function` would.

    Args:
        body: the function.
        examples: arguments of the shapes it will be called with.
        options: as in :func:`function`.

    Returns:
        A Function that has been traced.

    Example:
        >>> import burtorch as bt
        >>> len(bt.trace(lambda x: x.exp() + 1.0, 0.0).program)
        2
    """
    return Function(body, **options).trace(*examples)
