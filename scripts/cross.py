"""Tests on other machines, and on another Python, in a folder with Debian's packages: `make cross`.

    python scripts/cross.py                       # every target
    python scripts/cross.py aarch64-unknown-linux-gnu
    python scripts/cross.py --tests levels:bits:: # one test binary, and a part of its names
    python scripts/cross.py cpython-3.14 --suite 1/6 2/6
    python scripts/cross.py --rust ~/.rustup/toolchains/stable-x86_64-unknown-linux-gnu

With `--rust` the compiler is that of a toolchain of rustup, with the libraries that `rustup target add` gave it.

The folder, target/cross/forky, takes 5 GB with what is built in it, and the first run downloads 1.5 GB. Nothing
outside of it changes: `rm -rf target/cross` removes everything. What takes longer than `--limit` seconds is cut off.
The table has a line for each target: the number of tests requested and passed, and the failures.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MIRROR = "http://deb.debian.org/debian"
# The compiler, linkers, emulators, and the std of other machines where Debian has one.
PYTHON = "3.14"
PACKAGES = [
    *("ca-certificates", "gcc", "libc6-dev", "rustc", "cargo", "rust-src", "libstd-rust-dev-wasm32"),
    *("libstd-rust-dev:arm64", "gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross", "qemu-user"),
    *("gcc-mingw-w64-x86-64-posix", "musl-tools"),
    f"python{PYTHON}-venv",
]
# Wine is not in forky; the one before has it.
OLDER = "trixie"
WINE = "wine64"
WINE_PATH = "/usr/lib/wine/wine64"
# Two targets of Windows link with mingw's libraries. "gnu" takes the arithmetic of float128 from libgcc, which returns
# results elsewhere than the compiler expects; "gnullvm" takes the compiler's own, as "msvc" does. Its linker is clang,
# whose options for libraries gcc does not know and does not need.
MINGW = "x86_64-w64-mingw32-gcc"
WINDOWS_LINKER = f"""#!/bin/sh
for option; do
    shift
    case "$option" in --unwindlib=none | -nolibc) ;; *) set -- "$@" "$option" ;; esac
done
exec {MINGW} "$@"
"""
# The unwinder of Debian's gcc asks glibc which loaded object holds an address. musl has no such function, and without
# an answer no panic is caught. The unwinder reads one field of it: the table of frames.
FIND_OBJECT = """
#define _GNU_SOURCE
#include <link.h>

struct found { unsigned long long flags; void *start, *end, *map, *frames; };
struct search { ElfW(Addr) address; struct found *found; };

static int look(struct dl_phdr_info *info, size_t size, void *data) {
    struct search *search = data;
    void *frames = 0;
    int holds = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        ElfW(Addr) start = info->dlpi_addr + part->p_vaddr;
        if (part->p_type == PT_GNU_EH_FRAME) frames = (void *) start;
        if (part->p_type == PT_LOAD && search->address - start < part->p_memsz) holds = 1;
    }
    search->found->frames = frames;
    return holds && frames;
}

int _dl_find_object(void *address, struct found *found) {
    struct search search = { (ElfW(Addr)) address, found };
    return dl_iterate_phdr(look, &search) ? 0 : -1;
}
"""


@dataclass
class Target:
    """How the core is built for a machine, and what runs it."""

    name: str
    runner: str | None = ""  # "": tests run directly; None: tests are not run
    linker: str = ""
    builds_std: bool = False
    flags: str = ""
    compiler: str = ""  # of C, where it is not the linker

    @property
    def how(self) -> str:
        """A word for the table."""
        if self.runner is None:
            return "compiled"
        return f"run by {Path(self.runner.split()[0]).name}" if self.runner else "run"


TARGETS = [
    Target("x86_64-unknown-linux-gnu"),
    Target("aarch64-unknown-linux-gnu", "qemu-aarch64 -L /usr/aarch64-linux-gnu", "aarch64-linux-gnu-gcc"),
    Target("x86_64-unknown-linux-musl", "", "musl-gcc", True, "-L /target/musl -C target-feature=-crt-static"),
    Target("x86_64-pc-windows-gnullvm", WINE_PATH, "/target/windows/linker-gcc", True, "-L /target/windows", MINGW),
    Target("aarch64-apple-darwin", None, builds_std=True),
    Target("x86_64-apple-darwin", None, builds_std=True),
    Target("wasm32-unknown-unknown", None),
]
# The crates of the standard library that are built for a target without one, and how far they are optimised.
STD = {"compiler_builtins": 3, "core": 1, "alloc": 1, "std": 1}
TESTS = ["levels", "engine"]
# The interpreter of the folder, for which the package is built as development builds are.
INTERPRETER = f"cpython-{PYTHON}"
PARTS = [f"{k}/6" for k in range(1, 7)]


class Folder:
    """Debian in a folder, with this repository in it at /burtorch and what is built at /target."""

    def __init__(self, path: Path, rust: Path | None = None) -> None:
        self.path = path
        self.rust = rust

    def make(self) -> None:
        """Make what is missing of it."""
        if not (self.path / "etc" / "debian_version").exists():
            print(f"making {self.path}", flush=True)
            # The script of unstable is that of every release whose name debootstrap does not know yet.
            script = "/usr/share/debootstrap/scripts/sid"
            subprocess.run(["debootstrap", "--variant=minbase", "forky", self.path, MIRROR, script], check=True)
        for name in ("burtorch", "target/musl", "target/windows", "cargo", "rust"):
            (self.path / name).mkdir(parents=True, exist_ok=True)
        shutil.copy("/etc/resolv.conf", self.path / "etc/resolv.conf")
        certificates = Path("/etc/ssl/certs/ca-certificates.crt")  # also those of a proxy
        if certificates.exists():
            shutil.copy(certificates, self.path / "cargo/ca.crt")
        (self.path / "target/musl/find_object.c").write_text(FIND_OBJECT)
        linker = self.path / "target/windows/linker-gcc"
        linker.write_text(WINDOWS_LINKER)
        linker.chmod(0o755)
        install = "DEBIAN_FRONTEND=noninteractive apt-get --solver internal -qq -y install --no-install-recommends"
        wanted = (
            "dpkg --add-architecture arm64 && apt-get -qq update && "
            f"{install} {' '.join(PACKAGES)} && "
            f"VERSION=$(apt-cache madison {WINE} | awk '{{print $3; exit}}') && "
            f"{install} {WINE}=$VERSION libwine=$VERSION && apt-get clean && "
            # The unwinder, under the name that std asks for.
            f'cp "$({MINGW} -print-file-name=libgcc_eh.a)" /target/windows/libunwind.a && '
            'cp "$(gcc -print-file-name=libgcc_eh.a)" /target/musl/libgcc_s.a && '
            "musl-gcc -O2 -fPIC -c -o /target/musl/find_object.o /target/musl/find_object.c && "
            "ar r /target/musl/libgcc_s.a /target/musl/find_object.o"
        )
        made = self.path / ".made"
        if made.exists() and made.read_text() == wanted:
            return
        apt = self.path / "etc/apt"
        # A mirror may be older than its lists say is right; their signatures are checked all the same.
        (apt / "apt.conf.d/99cross").write_text('Acquire::Check-Valid-Until "false"; APT::Sandbox::User "root";\n')
        # Documentation is left out, and files are not synced to disk.
        left_out = "".join(f"path-exclude=/usr/share/{name}/*\n" for name in ("doc", "locale", "man"))
        (self.path / "etc/dpkg/dpkg.cfg.d/99cross").write_text(f"force-unsafe-io\n{left_out}")
        (apt / f"sources.list.d/{OLDER}.list").write_text(f"deb [arch=amd64] {MIRROR} {OLDER} main\n")
        (apt / f"preferences.d/{OLDER}").write_text(f"Package: *\nPin: release n={OLDER}\nPin-Priority: 100\n")
        self.run(wanted)
        made.write_text(wanted)

    def run(self, command: str, environment: dict[str, str] | None = None, limit: float | None = None) -> str:
        """Run a line of shell in the folder, and return what it printed; an error shows the end of that."""
        mounts = (
            'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && mount --bind "$1" "$0/burtorch" && '
            'mount --bind "$3" "$0/rust" && cd "$0" && exec chroot "$0" /bin/sh -c "cd /burtorch && $2"'
        )
        fixed = {
            "PATH": "/rust/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
            "LANG": "C.UTF-8",
            "CARGO_HOME": "/cargo",
            "CARGO_TARGET_DIR": "/target",
            "CARGO_INCREMENTAL": "0",
            "CARGO_PROFILE_DEV_DEBUG": "0",
            "CARGO_PROFILE_TEST_DEBUG": "0",
            "CARGO_HTTP_CAINFO": "/cargo/ca.crt",
            "WINEDEBUG": "-all",
        }
        # The mounts are those of this process, and end with it.
        line = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", mounts]
        done = subprocess.run(
            [*line, str(self.path), str(ROOT), command, str(self.rust or self.path / "rust")],
            env={**fixed, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=limit,
        )
        text = done.stdout.decode(errors="replace")
        if done.returncode:
            raise CommandError(text)
        return text

    def builds_std(self, target: Target) -> bool:
        """Whether the standard library of a target is built here."""
        has_one = self.rust is not None and (self.rust / "lib/rustlib" / target.name / "lib").exists()
        return target.builds_std and not has_one


class CommandError(Exception):
    """A command in the folder failed; the text is what it printed."""


def settings(folder: Folder, target: Target) -> dict[str, str]:
    """What Cargo reads from the environment."""
    name = target.name.upper().replace("-", "_")
    found = {"RUSTC_BOOTSTRAP": "1"} if folder.builds_std(target) else {}
    if folder.rust:
        found["CARGO_TARGET_DIR"] = "/target/rust"
    if target.runner and "qemu" in target.runner:
        # The checks of a development build take longer to compile than they are worth here, and to emulate.
        found |= {"CARGO_PROFILE_DEV_DEBUG_ASSERTIONS": "false", "CARGO_PROFILE_DEV_OVERFLOW_CHECKS": "false"}
    if target.linker:
        found[f"CARGO_TARGET_{name}_LINKER"] = target.linker
    if target.compiler:
        found[f"CC_{target.name.replace('-', '_')}"] = target.compiler
    if target.flags:
        found[f"CARGO_TARGET_{name}_RUSTFLAGS"] = f"{target.flags} -C link-self-contained=no"
    return found


def cargo(folder: Folder, target: Target, command: str) -> str:
    """A line of Cargo for a target."""
    # What the core depends on takes longer to optimise than it saves. A standard library that is built here is
    # optimised: it has the arithmetic of float128, which the tests of accuracy use more than anything else.
    plain = "--config 'profile.dev.package.\"*\".opt-level=0'"
    std = [f"--config profile.dev.package.{crate}.opt-level={level}" for crate, level in STD.items()]
    how = " ".join(["-Zbuild-std=std,panic_unwind", plain, *std] if folder.builds_std(target) else [plain])
    return f"cargo {how} {command} --locked --target {target.name}"


def executables(text: str) -> dict[str, str]:
    """The test binaries that Cargo says it built."""
    found = {}
    for line in text.splitlines():
        message = json.loads(line) if line.startswith("{") else {}
        if message.get("executable"):
            found[message["target"]["name"]] = message["executable"]
    return found


@dataclass
class Count:
    """What became of tests."""

    passed: int = 0
    ignored: int = 0
    asked: int = 0

    def __str__(self) -> str:
        ignored = f", {self.ignored} ignored" if self.ignored else ""
        return f"{self.passed} of {self.asked} passed{ignored}"


def test(folder: Folder, target: Target, tests: list[str], limit: float) -> tuple[Count, list[str]]:
    """How many tests passed of how many, and what did not."""
    names = " ".join(f"--test {name.partition(':')[0]}" for name in tests)
    command = cargo(folder, target, f"test -p burtorch-core --no-run --message-format json {names}")
    built = executables(folder.run(command, settings(folder, target)))
    count, wrong = Count(), []
    for name in tests:
        binary, _, part = name.partition(":")
        environment = {"BURTORCH_BITS": f"/target/{target.name}.bits"}
        log = f"/target/{target.name}-{binary}.log"
        start = f"cd crates/burtorch-core; timeout {limit} {target.runner} {built[binary]} {part}"
        count.asked += len(re.findall(r": test\s*$", folder.run(f"{start} --list"), re.M))
        # What is slow is cut off: the log then holds what had passed.
        status = int(folder.run(f"{start} > {log} 2>&1; echo $?", environment).split()[-1])
        text = (folder.path / log[1:]).read_text(errors="replace")
        count.passed += len(re.findall(r"^test .* \.\.\. ok\s*$", text, re.M))
        count.ignored += len(re.findall(r"^test .* \.\.\. ignored", text, re.M))
        wrong += [f"{failed} failed" for failed in re.findall(r"^test (.*) \.\.\. FAILED", text, re.M)]
        if status == 124:
            wrong.append(f"{binary} cut off after {limit:.0f} s")
        elif status and not wrong:
            wrong.append(f"{binary} ended with {status}: {text[-300:]}")
    return count, wrong


def suite(folder: Folder, parts: list[str], limit: float) -> tuple[Count, list[str]]:
    """Build the package for the folder's interpreter and run parts of the Python suite; as `test`."""
    made = f"python{PYTHON} -m venv /target/python && /target/python/bin/pip install -q -r requirements-dev.txt"
    folder.run(
        f"{made} && rm -rf /target/wheels && "
        "/target/python/bin/maturin build --locked --interpreter /target/python/bin/python --out /target/wheels && "
        "/target/python/bin/pip install -q --no-deps --force-reinstall /target/wheels/*.whl",
        {"PIP_CERT": "/cargo/ca.crt", "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    )
    count, wrong = Count(), []
    for part in parts:
        log = f"/target/{INTERPRETER}-{part.replace('/', '-')}.log"
        tests = "/target/python/bin/pytest -rfE -v --no-header -m 'not alone' -p no:cacheprovider"
        status = int(folder.run(f"timeout {limit} {tests} > {log} 2>&1; echo $?", {"BURTORCH_PART": part}).split()[-1])
        text = (folder.path / log[1:]).read_text(errors="replace")
        number = re.search(r"collected (\d+) items(?: / (\d+) deselected)?", text)
        count.asked += int(number[1]) - int(number[2] or 0) if number else 0
        count.passed += len(re.findall(r" PASSED +\[", text))
        count.ignored += len(re.findall(r" SKIPPED ", text))
        wrong += [f"{failed} failed" for failed in re.findall(r"^(?:FAILED|ERROR) (\S+)", text, re.M)]
        if status == 124:
            wrong.append(f"part {part} cut off after {limit:.0f} s")
        elif status > 1:
            wrong.append(f"part {part} ended with {status}: {text[-300:]}")
    return count, wrong


def bits(folder: Folder, target: Target) -> str | None:
    """The SHA-256 of the gradients that a target computed."""
    path = folder.path / f"target/{target.name}.bits"
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else None


def binding(folder: Folder, target: Target) -> str:
    """Compile the Python package for a target; it needs no Python there."""
    environment = {**settings(folder, target), "PYO3_CROSS": "1", "PYO3_CROSS_PYTHON_VERSION": PYTHON}
    command = cargo(folder, target, "build -p burtorch-py --message-format json")
    try:
        text = folder.run(command, environment)
    except CommandError as failure:
        return f"failed: {str(failure)[-300:]}"
    # What a target cannot link is left out with a warning.
    library = re.search(r'"filenames":\["(/[^"]*core\.(?:so|dll))"', text)
    if library is None:
        return "failed: no library"
    size = (folder.path / library[1][1:]).stat().st_size
    return f"linked, {size / 1e6:.1f} MB"


@dataclass
class Row:
    """A line of the table."""

    name: str
    how: str
    passed: str = ""
    bits: str | None = None
    wrong: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name:28} {self.how:20} {self.passed:36} {(self.bits or '')[:16]:18} {'; '.join(self.wrong)}"

    @property
    def is_good(self) -> bool:
        """Whether nothing failed; what was cut off did not."""
        failed = re.compile(r" failed\b|^failed:|^not built| ended with ")
        return not any(failed.search(text) for text in self.wrong)


def row(folder: Folder, target: Target | None, arguments: argparse.Namespace) -> Row:
    """What a target did; without one, the folder's Python."""
    if target is None:
        count, wrong = suite(folder, arguments.suite, arguments.limit)
        return Row(INTERPRETER, "run", str(count), None, tuple(wrong))
    if target.runner is None:
        folder.run(cargo(folder, target, "check -p burtorch-core"), settings(folder, target))
        return Row(target.name, target.how)
    count, wrong = test(folder, target, arguments.tests, arguments.limit)
    package = [binding(folder, target)] if arguments.binding else []
    return Row(target.name, target.how, str(count), bits(folder, target), (*package, *wrong))


def read_arguments() -> argparse.Namespace:
    """The command line, checked."""
    names = [*(target.name for target in TARGETS), INTERPRETER]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(names))
    parser.add_argument("--folder", type=Path, default=ROOT / "target/cross/forky", help="where Debian goes")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="test binaries, each with :PART of names or without")
    parser.add_argument("--suite", nargs="+", default=PARTS, help=f"parts of the Python suite for {INTERPRETER}: 1/6")
    parser.add_argument("--limit", type=float, default=1200.0, help="seconds for a test binary or a part of the suite")
    parser.add_argument("--rust", type=Path, help="a toolchain of rustup to use in place of Debian's compiler")
    parser.add_argument("--binding", action="store_true", help="also build the Python package for each target")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("a folder with Debian is made by root: run it with sudo")
    missing = [tool for tool in ("debootstrap", "unshare", "chroot") if shutil.which(tool) is None]
    if missing:
        parser.error(f"not installed: {', '.join(missing)} (on Debian: apt-get install debootstrap util-linux)")
    unknown = set(arguments.targets) - set(names)
    if unknown:
        parser.error(f"no such target: {', '.join(sorted(unknown))}")
    return arguments


def main() -> int:
    """Print a line for each target; 1 when a test failed or bits differ."""
    arguments = read_arguments()
    folder = Folder(arguments.folder.absolute(), arguments.rust and arguments.rust.absolute())
    folder.make()
    rows = []
    for target in (*TARGETS, None):
        name = target.name if target else INTERPRETER
        if arguments.targets and name not in arguments.targets:
            continue
        try:
            rows.append(row(folder, target, arguments))
        except CommandError as failure:
            rows.append(Row(name, "not built", wrong=(f"not built: {str(failure)[-1500:]}",)))
        print(rows[-1], flush=True)
    if len({row.bits for row in rows} - {None}) > 1:
        print("the bits of gradients differ: compare the files *.bits of the folder", file=sys.stderr)
        return 1
    return 0 if all(row.is_good for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
