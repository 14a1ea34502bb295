"""Energy meters of this machine: counters of the processor, the discharge of a battery, the sampler of macOS.

Promises measured joules or an error, never an estimate. A meter counts from its creation; a counter that wraps around
is followed if the meter is read more often than it wraps (RAPL: every ten minutes is enough up to 400 W).
A meter counts the whole machine, idle power included, whatever runs.
"""

from __future__ import annotations

import errno
import importlib
import os
import re
import struct
import subprocess
import sys
from pathlib import Path
from time import perf_counter

TYPE_CHECKING = False  # as in the package: importing typing costs several milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MICROJOULE = 1e-6
MICROWATT_HOUR = 3600e-6
MILLIWATT_HOUR = 3.6
PLATFORM: str = sys.platform  # otherwise a type checker would skip the code of other systems


class Counter:
    """A number that grows, or falls, with the energy used; ``used()`` returns joules since its creation."""

    def __init__(self, read: Callable[[], float], joules: float, wraps_at: float = 0.0, *, falls: bool = False) -> None:
        self._read, self._joules, self._wraps_at, self._falls = read, joules, wraps_at, falls
        self._last = read()
        self._units = 0.0

    def used(self) -> float:
        now = self._read()
        step = self._last - now if self._falls else now - self._last
        if step < 0.0:
            if not self._wraps_at:
                raise OSError(errno.EIO, "the energy counter decreased: is the battery charging?")
            step += self._wraps_at
        self._units += step
        self._last = now
        return self._units * self._joules

    def close(self) -> None:
        """Does nothing: a counter holds no resource."""


class PowerMetrics:
    """``powermetrics`` of macOS in a separate process; it needs root."""

    def __init__(self, command: tuple[str, ...] = ("powermetrics", "--samplers", "cpu_power", "-i", "200")) -> None:
        import tempfile

        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self._process = subprocess.Popen(command, stdout=self._log, stderr=subprocess.DEVNULL)

    def used(self) -> float:
        if self._process.poll() is not None:
            raise OSError(errno.EIO, "powermetrics ended: run it with sudo")
        self._log.seek(0)
        return power_samples(self._log.read().decode("utf-8", "replace"))

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()
        self._log.close()


def power_samples(text: str) -> float:
    """Joules of the samples that ``powermetrics`` printed: the power of each times its duration."""
    total = 0.0
    for sample in text.split("*** Sampled system activity")[1:]:
        elapsed = re.search(r"\(([\d.]+)ms elapsed\)", sample)
        power = re.search(r"^Combined Power.*?: ([\d.]+) mW", sample, re.M) or re.search(
            r"^(?:CPU|Package) Power: ([\d.]+) mW", sample, re.M
        )
        if elapsed and power:
            total += float(elapsed.group(1)) * float(power.group(1)) * 1e-6
    return total


class EnergyMeter:
    """Joules that the machine has used since the meter was created by :func:`burtorch.system.energy`.

    As a context manager it restarts on entry and stops at the end of the block.
    """

    def __init__(self, source: str, make: Callable[[], list[Any]]) -> None:
        self.source = source
        """The kind of meter: "rapl", "amd", "battery", "powermetrics", "windows-battery" or "nvidia"."""
        self._make = make
        self._counters: list[Any] = []
        self.restart()

    def restart(self) -> None:
        """Count from 0 again."""
        self.close()
        self._counters = self._make()
        self._stopped: tuple[float, float] | None = None
        self._began = perf_counter()

    @property
    def joules(self) -> float:
        """Energy since the start, over all counters, or until the end of the block."""
        return self._now()[0]

    @property
    def seconds(self) -> float:
        """Time since the start, or until the end of the block."""
        return self._now()[1]

    def _now(self) -> tuple[float, float]:
        if self._stopped is not None:
            return self._stopped
        return sum(counter.used() for counter in self._counters), perf_counter() - self._began

    def close(self) -> None:
        """Ends processes of the meter; the last reading remains."""
        for counter in self._counters:
            counter.close()
        self._counters = []

    def __enter__(self) -> EnergyMeter:
        self.restart()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._stopped = self._now()
        finally:
            self.close()

    def __repr__(self) -> str:
        return f"EnergyMeter(source={self.source!r})"


class AbsentError(Exception):
    """A meter cannot be used here; the message names the location, and how to grant permission."""


def find(source: str | None, root: str = "/") -> EnergyMeter:
    """The meter ``source``, or the first available one, below the folder ``root``."""
    if source is not None and source not in FINDERS:
        raise ValueError(f"unknown energy meter {source!r}: expected {', '.join(map(repr, FINDERS))}")
    reasons = []
    for name in [source] if source else DEFAULT:
        try:
            return EnergyMeter(name, FINDERS[name](Path(root)))
        except AbsentError as absent:
            reasons.append(f"{name} ({absent})")
    raise OSError(errno.ENODEV, f"no energy meter; looked for {'; '.join(reasons)}")


def _file(path: Path) -> Callable[[], float]:
    return lambda: float(path.read_text())


def _readable(paths: list[Path], place: str, permission: str) -> list[Path]:
    if not paths:
        raise AbsentError(f"{place}: not found")
    for path in paths:
        try:
            path.read_text()
        except PermissionError:
            raise AbsentError(f"{place}: no permission; {permission}") from None
        except OSError as error:
            raise AbsentError(f"{path}: {error.strerror}") from None
    return paths


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _rapl(root: Path) -> Callable[[], list[Any]]:
    """Packages, and memory if it is counted separately; cores are part of packages, and psys covers both."""
    place = root / "sys/class/powercap"
    found = [
        zone / "energy_uj"
        for zone in sorted(place.glob("intel-rapl*:*"))
        if _text(zone / "name").startswith(("package", "dram")) and (zone / "energy_uj").exists()
    ]
    allow = f"sudo chmod a+r {place}/intel-rapl:*/energy_uj"
    paths = _readable(found, f"{place}/intel-rapl:*/energy_uj", allow)
    wraps = [float(_text(path.with_name("max_energy_range_uj")) or 0) for path in paths]
    return lambda: [Counter(_file(path), MICROJOULE, at) for path, at in zip(paths, wraps)]


def _amd(root: Path) -> Callable[[], list[Any]]:
    """The sockets of the driver amd_energy."""
    place = root / "sys/class/hwmon"
    found = [
        label.with_name(label.name.replace("_label", "_input"))
        for monitor in sorted(place.glob("hwmon*"))
        if _text(monitor / "name") == "amd_energy"
        for label in sorted(monitor.glob("energy*_label"))
        if _text(label).startswith("Esocket")
    ]
    allow = f"sudo chmod a+r {place}/hwmon*/energy*_input"
    paths = _readable(found, f"{place}/hwmon*/energy*_input of amd_energy", allow)
    return lambda: [Counter(_file(path), MICROJOULE) for path in paths]


def _battery(root: Path) -> Callable[[], list[Any]]:
    """The charge of batteries in use: coarse, so measure for minutes."""
    place = root / "sys/class/power_supply"
    levels = _readable(sorted(place.glob("*/energy_now")), f"{place}/*/energy_now", "sudo chmod a+r it")
    used = [path for path in levels if _text(path.with_name("status")) == "Discharging"]
    if not used:
        raise AbsentError(f"{place}/*/energy_now: no battery is discharging; unplug the charger")
    return lambda: [Counter(_file(path), MICROWATT_HOUR, falls=True) for path in used]


def _powermetrics(_root: Path) -> Callable[[], list[Any]]:
    if PLATFORM != "darwin":
        raise AbsentError("macOS only")
    if os.geteuid() != 0:
        raise AbsentError("powermetrics needs root: run the command with sudo")
    return lambda: [PowerMetrics()]


def battery_state(state: bytes) -> tuple[bool, float]:
    """Whether the battery is discharging, and its milliwatt-hours, from Windows' SYSTEM_BATTERY_STATE."""
    _, present, _, discharging, _, _, remaining, *_ = struct.unpack("<4B3xB6I", state)
    return bool(present and discharging), float(remaining)


def _windows_battery(_root: Path) -> Callable[[], list[Any]]:
    if PLATFORM != "win32":
        raise AbsentError("Windows only")
    ctypes = importlib.import_module("ctypes")
    library = ctypes.WinDLL("powrprof")

    def state() -> tuple[bool, float]:
        buffer = ctypes.create_string_buffer(32)
        if library.CallNtPowerInformation(5, None, 0, buffer, 32) != 0:
            raise OSError(errno.EIO, "the state of the battery cannot be read")
        return battery_state(buffer.raw)

    if not state()[0]:
        raise AbsentError("no battery is discharging; unplug the charger")
    return lambda: [Counter(lambda: state()[1], MILLIWATT_HOUR, falls=True)]


def _nvidia(_root: Path) -> Callable[[], list[Any]]:
    """The counters of all NVIDIA devices, in millijoules since the driver was loaded."""
    import ctypes

    try:
        library: Any = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        raise AbsentError("libnvidia-ml.so.1: not found") from None
    n = ctypes.c_uint()
    if library.nvmlInit_v2() or library.nvmlDeviceGetCount_v2(ctypes.byref(n)):
        raise AbsentError("libnvidia-ml.so.1: no driver")

    def reader(device: int) -> Callable[[], float]:
        handle, energy = ctypes.c_void_p(), ctypes.c_ulonglong()
        if library.nvmlDeviceGetHandleByIndex_v2(device, ctypes.byref(handle)):
            raise AbsentError(f"NVIDIA device {device} cannot be opened")

        def read() -> float:
            if library.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(energy)):
                raise OSError(errno.EIO, f"NVIDIA device {device} does not count energy")
            return float(energy.value)

        return read

    readers = [reader(device) for device in range(n.value)]
    return lambda: [Counter(read, 1e-3) for read in readers]


FINDERS: dict[str, Callable[[Path], Callable[[], list[Any]]]] = {
    "rapl": _rapl,
    "amd": _amd,
    "battery": _battery,
    "powermetrics": _powermetrics,
    "windows-battery": _windows_battery,
    "nvidia": _nvidia,
}
DEFAULT = [name for name in FINDERS if name != "nvidia"]
"""The meters to look for, in this order, if none is named."""
