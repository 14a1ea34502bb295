"""Energy meters, on folders with the layout of real systems."""

from __future__ import annotations

import os
import struct
import sys

import pytest

import burtorch as bt
from burtorch import _energy


def write(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(f"{text}\n")
    return folder


@pytest.fixture
def rapl(tmp_path):
    """Two packages, memory, and domains that must not be counted: cores and the platform."""
    zones = tmp_path / "sys/class/powercap"
    for zone, name in {
        "intel-rapl:0": "package-0",
        "intel-rapl:1": "package-1",
        "intel-rapl:0:0": "core",
        "intel-rapl:0:1": "dram",
        "intel-rapl:2": "psys",
    }.items():
        write(zones / zone, name=name, energy_uj=1_000_000, max_energy_range_uj=5_000_000)
    (zones / "intel-rapl").mkdir()
    return tmp_path


def counter(root, zone):
    return root / "sys/class/powercap" / zone / "energy_uj"


def test_rapl_counts_packages_and_memory(rapl):
    meter = _energy.find(None, str(rapl))
    assert (meter.source, meter.joules) == ("rapl", 0.0)
    counter(rapl, "intel-rapl:0").write_text("3000000\n")
    counter(rapl, "intel-rapl:1").write_text("1500000\n")
    counter(rapl, "intel-rapl:0:1").write_text("1250000\n")
    for other in ("intel-rapl:0:0", "intel-rapl:2"):
        counter(rapl, other).write_text("4000000\n")
    assert meter.joules == pytest.approx(2.75)


def test_a_counter_that_wraps_around_goes_on(rapl):
    meter = _energy.find("rapl", str(rapl))
    at = counter(rapl, "intel-rapl:0")
    for reading, joules in ((4_500_000, 3.5), (250_000, 4.25), (4_999_999, 8.999999), (0, 9.0)):
        at.write_text(f"{reading}\n")
        assert meter.joules == pytest.approx(joules)


def test_a_block_counts_from_its_start_to_its_end(rapl):
    meter = _energy.find("rapl", str(rapl))
    at = counter(rapl, "intel-rapl:1")
    at.write_text("2000000\n")
    with meter:
        at.write_text("2500000\n")
    at.write_text("4000000\n")
    assert meter.joules == pytest.approx(0.5)
    assert meter.seconds == meter.seconds > 0.0


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_counter_that_may_not_be_read_says_how_to_allow_it(rapl):
    counter(rapl, "intel-rapl:0").chmod(0)
    with pytest.raises(OSError, match=r"no permission; sudo chmod a\+r .*intel-rapl:\*/energy_uj"):
        _energy.find("rapl", str(rapl))


def test_a_refused_reading_says_how_to_allow_it(rapl, monkeypatch):
    def refuse(path, *_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(_energy.Path, "read_text", refuse)
    with pytest.raises(_energy.AbsentError, match=r"no permission; sudo"):
        _energy._readable([counter(rapl, "intel-rapl:0")], "somewhere", "sudo chmod a+r it")


def test_amd_counts_sockets_only(tmp_path):
    monitors = tmp_path / "sys/class/hwmon"
    write(monitors / "hwmon0", name="coretemp", energy1_label="Esocket0", energy1_input=5)
    monitor = write(
        monitors / "hwmon1",
        name="amd_energy",
        **{"energy1_label": "Ecore000", "energy1_input": 7, "energy2_label": "Esocket0", "energy2_input": 10},
    )
    meter = _energy.find(None, str(tmp_path))
    write(monitor, energy1_input=9_000_000, energy2_input=2_000_010)
    assert (meter.source, meter.joules) == ("amd", pytest.approx(2.0))


def test_a_battery_counts_what_it_loses_while_it_discharges(tmp_path):
    supplies = tmp_path / "sys/class/power_supply"
    write(supplies / "AC", online=0)
    battery = write(supplies / "BAT0", energy_now=50_000_000, status="Charging")
    with pytest.raises(OSError, match=r"no battery is discharging; unplug"):
        _energy.find("battery", str(tmp_path))
    write(battery, status="Discharging")
    meter = _energy.find(None, str(tmp_path))
    write(battery, energy_now=49_990_000)
    assert (meter.source, meter.joules) == ("battery", pytest.approx(36.0))
    write(battery, energy_now=49_995_000)
    with pytest.raises(OSError, match="decreased"):
        _ = meter.joules


def test_without_a_meter_the_error_names_all_that_were_looked_for(tmp_path):
    with pytest.raises(OSError, match="no energy meter; looked for") as caught:
        _energy.find(None, str(tmp_path))
    for name in _energy.DEFAULT:
        assert f"{name} (" in str(caught.value)
    assert "nvidia" not in str(caught.value)


def test_an_unknown_source_is_refused():
    with pytest.raises(ValueError, match=r"unknown energy meter 'sun': expected 'rapl', "):
        bt.system.energy("sun")


SAMPLES = """
*** Sampled system activity (Mon Nov 23 01:00:00 2026 +0000) (250.00ms elapsed) ***
E-Cluster Power: 100 mW
CPU Power: 1500 mW
GPU Power: 20 mW
Combined Power (CPU + GPU + ANE): 2000 mW

*** Sampled system activity (Mon Nov 23 01:00:01 2026 +0000) (500.00ms elapsed) ***
CPU Power: 3000 mW
"""


def test_samples_of_powermetrics_are_power_times_time():
    assert _energy.power_samples(SAMPLES) == pytest.approx(0.25 * 2.0 + 0.5 * 3.0)
    assert _energy.power_samples("Machine model: none\n") == 0.0


def test_powermetrics_is_read_while_it_runs_and_ended():
    sampler = _energy.PowerMetrics((sys.executable, "-uc", f"print({SAMPLES!r}); import time; time.sleep(60)"))
    while not (used := sampler.used()):
        pass
    assert used == pytest.approx(2.0)
    sampler.close()
    assert sampler._process.returncode is not None
    refused = _energy.PowerMetrics((sys.executable, "-c", "raise SystemExit(1)"))
    refused._process.wait()
    with pytest.raises(OSError, match="sudo"):
        refused.used()
    refused.close()


def test_the_state_of_a_battery_of_windows():
    state = struct.pack("<4B3xB6I", 0, 1, 0, 1, 0, 60_000, 41_500, 0, 0, 0, 0)
    assert len(state) == 32
    assert _energy.battery_state(state) == (True, 41_500.0)
    assert _energy.battery_state(struct.pack("<4B3xB6I", 1, 1, 1, 0, 0, 60_000, 41_500, 0, 0, 0, 0))[0] is False
