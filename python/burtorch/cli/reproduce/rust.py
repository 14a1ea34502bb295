"""The Rust core as a program without Python: built by cargo from a checkout of burtorch, if both exist."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import asdict, dataclass
from time import perf_counter, time
from typing import Any

from burtorch.cli.errors import say

SOURCE = os.path.join("benches", "core", "paper.rs")
OPTIONS = "--locked --release -p burtorch-core --features paper --bin paper --config profile.release.strip='symbols'"


class NoBuildError(Exception):
    """The program is missing; the message gives the reason."""


@dataclass
class Build:
    """The program, and the time of a clean build and of an incremental one after a change of its own file."""

    binary: str
    seconds: float | None = None
    cpu_seconds: float | None = None
    again_seconds: float | None = None
    again_cpu_seconds: float | None = None

    @property
    def megabytes(self) -> float:
        return os.path.getsize(self.binary) / 1e6


def checkout() -> str | None:
    """The current folder, or the first one above it, that contains burtorch's sources."""
    folder = os.getcwd()
    while not os.path.isfile(os.path.join(folder, SOURCE)):
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above
    return folder


def build(*, quick: bool) -> Build:
    """Builds it in ``target/reproduce`` of the checkout from scratch, or reuses an up-to-date build there.

    Raises:
        NoBuildError: without a checkout or cargo, if cargo fails, or if ``quick`` and there is no such build.
    """
    root = checkout()
    if root is None:
        raise NoBuildError("no checkout of burtorch in the current folder or above it")
    if shutil.which("cargo") is None:
        raise NoBuildError("cargo is not installed")
    folder = os.path.join(root, "target", "reproduce")
    found, record = Build(os.path.join(folder, "release", "paper")), os.path.join(folder, "built.json")
    kept = _read(record)
    if kept is not None and os.path.isfile(found.binary) and _last_change(root) <= os.path.getmtime(record):
        return Build(**{**kept, "binary": found.binary})
    if quick:
        raise NoBuildError("it is not built from these sources, which takes minutes and a run without --quick")
    say("building the Rust program from nothing")
    shutil.rmtree(folder, ignore_errors=True)
    began, source = time(), os.path.join(root, SOURCE)
    found.seconds, found.cpu_seconds = _cargo(root, folder)
    changed = os.path.getmtime(source)
    os.utime(source)
    found.again_seconds, found.again_cpu_seconds = _cargo(root, folder)
    os.utime(source, (changed, changed))
    with open(record, "w", encoding="utf-8") as file:
        json.dump(asdict(found), file)
    os.utime(record, (began, began))  # later changes are not in the program
    return found


def _cargo(root: str, folder: str) -> tuple[float, float]:
    """Wall and CPU seconds of cargo and its child processes."""
    command = ["cargo", "build", *(word.replace("'", '"') for word in OPTIONS.split()), "--target-dir", folder]
    start, before = perf_counter(), _cpu_of_children()
    done = subprocess.run(command, cwd=root, capture_output=True, encoding="utf-8", errors="replace")
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise NoBuildError(f"cargo failed: {lines[-1] if lines else done.returncode}")
    return perf_counter() - start, _cpu_of_children() - before


def _last_change(root: str) -> float:
    """The time of the last change of the program's source files."""
    core = os.path.join(root, "crates", "burtorch-core")
    files = [os.path.join(folder, name) for folder, _, names in os.walk(core) for name in names]
    graphs = os.path.join("benches", "core", "graphs.rs")
    files += [os.path.join(root, name) for name in (SOURCE, graphs, "Cargo.toml", "Cargo.lock", "rust-toolchain.toml")]
    return max(os.path.getmtime(file) for file in files if os.path.exists(file))


def _cpu_of_children() -> float:
    spent = os.times()
    return spent.children_user + spent.children_system


def _read(path: str) -> dict[str, Any] | None:
    try:
        with open(path, encoding="utf-8") as file:
            found: dict[str, Any] = json.load(file)
    except (OSError, ValueError):
        return None
    return found
