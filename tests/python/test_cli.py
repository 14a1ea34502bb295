"""The command line: its output, its files, and its errors for unusable input."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time

import pytest

import burtorch
from burtorch import _core
from burtorch.cli import main

COMMANDS = ["train", "generate", "bench", "reproduce", "selftest", "info"]


def assert_one_error_line(done, *words):
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("burtorch")
    assert ": error: " in done.stderr
    for word in words:
        assert word in done.stderr


# burtorch


def test_version(command):
    done = command("--version")
    assert (done.returncode, done.stdout) == (0, f"burtorch {burtorch.__version__}\n")


def test_help_names_every_command(command):
    done = command("--help")
    assert done.returncode == 0
    for name in COMMANDS:
        assert name in done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(command, name):
    done = command(name, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith(f"usage: burtorch {name}")
    assert done.stderr == ""


def test_no_command_prints_the_help_and_fails(command):
    done = command()
    assert done.returncode == 2
    assert done.stderr.startswith("usage: burtorch")


@pytest.mark.parametrize(
    "args",
    [
        ["trian"],
        ["train", "--step", "5"],
        ["train", "--steps", "0"],
        ["train", "--steps", "1e3"],
        ["train", "--hidden", "99999999999"],
        ["train", "--lr", "nan"],
        ["train", "--lr", "-1"],
        ["train", "--seed", "-1"],
        ["train", "--model", "lstm"],
        ["generate"],
        ["generate", "x", "--temperature", "0"],
        ["bench", "lazy"],
    ],
    ids=" ".join,
)
def test_misuse_is_one_line(command, args):
    assert_one_error_line(command(*args), "--help")


def test_the_script_is_the_module(command):
    script = os.path.join(os.path.dirname(sys.executable), "burtorch")
    done = subprocess.run([script, "--version"], capture_output=True, encoding="utf-8")
    assert done.stdout == command("--version").stdout


# info


def test_info(command):
    done = command("info")
    assert done.returncode == 0
    for word in (burtorch.__version__, "cpu level", "float32", "float64", "Python"):
        assert word in done.stdout


def test_info_as_json(command):
    facts = json.loads(command("info", "--json").stdout)
    assert facts["cpu_level"] in facts["available_cpu_levels"]
    assert facts["dtypes"][:2] == ["float64", "float32"]
    assert len(facts["dtypes"]) == 11


# bench


def test_bench_eager(command):
    done = command("bench", "eager", "--rounds", 1)
    assert done.returncode == 0, done.stdout
    assert "tiny graph" in done.stdout
    assert "small graph" in done.stdout
    assert done.stdout.count("burtorch, value and gradient / floats, value only: ") == 2


def test_bench_mlp_as_json(command):
    record = json.loads(command("bench", "mlp", "--hidden", 4, "--batch", "1,64", "--rounds", 1, "--json").stdout)
    assert list(record["cells"]) == ["e=4, b=1", "e=4, b=64"]
    for rows in record["cells"].values():
        assert 0 < rows["burtorch"]["minimum"] <= rows["burtorch"]["median"]


def test_bench_io_times_what_it_has_checked(command, tmp_path):
    record = json.loads(command("bench", "io", "--calls", 40, "--folder", tmp_path, "--json").stdout)
    assert {"burtorch raw", "burtorch checked", "array.array and open()"} <= record["contenders"].keys()
    for row in record["contenders"].values():
        for what in ("save", "load"):
            assert 0 < row[what]["minimum"] <= row[what]["median"] <= row[what]["90 %"]
    assert "7 of 32 float64 values" in command("bench", "io", "--calls", 20, "--folder", tmp_path).stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("bench", "eager", "--peers", "jax"), "--peers is an option of bench function, not of bench eager"),
        (("bench", "startup", "--hidden", "4"), "--hidden is an option of bench mlp, not of bench startup"),
        (("bench", "function", "--batch", "4"), "--batch is an option of bench mlp and gpt, not of bench function"),
        (("bench", "mlp", "--calls", "4"), "--calls is an option of bench io, not of bench mlp"),
        (("bench", "gpt", "--folder", "/tmp"), "--folder is an option of bench io, not of bench gpt"),
        (("bench", "io", "--folder", "no/folder"), "--folder no/folder: No such file or directory"),
        (("graph", "f.py:f", "--svg", "no/f.svg"), "--svg no/f.svg: No such file or directory"),
        (("graph", "f.py:f", "--html", "f.py/f.html"), "--html f.py/f.html: Not a directory"),
        (("graph", "f.py:f", "--dot", "."), "--dot .: Is a directory"),
        (("selftest", "--seed", "x"), "argument --seed: 'x': expected an integer from 0 to 18446744073709551615"),
        (("optimise", "--data", "a.svm", "--method", "gd", "--step", "theory*"), "step must be a number"),
    ],
)
def test_unusable_options_and_paths_are_one_line_and_exit_code_2(command, tmp_path, arguments, said):
    (tmp_path / "f.py").write_text("import burtorch as bt\ndef f():\n    return bt.Value(1.0) * 2.0\n")
    (tmp_path / "a.svm").write_text("1 1:1.0\n-1 1:-1.0\n")
    done = command(*arguments)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_bench_threads_as_json(command):
    record = json.loads(command("bench", "threads", "--rounds", 1, "--json").stdout)
    assert len(record["jobs"]) == 4
    for job in record["jobs"].values():
        assert len(job["sha256"]) == 64
    for row in (*record["jobs"].values(), record["machine"]):
        assert len(row["ms"]) == 2
        assert 0 < row["quartiles"][0] <= row["speed_up"] <= row["quartiles"][1]
    assert record["branch"]["branch"] > 0


@pytest.mark.parametrize("arguments", [("--peers", "tensorflow"), ("--hidden", "4,x"), ("--batch", "0")])
def test_bench_mlp_refuses(command, arguments):
    done = command("bench", "mlp", *arguments)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_bench_memory_does_not_grow_with_the_batch(command):
    rows = json.loads(command("bench", "memory", "--json").stdout)["cells"]["whole processes"]
    # The batch itself, 4,096 contexts of 16 token ids as passed and read, is 1.1 MB. More than 64 samples need a second
    # gradient of all parameters, in which chunks are summed.
    for hidden, gradient in [(4, 0.1), (1024, 4.4)]:
        one, many = (rows[f"MLP e={hidden}, b={batch}, 3 steps"] for batch in (64, 4096))
        assert many["peak_resident"] < one["peak_resident"] + gradient + 2.5
    assert rows["bare interpreter"]["peak_resident"] < rows["small graph, 20,000 times"]["peak_resident"]


@pytest.mark.parametrize("graph", ["tiny", "small"])
def test_bench_memory_builds_the_graphs_that_it_names(graph):
    from burtorch.cli import bench_graphs, bench_process

    program = bench_process.MEMORY[f"{graph} graph, 20,000 times"].replace("20000", "1")
    found: dict = {}
    with burtorch.Graph() as built:
        exec(program, found)
        n_nodes = len(built)
    with burtorch.Graph() as built:
        wanted = bench_graphs.GRAPHS[graph]["burtorch, value and gradient"](1)
        assert len(built) == n_nodes
    assert (found["g"].data, found["a"].grad, found["b"].grad) == wanted


def test_bench_startup(command):
    done = command("bench", "startup", "--rounds", 1)
    assert "import burtorch" in done.stdout


def test_bench_eager_as_json(command):
    record = json.loads(command("bench", "eager", "--rounds", 2, "--json").stdout)
    for graph in ("tiny", "small"):
        rows = record["graphs"][graph]
        for row in rows.values():
            assert 0 < row["minimum"] <= row["median"]
        ratio = record["ratios"][graph]["burtorch, value and gradient / floats, value only"]
        assert ratio == rows["burtorch, value and gradient"]["median"] / rows["floats, value only"]["median"]


# train


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the figure is another one")
def test_peak_memory_is_not_that_of_the_parent(command):
    held = bytearray(b"x") * 200_000_000
    summary = json.loads(command("train", "--steps", 1, "--hidden", 4, "--json", "--quiet").stdout)
    assert len(held) == 200_000_000
    assert 5.0 < summary["peak_resident_mb"] < 100.0


def test_train_prints_a_summary_with_twenty_samples(command, small):
    done = command("train", *small)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for figure in ("parameters", "training loss", "held-out loss", "median step", "peak memory", "sampled"):
        assert figure in done.stdout
    assert done.stdout.count(", ") >= 16


def test_train_shows_progress_on_stderr(command, small):
    done = command("train", *(option for option in small if option != "--quiet"))
    assert "ms/step" in done.stderr
    assert "200/200" in done.stderr
    assert "ms/step" not in done.stdout


def test_train_as_json_prints_nothing_else(command, small):
    summary = json.loads(command("train", "--json", *small).stdout)
    assert summary["data"]["words"] == len(burtorch.data.default_words())
    assert summary["data"]["train_contexts"] > 8 * summary["data"]["heldout_contexts"] > 0
    assert summary["steps_taken"] == 200
    assert len(summary["samples"]) == 20
    assert not summary["interrupted"]
    assert not summary["diverged"]


def test_train_keeps_its_results(trained):
    assert sorted(os.listdir(trained)) == ["checkpoint.burtorch", "loss.png", "model.safetensors", "summary.json"]
    assert (trained / "loss.png").read_bytes().startswith(b"\x89PNG")
    summary = json.loads((trained / "summary.json").read_text(encoding="utf-8"))
    vocab, context, embedding, hidden = 4, 3, 3, 4
    n_parameters = vocab * embedding + (context * embedding + 1) * hidden + (hidden + 1) * vocab
    assert summary["parameters"] == n_parameters
    assert summary["options"]["final_lr_fraction"] == 0.1
    assert summary["peak_resident_mb"] > 5
    assert summary["history"]["step"] == list(range(1, 201))
    start, end = summary["history"]["loss"][:20], summary["history"]["loss"][-20:]
    assert sum(end) < sum(start)


def test_training_is_the_same_every_time(command, small):
    def figures():
        summary = json.loads(command("train", "--json", "--seed", 3, *small).stdout)
        return summary["history"], summary["train_loss"], summary["heldout_loss"], summary["samples"]

    assert figures() == figures()


def test_training_imports_neither_numpy_nor_matplotlib(tmp_path, small):
    code = (
        "import sys\n"
        "from burtorch.cli import main\n"
        f"assert main(['train', '--out', 'out', *{[str(option) for option in small if option != '--quiet']}]) == 0\n"
        "loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "assert not loaded & {'numpy', 'matplotlib', 'PIL', 'multiprocessing'}, loaded\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "loss.png").exists()


def test_without_matplotlib_one_line_says_so(command, small, tmp_path):
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "matplotlib.py").write_text("raise ImportError('hidden by a test')\n", encoding="utf-8")
    done = command("train", "--out", "out", *small, PYTHONPATH=str(hidden))
    assert done.returncode == 0
    assert "no loss curve: Matplotlib is not installed" in done.stderr
    assert sorted(os.listdir(tmp_path / "out")) == ["checkpoint.burtorch", "model.safetensors", "summary.json"]


def test_words_may_hold_any_symbol(command, small, tmp_path):
    text = "\ufeffžluťoučký\r\n\r\n日本\r\nnew york\u200d\r\n" * 9
    (tmp_path / "words.txt").write_bytes(text.encode())
    done = command("train", "--data", "words.txt", "--out", "out", *small)
    assert done.returncode == 0, done.stderr
    assert command("generate", "out", "--prompt", "日").stdout.startswith("日")


def test_a_training_that_diverges_says_so(monkeypatch, capsys, small, tmp_path):
    class Exploding:
        def __init__(self, model, **options):
            self.oracle = real_oracle(model, **options)
            self.n_calls = 0

        def __call__(self, contexts, targets, **options):
            loss, grad = self.oracle(contexts, targets, **options)
            self.n_calls += 1
            return (loss if self.n_calls <= 5 else math.nan), grad

    real_oracle = burtorch.Oracle
    monkeypatch.setattr(burtorch, "Oracle", Exploding)
    assert main(["train", "--out", str(tmp_path), *map(str, small)]) == 1
    err = capsys.readouterr().err
    assert "diverged" in err
    assert "--lr" in err
    summary = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    assert (summary["diverged"], summary["steps_taken"], summary["heldout_loss"]) == (True, 5, None)
    assert not (tmp_path / "model.safetensors").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent another way on Windows")
def test_ctrl_c_keeps_what_there_is(command, small, tmp_path):
    args = [*small, "--steps", 100_000_000, "--out", "out"]
    process = subprocess.Popen(
        command.line("train", *args),
        cwd=tmp_path,
        env=command.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    try:
        headline = process.stdout.readline()
        assert headline.startswith("char-mlp on ")
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "interrupted after step" in err
    assert "held-out loss" in out
    summary = json.loads((tmp_path / "out" / "summary.json").read_text(encoding="utf-8"))
    assert summary["interrupted"]
    assert 0 < summary["steps_taken"] < 100_000_000
    assert command("generate", "out", "--n", 1).returncode == 0
    # The current step was completed, so that training can continue from the step in the summary.
    pieces = dict(_core._unbundle(tmp_path / "out" / "checkpoint.burtorch"))
    assert len(pieces["losses"]) == 8 * summary["steps_taken"]


def test_seconds_end_training_between_steps(command, small, tmp_path):
    found = command("train", *small, "--steps", 300, "--out", "whole", "--quiet", "--json")
    whole = json.loads(found.stdout)
    found = command("train", *small, "--steps", 300, "--out", "parts", "--quiet", "--json", "--seconds", 1e-9)
    assert found.returncode == 0
    part = json.loads(found.stdout)
    assert (part["steps_taken"], part["interrupted"]) == (1, False)
    again = json.loads(command("train", "--resume", "parts", "--quiet", "--json", "--seconds", 600).stdout)
    assert (again["steps_taken"], again["train_loss"]) == (300, whole["train_loss"])


BAD_TEXTS = {
    "empty": (b"", "no words"),
    "blank": (b"\n \n\r\n", "no words"),
    "binary": (b"an\nna\0\n", "line 2"),
    "control": (b"an\nn\x07a\n", "U+0007"),
    "not UTF-8": (b"an\nna\nn\xe4h\n", "line 3"),
    "not UTF-8 after a mark": (b"\xef\xbb\xbfan\nn\xe4h\n", "line 2"),
    "cut inside a symbol": ("anž".encode()[:-1], "line 1"),
    "long line": (b"an\n" + b"n" * 1001 + b"\n", "1001"),
}


@pytest.mark.parametrize("text", BAD_TEXTS)
def test_bad_text_is_one_line(command, small, tmp_path, text):
    content, word = BAD_TEXTS[text]
    (tmp_path / "words.txt").write_bytes(content)
    assert_one_error_line(command("train", "--data", "words.txt", *small), "words.txt", word)


def test_a_line_at_the_limit_is_fine(command, small, tmp_path):
    (tmp_path / "words.txt").write_bytes(b"an\n" + b"n" * 1000 + b"\n")
    assert command("train", "--data", "words.txt", *small).returncode == 0


def test_a_missing_file_and_a_folder_are_one_line(command, small):
    assert_one_error_line(command("train", "--data", "nowhere.txt", *small), "nowhere.txt", "No such file")
    assert_one_error_line(command("train", "--data", ".", *small), "directory")


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="the device does not exist here")
def test_an_endless_device_is_refused_at_once(command, small):
    assert_one_error_line(command("train", "--data", "/dev/zero", *small), "NUL")


def test_an_out_that_cannot_be_written_is_found_before_training(command, small, tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    endless = [*small, "--steps", 2_000_000_000]
    assert_one_error_line(command("train", "--out", "file", *endless), "--out file")
    assert_one_error_line(command("train", "--out", "file/inside", *endless), "--out file/inside")


def test_bad_text_makes_no_out(command, small, tmp_path):
    command("train", "--data", "nowhere.txt", "--out", "out", *small)
    assert not (tmp_path / "out").exists()


# generate


def test_generate_prints_words_of_the_vocabulary(command, trained):
    for model in (trained, trained / "model.safetensors"):
        done = command("generate", model, "--n", 7)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("\n") == 7
        assert set(done.stdout) <= set("ahn\n")


def test_generate_repeats_itself_for_a_seed(command, trained):
    def words(seed):
        return command("generate", trained, "--seed", seed).stdout

    assert words(1) == words(1)
    assert words(1) != words(2)


def test_generate_samples_what_training_sampled(command, trained):
    summary = json.loads((trained / "summary.json").read_text(encoding="utf-8"))
    assert command("generate", trained).stdout.split("\n")[:-1] == summary["samples"]


def test_every_word_begins_with_the_prompt(command, trained):
    words = command("generate", trained, "--prompt", "han", "--n", 5).stdout.split()
    assert len(words) == 5
    assert all(word.startswith("han") for word in words)


@pytest.mark.parametrize("prompt", ["xa", "a\n", "A", "é"])
def test_a_prompt_with_an_unseen_symbol_is_one_line(command, trained, prompt):
    assert_one_error_line(
        command("generate", trained, "--prompt", prompt), "--prompt", "not in the model's vocabulary", "'ahn'"
    )


def test_the_reader_of_a_pipe_may_leave(command, trained):
    process = subprocess.Popen(
        command.line("generate", trained, "--n", 20_000),
        env=command.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(timeout=60) == 1


def test_no_model_is_one_line(command, tmp_path):
    assert_one_error_line(command("generate", "nowhere"), "nowhere", "No such file")
    assert_one_error_line(command("generate", "."), "model.safetensors")
    (tmp_path / "words.txt").write_text("anna\n", encoding="utf-8")
    assert_one_error_line(command("generate", "words.txt"), "not a burtorch model")


# the real data


def test_names_reach_the_held_out_loss(command, shared_data):
    done = command(
        "train", "--data", shared_data, "--json", "--quiet", "--hidden", 64, "--batch", 32, "--steps", 10_000
    )
    summary = json.loads(done.stdout)
    assert summary["data"]["words"] == 32_033
    assert summary["data"]["symbols"] == 27
    assert summary["parameters"] == 69_083
    assert summary["heldout_loss"] <= 2.20


# selftest


def test_selftest_passes_and_says_what_it_did(command):
    done = command("selftest")
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    levels = burtorch.system.available_cpu_levels()
    assert len(lines) == 3 * len(levels) + 1
    assert all(line.split()[0] in levels and line.endswith("results, 0 wrong") for line in lines[:-1])
    assert lines[-1].startswith("passed in ")


def test_a_level_that_the_cpu_lacks_is_refused():
    level = burtorch.system.cpu_level()
    for name in ("avx1024", ""):
        with pytest.raises(ValueError, match="levels of this CPU"):
            burtorch.system.force_cpu_level(name)
    assert burtorch.system.cpu_level() == level


def test_train_in_other_lanes_is_the_same_training(command, small):
    losses = []
    for lanes in ("auto", "1", "16"):
        done = command("train", *small, "--json", "--quiet", "--lanes", lanes)
        assert done.returncode == 0, done.stderr
        summary = json.loads(done.stdout)
        assert str(summary["options"]["lanes"]) == lanes
        losses.append(summary["heldout_loss"])
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-4)
    assert_one_error_line(command("train", *small, "--lanes", "3"), "lanes")
    assert_one_error_line(command("train", *small, "--lanes", "many"), "lanes")
