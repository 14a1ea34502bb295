"""The programs of benches/gradbench: the tool's results against hand-written derivatives, and its messages."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")

HERE = Path(__file__).parents[2] / "benches" / "gradbench"
SIZES = {
    **{"ba": (), "det": (5,), "gmm": (3, 4, 20), "hello": (), "kmeans": (3, 20, 2)},
    **{"llsq": (30, 6), "lse": (50,), "lstm": (2, 5, 3), "ode": (6, 3), "particle": (), "saddle": ()},
}


@pytest.fixture(scope="module")
def modules():
    sys.path.insert(0, str(HERE))
    import inputs
    import references
    import tool

    yield inputs, references, tool
    sys.path.remove(str(HERE))


@pytest.mark.parametrize("name", SIZES)
def test_answers_are_those_of_the_references(modules, name):
    inputs, references, tool = modules
    given = inputs.draw(name, *SIZES[name])
    functions = [function for module, function in references.REFERENCES if module == name]
    assert set(functions) == set(tool.module(name).FUNCTIONS)
    for function in functions:
        answer, runs = tool.evaluate(name, function, given)
        assert len(runs) == 1
        worst = references.distance(answer, references.expected(name, function, given))
        assert worst < 1e-11, (function, worst)


def test_a_wrong_answer_is_far_from_its_reference(modules):
    _, references, _ = modules
    assert references.distance([1.0, 2.0], [1.0, 2.1]) > 0.04
    assert references.distance([1.0], [1.0, 2.0]) == references.distance({"a": 1}, {"b": 1}) == float("inf")


def test_the_tool_answers_every_kind_of_message():
    runs = {"min_runs": 3, "min_seconds": 0}
    messages = [
        {"id": 0, "kind": "start", "eval": "lse"},
        {"id": 1, "kind": "define", "module": "lse"},
        {"id": 2, "kind": "define", "module": "ht"},
        {"id": 3, "kind": "evaluate", "module": "lse", "function": "gradient", "input": {"x": [0.0, 0.0], **runs}},
        {"id": 4, "kind": "analysis", "of": 3, "valid": True},
        {"id": 5, "kind": "evaluate", "module": "lse", "function": "no such", "input": {"x": [0.0], **runs}},
    ]
    lines = "".join(json.dumps(message) + "\n" for message in messages)
    command = [sys.executable, str(HERE / "tool.py")]
    ran = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=120, check=True)
    start, known, unknown, evaluated, analysis, failed = map(json.loads, ran.stdout.splitlines())
    assert start == {"id": 0, "tool": "burtorch"}
    assert [known["success"], unknown["success"], evaluated["success"], failed["success"]] == [True, False, True, False]
    assert known["timings"][0]["nanoseconds"] >= 0
    assert "'ht'" in unknown["error"]
    assert evaluated["output"] == [0.5, 0.5]
    assert [timing["name"] for timing in evaluated["timings"]] == ["evaluate"] * 3
    assert analysis == {"id": 4}
    assert "no such" in failed["error"]
