"""Models: layers and networks whose parameters are in a :class:`burtorch.Parameters`."""

from __future__ import annotations

from burtorch._built_in import GPT, MLP, CharMLP
from burtorch._core import Parameters, Value, sample_loss
from burtorch._layers import Embedding, Linear
from burtorch._module import (
    Module,
    find_nonfinite,
    functional_call,
    load_state_dict,
    named_parameters,
    parameters,
    state_dict,
)
from burtorch._tokens import Tokens
from burtorch._transformer import Block, CausalSelfAttention, LayerNorm, RMSNorm

TYPE_CHECKING = False  # as in the package: importing typing costs several milliseconds
if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike
    from typing import Any, Literal, overload

    from burtorch import Vector
    from burtorch._core import Tensor

    Activation = Literal["identity", "tanh", "relu", "sigmoid"]

__all__ = [
    "GPT",
    "MLP",
    "Block",
    "CausalSelfAttention",
    "CharMLP",
    "Embedding",
    "LayerNorm",
    "Linear",
    "Module",
    "Neuron",
    "RMSNorm",
    "Tokens",
    "find_nonfinite",
    "functional_call",
    "load_model",
    "load_state_dict",
    "named_parameters",
    "parameters",
    "sample_loss",
    "state_dict",
]


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


def load_model(path: str | PathLike[str]) -> tuple[CharMLP | GPT | MLP | Linear, str | None]:
    """A new model, with its own Parameters, from a file written by ``save``; and the vocabulary saved with it.

    Files do not contain the code of a :class:`Module`: build the module and call its ``load``.

    Raises:
        FormatError: a file with other content, or a damaged one; no model is built.
        OSError: the file cannot be read.

    Example:
        >>> import burtorch as bt, os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "m.safetensors")
        >>> bt.nn.CharMLP(bt.Parameters(), vocab=3, context=2, embedding=4, hidden=5).save(path, vocabulary="\\nab")
        >>> model, vocabulary = bt.nn.load_model(path)
        >>> model.n_parameters, vocabulary
        (75, '\\nab')
    """
    from burtorch import _models

    return _models.load_model(path)


class Neuron:
    """One output of a dense layer, ``f(w x + b)``, as scalar nodes of a graph: for teaching, and for graphs of Values.

    Args:
        params: the Parameters that receive its ``n_in`` weights and its bias.
        n_in: the number of inputs.
        bias: whether there is a bias.
        activation: "identity" (or None), "tanh", "relu" or "sigmoid".

    Raises:
        ValueError: an unknown activation, or no inputs.

    Example:
        >>> import burtorch as bt
        >>> params = bt.Parameters(dtype="float64", seed=0)
        >>> neuron = bt.nn.Neuron(params, 2, activation="tanh")
        >>> a, b = bt.Value(1.0), bt.Value(-2.0)
        >>> y = neuron([a, b])
        >>> y.backward()
        >>> len(params.grads), y.data == neuron([1.0, -2.0])
        (3, True)
    """

    _settings = ("activation",)

    def __init__(self, params: Parameters, n_in: int, bias: bool = True, activation: Activation | None = None) -> None:
        self._layer = Linear(params, n_in, 1, bias, activation)
        self.params = params

    @property
    def weight(self) -> Tensor:
        """The ``n_in`` weights."""
        row: Tensor = self._layer.weight[0]
        return row

    @property
    def bias(self) -> Tensor | None:
        """The bias, a Tensor of one number, or None."""
        return self._layer.bias

    @property
    def activation(self) -> str:
        """The name of the activation."""
        return self._layer.activation

    def __repr__(self) -> str:
        n, bias = len(self.weight), self.bias is not None
        return f"{type(self).__name__}({n}, bias={bias}, activation={self.activation!r})".replace("'", '"')

    def named_tensors(self) -> list[tuple[str, Tensor]]:
        """Names and Tensors, in their order in the parameters."""
        return list(named_parameters(self._layer))

    if TYPE_CHECKING:

        @overload
        def __call__(self, x: Sequence[float]) -> float: ...  # type: ignore[overload-overlap]

        @overload
        def __call__(self, x: Vector | Sequence[Value | float]) -> Value: ...

    def __call__(self, x: Any) -> Any:
        """The output for ``n_in`` inputs: a Value on the graph of the Values among them, or an Array for an Array.

        For plain numbers it is a float; for an array or a list of rows, one output for each row. Raises ValueError
        for another number of inputs. Costs ``n_in`` multiplications and one or two nodes.
        """
        y = self._layer(x)
        return y[:, 0] if getattr(y, "ndim", 1) == 2 else y[0]
