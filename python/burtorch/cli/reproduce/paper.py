"""Published figures beside a table: those of the paper, and of its C++ program on another machine (``paper.csv``).

Only available figures are listed. The cells of the paper's own tables were in no available text, except those with the
source "paper": the others have a line without a value.
"""

from __future__ import annotations

import csv
import functools
from importlib.resources import files

from burtorch.cli.reproduce.tables import Published

SOURCES = {
    "abstract": "abstract of arXiv 2503.13795v1",
    "paper": "arXiv 2503.13795v1, tables 1 and 5",
    "cpp": "the paper's C++ program (gcc 12 where no compiler is named) on one core of an AMD EPYC (Zen 4), 2026-11-20",
    "unread": "arXiv 2503.13795v1; not copied: the tables were in no text at hand",
}


@functools.cache
def _rows() -> list[dict[str, str]]:
    text = files("burtorch.cli.reproduce").joinpath("paper.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def beside(name: str) -> list[Published]:
    """The published figures beside a table."""
    return [
        Published(
            row["row"],
            row["column"],
            float(row["value"]) if row["value"] else None,
            row["unit"],
            SOURCES[row["source"]],
        )
        for row in _rows()
        if name in row["tables"].split()
    ]
