"""Results of experiments in ``--out``, from which a stopped run continues."""

from __future__ import annotations

import json
import os
import zlib
from typing import Any

from burtorch import _core
from burtorch.cli import model_file
from burtorch.cli.errors import say

NAME = "unfinished.json"


class Kept:
    """Results by key, in memory and, if ``out`` is given, in a file there, which ``finish`` removes.

    Results of another build of burtorch, another machine or other options are ignored.
    """

    def __init__(self, out: str | None, origin: dict[str, Any]) -> None:
        self.path = None if out is None else os.path.join(out, NAME)
        self.origin = {**origin, "core": _checksum(str(_core.__file__))}
        self.results: dict[str, Any] = {}
        if self.path is not None and os.path.exists(self.path):
            self._load(self.path)

    def _load(self, path: str) -> None:
        try:
            with open(path, encoding="utf-8") as file:
                found = json.load(file)
            same = found["origin"] == json.loads(json.dumps(self.origin))
            results = found["results"]
        except (OSError, ValueError, KeyError, TypeError):
            same, results = False, {}
        if same:
            self.results = results
            say(f"going on: {len(results)} experiments are in {path}")
        else:
            say(f"measuring again: {path} is of another build, machine or other options")

    def keep(self, key: Any, result: Any) -> Any:
        """Stores a result, and returns it as decoded from JSON."""
        self.results[repr(key)] = result = json.loads(json.dumps(result))
        if self.path is not None:
            with model_file.whole_file(self.path) as file:
                file.write(json.dumps({"origin": self.origin, "results": self.results}).encode("utf-8"))
        return result

    def finish(self) -> None:
        """Removes the file, when the report is complete."""
        if self.path is not None and os.path.exists(self.path):
            os.remove(self.path)


def _checksum(path: str) -> int:
    with open(path, "rb") as file:
        return zlib.crc32(file.read())
