"""Models as safetensors files that need nothing else: metadata say how to build the model and what its symbols are."""

from __future__ import annotations

from burtorch import _core

TYPE_CHECKING = False  # as in the package: importing typing costs several milliseconds
if TYPE_CHECKING:
    from os import PathLike
    from typing import Any

    Path = str | PathLike[str]

VERSION = 1
MAX_SIZE = 2**31


def save(model: _core.CharMLP, path: Path, vocabulary: str | None = None) -> None:
    """Writes a model, whole or not at all."""
    import json

    about = {"version": VERSION, "model": "char-mlp", "dtype": model.params.dtype, **_sizes(model)}
    if vocabulary is not None:
        if len(vocabulary) != model.vocab or len(set(vocabulary)) != len(vocabulary):
            raise ValueError(f"the vocabulary must be {model.vocab} different symbols, found {vocabulary!r}")
        about["vocabulary"] = vocabulary
    _core._save_bytes(path, _core._tensors_to_bytes(_tensors(model), json.dumps(about, ensure_ascii=False)))


def load(model: _core.CharMLP, path: Path) -> None:
    """Overwrites the values of a model of the same architecture."""
    _core._load_tensors(_content(path), _tensors(model))


def load_model(path: Path) -> tuple[_core.CharMLP, str | None]:
    """A new model, and its vocabulary if it was saved with one. See :func:`burtorch.nn.load_model`."""
    content = _content(path)
    about = _about(path, content)
    vocab, context, embedding, hidden = (about[name] for name in ("vocab", "context", "embedding", "hidden"))
    n_numbers = vocab * embedding + (context * embedding + 1) * hidden + (hidden + 1) * vocab
    if n_numbers * 4 > len(content):
        raise _refused(path, f"it is too short for {n_numbers} parameters")
    params = _core.Parameters(dtype=about["dtype"])
    model = _core.CharMLP(params, vocab, context, embedding, hidden)
    _core._load_tensors(content, _tensors(model))
    return model, about.get("vocabulary")


def _sizes(model: _core.CharMLP) -> dict[str, int]:
    return {
        "vocab": model.vocab,
        "context": model.context,
        "embedding": model.embedding.shape[1],
        "hidden": model.hidden.n_out,
    }


def _tensors(model: _core.CharMLP) -> list[tuple[str, _core.Tensor]]:
    tensors = [("embedding", model.embedding)]
    for name, layer in (("hidden", model.hidden), ("output", model.output)):
        tensors.append((f"{name}.weight", layer.weight))
        if layer.bias is not None:
            tensors.append((f"{name}.bias", layer.bias))
    return tensors


def _content(path: Path) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _about(path: Path, content: bytes) -> dict[str, Any]:
    """What the metadata say, checked: sizes are whole numbers, the vocabulary fits."""
    import json

    text = _core._tensors_about(content)
    if text is None:
        raise _refused(path, "it has no metadata of burtorch's")
    try:
        about = json.loads(text)
    except (ValueError, RecursionError):
        raise _refused(path, "its metadata are not JSON") from None
    if not isinstance(about, dict) or about.get("version") != VERSION or about.get("model") != "char-mlp":
        raise _refused(path, "its metadata do not describe a model of this version")
    if about.get("dtype") not in ("float32", "float64"):
        raise _refused(path, f"dtype {about.get('dtype')!r} is none of a model's")
    for name in ("vocab", "context", "embedding", "hidden"):
        if type(about.get(name)) is not int or not 1 <= about[name] < MAX_SIZE:
            raise _refused(path, f"{name} is {about.get(name)!r}")
    vocabulary = about.get("vocabulary")
    if vocabulary is not None:
        symbols = vocabulary if isinstance(vocabulary, str) else ""
        if len(symbols) != about["vocab"] or len(set(symbols)) != len(symbols) or not symbols.startswith("\n"):
            raise _refused(path, "its vocabulary does not fit the model")
        if any("\ud800" <= symbol <= "\udfff" for symbol in symbols):
            raise _refused(path, "its vocabulary holds half a symbol")
    return about


def _refused(path: Path, why: str) -> _core.FormatError:
    error = _core.FormatError(f"{path}: {why}; nothing was loaded: give a model that burtorch saved")
    error.offset, error.reason = 0, why
    return error
