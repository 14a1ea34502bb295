"""Activations of several tokens."""

from __future__ import annotations

from burtorch._core import TokenIds, Value, Vector, add_ranges, token_cross_entropy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

__all__ = ["Tokens"]


class Tokens:
    """Activations of ``n`` tokens with ``width`` features each, in a Vector in groups of 8 tokens.

    Feature f of token t is element ``(t // 8 * width + f) * 8 + t % 8``; elements after the last token are padding.

    Example:
        >>> import burtorch as bt
        >>> table = bt.nn.Embedding(bt.Parameters(dtype="float64"), 5, 3, positions=4)
        >>> x = table([1, 4])
        >>> (x + x).shape
        (2, 3)
        >>> len(x.rows()[1])
        3
    """

    __slots__ = ("n", "vector")

    def __init__(self, vector: Vector, n: int) -> None:
        self.vector = vector
        self.n = n

    @property
    def width(self) -> int:
        """Features of a token."""
        return len(self.vector) // (-(-self.n // 8) * 8)

    @property
    def shape(self) -> tuple[int, int]:
        """``(n, width)``."""
        return self.n, self.width

    def __add__(self, other: Tokens) -> Tokens:
        """The sum, feature by feature, as one block.

        Raises ValueError for another number of tokens or features.
        """
        if not isinstance(other, Tokens):
            return NotImplemented
        if self.n != other.n:
            raise ValueError(f"cannot add activations of {self.n} and of {other.n} tokens")
        return Tokens(add_ranges(self.vector, other.vector), self.n)

    def at(self, token: int, feature: int) -> Value:
        """Feature ``feature`` of token ``token``, as a Value. Raises IndexError if it does not exist."""
        if not (0 <= token < self.n and 0 <= feature < self.width):
            raise IndexError(f"no feature {feature} of token {token} in activations of shape {self.shape}")
        return self.vector[(token // 8 * self.width + feature) * 8 + token % 8]

    def rows(self) -> list[list[float]]:
        """A copy of the numbers, token by token."""
        numbers, width = self.vector.data, self.width
        return [[float(numbers[(t // 8 * width + f) * 8 + t % 8]) for f in range(width)] for t in range(self.n)]

    def cross_entropy(self, classes: Sequence[int] | TokenIds) -> Value:
        """The mean over tokens of ``log(sum exp z) - z[class]``.

        Raises ValueError for another number of classes, IndexError for a class out of range.
        """
        return token_cross_entropy(self.vector, self.n, classes)

    __array_ufunc__ = None

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        raise TypeError(
            f"{function.__name__} does not take Tokens; take their features by at(), or call layers with an Array"
        )

    def __repr__(self) -> str:
        return f"Tokens(n={self.n}, width={self.width})"
