"""Training runs of the paper's models by ``burtorch train``, with their loss curves."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from tempfile import TemporaryDirectory
from typing import Any

from burtorch.cli.errors import say
from burtorch.cli.reproduce.settings import Settings
from burtorch.cli.reproduce.tables import Cell, Column, Row, Table

BATCHES, QUICK_BATCHES = (1, 2, 4, 8, 16, 32, 64), (1, 64)
MLP_STEPS, GPT_STEPS, QUICK_STEPS = 10_000, 3000, 300
COLUMNS = [
    Column("parameters"),
    Column("steps"),
    Column("training loss", "nats"),
    Column("held-out loss", "nats"),
    Column("step, median", "ms"),
    Column("peak resident", "MB"),
]
FIGURES = ("parameters", "steps_taken", "train_loss", "heldout_loss", "median_ms_per_step", "peak_resident_mb")


def table(settings: Settings, name: str) -> Table:
    """The character model with 32 samples per step, the GPT with several batch sizes; a curve of each with --out."""
    found = Table(name, "training by burtorch train, a process each", COLUMNS)
    runs = {"character model, e=64, b=32": ["--model", "char-mlp", "--steps", str(_steps(settings, MLP_STEPS))]}
    for batch in QUICK_BATCHES if settings.quick else BATCHES:
        steps = str(_steps(settings, GPT_STEPS))
        runs[f"GPT, b={batch}"] = ["--model", "gpt", "--batch", str(batch), "--steps", steps]
    with TemporaryDirectory() as folder:
        words, text = os.path.join(folder, "words.txt"), os.path.join(folder, "text.txt")
        _write(words, "\n".join(settings.words))
        _write(text, settings.text or "\n".join(settings.words))
        for label, options in runs.items():
            picture = f"{name}-{len(found.rows) + 1}.png"

            def measure(options: list[str] = options, picture: str = picture, label: str = label) -> dict[str, Any]:
                say(f"training: {label}")
                out = os.path.join(folder, "out")
                summary = trained([*options, "--data", text if "gpt" in options else words, "--out", out])
                _keep_curve(settings, out, picture)
                shutil.rmtree(out)
                return {figure: summary[figure] for figure in FIGURES}

            summary = settings.once(("training", label), measure)
            values: list[Cell] = [summary[figure] for figure in FIGURES]
            found.rows.append(Row(label, values))
            if settings.out is not None and os.path.exists(os.path.join(settings.out, picture)):
                found.pictures.append(picture)
            elif settings.out is not None:
                found.notes.append(f"{label}: no loss curve, because Matplotlib is not installed.")
    read = "the words, a line each, as no --text was given" if settings.text is None else "the text of --text"
    found.notes.append(f"The GPT reads {read}. AdamW for the GPT, SGD for the character model, with the defaults.")
    if settings.out is None:
        found.notes.append("With --out, the loss curves are saved there.")
    return found


def trained(options: list[str]) -> dict[str, Any]:
    """The summary of a training in a separate process."""
    command = [sys.executable, "-m", "burtorch", "train", "--json", "--quiet", *options]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace")
    if done.returncode != 0:
        raise RuntimeError(f"burtorch train failed: {done.stderr.strip()}")
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


def _steps(settings: Settings, steps: int) -> int:
    return QUICK_STEPS if settings.quick else steps


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def _keep_curve(settings: Settings, out: str, name: str) -> None:
    curve = os.path.join(out, "loss.png")
    if settings.out is not None and os.path.exists(curve):
        shutil.copyfile(curve, os.path.join(settings.out, name))
