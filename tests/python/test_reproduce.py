"""`burtorch reproduce`: names, the report and its schema, the cheapest tables, and energy with a simulated meter."""

from __future__ import annotations

import json
from importlib.resources import files

import pytest

from burtorch.cli.reproduce import catalogue, charts, machine, models, power, rivals, scalars, tables, training
from burtorch.cli.reproduce.processes import LaunchError, in_turn, launch, mean_and_deviation
from burtorch.cli.reproduce.programs import measure
from burtorch.cli.reproduce.settings import Settings

SCHEMA = json.loads(files("burtorch.cli.reproduce").joinpath("schema.json").read_text(encoding="utf-8"))
KINDS = {"object": dict, "array": list, "string": str, "boolean": bool, "number": (int, float), "integer": int}


def fits(value, schema, at="$"):
    """The part of JSON Schema that schema.json uses; an AssertionError that names the place."""
    known = {"type", "properties", "required", "additionalProperties", "items", "const", "description", "title"}
    assert set(schema) <= known | {"$schema"}, f"{at}: the checker knows no {set(schema) - known}"
    if "const" in schema:
        assert value == schema["const"], at
    types = schema.get("type", [])
    names = [types] if isinstance(types, str) else types
    fitting = [
        (value is None if name == "null" else isinstance(value, KINDS[name]))
        and (name == "boolean" or not isinstance(value, bool))
        for name in names
    ]
    assert any(fitting) or not names, f"{at}: {value!r} is no {types}"
    if isinstance(value, dict):
        assert set(schema.get("required", [])) <= set(value), f"{at}: lacks one of {schema['required']}"
        rest = schema.get("additionalProperties", True)
        for name, part in value.items():
            part_schema = schema.get("properties", {}).get(name, rest)
            assert part_schema is not False, f"{at}: unexpected {name!r}"
            if isinstance(part_schema, dict):
                fits(part, part_schema, f"{at}.{name}")
    if isinstance(value, list):
        for k, part in enumerate(value):
            fits(part, schema.get("items", {}), f"{at}[{k}]")


def settings(**given):
    return Settings(**{"peers": (), "launches": 1, "quick": True, "words": ["ab", "ba"], **given})


# Names


def test_every_table_and_figure_has_a_name():
    names = {*(f"table{k}" for k in range(1, 20)), *(f"figure{k}" for k in range(1, 8))}
    assert names <= set(catalogue.ENTRIES)


def test_list(command):
    done = command("reproduce", "--list")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(catalogue.ENTRIES)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["table20"], "no table or figure 'table20' (--list shows the names)"),
        ([], "expected the name of a table or figure, or all"),
        (["table2", "--peers", "torch,theano"], "unknown rival 'theano': expected none or some of torch, "),
        (["table2", "--launches", "0"], "expected an integer from 1"),
        (["table5", "--words", "/nowhere/names.txt"], "No such file"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_misuse_is_one_line(command, arguments, words):
    done = command("reproduce", *arguments)
    assert done.returncode in (1, 2)
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)
    assert words in done.stderr


def test_all_is_every_name_once():
    assert catalogue.expand(["table2", "all"]) == list(catalogue.ENTRIES)
    assert catalogue.expand(["table3", "table2", "table3"]) == ["table3", "table2"]


# Reports


def test_quick_tables_fit_the_schema(command, tmp_path):
    out = tmp_path / "report"
    done = command("reproduce", "table2", "figure3", "figure1", "table19", "--quick", "--peers", "none", "--out", out)
    assert done.returncode == 0, done.stderr
    record = json.loads((out / "reproduce.json").read_text(encoding="utf-8"))
    fits(record, SCHEMA)
    table2, figure3, figure1, table19 = record["tables"]
    rows = {row["label"]: dict(zip((c["name"] for c in table2["columns"]), row["values"])) for row in table2["rows"]}
    assert [label for label in rows if "burtorch" in label] == [rivals.LABELS[name] for name in rivals.OURS]
    own = rows[rivals.LABELS["burtorch"]]
    assert 0.0 < own["minimum"] <= own["compute time"] < 10.0
    assert own["time over burtorch"] == 1.0
    assert figure3["rows"][0]["values"] == [own["compute time"], 1.0]
    ahead = [[note for note in table["notes"] if "best way from Python" in note] for table in (table2, figure3)]
    assert list(map(len, ahead)) == [len(tables.COMPARED), 0]
    assert [len(row["values"]) for row in table2["rows"]] == [len(table2["columns"])] * len(table2["rows"])
    assert figure1["rows"][0] == {"label": "a", "values": [-41.0, -35.0]}
    assert (out / "figure1.svg").read_text().startswith("<svg")
    assert "digraph" in (out / "figure1.dot").read_text()
    assert table19["measured"] or "no energy meter; looked for rapl (" in table19["notes"][0]
    page = (out / "reproduce.md").read_text(encoding="utf-8")
    assert page == done.stdout
    for name in ("## table2: tiny graph", "burtorch, eager from Python", "abstract of arXiv"):
        assert name in page


def test_json_goes_to_stdout(command):
    done = command("reproduce", "figure4", "--peers", "none", "--json")
    record = json.loads(done.stdout)
    fits(record, SCHEMA)
    (figure4,) = record["tables"]
    assert "from burtorch import Value" in figure4["text"]
    assert figure4["text"].count("<td>\n\n```python") == 3  # side by side
    assert "burtorch: run, and its value and gradient are right." in figure4["notes"]


def test_a_record_that_does_not_fit_would_be_found():
    for wrong in ({}, {"schema": 1, "more": 0}, []):
        with pytest.raises(AssertionError):
            fits(wrong, SCHEMA)


def test_the_models_agree_with_float64_and_are_timed(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # where no Rust program can be built
    monkeypatch.setattr(models, "QUICK_HIDDEN", (4,))
    monkeypatch.setattr(models, "QUICK_BATCHES", (2,))
    asked = settings(peers=("numpy",))
    mlp, gpt = models.mlp_table(asked, "table5", 1), models.gpt_table(asked, "table7")
    # A slow machine has asterisks.
    assert [row.label.rstrip("*") for row in mlp.rows] == ["e=4: burtorch", "e=4: NumPy, gradient by hand"]
    assert [row.label.rstrip("*") for row in gpt.rows] == ["b=2: burtorch"]
    for row in mlp.rows + gpt.rows:
        mean, deviation, median, least, *_ = row.values
        assert 0.0 < least <= median
        assert least <= mean
        assert deviation >= 0.0
    assert not models.summary(asked, "table1").measured


def test_a_wrong_answer_is_not_timed(tmp_path):
    from burtorch.cli.reproduce import problems

    problem = problems.mlp(settings(), str(tmp_path), 4, 1, 2)
    job = {"family": "model", "program": "burtorch", "problem": problem, "iterations": 2, "budget": 1.0}
    assert launch(job)["iterations"] == 2
    with open(problem["answers"], "r+b") as file:
        file.write(b"\0\0\0\0\0\0\0\x40")  # the loss is 2
    with pytest.raises(LaunchError, match="loss off by"):
        launch(job)


def test_a_failed_program_is_reported_and_not_repeated():
    done, failures = in_turn({"absent": {"family": "bare", "program": "no_such_module"}}, 3)
    assert done == {}
    assert failures == ["absent failed: ModuleNotFoundError: No module named 'no_such_module'"]


def test_a_table_that_fails_does_not_end_the_others(monkeypatch, capsys):
    def fail(settings, name):
        raise LaunchError("ImportError: no luck")

    monkeypatch.setitem(catalogue.ENTRIES, "table2", catalogue.Entry("the tiny graph", fail))
    assert catalogue.report(["table2"], settings(), as_json=False) == 1
    assert catalogue.report(["table2", "figure1"], settings(), as_json=False) == 0
    page = capsys.readouterr().out
    assert "- Not measured: ImportError: no luck" in page
    assert "## figure1: the tiny graph" in page
    with pytest.raises(LaunchError, match="no_such_module"):
        in_turn({"burtorch": {"family": "bare", "program": "no_such_module"}}, 1)


def test_an_interrupt_keeps_the_tables_that_were_done(monkeypatch, capsys):
    def interrupt(settings, name):
        raise KeyboardInterrupt

    monkeypatch.setitem(catalogue.ENTRIES, "table2", catalogue.Entry("the tiny graph", interrupt))
    with pytest.raises(KeyboardInterrupt):
        catalogue.report(["figure1", "table2", "figure2"], settings(), as_json=True)
    record = json.loads(capsys.readouterr().out)
    assert [table["name"] for table in record["tables"]] == ["figure1"]


def test_a_rivals_process_does_not_hold_burtorch():
    run = launch({"family": "graph", "program": "python", "graph": "small", "iterations": 10, "budget": 1.0})
    bare = launch({"family": "bare", "program": ""})
    assert run["memory"]["resident"] is None or run["memory"]["resident"] < bare["memory"]["resident"] + 1.5e6


# Figures


def test_slow_loops_run_less_and_are_scaled(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(measure, "perf_counter", lambda: clock[0])

    def run(n=1):
        clock[0] += 0.25 * n

    assert measure.loop_time(run, 1000, 250.0) == {"seconds": 250.0, "minimum": 250.0, "iterations": 1000}
    assert measure.loop_time(run, 1000, 25.0) == {"seconds": 250.0, "minimum": 250.0, "iterations": 100}
    assert measure.loop_time(run, 10, 1e-9)["iterations"] == 1
    steps = measure.step_times(run, 1000, budget=5.0)
    assert steps == {"mean": 0.25, "deviation": 0.0, "median": 0.25, "minimum": 0.25, "iterations": 21}


def test_mean_and_deviation():
    assert mean_and_deviation([1.0, 3.0]) == (2.0, pytest.approx(2.0**0.5))
    assert mean_and_deviation([4.0]) == (4.0, None)


def test_operations_are_counted_on_the_gradient_by_hand():
    assert scalars.count_operations("tiny") == 15
    assert scalars.count_operations("small") > 2 * scalars.count_operations("tiny")
    assert float.__add__(1.0, 2.0) == 3.0


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        ("x", "x"),
        (100_000, "100,000"),
        (2, "2"),
        (0.0, "0"),
        (1.25, "1.250"),
        (1234.5, "1,234"),
        (2e-7, "2.000e-07"),
    ],
)
def test_cells_of_a_page(value, text):
    assert tables.show(value) == text


def test_a_table_as_markdown():
    table = tables.Table("table0", "nothing", [tables.Column("time", "s"), tables.Column("ratio")])
    table.rows.append(tables.Row("a|b", [1.5, None]))
    assert "|  | time, s | ratio |\n|---|---:|---:|\n| a&#124;b | 1.500 | - |" in table.as_markdown()


def test_a_rival_that_is_ahead_is_named():
    table = tables.Table("table0", "nothing", [tables.Column("ratio"), tables.Column("time", "s")])
    table.rows = [tables.Row(label, [0.0, time]) for label, time in (("burtorch", 2.0), ("other", 3.0))]
    assert tables.standing(table, "time") == "burtorch's best way from Python is ahead of every rival in time."
    table.rows += [tables.Row("b=2: burtorch", [0.0, 9.0]), tables.Row("b=2: fast", [0.0, 4.5])]
    table.rows += [tables.Row("b=2: absent", [0.0, None]), tables.Row("in theory, registers only", [0.0, 0.1])]
    table.rows.append(tables.Row("b=2: burtorch raw, in memory", [0.0, 1.0]))
    table.rows.append(tables.Row("b=2: burtorch, Rust core without Python", [0.0, 1.0]))
    ahead = "Ahead of burtorch's best way from Python in time, as a share of its figure: b=2: fast (0.50)."
    assert tables.standing(table, "time") == ahead


def test_training_runs_and_keeps_its_curves(monkeypatch, tmp_path):
    monkeypatch.setattr(training, "QUICK_STEPS", 3)
    monkeypatch.setattr(training, "QUICK_BATCHES", (2,))
    table = training.table(settings(words=["anna", "bob"] * 20, out=str(tmp_path)), "training")
    assert [row.label for row in table.rows] == ["character model, e=64, b=32", "GPT, b=2"]
    for row in table.rows:
        parameters, steps, loss, *_ = row.values
        assert parameters > 40_000
        assert steps == 3
        assert 0.0 < loss < 10.0
    assert {path.name for path in tmp_path.glob("*.png")} == set(table.pictures)


def test_bars_are_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    table = tables.Table("table0", "nothing", [tables.Column("time", "s")], bars=tables.Bars(("time",)))
    table.rows = [tables.Row("burtorch", [0.5]), tables.Row("other", [50.0]), tables.Row("absent", [None])]
    assert charts.draw(table, str(tmp_path / "bars.png")) is None
    assert (tmp_path / "bars.png").read_bytes().startswith(b"\x89PNG")


def test_the_machine_is_described():
    host = machine.describe()
    fits(host, SCHEMA["properties"]["machine"])
    assert host["processor"]
    assert machine.clock_hz("cpu MHz\t\t: 2600.5\n") == 2600.5e6
    assert machine.clock_hz("nothing") is None


def test_quick_omits_slow_compilers():
    asked = settings(peers=("torch", "torch-compile"))
    asked.versions = {"torch": "2.0", "torch-compile": "2.0"}
    assert asked.programs("model") == ["torch"]
    assert asked.absences() == ["left out by --quick, as it compiles for long: torch-compile"]


def test_programs_of_absent_rivals_are_left_out():
    asked = settings(peers=("numpy", "mlx"), quick=False)
    asked.versions = {"numpy": "2.0", "mlx": None}
    assert asked.programs("graph") == ["numpy"]
    assert asked.absences() == ["not installed, so left out: mlx"]


# Energy


class Played:
    """A meter of a machine that uses 3 W, and a clock that advances when it is read."""

    source = "played"

    def __init__(self):
        self.restart()

    def restart(self):
        self.at = 0.0

    @property
    def seconds(self):
        self.at += 1.0
        return self.at

    @property
    def joules(self):
        return 3.0 * self.at


def test_energy_of_a_process_is_total_less_idle(monkeypatch):
    launches = []

    def launch(job):
        launches.append(job)
        return {"init": 1.0, "seconds": 1.0 if len(launches) > 1 else 0.001}

    monkeypatch.setattr(power, "launch", launch)
    meter = Played()
    label, values = power._row(settings(), "burtorch", meter, 2.0, 4.0)
    runs = len(launches) - 1
    elapsed, joules = meter.at / runs, 3.0 * meter.at / runs
    assert label == rivals.LABELS["burtorch"]
    assert values[0] == pytest.approx(elapsed)
    assert values[4:] == pytest.approx([joules, joules - 2.0 * elapsed, 2.0 * elapsed])
    assert values[1:4] == pytest.approx([part / 3.6 for part in values[4:]])


def test_energy_of_slow_rivals_is_scaled_and_marked(monkeypatch):
    monkeypatch.setattr(power, "launch", lambda job: {"init": 1.0, "seconds": 3.0})
    label, _ = power._row(settings(), "torch", Played(), 0.0, 1.0)
    assert label == "PyTorch, eager*"
    assert power._scale([{"init": 1.0, "seconds": 3.0}], 10.0) == pytest.approx(31.0 / 4.0)


def test_idle_power_is_measured(monkeypatch, tmp_path):
    monkeypatch.setattr(power.time, "sleep", lambda seconds: None)
    monkeypatch.chdir(tmp_path)  # where no Rust program can be built
    rows, notes = power.measure(settings(), PlayedIdle())
    assert len(rows) == len(rivals.OURS) + 1
    assert "5.00 W" in notes[0]


class PlayedIdle(Played):
    """5 W, for one second."""

    @property
    def seconds(self):
        self.at += 1.0
        return self.at

    @property
    def joules(self):
        return 5.0 * (self.at + 1.0)
