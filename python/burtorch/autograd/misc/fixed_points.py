"""Fixed points of functions with parameters."""

from __future__ import annotations

import burtorch as bt

TYPE_CHECKING = False  # as in the package
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["fixed_point"]


def fixed_point(
    f: Callable[[Any], Callable[[Any], Any]], a: Any, x0: Any, distance: Callable[[Any, Any], Any], tol: float
) -> Any:
    """The ``x`` with ``f(a)(x) = x``, found by iterating from ``x0`` until a step is at most ``tol``.

    The derivative by ``a`` is that of the iteration, which converges some steps later than its result: choose ``tol``
    accordingly.

    Example:
        >>> from burtorch.autograd import grad
        >>> from burtorch.autograd.misc.fixed_points import fixed_point
        >>> def root(a):
        ...     return fixed_point(lambda a: lambda x: 0.5 * (x + a / x), a, 1.0, lambda x, y: abs(x - y), 1e-12)
        >>> round(float(root(4.0)), 6), round(grad(root)(4.0), 6)
        (2.0, 0.25)
    """
    step = f(a)
    x = bt.while_loop(lambda x: distance(*x) > tol, lambda x: (step(x[0]), x[0]), (step(x0), x0 + 0.0 * a))[0]
    return x
