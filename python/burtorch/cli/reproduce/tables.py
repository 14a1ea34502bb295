"""The result type: a table with columns and units, rows, notes, published figures and pictures."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

Cell = float | int | str | None


@dataclass
class Column:
    name: str
    unit: str = ""

    def head(self) -> str:
        """The head of the column in a table."""
        return f"{self.name}, {self.unit}" if self.unit else self.name


MEMORY = [
    Column("peak resident (RES)", "MB"),
    Column("peak private", "MB"),
    Column("peak virtual (VmSize)", "MB"),
]
COMPARED = ("minimum", "initialisation", "peak resident (RES)")
"""Columns with a note about faster rivals."""
MEMORY_NOTE = (
    "Memory has three columns, as the paper's captions and its appendix name different ones. No system keeps the peak "
    "of private memory: it is the larger of two readings, after initialisation and at the end."
)


@dataclass
class Row:
    label: str
    values: list[Cell]


@dataclass
class Published:
    """A figure measured elsewhere."""

    row: str
    column: str
    value: Cell
    unit: str
    source: str


@dataclass
class Bars:
    """A bar chart of some columns of the table, by their names, with units where names repeat."""

    columns: tuple[str, ...]
    log: bool = True


@dataclass
class Table:
    name: str
    title: str
    columns: list[Column]
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    published: list[Published] = field(default_factory=list)
    bars: Bars | None = None
    files: dict[str, str] = field(default_factory=dict)
    """Text files that go to ``--out``, by name."""
    text: str = ""
    """Markdown instead of rows, such as listings."""
    pictures: list[str] = field(default_factory=list)
    """Its picture files in ``--out``."""
    measured: bool = True
    """Whether the table has more than notes."""

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.title,
            "measured": self.measured,
            "columns": [asdict(column) for column in self.columns],
            "rows": [asdict(row) for row in self.rows],
            "notes": self.notes,
            "published": [asdict(figure) for figure in self.published],
            "text": self.text,
            "pictures": self.pictures,
        }

    def as_markdown(self) -> str:
        lines = [f"## {self.name}: {self.title}", ""]
        if self.text:
            lines += [self.text, ""]
        if self.rows:
            heads = [column.head() for column in self.columns]
            lines += _grid(["", *heads], [[row.label, *map(show, row.values)] for row in self.rows])
        if self.published:
            lines += ["Published or measured elsewhere:", ""]
            lines += _grid(
                ["", "figure", "value", "source"],
                [[p.row, p.column, f"{show(p.value)} {p.unit}".strip(), p.source] for p in self.published],
            )
        lines += [f"![{self.name}]({name})" for name in self.pictures] + [""] * bool(self.pictures)
        lines += [f"- {note}" for note in self.notes] + [""] * bool(self.notes)
        return "\n".join(lines)


NO_RIVALS = ("in theory, registers only", "in memory", "Rust core without Python")
"""Endings of the labels of rows that rivals are not compared with: nothing runs, no file is written, or only rivals
need an interpreter."""


def standing(table: Table, column: str) -> str:
    """The note that names each rival below burtorch's best way from Python in a column.

    Rows whose labels have the same text before ": " are compared with each other.
    """
    (k, *_) = (k for k, found in enumerate(table.columns) if found.name == column)
    groups: dict[str, list[tuple[str, float]]] = {}
    for row in table.rows:
        number, (group, colon, _) = row.values[k], row.label.partition(": ")
        if isinstance(number, (int, float)) and not row.label.endswith(NO_RIVALS):
            groups.setdefault(group if colon else "", []).append((row.label, float(number)))
    ahead = []
    for rows in groups.values():
        own = min((number for label, number in rows if "burtorch" in label), default=0.0)
        ahead += [f"{label} ({number / own:.2f})" for label, number in rows if number < own]
    if ahead:
        return f"Ahead of burtorch's best way from Python in {column}, as a share of its figure: {', '.join(ahead)}."
    return f"burtorch's best way from Python is ahead of every rival in {column}."


def _grid(heads: list[str], rows: list[list[str]]) -> list[str]:
    lines = [f"| {' | '.join(heads)} |", "|---" + "|---:" * (len(heads) - 1) + "|"]
    return [*lines, *(f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |" for row in rows), ""]


def show(value: Cell) -> str:
    """Four significant digits; integers in full."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if isinstance(value, int) or (value == int(value) and abs(value) >= 1000):
        return f"{int(value):,}"
    if value == 0.0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    text = f"{value:#.4g}"
    return text.rstrip(".") if "e" not in text else f"{value:.3e}"
