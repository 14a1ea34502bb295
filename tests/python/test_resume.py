"""Training continues bit for bit after a kill."""

from __future__ import annotations

import json
import signal
import subprocess
import time

import pytest

from burtorch import _core


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
    steps, options = {"char-mlp": 2000, "gpt": 200}[model], TRAININGS[model]
    assert command("train", "--out", "whole", "--steps", steps, *options).returncode == 0
    line = command.line("train", "--out", "killed", "--steps", 1_000_000, *options)
    training = subprocess.Popen(line, cwd=tmp_path, env=command.env, stdout=subprocess.DEVNULL)
    checkpoint = tmp_path / "killed" / "checkpoint.burtorch"
    while not checkpoint.exists():
        assert training.poll() is None
        time.sleep(0.001)
    training.send_signal(signal.SIGKILL)
    training.wait()
    # The same training, cut off after its first checkpoints: with the options of the complete one.
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
    assert f"continuing after step {n_done}" in done.stdout
    assert losses(tmp_path / "killed") == losses(tmp_path / "whole")
    name = "model.safetensors"
    assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_finished_training_is_extended(tmp_path, command):
    (tmp_path / "words.txt").write_text("anna\nhanna\notto\n" * 9, encoding="utf-8")
    options = ("--data", "words.txt", "--final-lr-fraction", "1", *TRAINING)
    for name, steps in (("whole", 40), ("extended", 15)):
        done = command("train", "--out", name, "--steps", steps, *options)
        assert done.returncode == 0, done.stderr
    done = command("train", "--resume", "extended", "--steps", 40, "--json", "--quiet")
    assert (done.returncode, "ignored" in done.stderr) == (0, False)
    assert json.loads(done.stdout)["options"]["steps"] == json.loads(done.stdout)["steps_taken"] == 40
    assert losses(tmp_path / "extended") == losses(tmp_path / "whole")
    done = command("train", "--resume", "extended", "--steps", 39)
    assert (done.returncode, "40 steps are taken" in done.stderr) == (2, True)


def test_an_extended_training_has_the_rates_of_all_its_steps(tmp_path):
    from burtorch.cli import trainer

    class Data:
        def batch(self, n):
            return [], []

        def save_state(self):
            return None

    class Optimiser:
        def __init__(self):
            self.lr, self.rates = 0.5, []

        def step(self):
            self.rates.append(self.lr)

    course, optimiser = trainer.Course(), Optimiser()
    for steps in (10, 20):
        trainer.train(
            lambda x, y, stop: (1.0, None),
            optimiser,
            Data(),
            batch=1,
            steps=steps,
            lr=0.5,
            final_lr_fraction=0.1,
            watch=lambda course: None,
            course=course,
        )
    assert optimiser.rates == [0.5] * 7 + [0.05] * 3 + [0.5] * 4 + [0.05] * 6


def test_resuming_nothing_or_something_else_is_refused(tmp_path, command):
    done = command("train", "--resume", "nowhere")
    assert (done.returncode, "No such file" in done.stderr) == (2, True)
    (tmp_path / "checkpoint.burtorch").write_bytes(b"nonsense")
    assert "not a file in burtorch's" in command("train", "--resume", tmp_path).stderr
    (tmp_path / "words.txt").write_text("anna\nhanna\n" * 5, encoding="utf-8")
    options = ("--data", "words.txt", "--out", "out", "--steps", 20, *TRAINING)
    assert command("train", *options).returncode == 0
    (tmp_path / "words.txt").write_text("otto\nottilie\n" * 5, encoding="utf-8")
    done = command("train", "--resume", "out")
    assert done.returncode == 2, done.stdout
