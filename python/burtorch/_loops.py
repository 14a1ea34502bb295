"""Loops built from other loops, and loops over Values, which run their bodies step by step."""

from __future__ import annotations

import numpy

from burtorch._core import TraceError, Value, Vector, stack, while_loop

TYPE_CHECKING = False  # as in the package
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def fori_between(lower: Any, upper: Any, body: Callable[[Any, Any], Any], init: Any) -> Any:
    """``fori_loop`` with an Array as a bound."""
    first = numpy.int64(lower) if isinstance(lower, int) else lower
    carry = while_loop(lambda c: c[0] < upper, lambda c: (c[0] + 1, body(c[0], c[1])), (first, init))
    return carry[1]


def mapped(f: Callable[..., Any], *nests: Any) -> Any:
    """Nests of one structure, leaf by leaf, as one nest of results."""
    first = nests[0]
    if first is None:
        return None
    if isinstance(first, dict):
        return {key: mapped(f, *(nest[key] for nest in nests)) for key in first}
    if isinstance(first, (list, tuple)):
        parts = [mapped(f, *items) for items in zip(*nests, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
    return f(*nests)


def structure(nest: Any) -> Any:
    """What the carries of all steps have in common: containers, keys in order, and the lengths of rows."""
    if isinstance(nest, dict):
        return {"dict": [(key, structure(item)) for key, item in nest.items()]}
    if isinstance(nest, (list, tuple)):
        return type(nest).__name__, [structure(item) for item in nest]
    if isinstance(nest, Vector):
        return (len(nest),)
    return None if nest is None else numpy.shape(nest) if not isinstance(nest, Value) else ()


def checked(name: str, before: Any, after: Any) -> Any:
    expected, found = structure(before), structure(after)
    if found != expected:
        raise TraceError(f"the carry of {name}() must keep its structure and shapes {expected}, found {found}")
    return after


def stacked(*leaves: Any) -> Any:
    """Results of all steps: numbers and arrays as an array, Values as a Vector, Vectors as a list of them."""
    if any(isinstance(leaf, Vector) for leaf in leaves):
        return list(leaves)
    if any(isinstance(leaf, Value) for leaf in leaves):
        return stack(*leaves)
    return numpy.stack(leaves)


def scan_step_by_step(f: Callable[..., Any], init: Any, xs: Any, length: int | None, reverse: bool) -> Any:
    """``scan`` with Values."""
    lengths: list[int] = []
    mapped(lambda leaf: lengths.append(len(leaf)), xs)
    lengths += [] if length is None else [length]
    if not lengths or any(n != lengths[0] for n in lengths):
        found = "neither xs nor length" if not lengths else f"lengths {sorted(set(lengths))}"
        raise ValueError(f"scan() needs arrays of one length, or length=, found {found}")
    carry, results = init, []
    for k in reversed(range(lengths[0])) if reverse else range(lengths[0]):
        found = f(carry, mapped(lambda leaf, k=k: leaf[k], xs))
        if not (isinstance(found, tuple) and len(found) == 2):
            raise TraceError("scan() needs a function that returns a tuple of the next carry and of a result to stack")
        carry = checked("scan", carry, found[0])
        results.append(found[1])
    if not results:
        raise ValueError("scan() of Values needs a step, as the results of no step have no shape")
    return carry, mapped(stacked, *(results[::-1] if reverse else results))


def while_step_by_step(cond: Callable[..., Any], body: Callable[..., Any], init: Any, max_steps: int | None) -> Any:
    """``while_loop`` with Values."""
    carry, n = init, 0
    while (max_steps is None or n < max_steps) and cond(carry):
        carry, n = checked("while_loop", carry, body(carry)), n + 1
    return carry


def fori_step_by_step(lower: int, upper: int, body: Callable[..., Any], init: Any) -> Any:
    """``fori_loop`` with Values."""
    carry = init
    for k in range(lower, upper):
        carry = checked("fori_loop", carry, body(k, carry))
    return carry
