"""``primitive``, ``defvjp`` and ``defjvp`` of HIPS autograd: functions with user-defined derivatives.

Called with Arrays, a primitive and its rules are traced, as with `burtorch.primitive`: write them with NumPy functions
that accept Arrays. Called with numbers alone, the primitive is the original function.

    >>> import burtorch.autograd.numpy as np
    >>> from burtorch.autograd import grad
    >>> from burtorch.autograd.extend import defvjp, primitive
    >>> @primitive
    ... def logsumexp(x):
    ...     largest = np.max(x)
    ...     return largest + np.log(np.sum(np.exp(x - largest)))
    >>> defvjp(logsumexp, lambda ans, x: lambda g: g * np.exp(x - ans))
    >>> grad(lambda x: logsumexp(x**2))(np.array([0.0, 1.0])).round(6)
    array([0.      , 1.462117])
"""

from __future__ import annotations

import functools
import itertools

import numpy

import burtorch as bt
from burtorch._array_base import is_array
from burtorch.autograd import _mapped

TYPE_CHECKING = False  # as in the package
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

__all__ = ["defjvp", "defvjp", "primitive"]


def primitive(f_raw: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose derivatives `defvjp` or `defjvp` defines."""

    @functools.wraps(f_raw)
    def called(*arguments: Any, **keywords: Any) -> Any:
        arrays = [k for k, x in enumerate(arguments) if _holds_array(x)]
        if not arrays:
            return f_raw(*arguments, **keywords)
        # Only Arrays have adjoints; the other arguments of a rule are constants.
        rules = _Rules(called, arguments, keywords, arrays)
        own = bt.primitive(rules.function)
        if called.vjps:  # type: ignore[attr-defined]
            own.defvjp(rules.reverse)
        if called.jvps:  # type: ignore[attr-defined]
            own.defjvp(rules.forward)
        return own(*(arguments[k] for k in arrays))

    called.vjps, called.jvps = {}, {}  # type: ignore[attr-defined]
    return called


def _holds_array(x: Any) -> bool:
    return any(map(_holds_array, x.values())) if isinstance(x, dict) else is_array(x)


class _Rules:
    """A primitive at one call, as a function of the Arrays among its arguments."""

    def __init__(self, of: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], arrays: list[int]) -> None:
        self.of, self.arguments, self.keywords, self.arrays = of, arguments, keywords, arrays

        def function(*given: Any) -> Any:
            return of.__wrapped__(*self.all(given), **keywords)

        function.__name__ = function.__qualname__ = of.__qualname__
        self.function = function

    def all(self, given: tuple[Any, ...]) -> list[Any]:
        """All arguments, with these in the places of Arrays."""
        arguments = list(self.arguments)
        for k, x in zip(self.arrays, given):
            arguments[k] = x
        return arguments

    def rule(self, rules: dict[int, Any], k: int, kind: str) -> Any:
        if k not in rules:
            raise NotImplementedError(
                f"{kind} of {self.of.__qualname__} wrt argnum {k} not defined; name it in def{kind.lower()}"
            )
        return rules[k]

    def reverse(self, g: Any, ans: Any, *given: Any) -> tuple[Any, ...]:
        makers = [self.rule(self.of.vjps, k, "VJP") for k in self.arrays]
        arguments = self.all(given)
        return tuple(
            _mapped(numpy.zeros_like, x) if maker is None else maker(ans, *arguments, **self.keywords)(g)
            for maker, x in zip(makers, given)
        )

    def forward(self, tangents: tuple[Any, ...], ans: Any, *given: Any) -> Any:
        arguments = self.all(given)
        total = None
        for k, g in zip(self.arrays, tangents):
            rule = self.rule(self.of.jvps, k, "JVP")
            if rule == "same":
                change = self.of.__wrapped__(*arguments[:k], g, *arguments[k + 1 :], **self.keywords)
            elif rule is None:
                continue
            else:
                change = rule(g, ans, *arguments, **self.keywords)
            total = change if total is None else _sum(total, change)
        return _mapped(numpy.zeros_like, ans) if total is None else total


def _sum(x: Any, y: Any) -> Any:
    """The sum of two nested structures of the same shape."""
    if isinstance(x, dict):
        return {key: _sum(one, y[key]) for key, one in x.items()}
    if isinstance(x, (list, tuple)):
        return type(x)(map(_sum, x, y))
    return x + y


def defvjp(fun: Any, *vjpmakers: Any, argnums: Iterable[int] | None = None) -> None:
    """Sets the rules of reverse mode.

    Args:
        fun: a function from `primitive`.
        vjpmakers: for each argument ``maker(ans, *args, **kwargs)``, which returns a function from the adjoint of the
            result to that of the argument; None if it is 0.
        argnums: the positions of these arguments (default: from the first on).
    """
    fun.vjps.update(zip(itertools.count() if argnums is None else argnums, vjpmakers))


def defjvp(fun: Any, *jvpfuns: Any, argnums: Iterable[int] | None = None) -> None:
    """Sets the rules of forward mode.

    Args:
        fun: a function from `primitive`.
        jvpfuns: for each argument ``rule(g, ans, *args, **kwargs)``, which returns the tangent of the result for
            the tangent g of the argument; None if it is 0, and "same" if fun is linear in the argument.
        argnums: the positions of these arguments (default: from the first on).
    """
    fun.jvps.update(zip(itertools.count() if argnums is None else argnums, jvpfuns))
