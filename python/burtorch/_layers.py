"""Layers composed in Python, whose calls append blocks to the current graph.

Promises the nodes of the built-in models: a GPT or a character model composed of these layers has the numbers of
the built-in one. Numbers are computed in Rust.
"""

from __future__ import annotations

import operator
from weakref import WeakKeyDictionary

from burtorch import _core
from burtorch._core import (
    Array,
    Parameters,
    Tensor,
    TokenIds,
    Value,
    Vector,
    add_ranges,
    affine,
    rms_norm,
    token_affine,
    token_attention,
    token_cross_entropy,
    token_embedding,
    token_layer_norm,
)
from burtorch._module import Module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Literal, overload

    Activation = Literal["identity", "tanh", "relu", "sigmoid"]

__all__ = ["Block", "CausalSelfAttention", "Embedding", "LayerNorm", "Linear", "RMSNorm", "Tokens"]


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

    def __repr__(self) -> str:
        return f"Tokens(n={self.n}, width={self.width})"


class Embedding(_core.RowsCall, Module):
    """A row of numbers for each symbol and, if ``positions`` is given, for each position.

    Args:
        params: the Parameters that receive the rows: (vocab, width), then (positions, width).
        vocab, width: numbers of symbols and of features in a row.
        positions: the largest number of tokens, or None for no rows of positions.
        name: if given, the tensors are called ``name.weight`` and ``name.positions``.

    Example:
        >>> import burtorch as bt
        >>> bt.nn.Embedding(bt.Parameters(dtype="float64"), 5, 3)([0, 2, 2]).shape
        (3, 3)
    """

    def __init__(
        self, params: Parameters, vocab: int, width: int, positions: int | None = None, name: str | None = None
    ) -> None:
        self.weight = params.tensor((vocab, width), name=_part(name, "weight"), init=("normal", 0.0, 0.5))
        self.positions = None
        if positions is not None:
            self.positions = params.tensor((positions, width), name=_part(name, "positions"), init=("normal", 0.0, 0.5))

    def __call__(self, tokens: Sequence[int] | TokenIds) -> Tokens:
        """The rows of ``tokens`` on the current graph, as activations.

        Raises IndexError for an unknown symbol, ValueError for no tokens or more than the positions.
        """
        return Tokens(token_embedding(self.weight, self.positions, tokens), len(tokens))

    def _rows(self, tokens: Sequence[int]) -> list[Tensor]:
        rows = list(map(operator.index, tokens))
        if any(row < 0 for row in rows):
            raise IndexError(f"tokens count from 0, found {min(rows)}")
        return [self.weight[row] for row in rows]

    def __getnewargs__(self) -> tuple[()]:
        return ()


class Linear(_core.DenseCall, Module):
    """``f(W x + b)`` of a Vector, of several joined, of each of several tokens, or of plain numbers.

    ``layer(x)`` returns Tokens for Tokens; a list for a list or buffer of numbers, without a graph; an array of rows
    for an array of rows; and for a Vector, or a list of Vectors, Values, numbers and rows of Tensors, a Vector on
    their graph. Raises ValueError for another number of inputs.

    Args:
        params: the Parameters that receive W (n_out, n_in) and then b (n_out,).
        n_in, n_out: numbers of inputs and outputs, both at least 1.
        bias: whether there is a b; it starts at 0.
        activation: None or "identity", "tanh", "relu", "sigmoid". W is initialised by He's rule for relu, else
            Glorot's.
        name: if given, the tensors are called ``name.weight`` and ``name.bias``.

    Raises:
        ValueError: a zero size, an unknown activation, a name in use; nothing is appended.

    Example:
        >>> import burtorch as bt
        >>> layer = bt.nn.Linear(bt.Parameters(dtype="float64"), 2, 1)
        >>> layer.weight.values[:] = [2.0, 3.0]
        >>> layer([1.0, 10.0])
        [32.0]
        >>> y = layer(bt.current_graph().vector([1.0, 10.0]))
        >>> y[0].backward()
        >>> list(y.data), list(layer.weight.grads)
        ([32.0], [1.0, 10.0])
    """

    def __init__(
        self,
        params: Parameters,
        n_in: int,
        n_out: int,
        bias: bool = True,
        activation: Activation | None = None,
        name: str | None = None,
    ) -> None:
        self._hold(_core.Linear(params, n_in, n_out, bias, activation, name))

    @classmethod
    def _around(cls, layer: _core.Linear) -> Linear:
        """The layer of a built-in model."""
        self = cls.__new__(cls)
        self._hold(layer)
        return self

    def _hold(self, layer: _core.Linear) -> None:
        if not isinstance(layer, _core.Linear):
            raise TypeError(f"expected a layer of the core, found {type(layer).__name__}")
        self._layer = layer
        self.weight, self.bias = layer.weight, layer.bias
        self._activation: Activation = layer.activation

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        self._forget()
        _OF_ROWS.pop(self, None)

    def __getnewargs__(self) -> tuple[()]:
        return ()

    @property
    def activation(self) -> Activation:
        """The name of f."""
        return self._activation

    @property
    def n_in(self) -> int:
        """The number of inputs."""
        return self._layer.n_in

    @property
    def n_out(self) -> int:
        """The number of outputs."""
        return self._layer.n_out

    def _apply(self, x: Any) -> Any:
        """A call. Later calls on a Vector use the tensors kept by the first and need no Python."""
        if type(x) is Vector:
            y = affine(self.weight, x, self.bias, self._activation)
            if "weight" in vars(self) and "bias" in vars(self):
                self._keep(self.weight, self.bias, self._activation)
            return y
        if isinstance(x, Array):
            return affine(self.weight, x, self.bias, self._activation)
        if isinstance(x, Tokens):
            f = self._activation
            y = token_affine([x.vector], x.n, self.weight, self.bias, f == "relu")
            return Tokens(y if f in ("relu", "identity") else getattr(y, f)(), x.n)
        if getattr(x, "ndim", 0) == 2:
            return of_rows(self, [self], x)
        if not (isinstance(x, (list, tuple)) and any(isinstance(p, _PARTS) for p in x)):
            return self._layer(x)
        return affine(self.weight, x, self.bias, self._activation)

    def __repr__(self) -> str:
        return repr(self._layer)


_PARTS = (Vector, Tensor)

# Traced once for each shape, until a layer's tensors are replaced.
_OF_ROWS: WeakKeyDictionary[Module, Any] = WeakKeyDictionary()


def traced(module: Module, body: Callable[[Any], Any]) -> Any:
    """The function of a module on plain arrays."""
    if module not in _OF_ROWS:
        from burtorch._function import function

        _OF_ROWS[module] = function(body)
    return _OF_ROWS[module]


def of_rows(module: Module, layers: Sequence[Linear], x: Any, table: Any = None) -> Any:
    """The results of these layers of a module, applied in turn to each row of an array, or to rows of a table."""
    parts = [(layer.weight, layer.bias, layer.activation) for layer in layers]

    def forward(x: Any) -> Any:
        if table is not None:
            x = table[x].reshape((x.shape[0], x.shape[1] * table.shape[1]))
        for weight, bias, activation in parts:
            x = affine(weight, x, bias, activation)
        return x

    return traced(module, forward)(x)


class LayerNorm(Module):
    """``weight * (x - mean) / sqrt(variance + eps) + bias`` over the features of each token.

    Example:
        >>> import burtorch as bt
        >>> params = bt.Parameters(dtype="float64")
        >>> with bt.Graph():
        ...     y = bt.nn.LayerNorm(params, 2, eps=0.0)(bt.nn.Embedding(params, 3, 2)([1]))
        >>> sorted(round(x, 9) for x in y.rows()[0])
        [-1.0, 1.0]
    """

    _settings = ("eps",)

    def __init__(self, params: Parameters, width: int, eps: float = 1e-5, name: str | None = None) -> None:
        self.weight = params.tensor(width, name=_part(name, "weight"), init=1.0)
        self.bias = params.tensor(width, name=_part(name, "bias"), init=0.0)
        self.eps = eps

    def __call__(self, x: Tokens) -> Tokens:
        """The normalised activations."""
        return Tokens(token_layer_norm(x.vector, x.n, self.weight, self.bias, self.eps), x.n)


class RMSNorm(Module):
    """``weight * x / sqrt(mean(x**2) + eps)`` over a Vector, the last axis of an array, or the features of each token.

    Example:
        >>> import burtorch as bt
        >>> params = bt.Parameters(dtype="float64")
        >>> norm = bt.nn.RMSNorm(params, 2, eps=0.0)
        >>> list(norm(bt.current_graph().vector([3.0, -3.0])).data), norm([4.0, 4.0])
        ([1.0, -1.0], [1.0, 1.0])
    """

    def __init__(self, params: Parameters, width: int, eps: float = 1e-5, name: str | None = None) -> None:
        self.weight = params.tensor(width, name=_part(name, "weight"), init=1.0)
        self.eps = eps

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        _OF_ROWS.pop(self, None)

    if TYPE_CHECKING:

        @overload
        def __call__(self, x: Tokens) -> Tokens: ...
        @overload
        def __call__(self, x: Vector) -> Vector: ...
        @overload
        def __call__(self, x: Sequence[float]) -> list[float]: ...
        @overload
        def __call__(self, x: Any) -> Any: ...

    def __call__(self, x: Any) -> Any:
        """The normalised activations: a list for a list of numbers, else of the kind of ``x``."""
        if isinstance(x, Tokens):
            return Tokens(rms_norm(x.vector, self.weight, self.eps, x.n), x.n)
        is_list = isinstance(x, (list, tuple))
        if is_list and any(isinstance(part, Array) for part in x):
            x = _core.array(x)
        if isinstance(x, (Vector, Array)):
            return rms_norm(x, self.weight, self.eps)
        import numpy

        weight, eps = self.weight, self.eps
        found = traced(self, lambda x: rms_norm(x, weight, eps))(numpy.asarray(x))
        return found.tolist() if is_list and isinstance(found, numpy.ndarray) else found


class CausalSelfAttention(Module):
    """Causal attention with several heads: a token attends to itself and earlier ones. Projections have no bias.

    Raises:
        ValueError: ``heads`` does not divide ``width``.
    """

    _settings = ("heads",)

    def __init__(self, params: Parameters, width: int, heads: int, name: str | None = None) -> None:
        if heads < 1 or width % heads:
            raise ValueError(f"the number of heads must divide the width {width}, found {heads}")
        self.query = Linear(params, width, width, bias=False, name=_part(name, "query"))
        self.key = Linear(params, width, width, bias=False, name=_part(name, "key"))
        self.value = Linear(params, width, width, bias=False, name=_part(name, "value"))
        self.output = Linear(params, width, width, name=_part(name, "output"))
        self.heads = heads

    def __call__(self, x: Tokens) -> Tokens:
        """The mixed activations."""
        q, k, v = (layer(x).vector for layer in (self.query, self.key, self.value))
        mixed: Tokens = self.output(Tokens(token_attention(q, k, v, x.n, self.heads), x.n))
        return mixed


class Block(Module):
    """One layer of a GPT: ``x + attention(norm1(x))``, followed by ``x + down(relu(up(norm2(x))))``.

    Example:
        >>> import burtorch as bt
        >>> params = bt.Parameters()
        >>> block = bt.nn.Block(params, 24, 6)
        >>> block.n_parameters
        7152
    """

    def __init__(
        self,
        params: Parameters,
        width: int,
        heads: int,
        expansion: int = 4,
        eps: float = 1e-5,
        name: str | None = None,
    ) -> None:
        self.norm1 = LayerNorm(params, width, eps, name=_part(name, "norm1"))
        self.attention = CausalSelfAttention(params, width, heads, name=_part(name, "attention"))
        self.norm2 = LayerNorm(params, width, eps, name=_part(name, "norm2"))
        self.up = Linear(params, width, expansion * width, activation="relu", name=_part(name, "up"))
        self.down = Linear(params, expansion * width, width, name=_part(name, "down"))

    def __call__(self, x: Tokens) -> Tokens:
        """The activations after this layer."""
        x = x + self.attention(self.norm1(x))
        y: Tokens = self.down(self.up(self.norm2(x)))
        return x + y


def _part(name: str | None, part: str) -> str | None:
    return None if name is None else f"{name}.{part}"
