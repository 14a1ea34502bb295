"""Layers of a transformer: norms, attention and their block.

Promises the nodes of the built-in GPT for Tokens, and the same functions of Arrays. Numbers are computed in Rust.
"""

from __future__ import annotations

from burtorch import _core
from burtorch._core import Array, Parameters, Tensor, Vector, rms_norm, token_attention, token_layer_norm
from burtorch._layers import Linear, forget, part_name, traced
from burtorch._module import Module
from burtorch._tokens import Tokens

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, overload

__all__ = ["Block", "CausalSelfAttention", "LayerNorm", "RMSNorm"]


class _Norm(Module):
    """A layer that acts on the features of Tokens, of a Vector, or along the last axis of an array."""

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        forget(self)

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
            return Tokens(self._of_tokens(x), x.n)
        is_list = isinstance(x, (list, tuple))
        if is_list and any(isinstance(part, Array) for part in x):
            x = _core.array(x)
        if isinstance(x, (Vector, Array)):
            return self._body()(x)
        import numpy

        found = traced(self, self._body())(numpy.asarray(x))
        return found.tolist() if is_list and isinstance(found, numpy.ndarray) else found

    weight: Tensor
    eps: float

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.weight)}, eps={self.eps!r})"

    def _of_tokens(self, x: Tokens) -> Vector:
        raise NotImplementedError

    def _body(self) -> Callable[[Any], Any]:
        raise NotImplementedError


def checked_eps(eps: float) -> float:
    """``eps``, unless it is negative or not finite, which is a ValueError: roots of negative numbers are NaN."""
    if not 0.0 <= eps < float("inf"):
        raise ValueError(f"eps must be finite and at least 0, found {eps}")
    return eps


class LayerNorm(_Norm):
    """``weight * (x - mean) / sqrt(variance + eps) + bias`` over a Vector, the last axis of an array, or the features
    of each token.

    Args:
        params: the Parameters that receive the weights and the biases.
        width: the number of features.
        eps: added to the variance; a negative one is a ValueError.
        name: if given, the tensors are called ``name.weight`` and ``name.bias``.

    Example:
        >>> import burtorch as bt
        >>> params = bt.Parameters(dtype="float64")
        >>> norm = bt.nn.LayerNorm(params, 2, eps=0.0)
        >>> with bt.Graph():
        ...     y = norm(bt.nn.Embedding(params, 3, 2)([1]))
        >>> sorted(round(x, 9) for x in y.rows()[0]), norm([4.0, 2.0])
        ([-1.0, 1.0], [1.0, -1.0])
    """

    _settings = ("eps",)

    def __init__(self, params: Parameters, width: int, eps: float = 1e-5, name: str | None = None) -> None:
        self.eps = checked_eps(eps)
        self.weight = params.tensor(width, name=part_name(name, "weight"), init=1.0)
        self.bias = params.tensor(width, name=part_name(name, "bias"), init=0.0)

    def _of_tokens(self, x: Tokens) -> Vector:
        return token_layer_norm(x.vector, x.n, self.weight, self.bias, self.eps)

    def _body(self) -> Callable[[Any], Any]:
        weight, bias, eps = self.weight, self.bias, self.eps
        return lambda x: layer_norm(x, weight, bias, eps)


def check_features(x: Any, weight: Tensor) -> None:
    """Refuses a Vector or an array with another number of features than a layer."""
    n = len(x) if isinstance(x, Vector) else x.shape[-1] if x.ndim else 0
    if n != len(weight):
        raise ValueError(f"expected {len(weight)} features, found {n}")


def layer_norm(x: Any, weight: Tensor, bias: Tensor, eps: float) -> Any:
    """A Vector normalised, or an array along its last axis."""
    check_features(x, weight)
    if isinstance(x, Vector):
        centred = x - _core.mean(x)
        return centred / (_core.mean(centred * centred) + eps) ** 0.5 * weight + bias
    return _core.array_norm(x, -1, eps, True) * weight + bias


class RMSNorm(_Norm):
    """``weight * x / sqrt(mean(x**2) + eps)`` over a Vector, the last axis of an array, or the features of each token.

    Args:
        params: the Parameters that receive the weights.
        width: the number of features.
        eps: added to the mean of squares; a negative one is a ValueError.
        name: if given, the tensor is called ``name.weight``.

    Example:
        >>> import burtorch as bt
        >>> params = bt.Parameters(dtype="float64")
        >>> norm = bt.nn.RMSNorm(params, 2, eps=0.0)
        >>> list(norm(bt.current_graph().vector([3.0, -3.0])).data), norm([4.0, 4.0])
        ([1.0, -1.0], [1.0, 1.0])
    """

    _settings = ("eps",)

    def __init__(self, params: Parameters, width: int, eps: float = 1e-5, name: str | None = None) -> None:
        self.eps = checked_eps(eps)
        self.weight = params.tensor(width, name=part_name(name, "weight"), init=1.0)

    def _of_tokens(self, x: Tokens) -> Vector:
        return rms_norm(x.vector, self.weight, self.eps, x.n)

    def _body(self) -> Callable[[Any], Any]:
        weight, eps = self.weight, self.eps

        def normalised(x: Any) -> Any:
            check_features(x, weight)
            return rms_norm(x, weight, eps)

        return normalised


class CausalSelfAttention(Module):
    """Causal attention with several heads: a token attends to itself and earlier ones. Projections have no bias.

    Takes Tokens, or an Array of shape (..., tokens, width).

    Args:
        params: the Parameters that receive the weights.
        width: the number of features of a token.
        heads: the number of heads, each of width / heads features.
        name: if given, the layers are called ``name.query``, ``name.key``, ``name.value`` and ``name.output``.

    Raises:
        ValueError: ``heads`` does not divide ``width``.
    """

    _settings = ("heads",)

    def __init__(self, params: Parameters, width: int, heads: int, name: str | None = None) -> None:
        if heads < 1 or width % heads:
            raise ValueError(f"the number of heads must divide the width {width}, found {heads}")
        self.query = Linear(params, width, width, bias=False, name=part_name(name, "query"))
        self.key = Linear(params, width, width, bias=False, name=part_name(name, "key"))
        self.value = Linear(params, width, width, bias=False, name=part_name(name, "value"))
        self.output = Linear(params, width, width, name=part_name(name, "output"))
        self.heads = heads

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.query.n_in}, heads={self.heads})"

    if TYPE_CHECKING:

        @overload
        def __call__(self, x: Tokens) -> Tokens: ...
        @overload
        def __call__(self, x: Array) -> Array: ...
        @overload
        def __call__(self, x: Any) -> Any: ...

    def __call__(self, x: Any) -> Any:
        """The mixed activations; an array for an array."""
        if not isinstance(x, (Tokens, Array)):
            return of_arrays(self, x)
        q, k, v = (layer(x) for layer in (self.query, self.key, self.value))
        if isinstance(x, Array):
            return self.output(attention_of_heads(q, k, v, self.heads))
        return self.output(Tokens(token_attention(q.vector, k.vector, v.vector, x.n, self.heads), x.n))


def of_arrays(layer: Any, x: Any) -> Any:
    """A layer's result for activations in an array of at least two axes; raises TypeError for others."""
    import numpy

    x = numpy.asarray(x)
    if x.ndim < 2 or x.dtype.kind not in "biuf":
        kinds = "Tokens, an Array or an array of shape (..., tokens, width)"
        raise TypeError(f"{type(layer).__name__} takes {kinds}, found shape {x.shape} of {x.dtype}")
    if _core.array_is_traced(f"{type(layer).__name__}()"):
        return layer(_core.array(x))
    # Traced at each call: layers within may be replaced.
    return _core.Function(layer)(x)


def attention_of_heads(q: Array, k: Array, v: Array, heads: int) -> Array:
    """Causal attention of Arrays of shape (..., tokens, width), for each head."""
    import numpy

    *before, n, width = q.shape
    by_head = (*before, n, heads, width // heads)
    q, k, v = (x.reshape(by_head).swapaxes(-2, -3) for x in (q, k, v))
    mixed = _core.array_attention(q, k, v, numpy.tri(n, dtype=bool))
    return mixed.swapaxes(-2, -3).reshape((*before, n, width))


class Block(Module):
    """One layer of a GPT: ``x + attention(norm1(x))``, followed by ``x + down(relu(up(norm2(x))))``.

    Takes Tokens, or an Array of shape (..., tokens, width).

    Args:
        params: the Parameters that receive the weights.
        width: the number of features of a token.
        heads: the number of heads of the attention.
        expansion: the number of hidden features is expansion * width.
        eps: added to the variances of both norms.
        name: if given, the layers are called ``name.norm1``, ``name.attention``, ``name.norm2``, ``name.up`` and
            ``name.down``.

    Raises:
        ValueError: ``heads`` does not divide ``width``.

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
        self.norm1 = LayerNorm(params, width, eps, name=part_name(name, "norm1"))
        self.attention = CausalSelfAttention(params, width, heads, name=part_name(name, "attention"))
        self.norm2 = LayerNorm(params, width, eps, name=part_name(name, "norm2"))
        self.up = Linear(params, width, expansion * width, activation="relu", name=part_name(name, "up"))
        self.down = Linear(params, expansion * width, width, name=part_name(name, "down"))

    def __repr__(self) -> str:
        width, heads, eps = self.down.n_out, self.attention.heads, self.norm1.eps
        return f"{type(self).__name__}({width}, heads={heads}, expansion={self.down.n_in // width}, eps={eps!r})"

    if TYPE_CHECKING:

        @overload
        def __call__(self, x: Tokens) -> Tokens: ...
        @overload
        def __call__(self, x: Array) -> Array: ...
        @overload
        def __call__(self, x: Any) -> Any: ...

    def __call__(self, x: Any) -> Any:
        """The activations after this layer; an array for an array."""
        if not isinstance(x, (Tokens, Array)):
            return of_arrays(self, x)
        x = x + self.attention(self.norm1(x))
        return x + self.down(self.up(self.norm2(x)))
