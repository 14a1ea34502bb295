"""Trained models on disk: safetensors with metadata, and the previous format, which can still be read.

``burtorch train`` writes the format of ``model.save()``. The previous format is 8 bytes of magic, the length of a JSON
header as 4 bytes little-endian, the header, then every parameter as a little-endian float32, and nothing else. ``load``
validates all content: any other file is an ``InputError``, and no model is built before its description has been
checked against the length of the file.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO

import burtorch
from burtorch.cli.errors import InputError, reason
from burtorch.cli.kinds import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from burtorch.cli.kinds import AnyModel, CharMlpKind, GptKind

MODEL_NAME = "model.safetensors"
OLD_NAME = "model.burtorch"
MAGIC = b"BTMODEL1"
MAX_HEADER_BYTES = 1 << 24  # room for every Unicode symbol


def load(path: str) -> tuple[CharMlpKind | GptKind, AnyModel, str]:
    """Kind, model and vocabulary in a file, or in a directory written by ``burtorch train --out``."""
    if os.path.isdir(path):
        inside = next((name for name in (MODEL_NAME, OLD_NAME) if os.path.exists(os.path.join(path, name))), None)
        if inside is None:
            raise InputError(
                f"{path}: contains no {MODEL_NAME}: expected a directory written by 'burtorch train --out'"
            )
        path = os.path.join(path, inside)
    try:
        with open(path, "rb") as file:
            start = file.read(len(MAGIC) + 4)
        if start.startswith(MAGIC):
            return _from_old_form(path)
        # The length of a JSON header comes first in safetensors.
        if path.endswith(".safetensors") or start[8:9] == b"{":
            return _from_safetensors(path)
    except OSError as error:
        raise InputError(f"{path}: {reason(error)}") from None
    raise InputError(f"{path}: not a burtorch model: expected a file written by 'burtorch train --out' or model.save()")


def _from_safetensors(path: str) -> tuple[CharMlpKind | GptKind, AnyModel, str]:
    try:
        model, vocabulary = burtorch.nn.load_model(path)
    except burtorch.FormatError as error:
        raise InputError(f"{path}: {error.reason}: the file is damaged, or not a burtorch model") from None
    kind = KINDS["gpt" if isinstance(model, burtorch.nn.GPT) else "char-mlp"]
    if not isinstance(model, (burtorch.nn.GPT, burtorch.nn.CharMLP)):
        raise InputError(f"{path}: a model of numbers cannot generate text: expected a CharMLP or a GPT")
    if vocabulary is None:
        raise InputError(f"{path}: it was saved without a vocabulary: expected model.save(path, vocabulary=...)")
    return kind, model, vocabulary


def _from_old_form(path: str) -> tuple[CharMlpKind | GptKind, AnyModel, str]:
    with open(path, "rb") as file:
        start, content = file.read(len(MAGIC) + 4), file.read()
    length = int.from_bytes(start[len(MAGIC) :], "little")
    if len(start) < len(MAGIC) + 4 or len(content) < length:
        raise InputError(f"{path}: the file is truncated: copy it again or train again")
    header = _checked_header(path, content[:length])
    kind = KINDS[header["model"]]
    sizes = {name: header[name] for name in kind.sizes}
    parameters = burtorch.Parameters(dtype="float32", seed=0)
    n_bytes = len(content) - length
    parameters._set_limit(n_bytes // 4)
    try:
        model = kind.build(parameters, len(header["vocabulary"]), sizes)
    except ValueError as error:
        raise InputError(f"{path}: the header does not describe a model: {error}: the file is damaged") from None
    except MemoryError:
        raise InputError(
            f"{path}: {n_bytes} bytes of parameters, too few for the sizes: "
            "the file is truncated, copy it again or train again"
        ) from None
    if header.get("n_parameters") != model.n_parameters:
        raise InputError(
            f"{path}: {header.get('n_parameters')!r} parameters, but the sizes need {model.n_parameters}: "
            "the file is damaged, or another version of burtorch wrote it"
        )
    if n_bytes != 4 * model.n_parameters:
        raise InputError(
            f"{path}: {n_bytes} bytes of parameters, expected {4 * model.n_parameters}: "
            "the file is too long, copy it again or train again"
        )
    parameters._set_limit(None)
    memoryview(parameters.values).cast("B")[:] = _little_endian(memoryview(content)[length:])
    return kind, model, header["vocabulary"]


@contextmanager
def whole_file(path: str) -> Iterator[BinaryIO]:
    """A binary file to write in a ``with`` block; it replaces ``path`` at the end of the block or not at all."""
    partial = f"{path}.partial"
    try:
        with open(partial, "wb") as file:
            yield file
        os.replace(partial, path)
    except BaseException:
        with suppress(OSError):
            os.remove(partial)
        raise


def _checked_header(path: str, encoded: bytes) -> dict[str, Any]:
    import json

    def refuse(why: str) -> InputError:
        return InputError(f"{path}: {why}: the file is damaged, or another version of burtorch wrote it")

    if len(encoded) > MAX_HEADER_BYTES:
        raise refuse("the header is too long")
    try:
        header = json.loads(encoded.decode("utf-8"))
    except (ValueError, RecursionError):
        raise refuse("the header is not JSON") from None
    if not isinstance(header, dict) or header.get("dtype") != "float32":
        raise refuse("the header does not describe a float32 model")
    kind = KINDS.get(header["model"]) if isinstance(header.get("model"), str) else None
    if kind is None:
        raise refuse(f"the header names an unknown kind of model: {header.get('model')!r}")
    vocabulary = header.get("vocabulary")
    if (
        not isinstance(vocabulary, str)
        or not kind.is_vocabulary(vocabulary)
        or len(vocabulary) != len(set(vocabulary))
        or any("\ud800" <= symbol <= "\udfff" for symbol in vocabulary)
    ):
        raise refuse("the header contains no vocabulary")
    for name in kind.sizes:
        size = header.get(name)
        if type(size) is not int or not 1 <= size < 2**31:
            raise refuse(f"{name} is {size!r}")
    return header


def _little_endian(values: memoryview) -> memoryview | bytes:
    if sys.byteorder == "little":
        return values
    from array import array

    swapped = array("f", values.tobytes())
    swapped.byteswap()
    return swapped.tobytes()
