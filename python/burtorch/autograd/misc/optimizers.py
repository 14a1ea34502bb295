"""Optimisers: from a gradient function ``grad(x, step)`` and a nest of arrays they compute the nest after all steps."""

from __future__ import annotations

import numpy

from burtorch.autograd.misc.flatten import flatten

TYPE_CHECKING = False  # as in the package
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["adam", "rmsprop", "sgd"]


def _descend(
    grad: Callable[..., Any], x0: Any, callback: Any, num_iters: int, step: Callable[[Any, Any, int], Any]
) -> Any:
    x, unflatten = flatten(x0)
    for k in range(num_iters):
        nest = unflatten(x)
        gradient = grad(nest, k)
        if callback:
            callback(nest, k, gradient)
        x = step(x, flatten(gradient)[0], k)
    return unflatten(x)


def sgd(
    grad: Callable[..., Any],
    x0: Any,
    callback: Any = None,
    num_iters: int = 200,
    step_size: float = 0.1,
    mass: float = 0.9,
) -> Any:
    """Gradient descent with momentum."""
    velocity = numpy.zeros(1)

    def step(x: Any, g: Any, _k: int) -> Any:
        nonlocal velocity
        velocity = mass * velocity - (1.0 - mass) * g
        return x + step_size * velocity

    return _descend(grad, x0, callback, num_iters, step)


def rmsprop(
    grad: Callable[..., Any],
    x0: Any,
    callback: Any = None,
    num_iters: int = 100,
    step_size: float = 0.1,
    gamma: float = 0.9,
    eps: float = 1e-8,
) -> Any:
    """RMSprop: steps divided by the root of a running mean of squares."""
    square = numpy.ones(1)

    def step(x: Any, g: Any, _k: int) -> Any:
        nonlocal square
        square = gamma * square + (1.0 - gamma) * g**2
        return x - step_size * g / (numpy.sqrt(square) + eps)

    return _descend(grad, x0, callback, num_iters, step)


def adam(
    grad: Callable[..., Any],
    x0: Any,
    callback: Any = None,
    num_iters: int = 100,
    step_size: float = 0.001,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
) -> Any:
    """Adam."""
    mean, square = numpy.zeros(1), numpy.zeros(1)

    def step(x: Any, g: Any, k: int) -> Any:
        nonlocal mean, square
        mean, square = b1 * mean + (1 - b1) * g, b2 * square + (1 - b2) * g**2
        return x - step_size * (mean / (1 - b1 ** (k + 1))) / (numpy.sqrt(square / (1 - b2 ** (k + 1))) + eps)

    return _descend(grad, x0, callback, num_iters, step)
