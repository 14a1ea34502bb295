"""The built-in models in Python. Rust computes their numbers; a call appends the same blocks to the current graph.

Promises that a call has the numbers of the model's ``logits``, with a gradient.
"""

from __future__ import annotations

from burtorch import _core
from burtorch._core import Array, TokenIds
from burtorch._layers import Linear, Tokens, of_rows
from burtorch._module import Module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

__all__ = ["GPT", "MLP", "CharMLP"]


class CharMLP(_core.CharMLP, Module):
    __doc__ = _core.CharMLP.__doc__

    @property
    def hidden(self) -> Linear:  # type: ignore[override]  # the composable layer around Rust's
        """The hidden layer."""
        return Linear._around(super().hidden)

    @property
    def output(self) -> Linear:  # type: ignore[override]
        """The layer of logits."""
        return Linear._around(super().output)


class MLP(_core.MLP, Module):
    __doc__ = _core.MLP.__doc__

    def __call__(self, x: Any) -> Any:
        """The outputs: a list for numbers, an array for an array of rows, an Array for an Array, else a Vector."""
        is_of_rows = getattr(x, "ndim", 0) == 2 and not isinstance(x, Array)
        return of_rows(self, self.layers, x) if is_of_rows else super().__call__(x)

    @property
    def layers(self) -> list[Linear]:  # type: ignore[override]
        """The layers, first to last."""
        return [Linear._around(layer) for layer in super().layers]


class GPT(_core.GPT, Module):
    __doc__ = _core.GPT.__doc__

    def __call__(self, tokens: Sequence[int] | TokenIds) -> Tokens:
        """The logits of the symbol after each token, on the current graph.

        Raises IndexError for a token outside the vocabulary, ValueError for no tokens or more than the context.
        """
        return Tokens(self._append(tokens), len(tokens))
