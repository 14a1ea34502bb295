"""Installed sizes and import times (the claims of appendix E)."""

from __future__ import annotations

import os
from importlib import metadata

from burtorch import _core
from burtorch.cli.reproduce import paper
from burtorch.cli.reproduce.processes import in_rounds
from burtorch.cli.reproduce.rivals import LABELS, RIVALS, RUST
from burtorch.cli.reproduce.settings import Settings
from burtorch.cli.reproduce.tables import MEMORY, Bars, Cell, Column, Row, Table, standing

COLUMNS = [
    Column("installed", "MB"),
    Column("import, minimum", "ms"),
    *MEMORY[:2],
    Column("compile, wall", "s"),
    Column("compile, CPU", "s"),
]

MODULES = {"mlx": "mlx.core"}
"""The module to import if the package alone loads nothing."""


def table(settings: Settings, name: str) -> Table:
    """burtorch and each package of the rivals, without their dependencies."""
    found = Table(name, "size of a package, time and memory of importing it; compile time of the Rust core", COLUMNS)
    packages = ["burtorch", *dict.fromkeys(RIVALS[n].package for n in settings.peers if settings.versions[n])]
    jobs = {
        package or "bare interpreter": {"family": "bare", "program": MODULES.get(package, package)}
        for package in ["", *packages]
    }
    if settings.rust is not None:
        jobs[LABELS[RUST]] = settings.job(RUST, family="bare")
    results, failures = in_rounds(settings, ("sizes",), jobs, settings.launches)
    for package, runs in results.items():
        memory = [runs[0]["memory"][which] for which in ("resident", "private")]
        megabytes = [size / 1e6 if size else None for size in memory]
        least = 1e3 * min(run["init"] for run in runs)
        size = settings.rust.megabytes if package == LABELS[RUST] and settings.rust else installed_megabytes(package)
        found.rows.append(Row(package, [size, least, *megabytes, None, None]))
    found.rows += _compiled(settings)
    found.notes += [
        *failures,
        standing(found, "installed"),
        f"burtorch's extension module alone: {os.path.getsize(str(_core.__file__)) / 1e6:.1f} MB.",
        "Installed size is that of the package's own files, without its dependencies.",
        "Compile time: cargo build --release with link-time optimisation of all that the paper's programs need, "
        "dependencies included, from nothing and again after a change of the program's own file.",
    ]
    found.published = paper.beside(name)
    found.bars = Bars(("installed",))
    return found


def _compiled(settings: Settings) -> list[Row]:
    if settings.rust is None or settings.rust.seconds is None:
        return []
    empty: list[Cell] = [None, None, None, None]
    build = settings.rust
    return [
        Row("cargo: Rust core, from nothing", [*empty, build.seconds, build.cpu_seconds]),
        Row("cargo: Rust core, after a change", [*empty, build.again_seconds, build.again_cpu_seconds]),
    ]


def installed_megabytes(package: str) -> float | None:
    """The size of the distribution with a package; ``None`` if it is unknown."""
    try:
        names = metadata.packages_distributions().get(package, [package])
        files = [file for name in dict.fromkeys(names) for file in metadata.files(name) or []]
    except metadata.PackageNotFoundError:
        return None
    paths = [str(file.locate()) for file in files]
    sizes = [os.path.getsize(path) for path in paths if os.path.isfile(path)]
    return sum(sizes) / 1e6 if sizes else None
