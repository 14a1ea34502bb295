"""Model files: what was saved comes back, and what is not exactly a model file is refused before a model is built."""

from __future__ import annotations

import json

import pytest

import burtorch
from burtorch.cli import model_file
from burtorch.cli.errors import InputError
from burtorch.cli.kinds import KINDS

SIZES = {"context": 2, "embedding": 3, "hidden": 4}


@pytest.fixture
def saved(tmp_path):
    parameters = burtorch.Parameters(dtype="float32", seed=5)
    burtorch.nn.CharMLP(parameters, vocab=3, **SIZES)
    path = tmp_path / "model.burtorch"
    model_file.save(str(path), "char-mlp", parameters, "\nab", SIZES)
    return path, parameters


def with_header(content, **changes):
    """A file like ``content`` with another header."""
    end = 12 + int.from_bytes(content[8:12], "little")
    header = {**json.loads(content[12:end]), **changes}
    encoded = json.dumps(header).encode()
    return content[:8] + len(encoded).to_bytes(4, "little") + encoded + content[end:]


def test_a_model_comes_back_bit_for_bit(saved):
    path, parameters = saved
    kind, model, vocabulary = model_file.load(str(path))
    assert kind.name == "char-mlp"
    assert vocabulary == "\nab"
    again = path.with_name("again")
    tokens = [1, 2]
    original = burtorch.Parameters(dtype="float32", seed=5)
    assert model.logits(tokens) == burtorch.nn.CharMLP(original, vocab=3, **SIZES).logits(tokens)
    model_file.save(str(again), "char-mlp", parameters, vocabulary, SIZES)
    assert again.read_bytes() == path.read_bytes()


def test_the_size_formula_is_that_of_the_model(saved):
    assert len(saved[1]) == KINDS["char-mlp"].n_parameters(3, **SIZES)


def test_every_prefix_is_refused(saved):
    path, _ = saved
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(InputError):
            model_file.load(str(path))


def test_a_longer_file_is_refused(saved):
    path, _ = saved
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(InputError, match="too long"):
        model_file.load(str(path))


@pytest.mark.parametrize(
    "changes",
    [
        {"model": "gpt"},
        {"model": "lstm"},
        {"model": 3},
        {"dtype": "float64"},
        {"vocabulary": "abc"},
        {"vocabulary": "\naa"},
        {"vocabulary": "\na\ud800"},
        {"vocabulary": 3},
        {"hidden": 5},
        {"hidden": 0},
        {"hidden": -4},
        {"hidden": 4.0},
        {"hidden": True},
        {"hidden": 10**30},
        {"hidden": 10**9, "n_parameters": 10**9},
        {"n_parameters": None},
    ],
    ids=str,
)
def test_a_header_that_does_not_fit_is_refused(saved, changes):
    path, _ = saved
    path.write_bytes(with_header(path.read_bytes(), **changes))
    with pytest.raises(InputError, match=r"damaged|parameters"):
        model_file.load(str(path))


@pytest.mark.parametrize("header", [b"[]", b"{}", b"nonsense", b"\xff", b"[" * 100_000, b"1" * 10_000], ids=len)
def test_a_header_that_is_no_header_is_refused(saved, header):
    path, _ = saved
    path.write_bytes(model_file.MAGIC + len(header).to_bytes(4, "little") + header)
    with pytest.raises(InputError):
        model_file.load(str(path))


def test_a_save_that_fails_leaves_the_old_file(saved):
    path, _ = saved
    before = path.read_bytes()

    def save_half():
        with model_file.whole_file(str(path)) as file:
            file.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        save_half()
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
