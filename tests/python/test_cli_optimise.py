"""``burtorch optimise``: a table and JSON of runs, files that a repeated command goes on with, and what is refused."""

from __future__ import annotations

import csv
import hashlib
import json
import subprocess
import sys
import time

import numpy as np
import pytest

from burtorch import opt
from burtorch.cli import main


@pytest.fixture
def data(tmp_path):
    rng = np.random.default_rng(0)
    features = rng.normal(size=(40, 5)).round(3)
    labels = np.where(features[:, 0] + rng.normal(size=40) > 0, 2, 1)
    path = tmp_path / "data"
    rows = (f"{b} " + " ".join(f"{j + 1}:{x}" for j, x in enumerate(row)) for b, row in zip(labels, features))
    path.write_text("\n".join(rows) + "\n")
    return path


def run(capsys, *arguments):
    status = main(["optimise", *map(str, arguments)])
    found = capsys.readouterr()
    return status, found.out, found.err


def test_json_is_the_end_of_the_runs(data, capsys):
    status, out, _ = run(
        capsys, "--data", data, "--l2", 0.1, "--method", "gd,page,ef21:topk:2,scaffnew", "--compressor", "randk:9",
        "--clients", 4, "--epochs", 20, "--json",
    )  # fmt: skip
    assert status == 0
    rows = {row["method"]: row for row in json.loads(out)}
    assert list(rows) == ["gd", "page", "ef21:topk:2", "scaffnew"]
    features, labels = opt.load_libsvm(data, labels=(1, 2))
    gd = opt.GD(opt.logistic_regression(features, labels, l2=0.1))
    gd.run(20)
    assert rows["gd"]["sha256"] == hashlib.sha256(gd.x).hexdigest()
    assert rows["gd"]["loss"] == gd.record().loss
    assert rows["gd"]["oracle_calls"] == 20 * 40
    assert rows["gd"]["bits"] == 0 < rows["scaffnew"]["bits"]
    assert all(row["seconds"] > 0 and 19 <= row["epochs"] < 22 for row in rows.values())


def test_seeds_make_medians_and_records_a_grid(data, capsys, tmp_path):
    arguments = ("--data", data, "--l2", 0.1, "--method", "sgd", "--epochs", 10, "--seeds", 3, "--seed", 4)
    status, out, _ = run(capsys, *arguments, "--records", 5, "--out", tmp_path / "runs", "--json")
    assert status == 0
    (row,) = json.loads(out)
    (folder,) = (tmp_path / "runs").iterdir()
    runs = [json.loads((folder / f"sgd-{seed}.json").read_text()) for seed in (4, 5, 6)]
    assert all([record["oracle_calls"] for record in one["records"]] == list(range(0, 401, 80)) for one in runs)
    assert row["loss"] == sorted(one["records"][-1]["loss"] for one in runs)[1]
    assert row["sha256"] == runs[0]["sha256"] != runs[1]["sha256"]


def test_a_killed_run_resumes_bit_for_bit(data, tmp_path):
    """Killed at several moments, each time after a state was saved."""
    command = [sys.executable, "-m", "burtorch", "optimise", "--data", str(data), "--problem", "robust"]
    command += ["--method", "saga", "--epochs", "8000", "--records", "300", "--checkpoint", "1e-9", "--json"]
    whole = subprocess.run(command, capture_output=True, check=True, timeout=300)
    for _ in range(3):
        running = subprocess.Popen([*command, "--resume", "--out", str(tmp_path)], stdout=subprocess.DEVNULL)
        last = states(tmp_path)
        while running.poll() is None and states(tmp_path) == last:
            time.sleep(0.002)
        running.kill()
        running.wait()
    resumed = subprocess.run(
        [*command, "--resume", "--out", str(tmp_path)], capture_output=True, check=True, timeout=300
    )
    (before,), (after,) = json.loads(whole.stdout), json.loads(resumed.stdout)
    assert {key: before[key] for key in before if key != "seconds"} == {
        key: after[key] for key in after if key != "seconds"
    }


def states(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*.npz")}


def test_a_damaged_state_is_one_line(data, capsys, tmp_path):
    arguments = ("--data", data, "--method", "gd", "--out", tmp_path / "runs")
    assert run(capsys, *arguments)[0] == 0
    (folder,) = (tmp_path / "runs").iterdir()
    for name, content in (("gd-0.json", "{"), ("gd-0.npz", "nothing")):
        (folder / "gd-0.json").unlink()
        (folder / name).write_text(content)
        status, out, err = run(capsys, *arguments, "--resume")
        assert (status, out) == (2, "")
        assert name in err
        assert len(err.splitlines()) == 1
        (folder / "gd-0.json").write_text("{}")


def test_a_repeated_command_goes_on_with_what_is_missing(data, capsys, tmp_path):
    pytest.importorskip("matplotlib")
    arguments = ("--data", data, "--problem", "robust", "--epochs", 5, "--seeds", 2, "--out", tmp_path / "runs")
    status, table, err = run(capsys, *arguments, "--method", "page")
    assert status == 0
    assert "page" in table
    (folder,) = (tmp_path / "runs").iterdir()
    assert str(folder) in err
    names = {"manifest.json", "records.csv", "curves.png", "page-0.json", "page-1.json"}
    assert {path.name for path in folder.iterdir()} == names
    kept = (folder / "page-0.json").stat().st_mtime_ns
    status, table, _ = run(capsys, *arguments, "--method", "page,saga", "--resume")
    assert status == 0
    assert "saga" in table
    assert (folder / "page-0.json").stat().st_mtime_ns == kept
    assert (folder / "saga-1.json").exists()
    with open(folder / "records.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {(row["method"], row["run"]) for row in rows} == {(m, k) for m in ("page", "saga") for k in "01"}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--method", "adam"], "adam"),
        (["--method", "gd,gd"], "twice"),
        (["--method", "ef21", "--compressor", "best"], "best"),
        (["--method", "ef21", "--compressor", "topk:9"], "k"),
        (["--batch", "41"], "batch"),
        (["--step", "quick"], "step"),
        (["--step", "-1"], "step"),
        (["--method", "gd:topk:2"], "no compressor"),
        (["--method", "diana:topk:2"], "diana"),
        (["--labels", "0,1"], "1, 2"),
        (["--labels", "2"], "two numbers"),
        (["--labels", "1,2", "--problem", "softmax"], "logistic"),
        (["--resume"], "--out"),
        (["--l2", "-1"], "l2"),
    ],
)
def test_bad_input_is_one_line(data, capsys, arguments, text):
    status, out, err = run(capsys, "--data", data, "--method", "page", *arguments)
    assert (status, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert text in err


def test_a_method_that_diverges_keeps_its_last_finite_iterate(data, capsys):
    arguments = ("--data", data, "--problem", "least-squares", "--method", "gd", "--json")
    status, out, err = run(capsys, *arguments, "--step", "1e3", "--epochs", 1000)
    assert (status, len(err.splitlines())) == (1, 1)
    assert "gd diverged" in err
    (row,) = json.loads(out)
    assert 0 < row["oracle_calls"] < 1000 * 40


def test_files_that_cannot_be_used_are_one_line(data, capsys, tmp_path):
    status, _, err = run(capsys, "--data", tmp_path / "none")
    assert (status, len(err.splitlines())) == (2, 1)
    data.write_text("1 1:0.5\n2 1:0.1\n3 1:1\n")
    status, _, err = run(capsys, "--data", data)
    assert (status, len(err.splitlines())) == (2, 1)
    assert "1, 2, 3" in err
