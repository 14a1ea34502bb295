"""The GPT from Python: in an oracle, layer by layer, on text, and from the command line."""

import itertools
import json
import random
import subprocess
import sys

import pytest

import burtorch as bt

SMALL = {"vocab": 11, "context": 9, "layers": 2, "heads": 2, "width": 8}


def windows(n, length, vocab, seed=0):
    draw = random.Random(seed)
    return [[draw.randrange(vocab) for _ in range(length)] for _ in range(n)]


def test_the_papers_configuration_has_46289_parameters():
    params = bt.Parameters(seed=0)
    model = bt.nn.GPT(params)
    assert (model.n_parameters, len(params)) == (46_289, 46_289)
    assert (model.vocab, model.context, model.layers, model.heads, model.width) == (65, 8, 6, 6, 24)
    named = model.named_tensors()
    assert named[0][0] == "tokens"
    assert named[-1][0] == "head.bias"
    ends = [tensor.span for _, tensor in named]
    assert ends[0][0] == 0
    assert ends[-1][1] == 46_289
    assert all(a[1] == b[0] for a, b in itertools.pairwise(ends))


@pytest.mark.parametrize("length", [1, 8, 9])
def test_the_gradient_is_that_of_differences(length):
    params = bt.Parameters(dtype="float64", seed=1)
    oracle = bt.Oracle(bt.nn.GPT(params, **SMALL))
    x, y = windows(3, length, 11), windows(3, length, 11, seed=1)
    loss, grad = oracle(x, y)
    grad = list(grad)
    assert loss == pytest.approx(sum(oracle.losses(x, y)) / 3, rel=1e-14)
    for k in range(0, len(params), 61):
        before = params.values[k]
        params.values[k] = before + 1e-5
        above = oracle.loss(x, y)
        params.values[k] = before - 1e-5
        below = oracle.loss(x, y)
        params.values[k] = before
        assert grad[k] == pytest.approx((above - below) / 2e-5, abs=1e-8)


def test_mismatches_are_refused():
    params = bt.Parameters()
    model = bt.nn.GPT(params, **SMALL)
    oracle = bt.Oracle(model)
    good = windows(2, 9, 11)
    for x, y, error in (
        (windows(2, 10, 11), windows(2, 10, 11), ValueError),
        (good, windows(2, 8, 11), ValueError),
        (good, [1, 2], ValueError),
        ([], [], ValueError),
        (good, windows(2, 9, 12, seed=3), IndexError),
        ([[11] * 9], [[0] * 9], IndexError),
        ([["a"] * 9], [[0] * 9], TypeError),
    ):
        params.grads[:] = [7.0] * len(params)
        with pytest.raises(error):
            oracle(x, y)
        assert set(params.grads) == {7.0}
    for wrong in ({"heads": 3}, {"layers": 0}, {"eps": float("nan")}):
        with pytest.raises(ValueError):
            bt.nn.GPT(params, **{**SMALL, **wrong})
    with pytest.raises(TypeError):
        bt.nn.GPT(bt.Parameters(dtype="float16"))
    with pytest.raises(IndexError):
        model.logits([11])
    with pytest.raises(ValueError):
        model.logits([1] * 10)


def test_training_memorises_a_line_and_writes_it():
    line = "to be or not to be, that is the question. "
    data = bt.text.TextWindows(line * 20, context=12, holdout=0.1, seed=0)
    params = bt.Parameters(seed=0)
    model = bt.nn.GPT(params, vocab=len(data.vocabulary), context=12, layers=2, heads=2, width=16)
    oracle, adam = bt.Oracle(model), bt.optim.AdamW(model, lr=5e-3)
    schedule = bt.optim.Schedule(adam, "cosine", total=250, warm_up=10)
    for _ in range(250):
        loss, _ = oracle(*data.batch(16))
        assert bt.optim.clip_grad_norm(params, 5.0) >= 0.0
        adam.step()
        schedule.step()
    assert loss < 0.5
    assert adam.lr < 1e-4
    text = bt.text.continue_text(model, data.vocabulary, 30, prompt="to be or ", temperature=0)
    assert text == (line * 2)[:39]
    assert bt.text.continue_text(model, data.vocabulary, 30, "to", seed=1) == bt.text.continue_text(
        model, data.vocabulary, 30, "to", seed=1
    )
    for wrong in ({"prompt": ""}, {"prompt": "X"}, {"temperature": -1.0}):
        with pytest.raises(ValueError):
            bt.text.continue_text(model, data.vocabulary, 3, **wrong)


def test_text_windows_cover_the_text_and_hold_out_its_end():
    text = "".join(chr(97 + k % 26) for k in range(1000))
    data = bt.text.TextWindows(text, context=7, holdout=0.1, seed=3)
    assert data.vocabulary == "abcdefghijklmnopqrstuvwxyz"
    assert (data.n_train, data.n_heldout) == (128, 14)
    x, y = data.heldout(0, 14)
    assert x.tolist()[0] == [(900 + k) % 26 for k in range(7)]
    assert y.tolist()[13][-1] == (900 + 14 * 7) % 26
    x, y = data.batch(50)
    assert all(y == [(k + 1) % 26 for k in x] for x, y in zip(x.tolist(), y.tolist()))
    again = bt.text.TextWindows(text, context=7, holdout=0.1, seed=3)
    assert again.batch(50)[0].tolist() == x.tolist()
    for wrong in (("abc", 3), ("", 1), ("abcdef", 0)):
        with pytest.raises(ValueError):
            bt.text.TextWindows(wrong[0], context=wrong[1])
    with pytest.raises(ValueError):
        data.batch(0)
    with pytest.raises(ValueError):
        data.heldout(3, 15)


def test_a_frozen_embedding_stays():
    params = bt.Parameters(seed=0)
    model = bt.nn.GPT(params, **SMALL)
    model.tokens.freeze()
    before = list(model.tokens.values)
    oracle, adam = bt.Oracle(model), bt.optim.AdamW(model, lr=0.1)
    oracle(windows(2, 9, 11), windows(2, 9, 11, seed=1))
    adam.step()
    assert list(model.tokens.values) == before
    assert set(model.tokens.grads) == {0.0}


def burtorch(*arguments):
    return subprocess.run([sys.executable, "-m", "burtorch", *arguments], capture_output=True, text=True)


def test_the_command_line_trains_keeps_and_continues(tmp_path):
    text = tmp_path / "play.txt"
    text.write_text("the quick brown fox jumps over the lazy dog.\n" * 40, encoding="utf-8")
    out = tmp_path / "run"
    sizes = ("--layers", "1", "--heads", "2", "--width", "8", "--context", "8", "--steps", "200", "--batch", "8")
    done = burtorch("train", "--model", "gpt", "--data", str(text), *sizes, "--quiet", "--json", "--out", str(out))
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["model"] == "gpt"
    assert summary["heldout_loss"] < 3.0
    assert summary["options"]["optimizer"] == "adamw"
    done = burtorch("generate", str(out), "--prompt", "the ", "--n", "20")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("the ")
    assert len(done.stdout) == 25
    done = burtorch("generate", str(out), "--prompt", "THE")
    assert done.returncode == 2
    assert "'T'" in done.stderr
    for wrong in (("--hidden", "4"), ("--heads", "3", "--width", "8")):
        done = burtorch("train", "--model", "gpt", "--data", str(text), *wrong, "--quiet")
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1
    model = out / "model.safetensors"
    content = model.read_bytes()
    for damaged in (content[:-1], content + b"\0", content.replace(b'heads\\": 2', b'heads\\": 3')):
        model.write_bytes(damaged)
        done = burtorch("generate", str(out))
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr


def test_the_bench_checks_and_times():
    done = burtorch("bench", "gpt", "--batch", "1,2", "--rounds", "2", "--json")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert list(record["cells"]) == ["b=1", "b=2"]
    assert all(rows["burtorch"]["median"] > 0 for rows in record["cells"].values())
