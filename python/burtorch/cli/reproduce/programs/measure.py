"""A process's measurements of itself: times of iterations, peak memory. Independent of the measured program."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

SLICES = 20
_private: list[float] = []


def keep_to_one_core() -> None:
    """The last core that this process may use, on systems that can restrict it."""
    try:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    except AttributeError:
        return


def loop_time(run: Callable[[int], Any], iterations: int, budget: float) -> dict[str, Any]:
    """Times ``iterations`` calls of one body in slices.

    A body that would take longer than ``budget`` seconds runs fewer times and the total is scaled; ``iterations`` in
    the result is the number of runs.
    """
    n = max(1, iterations // (20 * SLICES))
    projected = math.inf
    for _ in range(2):  # the faster counts: an interruption makes no loop faster
        start = perf_counter()
        run(n)
        projected = min(projected, (perf_counter() - start) / n * iterations)
    done = iterations if projected <= budget else max(1, int(iterations * budget / projected))
    slices, left = [], done
    for k in range(SLICES, 0, -1):
        n = left // k
        left -= n
        if n:
            start = perf_counter()
            run(n)
            slices.append((n, perf_counter() - start))
    total = sum(seconds for _, seconds in slices)
    return {
        "seconds": total * iterations / done,
        "minimum": min(seconds / n for n, seconds in slices) * iterations,
        "iterations": done,
    }


def step_times(step: Callable[[], Any], iterations: int, budget: float) -> dict[str, Any]:
    """Seconds of each of many steps: mean, deviation, median, minimum. Ends early after ``budget`` seconds."""
    times: list[float] = []
    end = perf_counter() + budget
    while len(times) < iterations:
        start = perf_counter()
        step()
        now = perf_counter()
        times.append(now - start)
        if now > end:
            break
    mean = sum(times) / len(times)
    variance = sum((x - mean) ** 2 for x in times) / max(1, len(times) - 1)
    return {
        "mean": mean,
        "deviation": math.sqrt(variance),
        "median": sorted(times)[len(times) // 2],
        "minimum": min(times),
        "iterations": len(times),
    }


def note_private() -> None:
    """Reads the private memory of this process; ``memory`` reports the largest reading."""
    fields = _fields("/proc/self/smaps_rollup")
    if fields:
        _private.append(fields["Private_Clean"] + fields["Private_Dirty"])


def memory() -> dict[str, float | None]:
    """Bytes: peak virtual and peak resident memory of this process so far, and its largest private memory.

    ``None`` if the system does not report it: virtual and private on Linux only, resident not on Windows. No system
    records the peak of private memory: it is the larger of the readings after initialisation and now.
    """
    status = _fields("/proc/self/status")
    note_private()
    found: dict[str, float | None] = {"virtual": status.get("VmPeak"), "resident": status.get("VmHWM")}
    found["private"] = max(_private, default=None)
    if found["resident"] is None:
        found["resident"] = _peak_of_usage()
    return found


def _peak_of_usage() -> float | None:
    """For systems without /proc. (On Linux this figure is at least that of the parent process.)"""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak if sys.platform == "darwin" else peak * 1024)


def _fields(path: str) -> dict[str, float]:
    """The lines ``name: number kB`` of a file of /proc, in bytes."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            parts = [line.split() for line in file]
    except OSError:
        return {}
    return {part[0].rstrip(":"): 1024.0 * int(part[1]) for part in parts if len(part) == 3 and part[2] == "kB"}
