"""Tests of time and signals are detected, and run after the parallel tests."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

alone = runpy.run_path(str(Path(__file__).with_name("alone.py")))

SOURCE = """
import signal
from time import perf_counter

SCRIPT = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"
PLAIN = "print('monotone')"


def took(call):
    start = perf_counter()
    call()
    return perf_counter() - start


@pytest.fixture
def stopped():
    yield
    signal.setitimer(signal.ITIMER_REAL, 0.0)


def test_reads_a_clock(): assert perf_counter() > 0
def test_by_a_helper(): assert took(list) < 1
def test_by_a_fixture(stopped): assert True
def test_by_a_script(): run(SCRIPT)
@pytest.mark.parametrize("n", [took(list)])
def test_by_a_parameter(n): assert n
class TestByAMethod:
    def test_it(self): assert took(list) < 1
def test_of_numbers(): run(PLAIN)
class TestOfNumbers:
    def test_it(self): assert 1 + 1 == 2
"""


def test_direct_and_indirect_measurements_are_found():
    found = {name for name in alone["measuring"](SOURCE) if name.lower().startswith("test")}
    direct = {"test_reads_a_clock", "test_by_a_helper", "test_by_a_fixture", "test_by_a_script", "test_by_a_parameter"}
    assert found == direct | {"TestByAMethod"}


def test_the_mark_selects_them(root):
    """Runs pytest again, because this run may have deselected them."""
    names = ("test_graph", "test_stops", "test_value")
    files = [f"tests/python/{name}.py" for name in names]
    line = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "--quiet",
        "-p",
        "no:cacheprovider",
        "-m",
        "alone",
        *files,
    ]
    environment = {name: value for name, value in os.environ.items() if name != "BURTORCH_PART"}
    done = subprocess.run(line, cwd=root, env=environment, capture_output=True, text=True, timeout=120)
    found = set(re.findall(r"^tests/python/(\w+)\.py::(\w+)", done.stdout, re.MULTILINE))
    wanted = {(name, test) for name in names for test in alone["measuring_in"](root / f"tests/python/{name}.py")}
    by_hand = re.compile(r"^@pytest\.mark\.alone.*\n(?:@.*\n)*def (\w+)", re.MULTILINE)
    sources = {name: (root / f"tests/python/{name}.py").read_text(encoding="utf-8") for name in names}
    wanted |= {(name, test) for name in names for test in by_hand.findall(sources[name])}
    assert found == {(name, test) for name, test in wanted if test.startswith("test_")}, done.stderr
    assert ("test_stops", "test_a_method_stops_between_steps") in found
    assert ("test_graph", "test_ctrl_c_in_a_long_sweep_commits_nothing") in found
    assert ("test_stops", "test_a_stop_at_any_moment_leaves_all_whole") in found
    assert not any(name == "test_value" for name, _ in found)
