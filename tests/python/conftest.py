"""Fixtures that several test files share, and the check that the package under test is the installed one."""

from __future__ import annotations

import gc
import os
import runpy
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis
import pytest

import burtorch

ROOT = Path(__file__).resolve().parents[2]
runs_alone = runpy.run_path(str(Path(__file__).with_name("alone.py")))["runs_alone"]

hypothesis.settings.register_profile("default", deadline=None, derandomize=True)
hypothesis.settings.register_profile("long", deadline=None, max_examples=10_000)
hypothesis.settings.load_profile("default")


@cache
def parts(n: int) -> dict[Path, int]:
    """Assigns each file to one of n parts of about equal size, always the same one."""
    files = [*ROOT.glob("tests/python/*.py"), *ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
    sizes, found = [0] * n, {}
    for file in sorted(files, key=lambda file: (-file.stat().st_size, file.name)):
        found[file] = sizes.index(min(sizes))
        sizes[found[file]] += file.stat().st_size
    return found


def is_asked_for(path: Path) -> bool:
    """Whether a file belongs to the part selected by ``BURTORCH_PART=K/N``; without it, every file does."""
    part = os.environ.get("BURTORCH_PART", "")
    if not part:
        return True
    k, n = map(int, part.split("/"))
    return parts(n).get(path, 0) == k - 1


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    return True if collection_path.suffix == ".py" and not is_asked_for(collection_path) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    config.hook.pytest_deselected(items=[item for item in items if not is_asked_for(item.path)])
    items[:] = [item for item in items if is_asked_for(item.path)]


def pytest_sessionstart() -> None:
    # A shell may ignore SIGINT in background processes, and child processes inherit this; tests send SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    installed = Path(sysconfig.get_path("platlib")).resolve()
    found = Path(burtorch.__file__).resolve()
    if installed not in found.parents:
        pytest.exit(f"the tests would run {found}, not the wheel in {installed}: run 'make test'", returncode=1)


def pytest_itemcollected(item: pytest.Item) -> None:
    if isinstance(item, pytest.Function):
        name = item.cls.__name__ if item.cls else item.originalname
        if runs_alone(item.path, name):
            item.add_marker("alone")


@pytest.fixture(scope="module", autouse=True)
def collector() -> None:
    """Excludes older objects from garbage collections in a file's tests: those of the other 9,000 tests, for
    example."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The real list of names: ``names.txt`` in ``BURTORCH_DATA`` or in ``shared/data`` next to the repository."""
    folder = os.environ.get("BURTORCH_DATA")
    path = (Path(folder) if folder else ROOT.parent / "shared" / "data") / "names.txt"
    if not path.is_file():
        pytest.skip("names.txt is not here: name its folder in BURTORCH_DATA")
    return path


class Command:
    """Runs ``python -m burtorch`` in a separate folder, never in the source tree."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        self.env["PYTHONUTF8"] = "1"

    def __call__(self, *args: object, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.line(*args),
            cwd=self.folder,
            env={**self.env, **env},
            capture_output=True,
            encoding="utf-8",
            timeout=300,
        )

    def line(self, *args: object) -> list[str]:
        return [sys.executable, "-m", "burtorch", *map(str, args)]


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


SMALL = (
    *("--hidden", 4, "--context", 3, "--embedding", 3),
    *("--batch", 4, "--steps", 200, "--quiet"),
)


@pytest.fixture(scope="session")
def small() -> tuple[object, ...]:
    """Options for a very short training."""
    return SMALL


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``--out`` of a small training on a few words; its vocabulary is ``ahn``."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "words.txt").write_text("anna\nhanna\nana\nnana\n" * 5, encoding="utf-8")
    done = Command(folder)("train", "--data", "words.txt", "--out", "out", *SMALL)
    assert done.returncode == 0, done.stderr
    return folder / "out"


@pytest.fixture(scope="session")
def resumed() -> Callable[[Callable[[], Any]], Any]:
    """Runs a method for 60 steps, and another one from its state after 25; returns the last records and that state."""

    def run(make: Callable[[], Any]) -> Any:
        whole, first, second = make(), make(), make()
        whole.run(60)
        first.run(25)
        second.load_state_dict(first.state_dict())
        second.run(35)
        assert second.x.tobytes() == whole.x.tobytes()
        return second.record(), whole.record(), first.state_dict()

    return run
