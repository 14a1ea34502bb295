"""micrograd's engine and neural network classes, with its signatures, on burtorch Values.

Code written for micrograd needs only its imports changed::

    from burtorch.micrograd import MLP, Layer, Neuron, Value

Weights are drawn from ``random`` as in micrograd: after ``random.seed(n)`` a model has the same initial weights.

    >>> import random
    >>> from burtorch.micrograd import MLP
    >>> random.seed(1337)
    >>> model = MLP(2, [4, 1])
    >>> model
    MLP of [Layer of [ReLUNeuron(2), ReLUNeuron(2), ReLUNeuron(2), ReLUNeuron(2)], Layer of [LinearNeuron(4)]]
    >>> model([1.0, -2.0]).backward()
    >>> len(model.parameters())
    17
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from burtorch._core import Value

__all__ = ["MLP", "Layer", "Module", "Neuron", "Value"]


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


_Input = Value | float


class Module:
    """The base class of objects with parameters, as in micrograd.

    Example:
        >>> from burtorch.micrograd import Module
        >>> Module().parameters()
        []
    """

    def zero_grad(self) -> None:
        """Set the gradient of every parameter to 0. Cost: linear in their number."""
        for p in self.parameters():
            p.grad = 0

    def parameters(self) -> list[Value]:
        """All trainable Values."""
        return []


class Neuron(Module):
    """A weighted sum of inputs, followed by relu unless it is linear.

    Args:
        nin: number of inputs.
        nonlin: whether relu is applied.

    One call appends about 2 nodes per input.

    Example:
        >>> from burtorch.micrograd import Neuron
        >>> neuron = Neuron(2, nonlin=False)
        >>> for p, number in zip(neuron.parameters(), [2.0, -1.0, 0.5]):
        ...     p.data = number
        >>> neuron([3.0, 4.0]).data
        2.5
    """

    def __init__(self, nin: int, nonlin: bool = True) -> None:
        self.w = [Value(random.uniform(-1, 1)) for _ in range(nin)]
        self.b = Value(0)
        self.nonlin = nonlin

    def __call__(self, x: Sequence[_Input]) -> Value:
        act = sum((wi * xi for wi, xi in zip(self.w, x)), self.b)
        return act.relu() if self.nonlin else act

    def parameters(self) -> list[Value]:
        """The weights, then the bias."""
        return [*self.w, self.b]

    def __repr__(self) -> str:
        return f"{'ReLU' if self.nonlin else 'Linear'}Neuron({len(self.w)})"


class Layer(Module):
    """Neurons that share their inputs.

    Args:
        nin: number of inputs.
        nout: number of neurons.
        nonlin: whether relu is applied.

    A call returns a list of Values, or a single Value.

    Example:
        >>> from burtorch.micrograd import Layer
        >>> len(Layer(3, 2)([1.0, 2.0, 3.0]))
        2
    """

    def __init__(self, nin: int, nout: int, nonlin: bool = True) -> None:
        self.neurons = [Neuron(nin, nonlin) for _ in range(nout)]

    def __call__(self, x: Sequence[_Input]) -> Value | list[Value]:
        out = [n(x) for n in self.neurons]
        return out[0] if len(out) == 1 else out

    def parameters(self) -> list[Value]:
        """The parameters of each neuron in turn."""
        return [p for n in self.neurons for p in n.parameters()]

    def __repr__(self) -> str:
        return f"Layer of [{', '.join(str(n) for n in self.neurons)}]"


class MLP(Module):
    """A sequence of layers with relu in all but the last, which is linear.

    Args:
        nin: number of inputs.
        nouts: number of neurons of each layer.

    Example:
        >>> from burtorch.micrograd import MLP
        >>> len(MLP(2, [16, 16, 1]).parameters())
        337
    """

    def __init__(self, nin: int, nouts: Sequence[int]) -> None:
        sizes = [nin, *nouts]
        self.layers = [Layer(sizes[i], sizes[i + 1], nonlin=i != len(nouts) - 1) for i in range(len(nouts))]

    def __call__(self, x: Sequence[_Input]) -> Value | list[Value]:
        out: Value | Sequence[_Input] = x
        for layer in self.layers:
            out = layer([out] if isinstance(out, Value) else out)
        return out  # type: ignore[return-value] # there is at least one layer

    def parameters(self) -> list[Value]:
        """The parameters of each layer in turn."""
        return [p for layer in self.layers for p in layer.parameters()]

    def __repr__(self) -> str:
        return f"MLP of [{', '.join(str(layer) for layer in self.layers)}]"
