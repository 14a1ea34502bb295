#!/bin/sh
# Is everything here that a build needs? Says in one line what to install, and fails, before anything has been made.
# Usage: check-tools.sh PYTHON [lint]      with "lint" also rustfmt and clippy
set -u
python=$1

need() {
    echo "burtorch needs $*" >&2
    exit 1
}

command -v cargo >/dev/null 2>&1 && command -v rustc >/dev/null 2>&1 ||
    need "cargo and rustc 1.95 or newer, and finds none on the PATH: install Rust from https://rustup.rs"
version=$(rustc --version 2>/dev/null | cut -d ' ' -f 2)
minor=${version#1.}
minor=${minor%%.*}
case $version:$minor in
1.*:*[!0-9]* | 1.*: | [!1]*) minor=0 ;;
esac
[ "$minor" -ge 95 ] || need "rustc 1.95 or newer, and finds ${version:-none that runs}: run 'rustup update stable'"
command -v cc >/dev/null 2>&1 ||
    need "a linker, and finds no cc: install gcc or clang (Debian: apt install gcc libc6-dev; macOS: xcode-select --install)"

command -v "$python" >/dev/null 2>&1 ||
    need "Python 3.11 or newer, and finds no $python: install it, or name yours as in 'make PYTHON=python3.12 demo'"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
    need "Python 3.11 or newer, and $python is older: install one, or name yours as in 'make PYTHON=python3.12 demo'"
"$python" -c 'import venv, ensurepip' 2>/dev/null ||
    need "Python's venv module, and $python has none: install it (Debian: apt install python3-venv)"

[ "${2:-}" != lint ] || { cargo fmt --version && cargo clippy --version; } >/dev/null 2>&1 ||
    need "rustfmt and clippy: run 'rustup component add rustfmt clippy'"
