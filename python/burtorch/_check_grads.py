"""Comparing gradients with difference quotients."""

from __future__ import annotations

from burtorch._core import Graph, Value

TYPE_CHECKING = False  # as in the package: importing typing costs several milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def check_grads(f: Callable[..., Any], x: Any, *, eps: float = 1e-6, rtol: float = 1e-3, atol: float = 1e-5) -> None:
    """Raise AssertionError unless the gradient of ``f`` at ``x`` agrees with central differences.

    Args:
        f: takes Values and Vectors, returns a Value. It is called on separate float64 graphs, 2 n + 1 times for n
            numbers, and must be deterministic.
        x: the argument of ``f``: a number arrives as a Value, a sequence or array of numbers as a Vector; a tuple
            is several arguments.
        eps: half the distance between the two points of a quotient.
        rtol, atol: gradient and quotient agree if they differ by at most ``atol + rtol * abs(quotient)``. The defaults
            are those of torch.autograd.gradcheck.

    Raises:
        AssertionError: names the number with the largest error, with both results.
        TypeError: ``f`` does not return a Value.

    Near a kink the quotient differs from the derivative; choose another point.

    Example:
        >>> import burtorch as bt
        >>> bt.check_grads(lambda x: bt.exp(x) * x, 0.5)
        >>> bt.check_grads(lambda x, w: bt.inner_product(x, w).tanh(), ([1.0, 2.0], [0.1, 0.2]))
    """
    arguments = [_numbers(argument) for argument in (x if isinstance(x, tuple) else (x,))]
    graph = Graph()
    with graph:
        leaves, value = _call(f, graph, arguments)
        value.backward()
    worst = None
    for k, (numbers, leaf) in enumerate(zip(arguments, leaves)):
        grads = [leaf.grad] if isinstance(leaf, Value) else list(leaf.grad)
        for j, found in enumerate(grads):
            quotient = _quotient(f, arguments, (k, j), eps)
            excess = abs(found - quotient) - (atol + rtol * abs(quotient))
            off = not excess <= 0 and not (found != found and quotient != quotient)
            if off and (worst is None or not excess <= worst[0]):
                name = f"argument {k}" + ("" if isinstance(numbers, float) else f", number {j}")
                worst = (excess, f"{name}: the gradient is {found!r}, the difference quotient {quotient!r}")
    if worst is not None:
        raise AssertionError(worst[1])


def _numbers(argument: Any) -> Any:
    """A float, or a list of floats."""
    return [float(x) for x in argument] if hasattr(argument, "__len__") else float(argument)


def _call(f: Callable[..., Any], graph: Graph, arguments: list[Any]) -> tuple[list[Any], Value]:
    leaves = [graph.value(x) if isinstance(x, float) else graph.vector(x) for x in arguments]
    value = f(*leaves)
    if not isinstance(value, Value):
        raise TypeError(f"check_grads() expects a function that returns a Value, found {type(value).__name__}")
    return leaves, value


def _quotient(f: Callable[..., Any], arguments: list[Any], place: tuple[int, int], eps: float) -> float:
    k, j = place
    results = []
    for step in (eps, -eps):
        moved: list[Any] = [list(x) if isinstance(x, list) else x for x in arguments]
        if isinstance(moved[k], list):
            moved[k][j] += step
        else:
            moved[k] += step
        with Graph() as graph:
            results.append(float(_call(f, graph, moved)[1]))
    return (results[0] - results[1]) / (2 * eps)
