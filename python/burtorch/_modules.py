"""Layers that are composed in Python: their calls append blocks to the current graph.

A layer is a :class:`Module`: a plain class whose attributes are Tensors, other modules, or lists of modules. Nothing is
registered; ``named_parameters()`` looks at the attributes.
"""

from __future__ import annotations

from array import array

from burtorch._core import (
    Parameters,
    Tensor,
    Value,
    Vector,
    add_ranges,
    affine,
    token_affine,
    token_attention,
    token_cross_entropy,
    token_embedding,
    token_layer_norm,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from os import PathLike
    from typing import Any

__all__ = ["Block", "CausalSelfAttention", "Dense", "Embedding", "LayerNorm", "Module", "Tokens"]


class Module:
    """What has parameters: its own Tensors, and those of the modules among its attributes, in the order of attributes.

    Example:
        >>> import burtorch as bt
        >>> class Net(bt.nn.Module):
        ...     def __init__(self, params):
        ...         self.inner = bt.nn.Dense(params, 2, 3)
        ...         self.outer = bt.nn.Dense(params, 3, 1)
        ...     def __call__(self, x):
        ...         return self.outer(self.inner(x).tanh())
        >>> net = Net(bt.Parameters(dtype="float64"))
        >>> [name for name, _ in net.named_parameters()]
        ['inner.weight', 'inner.bias', 'outer.weight', 'outer.bias']
        >>> len(net(bt.current_graph().vector([1.0, 2.0])))
        1
    """

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Dotted names and Tensors, each Tensor once."""
        seen: set[tuple[int, tuple[int, int]]] = set()
        for name, tensor in _named(self):
            key = (id(tensor.params), tensor.span)
            if key not in seen:
                seen.add(key)
                yield name, tensor

    def parameters(self) -> Iterator[Tensor]:
        """The Tensors."""
        for _, tensor in self.named_parameters():
            yield tensor

    @property
    def params(self) -> Parameters:
        """The Parameters that hold all of its Tensors.

        Raises:
            ValueError: it has no Tensors, or they are in different Parameters.
        """
        homes = {id(tensor.params): tensor.params for tensor in self.parameters()}
        if len(homes) != 1:
            raise ValueError(f"expected Tensors of one Parameters, found {len(homes)}")
        return next(iter(homes.values()))

    @property
    def n_parameters(self) -> int:
        """How many numbers its Tensors have."""
        return sum(_size(tensor) for tensor in self.parameters())

    def state_dict(self) -> dict[str, array[float]]:
        """A copy of the values of each Tensor, flat, by name."""
        return {name: array(_code(tensor), tensor.values) for name, tensor in self.named_parameters()}

    def load_state_dict(self, state: Mapping[str, Sequence[float]]) -> None:
        """Sets the values of all Tensors from what ``state_dict()`` gave.

        Raises:
            ValueError: a name is missing or unknown, or a length differs; nothing is changed.
        """
        tensors = dict(self.named_parameters())
        if tensors.keys() != state.keys():
            missing, unknown = sorted(tensors.keys() - state.keys()), sorted(state.keys() - tensors.keys())
            raise ValueError(f"the state lacks {missing} and has unknown {unknown}")
        for name, tensor in tensors.items():
            if len(state[name]) != _size(tensor):
                raise ValueError(f"{name} holds {_size(tensor)} numbers, found {len(state[name])}")
        numbers = {name: [float(x) for x in state[name]] for name in tensors}
        for name, tensor in tensors.items():
            tensor.values[:] = numbers[name]

    def save(self, path: str | PathLike[str]) -> None:
        """Save the Tensors as a safetensors file, by their names in ``named_parameters()``, whole or not at all.

        Raises:
            ValueError: the Tensors are in different Parameters.
            OSError: the system refuses; the old file is still there then.

        Example:
            >>> import burtorch as bt, os, tempfile
            >>> path = os.path.join(tempfile.mkdtemp(), "m.safetensors")
            >>> block = bt.nn.Block(bt.Parameters(seed=1), 24, 6)
            >>> block.save(path)
            >>> again = bt.nn.Block(bt.Parameters(seed=2), 24, 6)
            >>> again.load(path)
            >>> again.state_dict() == block.state_dict()
            True
        """
        _models().save(self, path)

    def load(self, path: str | PathLike[str]) -> None:
        """Overwrite the values by those of a file that has these Tensors, by name, shape and dtype, and no others.

        Raises:
            FormatError: anything else, with a ``reason``; nothing has changed then.
            OSError: the file cannot be read.
        """
        _models().load(self, path)


def _models() -> Any:
    """Where files of models are known, which needs the modules to be there."""
    from burtorch import _models

    return _models


def _size(tensor: Tensor) -> int:
    start, stop = tensor.span
    return stop - start


def _code(tensor: Tensor) -> str:
    return "f" if tensor.params.dtype == "float32" else "d"


def _named(module: Module) -> Iterator[tuple[str, Tensor]]:
    """Attributes depth first, without recursion."""
    todo: list[tuple[str, object]] = [("", module)]
    while todo:
        name, found = todo.pop()
        if isinstance(found, Tensor):
            yield name, found
            continue
        parts: list[tuple[str, object]] = []
        if isinstance(found, Module):
            parts = [(key, value) for key, value in vars(found).items() if not key.startswith("_")]
        elif isinstance(found, (list, tuple)):
            parts = [(str(k), value) for k, value in enumerate(found)]
        prefix = f"{name}." if name else ""
        todo.extend((prefix + key, value) for key, value in reversed(parts))


class Tokens:
    """Activations of several tokens: ``width`` features of each of ``n``, in a Vector in groups of 8 tokens.

    Feature f of token t is element ``(t // 8 * width + f) * 8 + t % 8``; places after the last token are padding.

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
        """Feature ``feature`` of token ``token``, as a Value. Raises IndexError where there is none."""
        if not (0 <= token < self.n and 0 <= feature < self.width):
            raise IndexError(f"no feature {feature} of token {token} in activations of shape {self.shape}")
        return self.vector[(token // 8 * self.width + feature) * 8 + token % 8]

    def rows(self) -> list[list[float]]:
        """A copy of the numbers, token by token."""
        numbers, width = self.vector.data, self.width
        return [[float(numbers[(t // 8 * width + f) * 8 + t % 8]) for f in range(width)] for t in range(self.n)]

    def cross_entropy(self, classes: Sequence[int]) -> Value:
        """The mean over tokens of ``log(sum exp z) - z[class]``.

        Raises ValueError for another number of classes, IndexError for one that is out of range.
        """
        return token_cross_entropy(self.vector, self.n, classes)

    def __repr__(self) -> str:
        return f"Tokens(n={self.n}, width={self.width})"


class Embedding(Module):
    """A row of numbers for each symbol, and for each position where ``positions`` is given.

    Args:
        params: where the rows are appended: (vocab, width), then (positions, width).
        vocab, width: how many symbols, numbers of a row.
        positions: the most tokens there can be, or None for no rows of positions.
        name: where given, the tensors are called ``name.weight`` and ``name.positions``.

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

    def __call__(self, tokens: Sequence[int]) -> Tokens:
        """The rows of ``tokens`` on the current graph, as activations.

        Raises IndexError for an unknown symbol, ValueError for more tokens than positions, or none.
        """
        return Tokens(token_embedding(self.weight, self.positions, tokens), len(tokens))

    def rows(self, tokens: Sequence[int]) -> list[Tensor]:
        """The rows themselves: operands that :class:`Dense` takes together without copying."""
        return [self.weight[token] for token in tokens]


class Dense(Module):
    """``W x + b`` on a Vector, on a list of Vectors and rows taken together, or on each of several tokens.

    Args:
        params: where W (n_out, n_in) and then b (n_out,) are appended.
        n_in, n_out: its shape.
        bias: whether there is a b, which starts at 0.
        relu: whether outputs are cut off at 0, for tokens within the same block.
        name: where given, the tensors are called ``name.weight`` and ``name.bias``.

    Raises:
        ValueError: an input of another size.

    Example:
        >>> import burtorch as bt
        >>> layer = bt.nn.Dense(bt.Parameters(dtype="float64"), 2, 1, bias=False)
        >>> layer.weight.values[:] = [2.0, 3.0]
        >>> list(layer(bt.current_graph().vector([1.0, 10.0])).data)
        [32.0]
    """

    def __init__(
        self,
        params: Parameters,
        n_in: int,
        n_out: int,
        bias: bool = True,
        relu: bool = False,
        name: str | None = None,
    ) -> None:
        self.weight = params.tensor((n_out, n_in), name=_part(name, "weight"), init="he" if relu else "glorot")
        self.bias = params.tensor(n_out, name=_part(name, "bias"), init=0.0) if bias else None
        self._relu = relu

    def __call__(self, x: Any) -> Any:
        """The outputs: Tokens for Tokens, else a Vector."""
        if isinstance(x, Tokens):
            return Tokens(token_affine([x.vector], x.n, self.weight, self.bias, self._relu), x.n)
        y = affine(self.weight, x, self.bias)
        return y.relu() if self._relu else y


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

    def __init__(self, params: Parameters, width: int, eps: float = 1e-5, name: str | None = None) -> None:
        self.weight = params.tensor(width, name=_part(name, "weight"), init=1.0)
        self.bias = params.tensor(width, name=_part(name, "bias"), init=0.0)
        self.eps = eps

    def __call__(self, x: Tokens) -> Tokens:
        """The normalised activations."""
        return Tokens(token_layer_norm(x.vector, x.n, self.weight, self.bias, self.eps), x.n)


class CausalSelfAttention(Module):
    """Each token mixes values of the tokens up to its own, by several heads; queries, keys, values have no bias.

    Raises:
        ValueError: ``heads`` does not divide ``width``.
    """

    def __init__(self, params: Parameters, width: int, heads: int, name: str | None = None) -> None:
        if heads < 1 or width % heads:
            raise ValueError(f"the number of heads must divide the width {width}, found {heads}")
        self.query = Dense(params, width, width, bias=False, name=_part(name, "query"))
        self.key = Dense(params, width, width, bias=False, name=_part(name, "key"))
        self.value = Dense(params, width, width, bias=False, name=_part(name, "value"))
        self.output = Dense(params, width, width, name=_part(name, "output"))
        self.heads = heads

    def __call__(self, x: Tokens) -> Tokens:
        """The mixed activations."""
        q, k, v = (layer(x).vector for layer in (self.query, self.key, self.value))
        mixed: Tokens = self.output(Tokens(token_attention(q, k, v, x.n, self.heads), x.n))
        return mixed


class Block(Module):
    """One layer of a GPT: ``x + attention(norm1(x))``, and to that ``x + down(relu(up(norm2(x))))``.

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
        self.up = Dense(params, width, expansion * width, relu=True, name=_part(name, "up"))
        self.down = Dense(params, expansion * width, width, name=_part(name, "down"))

    def __call__(self, x: Tokens) -> Tokens:
        """The activations after this layer."""
        x = x + self.attention(self.norm1(x))
        y: Tokens = self.down(self.up(self.norm2(x)))
        return x + y


def _part(name: str | None, part: str) -> str | None:
    return None if name is None else f"{name}.{part}"
