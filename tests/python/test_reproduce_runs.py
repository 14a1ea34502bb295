"""`burtorch reproduce`: continued runs, the program without Python, figures of the paper, appendix K."""

from __future__ import annotations

import os

import pytest

import burtorch
from burtorch.cli.reproduce import catalogue, files, models, paper, processes, rivals, rust, scaling, sizes
from burtorch.cli.reproduce.kept import NAME
from burtorch.cli.reproduce.processes import LaunchError, in_rounds, launch
from burtorch.cli.reproduce.settings import Settings
from burtorch.cli.reproduce.tables import Table


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    """A folder in which no Rust program can be built."""
    monkeypatch.chdir(tmp_path)


def settings(**given):
    return Settings(**{"peers": (), "launches": 1, "quick": True, "words": ["ab", "ba"], **given})


# Runs that go on


def test_a_run_goes_on_where_it_was_stopped(tmp_path, monkeypatch, capsys):
    measured = []

    def experiment(asked, name):
        result = asked.once(("once", name), lambda: measured.append(name) or {"figure": len(measured)})
        if name == "table3" and len(measured) == 2:
            raise KeyboardInterrupt
        return Table(name, str(result["figure"]), [])

    for name in ("table2", "table3"):
        monkeypatch.setitem(catalogue.ENTRIES, name, catalogue.Entry(name, experiment))
    with pytest.raises(KeyboardInterrupt):
        catalogue.report(["table2", "table3"], settings(out=str(tmp_path)), as_json=False)
    measured.append("between")
    assert catalogue.report(["table2", "table3"], settings(out=str(tmp_path)), as_json=True) == 0
    assert measured == ["table2", "table3", "between"]
    out, err = capsys.readouterr()
    assert '"title": "2"' in out
    assert "going on: 2 experiments are in" in err
    assert not (tmp_path / NAME).exists()


@pytest.mark.parametrize("change", [{"launches": 2}, {"words": ["c"]}, {"seconds": 1.0}, {"peers": ("numpy",)}])
def test_results_with_other_options_are_not_reused(tmp_path, change, capsys):
    settings(out=str(tmp_path)).once("key", lambda: 1)
    assert settings(out=str(tmp_path)).once("key", lambda: 2) == 1
    assert settings(out=str(tmp_path), **change).once("key", lambda: 3) == 3
    assert "measuring again" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "[]", '{"origin": {}}', "{"])
def test_a_damaged_file_is_measured_again(tmp_path, text):
    (tmp_path / NAME).write_text(text)
    assert settings(out=str(tmp_path)).once("key", lambda: 4) == 4


def test_results_are_as_json_gives_them_back():
    asked = settings()
    assert asked.once("key", lambda: ({1: (2, 3)}, [])) == [{"1": [2, 3]}, []]
    assert asked.once("key", lambda: 5) == [{"1": [2, 3]}, []]


def test_a_program_that_failed_in_a_round_is_left_out_of_the_next(monkeypatch):
    launched = []

    def play(job):
        launched.append(job["name"])
        if job["name"] == "bad":
            raise LaunchError("no luck")
        return {"seconds": len(launched)}

    monkeypatch.setattr(processes, "launch", play)
    found, failures = in_rounds(settings(), ("key",), {name: {"name": name} for name in ("good", "bad")}, 3)
    assert launched == ["good", "bad", "good", "good"]
    assert found == {"good": [{"seconds": 1}, {"seconds": 3}, {"seconds": 4}]}
    assert failures == ["bad failed: no luck"]


def test_a_cell_has_its_seconds():
    assert settings(quick=False, launches=5).budget("graph") == 12.0
    assert settings(quick=False, seconds=20.0).budget("model") == 20.0
    assert settings(seconds=20.0).budget("model") == 1.0


# The program without Python


CARGO = """#!/bin/sh
for last; do :; done
mkdir -p "$last/release"
grep -q broken benches/core/paper.rs && echo "error: broken" >&2 && exit 101
[ "$last/release/paper" -nt benches/core/paper.rs ] && exit 0
cp "$(dirname "$0")/program" "$last/release/paper"
chmod +x "$last/release/paper"
echo "$@" >> "$last/builds"
"""

PROGRAM = """#!/bin/sh
for word; do echo "$word" >&2; done
echo '{"init": 0.5, "memory": {"resident": 1, "private": 1, "virtual": 1}}'
"""


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """Sources, and a cargo that writes a program which prints its arguments."""
    root = tmp_path / "checkout"
    (root / "benches/core").mkdir(parents=True)
    (root / "inner").mkdir()
    source = root / "benches/core/paper.rs"
    source.write_text("fine")
    os.utime(source, (1e9, 1e9))
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    for name, text in (("cargo", CARGO), ("program", PROGRAM)):
        (bin_folder / name).write_text(text)
    (bin_folder / "cargo").chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_folder}:{os.environ['PATH']}")
    monkeypatch.chdir(root / "inner")
    return root


def builds(checkout):
    return (checkout / "target/reproduce/builds").read_text().splitlines()


def test_the_program_is_built_from_nothing_and_again(checkout):
    stray = checkout / "target/reproduce/stray"
    stray.parent.mkdir(parents=True)
    stray.write_text("")
    found = rust.build(quick=False)
    assert not stray.exists()
    assert found.seconds > 0.0
    assert found.again_seconds > 0.0
    assert found.cpu_seconds >= 0.0
    assert found.megabytes == os.path.getsize(found.binary) / 1e6
    assert "--release" in builds(checkout)[0]


def test_a_program_that_is_up_to_date_is_taken_with_its_figures(checkout):
    first = rust.build(quick=False)
    n = len(builds(checkout))
    assert rust.build(quick=True) == rust.build(quick=False) == first
    assert len(builds(checkout)) == n
    core = checkout / "crates/burtorch-core/src"
    core.mkdir(parents=True)
    (core / "lib.rs").write_text("")
    os.utime(core / "lib.rs", (2e9, 2e9))
    with pytest.raises(rust.NoBuildError, match="not built from these sources"):
        rust.build(quick=True)
    assert rust.build(quick=False) != first


def test_why_there_is_no_program(checkout, monkeypatch, tmp_path):
    with pytest.raises(rust.NoBuildError, match="not built from these sources"):
        rust.build(quick=True)
    (checkout / rust.SOURCE).write_text("broken")
    with pytest.raises(rust.NoBuildError, match="cargo failed: error: broken"):
        rust.build(quick=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(rust.NoBuildError, match="cargo is not installed"):
        rust.build(quick=False)
    monkeypatch.chdir(tmp_path)
    asked = settings()
    assert asked.absences() == []
    assert asked.own_programs("model") == ["burtorch"]
    assert asked.absences() == [
        "no rows of the Rust core without Python: no checkout of burtorch in the current folder or above it"
    ]


def test_the_program_is_launched_with_the_words_of_its_job(checkout):
    asked = settings(quick=False)
    assert asked.own_programs("graph") == [*rivals.OURS, rivals.RUST]
    job = asked.job(rivals.RUST, family="model", problem={"hidden": 4, "file": "weights"})
    assert launch(job) == {"init": 0.5, "memory": {"resident": 1, "private": 1, "virtual": 1}}
    with open(asked.rust.binary, "a", encoding="utf-8") as file:
        file.write("exit 3\n")
    with pytest.raises(LaunchError, match="file=weights"):
        launch(job)


def test_saving_by_the_program_stands_beside_that_of_each_trial():
    runs = [{"contenders": {"a": {}}, "folder": "x"}] * 2
    rows = files._with_rust(runs, [{"save": 1.0, "load": 2.0, "bytes": 56}] * 2)
    assert rows[1]["contenders"][rivals.LABELS[rivals.RUST]]["load"] == {"mean": 2.0}
    assert files._with_rust(runs, []) == runs


def test_sizes_have_compile_times(checkout):
    table = sizes.table(settings(quick=False), "sizes")
    rows = {row.label: row.values for row in table.rows}
    assert rows["cargo: Rust core, from nothing"][4] > 0.0
    assert rows[rivals.LABELS[rivals.RUST]][0] < 0.001
    assert [len(values) for values in rows.values()] == [len(table.columns)] * len(rows)


# Figures of the paper


def test_figures_of_the_paper_have_sources_and_tables():
    rows = paper._rows()
    assert {row["source"] for row in rows} == set(paper.SOURCES)
    for row in rows:
        assert set(row["tables"].split()) <= set(catalogue.ENTRIES)
        assert (row["value"] == "") == (row["source"] == "unread")
        assert not row["value"] or float(row["value"]) > 0.0
    assert [p.value for p in paper.beside("table1")] == [340.0, 292.0, None]


def test_each_measured_table_lists_missing_figures_of_the_paper():
    for k in (*range(1, 8), *range(11, 20)):
        assert [p.value for p in paper.beside(f"table{k}")].count(None) == 1
    assert paper.beside("table8") == []


def test_a_model_that_stopped_early_is_marked():
    run = {"mean": 1.0, "deviation": 0.0, "median": 1.0, "minimum": 1.0, "init": 0.0}
    run["memory"] = {"resident": None, "private": None, "virtual": None}
    table = Table("table7", "", models.COLUMNS)
    asked = settings(quick=False, seconds=20.0)
    results = {"burtorch": [{**run, "iterations": 3000}], "torch": [{**run, "iterations": 2999}]}
    models._add(table, "b=1", models.GPT_STEPS, asked, results, [])
    models._notes(table, asked, models.GPT_STEPS)
    assert [row.label for row in table.rows] == ["b=1: burtorch", "b=1: PyTorch, eager*"]
    assert "* stopped after 20 s: its figures are from fewer iterations." in table.notes


# Appendix K


def test_operations_of_the_models():
    assert scaling._operations("mlp", 1) == 6.0 * 64 * (1024 + 27)
    params = burtorch.Parameters(dtype="float32", seed=0)
    burtorch.nn.GPT(params, 65, 8, 6, 6, 24)
    embeddings, biases_and_norms = (65 + 8) * 24, 65 + 6 * (6 * 24 + 4 * 24)
    weights, attention = params.n - embeddings - biases_and_norms, 6 * 2 * 8 * 24
    assert scaling._operations("gpt", 1) == 6.0 * 8 * (weights + attention)
    assert scaling._bytes("gpt", 1) == 8.0 * params.n + 64


def test_the_crossover_to_a_gpu_is_stated_for_each_model(monkeypatch):
    times = {1: 1e-6, 64: 1e-3}
    monkeypatch.setattr(scaling, "BATCHES", tuple(times))
    monkeypatch.setattr(scaling, "_cell", lambda asked, model, batch: {"median": times[batch]})
    table = scaling.gpu(settings(quick=False), "gpu")
    assert len(table.rows) == 4
    assert (
        table.notes[0]
        == "character model, e=64: one core is faster than the bound with one launch per product up to b=1."
    )
    own, _, _, one, each, over = table.rows[1].values
    assert one < each
    assert over == pytest.approx(own / each)


def test_randomised_passes_have_the_variance_of_their_share(monkeypatch):
    monkeypatch.setattr(scaling, "QUICK_SHARES", (1.0, 0.5))
    monkeypatch.setattr(scaling, "NAMES", {"mlp": "character model"})
    monkeypatch.setattr(scaling, "_random", lambda asked, model, p: {"plain": 1.0, "random": 2.0, "variance": p})
    table = scaling.randomised(settings(), "randomised")
    assert [row.values[2:] for row in table.rows] == [[2.0, 1.0], [2.0, 0.5]]


def test_a_randomised_pass_is_measured():
    run = scaling._random(settings(), "mlp", 0.5)
    assert run["random"] > 0.0
    assert run["plain"] > 0.0
    assert 0.0 < run["variance"] < 100.0
    assert scaling._random(settings(), "mlp", 1.0)["variance"] == 0.0


def test_the_report_names_batches_that_the_paper_lacks(monkeypatch):
    run = {"median": 1.0, "memory": {"resident": 1.0, "private": 1.0}}
    monkeypatch.setattr(scaling, "_cell", lambda asked, model, batch: run)
    labels = [row.label for row in scaling.batches(settings(), "large-batches").rows]
    assert labels[:2] == ["character model, e=64, b=64", "character model, e=64, b=1,024 (extra)"]
