"""The built-in models in Python. Rust computes their numbers; a call appends the same blocks to the current graph.

Promises that a call has the numbers of the model's ``logits``, with a gradient; for an array of samples, numbers alone.
"""

from __future__ import annotations

from burtorch import _core
from burtorch._core import Array, TokenIds
from burtorch._layers import Linear, as_rows, of_rows
from burtorch._module import Module
from burtorch._tokens import Tokens

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

__all__ = ["GPT", "MLP", "CharMLP"]


def tokens_of_batch(tokens: Any, vocab: int) -> Any:
    """Token ids with one sample per row, or None for one sample; raises IndexError for one outside the vocabulary."""
    tokens = as_rows(tokens)
    if getattr(tokens, "ndim", 0) != 2:
        return None
    import numpy

    ids = numpy.asarray(tokens)
    if ids.dtype.kind not in "iu":
        raise TypeError(f"tokens must be integers, found {ids.dtype}")
    outside = ids[(ids < 0) | (ids >= vocab)]
    if outside.size:
        raise IndexError(f"token {outside[0]} is out of range: expected 0 to {vocab - 1}")
    return ids.astype("int64", copy=False)


class CharMLP(_core.CharMLP, Module):
    __doc__ = _core.CharMLP.__doc__

    def __call__(self, tokens: Any) -> Any:
        """The logits of the symbol after ``tokens``: a Vector on the current graph; for an array or a list with one
        context per row, an array with one row of logits for each; for an Array of one context or of several, an Array.

        Raises IndexError for a token outside the vocabulary, ValueError for another number of tokens.
        """
        ids = tokens if isinstance(tokens, Array) else tokens_of_batch(tokens, self.vocab)
        if ids is None:
            return super().__call__(tokens)
        if ids.ndim == 1:
            return self(ids.reshape((1, -1)))[0]
        if ids.shape[1] != self.context:
            raise ValueError(f"a context holds {self.context} tokens, found {ids.shape[1]}")
        return of_rows(self, [self.hidden, self.output], ids, self.embedding)

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
        """The outputs: a list for numbers, an array for an array or a list of rows, an Array for an Array, else
        a Vector."""
        x = as_rows(x)
        is_of_rows = getattr(x, "ndim", 0) > 1 and not isinstance(x, Array)
        return of_rows(self, self.layers, x) if is_of_rows else super().__call__(x)

    @property
    def layers(self) -> list[Linear]:  # type: ignore[override]
        """The layers, first to last."""
        return [Linear._around(layer) for layer in super().layers]


class GPT(_core.GPT, Module):
    __doc__ = _core.GPT.__doc__

    def __call__(self, tokens: Sequence[int] | TokenIds) -> Any:
        """The logits of the symbol after each token: Tokens on the current graph; for an array or a list with one text
        per row, an array of shape (texts, tokens, vocab).

        Raises IndexError for a token outside the vocabulary, ValueError for no tokens or more than the context.
        """
        ids = tokens_of_batch(tokens, self.vocab)
        if ids is None:
            return Tokens(self._append(tokens), len(tokens))
        import numpy

        dtype = numpy.asarray(self.params.values).dtype
        logits = [self.logits(row) for row in ids]
        return numpy.array(logits, dtype).reshape(len(ids), ids.shape[1], self.vocab)
