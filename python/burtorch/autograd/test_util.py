"""``check_grads`` of HIPS autograd: derivatives compared with differences."""

from __future__ import annotations

import numpy

from burtorch.autograd import grad, make_jvp
from burtorch.autograd.misc.flatten import flatten

TYPE_CHECKING = False  # as in the package
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

__all__ = ["check_grads"]

STEP, TOLERANCE = 1e-6, 1e-6


def check_grads(
    f: Callable[..., Any], modes: Sequence[str] | str = ("fwd", "rev"), order: int = 2
) -> Callable[..., None]:
    """A function of arguments that raises an AssertionError unless derivatives of ``f`` agree with differences there.

    Args:
        f: a function of floats, arrays of floats, and lists, tuples and dicts of them.
        modes: "fwd" for forward mode, "rev" for reverse mode, or both.
        order: the highest derivative that is checked.

    One random direction is checked for each mode and order. Near a kink the difference is not the derivative.
    """
    modes = (modes,) if isinstance(modes, str) else tuple(modes)
    if not modes or not {*modes} <= {"fwd", "rev"}:
        raise ValueError(f"modes are 'fwd' and 'rev', found {modes!r}")

    def check(*arguments: Any, **keywords: Any) -> None:
        row, back = flatten(arguments)
        _check(lambda x: flatten(f(*back(x), **keywords))[0], row, modes, order, numpy.random.RandomState(0))

    return check


def _check(f: Callable[[Any], Any], row: Any, modes: tuple[str, ...], order: int, random: Any) -> None:
    """``f`` takes a row of numbers and returns one."""
    along, weights = random.randn(*row.shape), random.randn(*f(row).shape)
    difference = weights @ (f(row + STEP / 2 * along) - f(row - STEP / 2 * along)) / STEP

    def gradient(x: Any) -> Any:
        return grad(lambda x: (f(x) * weights).sum())(x)

    def change(x: Any) -> Any:
        return make_jvp(f)(x)(along)[1]

    for mode in modes:
        found = gradient(row) @ along if mode == "rev" else weights @ change(row)
        if not abs(found - difference) <= TOLERANCE * (1 + abs(difference)):
            raise AssertionError(f"a derivative of mode {mode!r} is {found!r}, the difference {difference!r}")
        if order > 1:
            _check(gradient if mode == "rev" else change, row, modes, order - 1, random)
