"""Commands with closed, full or missing standard streams, and commands interrupted during their start."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time

import pytest

import burtorch
from burtorch import _core

pytestmark = pytest.mark.skipif(os.name != "posix", reason="closes streams by a shell")

TRAIN = ("--hidden", 4, "--context", 3, "--embedding", 3, "--batch", 4, "--steps", 20)
COMMANDS = {
    "info": ("info",),
    "info as json": ("info", "--json"),
    "train": ("train", *TRAIN),
    "quiet train": ("train", "--quiet", *TRAIN),
    "train with files": ("train", "--out", "out", *TRAIN),
    "bench": ("bench", "eager", "--rounds", 1),
}
REFUSED = {
    "bad model": ("generate", "--model", "missing"),
    "bad data": ("train", "--data", "missing"),
    "bad option": ("train", "--hidden", "x"),
}


def run(command, arguments, redirections):
    line = " ".join(map(shlex.quote, command.line(*arguments)))
    return subprocess.run(
        ["sh", "-c", f"{line} {redirections}"], cwd=command.folder, env=command.env, capture_output=True, text=True
    )


def assert_no_traceback(done):
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_without_stderr_a_command_does_its_work(command, name):
    for closed in ("2>&-", "2>/dev/full", "2>&- <&-", "<&-"):
        done = run(command, COMMANDS[name], closed)
        assert done.returncode == 0, done
        assert done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_without_stdout_a_command_says_so_and_fails(command, name):
    for closed in (">&-", ">/dev/full", ">&- <&-"):
        done = run(command, COMMANDS[name], closed)
        assert_no_traceback(done)
        assert done.returncode == 1, done
        assert done.stderr.splitlines()[-1].startswith(f"burtorch {COMMANDS[name][0]}: error: ")
        assert run(command, COMMANDS[name], f"{closed} 2>&-").returncode == 1
    if "--out" in COMMANDS[name]:
        assert json.loads((command.folder / "out" / "summary.json").read_text())["steps_taken"] == 20


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_bad_input_whatever_is_closed(command, name):
    for closed in ("", ">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-", "2>/dev/full"):
        done = run(command, REFUSED[name], closed)
        assert_no_traceback(done)
        assert done.returncode == 2, done


def test_a_file_never_takes_the_place_of_a_closed_stream(command):
    done = run(command, COMMANDS["train with files"], "<&- >&- 2>&-")
    assert done.returncode == 1
    assert burtorch.nn.load_model(command.folder / "out" / "model.safetensors")[0].context == 3
    assert len(dict(_core._unbundle(command.folder / "out" / "checkpoint.burtorch"))["losses"]) == 8 * 20


def test_an_interrupt_while_a_command_starts_leaves_no_traceback(command):
    codes = []
    start = time.perf_counter()
    command("info")
    typical = time.perf_counter() - start
    for k in range(12):
        process = subprocess.Popen(
            command.line("info"), cwd=command.folder, env=command.env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        time.sleep(typical * (0.3 + 0.06 * k))
        process.send_signal(signal.SIGINT)
        error = process.communicate()[1].decode()
        codes.append(process.returncode)
        if "burtorch" in error:
            assert "Traceback" not in error, error
    # The command is not responsible for the start and the end of the interpreter.
    assert set(codes) <= {0, 1, 130, -signal.SIGINT}


# Raises when a line of one of our modules runs for the first time, like Ctrl-C.
INTERRUPTED_IMPORT = """
import sys
target = int(sys.argv.pop(1))
seen = 0
def trace(frame, event, argument):
    global seen
    if "burtorch" not in frame.f_code.co_filename or event != "call":
        return
    seen += 1
    if seen == target:
        sys.setprofile(None)
        raise KeyboardInterrupt
import burtorch.__main__
sys.argv = ["burtorch", "info"]
sys.setprofile(trace)
code = burtorch.__main__.main()
sys.setprofile(None)
print(seen, target)
sys.exit(code)
"""


def test_an_interrupt_at_any_import_of_the_command_ends_it_quietly(command):
    quiet = 0
    for target in range(2, 41, 3):
        done = subprocess.run(
            [sys.executable, "-c", INTERRUPTED_IMPORT, str(target)],
            cwd=command.folder,
            env=command.env,
            capture_output=True,
            text=True,
        )
        assert_no_traceback(done)
        assert done.returncode == 130, (target, done)
        assert done.stderr.count("\n") <= 1
        quiet += done.stderr == ""
    assert quiet > 5


def notes(done):
    return [line for line in done.stderr.splitlines() if "note:" in line]


def test_resume_names_the_options_that_it_ignores(command):
    assert command("train", "--out", "out", "--quiet", *TRAIN).returncode == 0
    same = command("train", "--resume", "out", "--quiet", "--hidden", 4, "--seed", 0)
    assert (same.returncode, notes(same)) == (0, [])
    given = {
        "--hidden": (5, 4),
        "--seed": (3, 0),
        "--lr": (0.5, 0.1),
        "--batch": (2, 4),
        "--optimizer": ("adamw", "sgd"),
        "--lanes": (1, "auto"),
        "--final-lr-fraction": (0.5, 0.1),
        "--checkpoint-every": (5.0, 60.0),
        "--model": ("gpt", "char-mlp"),
        "--data": ("other.txt", None),
    }
    for flag, (value, kept) in given.items():
        done = command("train", "--resume", "out", "--quiet", flag, value)
        assert done.returncode == 0, (flag, done.stderr)
        (note,) = notes(done)
        assert f"ignored: {flag} " in note
        if flag not in ("--lr", "--data"):
            assert f"{value} (it is {kept})" in note
    done = command("train", "--resume", "out", "--quiet", "--freeze-embedding", "--out", "elsewhere", "--layers", 2)
    assert done.returncode == 2  # an option of another model
    done = command("train", "--resume", "out", "--quiet", "--freeze-embedding", "--out", "elsewhere")
    assert "--freeze-embedding" in done.stderr
    assert "--out elsewhere (it is out)" in done.stderr
    assert not (command.folder / "elsewhere").exists()
