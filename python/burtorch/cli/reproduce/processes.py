"""Launches: one program of one experiment in a separate process, and many of them in alternation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from burtorch.cli.errors import say

if TYPE_CHECKING:
    from burtorch.cli.reproduce.settings import Settings

PROGRAMS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs")
# The folder of the programs is imported as its own package, so that a rival's process does not import burtorch.
BOOT = """
import json, sys, types
package = types.ModuleType("programs")
package.__path__ = [sys.argv[1]]
sys.modules["programs"] = package
with open(sys.argv[1] + "/__init__.py", encoding="utf-8") as file:
    exec(file.read(), package.__dict__)
from programs.launch import main
main(json.loads(sys.argv[2]))
"""
RUST_BOOT = """
import os, sys
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
os.execv(sys.argv[1], sys.argv[1:])
"""
TIMEOUT = 1200


class LaunchError(Exception):
    """A program did not run, or gave a wrong answer; the message is its last line."""


def launch(job: dict[str, Any]) -> dict[str, Any]:
    """The measurements of one process; see ``programs/launch.py``."""
    command = [sys.executable, "-c", BOOT, PROGRAMS, json.dumps(job)]
    if "binary" in job:
        words = {**job, **job.get("problem", {})}
        command = [sys.executable, "-c", RUST_BOOT, job["binary"], *(f"{key}={word}" for key, word in words.items())]
    try:
        done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        raise LaunchError(f"did not end within {TIMEOUT} s") from None
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise LaunchError(lines[-1] if lines else f"exit code {done.returncode}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def in_turn(jobs: dict[str, dict[str, Any]], launches: int) -> tuple[dict[str, list[dict[str, Any]]], list[str]]:
    """The results of several launches of each job, and a line about each failed job, which is not repeated.

    Raises:
        LaunchError: burtorch's own program, the basis of comparison, failed.
    """
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in jobs}
    failed: dict[str, str] = {}
    for k in range(launches):
        for name, job in jobs.items():
            if name in failed:
                continue
            say(f"launch {k + 1} of {launches}: {name}")
            try:
                results[name].append(launch(job))
            except LaunchError as error:
                if name == "burtorch":
                    raise
                failed[name] = str(error)
    done = {name: found for name, found in results.items() if found and name not in failed}
    return done, [f"{name} failed: {message}" for name, message in failed.items()]


def in_rounds(
    settings: Settings, key: tuple[str, ...], jobs: dict[str, dict[str, Any]], launches: int
) -> tuple[dict[str, list[dict[str, Any]]], list[str]]:
    """As ``in_turn``, but the results of each round of launches are stored."""
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in jobs}
    lines: list[str] = []
    for k in range(launches):
        say(f"round {k + 1} of {launches}")
        left = {name: jobs[name] for name in results}
        found, failures = settings.once((*key, k), partial(in_turn, left, 1))
        lines += failures
        results = {name: [*results[name], *found[name]] for name in left if name in found}
    return results, lines


def mean_and_deviation(numbers: Iterable[float]) -> tuple[float, float | None]:
    """The mean and the sample deviation, which is ``None`` for one number."""
    import statistics

    found = list(numbers)
    return statistics.fmean(found), statistics.stdev(found) if len(found) > 1 else None
