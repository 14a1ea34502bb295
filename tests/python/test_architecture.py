"""The claims of ARCHITECTURE.md about modules: the order of imports, and the modules with unsafe code."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

Crate = runpy.run_path(str(Path(__file__).with_name("rust_arrows.py")))["Crate"]
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "ARCHITECTURE.md").read_text()
CRATES = {"core": Crate(ROOT / "crates/burtorch-core/src"), "binding": Crate(ROOT / "crates/burtorch-py/src")}


def layers(crate: str) -> dict[str, int]:
    """For each top-level module of a crate its position in the list."""
    blocks = re.findall(r"```text\n(.*?)```", PAGE[PAGE.index("## Layers") : PAGE.index("## Invariants")], re.DOTALL)
    lines = blocks[list(CRATES).index(crate)].strip().splitlines()
    return {name: depth for depth, line in enumerate(lines) for name in line.split()}


def fenced(crate: str) -> set[str]:
    """The entries of the table of unsafe modules; a folder ends with a slash."""
    rows = re.findall(rf"^\| {crate} (`[^|]*`) \|", PAGE, re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def wrong(crate: str) -> dict[tuple[str, str], list[str]]:
    """Arrows that point down the list."""
    depth = layers(crate)
    return {(a, b): files for (a, b), files in CRATES[crate].between_rooms().items() if depth[b] > depth[a]}


def cycle(arrows: set[tuple[str, str]]) -> list[str]:
    """The modules that remain after repeatedly removing those without arrows: empty without a cycle."""
    left = {name for arrow in arrows for name in arrow}
    while free := {name for name in left if not any(a == name and b in left for a, b in arrows)}:
        left -= free
    return sorted(left)


@pytest.mark.parametrize("crate", CRATES)
def test_every_module_has_a_layer(crate: str) -> None:
    """And every listed module exists."""
    assert {CRATES[crate].room(name) for name in CRATES[crate].arrows} == set(layers(crate))


@pytest.mark.parametrize("crate", CRATES)
def test_no_arrow_points_down(crate: str) -> None:
    """Arrows go up the list only."""
    assert wrong(crate) == {}


@pytest.mark.parametrize("crate", CRATES)
def test_no_modules_form_a_cycle(crate: str) -> None:
    """Between top-level modules; in the core, between files too."""
    assert cycle(set(CRATES[crate].between_rooms())) == []
    if crate == "core":
        assert CRATES[crate].cycles() == []


@pytest.mark.parametrize("crate", CRATES)
def test_unsafe_code_is_where_the_table_says(crate: str) -> None:
    """Modules outside the table have none, and each entry of the table has some."""
    names = fenced(crate)
    holders = CRATES[crate].unsafe_modules()

    def covers(name: str, module: str) -> bool:
        return module == name.rstrip("/") or (name.endswith("/") and module.startswith(name))

    assert sorted(m for m in holders if not any(covers(name, m) for name in names)) == []
    assert sorted(name for name in names if not any(covers(name, m) for m in holders)) == []


def test_a_wrong_arrow_and_a_cycle_would_be_found(tmp_path: Path) -> None:
    """The reader follows re-exports, nested lists, `super`, inline paths and aliases."""
    files = {
        "lib.rs": "pub mod a; mod b; mod c;",
        "a/mod.rs": "mod inner;\npub use inner::Thing;\npub(crate) use self::inner::Other as Renamed;",
        "a/inner.rs": "pub struct Thing; pub struct Other;\nfn f() -> crate::c::Far { crate::c::Far }",
        "b.rs": "use crate::{a::{Thing, Renamed}, c};\n#[cfg(test)] mod tests { use crate::nowhere::X; }",
        "c.rs": "// use crate::b::Comment;\nuse super::b::{self, g as h};\nunsafe fn k() {}"
        '\nconst S: &str = "unsafe crate::a::Thing";',
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    crate = Crate(tmp_path)
    assert crate.arrows == {"a": set(), "a/inner": {"c"}, "b": {"a/inner", "c"}, "c": {"b"}}
    assert crate.cycles() == [["a/inner", "b", "c"]]
    assert cycle(set(crate.between_rooms())) == ["a", "b", "c"]
    assert crate.unsafe_modules() == {"c"}
