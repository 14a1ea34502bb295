"""The report of ``burtorch reproduce``: Markdown and JSON, on the terminal and in ``--out``."""

from __future__ import annotations

import json
import os
from typing import Any

from burtorch.cli import model_file
from burtorch.cli.errors import say
from burtorch.cli.reproduce import charts, machine
from burtorch.cli.reproduce.settings import Settings
from burtorch.cli.reproduce.tables import Table

SCHEMA = 1
"""The version of ``schema.json``, which describes the JSON."""


def write(tables: list[Table], settings: Settings, seconds: float, *, as_json: bool) -> None:
    """Writes the pictures first, because tables name them, then the report."""
    if settings.out is not None:
        for table in tables:
            _keep_pictures(table, settings.out)
    record = as_record(tables, settings, seconds)
    page = as_page(tables, record)
    text = json.dumps(record, ensure_ascii=False, allow_nan=False, indent=1) + "\n"
    print(text if as_json else page, end="", flush=True)
    if settings.out is not None:
        _keep(settings.out, "reproduce.md", page)
        _keep(settings.out, "reproduce.json", text)
        say(f"kept in {settings.out}: reproduce.md, reproduce.json and {sum(len(t.pictures) for t in tables)} pictures")


def as_record(tables: list[Table], settings: Settings, seconds: float) -> dict[str, Any]:
    """The report as data, described by ``schema.json``."""
    return {
        "schema": SCHEMA,
        "machine": machine.describe(),
        "rivals": settings.versions,
        "launches": settings.launches,
        "quick": settings.quick,
        "seconds": seconds,
        "notes": settings.absences(),
        "tables": [table.as_json() for table in tables],
    }


def as_page(tables: list[Table], record: dict[str, Any]) -> str:
    """The same as Markdown."""
    host = record["machine"]
    clock = f"{host['clock_hz'] / 1e6:,.0f} MHz" if host["clock_hz"] else "clock rate unknown"
    memory = f"{host['memory_bytes'] / 1e9:,.1f} GB" if host["memory_bytes"] else "memory unknown"
    present = [f"{name} {version}" for name, version in record["rivals"].items() if version]
    load = f"{host['load'][0]:.1f}" if host["load"] else "unknown"
    virtual = ", a virtual machine" if host["virtual_machine"] else ""
    lines = [
        "# The paper's tables and figures on this machine",
        "",
        f"{host['processor']} ({host['cpu_level']}), {clock}, {host['cores']} cores, {memory}{virtual}; "
        f"{host['system']}; {host['python']}; burtorch {host['burtorch']}.",
        f"Rivals: {', '.join(present) or 'none'}. Load average at the end: {load}. Took {record['seconds']:,.0f} s.",
        *[f"{note[0].upper()}{note[1:]}." for note in record["notes"]],
        "",
    ]
    return "\n".join(lines + [table.as_markdown() for table in tables]).rstrip() + "\n"


def _keep_pictures(table: Table, out: str) -> None:
    for name, text in table.files.items():
        _keep(out, name, text)
        if name.endswith(".svg"):
            table.pictures.append(name)
    if table.bars is None or not table.rows:
        return
    obstacle = charts.draw(table, os.path.join(out, f"{table.name}.png"))
    if obstacle is None:
        table.pictures.append(f"{table.name}.png")
    else:
        table.notes.append(f"No bar chart: {obstacle}")


def _keep(out: str, name: str, text: str) -> None:
    with model_file.whole_file(os.path.join(out, name)) as file:
        file.write(text.encode("utf-8"))
