"""One run of a method with one seed: its records on a grid of epochs, saved while it runs, and its summary."""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import time
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from burtorch import opt
    from burtorch.cli.optimise.choices import Choices
    from burtorch.cli.optimise.folder import Folder

ENDLESS = 2**62
"""A number of steps beyond any run; oracle calls end a run."""


def one(
    args: argparse.Namespace, choices: Choices, name: str, seed: int, folder: Folder | None, made: opt.Method | None
) -> dict[str, Any]:
    """Its records, the hash of its last iterate, and whether it diverged; read from the folder if it is finished."""
    from burtorch.opt._base import calls_of

    kept = folder.finished(name, seed) if folder is not None else None
    if kept is not None:
        return kept
    method = choices.method(name, seed) if made is None else made
    records = [dataclasses.asdict(method.record())]
    if folder is not None and (found := folder.restore(method, name, seed)) is not None:
        records = found
    first, n = records[0]["oracle_calls"], choices.problem.n
    diverged, saved = False, time.monotonic()
    most = min(args.records, calls_of(args.epochs, n))  # more would record nothing in between
    grid = [first + calls_of(args.epochs * k / most, n) for k in range(1, most + 1)]
    for calls in grid:
        if calls <= records[-1]["oracle_calls"]:
            continue
        try:
            method._take(ENDLESS, calls, None, None)
        except FloatingPointError:
            diverged = True
        records.append(dataclasses.asdict(method.record()))
        if diverged:
            break
        if folder is not None and folder.is_time(saved, args.checkpoint):
            folder.save(method, name, seed, records)
            saved = time.monotonic()
    done = {"records": records, "sha256": hashlib.sha256(method.x.tobytes()).hexdigest(), "diverged": diverged}
    if folder is not None:
        folder.finish(name, seed, done)
    return done


def summary(name: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Final medians over the seeds, and the hash of the first run's iterate."""
    last = [run["records"][-1] for run in runs]
    keys = ("loss", "grad_norm", "epochs", "oracle_calls", "bits_up", "seconds")
    numbers = {"bits" if key == "bits_up" else key: median(record[key] for record in last) for key in keys}
    return {"method": name, **numbers, "sha256": runs[0]["sha256"]}
