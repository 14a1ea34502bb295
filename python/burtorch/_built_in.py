"""The built-in models in Python. Rust computes their numbers; a call appends the same blocks to the current graph.

Promises that a call has the numbers of the model's ``logits``, with a gradient; for an array of samples, numbers alone.
"""

from __future__ import annotations

from burtorch import _core
from burtorch._core import Array, affine
from burtorch._layers import Linear, as_rows, embedded, of_rows
from burtorch._module import Module
from burtorch._tokens import Tokens
from burtorch._transformer import attention_of_heads, layer_norm

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from burtorch._layers import Activation

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

    def __getitem__(self, k: int) -> Linear:
        """The layer ``k``, also counted from the end."""
        return self.layers[k]


class GPT(_core.GPT, Module):
    __doc__ = _core.GPT.__doc__

    def __call__(self, tokens: Any) -> Any:
        """The logits of the symbol after each token: Tokens on the current graph; for an array or a list with one text
        per row, an array of shape (texts, tokens, vocab); an Array for an Array, and in functions traced with Arrays.

        Raises IndexError for a token outside the vocabulary, ValueError for no tokens or more than the context.
        """
        if isinstance(tokens, Array):
            return self._of_arrays(tokens)
        if _core.array_is_traced():
            return self._of_arrays(_core.array(tokens if hasattr(tokens, "dtype") else list(tokens)))
        ids = tokens_of_batch(tokens, self.vocab)
        if ids is None:
            return Tokens(self._append(tokens), len(tokens))
        import numpy

        dtype = numpy.asarray(self.params.values).dtype
        logits = [self.logits(row) for row in ids]
        return numpy.array(logits, dtype).reshape(len(ids), ids.shape[1], self.vocab)

    def _of_arrays(self, tokens: Array) -> Array:
        """The logits by operations on Arrays, in the order of the core's layers."""
        if tokens.ndim == 0 or tokens.shape[-1] == 0:
            raise ValueError("a GPT takes at least one token")
        tensors = dict(self.named_tensors())

        def dense(x: Any, name: str, activation: Activation | None = None) -> Any:
            return affine(tensors[f"{name}.weight"], x, tensors.get(f"{name}.bias"), activation)

        def norm(x: Any, name: str) -> Any:
            return layer_norm(x, tensors[f"{name}.weight"], tensors[f"{name}.bias"], self.eps)

        x: Any = embedded(tensors["tokens"], tensors["positions"], tokens)
        for k in range(self.layers):
            block = f"blocks.{k}"
            y = norm(x, f"{block}.norm1")
            q, key, v = (dense(y, f"{block}.attention.{name}") for name in ("query", "key", "value"))
            x = x + dense(attention_of_heads(q, key, v, self.heads), f"{block}.attention.output")
            x = x + dense(dense(norm(x, f"{block}.norm2"), f"{block}.up", "relu"), f"{block}.down")
        if self.final_norm:
            x = norm(x, "norm")
        logits: Array = dense(x, "head")
        return logits
