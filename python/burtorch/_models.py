"""Models as self-contained safetensors files, whose metadata describe the architecture and the vocabulary.

One mechanism serves all models: an :class:`Architecture` lists the numbers that define a model, in order, how to read
them from a model and how to build it. Files of user-defined modules contain only the tensors, and are loaded into a
module with the same tensors. ``load_model`` checks the metadata against the length of the file before it builds
anything. The format is defined in the core.
"""

from __future__ import annotations

import os

from burtorch import _built_in, _core
from burtorch import _layers as layers
from burtorch._module import by_name
from burtorch._parts import walk

TYPE_CHECKING = False  # as in the package: importing typing costs several milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike
    from typing import Any

    from burtorch._module import Module

    Path = str | PathLike[str]
    Model = _built_in.CharMLP | _built_in.GPT | _built_in.MLP | layers.Linear

VERSION = 1
MAX_SIZE = 2**31
ACTIVATIONS = ("identity", "tanh", "relu", "sigmoid")


def is_size(x: object) -> bool:
    return type(x) is int and 1 <= x < MAX_SIZE


def is_flag(x: object) -> bool:
    return type(x) is bool


def is_small_number(x: object) -> bool:
    return type(x) in (int, float) and 0 <= x < 1e30  # type: ignore[operator]


def is_activation(x: object) -> bool:
    return isinstance(x, str) and x in ACTIVATIONS


def is_sizes(x: object) -> bool:
    return isinstance(x, list) and len(x) >= 2 and all(map(is_size, x))


class Architecture:
    """The definition of a kind of model: ``parts`` are its numbers by name, with a check for each.

    ``describe`` reads them from a model, ``build`` makes a model.
    """

    def __init__(
        self,
        name: str,
        parts: dict[str, Callable[[object], bool]],
        describe: Callable[[Any], dict[str, Any]],
        build: Callable[..., Model],
    ) -> None:
        self.name = name
        self.parts = parts
        self.describe = describe
        self.build = build


CHAR_MLP = Architecture(
    "char-mlp",
    dict.fromkeys(("vocab", "context", "embedding", "hidden"), is_size),
    lambda m: {"vocab": m.vocab, "context": m.context, "embedding": m.embedding.shape[1], "hidden": m.hidden.n_out},
    _built_in.CharMLP,
)

GPT_PARTS: dict[str, Callable[[object], bool]] = {
    **dict.fromkeys(("vocab", "context", "layers", "heads", "width", "expansion"), is_size),
    "eps": is_small_number,
    "final_norm": is_flag,
}
GPT = Architecture(
    "gpt",
    GPT_PARTS,
    lambda m: {name: getattr(m, name) for name in GPT_PARTS},
    _built_in.GPT,
)

MLP = Architecture(
    "mlp",
    {"sizes": is_sizes, "activation": is_activation, "bias": is_flag},
    lambda m: {
        "sizes": [m.n_in, *(layer.n_out for layer in m.layers)],
        # A single layer has no activation after it, so any name is valid.
        "activation": m.layers[0].activation,
        "bias": m.layers[0].bias is not None,
    },
    _built_in.MLP,
)

LINEAR = Architecture(
    "linear",
    {"n_in": is_size, "n_out": is_size, "bias": is_flag, "activation": is_activation},
    lambda m: {"n_in": m.n_in, "n_out": m.n_out, "bias": m.bias is not None, "activation": m.activation},
    layers.Linear,
)

ARCHITECTURES: dict[type, Architecture] = {
    _core.CharMLP: CHAR_MLP,
    _core.GPT: GPT,
    _core.MLP: MLP,
    _core.Linear: LINEAR,
    layers.Linear: LINEAR,
}
MODULE = "module"


def _architecture_of(model: object) -> Architecture | None:
    """The architecture of the class or of a base class; None for a user-defined module."""
    return next((ARCHITECTURES[c] for c in type(model).__mro__ if c in ARCHITECTURES), None)


def describe(model: object) -> dict[str, Any]:
    """The configuration of a model: the numbers that define a built-in one, else the settings of its layers."""
    architecture = _architecture_of(model)
    if architecture is not None:
        return {"model": architecture.name, **architecture.describe(model)}
    settings = {}
    for name, layer in walk(model):
        own = _architecture_of(layer)
        parts = getattr(type(layer), "_settings", ())
        if own is not None:
            settings[name] = own.describe(layer)
        elif parts:
            settings[name] = {part: getattr(layer, part) for part in parts}
    return {"model": MODULE, "class": type(model).__qualname__, "layers": settings}


def check_same(model: object, found: object, where: str) -> None:
    """Raises an error that names the first difference if ``found`` describes another model.

    Entries that an earlier version did not write are not compared, nor a user's class with a built-in model: their
    Tensors are compared instead.
    """
    difference = _difference(describe(model), found)
    if difference is not None:
        error = _core.FormatError(
            f"{where}: {difference}; nothing was loaded: "
            "make a model with the settings of the saved one, or call nn.load_model()"
        )
        error.offset, error.reason = 0, difference
        raise error


def _difference(wanted: dict[str, Any], found: object) -> str | None:
    if not isinstance(found, dict):
        return None
    kinds = (found.get("model"), wanted["model"])
    if MODULE in kinds:
        if kinds[0] != kinds[1] or not isinstance(found.get("layers"), dict):
            return None
        pairs = [(f"{name}.", found["layers"].get(name), own) for name, own in wanted["layers"].items()]
    elif kinds[0] != kinds[1]:
        return f"it is of model {kinds[0]!r}, expected {kinds[1]!r}"
    else:
        pairs = [("", found, wanted)]
    for prefix, theirs, ours in pairs:
        for part, value in ours.items():
            if isinstance(theirs, dict) and part in theirs and theirs[part] != value:
                return f"{prefix.lstrip('.')}{part} is {theirs[part]!r}, expected {value!r}"
    return None


def save(model: Model | Module, path: Path, vocabulary: str | None = None) -> None:
    """Writes a model or a module completely or not at all."""
    import json

    about: dict[str, Any] = {"version": VERSION, "dtype": model.params.dtype, **describe(model)}
    if vocabulary is not None:
        wrong = _wrong_vocabulary(about, vocabulary)
        if wrong is not None:
            raise ValueError(f"the vocabulary must be {wrong}, found {vocabulary!r}")
        about["vocabulary"] = vocabulary
    text = json.dumps(about, ensure_ascii=False)
    _core._save_bytes(path, _core._tensors_to_bytes(_tensors(model), text))


def load(model: Model | Module, path: Path) -> None:
    """Overwrites the values of a model or module of the same architecture that has the same tensors."""
    content, tensors = _content(path), _tensors(model)
    text = _core._tensors_about(content)
    if text is not None:
        about, where = _parsed(path, text), os.fsdecode(path)
        check_same(model, {"model": about.get("model")} if isinstance(about, dict) else None, where)
        _core._load_tensors(content, tensors, check=True)  # its message names the shape
        check_same(model, about, where)
    _core._load_tensors(content, tensors)


def load_model(path: Path) -> tuple[Model, str | None]:
    """A new model, and its vocabulary if it was saved with one. See :func:`burtorch.nn.load_model`."""
    content = _content(path)
    about = _about(path, content)
    architecture = next(a for a in ARCHITECTURES.values() if a.name == about["model"])
    parts = {name: about[name] for name in architecture.parts}
    params = _core.Parameters(dtype=about["dtype"])
    params._set_limit(len(content) // (4 if about["dtype"] == "float32" else 8))
    try:
        model = architecture.build(params, **parts)
    except MemoryError as error:
        if "out of memory" in str(error):
            raise
        raise _refused(path, "it is too short for the parameters of its model") from None
    except ValueError as error:
        raise _refused(path, f"its metadata do not describe a model: {error}") from None
    params._set_limit(None)
    _core._load_tensors(content, _tensors(model))
    return model, about.get("vocabulary")


def _tensors(model: Model | Module) -> list[tuple[str, _core.Tensor]]:
    named: Callable[[], Any] | None = getattr(model, "named_tensors", None)
    return list(named() if named else by_name(model).items())


def _content(path: Path) -> bytes:
    # open() would take an integer for an open file, and close it.
    with open(os.fspath(path), "rb") as file:
        return file.read()


def _about(path: Path, content: bytes) -> dict[str, Any]:
    """The checked metadata: every part of the architecture is valid, and the vocabulary fits."""
    text = _core._tensors_about(content)
    if text is None:
        raise _refused(path, "it has no burtorch metadata")
    about = _parsed(path, text)
    if not isinstance(about, dict) or about.get("version") != VERSION:
        raise _refused(path, "its metadata do not describe a model of this version")
    if about.get("model") == MODULE:
        raise _refused(path, f"it is of a module of class {about.get('class')!r}: build one, and call its load()")
    architecture = next((a for a in ARCHITECTURES.values() if a.name == about.get("model")), None)
    if architecture is None:
        raise _refused(path, f"unknown model {about.get('model')!r}")
    if about.get("dtype") not in ("float32", "float64"):
        raise _refused(path, f"models cannot have dtype {about.get('dtype')!r}")
    for name, is_possible in architecture.parts.items():
        if not is_possible(about.get(name)):
            raise _refused(path, f"{name} is {about.get(name)!r}")
    if about.get("vocabulary") is not None:
        wrong = _wrong_vocabulary(about, about["vocabulary"])
        if wrong is not None:
            raise _refused(path, f"its vocabulary is not {wrong}")
    return about


def _parsed(path: Path, text: str) -> Any:
    import json

    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise _refused(path, "its metadata are not JSON") from None


def _wrong_vocabulary(about: dict[str, Any], symbols: object) -> str | None:
    """The expected vocabulary, or None if it fits the model."""
    n = about.get("vocab")
    if n is None:
        return "that of a CharMLP or a GPT"
    if not isinstance(symbols, str) or len(symbols) != n or len(set(symbols)) != n:
        return f"{n} different symbols"
    if any("\ud800" <= symbol <= "\udfff" for symbol in symbols):
        return "whole symbols"
    if about["model"] == CHAR_MLP.name and not symbols.startswith("\n"):
        return "symbols of which the first is the line end"
    return None


def _refused(path: Path, why: str) -> _core.FormatError:
    error = _core.FormatError(f"{path}: {why}; nothing was loaded: give a model that burtorch saved")
    error.offset, error.reason = 0, why
    return error
