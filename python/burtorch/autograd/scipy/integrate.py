"""``odeint`` of HIPS autograd, with an integrator whose steps are differentiated.

>>> import burtorch.autograd.numpy as np
>>> from burtorch.autograd import grad
>>> from burtorch.autograd.scipy.integrate import odeint
>>> t = np.array([0.0, 1.0])
>>> slope = grad(lambda k: odeint(lambda y, t, k: k * y, np.array([1.0]), t, (k,))[-1, 0])(0.5)
>>> round(slope, 5)
1.64872
"""

from __future__ import annotations

import numpy

import burtorch as bt
from burtorch._core import Array

TYPE_CHECKING = False  # as in the package
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["odeint"]

# J. R. Dormand, P. J. Prince, A family of embedded Runge-Kutta formulae, J. Comp. Appl. Math. 6 (1980): the row of each
# stage, of which the last is the step itself, and the distance of the step of order 5 from that of order 4.
STAGES = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
DISTANCE = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)
PLACES = (1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0)
SHORTEST = 1e-10


def odeint(
    func: Callable[..., Any],
    y0: Any,
    t: Any,
    args: tuple[Any, ...] = (),
    rtol: float = 1.49012e-8,
    atol: float = 1.49012e-8,
) -> Any:
    """The solution of ``dy/dt = func(y, t, *args)`` with ``y(t[0]) = y0`` at all times ``t``, as rows.

    Steps have the order 5 and the length that the tolerances require; derivatives of any order, also by ``t``, are
    those of the steps.
    """
    start, times = (x if isinstance(x, Array) else numpy.asarray(x, float) for x in (y0, t))
    if start.ndim != 1 or times.ndim != 1 or not len(times):
        raise ValueError(
            f"odeint takes y0 and t with one axis, and a time or more, found {start.shape} and {times.shape}"
        )

    def across(y: Any, ends: Any) -> tuple[Any, Any]:
        y = over_interval(lambda y, t: func(y, t, *args), y, ends[0], ends[1] - ends[0], (rtol, atol))
        return y, y

    if len(times) == 1:
        return start[None]
    rows = bt.scan(across, start, (times[:-1], times[1:]))[1]
    return bt.concatenate([start[None], rows])


def over_interval(f: Callable[..., Any], y: Any, begin: Any, length: Any, within: tuple[float, float]) -> Any:
    """The solution after an interval, in time that runs from 0 to 1 there."""

    def slope(y: Any, u: Any) -> Any:
        return length * f(y, begin + u * length)

    def step(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        u, h, y, first = carry
        h = bt.minimum(h, 1.0 - u)
        slopes = [first]
        for row, place in zip(STAGES, PLACES):
            point = y + h * combined(row, slopes)
            slopes.append(slope(point, u + place * h))
        # The length of a step is a choice: no derivative goes through it.
        error = bt.stop_gradient(h * combined(DISTANCE, slopes))
        largest = bt.stop_gradient(bt.maximum(abs(y), abs(point)))
        size = bt.mean((error / (within[1] + within[0] * largest)) ** 2) ** 0.5
        is_kept = (size <= 1.0) | (h <= SHORTEST)
        factor = bt.clip(0.9 * bt.maximum(size, 1e-10) ** -0.2, 0.2, 5.0)
        return (
            bt.where(is_kept, u + h, u),
            h * factor,
            bt.where(is_kept, point, y),
            bt.where(is_kept, slopes[-1], first),
        )

    begun = (0.0, 1.0, y, slope(y, 0.0))
    return bt.while_loop(lambda carry: carry[0] < 1.0 - SHORTEST, step, begun)[2]


def combined(weights: tuple[float, ...], slopes: list[Any]) -> Any:
    """A sum of slopes."""
    first, *rest = ((weight, slope) for weight, slope in zip(weights, slopes) if weight)
    total = first[0] * first[1]
    for weight, slope in rest:
        total = total + weight * slope
    return total
