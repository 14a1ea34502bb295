"""Shared by benches: calls timed in turns, and dated records, benches/record/<date>-<cpu>-<what>.md."""

from __future__ import annotations

import datetime
import platform
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "record"

# AMD family 25 and 26 parts by model number; the name of a hosted EPYC only says "AMD EPYC".
ZEN = [(25, 0x00, 0x0F, 3), (25, 0x10, 0x1F, 4), (25, 0x60, 0x7F, 4), (25, 0xA0, 0xAF, 4), (26, 0x00, 0xFF, 5)]


def cpu_name() -> str:
    """A short name of the processor for a file name, such as epyc-zen4."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return re.sub(r"\W+", "-", platform.processor() or platform.machine()).lower()
    fields = dict(re.findall(r"^(\w[\w ]*?)\s*: (.*)$", text.split("\n\n")[0], re.M))
    name = re.sub(r"\(.*?\)|AMD|Intel|CPU|Processor|@.*|\d+-Core", " ", fields.get("model name", platform.machine()))
    family, model = int(fields.get("cpu family", 0)), int(fields.get("model", 0))
    zen = [
        f"zen{n}"
        for f, low, high, n in ZEN
        if "AMD" in fields.get("vendor_id", "") and f == family and low <= model <= high
    ]
    return "-".join([*re.findall(r"\w+", name), *zen]).lower()


def write_record(what: str, text: str) -> Path:
    """Writes today's record and prints its path."""
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{datetime.date.today().isoformat()}-{cpu_name()}-{what}.md"
    path.write_text(text)
    print(f"written: {path}")
    return path


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """The seconds of a call, and its result."""
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def least(calls: Sequence[Callable[[], Any]], rounds: int, visit: float = 0.0) -> list[float]:
    """The minimum seconds of each call over rounds, in turns; with a duration, the mean of calls during it."""
    counts = [max(1, int(visit / (min(timed(call)[0] for _ in range(3)) + 1e-9))) if visit else 1 for call in calls]
    best = [float("inf")] * len(calls)
    for _ in range(rounds):
        for k, (call, count) in enumerate(zip(calls, counts, strict=True)):
            start = time.perf_counter()
            for _ in range(count):
                call()
            best[k] = min(best[k], (time.perf_counter() - start) / count)
    return best
