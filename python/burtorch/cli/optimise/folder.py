"""The folder of a configuration: its manifest, finished runs as JSON, unfinished ones as arrays, CSV and charts.

Its name is a hash of the configuration, the data and the version, so different configurations never share a folder.
Files are written to a temporary name and renamed, so none is ever incomplete. Nothing is pickled.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import hashlib
import io
import json
import os
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import burtorch
from burtorch.cli.errors import InputError, reason, say
from burtorch.opt import Record

if TYPE_CHECKING:
    from burtorch import mpi, opt

KEPT = (
    *(
        "problem",
        "labels",
        "compressor",
        "downlink",
        "clients",
        "step",
        "batch",
        "l2",
        "nonconvex",
        "epochs",
        "records",
    ),
    *("cohort", "local_steps", "momentum"),
)


RECORDED = {field.name for field in dataclasses.fields(Record)}
"""The fields of a record."""


def _stem(name: str, seed: int) -> str:
    """The stem of a run's file names."""
    return f"{name.replace(':', '-')}-{seed}"


class Folder:
    """The folder with the runs of a configuration. Of several processes, rank 0 reads and writes the files."""

    def __init__(self, args: argparse.Namespace, engine: mpi.Engine | None) -> None:
        self.engine = engine
        self.writes = engine is None or engine.rank == 0
        configuration: dict[str, Any] = {name: getattr(args, name) for name in KEPT}
        with open(args.data, "rb") as file:
            configuration["data"] = hashlib.file_digest(file, "sha256").hexdigest()
        text = json.dumps({"burtorch": burtorch.__version__, **configuration}, indent=1, sort_keys=True)
        self.path = Path(args.out) / hashlib.sha256(text.encode()).hexdigest()[:16]
        self.resumes = args.resume
        wrong = self._make(args.out)
        if engine is not None:
            wrong = engine.tell(wrong)
        if wrong is not None:
            raise InputError(wrong.decode())
        self._put("manifest.json", (text + "\n").encode())

    def _make(self, out: str) -> bytes | None:
        """Creates the folder if this process writes; returns the reason of a failure."""
        try:
            if self.writes:
                self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            return f"--out {out}: {reason(error)}".encode()
        return None

    def _read(self, name: str) -> bytes | None:
        """A file's content, in every process; None without such a file, or without --resume."""
        path = self.path / name
        content = path.read_bytes() if self.writes and self.resumes and path.exists() else None
        return content if self.engine is None else self.engine.tell(content)

    def is_time(self, since: float, seconds: float) -> bool:
        """Whether ``seconds`` have passed on the clock of the writing process."""
        late = time.monotonic() - since >= seconds
        return late if self.engine is None else self.engine.tell(b"1" if late else None) is not None

    def _put(self, name: str, content: bytes) -> None:
        if not self.writes:
            return
        # Another process may write the same file.
        part = self.path / f"{name}.{os.getpid()}.part"
        try:
            part.write_bytes(content)
            os.replace(part, self.path / name)
        finally:
            part.unlink(missing_ok=True)

    def finished(self, name: str, seed: int) -> dict[str, Any] | None:
        """A finished run, with --resume."""
        file = f"{_stem(name, seed)}.json"
        content = self._read(file)
        if content is None:
            return None
        try:
            found: dict[str, Any] = json.loads(content)
            if not (found["records"] and set.intersection(*map(set, found["records"])) >= RECORDED):
                raise ValueError
            return {name: found[name] for name in ("records", "sha256", "diverged")}
        except (ValueError, KeyError, TypeError):
            raise InputError(f"{self.path / file}: not a finished run; remove it to run again") from None

    def finish(self, name: str, seed: int, done: dict[str, Any]) -> None:
        """Saves a finished run and removes its state."""
        self._put(f"{_stem(name, seed)}.json", json.dumps(done).encode())
        if self.writes:
            (self.path / f"{_stem(name, seed)}.npz").unlink(missing_ok=True)

    def save(self, method: opt.Method, name: str, seed: int, records: list[dict[str, Any]]) -> None:
        """Saves the state of a run and its records so far."""
        import numpy as np

        state = method.state_dict()
        told = json.dumps({"records": records, **{key: state[key] for key in state if key != "arrays"}})
        arrays = {f"state_{key}": value for key, value in state["arrays"].items()}
        content = io.BytesIO()
        np.savez(content, told=np.frombuffer(told.encode(), np.uint8), allow_pickle=False, **arrays)
        self._put(f"{_stem(name, seed)}.npz", content.getvalue())

    def restore(self, method: opt.Method, name: str, seed: int) -> list[dict[str, Any]] | None:
        """Restores the saved state of a run; returns its records, or None if nothing was saved."""
        import numpy as np

        file = f"{_stem(name, seed)}.npz"
        content = self._read(file)
        if content is None:
            return None
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as found:
                told = json.loads(found["told"].tobytes())
                told["arrays"] = {key.removeprefix("state_"): found[key] for key in found.files if key != "told"}
            records: list[dict[str, Any]] = told.pop("records")
            if not (records and set.intersection(*map(set, records)) >= RECORDED):
                raise ValueError("records are missing")
            method.load_state_dict(told)
        except (ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile) as error:
            raise InputError(
                f"{self.path / file}: not the state of this run ({error}); remove it to run again"
            ) from None
        return records

    def write(self, runs: dict[str, list[dict[str, Any]]]) -> None:
        """Writes all records as CSV, and charts if Matplotlib is installed."""
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        fields = list(next(iter(runs.values()))[0]["records"][0])
        writer.writerow(["method", "run", *fields])
        for name, found in runs.items():
            for k, one in enumerate(found):
                writer.writerows([name, k, *(record[field] for field in fields)] for record in one["records"])
        self._put("records.csv", text.getvalue().encode())
        if not self.writes:
            return
        from burtorch.cli.optimise.charts import draw

        reason = draw(runs, str(self.path / "curves.png"))
        if reason is not None:
            say(f"{reason}: no charts")
