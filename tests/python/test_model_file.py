"""Model files on the command line: the current form, and the previous one, of which damaged files are refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import burtorch
from burtorch.cli import model_file
from burtorch.cli.errors import InputError

OLD_FILES = Path(__file__).parents[1] / "data" / "files"
GPT_SIZES = {"context": 2, "layers": 1, "heads": 2, "width": 4}


@pytest.fixture
def saved(tmp_path):
    """A file of the old form."""
    path = tmp_path / "model.burtorch"
    shutil.copy(OLD_FILES / "v1-char-mlp.burtorch", path)
    return path


def with_header(content, **changes):
    """A file like ``content`` with another header."""
    end = 12 + int.from_bytes(content[8:12], "little")
    header = {**json.loads(content[12:end]), **changes}
    encoded = json.dumps(header).encode()
    return content[:8] + len(encoded).to_bytes(4, "little") + encoded + content[end:]


@pytest.mark.parametrize("name", ["v1-char-mlp.burtorch", "v1-char-mlp.safetensors", "v1-gpt.burtorch"])
def test_models_of_earlier_versions_load(name):
    kind, model, vocabulary = model_file.load(str(OLD_FILES / name))
    assert vocabulary == "\nab"
    assert f"v1-{kind.name}" == name.split(".")[0]
    step = 64 if kind.name == "gpt" else 8
    assert list(model.params.values) == [k / step - 1 for k in range(model.n_parameters)]


def test_a_folder_of_an_earlier_version_is_read_until_there_is_a_new_model(saved):
    _, old, _ = model_file.load(str(saved.parent))
    new = burtorch.nn.GPT(burtorch.Parameters(seed=2), 3, **GPT_SIZES)
    new.save(saved.parent / "model.safetensors", vocabulary="\nab")
    kind, model, _ = model_file.load(str(saved.parent))
    assert (type(old), kind.name, list(model.params.values)) == (burtorch.nn.CharMLP, "gpt", list(new.params.values))


def test_a_model_that_writes_nothing_is_refused(tmp_path):
    path = tmp_path / "m.safetensors"
    burtorch.nn.MLP(burtorch.Parameters(), [2, 3]).save(path)
    with pytest.raises(InputError, match="expected a CharMLP or a GPT"):
        model_file.load(str(path))
    (tmp_path / "x").write_bytes(b"\x09\0\0\0\0\0\0\0{nonsense")
    with pytest.raises(InputError, match="not a safetensors file"):
        model_file.load(str(tmp_path / "x"))


def test_every_prefix_is_refused(saved):
    path = saved
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(InputError):
            model_file.load(str(path))


def test_a_longer_file_is_refused(saved):
    path = saved
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
    path = saved
    path.write_bytes(with_header(path.read_bytes(), **changes))
    with pytest.raises(InputError, match=r"damaged|parameters"):
        model_file.load(str(path))


@pytest.mark.parametrize("header", [b"[]", b"{}", b"nonsense", b"\xff", b"[" * 100_000, b"1" * 10_000], ids=len)
def test_a_header_that_is_no_header_is_refused(saved, header):
    path = saved
    path.write_bytes(model_file.MAGIC + len(header).to_bytes(4, "little") + header)
    with pytest.raises(InputError):
        model_file.load(str(path))


def test_a_save_that_fails_leaves_the_old_file(saved):
    path = saved
    before = path.read_bytes()

    def save_half():
        with model_file.whole_file(str(path)) as file:
            file.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        save_half()
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
