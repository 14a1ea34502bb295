"""Models as safetensors: every model can be loaded again, other libraries read it, and mismatches are refused."""

from __future__ import annotations

import json
import random
import struct

import pytest

import burtorch as bt

CHARS = {"vocab": 3, "context": 2, "embedding": 4, "hidden": 5}
TEXT = {"vocab": 3, "context": 4, "layers": 2, "heads": 2, "width": 6, "expansion": 3, "eps": 1e-3, "final_norm": True}

MODELS = {
    "char-mlp": lambda params: bt.nn.CharMLP(params, **CHARS),
    "gpt": lambda params: bt.nn.GPT(params, **TEXT),
    "gpt-named": lambda params: bt.nn.GPT(params, 5, 2, 1, 2, 4, name="m"),
    "mlp": lambda params: bt.nn.MLP(params, [3, 4, 2], "relu"),
    "mlp-plain": lambda params: bt.nn.MLP(params, [3, 4, 4, 2], "identity", bias=False, name="m"),
    "mlp-single": lambda params: bt.nn.MLP(params, [3, 2]),
    "linear": lambda params: bt.nn.Linear(params, 3, 2, activation="sigmoid"),
    "linear-plain": lambda params: bt.nn.Linear(params, 3, 2, bias=False),
}


class Net(bt.nn.Module):
    """A user-defined model, with a list and a repeated tensor."""

    def __init__(self, params):
        self.inner = [bt.nn.Linear(params, 2, 3), bt.nn.Linear(params, 3, 3, bias=False)]
        self.tied = self.inner[1].weight
        self.scale = params.tensor(2, init=1.0)


MODULES = {
    "embedding": lambda params: bt.nn.Embedding(params, 4, 3, positions=5),
    "norm": lambda params: bt.nn.LayerNorm(params, 4),
    "attention": lambda params: bt.nn.CausalSelfAttention(params, 4, 2),
    "block": lambda params: bt.nn.Block(params, 4, 2),
    "own": Net,
}


def model_of(name="char-mlp", seed=3, dtype="float32"):
    params = bt.Parameters(dtype=dtype, seed=seed)
    params.tensor(2)  # a model need not be alone
    return {**MODELS, **MODULES}[name](params)


def own_values(model):
    return list(model.params.values)[2:]


def answer(model):
    if isinstance(model, bt.nn.CharMLP):
        return model.logits([1, 2])
    return model.logits([1, 2, 0][: model.context]) if isinstance(model, bt.nn.GPT) else model([0.5, -1.0, 2.0])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_comes_back(tmp_path, name, dtype):
    model = model_of(name, dtype=dtype)
    path = tmp_path / "m.safetensors"
    vocabulary = {"char-mlp": "\nab", "gpt": "∇ab"}.get(name)
    model.save(path) if vocabulary is None else model.save(path, vocabulary=vocabulary)
    again, found = bt.nn.load_model(path)
    assert (type(again), found, repr(again)) == (type(model), vocabulary, repr(model))
    assert again.params.dtype == dtype
    assert list(again.params.values) == own_values(model)
    assert answer(again) == answer(model)
    other = model_of(name, seed=9, dtype=dtype)
    assert answer(other) != answer(model)
    other.load(path)
    assert answer(other) == answer(model)
    content = path.read_bytes()
    again.save(path) if vocabulary is None else again.save(str(path), vocabulary)
    assert path.read_bytes() == content


@pytest.mark.parametrize("name", MODULES)
def test_a_module_comes_back_into_one_like_it(tmp_path, name):
    module = model_of(name)
    path = tmp_path / "m.safetensors"
    module.save(path)
    again = model_of(name, seed=9)
    again.load(path)
    assert again.state_dict() == module.state_dict()
    with pytest.raises(bt.FormatError, match="build one, and call its load") as caught:
        bt.nn.load_model(path)
    assert type(module).__name__ in caught.value.reason


@pytest.mark.parametrize("name", [*MODELS, *MODULES])
def test_other_libraries_read_it(tmp_path, name):
    numpy = pytest.importorskip("safetensors.numpy")
    model = model_of(name)
    path = tmp_path / "m.safetensors"
    model.save(path)
    tensors = numpy.load_file(path)
    names = {
        "char-mlp": ["embedding", "hidden.bias", "hidden.weight", "output.bias", "output.weight"],
        "mlp": ["0.bias", "0.weight", "1.bias", "1.weight"],
        "linear-plain": ["weight"],
        "own": ["inner.0.bias", "inner.0.weight", "inner.1.weight", "scale"],
    }
    assert sorted(tensors) == names.get(name, sorted(tensors))
    assert sum(tensor.size for tensor in tensors.values()) == model.n_parameters
    found = sorted(float(x) for tensor in tensors.values() for x in tensor.ravel())
    assert found == sorted(own_values(model))
    if name == "char-mlp":
        assert tensors["hidden.weight"].shape == (5, 8)
        assert tensors["embedding"].ravel().tolist() == list(model.embedding.values)
        assert bt.nn.load_model(path)[1] is None
    if name == "gpt":
        assert tensors["blocks.1.attention.query.weight"].shape == (6, 6)


def test_files_of_other_libraries_can_be_loaded(tmp_path):
    numpy = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "m.safetensors"
    layer = model_of("linear")
    layer.save(path)
    tensors = numpy.load_file(path)
    tensors["weight"] = tensors["weight"] + 1
    numpy.save_file(tensors, path)
    before = list(layer.weight.values)
    layer.load(path)
    assert list(layer.weight.values) == tensors["weight"].ravel().tolist() != before
    with pytest.raises(bt.FormatError, match="no burtorch metadata"):
        bt.nn.load_model(path)


def with_about(content, change):
    """The file with other metadata."""
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    about = json.loads(header["__metadata__"]["burtorch"])
    header["__metadata__"]["burtorch"] = json.dumps({**about, **change})
    encoded = json.dumps(header).encode()
    return struct.pack("<Q", len(encoded)) + encoded + content[8 + length :]


BAD_PARTS = {
    "char-mlp": [("hidden", 6), ("hidden", 10**9), ("vocabulary", "\nabc"), ("vocabulary", "abc"), ("vocabulary", 3)]
    + [("vocabulary", "\naa"), ("vocabulary", "\na\ud800"), ("embedding", 0), ("context", True), ("hidden", 5.0)],
    "gpt": [("heads", 4), ("layers", 10**9), ("width", 5), ("eps", -1.0), ("eps", float("nan")), ("eps", 1e300)]
    + [("final_norm", False), ("final_norm", 1), ("vocabulary", "aa"), ("context", 3), ("expansion", 4)],
    "mlp": [("sizes", [3]), ("sizes", [3, 5, 2]), ("sizes", 3), ("sizes", [3, 4, "2"]), ("sizes", [2**30] * 9)]
    + [("activation", "softmax"), ("activation", ["relu"]), ("bias", None), ("vocabulary", "ab")],
    "linear": [("n_in", 2), ("n_out", 0), ("bias", False), ("activation", None), ("n_in", 10**30)],
}


@pytest.mark.parametrize("name", BAD_PARTS)
def test_files_that_do_not_fit_are_refused(tmp_path, name):
    path = tmp_path / "m.safetensors"
    model = model_of(name)
    model.save(path)
    content = path.read_bytes()
    before = list(model.params.values)
    broken = [content[:n] for n in range(0, len(content), 7)]
    broken += [content + b"\0", b"", b"\xff" * 100]
    broken += [with_about(content, {part: bad}) for part, bad in BAD_PARTS[name]]
    broken += [with_about(content, {key: None}) for key in ("model", "dtype", "version")]
    broken += [with_about(content, change) for change in ({"model": "module"}, {"model": []}, {"dtype": "float64"})]
    for bad in broken:
        path.write_bytes(bad)
        with pytest.raises(bt.FormatError) as caught:
            bt.nn.load_model(path)
        assert caught.value.reason
    for bad in broken[: len(content) // 7]:
        path.write_bytes(bad)
        with pytest.raises(bt.FormatError):
            model.load(path)
    path.write_bytes(content)
    for other in {*MODELS} - {name, f"{name}-named", f"{name}-single"}:
        if other.split("-")[0] != name.split("-")[0]:
            with pytest.raises(bt.FormatError):
                model_of(other).load(path)
    with pytest.raises(bt.FormatError, match="expected F64"):
        model_of(name, dtype="float64").load(path)
    assert list(model.params.values) == before


def test_shapes_that_differ_are_named(tmp_path):
    path = tmp_path / "m.safetensors"
    model_of().save(path)
    wide = bt.nn.CharMLP(bt.Parameters(), **{**CHARS, "hidden": 6})
    with pytest.raises(bt.FormatError, match=r"hidden\.weight"):
        wide.load(path)


def test_a_vocabulary_that_does_not_fit_is_refused_before_anything_is_written(tmp_path):
    path = tmp_path / "m.safetensors"
    for name, bad in (("char-mlp", "\nabc"), ("char-mlp", "abc"), ("gpt", "aab"), ("gpt", "ab")):
        with pytest.raises(ValueError, match="the vocabulary must be"):
            model_of(name).save(path, vocabulary=bad)
    with pytest.raises(TypeError):
        model_of("mlp").save(path, vocabulary="ab")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError):
        bt.nn.load_model(path)
    with pytest.raises(FileNotFoundError):
        model_of("mlp").save(tmp_path / "no" / "m.safetensors")


def test_random_damage_is_refused_or_makes_a_model(tmp_path):
    path = tmp_path / "m.safetensors"
    model_of("gpt").save(path, vocabulary="abc")
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    draw = random.Random(5)
    refused = 0
    for _ in range(600):
        damaged = bytearray(content)
        for _ in range(1 + draw.randrange(3)):
            damaged[draw.randrange(8 + length)] = draw.randrange(256)
        path.write_bytes(damaged)
        try:
            model, _ = bt.nn.load_model(path)
        except bt.FormatError:
            refused += 1
        else:
            assert len(list(model.params.values)) == model.n_parameters
    assert refused > 300


@pytest.mark.parametrize(("name", "vocabulary"), [("char-mlp", "\nab"), ("gpt", "abc")])
def test_generate_needs_nothing_but_the_model(tmp_path, command, name, vocabulary):
    path = tmp_path / "m.safetensors"
    model_of(name).save(path, vocabulary=vocabulary)
    done = command("generate", path, "--n", 3)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout) <= set(vocabulary + "\n")
    assert len(done.stdout) > 3
    model_of(name).save(path)
    assert "without a vocabulary" in command("generate", path).stderr


def test_a_number_is_no_path_and_closes_no_open_file(tmp_path):
    with open(tmp_path / "open", "wb") as file:
        for refused in (
            lambda: bt.nn.load_model(file.fileno()),
            lambda: bt.viz.show(bt.Value(1.0), path=file.fileno()),
        ):
            with pytest.raises(TypeError):
                refused()
            file.write(b"still open")
            file.flush()
