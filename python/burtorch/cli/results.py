"""Results of ``burtorch train``: the summary on the terminal, and the files of ``--out``."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from burtorch.cli import model_file
from burtorch.cli.errors import InputError, reason, say

if TYPE_CHECKING:
    from burtorch.cli.kinds import AnyModel

SUMMARY_NAME = "summary.json"
PICTURE_NAME = "loss.png"


def require_writable(out: str | None) -> None:
    """Creates the directory and writes to it, so that a training does not end without a place for its results."""
    if out is None:
        return
    trial = os.path.join(out, "trial")
    try:
        os.makedirs(out, exist_ok=True)
        with model_file.whole_file(trial) as file:
            file.write(b"\n")
        os.remove(trial)
    except OSError as error:
        raise InputError(f"--out {out}: cannot write there: {reason(error)}") from None


def peak_resident_mb() -> float | None:
    """The peak resident memory of this process, in units of 10^6 bytes; ``None`` if the system does not report it."""
    from burtorch.cli.reproduce.programs.measure import memory

    peak = memory()["resident"]
    return None if peak is None else peak / 1e6


def show(summary: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        import json

        print(json.dumps(summary, ensure_ascii=False, allow_nan=False), flush=True)
        return

    def figure(name: str, value: float | None, digits: int, unit: str) -> None:
        print(f"{name:<16}{'-' if value is None else f'{value:,.{digits}f}':>12} {unit}".rstrip())

    print()
    figure("parameters", summary["parameters"], 0, "")
    figure("steps", summary["steps_taken"], 0, "")
    figure("training loss", summary["train_loss"], 4, "nats")
    figure("held-out loss", summary["heldout_loss"], 4, "nats")
    figure("median step", summary["median_ms_per_step"], 3, "ms")
    figure("peak memory", summary["peak_resident_mb"], 1, "MB")
    if summary["model"] == "gpt":
        for text in summary["samples"]:
            print("\nsampled\n" + text)
        sys.stdout.flush()
        return
    for start in range(0, len(summary["samples"]), 5):
        print(f"{'' if start else 'sampled':<18}{', '.join(summary['samples'][start : start + 5])}")
    sys.stdout.flush()


def keep(out: str, summary: dict[str, Any], model: AnyModel, vocabulary: str) -> None:
    """Writes the summary, the model unless training diverged, and the loss curve if it can be drawn."""
    import json

    with model_file.whole_file(os.path.join(out, SUMMARY_NAME)) as file:
        file.write(json.dumps(summary, ensure_ascii=False, allow_nan=False, indent=1).encode("utf-8") + b"\n")
    kept = [SUMMARY_NAME]
    if not summary["diverged"]:
        model.save(os.path.join(out, model_file.MODEL_NAME), vocabulary=vocabulary)
        kept.append(model_file.MODEL_NAME)
    obstacle = _draw(out)
    if obstacle is None:
        kept.append(PICTURE_NAME)
    else:
        say(f"no loss curve: {obstacle}")
    say(f"kept in {out}: {', '.join(kept)}")


def _draw(out: str) -> str | None:
    """Draws the loss curve in another Python process. Returns ``None``, or one line with the reason of a failure."""
    import subprocess

    command = [sys.executable, "-m", "burtorch.cli.loss_picture", SUMMARY_NAME, PICTURE_NAME]
    try:
        done = subprocess.run(command, cwd=out, capture_output=True, text=True, errors="replace", timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return None
    return (done.stderr.strip().splitlines() or ["the drawing process failed"])[-1]
