"""``bt.vjp``: products of weights with the Jacobian of a function."""

from __future__ import annotations

from burtorch._core import _value_of
from burtorch._core import vjp as _vjp

TYPE_CHECKING = False  # as in the package: importing typing costs several milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def vjp(f: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """The result of a function, and the gradient of its weighted sum.

    Args:
        f: the function.
        primals: its arguments, for an immediate call; without them the result is a function.
        has_aux: ``f`` returns (result, auxiliary data).

    Returns:
        Without arguments a Function: ``vjp(f)(x, ..., w)`` is (f(x, ...), gradient), with weights ``w`` in the
        structure of the result, and the gradient with respect to the only argument, or a tuple for all; with
        ``has_aux`` the auxiliary data are the last of three. With arguments, as in JAX, (f(x, ...), pull), or
        (f(x, ...), pull, auxiliary data), where ``pull(w)`` is the tuple of gradients with respect to all arguments.

    Example:
        >>> import burtorch as bt
        >>> bt.vjp(lambda x, y: x * y)(2.0, 3.0, 1.0)
        (6.0, (3.0, 2.0))
        >>> value, pull = bt.vjp(lambda x, y: x * y, 2.0, 3.0)
        >>> value, pull(10.0)
        (6.0, (30.0, 20.0))
    """
    weighted = _vjp(f, has_aux)
    if not primals:
        return weighted

    def pull(weights: Any) -> tuple[Any, ...]:
        gradient = weighted(*primals, weights)[1]
        return gradient if len(primals) > 1 else (gradient,)

    # Like all transforms, with Arrays; no gradient is computed here.
    result = _value_of(f)(*primals)
    return (result[0], pull, result[1]) if has_aux else (result, pull)
