"""Models as safetensors, and trainings that go on bit for bit after a kill."""

from __future__ import annotations

import json
import signal
import struct
import subprocess
import time

import pytest

import burtorch as bt
from burtorch import _core

SHAPE = {"vocab": 3, "context": 2, "embedding": 4, "hidden": 5}


def model_of(seed=3, dtype="float32"):
    return bt.nn.CharMLP(bt.Parameters(dtype=dtype, seed=seed), **SHAPE)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_model_comes_back_from_safetensors(tmp_path, dtype):
    model = model_of(dtype=dtype)
    path = tmp_path / "m.safetensors"
    model.save(path, vocabulary="\nab")
    again, vocabulary = bt.nn.load_model(path)
    assert vocabulary == "\nab"
    assert list(again.params.values) == list(model.params.values)
    other = model_of(seed=9, dtype=dtype)
    other.load(path)
    assert other.logits([1, 2]) == model.logits([1, 2])
    content = path.read_bytes()
    again.save(path, vocabulary="\nab")
    assert path.read_bytes() == content


def test_other_libraries_read_it(tmp_path):
    numpy = pytest.importorskip("safetensors.numpy")
    model = model_of()
    path = tmp_path / "m.safetensors"
    model.save(path)
    tensors = numpy.load_file(path)
    assert sorted(tensors) == ["embedding", "hidden.bias", "hidden.weight", "output.bias", "output.weight"]
    assert tensors["hidden.weight"].shape == (5, 8)
    assert tensors["embedding"].ravel().tolist() == list(model.embedding.values)
    assert bt.nn.load_model(path)[1] is None


def with_about(content, change):
    """The file with other metadata."""
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    about = json.loads(header["__metadata__"]["burtorch"])
    header["__metadata__"]["burtorch"] = json.dumps({**about, **change})
    encoded = json.dumps(header).encode()
    return struct.pack("<Q", len(encoded)) + encoded + content[8 + length :]


def test_files_that_do_not_fit_are_refused(tmp_path):
    path = tmp_path / "m.safetensors"
    model = model_of()
    model.save(path, vocabulary="\nab")
    content = path.read_bytes()
    before = list(model.params.values)
    broken = [content[:n] for n in range(0, len(content), 7)]
    broken += [content + b"\0", with_about(content, {"hidden": 6}), with_about(content, {"hidden": 10**9})]
    broken += [with_about(content, {"vocabulary": bad}) for bad in ("\nabc", "abc", 3, "\naa", "\na\ud800")]
    broken += [with_about(content, {key: None}) for key in ("model", "dtype", "vocab", "version")]
    for bad in broken:
        path.write_bytes(bad)
        with pytest.raises(bt.FormatError):
            bt.nn.load_model(path)
    wide = bt.nn.CharMLP(bt.Parameters(), **{**SHAPE, "hidden": 6})
    path.write_bytes(content)
    with pytest.raises(bt.FormatError, match=r"hidden\.weight"):
        wide.load(path)
    with pytest.raises(bt.FormatError):
        model_of(dtype="float64").load(path)
    assert list(model.params.values) == before
    with pytest.raises(ValueError, match="3 different symbols"):
        model.save(path, vocabulary="\nabc")
    with pytest.raises(FileNotFoundError):
        bt.nn.load_model(tmp_path / "missing")


def test_generate_needs_nothing_but_the_model(tmp_path, command):
    path = tmp_path / "m.safetensors"
    model_of().save(path, vocabulary="\nab")
    done = command("generate", path, "--n", 3)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 3
    model_of().save(path)
    assert "without a vocabulary" in command("generate", path).stderr


def losses(folder):
    return dict(_core._unbundle(folder / "checkpoint.burtorch"))["losses"]


QUIET = ("--batch", 64, "--quiet", "--checkpoint-every", 0.01)
TRAININGS = {
    "char-mlp": ("--hidden", 256, "--context", 8, "--embedding", 16, *QUIET),
    "gpt": ("--model", "gpt", "--layers", 2, "--heads", 2, "--width", 12, "--context", 8, *QUIET),
}
TRAINING = TRAININGS["char-mlp"]


@pytest.mark.parametrize("model", TRAININGS)
def test_a_killed_training_goes_on_bit_for_bit(tmp_path, command, model):
    steps, options = 200, TRAININGS[model]
    assert command("train", "--out", "whole", "--steps", steps, *options).returncode == 0
    line = command.line("train", "--out", "killed", "--steps", 1_000_000, *options)
    training = subprocess.Popen(line, cwd=tmp_path, env=command.env, stdout=subprocess.DEVNULL)
    checkpoint = tmp_path / "killed" / "checkpoint.burtorch"
    while not checkpoint.exists():
        assert training.poll() is None
        time.sleep(0.001)
    training.send_signal(signal.SIGKILL)
    training.wait()
    # The same training, cut off after its first checkpoints: the options of the whole one.
    pieces = dict(_core._unbundle(checkpoint))
    n_done = len(pieces["losses"]) // 8
    assert n_done > 0
    whole = dict(_core._unbundle(tmp_path / "whole" / "checkpoint.burtorch"))
    if n_done >= steps * 7 // 10:
        pytest.skip("the machine was too fast: the kill came after the last change of the rate")
    pieces["options"] = whole["options"]
    checkpoint.write_bytes(_core._bundle(list(pieces.items())))
    done = command("train", "--resume", "killed", "--quiet")
    assert done.returncode == 0, done.stderr
    assert f"going on after step {n_done}" in done.stdout
    assert losses(tmp_path / "killed") == losses(tmp_path / "whole")
    name = "model.burtorch"
    assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_resuming_nothing_or_something_else_is_refused(tmp_path, command):
    done = command("train", "--resume", "nowhere")
    assert (done.returncode, "No such file" in done.stderr) == (2, True)
    (tmp_path / "checkpoint.burtorch").write_bytes(b"nonsense")
    assert "no file of burtorch's" in command("train", "--resume", tmp_path).stderr
    (tmp_path / "words.txt").write_text("anna\nhanna\n" * 5, encoding="utf-8")
    options = ("--data", "words.txt", "--out", "out", "--steps", 20, *TRAINING)
    assert command("train", *options).returncode == 0
    (tmp_path / "words.txt").write_text("otto\nottilie\n" * 5, encoding="utf-8")
    done = command("train", "--resume", "out")
    assert done.returncode == 2, done.stdout
