"""Layers composed in Python, whose calls append blocks to the current graph.

Promises the nodes of the built-in models: a character model composed of these layers has the numbers of the
built-in one. Numbers are computed in Rust.
"""

from __future__ import annotations

import operator
from weakref import WeakKeyDictionary

from burtorch import _core
from burtorch._core import Array, Parameters, Tensor, TokenIds, Vector, affine, token_affine, token_embedding
from burtorch._module import Module
from burtorch._pickling import reduce_ex
from burtorch._tokens import Tokens

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Literal, overload

    Activation = Literal["identity", "tanh", "relu", "sigmoid"]

__all__ = ["Embedding", "Linear"]


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
        self.weight = params.tensor((vocab, width), name=part_name(name, "weight"), init=("normal", 0.0, 0.5))
        self.positions = None
        if positions is not None:
            self.positions = params.tensor(
                (positions, width), name=part_name(name, "positions"), init=("normal", 0.0, 0.5)
            )

    def __repr__(self) -> str:
        sizes = ", ".join(map(str, self.weight.shape))
        positions = "" if self.positions is None else f", positions={len(self.positions)}"
        return f"{type(self).__name__}({sizes}{positions})"

    if TYPE_CHECKING:

        @overload
        def __call__(self, tokens: Array) -> Array: ...
        @overload
        def __call__(self, tokens: Sequence[int] | TokenIds) -> Tokens: ...
        @overload
        def __call__(self, tokens: Any) -> Any: ...

    def __call__(self, tokens: Any) -> Any:
        """The rows of ``tokens`` on the current graph, as activations; an Array of shape (..., n, width) for one of
        integers, for an array of several texts, and in functions that are traced with Arrays.

        Raises IndexError for an unknown symbol, ValueError for no tokens or more than the positions.
        """
        if not isinstance(tokens, Array) and is_of_arrays(tokens):
            tokens = _core.array(tokens if hasattr(tokens, "dtype") else list(tokens))
        if isinstance(tokens, Array):
            return embedded(self.weight, self.positions, tokens)
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

    ``layer(x)`` returns Tokens for Tokens; a list for a list or buffer of numbers, without a graph; an array for an
    array of two or more axes, the last of which are the inputs; and for a Vector, or a list of Vectors, Values,
    numbers and rows of Tensors, a Vector on their graph. Raises ValueError for another number of inputs.

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

    _not_parts = ("_layer",)  # its Tensors at first are the weight and the bias, which may be replaced

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
        if getattr(x := as_rows(x), "ndim", 0) > 1:
            return of_rows(self, [self], x)
        if not (isinstance(x, (list, tuple)) and any(isinstance(p, _PARTS) for p in x)):
            return self._layer(x)
        return affine(self.weight, x, self.bias, self._activation)

    def __repr__(self) -> str:
        return repr(self._layer)


_core.Linear.__reduce_ex__ = reduce_ex  # type: ignore[method-assign]

_PARTS = (Vector, Tensor)

# Traced once for each shape, until a layer's tensors are replaced.
_OF_ROWS: WeakKeyDictionary[Module, Any] = WeakKeyDictionary()


def forget(module: Module) -> None:
    """Forgets the function of a module whose tensors are replaced."""
    _OF_ROWS.pop(module, None)


def traced(module: Module, body: Callable[[Any], Any]) -> Any:
    """The function of a module on plain arrays."""
    if module not in _OF_ROWS:
        from burtorch._function import function

        _OF_ROWS[module] = function(body)
    return _OF_ROWS[module]


def as_rows(x: Any) -> Any:
    """A list or tuple of rows of numbers as an array with one sample per row; anything else unchanged."""
    if not (isinstance(x, (list, tuple)) and x):
        return x
    first = x[0]
    if not (isinstance(first, (list, tuple)) or (hasattr(first, "__array_interface__") and first.ndim == 1)):
        return x
    import numpy

    try:
        found = numpy.asarray(x)
    except (TypeError, ValueError):  # rows of Arrays, or of unequal length
        return x
    return found if found.ndim == 2 and found.dtype.kind in "biuf" else x


def of_rows(module: Module, layers: Sequence[Linear], x: Any, table: Any = None) -> Any:
    """The results of these layers of a module, applied in turn to the last axis of an array, or to rows of a table."""
    parts = [(layer.weight, layer.bias, layer.activation) for layer in layers]

    def forward(x: Any) -> Any:
        if table is not None:
            x = rows_of(table, x).reshape((x.shape[0], x.shape[1] * table.shape[1]))
        for weight, bias, activation in parts:
            x = affine(weight, x, bias, activation)
        return x

    return traced(module, forward)(x)


def rows_of(table: Tensor, tokens: Array) -> Array:
    """Rows of a table by ids, which count from 0 alone."""
    if tokens.dtype.kind not in "iu":
        raise IndexError(f"tokens must be integers, found {tokens.dtype}")
    rows: Array = _core.gather(_core.array(table), tokens)
    return rows


def is_of_arrays(tokens: Any) -> bool:
    """Whether plain token ids stand for an Array: those of several texts, and all in a function traced with Arrays."""
    return _core.array_is_traced() or getattr(tokens, "ndim", 1) > 1


def embedded(table: Tensor, positions: Tensor | None, tokens: Array) -> Array:
    """Rows of a table, and of positions along the last axis of the tokens."""
    rows = rows_of(table, tokens)
    if positions is None or tokens.ndim == 0:
        return rows
    n = tokens.shape[-1]
    if n > positions.shape[0]:
        raise ValueError(f"expected at most {positions.shape[0]} tokens, found {n}")
    return rows + _core.array(positions)[:n]


def part_name(name: str | None, part: str) -> str | None:
    return None if name is None else f"{name}.{part}"
