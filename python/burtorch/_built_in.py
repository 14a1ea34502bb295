"""The built-in models as Python sees them: Rust computes, and calls append the same blocks to the current graph.

Promises that a call has the numbers of the model's ``logits`` and a gradient.
"""

from __future__ import annotations

from burtorch import _core
from burtorch._core import (
    Symbols,
    Tensor,
    Vector,
    add_ranges,
    gather,
    token_affine,
    token_attention,
    token_embedding,
    token_layer_norm,
)
from burtorch._layers import Linear, Tokens
from burtorch._module import Module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

__all__ = ["GPT", "MLP", "CharMLP"]


class CharMLP(_core.CharMLP, Module):
    __doc__ = _core.CharMLP.__doc__

    @property
    def hidden(self) -> Linear:  # type: ignore[override]  # the composable layer around the one of Rust
        """The hidden layer."""
        return Linear._around(super().hidden)

    @property
    def output(self) -> Linear:  # type: ignore[override]
        """The layer of logits."""
        return Linear._around(super().output)

    def named_tensors(self) -> list[tuple[str, Tensor]]:
        """Names and Tensors, in their order in the parameters."""
        tensors = [("embedding", self.embedding)]
        for name, layer in (("hidden", self.hidden), ("output", self.output)):
            tensors += [(f"{name}.{part}", tensor) for part, tensor in layer.named_parameters()]
        return tensors

    def __call__(self, tokens: Sequence[int] | Symbols) -> Vector:
        """The logits of the symbol after ``tokens`` on the current graph; Symbols of an Oracle have a context per lane.

        Raises IndexError for a token outside the vocabulary, ValueError for another number of them.
        """
        if len(tokens) != self.context:
            raise ValueError(f"a context holds {self.context} tokens, found {len(tokens)}")
        rows: Any = gather(self.embedding, tokens)
        logits: Vector = self.output(self.hidden(rows))
        return logits


class MLP(_core.MLP, Module):
    __doc__ = _core.MLP.__doc__

    @property
    def layers(self) -> list[Linear]:  # type: ignore[override]
        """The layers, first to last."""
        return [Linear._around(layer) for layer in super().layers]

    def named_tensors(self) -> list[tuple[str, Tensor]]:
        """Names and Tensors, in their order in the parameters."""
        layers = enumerate(self.layers)
        return [(f"{k}.{part}", tensor) for k, layer in layers for part, tensor in layer.named_parameters()]


class GPT(_core.GPT, Module):
    __doc__ = _core.GPT.__doc__

    def __call__(self, tokens: Sequence[int] | Symbols) -> Tokens:
        """The logits of the symbol after each token, on the current graph: the blocks of :class:`Block` and its parts.

        Raises IndexError for a token outside the vocabulary, ValueError for more tokens than the context, or none.
        """
        tensors, n = dict(self.named_tensors()), len(tokens)

        def affine(name: str, x: Vector, relu: bool = False) -> Vector:
            return token_affine([x], n, tensors[f"{name}.weight"], tensors.get(f"{name}.bias"), relu)

        def norm(name: str, x: Vector) -> Vector:
            return token_layer_norm(x, n, tensors[f"{name}.weight"], tensors[f"{name}.bias"], self.eps)

        x = token_embedding(tensors["tokens"], tensors["positions"], tokens)
        for k in range(self.layers):
            block = f"blocks.{k}"
            y = norm(f"{block}.norm1", x)
            q, key, v = (affine(f"{block}.attention.{part}", y) for part in ("query", "key", "value"))
            x = add_ranges(x, affine(f"{block}.attention.output", token_attention(q, key, v, n, self.heads)))
            y = affine(f"{block}.up", norm(f"{block}.norm2", x), relu=True)
            x = add_ranges(x, affine(f"{block}.down", y))
        if "norm.weight" in tensors:
            x = norm("norm", x)
        return Tokens(affine("head", x), n)
