"""``burtorch optimise``: a table and JSON of runs, files with which a repeated command continues, and refusals."""

from __future__ import annotations

import csv
import hashlib
import json
import subprocess
import sys
import time

import numpy as np
import pytest

from burtorch import compress, opt
from burtorch.cli import main
from burtorch.cli.optimise import choices


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


def test_methods_may_be_spelled_as_in_papers(data, capsys):
    status, out, _ = run(capsys, "--data", data, "--method", "GD, L-SVRG,ef21_pp,EF21:TopK:2", "--epochs", 2, "--json")
    assert status == 0
    assert [row["method"] for row in json.loads(out)] == ["gd", "l-svrg", "ef21-pp", "ef21:topk:2"]
    status, _, err = run(capsys, "--data", data, "--method", "LSVRG,l-svrg")
    assert status == 2
    assert "twice" in err


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


def saga(data, epochs, *more):
    """The command of a run that saves its state all the time."""
    command = [sys.executable, "-m", "burtorch", "optimise", "--data", str(data), "--problem", "robust"]
    command += ["--method", "saga", "--step", "0.01", "--epochs", epochs, "--checkpoint", "1e-9"]
    return [*command, *more]


def test_a_killed_run_resumes_bit_for_bit(data, tmp_path):
    """Killed several times, each time after a state was saved."""
    command = saga(data, "8000", "--records", "300", "--json")
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
    arguments = (
        "--data",
        data,
        "--problem",
        "robust",
        "--step",
        0.01,
        "--epochs",
        5,
        "--seeds",
        2,
        "--out",
        tmp_path / "runs",
    )
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
        (["--method", "gd,gd"], "gd appears twice"),
        (["--method", "gd,page,L-SVRG,lsvrg"], "l-svrg appears twice"),
        (["--problem", "robust", "--method", "saga"], "saga: the theory of SAGA does not cover this problem"),
        (["--nonconvex", "0.1", "--method", "diana"], "diana: the theory of DIANA does not cover this problem"),
        (["--method", "ef21", "--compressor", "best"], "best"),
        (["--method", "ef21", "--compressor", "topk:9"], "k"),
        (["--batch", "41"], "batch"),
        (["--step", "quick"], "step"),
        (["--step", "-1"], "step"),
        (["--method", "gd:topk:2"], "no compressor"),
        (["--method", "diana:topk:2"], "diana"),
        (["--labels", "0,1"], "--labels 0,1: the labels of"),
        (["--labels", "1,3"], "are 1, 2"),
        (["--labels", "1,1"], "--labels 1,1: the labels of"),
        (["--labels", "2"], "two numbers"),
        (["--labels", "1,2", "--problem", "softmax"], "logistic"),
        (["--resume"], "--out"),
        (["--l2", "-1"], "l2"),
        (["--epochs", "1e300"], "--epochs"),
        (["--compressor", "best"], "best"),
        (["--compressor", "topk:0"], "topk:0"),
        (["--compressor", "natural:3"], "natural takes no number"),
        (["--compressor", "topk"], "topk takes a number"),
        (["--compressor", "qsgd:0.5"], "compressor qsgd:0.5: qsgd takes an integer, found '0.5'"),
        (["--compressor", "bernoulli:p"], "compressor bernoulli:p: bernoulli takes a number, found 'p'"),
        (["--downlink", "topk:x"], "compressor topk:x: topk takes a number or a share, found 'x'"),
        (["--method", "ef21:randk:\u00b2"], "randk takes a number or a share, found"),
        (["--cohort", "21"], "20 clients"),
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
    for path in (tmp_path / "none", tmp_path, tmp_path / "none" / "data", data / "below"):
        status, _, err = run(capsys, "--data", path)
        assert (status, len(err.splitlines())) == (2, 1)
        assert str(path) in err
    for path in (data, data / "below", tmp_path / ("long" * 100)):
        status, _, err = run(capsys, "--data", data, "--out", path)
        assert (status, len(err.splitlines())) == (2, 1)
        assert str(path) in err
    data.write_text("1 1:0.5\n2 1:0.1\n3 1:1\n")
    status, _, err = run(capsys, "--data", data)
    assert (status, len(err.splitlines())) == (2, 1)
    assert "1, 2, 3" in err
    data.write_text("1\n2\n")
    for problem in choices.PROBLEMS:
        status, _, err = run(capsys, "--data", data, "--problem", problem)
        assert (status, err) == (2, f"burtorch optimise: error: {data}: no sample has a feature\n")
    for text in ("1 1:x\n", "1 2:1 1:1\n", ""):
        data.write_text(text)
        status, _, err = run(capsys, "--data", data)
        assert (status, len(err.splitlines())) == (2, 1)
        assert f"{data}: line" in err


NUMBERED = ("topk:2", "randk:0.4", "randseqk:2", "toplek:2", "bernoulli:0.5", "qsgd:4", "naturaldithering:3")


@pytest.mark.parametrize("rule", [*choices.PLAIN, *NUMBERED])
def test_every_compressor_has_a_name(data, capsys, rule):
    method = "ef14" if rule.startswith("top") or rule == "scaledsign" else "marina"
    arguments = ("--data", data, "--l2", 0.1, "--method", f"{method}:{rule}", "--clients", 4, "--epochs", 2, "--json")
    status, out, _ = run(capsys, *arguments)
    assert status == 0
    assert json.loads(out)[0]["bits"] > 0


def test_the_names_are_all_rules_of_compress():
    assert set(choices.COMPRESSORS.values()) == set(compress.__all__) - {"Compose", "Compressor", "Draw", "Message"}
    assert all(name == rule.lower() for name, rule in choices.COMPRESSORS.items())


def test_json_has_null_in_place_of_numbers_that_are_not_finite(data, capsys):
    """The loss of the last finite iterate overflows."""
    arguments = ("--data", data, "--problem", "least-squares", "--method", "gd,agd", "--json", "--step", "1e3")
    status, out, _ = run(capsys, *arguments, "--epochs", 1000)
    assert status == 1

    def refused(name):
        raise AssertionError(name)

    rows = json.loads(out, parse_constant=refused)
    assert any(row["loss"] is None for row in rows)


@pytest.mark.parametrize(
    "content", ["{}", "[]", "3", '{"records": []}', '{"records": [{}], "sha256": "", "diverged": 0}']
)
def test_a_finished_run_that_lacks_something_is_one_line(data, capsys, tmp_path, content):
    arguments = ("--data", data, "--method", "gd", "--out", tmp_path / "runs")
    assert run(capsys, *arguments)[0] == 0
    (folder,) = (tmp_path / "runs").iterdir()
    (folder / "gd-0.json").write_text(content)
    status, out, err = run(capsys, *arguments, "--resume")
    assert (status, out, len(err.splitlines())) == (2, "", 1)
    assert "gd-0.json: not a finished run" in err


def test_processes_may_share_a_folder(data, tmp_path):
    command = saga(data, "100", "--out", str(tmp_path / "runs"))
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
    found = [process.communicate(timeout=300) for process in both]
    assert [process.returncode for process in both] == [0, 0], found
    assert not list((tmp_path / "runs").rglob("*.part"))
