"""Writes crates/burtorch-py/order.ld: which functions the linker puts side by side in the extension module.

    RUSTFLAGS=-Clink-arg=-fuse-ld=lld cargo build --release -p burtorch-py      # in no order, with symbols
    python scripts/order_code.py target/release/lib_core.so                     # needs valgrind and nm

Linux maps code in pieces of 64 KB. The few hundred functions that an import, a small graph and a step of training run
are 0.2 MB, but scattered over 10 MB of code for all dtypes they cost 3 MB of memory. The list is of names without what
a compiler makes of them (hashes), so it outlives most changes; a name that is gone costs nothing but its place. What an
import and a small graph run comes first. What is marked as cold, as first calls and growing are, runs all the same, and
what registers classes runs when the module is loaded: both have sections of other names.
"""

from __future__ import annotations

import bisect
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
TARGET = ROOT / "crates" / "burtorch-py" / "order.ld"
FIRST = """
import burtorch
for _ in range(300):
    a, b = burtorch.Value(-41.0), burtorch.Value(2.0)
    g = ((a + b) - (a * b + b**3)) ** 2 / 2
    g.backward()
"""
SECOND = """
import burtorch
contexts = burtorch.text.WordContexts(burtorch.data.default_words(), context=16)
windows = burtorch.text.TextWindows("to be or not to be " * 100, context=8)
chars, gpt = burtorch.nn.CharMLP(burtorch.Parameters(), 27), burtorch.nn.GPT(burtorch.Parameters())
for model, data, make in ((chars, contexts, burtorch.optim.SGD), (gpt, windows, burtorch.optim.AdamW)):
    oracle, optimiser = burtorch.Oracle(model), make(model, lr=0.01)
    for n in (1, 64):
        oracle(*data.batch(n))
        optimiser.step()
    oracle.loss(*data.heldout(0, 8))
    if model is chars:
        oracle.step(*data.batch(64), lr=0.01)
        oracle.step(*data.batch(1), lr=0.01)
"""
HEADER = """/* Functions that an import, a small graph and a step of training run, side by side:
   written by scripts/order_code.py. */
SECTIONS
{
  .text.together :
  {
    *(.text.startup .text.startup.*)
"""
# Bytes; two pages.
LARGE = 8192
FOOTER = """  }
}
INSERT BEFORE .text;
"""


def functions(module: Path) -> list[tuple[int, int, str]]:
    """Start, size and name of every function."""
    table = subprocess.run(["nm", "-S", "--defined-only", module], check=True, capture_output=True, text=True).stdout
    found = []
    for line in table.splitlines():
        parts = line.split()
        if len(parts) == 4 and parts[2] in "tTwW":
            found.append((int(parts[0], 16), int(parts[1], 16), parts[3]))
    return sorted(found)


def executed(module: Path, program: str) -> set[int]:
    """Addresses in the module that a program runs."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "burtorch"
        shutil.copytree(ROOT / "python" / "burtorch", package)
        shutil.copy(module, package / "_core.so")
        trace = Path(folder) / "trace"
        command = ["valgrind", "--tool=callgrind", "--dump-instr=yes", f"--callgrind-out-file={trace}"]
        environment = {"PYTHONPATH": folder, "PYTHONHASHSEED": "0"}
        subprocess.run([*command, sys.executable, "-c", program], check=True, env=environment, capture_output=True)
        return addresses(trace.read_text(encoding="utf-8", errors="replace"))


def addresses(trace: str) -> set[int]:
    """The addresses in ``_core`` of a trace, whose numbers are relative to the line before."""
    names: dict[str, str] = {}
    here, last, found = "", 0, set()
    for line in trace.splitlines():
        if named := re.match(r"(c?)ob=(\(\d+\))(?: (.*))?", line):
            called, number, name = named.groups()
            if name:
                names[number] = name
            if not called:
                here = names[number]
        elif place := re.match(r"(0x[0-9a-f]+|[+-]\d+|\*) ", line):
            text = place[1]
            last = int(text, 16) if text.startswith("0x") else last if text == "*" else last + int(text)
            if "_core" in here and "burtorch" in here:
                found.add(last)
    return found


def pattern(name: str) -> str:
    """The name of a function, whatever compiler made it."""
    name = re.sub(r"Cs[0-9A-Za-z]+_", "Cs*_", name)
    name = re.sub(r"17h[0-9a-f]{16}E", "17h*", name)
    return re.sub(r"\.(llvm\.)?\d+$", "*", name).replace("$", "?")


def names(module: Path, program: str) -> list[str]:
    """Patterns for the functions that a program runs: large ones, of which it runs a part, after the others."""
    table = functions(module)
    starts = [start for start, *_ in table]
    run: dict[str, int] = {}
    for address in executed(module, program):
        start, size, name = table[bisect.bisect_right(starts, address) - 1]
        if address < start + size:
            run[pattern(name)] = size
    # Valgrind knows no AVX-512, so its CPU runs the code for AVX2.
    for name, size in list(run.items()):
        run[re.sub(r"4avx2", "6avx512", re.sub(r"11number_avx2", "13number_avx512", name))] = size
    return sorted(run, key=lambda name: (run[name] > LARGE, name))


def main() -> None:
    module = Path(sys.argv[1])
    first, second = names(module, FIRST), names(module, SECOND)
    ordered = [*first, *(name for name in second if name not in first)]
    lines = "".join(f"    *(.text.{name} .text.unlikely.{name})\n" for name in ordered)
    TARGET.write_text(HEADER + lines + FOOTER, encoding="utf-8")
    print(f"{len(first)} and {len(ordered) - len(first)} functions")


if __name__ == "__main__":
    main()
