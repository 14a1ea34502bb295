"""The description of the machine in a report."""

from __future__ import annotations

import os
import platform
import re
from typing import Any

import burtorch


def describe() -> dict[str, Any]:
    """Processor, cores, clock, memory, system, Python, load."""
    info = _read("/proc/cpuinfo")
    memory = re.search(r"MemTotal:\s+(\d+) kB", _read("/proc/meminfo"))
    model = re.search(r"^model name\s*: (.*)$", info, re.M)
    return {
        "processor": model.group(1) if model else platform.processor() or platform.machine(),
        "architecture": platform.machine(),
        "cpu_level": burtorch.system.cpu_level(),
        "cores": _cores(),
        "clock_hz": clock_hz(info),
        "memory_bytes": 1024 * int(memory.group(1)) if memory else None,
        "system": platform.platform(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "burtorch": burtorch.__version__,
        "load": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
        "virtual_machine": "hypervisor" in info,
    }


def clock_hz(info: str | None = None) -> float | None:
    """The clock rate reported by the kernel; ``None`` if it reports none."""
    found = re.search(r"^cpu MHz\s*: ([\d.]+)$", _read("/proc/cpuinfo") if info is None else info, re.M)
    return 1e6 * float(found.group(1)) if found else None


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
