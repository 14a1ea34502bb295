"""Modules: names of Tensors, states, and models as plain classes.

There is no registration: names come from attributes. A model may be a :class:`Module`, one of the built-in models, or
any object whose attributes are Tensors, such models, or lists of them.
"""

from __future__ import annotations

from array import array
from reprlib import recursive_repr

from burtorch._core import (
    Array,
    Function,
    Parameters,
    Tensor,
    Value,
    Vector,
    array_in_place_of,
    array_is_traced,
    checkpoint,
    parameter,
)
from burtorch._core import array as to_array
from burtorch._parts import WITHOUT_TENSORS, parts_of, walk
from burtorch._pickling import reduce_ex

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from os import PathLike
    from typing import Any

__all__ = [
    "Module",
    "find_nonfinite",
    "functional_call",
    "load_state_dict",
    "named_parameters",
    "parameters",
    "state_dict",
]


def named_parameters(model: object) -> Iterator[tuple[str, Tensor]]:
    """Dotted names and Tensors of any model, in the order of attributes, each Tensor once.

    Example:
        >>> import burtorch as bt
        >>> class Net:
        ...     def __init__(self, params):
        ...         self.layers = [bt.nn.Linear(params, 2, 3), bt.nn.Linear(params, 3, 1)]
        >>> [name for name, _ in bt.nn.named_parameters(Net(bt.Parameters()))]
        ['layers.0.weight', 'layers.0.bias', 'layers.1.weight', 'layers.1.bias']

    Raises TypeError for a number, text or None, which is no model.
    """
    if type(model) in WITHOUT_TENSORS:
        raise TypeError(f"expected a model, a layer or a container of them, found {type(model).__name__}")
    return _named_tensors(model)


def _named_tensors(model: object) -> Iterator[tuple[str, Tensor]]:
    seen: set[tuple[int, tuple[int, int]]] = set()
    for name, tensor in walk(model):
        if not isinstance(tensor, Tensor):
            continue
        key = (id(tensor.params), tensor.span)
        if key not in seen:
            seen.add(key)
            yield name, tensor


def parameters(model: object) -> Iterator[Tensor]:
    """The Tensors of any model."""
    return (tensor for _, tensor in named_parameters(model))


def by_name(model: object) -> dict[str, Tensor]:
    """The Tensors of any model, by name.

    Raises:
        ValueError: two of them have one name.
    """
    tensors: dict[str, Tensor] = {}
    for name, tensor in named_parameters(model):
        if tensors.setdefault(name, tensor) is not tensor:
            raise ValueError(
                f"two tensors of the model are named {name!r}, of the shapes {tuple(tensors[name].shape)} and "
                f"{tuple(tensor.shape)}: give attributes and keys of dicts names that differ as text and have no dots"
            )
    return tensors


def functional_call(model: Any, tensors: Mapping[str, Any], *inputs: Any, **named: Any) -> Any:
    """``model(*inputs, **named)`` with other numbers for its Tensors, as ``torch.func.functional_call``.

    Derivatives by the numbers of a model are those of this function by ``tensors``: gradients, Hessian-vector products,
    Hessians, and steps of an optimiser that are differentiated themselves.

    Args:
        model: any model that runs on Arrays.
        tensors: arrays, Arrays or Tensors by the names of ``named_parameters()``, of the same shapes. Tensors of the
            model without a name here keep their numbers.
        inputs: the arguments of the model.

    Outside of traced functions the result is an Array with the gradients of Arrays, Values and Tensors among the
    arguments, which runs the model once more in a backward pass, or plain numbers if there are none.

    Raises:
        ValueError: an unknown name, or another shape.

    Example:
        >>> import numpy as np
        >>> import burtorch as bt
        >>> layer = bt.nn.Linear(bt.Parameters(dtype="float64"), 2, 1)
        >>> layer.weight.values[:] = [3.0, 4.0]
        >>> def loss(tensors):
        ...     return (bt.nn.functional_call(layer, tensors, np.array([1.0, 2.0])) ** 2).sum()
        >>> now = dict(layer.named_parameters())
        >>> bt.grad(loss)(now)
        {'weight': array([[22., 44.]]), 'bias': array([22.])}
        >>> bt.hvp(loss, (now,), ({"weight": np.array([[1.0, 0.0]]), "bias": np.zeros(1)},))
        {'weight': array([[2., 4.]]), 'bias': array([2.])}
    """
    known = by_name(model)
    if unknown := sorted(tensors.keys() - known.keys()):
        raise ValueError(f"the model has no tensors named {unknown}, but {list(known)}")
    for name, x in tensors.items():
        found = tuple(x.shape) if hasattr(x, "shape") else _shape(x)
        if found != tuple(known[name].shape):
            raise ValueError(f"{name} has the shape {tuple(known[name].shape)}, found {found}")
    if not array_is_traced("functional_call()"):
        tensors = {name: _without_values(x) for name, x in tensors.items()}
        inputs = tuple(map(_without_values, inputs))
        named = {name: _without_values(x) for name, x in named.items()}
        if any(_holds(x, (Array, Tensor)) for x in (*tensors.values(), *inputs, *named.values())):
            return _called_apart(model, tensors, inputs, named)
        return Function(lambda given: functional_call(model, given, *inputs, **named))(tensors)
    replaced, arrays = [known[name] for name in tensors], [to_array(x) for x in tensors.values()]
    return array_in_place_of(replaced, arrays, lambda: _as_arrays(model(*inputs, **named)))


def _without_values(x: Any) -> Any:
    """Values, a Vector, or lists with such as an Array with their gradients, also in dicts; other objects unchanged."""
    if isinstance(x, dict):
        return x | {key: _without_values(part) for key, part in x.items()}
    return to_array(x) if _holds(x, (Value, Vector)) else x


def _holds(x: Any, kinds: tuple[type, ...]) -> bool:
    parts = x.values() if isinstance(x, dict) else x if isinstance(x, (list, tuple)) else ()
    return isinstance(x, kinds) or any(_holds(part, kinds) for part in parts)


def _called_apart(model: Any, tensors: Mapping[str, Any], inputs: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """A call outside of traces, as one operation on the Arrays and Tensors among its arguments."""
    arguments: dict[str, Mapping[Any, Any]] = {"tensors": tensors, "inputs": dict(enumerate(inputs)), "named": named}
    moving = {
        kind: {key: x for key, x in all_of.items() if _holds(x, (Array, Tensor))} for kind, all_of in arguments.items()
    }

    def called(*moved: Any) -> Any:
        now = [
            {**arguments[kind], **dict(zip(moving[kind], part, strict=True))}
            for kind, part in zip(moving, moved, strict=True)
        ]
        return functional_call(model, now[0], *now[1].values(), **now[2])

    return checkpoint(called)(*(list(part.values()) for part in moving.values()))


def _as_arrays(found: Any) -> Any:
    """The result of a model with an Array for each of its Tensors."""
    if isinstance(found, (Tensor, parameter)):
        return to_array(found)
    if isinstance(found, dict):
        return found | {key: _as_arrays(part) for key, part in found.items()}
    if isinstance(found, tuple) and hasattr(found, "_fields"):
        return type(found)(*map(_as_arrays, found))
    return type(found)(map(_as_arrays, found)) if type(found) in (list, tuple) else found


class State(dict):  # type: ignore[type-arg]  # of str and array; a pickle stores no types
    """A dict of values by name, with the configuration of the model in ``about``."""

    about: dict[str, Any] | None = None


def state_dict(model: object) -> dict[str, array[float]]:
    """A copy of the values of each Tensor, flat, by name.

    The dict also contains settings of the layers, such as activations, so that a different model refuses it.

    Raises:
        ValueError: two Tensors have one name.
    """
    state = State((name, array(_code(tensor), tensor.values)) for name, tensor in by_name(model).items())
    state.about = _models().describe(model)
    return state


def load_state_dict(model: object, state: Mapping[str, Any]) -> None:
    """Sets the values of all Tensors from a result of ``state_dict()``, or from arrays of their shapes by name, such as
    those of other libraries.

    Raises:
        TypeError: a state holds something other than real numbers; nothing is changed.
        ValueError: a name is missing or unknown, or a length or shape differs; nothing is changed.
        FormatError, a ValueError: the state belongs to a model with other settings, such as heads or an activation.
    """
    if isinstance(state, State):
        _models().check_same(model, state.about, "the state")
    tensors = by_name(model)
    if tensors.keys() != state.keys():
        missing, unknown = sorted(tensors.keys() - state.keys()), sorted(state.keys() - tensors.keys())
        raise ValueError(f"the state lacks {missing} and has unknown names {unknown}")
    numbers = {name: _numbers(name, tensor, state[name]) for name, tensor in tensors.items()}
    for name, tensor in tensors.items():
        tensor.values[:] = numbers[name]


def _numbers(name: str, tensor: Tensor, values: Any) -> list[float]:
    """The numbers of a Tensor in C order, from flat ones or those of its shape."""
    kind = getattr(getattr(values, "dtype", None), "kind", "f")
    if isinstance(values, (str, bytes)) or kind not in "biufO":
        raise TypeError(f"{name} must hold real numbers, found {values!r:.100}")
    shape = tuple(values.shape) if hasattr(values, "shape") else _shape(values)
    if shape not in ((_size(tensor),), tuple(tensor.shape)):
        found = shape[0] if len(shape) == 1 else f"the shape {shape}"
        raise ValueError(f"{name} holds {_size(tensor)} numbers of the shape {tuple(tensor.shape)}, found {found}")
    flat = values.tolist() if hasattr(values, "tolist") else values
    flat = flat if shape else [flat]
    for _ in shape[1:]:
        flat = [x for row in flat for x in row]
    if not all(map(_is_real, flat)):
        raise TypeError(f"{name} must hold real numbers, found {values!r:.100}")
    return [float(x) for x in flat]


def _shape(values: Any) -> tuple[int, ...]:
    """The shape of nested sequences, all rows of which are as long as the first."""
    if not isinstance(values, (list, tuple)) or not values or not isinstance(values[0], (list, tuple)):
        return (len(values),)
    inner = {_shape(row) if isinstance(row, (list, tuple)) else () for row in values}
    if len(inner) != 1:
        raise ValueError("rows of a state must be of one length")
    return (len(values), *inner.pop())


def _is_real(x: object) -> bool:
    """Whether this is a number, or another object that only its class converts to a float."""
    if isinstance(x, (float, int)):
        return True
    kind = getattr(getattr(x, "dtype", None), "kind", "f")
    return kind in "biuf" and not isinstance(x, (str, bytes, Value, Array)) and hasattr(x, "__float__")


def find_nonfinite(model: object) -> tuple[str, str, int, float] | None:
    """The first number of a model that is NaN or infinite, or None if all are finite.

    Returns the name of its Tensor, "value" or "grad", its place in the Tensor, and the number; values come first.

    Example:
        >>> import burtorch as bt
        >>> layer = bt.nn.Linear(bt.Parameters(), 2, 2)
        >>> layer.bias.values[1] = float("inf")
        >>> bt.nn.find_nonfinite(layer)
        ('bias', 'value', 1, inf)
    """
    for kind in ("value", "grad"):
        for name, tensor in named_parameters(model):
            for place, number in enumerate(tensor.values if kind == "value" else tensor.grads):
                if number - number != 0.0:
                    return name, kind, place, number
    return None


def _has_tensors(part: object) -> bool:
    return next(_named_tensors(part), None) is not None


def tensors_of(model: object) -> list[Tensor]:
    """The Tensors of any model, in a list."""
    return [tensor for _, tensor in _named_tensors(model)]


def home_of(model: object) -> Parameters:
    """The Parameters that hold all Tensors of a model.

    Raises:
        ValueError: it has no Tensors, or they are in different Parameters.
    """
    homes = {id(tensor.params): tensor.params for tensor in parameters(model)}
    if len(homes) != 1:
        raise ValueError(f"expected Tensors of one Parameters, found {len(homes)}")
    return next(iter(homes.values()))


class Module:
    """A base class for layers and models, with PyTorch's methods; an Oracle accepts plain classes as well.

    Its Tensors are those among its attributes and of the models among them, in the order of attributes, also in lists,
    tuples, deques and dicts, in ``__slots__`` and in attributes that begin with ``_``.

    Example:
        >>> import burtorch as bt
        >>> class Net(bt.nn.Module):
        ...     def __init__(self, params):
        ...         self.inner = bt.nn.Linear(params, 2, 3, activation="tanh")
        ...         self.outer = bt.nn.Linear(params, 3, 1)
        ...     def __call__(self, x):
        ...         return self.outer(self.inner(x))
        >>> net = Net(bt.Parameters(dtype="float64"))
        >>> [name for name, _ in net.named_parameters()]
        ['inner.weight', 'inner.bias', 'outer.weight', 'outer.bias']
        >>> len(net(bt.current_graph().vector([1.0, 2.0])))
        1
    """

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "forward" in vars(cls) and not any("__call__" in vars(kind) for kind in cls.__mro__):
            cls.__call__ = _call_of_forward  # type: ignore[method-assign]

    @recursive_repr()
    def __repr__(self) -> str:
        parts = [
            (name, part) for name, part in parts_of(self) if not isinstance(part, Parameters) and _has_tensors(part)
        ]
        return f"{type(self).__name__}({', '.join(f'{name}={part!r}' for name, part in parts)})"

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Dotted names and Tensors, each Tensor once."""
        return named_parameters(self)

    def parameters(self) -> Iterator[Tensor]:
        """The Tensors."""
        return parameters(self)

    def state_dict(self) -> dict[str, array[float]]:
        """A copy of the values of each Tensor, flat, by name."""
        return state_dict(self)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Sets the values of all Tensors from a result of ``state_dict()``, or from arrays of their shapes by name.

        Raises:
            ValueError: a name is missing or unknown, or a length or shape differs; nothing is changed.
        """
        load_state_dict(self, state)

    def save(self, path: str | PathLike[str]) -> None:
        """Save the Tensors as a safetensors file, by their names in ``named_parameters()``, completely or not at all.

        Raises:
            ValueError: the Tensors are in different Parameters, or two of them have one name.
            OSError: the system refuses; the old file remains.

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
        """Overwrite the values with those of a file with exactly these Tensors, by name, shape and dtype.

        Raises:
            FormatError: any other file, with a ``reason``; nothing has changed then.
            OSError: the file cannot be read.
        """
        _models().load(self, path)

    __reduce_ex__ = reduce_ex

    def zero_grad(self) -> None:
        """Sets only the gradients of its Tensors to zero."""
        for tensor in self.parameters():
            tensor.zero_grad()

    def freeze(self) -> None:
        """Freezes only its Tensors: no gradient, no gradient memory, no work.

        Example:
            >>> import burtorch as bt
            >>> params = bt.Parameters()
            >>> body, head = bt.nn.Linear(params, 4, 2), bt.nn.Linear(params, 2, 1)
            >>> body.freeze()
            >>> params.n_trainable, head.n_parameters
            (3, 3)
        """
        self.params.freeze(list(self.parameters()))

    def unfreeze(self) -> None:
        """Makes its Tensors trainable again."""
        self.params.unfreeze(list(self.parameters()))

    @property
    def params(self) -> Parameters:
        """The Parameters that hold all of its Tensors.

        Raises:
            ValueError: it has no Tensors, or they are in different Parameters.
        """
        return home_of(self)

    @property
    def n_parameters(self) -> int:
        """The number of its parameters."""
        return sum(_size(tensor) for tensor in self.parameters())


def _call_of_forward(self: Module, *inputs: Any, **named: Any) -> Any:
    """The call of a module whose class defines ``forward``, as PyTorch's do, and no ``__call__``."""
    check_callable(self)
    return _call_of(type(self)).__get__(self)(*inputs, **named)  # of another base class


def check_callable(model: object) -> None:
    """Raises TypeError for a module with ``forward`` and no ``__call__``."""
    if isinstance(model, Module) and _call_of(type(model)) is None:
        name = type(model).__name__
        raise TypeError(f"{name} defines forward and no __call__: rename forward to __call__, which calls run")


def _call_of(kind: type) -> Any:
    """The ``__call__`` of a class or of its bases, or None."""
    calls = (vars(base).get("__call__") for base in kind.__mro__)
    return next((call for call in calls if call not in (None, _call_of_forward)), None)


def _models() -> Any:
    """The module for files of models, imported late because it needs the model classes."""
    from burtorch import _models

    return _models


def _size(tensor: Tensor) -> int:
    start, stop = tensor.span
    return stop - start


def _code(tensor: Tensor) -> str:
    return "f" if tensor.params.dtype == "float32" else "d"
