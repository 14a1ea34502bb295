"""The words of the project: each term of the glossary exists in the code, and replaced words do not return."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = {"core": "crates/burtorch-core/src", "binding": "crates/burtorch-py/src", "package": "python/burtorch"}

BANNED = {
    r"[Rr]ecorded (function|bod)": "a traced function",
    r"\bbt\.Symbols\b|\bPySymbols\b|\bSymbolArray\b": "TokenIds",
    r"\bseats?\b": "a workspace",
    r"[Cc]hecked (form|file)": "the checkpoint format",
    r"\blent\b": "reserved",
    r"\bTurns<|\bTurns::": "OrderedReduction",
    r"\bPortions::": "GuidedChunks",
    r"ops_oracle|derivatives_oracle|f128_oracle|math_oracle": "a reference",
    r"\banew\b": "again",
    r"\b(memory|models?|arrays?|buffers?|crates?|code) of yours\b": "your",
    r"\b[Ww]hat (is|are) no\b": "the noun",
    r"\basks? nobody\b": "the verb, without a person",
    r"\bis put by\b": "the active voice",
    r"\bsomebody's\b": "whose it is",
}
"""By pattern, the replacement."""


def rows(page: str) -> list[list[str]]:
    """The cells of the tables of a page, without headers."""
    lines = [
        line for line in page.splitlines() if line.startswith("| ") and not line.startswith(("| term ", "| to add "))
    ]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def places(cell: str) -> list[Path]:
    """The paths in a cell of the glossary, without suffix."""
    found = [ROOT / SOURCES[crate] / path for crate, path in re.findall(r"(core|binding|package) `([^`]+)`", cell)]
    return found or [ROOT / path for path in re.findall(r"`([^`]+)`", cell)]


def test_every_term_is_in_the_code() -> None:
    """Each names at least one module, and every named module exists."""
    terms = rows((ROOT / "docs" / "glossary.md").read_text())
    assert len(terms) > 50
    assert len({term for term, *_ in terms}) == len(terms)
    for term, meaning, where in terms:
        assert meaning, term
        assert places(where), term
        for path in places(where):
            assert path.is_dir() or path.with_suffix(".rs").is_file(), f"{term}: {path}"


def test_where_to_change_what_names_files_that_exist() -> None:
    """For all eleven rows."""
    page = (ROOT / "ARCHITECTURE.md").read_text()
    table = rows(page[page.index("## Where to change what") : page.index("## Code map of the core")])
    assert len(table) == 11
    for thing, change in table:
        paths = [path for path in re.findall(r"`([^`]+)`", change) if "/" in path]
        assert paths, thing
        assert [path for path in paths if not (ROOT / path).exists()] == [], thing


def texts() -> dict[Path, str]:
    """All texts of the project, except records of measurements and this file."""
    found = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    for folder in ("crates", "python", "docs", "tests", "examples", "benches/python", "benches/core"):
        found += [path for path in (ROOT / folder).rglob("*") if path.suffix in {".rs", ".py", ".pyi", ".md"}]
    return {path: path.read_text(encoding="utf-8") for path in found if path != Path(__file__)}


@pytest.mark.parametrize("pattern", BANNED)
def test_a_word_that_was_replaced_does_not_come_back(pattern: str) -> None:
    """The replacement is in ``BANNED``."""
    found = {
        str(path.relative_to(ROOT)): [line.strip() for line in text.splitlines() if re.search(pattern, line)]
        for path, text in texts().items()
    }
    assert {path: lines for path, lines in found.items() if lines} == {}, f"say: {BANNED[pattern]}"
