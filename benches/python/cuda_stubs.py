"""Let the CUDA build of torch import on a machine without a GPU, without its 2 GB of CUDA libraries.

Holds one step of `make-peers-venv.sh`: for every shared library that torch was linked with and that is absent, a stub
of the same name whose functions all answer "no device" (CUDA error 100). torch then finds no GPU and runs its CPU
code, untouched. It needs gcc, readelf and nm, writes only beside torch's own libraries, and is for the rivals'
throw-away venv, nothing else.

    python cuda_stubs.py VENV/lib/python3.x/site-packages/torch/lib
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

NO_DEVICE = 100
# Symbols without a version name belong to one of these families; any stub may define them.
UNVERSIONED = re.compile(r"^(cuFile|cusparseLt|nccl|nvshmem|curand|cu[A-Z])")


def output(*command: str) -> str:
    """The output of a command."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def missing_libraries(libraries: list[Path]) -> set[str]:
    """Names of the shared libraries that are missing on this machine."""
    present = {path.name for path in libraries} | set(re.findall(r"^\s+(\S+) ", output("/sbin/ldconfig", "-p"), re.M))
    needed = {
        name for path in libraries for name in re.findall(r"NEEDED.*\[(.+)\]", output("readelf", "-d", str(path)))
    }
    return needed - present


def version_owners(libraries: list[Path]) -> dict[str, str]:
    """The library that defines a symbol version, as recorded by the linker."""
    owners: dict[str, str] = {}
    for path in libraries:
        owner = ""
        for kind, name in re.findall(r"(File|Name): (\S+)", output("readelf", "-V", str(path))):
            if kind == "File":
                owner = name
            elif owner:
                owners[name] = owner
    return owners


def wanted_symbols(libraries: list[Path], missing: set[str]) -> dict[str, dict[str, str]]:
    """The symbols to define and their versions, by library. Those without a version go to the first library."""
    owners = version_owners(libraries)
    symbols: dict[str, dict[str, str]] = defaultdict(dict)
    for path in libraries:
        for entry in output("nm", "-D", "--undefined-only", "--with-symbol-versions", str(path)).splitlines():
            name, _, version = entry.split()[-1].partition("@")
            if owners.get(version) in missing:
                symbols[owners[version]][name] = version
            elif not version and UNVERSIONED.match(name):
                symbols[min(missing)].setdefault(name, "")
    return symbols


def build_stub(folder: Path, library: str, symbols: dict[str, str]) -> None:
    """Compile one stub. Its version script gives the names the version that torch needs (each library has one)."""
    functions = "\n".join(f"long {name}(void) {{ return {NO_DEVICE}; }}" for name in sorted(symbols))
    version = max(symbols.values(), default="") or library
    with tempfile.TemporaryDirectory() as scratch:
        source, script = Path(scratch, "stub.c"), Path(scratch, "stub.map")
        source.write_text(functions + "\n")
        script.write_text(f"{version} {{ global: *; }};\n")
        # fmt: off
        output("gcc", "-shared", "-fPIC", "-w", "-fno-builtin", "-o", str(folder / library),
               f"-Wl,-soname,{library}", f"-Wl,--version-script,{script}", str(source))
        # fmt: on


def main(folder: Path) -> None:
    """Write a stub for every library that torch misses."""
    libraries = sorted(path for path in folder.glob("*.so*") if path.is_file())
    missing = missing_libraries(libraries)
    if not missing:
        print("torch has every library it needs")
        return
    symbols = wanted_symbols(libraries, missing)
    for library in sorted(missing):
        build_stub(folder, library, symbols[library])
    print(f"{len(missing)} stubs stand in for the CUDA libraries: torch runs on the CPU only")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
