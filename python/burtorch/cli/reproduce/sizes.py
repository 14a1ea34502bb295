"""Sizes and start-up (the claims of appendix E): what is installed, and what an import takes."""

from __future__ import annotations

import os
from importlib import metadata

from burtorch import _core
from burtorch.cli.reproduce.processes import in_turn
from burtorch.cli.reproduce.rivals import RIVALS
from burtorch.cli.reproduce.settings import Settings
from burtorch.cli.reproduce.tables import Bars, Column, Row, Table

COLUMNS = [
    Column("installed", "MB"),
    Column("import, minimum", "ms"),
    Column("peak resident", "MB"),
    Column("private at the end", "MB"),
]

MODULES = {"mlx": "mlx.core"}
"""Where the package alone loads nothing."""


def table(settings: Settings, name: str) -> Table:
    """burtorch and each package of the rivals, without their dependencies."""
    found = Table(name, "size of the package, time and memory of importing it", COLUMNS)
    packages = ["burtorch", *dict.fromkeys(RIVALS[n].package for n in settings.peers if settings.versions[n])]
    jobs = {
        package or "bare interpreter": {"family": "bare", "program": MODULES.get(package, package)}
        for package in ["", *packages]
    }
    results, failures = in_turn(jobs, settings.launches)
    for package, runs in results.items():
        memory = [runs[0]["memory"][which] for which in ("resident", "private")]
        megabytes = [size / 1e6 if size else None for size in memory]
        least = 1e3 * min(run["init"] for run in runs)
        found.rows.append(Row(package, [installed_megabytes(package), least, *megabytes]))
    found.notes += [
        *failures,
        f"burtorch's extension module alone: {os.path.getsize(str(_core.__file__)) / 1e6:.1f} MB.",
        "Installed size is that of the package's own files, without its dependencies.",
        "Compile time is not measured: it needs cargo and a checkout.",
    ]
    found.bars = Bars(("installed",))
    return found


def installed_megabytes(package: str) -> float | None:
    """The files of the distribution that holds a package; ``None`` where that is not known."""
    try:
        names = metadata.packages_distributions().get(package, [package])
        files = [file for name in dict.fromkeys(names) for file in metadata.files(name) or []]
    except metadata.PackageNotFoundError:
        return None
    paths = [str(file.locate()) for file in files]
    sizes = [os.path.getsize(path) for path in paths if os.path.isfile(path)]
    return sum(sizes) / 1e6 if sizes else None
