"""The options of a run of ``burtorch reproduce``, and data shared by its experiments."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from burtorch.cli.errors import say
from burtorch.cli.reproduce import machine, rust
from burtorch.cli.reproduce.kept import Kept
from burtorch.cli.reproduce.rivals import OURS, RIVALS, RUST, SLOW_TO_COMPILE, versions


@dataclass
class Settings:
    peers: tuple[str, ...]
    launches: int
    quick: bool
    words: list[str]
    text: str | None = None
    out: str | None = None
    seconds: float = 60.0
    """Seconds of iterations for each contender of a cell."""

    @functools.cached_property
    def versions(self) -> dict[str, str | None]:
        return versions(self.peers)

    @functools.cached_property
    def kept(self) -> Kept:
        """Results of experiments shared by several tables, or measured by an earlier run."""
        host = machine.describe()
        origin = {name: host[name] for name in ("processor", "cpu_level", "system", "python", "burtorch")}
        asked = {"launches": self.launches, "quick": self.quick, "seconds": self.seconds, "rivals": self.versions}
        data = zlib.crc32("\n".join([*self.words, self.text or ""]).encode("utf-8"))
        return Kept(self.out, {**origin, **asked, "data": data})

    @functools.cached_property
    def rust(self) -> rust.Build | None:
        """The program without Python, built at first use."""
        try:
            return rust.build(quick=self.quick)
        except rust.NoBuildError as obstacle:
            self.rust_obstacle = str(obstacle)
            say(f"no rows of the Rust core: {obstacle}")
            return None

    def programs(self, family: str) -> list[str]:
        """The programs of the installed rivals: family "graph" or "model"."""
        found = [
            program
            for name in self.peers
            if self.versions[name] is not None
            for program in getattr(RIVALS[name], family)
        ]
        return [program for program in found if not (self.quick and program in SLOW_TO_COMPILE)]

    def own_programs(self, family: str) -> list[str]:
        """All programs of burtorch."""
        return [*(OURS if family == "graph" else OURS[:1]), *([RUST] if self.rust else [])]

    def job(self, program: str, **rest: Any) -> dict[str, Any]:
        """The argument of ``launch`` for a program."""
        binary = {"binary": self.rust.binary} if program == RUST and self.rust else {}
        return {"program": program, **binary, **rest}

    def absences(self) -> list[str]:
        """A line about rivals that are not installed, and one about each skipped program."""
        absent = [name for name, version in self.versions.items() if version is None]
        lines = [f"not installed, so left out: {', '.join(absent)}"] if absent else []
        slow = [name for name in self.peers if name in SLOW_TO_COMPILE and self.versions[name]]
        if self.quick and slow:
            lines.append(f"left out by --quick, as it compiles for long: {', '.join(slow)}")
        if "rust" in self.__dict__ and self.rust is None:
            lines.append(f"no rows of the Rust core without Python: {self.rust_obstacle}")
        return lines

    def budget(self, family: str) -> float:
        """Seconds of iterations per process: a small graph runs in several processes, a model in one."""
        if self.quick:
            return 1.0
        return self.seconds / self.launches if family == "graph" else self.seconds

    def once(self, key: Any, measure: Callable[[], Any]) -> Any:
        """The result of an experiment, as decoded from JSON, measured at first use."""
        if repr(key) in self.kept.results:
            return self.kept.results[repr(key)]
        return self.kept.keep(key, measure())
