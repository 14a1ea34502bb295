"""What a run of ``burtorch reproduce`` was asked for, and what its experiments share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from burtorch.cli.reproduce.rivals import RIVALS, SLOW_TO_COMPILE, versions

T = TypeVar("T")


@dataclass
class Settings:
    peers: tuple[str, ...]
    launches: int
    quick: bool
    words: list[str]
    text: str | None = None
    out: str | None = None
    results: dict[Any, Any] = field(default_factory=dict)
    """Of experiments that several tables show."""

    @functools.cached_property
    def versions(self) -> dict[str, str | None]:
        return versions(self.peers)

    def programs(self, family: str) -> list[str]:
        """The programs of the rivals that are installed: family "graph" or "model"."""
        found = [
            program
            for name in self.peers
            if self.versions[name] is not None
            for program in getattr(RIVALS[name], family)
        ]
        return [program for program in found if not (self.quick and program in SLOW_TO_COMPILE)]

    def absences(self) -> list[str]:
        """A line on rivals that are not installed, and one on programs that ``--quick`` leaves out."""
        absent = [name for name, version in self.versions.items() if version is None]
        lines = [f"not installed, so left out: {', '.join(absent)}"] if absent else []
        if self.quick and "torch" in self.peers and self.versions["torch"]:
            lines.append(f"left out by --quick, as it compiles for long: {', '.join(SLOW_TO_COMPILE)}")
        return lines

    def budget(self, family: str) -> float:
        """Seconds of iterations that one process gets: a small graph runs in several processes, a model in one."""
        return 1.0 if self.quick else {"graph": 15.0, "model": 60.0}[family]

    def once(self, key: Any, measure: Callable[[], T]) -> T:
        """The result of an experiment, measured when it is first asked for."""
        if key not in self.results:
            self.results[key] = measure()
        result: T = self.results[key]
        return result
