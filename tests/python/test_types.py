"""Type checkers accept the calls that run and expect the types that these return; signatures name all arguments, and
documentation describes them."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import burtorch as bt

pytest.importorskip("mypy")

GIVEN = """\
import numpy as np
import burtorch as bt

number, index, scalar = 0.5, 1, np.float32(0.5)
numbers, rows, several, ndarray = [0.5, 0.25], [[0.5, 0.25]], (0.5, 0.25), np.ones(2)
parameters = bt.Parameters(dtype="float64")
value, vector, array, tensor = bt.Value(0.5), bt.Vector([0.5, 0.25]), bt.array([0.5, 0.25]), parameters.tensor(2)
values = [value, value]
problem = bt.opt.least_squares(np.eye(2), np.ones(2))
"""
OPERANDS = [
    *("number", "index", "scalar", "numbers", "rows", "several", "ndarray"),
    *("value", "vector", "array", "tensor", "values"),
]
PLAIN = OPERANDS[:7]


def calls() -> list[str]:
    """Calls of all ops with every kind of operand, or with two."""
    found = []
    for op in bt.system.ops():
        name, arity = op["name"], op["arity"]
        if not hasattr(bt, name):
            continue
        found += [f"bt.{name}({x})" for x in OPERANDS]
        if arity == "binary" or name == "inner_product":
            found += [f"bt.{name}({x}, {y})" for x in OPERANDS for y in OPERANDS]
        found += [f"bt.{name}({x}, 2.0)" for x in OPERANDS if arity == "withconstant"]
        found += [f"bt.{name}(ndarray, axis=0)"]
    for name in ("max", "min", "mean", "softmax", "log_softmax", "concat", "stack", "reduce_mean_and_mean_squares"):
        found += [f"bt.{name}({x})" for x in OPERANDS]
    found += [f"bt.concat({x}, {y})" for x in OPERANDS for y in OPERANDS]
    found += [f"bt.{name}({x})" for name in ("sum", "prod", "var", "sort", "median", "take") for x in PLAIN]
    found += [
        "bt.gather(ndarray, np.array([0, 1]))",
        "bt.affine(np.ones((2, 2)), ndarray, ndarray)",
        "bt.softmax_cross_entropy(ndarray, 1)",
        "bt.rms_norm(ndarray, ndarray)",
        "bt.compress.TopK(2).compress(ndarray)",
        "bt.Oracle(bt.nn.Linear(bt.Parameters(), 2, 1), loss='mse')(np.ones((3, 2)), np.ones((3, 1)))",
        "bt.Value(np.float32(0.5))",
        "bt.Vector(ndarray)",
        "bt.function(lambda x: (x * x).sum())(ndarray)",
    ]
    return found


@pytest.fixture(scope="module")
def running() -> dict[str, object]:
    """The calls that run, and their results."""
    names: dict[str, object] = {}
    exec(GIVEN, names)
    found = {}
    for call in calls():
        try:
            found[call] = eval(call, names)
        except (TypeError, ValueError, bt.BurtorchError):
            continue
    return found


def test_most_calls_run(running):
    """Each op takes at least a number or a list."""
    assert len(running) > 1500
    for op in bt.system.ops():
        if hasattr(bt, op["name"]) and op["arity"] in ("unary", "reduction"):
            x = "number" if op["arity"] == "unary" else "numbers"
            assert isinstance(running[f"bt.{op['name']}({x})"], float)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The cache of mypy too, which halves the time of a second run."""
    return tmp_path_factory.mktemp("types")


def checked(lines: list[str], folder: Path, version: str = "3.11") -> dict[str, str]:
    """What mypy says of each line."""
    (folder / "calls.py").write_text("\n".join(lines) + "\n")
    options = ["--strict", "--config-file=", f"--python-version={version}", f"--cache-dir={folder}", "--no-pretty"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "calls.py"], cwd=folder, capture_output=True, text=True, check=False
    )
    found: dict[str, str] = {}
    for said in done.stdout.splitlines():
        _, number, kind, text = (*said.split(":", 3), "", "", "")[:4]
        if kind == " error" or "Revealed type" in text:
            found.setdefault(lines[int(number) - 1], text.strip())
    assert found, done.stdout + done.stderr
    return found


# NumPy's stubs declare the buffer protocol for Python 3.12 and later only.
@pytest.mark.parametrize("version", ["3.11", "3.12"])
def test_calls_that_run_have_the_type_of_their_result(version, running, folder):
    found = checked([*GIVEN.splitlines(), *(f"reveal_type({call})" for call in running)], folder, version)
    wrong = []
    for call, result in running.items():
        text = found.pop(f"reveal_type({call})")
        revealed = text.removeprefix('Revealed type is "').removesuffix('"')
        if revealed != "Any" and revealed.split("[")[0].split(".")[-1] != type(result).__name__:
            wrong.append(f"{call}: {text}, is {type(result).__name__}")
    assert not wrong, "\n".join(wrong)
    assert found == {}


REDUCTIONS = ["all", "any", "argmax", "argmin", "cumprod", "cumsum", "prod", "std", "sum", "var"]


def test_a_misspelt_keyword_is_an_error_of_type_checkers_and_at_run_time(folder):
    calls = [
        *(f"bt.{name}({x}, axes=0)" for name in REDUCTIONS for x in ("ndarray", "array")),
        "bt.sort(ndarray, axes=0)",
        "bt.function(bt.sin, optimise='fast')",
        "bt.trace(bt.sin, 0.5, optimise='fast')",
        *(f"bt.opt.{name}(problem, stepp=0.1)" for name in ("GD", "AGD", "SGD", "LSVRG", "SAGA", "PAGE", "LKatyusha")),
        *(f"bt.opt.{name}(problem, clients=2, stepp=0.1)" for name in ("Scaffnew", "FedAvg", "Scaffold")),
    ]
    found = checked([*GIVEN.splitlines(), *calls], folder)
    names: dict[str, object] = {}
    exec(GIVEN, names)
    for call in calls:
        assert "Unexpected keyword argument" in found[call], call
        with pytest.raises(TypeError, match=r"argument '(axes|optimise|stepp)'; did you mean '(axis|optimize|step)'"):
            eval(call, names)


@pytest.mark.parametrize("module", [bt, bt.opt, bt.nn, bt.compress, bt.data, bt.text, bt.system], ids=str)
def test_signatures_name_all_keywords(module):
    """Those of options of a Function are in the docstring; a call of a model passes them on."""
    for name in set(module.__all__) - {"function", "trace", "functional_call"}:
        called = getattr(module, name)
        if not callable(called):
            continue
        try:
            parameters = inspect.signature(called).parameters.values()
        except ValueError:
            continue  # a class of Rust without a constructor
        assert [part for part in parameters if part.kind is part.VAR_KEYWORD] == [], name


def test_the_signature_of_a_method_has_the_arguments_of_all_its_constructors():
    class Own(bt.opt.GD):
        def __init__(self, problem, *rest, own=1, **more):
            super().__init__(problem, *rest, **more)

    for method in (bt.opt.GD, bt.opt.EF21BC, bt.opt.Rennala, bt.opt.Scaffold, Own):
        parameters = inspect.signature(method).parameters
        assert list(parameters)[:2] == ["problem", "x0"]
        assert {"step", "prox", "seed", "threads", "constants", "x_star", "f_star", "lyapunov"} < set(parameters)
    assert {"downlink", "compressor", "pl", "clients", "network"} < set(inspect.signature(bt.opt.EF21BC).parameters)
    assert inspect.signature(bt.opt.Rennala).parameters["delays"].default is inspect.Parameter.empty
    assert "own" in inspect.signature(Own).parameters


@pytest.mark.parametrize("name", sorted({*bt.opt.__all__} - {"Record", "Rows"}))
def test_classes_of_optimisation_describe_their_arguments(name):
    """Each is named in the documentation of the class or of a base; fields have their own."""
    kind = getattr(bt.opt, name)
    if not inspect.isclass(kind) or not hasattr(kind, "__init__"):
        return
    text = "\n".join(base.__doc__ or "" for base in kind.__mro__[:-1])
    try:
        parameters = inspect.signature(kind).parameters
    except ValueError:
        return
    missing = [part for part in parameters if not re.search(rf"\b{part}\b", text)]
    assert missing == []
    assert ">>>" in text or name in ("Distributed", "Method", "Smoothness")
